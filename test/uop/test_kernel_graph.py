"""A kernel read back as a graph gives what the kernel gives."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor, UOp, dtypes
from weft.errors import ArgumentError
from weft.uop.kernel_graph import run_kernel, written_slots
from weft.uop.ops import Ops


def flat(array: np.ndarray) -> UOp:
    return Tensor(array).realize().uop.reshape((array.size,))


def parameters(*sizes: int) -> list[UOp]:
    return [UOp.param(slot, dtypes.float32, size) for slot, size in enumerate(sizes)]


def run(kernel: UOp, *arrays: np.ndarray) -> dict[int, list[float]]:
    states = run_kernel(kernel, [flat(array) for array in arrays], lambda store: store)
    return {slot: Tensor(state).tolist() for slot, state in states.items()}


def test_writes_are_in_the_order_of_the_ranges() -> None:
    """Outermost first, whatever order the ranges are found in: the last one wins."""
    target, source = parameters(1, 6)
    i, j = UOp.range(2, 1), UOp.range(3, 0)
    value = source.index(i * 3 + j).load()
    arrays = np.zeros(1, np.float32), np.arange(6, dtype=np.float32)
    zero = UOp.const(dtypes.weakint, 0)
    assert run(target.index(zero).store(value, i, j).sink(), *arrays) == {0: [5.0]}


def test_a_reduction_inside_a_reduction() -> None:
    target, source = parameters(2, 12)
    i, j, k = UOp.range(2, 0), UOp.range(2, 1), UOp.range(3, 2)
    inner = source.index(i * 6 + j * 3 + k).load().reduce(Ops.MAX, k)
    kernel = target.index(i).store(inner.reduce(Ops.ADD, j), i).sink()
    array = np.random.default_rng(0).random((2, 2, 3)).astype(np.float32)
    found = run(kernel, np.zeros(2, np.float32), array)
    np.testing.assert_allclose(found[0], array.max(2).sum(1), rtol=1e-6)


def test_a_value_that_does_not_depend_on_a_reduced_range_counts_each_time() -> None:
    target, _ = parameters(1, 1)
    k = UOp.range(5, 0)
    value = UOp.const(dtypes.float32, 2.0).reduce(Ops.ADD, k)
    zero = UOp.const(dtypes.weakint, 0)
    assert run(target.index(zero).store(value).sink(), np.zeros(1, np.float32)) == {0: [10.0]}


def test_ranges_as_values_and_conditions() -> None:
    (target,) = parameters(5)
    i = UOp.range(5, 0)
    value = (i < 2).where(i.cast(dtypes.float32), 9.0)
    assert run(target.index(i).store(value, i).sink(), np.zeros(5, np.float32)) == {
        0: [0.0, 1.0, 9.0, 9.0, 9.0]
    }


def test_slots_that_are_written() -> None:
    first, second = parameters(3, 3)
    i = UOp.range(3, 0)
    store = second.index(i).store(first.index(i).load(), i)
    assert written_slots(store.sink()) == [1]
    with pytest.raises(ArgumentError, match="stay open"):
        written_slots(second.index(i).store(first.index(i).load()).sink())
    with pytest.raises(ArgumentError, match="found LOAD"):
        written_slots(first.index(i).load().sink())
