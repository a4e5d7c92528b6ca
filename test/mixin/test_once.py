"""Methods built once: later calls give what the first one gave, for other tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check
from weft import Context, Tensor, TinyJit, dtypes
from weft.mixin import once
from weft.mixin.once import built_once


@pytest.fixture(autouse=True)
def _no_templates() -> None:
    once.clear_templates()


class Counter:
    """How often a method was built."""

    def __init__(self) -> None:
        self.built = 0

    def method(self) -> Any:
        def doubled(x: Tensor, y: Tensor, factor: int) -> tuple[Tensor, Tensor]:
            self.built += 1
            return x * factor + y, y.flip(0)

        return built_once(doubled)


def test_a_graph_is_built_once_per_shape_dtype_and_argument() -> None:
    counter = Counter()
    method = counter.method()
    for shape in ((3,), (3,), (4,)):
        for dtype in ("float32", "int32"):
            x = np.arange(shape[0]).astype(dtype)
            first, second = method(Tensor(x), Tensor(x + 1), 3)
            check(first, 4 * x + 1)
            check(second, (x + 1)[::-1])
    assert counter.built == 4
    method(Tensor([1, 2, 3]), Tensor([1, 2, 3]), 4)
    assert counter.built == 5


def test_settings_are_part_of_what_was_built() -> None:
    x = Tensor([3.0, 1.0, 2.0])
    with Tensor.no_grad():
        kept = x.sort()[0]
    assert x.sort()[0].sum().gradient(x)[0].tolist() == [1.0, 1.0, 1.0]
    assert (kept.sum() + x.sum()).gradient(x)[0].tolist() == [1.0, 1.0, 1.0]
    with Tensor.no_grad():
        kept = x.cumsum(0)
    assert (kept.sum() + x.sum()).gradient(x)[0].tolist() == [1.0, 1.0, 1.0]
    assert x.cumsum(0).sum().gradient(x)[0].tolist() == [3.0, 2.0, 1.0]
    default = dtypes.default_int
    try:
        dtypes.default_int = dtypes.int64
        assert x.argsort().dtype is dtypes.int64 and x.sort()[1].dtype is dtypes.int64
    finally:
        dtypes.default_int = default
    assert x.sort()[1].dtype is dtypes.int32


def test_what_has_no_device_or_a_symbolic_size_is_built_each_time() -> None:
    counter = Counter()
    method = counter.method()
    for _ in range(2):
        method(Tensor.zeros(3), Tensor.ones(3), 2)
    assert counter.built == 2


def test_parameters_made_inside_are_not_shared() -> None:
    made = built_once(lambda x: x + Tensor.zeros(3).requires_grad_())
    x = Tensor([1.0, 2.0, 3.0])
    assert made(x).tolist() == made(x).tolist() == [1.0, 2.0, 3.0]


def test_results_have_storage_of_their_own() -> None:
    data = np.random.default_rng(0).permutation(3000).astype(np.float32)
    x = Tensor(data).realize()
    first, second = x.argsort(), x.argsort()
    first[0] = -1
    check(second, np.argsort(data))
    check(first[1:], np.argsort(data)[1:])
    check(x.cumsum(0), np.cumsum(data.astype(np.float64)))


def test_a_template_is_forgotten_when_there_are_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(once, "_MOST", 2)
    counter = Counter()
    method = counter.method()
    for size in (1, 2, 3, 1):
        x = Tensor(np.arange(size))
        method(x, x, 2)
    assert counter.built == 4 and len(once._templates) == 2


def test_a_jitted_function_replays_what_was_built_once() -> None:
    @TinyJit
    def ordered(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, places = x.topk(3)
        return values.realize(), places.realize(), x.argsort().realize()

    for seed in range(5):
        data = np.random.default_rng(seed).standard_normal(2000).astype(np.float32)
        values, places, order = ordered(Tensor(data).realize())
        check(order, np.argsort(data))
        wanted = np.argsort(-data)[:3]
        check(places, wanted)
        check(values, data[wanted])


def test_a_template_passes_the_verifier() -> None:
    with Context(SPEC=2):
        for _ in range(2):
            check(Tensor([3, 1, 2]).sort()[0], np.array([1, 2, 3]))
