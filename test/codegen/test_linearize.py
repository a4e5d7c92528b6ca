"""linearize: the order of the list."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.kernel_builder import F32, Axes, count, kernel, linear_program, load, params, run
from weft.codegen.linearize import identity_of
from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

P, Q = UOp.param(0, F32, 1000), UOp.param(1, F32, 1000)


def ops(uops: list[UOp]) -> list[str]:
    head = (Ops.PARAM, Ops.CONST, Ops.VECTORIZE, Ops.INDEX)
    return [u.op.name for u in uops if u.op not in head and u.dtype is not dtypes.int64]


def test_a_reduce_is_a_register_around_a_loop() -> None:
    a = Axes()
    i, k = a.loop(10), a.reduce(10)
    uops = linear_program(kernel(P.index(i).store(load(Q, i * 10 + k).reduce(Ops.ADD, k) * 2, i)))
    assert ops(uops) == [
        "ACC",
        "LOAD",
        "LOAD",
        "ADD",
        "ACC_SET",
        "END",
        "LOAD",
        "MUL",
        "STORE",
        "END",
    ]
    after = [u for u in uops if u.op is Ops.LOAD][-1]
    assert after.src[1].op is Ops.END


def test_each_store_follows_its_value() -> None:
    """Values of several outputs do not pile up in registers before the first store."""
    i = Axes().upcast(4)
    uops = linear_program(kernel(P.index(i).store(load(Q, i) * 2, i)))
    assert ops(uops) == ["LOAD", "MUL", "STORE"] * 4


def test_in_place_loads_come_before_the_stores() -> None:
    i = Axes().upcast(3)
    uops = linear_program(kernel(P.index(i).store(load(P, i) * 2, i)))
    first_store = next(n for n, u in enumerate(uops) if u.op is Ops.STORE)
    assert all(n < first_store for n, u in enumerate(uops) if u.op is Ops.LOAD)


def test_every_node_stands_once() -> None:
    a = Axes()
    i, j, k = a.loop(4), a.upcast(3), a.reduce(4)
    value = load(Q, i * 4 + k + j).reduce(Ops.MAX, k)
    uops = linear_program(kernel(P.index(i * 3 + j).store(value, i, j)))
    assert len(set(uops)) == len(uops) and count(uops, Ops.ACC) == 3


def test_identities() -> None:
    assert identity_of(Ops.ADD, dtypes.int8).arg == 0
    assert identity_of(Ops.MUL, F32).arg == 1.0
    assert identity_of(Ops.MAX, F32).arg == float("-inf")
    assert identity_of(Ops.MAX, dtypes.int8).arg == -128
    assert identity_of(Ops.MAX, dtypes.bool).arg is False
    assert identity_of(Ops.MAX, F32.vec(4)).op is Ops.VECTORIZE


def test_products_use_up_the_operand_of_which_there_are_more() -> None:
    """3 x 5 products: every one of the five is used by all three before the next is read."""
    a = Axes()
    i, j, k = a.upcast(3), a.upcast(5), a.reduce(10)
    value = (load(P, k * 8 + i) * load(Q, k * 8 + j)).reduce(Ops.ADD, k)
    out = UOp.param(2, F32, 15)
    uops = linear_program(kernel(out.index(i * 5 + j).store(value, i, j)))
    products = [u for u in uops if u.op is Ops.MUL and u.dtype is F32]
    rows, columns = ([u.src[side] for u in products] for side in (0, 1))
    assert rows == [rows[0], rows[1], rows[2]] * 5
    assert columns == [column for column in dict.fromkeys(columns) for _ in range(3)]
    first_use = {column: columns.index(column) for column in columns}
    places = {u: n for n, u in enumerate(uops)}
    for column, number in first_use.items():
        if number:
            assert places[column] > places[products[number - 1]]


def several_products(rows: int, *, is_used_again: bool = False) -> tuple[UOp, list[np.ndarray]]:
    """Sums over k of a*b + c*d + e*f, for each of some rows and two columns."""
    columns, length = 2, 6
    pick = np.random.default_rng(0)
    sizes = [rows * length, columns * length] * 3
    arrays = [np.zeros(rows * columns, np.float32)]
    arrays += [pick.integers(-8, 8, size).astype(np.float32) for size in sizes]
    out, *inputs = params(*arrays)
    a = Axes()
    i, j, k = a.upcast(rows), a.upcast(columns), a.reduce(length)
    left = [load(p, i * length + k) for p in inputs[::2]]
    right = [load(p, k * columns + j) for p in inputs[1::2]]
    first, second, third = [x * y for x, y in zip(left, right, strict=True)]
    value = (first + second + third).reduce(Ops.ADD, k)
    if is_used_again:
        value = value + (first + second).reduce(Ops.MAX, k)
    return kernel(out.index(i * columns + j).store(value, i, j)), arrays


def test_registers_take_in_one_product_after_the_other() -> None:
    """No sum of products beside those of the tile, and all with one pair of factors first."""
    ast, arrays = several_products(4)
    uops = run(ast, *arrays)
    _, *given = arrays
    pairs = [
        (x.reshape(4, 6), y.reshape(6, 2)) for x, y in zip(given[::2], given[1::2], strict=True)
    ]
    expected = sum(x @ y for x, y in pairs)
    np.testing.assert_array_equal(arrays[0].reshape(4, 2), expected)
    added = [u for u in uops if u.op is Ops.ADD and u.dtype is F32]
    assert len(added) == 3 * 8 and all(u.src[1].op is Ops.MUL for u in added)
    # the memory that the left factors come from
    slots = [u.src[1].src[0].src[0].src[0].arg.slot for u in added]
    assert slots == [1] * 8 + [3] * 8 + [5] * 8


@pytest.mark.parametrize(("rows", "is_used_again"), [(3, False), (4, True)])
def test_sums_of_products_that_stay_together(rows: int, is_used_again: bool) -> None:
    """A few registers would wait for each product, and what is used again is computed once."""
    ast, arrays = several_products(rows, is_used_again=is_used_again)
    added = [u for u in run(ast, *arrays) if u.op is Ops.ADD and u.dtype is F32]
    assert any(u.src[1].op is not Ops.MUL for u in added)
    _, *given = arrays
    products = [
        x.reshape(rows, 6, 1) * y.reshape(1, 6, 2)
        for x, y in zip(given[::2], given[1::2], strict=True)
    ]
    expected = sum(products).sum(1)
    if is_used_again:
        expected = expected + (products[0] + products[1]).max(1)
    np.testing.assert_array_equal(arrays[0].reshape(rows, 2), expected)
