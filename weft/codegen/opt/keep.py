"""Keep: a row of costly values that several loops compute, computed once into fast memory.

In: a kernel AST and a reduce axis. Out: the kernel in which the value over that axis is a STAGE
that all of the loops read. One of the actions, in a file of its own: the exponentials of a
softmax serve its sum and its outputs.
Invariant: what is replaced is the same expression up to the name of the axis, so every reader
sees its own element.
"""

from __future__ import annotations

from weft.codegen.opt.axes import all_axes, closers_of, fresh_axes, replace_axes, size_of, with_kind
from weft.codegen.opt.opt import OptError
from weft.dtype import dtypes
from weft.machine import Target
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# instructions per element from which memory is cheaper than computing again
COSTLY = 8


def keep(ast: UOp, axis: UOp, target: Target) -> UOp:
    """The largest costly value over a reduce axis that is also computed over another axis, staged.

    REDUCE(exp(x[r]), r) ... exp(x[j])  ->  REDUCE(STAGE(exp(x[f]), f)[r], r) ... STAGE(...)[j]
    """
    order = ast.toposort()
    size = size_of(axis)
    others = [
        other
        for other in all_axes(ast)
        if other is not axis and other.src[0] is axis.src[0] and other.arg.kind in _LOOPS
    ]
    written = {u.src[0].src[0] for u in order if u.op is Ops.STORE}
    for reduce in closers_of(ast, axis):
        if reduce.op is not Ops.REDUCE:
            raise OptError(f"axis {axis.arg.number} is not reduced")
        for value in _costly_values(reduce, axis, target):
            if any([a.arg.kind is AxisType.VECTOR and a is not axis for a in value.ranges]):
                # fast memory is filled once for all lanes
                continue
            places = {axis: value}
            for other in others:
                same = replace_axes(value, {axis: other}, {})
                if same in order:
                    places[other] = same
            reads = [u.src[0].src[0] for u in value.toposort() if u.op is Ops.LOAD]
            if len(places) > 1 and written.isdisjoint(reads):
                if size * value.dtype.itemsize > target.stack_bytes:
                    break
                return _staged(ast, value, axis, places)
    raise OptError(f"no costly value over axis {axis.arg.number} is computed elsewhere as well")


_LOOPS = (AxisType.LOOP, AxisType.REDUCE)


def _costly_values(reduce: UOp, axis: UOp, target: Target) -> list[UOp]:
    """Elementwise parts of the reduced value that depend on the axis, largest first."""
    inside = list(reduce.src[0].toposort(gate=lambda u: axis in u.ranges))
    weights: dict[UOp, float] = {}
    for node in inside:
        own = target.op_cost(node.op) if axis in node.ranges else 0.0
        weights[node] = own + sum(weights.get(s, 0.0) for s in node.src)
    places = [u for u in inside if u.op is Ops.INDEX]
    # whether a place exists can be seen from a condition, not from one that was written to memory
    where = {u for place in places for s in place.src[1:] for u in s.toposort()}
    return [
        node
        for node in reversed(inside)
        if node.op in GroupOp.Elementwise
        and node not in where
        and axis in node.ranges
        and node.dtype not in dtypes.weaks
        and weights[node] >= COSTLY
    ]


def _staged(ast: UOp, value: UOp, axis: UOp, places: dict[UOp, UOp]) -> UOp:
    fill = with_kind(fresh_axes(ast, [axis])[axis], AxisType.LOOP)
    number = sum(u.op is Ops.STAGE for u in ast.toposort())
    copied = replace_axes(value, {axis: fill}, {})
    row = UOp(Ops.STAGE, value.dtype, (copied, fill), StageArg(number))
    return ast.substitute({same: row.index(other).load() for other, same in places.items()})
