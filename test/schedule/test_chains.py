"""Chains of kernels: indices as plain sums, and who reads what alone."""

from __future__ import annotations

from weft import dtypes
from weft.schedule.build import Built
from weft.schedule.chains import linear_index, loads_of, replace_chains, sole_sources
from weft.schedule.draft import Draft
from weft.uop.node import UOp

A, B = UOp.range(4, 0), UOp.range(8, 1)


def test_an_index_as_steps() -> None:
    assert linear_index(A * 8 + B + 3) == ({A: 8, B: 1}, 3)
    assert linear_index(UOp.const(dtypes.weakint, 5)) == ({}, 5)
    assert linear_index(A // 2) is None and linear_index(A * B) is None
    assert linear_index(A + A * 2) is None or linear_index(A * 3) == ({A: 3}, 0)


def test_loads_of_one_memory() -> None:
    x, y = (UOp.new_buffer("CPU", 32, dtypes.float32) for _ in range(2))
    loads = [x.index(A).load(), x.index(B).load()]
    assert set(loads_of(loads[0] + loads[1] * y.index(A).load(), x)) == set(loads)


def built(writes: UOp, *waits: UOp) -> Built:
    return Built(Draft(writes, 0, "CPU"), [], waits=dict.fromkeys(waits), writes=[writes])


def test_a_value_that_one_kernel_reads_exists_for_it_alone() -> None:
    a, b, c = (UOp.new_buffer("CPU", 4, dtypes.float32) for _ in range(3))
    first, second, third = built(a), built(b, a), built(c, a, b)
    assert sole_sources([first, second], set())(second) == [(a, first)]
    assert sole_sources([first, second], {a})(second) == []
    assert sole_sources([first, second, third], set())(third) == [(b, second)]


def test_chains_are_replaced_unless_kernels_would_wait_in_a_circle() -> None:
    a, b = (UOp.new_buffer("CPU", 4, dtypes.float32) for _ in range(2))
    first, second = built(a), built(b, a)
    fused = built(b)
    assert replace_chains([first, second], {second: fused}, {first}) == [fused]
    assert replace_chains([first, second], {}, set()) == [first, second]
    circle = built(a, b)
    assert replace_chains([first, second], {first: circle}, set()) == [first, second]
