"""place: the order of axes and the loop of each node."""

from __future__ import annotations

import pytest

from test.codegen.kernel_builder import F32, Axes, const, kernel, load
from weft.codegen.place import LoopTree, order_axes
from weft.errors import CompileError
from weft.uop.node import UOp
from weft.uop.opset import Ops

P, Q = UOp.param(0, F32, 1000), UOp.param(1, F32, 1000)


def path(nest: LoopTree, axis: UOp) -> list[UOp]:
    loop, found = nest.loops[axis], []
    while loop.axis is not None and loop.parent is not None:
        found.append(loop.axis)
        loop = loop.parent
    return found[::-1]


def test_order_is_kept_unless_a_set_wants_to_be_first() -> None:
    a = Axes()
    n, c, h = a.loop(2), a.loop(3), a.loop(4)
    assert order_axes((n, c, h), []) == [n, c, h]
    assert order_axes((n, c, h), [{n}, {n, c}]) == [n, c, h]
    assert order_axes((n, c, h), [{c}]) == [c, n, h]
    assert order_axes((n, c, h), [{c}, {c, h}]) == [c, h, n]
    assert order_axes((n, c, h), [{h}, {c}]) == [h, n, c]


def test_threads_stay_first() -> None:
    a = Axes()
    i, t = a.loop(2), a.thread(3)
    assert order_axes((i, t), [{i}]) == [t, i]


def test_nodes_run_in_the_innermost_loop_they_depend_on() -> None:
    a = Axes()
    i, j, k = a.loop(10), a.loop(10), a.reduce(10)
    row, product = load(Q, i), load(Q, i * 10 + k)
    total = product.reduce(Ops.ADD, k)
    nest = LoopTree(kernel(P.index(i * 10 + j).store(total * row, i, j)))
    assert path(nest, j) == [i, j] and path(nest, k) == [i, k]
    assert nest.loop_of(row).axis is i
    assert nest.loop_of(product).axis is k
    assert nest.loop_of(total).axis is i
    assert nest.loop_of(const(3)) is nest.root


def test_an_open_axis_is_an_error_in_the_kernels_terms() -> None:
    a = Axes()
    i, j = a.loop(10), a.loop(10)
    inner = load(Q, i + j)
    nest = LoopTree(kernel(P.index(i).store(load(Q, i), i)))
    with pytest.raises(CompileError, match="which nothing around it closes"):
        nest.loop_of(inner)
