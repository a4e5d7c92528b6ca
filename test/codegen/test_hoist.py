"""hoist: index sums in the order of the loops."""

from __future__ import annotations

from test.codegen.kernel_builder import F32, Axes, kernel, load
from weft.codegen.hoist import hoist_sums
from weft.codegen.lower_index import lower_index
from weft.codegen.place import LoopTree
from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

P, Q = UOp.param(0, F32, 100), UOp.param(1, F32, 10000)


def test_outer_terms_come_first_and_constants_last() -> None:
    a = Axes()
    i, k = a.loop(10), a.reduce(10)
    idx = ((k * 2 + 1) * 32 + 5) + i * 64
    sink = kernel(P.index(i).store(load(Q, idx).reduce(Ops.ADD, k), i))
    sink = lower_index(sink, dtypes.int64)
    nest = LoopTree(sink)
    reads = [u for u in hoist_sums(sink, nest).toposort() if u.op is Ops.INDEX and u.src[0] is Q]
    total = reads[0].src[1]
    assert total.op is Ops.ADD and total.src[1].arg == 37
    outer, inner = total.src[0].src
    assert nest.loop_of(outer).depth == 1 and outer.src[1].arg == 64
    assert nest.loop_of(inner).depth == 2 and inner.src[1].arg == 64


def test_terms_that_cancel_vanish() -> None:
    i = Axes().loop(10)
    sink = lower_index(kernel(P.index(i * 2 + (i * -1)).store(load(Q, i), i)), dtypes.int64)
    result = hoist_sums(sink, LoopTree(sink))
    assert result.src[0].src[0].src[1].op is Ops.RANGE


def test_sums_that_share_their_parts_do_not_explode() -> None:
    i = Axes().loop(10)
    idx = i
    for _ in range(60):
        idx = idx + idx
    sink = lower_index(kernel(P.index(i).store(load(Q, idx), i)), dtypes.int64)
    assert hoist_sums(sink, LoopTree(sink)) is sink
