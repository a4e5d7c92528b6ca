"""Loops: closers, their ranks, and axes renamed in their scope."""

from __future__ import annotations

from test.codegen.kernel_builder import Axes, kernel, load
from weft import dtypes
from weft.codegen.loops import FreshAxes, ordered, own_axes, ranks, rename
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def nested() -> tuple[UOp, UOp, UOp, UOp]:
    """max over g of the sum over h of x[i, g, h]."""
    a = Axes()
    i, g, h = a.loop(2), a.reduce(3), a.reduce(4)
    out, x = UOp.param(0, dtypes.float32, 2), UOp.param(1, dtypes.float32, 24)
    total = load(x, i * 12 + g * 4 + h).reduce(Ops.ADD, h).reduce(Ops.MAX, g)
    return kernel(out.index(i).store(total, i)), i, g, h


def test_ranks_count_closers_below() -> None:
    sink, i, g, h = nested()
    found = {own_axes(closer): rank for closer, rank in ranks(sink.toposort()).items()}
    assert found == {(h,): 0, (g,): 1, (i,): 2}


def test_an_order_is_remembered_for_one_more_question() -> None:
    sink, *_ = nested()
    first, second = ordered(sink), ordered(sink)
    assert first[0] is second[0] and ordered(sink)[0] is not first[0]
    ordered(sink)


def test_an_axis_is_renamed_in_its_own_closer() -> None:
    sink, i, g, h = nested()
    (inner,) = [u for u in sink.toposort() if u.op is Ops.REDUCE and own_axes(u) == (h,)]
    other = FreshAxes(sink.toposort()).like(h)
    renamed = rename(inner, {h: other})
    assert own_axes(renamed) == (other,) and h not in renamed.toposort()
    assert renamed.ranges == frozenset({i, g})


def test_fresh_axes_come_after_all_others() -> None:
    sink, i, _, _ = nested()
    fresh = FreshAxes(sink.toposort())
    assert fresh.like(i).arg.number == (3,)
    assert fresh.make(i.src[0], AxisType.VECTOR).arg.number == (4,)
