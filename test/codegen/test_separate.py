"""separate: every loop has axes of its own, and no more loops than that."""

from __future__ import annotations

from test.codegen.kernel_builder import F32, Axes, const, kernel, load
from weft.codegen.separate import separate
from weft.uop.node import UOp
from weft.uop.opset import Ops

P, Q, R = UOp.param(0, F32, 100), UOp.param(1, F32, 100), UOp.param(2, F32, 100)


def axes(node: UOp) -> set[UOp]:
    return {u for u in node.toposort() if u.op is Ops.RANGE}


def test_a_reduce_inside_another_over_the_same_axis() -> None:
    k = Axes().reduce(4)
    top = load(Q, k).reduce(Ops.MAX, k)
    total = (load(Q, k) - top).reduce(Ops.ADD, k)
    result = separate(kernel(P.index(const(0)).store(total)))
    assert len(axes(result)) == 2


def test_independent_reduces_keep_sharing() -> None:
    k = Axes().reduce(4)
    total = load(Q, k).reduce(Ops.ADD, k) + load(R, k).reduce(Ops.MAX, k)
    sink = kernel(P.index(const(0)).store(total))
    assert separate(sink) is sink


def test_the_same_axis_at_two_levels() -> None:
    """sum over k of x[i, k] runs per i, sum over k of y[k] once: two loops."""
    a = Axes()
    i, k = a.loop(4), a.reduce(4)
    value = load(Q, i * 4 + k).reduce(Ops.ADD, k) * load(R, k).reduce(Ops.ADD, k)
    result = separate(kernel(P.index(i).store(value, i)))
    assert len(axes(result)) == 3


def test_stores_of_the_same_axes_are_one_nest() -> None:
    i = Axes().loop(4)
    sink = kernel(P.index(i).store(load(R, i), i), Q.index(i).store(load(R, i) + 1, i))
    assert separate(sink) is sink


def test_a_nest_that_reads_another_element_is_on_its_own_and_first() -> None:
    i = Axes().loop(4)
    writer = P.index(i).store(load(R, i), i)
    reader = Q.index(i).store(load(P, i + 1), i)
    result = separate(kernel(writer, reader))
    assert not axes(result.src[0]) & axes(result.src[1])
    assert result.src[0].src[0].src[0] is Q


def test_copies_of_a_nest_get_their_inner_axes_too() -> None:
    """The reduce inside depends on the renamed axis, so it is another loop as well."""
    a = Axes()
    i, j, k = a.loop(4), a.loop(3), a.reduce(5)
    total = load(R, i * 5 + k).reduce(Ops.ADD, k)
    first = P.index(i).store(total, i)
    second = Q.index(j * 4 + i).store(total, j, i)
    third = UOp.param(3, F32, 4).index(i).store(total + load(Q, i), i)
    result = separate(kernel(first, second, third))
    # the third reads what the second writes elsewhere: a nest of its own, before the other
    reader, *writers = result.src
    assert reader.src[0].src[0].arg.slot == 3
    assert len(axes(reader)) == 2 and len(axes(writers[0]) | axes(writers[1])) == 3
    assert not axes(reader) & (axes(writers[0]) | axes(writers[1]))
