"""Transpose: what a kernel reads along one axis and writes along another goes through squares.

In: the survey of a nest without reductions. Out: a proposal that reads rows and writes columns of a
square in registers, or none where nothing is transposed. Sits above the cost model, under the
heuristic.
Invariant: memory is read and written in whole vectors; only registers are transposed.

x.T, a layout of images, the heads of an attention, alone or inside of other arithmetic. Lanes lie
along what is written. The axis that is read in order is written out beside them, so that expand
finds the rows of a square, reads them as vectors and exchanges lanes. Squares run in blocks: lines
of memory that a block touches are used up while they are in the first cache.
"""

from __future__ import annotations

from math import isqrt

from weft.budgets import BLOCK_OPS, SQUARE
from weft.codegen.opt.cost import FEW_APART, Choice, Proposal, body_cost
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.opt.survey import Body, Nest, extent, volume
from weft.codegen.opt.tile import lanes_of
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops


def propose_transpose(nest: Nest, target: Target) -> Proposal | None:
    """What makes squares of the loads that are transposed; nothing if there are none."""
    if nest.is_fill or nest.stages or len(nest.bodies) != 1:
        return None
    stores = nest.bodies[0]
    # shorter than a launch: longer code takes more time to compile than it will ever save
    if volume(stores.own) < target.launch_cycles:
        return None
    written = _written_axis(stores)
    read = None if written is None else _transposed_axis(stores, written)
    if written is None or read is None:
        return None
    lanes = min(SQUARE, lanes_of(written, stores.items, target))
    rows = min(SQUARE, target.vector_registers // 2)
    while rows > 1 and rows * stores.weight() > BLOCK_OPS:
        rows //= 2
    while rows > extent(read):
        rows //= 2
    if lanes == 1 or rows == 1:
        return None
    opts: list[Opt] = []
    names: dict[UOp, tuple[int, ...]] = {}
    for axis, size in zip((read, written), _block(stores, target), strict=True):
        names[axis] = axis.arg.number
        if extent(axis) >= 2 * size:
            opts.append(Opt(OptOps.SPLIT, axis.arg.number, size))
            names[axis] = (*axis.arg.number, 1)
    if len(opts) == 2:
        first, second = sorted((read, written), key=stores.own.index)
        opts.append(Opt(OptOps.SWAP, names[first], (*second.arg.number, 0)))
    opts.append(Opt(OptOps.VECTOR, names[written], lanes))
    opts.append(Opt(OptOps.UPCAST, names[read], rows))
    return Proposal(opts, body_cost(stores, Choice(written, lanes, {read: rows}), target))


def _block(stores: Body, target: Target) -> tuple[int, int]:
    """Elements of a block of squares along what is read and along what is written: half of L1. Of
    memory that no cache holds, few rows at a time and long pieces of each."""
    itemsize = stores.closers[0].src[1].dtype.itemsize
    side = 1 << (isqrt(target.l1 // (2 * itemsize)).bit_length() - 1)
    is_far = volume(stores.own) * itemsize > target.l3
    return (2 * side, SQUARE) if is_far else (side, side)


def _written_axis(stores: Body) -> UOp | None:
    """The axis along which every store moves by one."""
    places = [item.steps or {} for item in stores.items if item.is_store()]
    axes = [axis for axis, step in places[0].items() if step == 1 and _is_fixed(axis)]
    return next((axis for axis in axes if all([p.get(axis) == 1 for p in places])), None)


def _transposed_axis(stores: Body, written: UOp) -> UOp | None:
    """The axis along which most of what is transposed is read in order."""
    found: dict[UOp, int] = {}
    for item in stores.items:
        if item.node is None or item.node.op is not Ops.LOAD or item.steps is None or item.masked:
            continue
        step = item.steps.get(written, 0)
        if step is None or abs(step) <= FEW_APART:
            # in order already, or the same for all lanes, or nowhere in order
            continue
        for axis, apart in item.steps.items():
            if apart == 1 and axis is not written and _is_fixed(axis):
                found[axis] = found.get(axis, 0) + 1
    return max(found, key=lambda axis: found[axis], default=None)


def _is_fixed(axis: UOp) -> bool:
    return axis.src[0].op is Ops.CONST
