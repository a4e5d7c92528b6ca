"""Sweep: a reduction whose loop runs outside of its outputs, their sums side by side in memory.

In: a kernel AST, an output axis and how much of it is swept at a time. Out: the kernel in which
the reduction is a STAGE that is swept over: every round of the reduced loops adds to all elements.
One of the actions, in a file of its own: sums of columns, a vector times a matrix.
Invariant: the staged value is the reduction itself, so what is read from it is what it was.

A matrix is read row after row then, as it lies in memory, instead of a piece of each row.
"""

from __future__ import annotations

from weft.codegen.opt.axes import (
    closed_axes,
    closers_of,
    fresh_axes,
    index_const,
    replace_axes,
    size_of,
    with_kind,
)
from weft.codegen.opt.opt import OptError
from weft.codegen.opt.stage import scratch_of
from weft.machine import Target
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops


def sweep(ast: UOp, axis: UOp, rows: list[UOp], target: Target) -> UOp:
    """Everything of these output axes that a reduction depends on, summed side by side.

    STORE(p[o*8 + n], REDUCE(x[k, o*8 + n], k), o, n)
    -> STORE(p[o*8 + n], STAGE(REDUCE(x[k, o*8 + j], k), j; sweep)[n], o, n)
    """
    axes = [*rows, axis]
    if any([closer.op is not Ops.STORE for a in axes for closer in closers_of(ast, a)]):
        raise OptError("only outputs are swept over")
    if len(set(axes)) != len(axes):
        raise OptError("an axis can be swept over once")
    order = ast.toposort()
    reduces = [u for u in order if u.op is Ops.REDUCE and axis in u.ranges]
    if len(reduces) != 1 or not reduces[0].ranges.issuperset(axes):
        raise OptError(f"{len(reduces)} reductions depend on the axes to be swept over, not one")
    reduce = reduces[0]
    if any([u.op in (Ops.REDUCE, Ops.STAGE) for u in reduce.src[0].toposort()]):
        raise OptError("a reduction that needs others first cannot be swept over")
    if any([a.arg.kind is not AxisType.LOOP for a in axes]):
        raise OptError("only LOOP axes are swept over")
    if any([a.arg.kind is not AxisType.REDUCE for a in closed_axes(reduce)]):
        raise OptError("a reduction with lanes or copies of its own cannot be swept over")
    if any([a.arg.kind is AxisType.VECTOR for a in reduce.ranges]):
        raise OptError("a reduction with lanes along other outputs cannot be swept over")
    written = {u.src[0].src[0] for u in order if u.op is Ops.STORE}
    if any([u.op is Ops.LOAD and u.src[0].src[0] in written for u in reduce.toposort()]):
        raise OptError("a value that the kernel itself overwrites cannot be staged")
    fills = fresh_axes(ast, axes)
    copied = replace_axes(reduce, fills, {})
    number = sum(u.op is Ops.STAGE for u in order)
    ended = tuple([with_kind(fills[a], AxisType.LOOP) for a in axes])
    staged = UOp(Ops.STAGE, reduce.dtype, (copied, *ended), StageArg(number, sweep=True))
    if scratch_of(staged) > target.stack_bytes:
        raise OptError(f"sums of {scratch_of(staged)} bytes are more than {target.stack_bytes}")
    position = index_const(0)
    for a in axes:
        position = position * size_of(a) + a
    return ast.substitute({reduce: staged.index(position).load()})
