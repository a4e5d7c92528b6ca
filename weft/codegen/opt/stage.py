"""Stage: a value of a kernel computed once into fast memory and read from there.

In: a kernel AST, the slot of a buffer, the axes that the copy covers. Out: the kernel in which
that buffer's value is a STAGE. One of the actions, in a file of its own: packing a matmul
operand, transposing it, keeping a row.
Invariant: the staged value does not depend on an axis that it fills, so it is placed where its
other axes are open.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import gcd

from weft.budgets import CHOICES, SQUARE, UNROLLED_TERMS
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
from weft.helpers import prod
from weft.machine import Target
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# bytes of a bank of shared memory; elements of a row from which on it is padded
_BANK, _BANKED = 4, 16


def stage(ast: UOp, slot: int, axes: list[UOp], target: Target) -> UOp:
    """The values read from a buffer over some axes, in fast memory in the order of the axes.

    x[k, o*16 + n] * ...  by (k, n)  ->  STAGE(x[j, o*16 + m], j, m)[k*16 + n] * ...

    All that is staged becomes memory on the stack of a thread.
    """
    order = ast.toposort()
    values = staged_values(list(order), slot, axes)
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
    used = sum(scratch_of(u) for u in order if u.op is Ops.STAGE)
    changes: dict[UOp, UOp] = {}
    turns = target.has_local and not any([u.op is Ops.REDUCE for u in order])
    for value in values:
        staged = _staged(ast, value, axes, number + len(changes), _square(target), turns)
        if turns and len(staged.src) == 1 + len(axes):
            staged = _padded(staged)
        used += scratch_of(staged)
        if used > target.stack_bytes:
            raise OptError(
                f"staging needs {used} bytes of scratch, at most {target.stack_bytes} are given"
            )
        position = index_const(0)
        for axis, step in zip(axes, staged.arg.strides or _row_major(axes), strict=True):
            position = position + axis * step
        changes[value] = staged.index(position).load()
    return ast.substitute(changes)


def _row_major(axes: Sequence[UOp]) -> list[int]:
    return [prod(size_of(axis) for axis in axes[place + 1 :]) for place in range(len(axes))]


def _padded(staged: UOp) -> UOp:
    """Rows of the tile a word further apart: what is read across them is in different banks.

    The rows are those of the axes before the contiguous ones, as many as lanes or threads need.
    """
    axes = staged.src[1:]
    steps = _row_major(axes)
    rows = [place for place, axis in enumerate(axes) if steps[place] >= _BANKED]
    if not rows:
        return staged
    row = max(1, _BANK // staged.dtype.itemsize) + steps[rows[-1]]
    padded = [step if step < _BANKED else step // steps[rows[-1]] * row for step in steps]
    return staged.replace(arg=replace(staged.arg, strides=tuple(padded)))


def scratch_of(staged: UOp) -> int:
    """The bytes that a staged value takes."""
    count = staged.dtype.itemsize
    for axis in staged.src[1:]:
        count *= int(axis.src[0].vmax)
    return count


def staged_values(order: list[UOp], slot: int, axes: list[UOp]) -> list[UOp]:
    """For each load of the buffer, the largest expression that depends on nothing else.

    Where no load depends on all the axes (a byte holds two elements), what is made of it does.
    """
    loads = [
        load
        for load in order
        if load.op is Ops.LOAD
        and load.src[0].src[0].op is Ops.PARAM
        and load.src[0].src[0].arg.slot == slot
    ]
    whole = [load for load in loads if load.ranges.issuperset(axes)]
    found = [_largest_value(order, load, load.ranges) for load in whole]
    if not whole:
        values = [_largest_value(order, load, load.ranges.union(axes)) for load in loads]
        found = [value for value in values if value.ranges.issuperset(axes)]
    return list(dict.fromkeys(found))


def _largest_value(order: list[UOp], load: UOp, ranges: frozenset[UOp]) -> UOp:
    """What is made of a load and depends on these axes alone."""
    value = load
    for node in order:
        if value not in node.src or node.op not in GroupOp.Elementwise:
            continue
        # memory holds numbers of a strong dtype: an index is not one
        if node.ranges <= ranges and node.dtype not in dtypes.weaks:
            value = node
    return value


def _square(target: Target) -> int:
    """Rows that registers exchange lanes of; 0: it has none to exchange."""
    return 0 if target.has_local else min(SQUARE, target.vector_registers // 2)


def _staged(
    ast: UOp, value: UOp, axes: list[UOp], number: int, square: int, in_lanes: bool = False
) -> UOp:
    """The STAGE itself: the value over axes of its own."""
    fills = fresh_axes(ast, axes)
    is_vector = axes[-1].arg.kind is AxisType.VECTOR
    strides = Strides(size_of(axes[-1]) if is_vector else 0)
    inside = value.toposort()
    loads = [u for u in inside if u.op is Ops.LOAD]
    steps = {
        axis: {strides.of(u.src[0].src[1]).get(axis, 0) for u in loads if axis in u.ranges}
        for axis in axes
    }
    is_straight = steps[axes[-1]] <= {0, 1}
    run = _run_of_neighbours(value, axes, steps) if square and not is_straight else []
    rows = gcd(square, size_of(axes[-1]), prod(size_of(axis) for axis in run))
    if run and rows**2 >= square:
        return _in_squares(value, axes, fills, run, number, rows)
    shifts = [u.src[1].ranges for u in inside if u.op in (Ops.SHL, Ops.SHR)]
    # written out, shifts are by numbers
    fields = {axis for axis in axes if size_of(axis) <= CHOICES and axis in set().union(*shifts)}
    values: dict[UOp, UOp] = {}
    ended: list[UOp] = []
    for axis in axes:
        fill = with_kind(fills[axis], AxisType.LOOP)
        kind = axis.arg.kind
        if kind is AxisType.VECTOR and axis is axes[-1] and is_straight:
            # a straight copy keeps its lanes; a turning one is better off without
            fill = with_kind(fill, AxisType.VECTOR)
        elif kind is AxisType.UPCAST and size_of(axis) <= UNROLLED_TERMS and is_straight:
            # threads copy neighbours by one access
            wide = in_lanes and axis is axes[-1] and steps[axis] == {1}
            fill = with_kind(fill, AxisType.VECTOR if wide else AxisType.UPCAST)
        elif axis in fields:
            fill = with_kind(fill, AxisType.UPCAST)
        elif not is_straight and steps[axis] == {1}:
            # neighbours in memory are read together, so that each line is touched once
            width = gcd(size_of(axis), UNROLLED_TERMS)
            tiles = piece(fill, 0, index_const(size_of(axis) // width), AxisType.LOOP)
            item = piece(fill, 1, index_const(width), AxisType.UPCAST)
            values[axis] = tiles * width + item
            ended += [tiles, item]
            continue
        values[axis] = fill
        ended.append(fill)
    copied = replace_axes(value, values, {})
    return UOp(Ops.STAGE, value.dtype, (copied, *ended), StageArg(number))


def _run_of_neighbours(value: UOp, axes: list[UOp], steps: dict[UOp, set[int | None]]) -> list[UOp]:
    """The axes that together are one run of neighbours in memory."""
    last = next((i for i, axis in enumerate(axes) if steps[axis] == {1}), None)
    if last is None or axes[-1].arg.kind is not AxisType.VECTOR:
        return []
    for node in value.toposort():
        # as one axis they may appear in addresses only
        if node.op is Ops.INDEX:
            if len(node.src) > 2:
                return []
        elif node.dtype not in dtypes.weaks and any([s.dtype in dtypes.weaks for s in node.src]):
            return []
    first = last
    while first and steps[axes[first - 1]] == {prod(size_of(a) for a in axes[first : last + 1])}:
        first -= 1
    return axes[first : last + 1]


def _in_squares(
    value: UOp, axes: list[UOp], fills: dict[UOp, UOp], run: list[UOp], number: int, square: int
) -> UOp:
    """Lanes along the last axis, copies along the run: rows of both are then exchanged.

    STAGE(w[lane*K + i*3 + j], i, j, lane) -> STAGE(w[lane*K + t*8 + u], t, u UPCAST, lane VECTOR)
    """
    whole = fills[run[-1]]
    tiles = prod(size_of(axis) for axis in run) // square
    tile = piece(whole, 0, index_const(tiles), AxisType.LOOP)
    item = piece(whole, 1, index_const(square), AxisType.UPCAST)
    values: dict[UOp, UOp] = dict.fromkeys(run, index_const(0))
    values[run[-1]] = tile * square + item
    ended: list[UOp] = []
    for axis in axes:
        if axis in run:
            ended += [tile, item] if axis is run[-1] else []
            continue
        kind = AxisType.VECTOR if axis is axes[-1] else AxisType.LOOP
        values[axis] = with_kind(fills[axis], kind)
        ended.append(values[axis])
    copied = replace_axes(value, values, {})
    return UOp(Ops.STAGE, value.dtype, (copied, *ended), StageArg(number))
