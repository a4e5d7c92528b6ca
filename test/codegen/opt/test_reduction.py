"""Reduction: how the axes of a sum run."""

from __future__ import annotations

from test.codegen.kernel_builder import Axes, load
from weft import dtypes
from weft.codegen.opt.cost import Choice
from weft.codegen.opt.opt import OptOps
from weft.codegen.opt.reduction import Plan, plan_reduction
from weft.codegen.opt.survey import Body, nests_of
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

WIDE = Target(name="wide", vector_bytes=32, has_fma=True)


def row_sums(terms: int) -> Body:
    a = Axes()
    i, r = a.loop(64), a.reduce(terms)
    out, x = UOp.param(0, dtypes.float32, 64), UOp.param(1, dtypes.float32, 64 * terms)
    store = out.index(i).store(load(x, i * terms + r).reduce(Ops.ADD, r), i)
    body: Body = nests_of([store], WIDE)[0].bodies[0]
    return body


def test_short_sums_are_written_out() -> None:
    plan, body = Plan(), row_sums(3)
    plan_reduction(plan, body, Choice(None, 1, {}), 0, WIDE)
    assert [(opt.op, opt.arg) for opt in plan.opts] == [(OptOps.UNROLL, 0)]


def test_long_rows_get_lanes_along_the_sum() -> None:
    plan, body = Plan(), row_sums(1 << 14)
    plan_reduction(plan, body, Choice(body.own[0], 8, {}), 0, WIDE)
    assert plan.opts[0].op is OptOps.VECTOR
    assert all(opt.axis is not None and opt.axis[0] == 1 for opt in plan.opts)
