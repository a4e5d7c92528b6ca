"""Lanes: scalars, vectors and steps, in the plainest form."""

from __future__ import annotations

import pytest

from weft import dtypes
from weft.codegen.lanes import (
    Place,
    Ramp,
    add,
    apply,
    is_true,
    load,
    materialize,
    plus,
    scalar,
    scale,
    store,
)
from weft.errors import CompileError
from weft.uop.node import UOp
from weft.uop.opset import Ops

A = UOp.range(8, 0)
MEMORY = UOp.param(0, dtypes.float32, 64)


def test_steps_stay_steps_under_sums_and_products() -> None:
    moved = add(Ramp(A, 1), UOp.const(dtypes.weakint, 3))
    assert isinstance(moved, Ramp) and moved.step == 1 and moved.base is A + 3
    scaled = scale(moved, 4)
    assert isinstance(scaled, Ramp) and scaled.step == 4
    assert add(Ramp(A, 1), Ramp(A, -1)) is plus(A, A)


def test_steps_become_vectors_where_a_value_is_needed() -> None:
    lanes = materialize(Ramp(UOp.const(dtypes.weakint, 5), 2), 4)
    assert [lane.arg for lane in lanes.src] == [5, 7, 9, 11]
    assert materialize(A, 4) is A
    with pytest.raises(CompileError, match="lanes"):
        scalar(Ramp(A, 1))


def test_neighbours_are_one_vector_load_and_equal_lanes_one_scalar() -> None:
    node = MEMORY.index(A).load()
    vector = load(node, Place(MEMORY, Ramp(A * 4, 1), None), 4)
    assert vector.op is Ops.LOAD and vector.dtype == dtypes.float32.vec(4)
    single = load(node, Place(MEMORY, A, None), 4)
    assert single.dtype is dtypes.float32


def test_a_vector_store_ends_its_loops() -> None:
    value = UOp.const(dtypes.float32.vec(4), 1.0)
    found = store(Place(MEMORY, Ramp(A * 4, 1), None), value, 4, (A,))
    assert found is not None and found.op is Ops.STORE and found.src[-1] is A


def test_what_is_equal_in_every_lane_stays_scalar() -> None:
    one = UOp.const(dtypes.weakint, 1)
    node = UOp(Ops.ADD, dtypes.weakint, (A, one))
    assert isinstance(apply(node, (A, one), 4), UOp)
    assert is_true(UOp.const(dtypes.bool, True)) and not is_true(Ramp(A, 1))
