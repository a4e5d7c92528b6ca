"""Writes through indices that may be equal, on a device whose kernels run on many threads at once.

The interpreter of a GPU runs them in random order and finds races; the numbers are those of writing
one element after another.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft import Context, Tensor, Variable
from weft.codegen.pipeline import lower
from weft.engine.schedule import clear_schedules
from weft.machine import generic
from weft.renderer.cuda import SM_90
from weft.renderer.python import PythonRenderer
from weft.schedule import order_writes as module
from weft.schedule.order_writes import order_writes
from weft.uop import ranks, segments
from weft.uop.args import Unique, Unordered
from weft.uop.node import UOp
from weft.uop.opset import Ops

GPU = "PYTHON:sm_90"
random = np.random.default_rng(4)


@pytest.fixture(params=["joined", "counted", "by digits"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Three ways: ints that are joined in any order, or the order of indices, by comparing them or
    by digits, in blocks that few indices fill."""
    if request.param != "joined":
        monkeypatch.setattr(module, "joined_store", lambda *_: None)
        monkeypatch.setattr(module, "is_joined", lambda _: False)
        monkeypatch.setattr(ranks, "BLOCK", 128)
    if request.param == "by digits":
        monkeypatch.setattr(segments, "COUNTED", 8)
        monkeypatch.setattr(module, "COUNTED", 8)
        monkeypatch.setattr(segments, "BLOCK", 8)
        monkeypatch.setattr(segments, "DIGIT", 2)
    monkeypatch.setattr(segments, "SCANNED", 4)
    monkeypatch.setattr(segments, "SUMMED", 4)
    clear_schedules()
    yield
    clear_schedules()


def gpu(data: Any) -> Tensor:
    return Tensor(data, device=GPU).realize()


INDEX = random.integers(-9, 9, 37).astype(np.int32)
VALUES = random.integers(-5, 6, 37).astype(np.float32)


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_sums_at_equal_indices(way: None, dtype: Any) -> None:
    start = np.arange(9).astype(dtype)
    expected = start.copy()
    np.add.at(expected, INDEX % 9, VALUES.astype(dtype))
    found = gpu(start).scatter_reduce(0, gpu(INDEX % 9), gpu(VALUES.astype(dtype)), "sum")
    np.testing.assert_array_equal(found.numpy(), expected)


@pytest.mark.parametrize(("name", "method"), [("amax", np.maximum), ("prod", np.multiply)])
def test_other_reductions(way: None, name: str, method: Any) -> None:
    start, factors = np.ones(9, np.float32), np.sign(VALUES) * 2
    expected = start.copy()
    method.at(expected, INDEX % 9, factors)
    found = gpu(start).scatter_reduce(0, gpu(INDEX % 9), gpu(factors), name)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_the_last_one_wins(way: None) -> None:
    expected = np.zeros(11, np.float32)
    expected[INDEX % 9] = np.arange(37)
    found = gpu(np.zeros(11, np.float32)).scatter(0, gpu(INDEX % 9), gpu(np.arange(37.0)))
    np.testing.assert_array_equal(found.numpy(), expected)


def test_rows_at_negative_indices_and_none_outside(way: None) -> None:
    index = np.array([0, -1, 5, 3, -7, 0, 6, 5, -9], np.int64)
    rows = np.arange(27, dtype=np.float32).reshape(9, 3)
    expected = np.zeros((7, 3), np.float32)
    for place, row in zip(index, rows, strict=True):
        if -7 <= place < 7:
            expected[place] = row
    found = gpu(np.zeros((7, 3), np.float32))
    found[gpu(index)] = gpu(rows)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_two_axes_of_three(way: None) -> None:
    first, second = INDEX[:20] % 3, INDEX[17:] % 4
    rows = np.arange(40, dtype=np.float32).reshape(2, 20)
    expected = np.zeros((3, 2, 4), np.float32)
    for number in range(20):
        expected[first[number], :, second[number]] = rows[:, number]
    found = gpu(np.zeros((3, 2, 4), np.float32))
    found[gpu(first), :, gpu(second)] = gpu(rows.T)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_gradients_of_an_embedding(way: None) -> None:
    weight, outer = np.ones((9, 4), np.float32), random.integers(-3, 4, (37, 4)).astype(np.float32)
    expected = np.zeros((9, 4), np.float32)
    np.add.at(expected, INDEX % 9, outer)
    table = gpu(weight)
    (found,) = (table[gpu(INDEX % 9)] * gpu(outer)).sum().gradient(table)
    np.testing.assert_array_equal(found.numpy(), expected)


def test_floats_give_the_same_bits_in_any_order() -> None:
    values = random.normal(0, 1, 60).astype(np.float32)
    index = random.integers(0, 3, 60).astype(np.int32)
    results = []
    for seed in range(3):
        with Context(PYTHON_SEED=seed):
            total = gpu(np.zeros(3, np.float32)).scatter_reduce(0, gpu(index), gpu(values), "sum")
            results.append(total.numpy().tobytes())
    assert len(set(results)) == 1


def test_one_number_for_all_places_needs_no_order() -> None:
    target = gpu(np.zeros(9, np.float32))
    target[gpu(INDEX % 9)] = 3.0
    items = target.schedule()
    assert len(items) == 1
    assert target.tolist() == [3.0 if place in INDEX % 9 else 0.0 for place in range(9)]


def test_computed_indices_that_repeat_are_written_in_order(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """They were taken for distinct ones."""
    with Context(DEBUG=1):
        target = gpu(np.zeros(8, np.float32))
        target[Tensor.arange(16) // 2] = gpu(np.arange(16, dtype=np.float32))
        assert target.tolist() == [1, 3, 5, 7, 9, 11, 13, 15]
    said = capsys.readouterr().out
    assert "test_order_writes.py" in said and "writes in order, on one thread" in said


@pytest.mark.parametrize("make", ["sort", "nonzero", "topk", "cumsum", "randperm", "scatter"])
def test_nothing_runs_on_one_thread(make: str, capsys: pytest.CaptureFixture[str]) -> None:
    values = gpu(VALUES)
    with Context(DEBUG=1):
        clear_schedules()
        {
            "sort": lambda: values.sort()[0].numpy(),
            "nonzero": lambda: values.nonzero().numpy(),
            "topk": lambda: values.topk(5)[0].numpy(),
            "cumsum": lambda: values.cumsum(0).numpy(),
            "randperm": lambda: Tensor.randperm(30, device=GPU).numpy(),
            "scatter": lambda: values.scatter(0, gpu(INDEX % 9), values).numpy(),
        }[make]()
    assert "on one thread" not in capsys.readouterr().out


def test_devices_that_run_in_order_keep_the_graph() -> None:
    target = Tensor.zeros(9, device="CPU").contiguous().realize()
    target[Tensor(INDEX % 9, device="CPU")] = Tensor(VALUES, device="CPU")
    sink = UOp.sink(target.uop)
    assert order_writes(sink, generic, UOp.new_buffer) is sink
    new = order_writes(sink, lambda device: SM_90, UOp.new_buffer)
    stores = [u for u in new.toposort() if u.op is Ops.STORE and u.src[0].op is Ops.GATHER]
    assert stores and all([isinstance(store.arg, (Unique, Unordered)) for store in stores])


def test_rows_that_are_written_in_order_have_a_thread_for_each_column() -> None:
    """How many indices there are is a variable, so they cannot be sorted."""
    count = Variable("n", 1, 12).bind(9)
    index, rows = INDEX[:12] % 3, np.arange(72, dtype=np.float32).reshape(12, 6)
    expected = np.zeros((3, 6), np.float32)
    for place, row in zip(index[:9], rows[:9], strict=True):
        expected[place] = row
    found = gpu(np.zeros((3, 6), np.float32))
    found[gpu(index).shrink(((0, count),))] = gpu(rows).shrink(((0, count), (0, 6)))
    kernels = [item.kernel for item in found.schedule() if item.kernel is not None]
    spec = lower(kernels[-1], PythonRenderer(SM_90))
    assert spec.local_size == (6, 1, 1)
    np.testing.assert_array_equal(found.numpy(), expected)
