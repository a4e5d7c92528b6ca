"""Stage: a value of a kernel computed once into fast memory and read from there.

In: a kernel AST, the slot of a buffer, the axes that the copy covers. Out: the kernel in which
that buffer's value is a STAGE. One of the actions, in a file of its own: packing a matmul
operand, transposing it, keeping a row.
Invariant: the staged value does not depend on an axis that it fills, so it is placed where its
other axes are open.
"""

from __future__ import annotations

from weft.codegen.opt.axes import (
    fresh_axes,
    index_const,
    piece,
    replace_axes,
    size_of,
    with_kind,
)
from weft.codegen.opt.opt import OptError
from weft.codegen.opt.strides import Strides
from weft.dtype import dtypes
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# it becomes memory on the stack of a thread
SCRATCH_BYTES = 512 << 10


def stage(ast: UOp, slot: int, axes: list[UOp]) -> UOp:
    """The values read from a buffer over some axes, in fast memory in the order of the axes.

    x[k, o*16 + n] * ...  by (k, n)  ->  STAGE(x[j, o*16 + m], j, m)[k*16 + n] * ...
    """
    order = ast.toposort()
    values = _values_of(list(order), slot, axes)
    if not values:
        raise OptError(f"no value read from buffer {slot} depends on all the axes to be filled")
    if all([size_of(axis) == 1 for axis in axes]):
        raise OptError("axes of size 1 leave nothing to stage")
    written = {u.src[0].src[0] for u in order if u.op is Ops.STORE}
    for value in values:
        if any([u.op is Ops.LOAD and u.src[0].src[0] in written for u in value.toposort()]):
            raise OptError("a value that the kernel itself overwrites cannot be staged")
        lanes = [a for a in value.ranges if a.arg.kind is AxisType.VECTOR and a not in axes]
        if lanes:
            raise OptError(f"the staged value has lanes along {lanes[0].arg.number}: fill that too")
    number = sum(u.op is Ops.STAGE for u in order)
    used = sum(_scratch(u) for u in order if u.op is Ops.STAGE)
    changes: dict[UOp, UOp] = {}
    for value in values:
        staged = _staged(ast, value, axes, number + len(changes))
        used += _scratch(staged)
        if used > SCRATCH_BYTES:
            raise OptError(
                f"staging needs {used} bytes of scratch, at most {SCRATCH_BYTES} are given"
            )
        position = index_const(0)
        for axis in axes:
            position = position * size_of(axis) + axis
        changes[value] = staged.index(position).load()
    return ast.substitute(changes)


def _scratch(staged: UOp) -> int:
    count = staged.dtype.itemsize
    for axis in staged.src[1:]:
        count *= size_of(axis)
    return count


def _values_of(order: list[UOp], slot: int, axes: list[UOp]) -> list[UOp]:
    """For each load of the buffer, the largest expression that depends on nothing else."""
    found: list[UOp] = []
    for load in order:
        if load.op is not Ops.LOAD or load.src[0].src[0].op is not Ops.PARAM:
            continue
        if load.src[0].src[0].arg.slot != slot or not load.ranges.issuperset(axes):
            continue
        value = load
        for node in order:
            if value not in node.src or node.op not in GroupOp.Elementwise:
                continue
            # memory holds numbers of a strong dtype: an index is not one
            if node.ranges <= load.ranges and node.dtype not in dtypes.weaks:
                value = node
        found.append(value)
    return list(dict.fromkeys(found))


def _staged(ast: UOp, value: UOp, axes: list[UOp], number: int) -> UOp:
    """The STAGE itself: the value over axes of its own."""
    fills = fresh_axes(ast, axes)
    strides = Strides()
    loads = [u for u in value.toposort() if u.op is Ops.LOAD]
    steps = {axis: {strides.of(u.src[0].src[1]).get(axis, 0) for u in loads} for axis in axes}
    is_straight = steps[axes[-1]] <= {0, 1}
    values: dict[UOp, UOp] = {}
    ended: list[UOp] = []
    for axis in axes:
        fill = with_kind(fills[axis], AxisType.LOOP)
        kind = axis.arg.kind
        if kind is AxisType.VECTOR and axis is axes[-1] and is_straight:
            # a straight copy keeps its lanes; a turning one is better off without
            fill = with_kind(fill, AxisType.VECTOR)
        elif kind is AxisType.UPCAST and size_of(axis) <= 16 and is_straight:
            fill = with_kind(fill, AxisType.UPCAST)
        elif not is_straight and steps[axis] == {1}:
            # neighbours in memory are read together, so that each line is touched once
            width = next(n for n in (16, 8, 4, 2, 1) if size_of(axis) % n == 0)
            tiles = piece(fill, 0, index_const(size_of(axis) // width), AxisType.LOOP)
            item = piece(fill, 1, index_const(width), AxisType.UPCAST)
            values[axis] = tiles * width + item
            ended += [tiles, item]
            continue
        values[axis] = fill
        ended.append(fill)
    copied = replace_axes(value, values, {})
    return UOp(Ops.STAGE, value.dtype, (copied, *ended), StageArg(number))
