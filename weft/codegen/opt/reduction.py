"""Reduction: how the axes of a sum run, once it is known where its lanes come from.

In: a body of a nest, its lanes and copies. Out: actions, added to a plan. A part of the heuristic.
Invariant: as everywhere in the heuristic, only actions are planned, so a poor choice costs time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.budgets import BLOCK_OPS, KERNEL_OPS, SUM_TERMS, UNROLLED_TERMS
from weft.codegen.opt.cost import Choice
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.opt.survey import Body, extent, volume
from weft.codegen.opt.tile import most_sums
from weft.codegen.opt.windows import is_window
from weft.dtype import dtypes
from weft.helpers import prod
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops


@dataclass
class Plan:
    """What is decided for one nest: the actions, in order."""

    opts: list[Opt] = field(default_factory=list)

    def add(self, op: OptOps, axis: tuple[int, ...], arg: int | None = None) -> None:
        self.opts.append(Opt(op, axis, arg))


def plan_reduction(plan: Plan, body: Body, choice: Choice, sums: int, target: Target) -> None:
    """Lanes, written-out parts and blocks of the reduce axes of one body.

    `sums`: where an output axis gives the lanes, how many vectors of sums there are; else 0.
    """
    fixed = [axis for axis in body.own if axis.src[0].op is Ops.CONST]
    outer_copies = prod(n for axis, n in choice.copies.items() if axis not in body.own)
    terms = volume(body.own)
    if len(fixed) == len(body.own) and terms <= UNROLLED_TERMS:
        most = KERNEL_OPS if is_window(body) else KERNEL_OPS // 2
        if terms * outer_copies * body.weight() <= most:
            for axis in body.own:
                plan.add(OptOps.UNROLL, axis.arg.number, 0)
            return
    loops = [(axis.arg.number, extent(axis)) for axis in body.own]
    if sums:
        for axis in body.fields:
            plan.add(OptOps.UNROLL, axis.arg.number, 0)
        loops = [(axis.arg.number, extent(axis)) for axis in body.own if axis not in body.fields]
        unroll = target.sum_latency // (sums * volume(body.fields))
        if loops and unroll > 1 and loops[-1][1] >= 2 * unroll:
            number, rounds = loops[-1]
            plan.add(OptOps.UNROLL, number, unroll)
            loops[-1] = ((*number, 0), rounds // unroll)
    elif choice.vector is not None:
        axis, lanes = choice.vector, choice.lanes
        is_stream = outer_copies == 1 and _is_stream(body, choice, target)
        if is_stream:
            # memory feeds two loads of half a line better than one of a whole line
            lanes //= 2
        place = body.own.index(axis)
        plan.add(OptOps.VECTOR, axis.arg.number, lanes)
        loops[place] = ((*axis.arg.number, 0), extent(axis) // lanes)
        unroll = target.sum_latency
        if not is_stream:
            unroll = _unroll_count(body, choice, loops[place][1], outer_copies, target)
        if unroll > 1:
            number, rounds = loops[place]
            plan.add(OptOps.UNROLL, number, unroll)
            loops[place] = ((*number, 0), rounds // unroll)
        if axis.src[0].op is Ops.CONST and 1 < extent(axis) % lanes:
            # the rest in one vector as well, some of its lanes empty
            plan.add(OptOps.PADTO, (*axis.arg.number, 2), lanes)
            plan.add(OptOps.VECTOR, (*axis.arg.number, 2), 0)
        _write_out_short(plan, body, axis, unroll * outer_copies * len(body.closers), target)
    rounded = body.closers[0].dtype in dtypes.floats and body.closers[0].arg is Ops.ADD
    # a tile has more copies than hide the latency of a sum: its operands are staged along one loop
    if rounded and outer_copies <= target.sum_latency:
        _plan_blocks(plan, [loop for loop in loops if loop[1] > 1])


def _write_out_short(plan: Plan, body: Body, vector: UOp, sums: int, target: Target) -> None:
    """The shortest inner axes beside the lanes: what depends on the axes around is computed once
    for all of their steps, and what depends on them alone (a shift) becomes a number."""
    copies = 1
    for axis in reversed(body.own):
        if axis is vector:
            continue
        copies *= extent(axis)
        if axis.src[0].op is not Ops.CONST or copies * sums > most_sums(target):
            return
        if copies * body.weight() > BLOCK_OPS:
            return
        plan.add(OptOps.UNROLL, axis.arg.number, 0)


def _plan_blocks(plan: Plan, loops: list[tuple[tuple[int, ...], int]]) -> None:
    """Two levels of sums, if one would have so many terms that their errors pile up."""
    if prod(size for _, size in loops) <= 2 * SUM_TERMS:
        return
    inner = 1
    for number, size in reversed(loops):
        if inner * size >= SUM_TERMS:
            plan.add(OptOps.BLOCK, number, min(size, max(2, SUM_TERMS // inner)))
            return
        inner *= size


def _unroll_count(
    body: Body, choice: Choice, rounds: int, outer_copies: int, target: Target
) -> int:
    """Enough accumulators to hide the latency of a sum."""
    weight = body.weight()
    wanted = target.sum_latency
    while wanted > 1 and wanted * weight > target.in_flight:
        wanted //= 2
    if wanted * outer_copies > 2 and _reads_far(body, choice, target):
        # memory takes longer than two sums; and each load that steps less far is guessed sooner
        wanted = 2 if outer_copies == 1 else 1
    wanted = max(choice.copies.get(choice.vector, 1) if choice.vector is not None else 1, wanted)
    most = most_sums(target)
    while wanted > 1 and (wanted > rounds or wanted * outer_copies * len(body.closers) > most):
        wanted //= 2
    return max(wanted, 1)


def _is_stream(body: Body, choice: Choice, target: Target) -> bool:
    """Whether it is little more than reading lines one after another, from behind the caches."""
    if body.weight() > 2 or choice.lanes * body.closers[0].dtype.itemsize < target.line_bytes:
        return False
    return extent(body.own[-1]) >= target.sum_latency * choice.lanes and _reads_far(
        body, choice, target
    )


def _reads_far(body: Body, choice: Choice, target: Target) -> bool:
    """Whether what runs along the lanes comes from behind the second cache."""
    return any(
        [
            choice.vector in item.ranges and item.nbytes > target.l2 and item.steps is not None
            for item in body.items
        ]
    )
