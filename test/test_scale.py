"""Large programs: nothing recurses, cost is linear, nothing is left behind."""

from __future__ import annotations

import gc
import os

import numpy as np
import pytest

from weft import GlobalCounters, Tensor, dtypes
from weft.engine.forms import clear_forms
from weft.uop.intern import live_uops


def free_memory() -> int:
    """Bytes of memory the system could give us; 0 where it does not say."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            fields = dict(line.split(":", 1) for line in file)
        return int(fields["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError):
        return 0


def test_chain_of_100_000_elementwise_ops() -> None:
    x = Tensor([0.0, 1.0]).realize()
    y = x
    for _ in range(50_000):
        y = (y + 1.0) * 1.0001
    expected = np.array([0.0, 1.0], dtype=np.float64)
    for _ in range(50_000):
        expected = (expected + 1.0) * 1.0001
    np.testing.assert_allclose(y.numpy(), expected, rtol=1e-2)


def test_sum_of_10_000_tensors() -> None:
    parts = [Tensor([float(i % 7)]).realize() for i in range(10_000)]
    total = parts[0]
    for part in parts[1:]:
        total = total + part
    assert total.item() == sum(i % 7 for i in range(10_000))


def test_perceptron_of_300_layers() -> None:
    rng = np.random.default_rng(0)
    weights = [(rng.standard_normal((16, 16)) / 4).astype(np.float32) for _ in range(300)]
    x = rng.standard_normal((4, 16)).astype(np.float32)
    t = Tensor(x)
    n = x.astype(np.float64)
    for w in weights:
        t = (t @ Tensor(w)).relu() + t * 0.5
        n = np.maximum(n @ w, 0) + n * 0.5
    scale = np.abs(n).max()
    np.testing.assert_allclose(t.numpy() / scale, n / scale, atol=1e-3)


def test_nothing_is_left_behind() -> None:
    def work() -> None:
        x = Tensor(np.ones((8, 8), dtype=np.float32))
        y = (x @ x).softmax(-1)
        z = y.sum() + x.max()
        z.realize()

    def left() -> tuple[int, int]:
        # of calls that look alike a bounded number is remembered
        clear_forms()
        gc.collect()
        return GlobalCounters.mem_used, live_uops()

    work()
    before = left()
    for _ in range(3):
        work()
    # other tests may have left something in `before` that has ended since
    memory, nodes = left()
    assert memory == before[0] and nodes <= before[1]


def test_what_is_remembered_of_calls_does_not_grow() -> None:
    def work() -> None:
        x = Tensor(np.ones((8, 8), dtype=np.float32)).realize()
        y = (x @ x).softmax(-1).realize()
        y.assign(x * 2).realize()
        (y.sum() + x.max()).item()

    for _ in range(3):
        work()
    gc.collect()
    memory, nodes = GlobalCounters.mem_used, live_uops()
    for _ in range(5):
        work()
    gc.collect()
    assert GlobalCounters.mem_used <= memory
    assert live_uops() <= nodes


@pytest.mark.skipif(
    "WEFT_TEST_LARGE" not in os.environ or free_memory() < 10 << 30,
    reason="on demand: set WEFT_TEST_LARGE=1 on a machine with 10 GiB of free memory",
)
def test_more_than_2_32_elements_sum_correctly() -> None:
    n = (1 << 32) + 12345
    t = Tensor.full((n,), 1, dtype=dtypes.uint8).contiguous().realize()
    assert t.sum(dtype=dtypes.int64).item() == n
