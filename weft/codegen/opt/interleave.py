"""Interleave: what a kernel reads once and writes several times side by side.

In: a nest without reductions. Out: the nest, with the axis that it writes along split where its
reads divide that axis, and the actions that make lanes of the outer part. Sits beside transpose,
above the cost model and under the heuristic.
Invariant: memory is read and written in whole vectors; only registers are exchanged.

x[i // 2] -> y[i], as in an image of twice the size, or x[i] -> y[2*i], y[2*i + 1]. Lanes along what
is read hold each element once; the copies that it is written to lie beside each other, so that
expand finds the rows of a square and exchanges lanes before it stores them.
"""

from __future__ import annotations

from weft.budgets import CHOICES
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.axes import closed_axes, size_of
from weft.codegen.opt.cost import Choice, Proposal, body_cost
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.strides import Strides
from weft.codegen.opt.survey import Nest
from weft.codegen.opt.tile import lanes_of
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.symbolic import sym


def split_divided(ast: UOp, target: Target) -> UOp:
    """x[i // 2] -> x[j], where i is now 2*j + k, for the axis i that is written along."""
    while True:
        found = _divided(ast)
        if found is None:
            return ast
        axis, divisor = found
        try:
            split = apply_opt(ast, Opt(OptOps.SPLIT, axis.arg.number, divisor), target)
        except OptError:
            return ast
        ast = graph_rewrite(split, sym, name="simplify split axes")


def _divided(ast: UOp) -> tuple[UOp, int] | None:
    """An axis that is written along and divided, and the least number it is divided by."""
    order = ast.toposort()
    if any([u.op in (Ops.REDUCE, Ops.STAGE) for u in order]):
        return None
    divisors: dict[UOp, int] = {}
    for node in order:
        if node.op is not Ops.IDIV or node.src[1].op is not Ops.CONST:
            continue
        axis, divisor = node.src[0], node.src[1].arg
        if (
            axis.op is not Ops.RANGE
            or axis.src[0].op is not Ops.CONST
            or not _is_exchanged(divisor)
        ):
            continue
        if size_of(axis) % divisor == 0:
            divisors[axis] = min(divisor, divisors.get(axis, divisor))
    if not divisors:
        return None
    strides = Strides()
    places = [strides.of(store.src[0].src[1]) for store in ast.src]
    for axis, divisor in divisors.items():
        if axis in closed_axes(ast.src[0]) and all([place.get(axis) == 1 for place in places]):
            return axis, divisor
    return None


def _is_exchanged(copies: int) -> bool:
    """Whether lanes can be exchanged with so many copies: a small power of two."""
    return 1 < copies <= CHOICES and copies.bit_count() == 1


def propose_interleave(nest: Nest, target: Target) -> Proposal | None:
    """What writes each vector that is read to several places; nothing if there is no such axis."""
    if nest.is_fill or nest.stages or len(nest.bodies) != 1:
        return None
    stores = nest.bodies[0]
    places = [item.steps or {} for item in stores.items if item.is_store()]
    reads = stores.loads
    for copies in stores.own:
        size = copies.src[0]
        if size.op is not Ops.CONST or not _is_exchanged(size.arg):
            continue
        if any([place.get(copies) != 1 for place in places]):
            continue
        for axis in stores.own:
            if axis.src[0].op is not Ops.CONST:
                continue
            if any([place.get(axis) != size.arg for place in places]):
                continue
            once = [i for i in reads if copies not in i.ranges and (i.steps or {}).get(axis) == 1]
            if not once or any([{axis, copies} & i.masked for i in reads]):
                continue
            lanes = lanes_of(axis, stores.items, target)
            if lanes == 1:
                continue
            opts = [
                Opt(OptOps.VECTOR, axis.arg.number, lanes),
                Opt(OptOps.UPCAST, copies.arg.number, 0),
            ]
            choice = Choice(axis, lanes, {copies: size.arg})
            return Proposal(opts, body_cost(stores, choice, target))
    return None
