"""columns: what there is one of for each row of a tile is computed for many rows at a time."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.codegen.opt.kernels import numbers, zeros
from test.codegen.test_shuffle import computes_the_same, loads
from weft.uop.node import UOp
from weft.uop.opset import Ops

LANES = 8


def count(sink: UOp, op: Ops) -> int:
    return sum(u.op is op for u in sink.toposort())


def row_scales(sink: UOp) -> list[int]:
    """How many numbers each load of the second array gives."""
    return [n.dtype.count for n in loads(sink) if n.src[0].src[0].arg.slot == 2]


@pytest.mark.parametrize(
    "rows, sizes",
    [
        (4, [4]),
        (5, [4, 1]),
        (6, [4, 2]),
        (7, [4, 2, 1]),
        (14, [8, 4, 2]),
        (16, [16]),
        (17, [16, 1]),
    ],
)
def test_a_factor_for_each_row(rows: int, sizes: list[int]) -> None:
    arrays = [zeros(3 * rows * LANES), numbers(3 * rows * LANES), numbers(3 * rows + 5)]
    out, x, scale = params(*arrays)
    a = Axes()
    i, u, v = a.loop(3), a.upcast(rows), a.vector(LANES)
    at = (i * rows + u) * LANES + v
    factor = (load(scale, i * rows + u + 5) * 2.0 + 0.5).sqrt()
    result = computes_the_same(kernel(out.index(at).store(load(x, at) * factor, i, u, v)), arrays)
    assert row_scales(result) == sizes
    assert count(result, Ops.SQRT) == len(sizes)


@pytest.mark.parametrize("rows, step", [(3, 1), (8, 2), (8, 0)])
def test_few_rows_or_such_that_are_no_neighbours_stay_apart(rows: int, step: int) -> None:
    arrays = [zeros(rows * LANES), numbers(rows * LANES), numbers(rows * max(step, 1))]
    out, x, scale = params(*arrays)
    a = Axes()
    u, v = a.upcast(rows), a.vector(LANES)
    value = load(x, u * LANES + v) * load(scale, u * step)
    result = computes_the_same(kernel(out.index(u * LANES + v).store(value, u, v)), arrays)
    assert set(row_scales(result)) == {1}


def test_a_row_that_may_be_missing_is_asked_about() -> None:
    """There is memory for the rows that are there, and no more."""
    arrays = [zeros(8 * LANES), numbers(8 * LANES), numbers(5)]
    out, x, scale = params(*arrays)
    a = Axes()
    u, v = a.upcast(8), a.vector(LANES)
    value = load(x, u * LANES + v) + load(scale, u, u < 5)
    result = computes_the_same(kernel(out.index(u * LANES + v).store(value, u, v)), arrays)
    assert set(row_scales(result)) == {1}


def test_products_read_their_numbers_one_by_one() -> None:
    """In a sum of products each is spread over the lanes by the instruction that reads it."""
    arrays = [zeros(8 * LANES), numbers(20 * LANES), numbers(20 * 8)]
    out, x, y = params(*arrays)
    a = Axes()
    u, v, k = a.upcast(8), a.vector(LANES), a.reduce(20)
    total = (load(x, k * LANES + v) * load(y, k * 8 + u)).reduce(Ops.ADD, k)
    result = computes_the_same(kernel(out.index(u * LANES + v).store(total, u, v)), arrays)
    assert set(row_scales(result)) == {1}


def test_other_uses_of_a_row_take_its_lane() -> None:
    arrays = [zeros(8 * LANES), numbers(8 * LANES), numbers(8), zeros(8)]
    out, x, scale, sums = params(*arrays)
    a = Axes()
    u, v = a.upcast(8), a.vector(LANES)
    factor = -load(scale, u)
    stores = [
        out.index(u * LANES + v).store(load(x, u * LANES + v) * factor, u, v),
        sums.index(u).store(factor + 1.0, u),
    ]
    computes_the_same(kernel(*stores), arrays)


@pytest.mark.parametrize("dtype", [np.float64, np.int32])
def test_other_dtypes(dtype: type) -> None:
    arrays = [array.astype(dtype) for array in (zeros(64), numbers(64), numbers(8))]
    out, x, scale = params(*arrays)
    a = Axes()
    u, v = a.upcast(8), a.vector(8)
    value = load(x, u * 8 + v) * load(scale, u)
    result = computes_the_same(kernel(out.index(u * 8 + v).store(value, u, v)), arrays)
    assert set(row_scales(result)) == ({8} if dtype is np.float64 else {1})
