"""linearize: the order of the list."""

from __future__ import annotations

from test.codegen.kernel_builder import F32, Axes, count, kernel, linear_program, load
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
