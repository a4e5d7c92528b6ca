"""Axes of a kernel: found, told apart, replaced everywhere at once."""

from __future__ import annotations

import pytest

from test.codegen.kernel_builder import Axes, kernel, load
from weft import Variable, dtypes
from weft.codegen.opt.axes import (
    all_axes,
    closed_axes,
    closers_of,
    find_axis,
    fold_index,
    fresh_axes,
    index_const,
    is_reduced,
    piece,
    replace_axes,
    size_of,
)
from weft.codegen.opt.opt import OptError
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def sums() -> tuple[UOp, UOp, UOp]:
    """sum over r of x[i, r], for 3 rows of 8."""
    a = Axes()
    i, r = a.loop(3), a.reduce(8)
    out, x = UOp.param(0, dtypes.float32, 3), UOp.param(1, dtypes.float32, 24)
    return kernel(out.index(i).store(load(x, i * 8 + r).reduce(Ops.ADD, r), i)), i, r


def test_axes_are_found_by_place_and_by_number() -> None:
    ast, i, r = sums()
    assert all_axes(ast) == [i, r]
    assert find_axis(ast, 1) is r and find_axis(ast, (0,)) is i
    with pytest.raises(OptError, match="axes 0 to 1"):
        find_axis(ast, 2)
    with pytest.raises(OptError, match="no axis numbered"):
        find_axis(ast, (7,))


def test_who_ends_an_axis() -> None:
    ast, i, r = sums()
    assert closers_of(ast, i) == [ast.src[0]] and closed_axes(ast.src[0]) == (i,)
    assert is_reduced(ast, r) and not is_reduced(ast, i)


def test_sizes_are_constants() -> None:
    _, i, _ = sums()
    assert size_of(i) == 3
    with pytest.raises(OptError, match="run-time size"):
        size_of(UOp.range(Variable("n", 1, 8), 0))


def test_an_axis_is_replaced_in_expressions_and_where_it_ends() -> None:
    ast, i, r = sums()
    outer = piece(r, 0, index_const(2), AxisType.REDUCE)
    inner = piece(r, 1, index_const(4), AxisType.UNROLL)
    new = replace_axes(ast, {r: outer * 4 + inner}, {r: (outer, inner)})
    assert all_axes(new) == [i, outer, inner]
    (reduce,) = [u for u in new.toposort() if u.op is Ops.REDUCE]
    assert closed_axes(reduce) == (outer, inner)


def test_fresh_axes_have_numbers_that_nobody_has() -> None:
    ast, i, r = sums()
    fresh = fresh_axes(ast, [i, r])
    assert not {axis.arg.number for axis in fresh.values()} & {(0,), (1,)}
    assert [size_of(axis) for axis in fresh.values()] == [3, 8]


def test_index_arithmetic_folds() -> None:
    _, i, _ = sums()
    assert fold_index(UOp(Ops.MUL, i.dtype, (i, index_const(1)))) is i
    assert fold_index(UOp(Ops.ADD, i.dtype, (index_const(2), index_const(3)))) is index_const(5)
    again = fold_index(UOp(Ops.ADD, i.dtype, (i + 1, index_const(2))))
    assert again is i + 3
