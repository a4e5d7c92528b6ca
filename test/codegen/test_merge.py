"""merge: which reduces come to share their axes."""

from __future__ import annotations

from test.codegen.kernel_builder import F32, Axes, kernel, load
from weft.codegen.merge import merge
from weft.uop.node import UOp
from weft.uop.opset import Ops

P, Q, R = UOp.param(0, F32, 100), UOp.param(1, F32, 100), UOp.param(2, F32, 100)


def reduce_axes(sink: UOp) -> int:
    return len({u.src[1:] for u in merge(sink).toposort() if u.op is Ops.REDUCE})


def test_reduces_of_the_same_elements_merge() -> None:
    a = Axes()
    i, r, s, t = a.loop(10), a.reduce(10), a.reduce(10), a.reduce(10)
    at = i * 10
    total = load(Q, at + r).reduce(Ops.ADD, r)
    square = (load(Q, at + s) * load(Q, at + s)).reduce(Ops.ADD, s)
    top = load(Q, at + t).reduce(Ops.MAX, t)
    assert reduce_axes(kernel(P.index(i).store(total + square + top, i))) == 1


def test_reduces_without_a_common_load_stay_apart() -> None:
    a = Axes()
    i, r, s = a.loop(10), a.reduce(10), a.reduce(10)
    first = load(Q, i * 10 + r).reduce(Ops.ADD, r)
    second = load(Q, s * 10 + i).reduce(Ops.ADD, s)
    assert reduce_axes(kernel(P.index(i).store(first + second, i))) == 2


def test_a_reduce_does_not_merge_with_what_it_depends_on() -> None:
    a = Axes()
    i, r, s = a.loop(10), a.reduce(10), a.reduce(10)
    mean = load(Q, i * 10 + r).reduce(Ops.ADD, r)
    spread = (load(Q, i * 10 + s) - mean).reduce(Ops.ADD, s)
    assert reduce_axes(kernel(P.index(i).store(spread, i))) == 2


def test_two_products_that_share_an_operand_merge() -> None:
    a = Axes()
    i, j, r, s = a.loop(10), a.loop(10), a.reduce(10), a.reduce(10)
    first = (load(P, i * 10 + r) * load(Q, r * 10 + j)).reduce(Ops.ADD, r)
    second = (load(P, i * 10 + s) * load(R, s * 10 + j)).reduce(Ops.ADD, s)
    out = UOp.param(3, F32, 100)
    assert reduce_axes(kernel(out.index(i * 10 + j).store(first * second, i, j))) == 1
