"""Stage: a value of a kernel computed once into fast memory and read from there.

In: a kernel AST, the slot of a buffer, the axes that the copy covers. Out: the kernel in which that buffer's value is a
STAGE. One of the actions, in a file of its own: packing a matmul operand, transposing it, keeping a row.
Invariant: the staged value does not depend on an axis that it fills, so it is placed where its other axes are open.
"""

from __future__ import annotations

from weft.codegen.opt.axes import fresh_axes, index_const, replace_axes, size_of, with_kind
from weft.codegen.opt.opt import OptError
from weft.codegen.opt.strides import Strides
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# it becomes memory on the stack of a thread
SCRATCH_BYTES = 512 << 10


def stage(ast: UOp, slot: int, axes: list[UOp]) -> UOp:
    """The values read from a buffer, over some axes, copied to fast memory in the order of the axes.

    x[k, o*16 + n] * ...  by (k, n)  ->  STAGE(x[j, o*16 + m], j, m)[k*16 + n] * ...
    """
    order = ast.toposort()
    values = _values_of(list(order), slot, axes)
    if not values:
        raise OptError(f"no value read from buffer {slot} depends on all the axes to be filled")
    number = sum(u.op is Ops.STAGE for u in order)
    used = sum(_scratch(u) for u in order if u.op is Ops.STAGE)
    changes: dict[UOp, UOp] = {}
    for value in values:
        staged = _staged(ast, value, axes, number + len(changes))
        used += _scratch(staged)
        if used > SCRATCH_BYTES:
            raise OptError(f"staging needs {used} bytes of scratch, at most {SCRATCH_BYTES} are given")
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
            if value in node.src and node.op in GroupOp.Elementwise and node.ranges <= load.ranges:
                value = node
        found.append(value)
    return list(dict.fromkeys(found))


def _staged(ast: UOp, value: UOp, axes: list[UOp], number: int) -> UOp:
    """The STAGE itself: the value over axes of its own."""
    fills = fresh_axes(ast, axes)
    kinds = {axis: AxisType.LOOP for axis in axes}
    strides = Strides()
    loads = [u for u in value.toposort() if u.op is Ops.LOAD]
    for axis in axes:
        steps = {strides.of(load.src[0].src[1]).get(axis, 0) for load in loads}
        if axis.arg.kind is AxisType.VECTOR and axis is axes[-1] and steps <= {0, 1}:
            # a straight copy keeps its lanes; a transposing one is better off without
            kinds[axis] = AxisType.VECTOR
        elif axis.arg.kind is AxisType.UPCAST and size_of(axis) <= 16:
            kinds[axis] = AxisType.UPCAST
    fresh = {axis: with_kind(fills[axis], kinds[axis]) for axis in axes}
    copied = replace_axes(value, fresh, {})
    return UOp(Ops.STAGE, value.dtype, (copied, *fresh.values()), StageArg(number))
