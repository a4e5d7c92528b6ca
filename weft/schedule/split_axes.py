"""Split a reduced axis that a reshape made of several, where parts of the value need only some.

What comes in: a REDUCE_AXIS of a tensor graph. What goes out: the same over more and shorter axes.
Where it sits: a rule of prepare. Weights that are kept in blocks, with a scale for each, are read
through such axes.
The one invariant: the value is the same; what depends on the block alone is computed once a block,
not once an element, and positions are sums again instead of quotients and remainders.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

from weft.budgets import KERNEL_OPS
from weft.helpers import prod
from weft.uop.args import ReduceArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

_TRANSPARENT = GroupOp.Elementwise | {Ops.DETACH, Ops.CONTIGUOUS_BACKWARD}
# views that leave an axis alone if they leave its size
_CUTS = (Ops.SHRINK, Ops.PAD, Ops.STRIDE)

Place = tuple[UOp, int, int]  # a node, its axis, and how far a step along it goes on the axis above


def split_reduced_axes(x: UOp) -> UOp | None:
    """sum((q * s.expand(n, 4, 32)).reshape(n, 128) * y, 1)
    -> sum(((q * s.expand(n, 4, 32)).reshape(n, 128) * y).reshape(n, 4, 32), (1, 2))."""
    source = x.src[0]
    shape: list[Any] = []
    axes: list[int] = []
    for axis, size in enumerate(source.shape):
        parts = _parts(source, axis) if axis in x.arg.axes and isinstance(size, int) else [size]
        if axis in x.arg.axes:
            axes += range(len(shape), len(shape) + len(parts))
        shape += parts
    if len(shape) == len(source.shape):
        return None
    view = source._mop(Ops.RESHAPE, tuple(shape))
    split = x.replace(src=(view,), arg=ReduceArg(x.arg.op, tuple(axes)))
    return split._mop(Ops.RESHAPE, x.shape)


def _parts(source: UOp, axis: int) -> list[int]:
    """The sizes that an axis of a value is best split into, outermost first."""
    size = source.shape[axis]
    seen: set[Place] = set()
    pending: list[Place] = [(source, axis, 1)]
    steps: set[int] = set()
    is_broadcast = False
    while pending and len(seen) < KERNEL_OPS:
        place = pending.pop()
        if place in seen:
            continue
        seen.add(place)
        node, position, unit = place
        if node.op is Ops.RESHAPE:
            found, below = _below_reshape(node, position, unit)
            steps.update(found)
            pending += below
        elif node.op is Ops.EXPAND and not _is_same(node, position):
            # numbers are computed in place, whatever axes they have
            is_part = isinstance(node.shape[position], int) and node.shape[position] < size
            is_broadcast = is_broadcast or (is_part and node.src[0].device is not None)
        else:
            pending += _below(node, position, unit)
    return _chain(size, steps) if is_broadcast else [size]


def _below(node: UOp, axis: int, unit: int) -> list[Place]:
    """Where the axis is found in the sources."""
    source = node.src[0] if node.src else node
    if node.op in _TRANSPARENT:
        return [(s, axis, unit) for s in node.src if s.shape]
    if node.op is Ops.EXPAND:
        return [(source, axis, unit)]
    if node.op is Ops.PERMUTE:
        return [(source, node.arg[axis], unit)]
    if node.op in _CUTS and _is_same(node, axis):
        return [(source, axis, unit)]
    if node.op is Ops.CAT and axis != node.arg:
        return [(s, axis, unit) for s in node.src]
    return []


def _is_same(node: UOp, axis: int) -> bool:
    """Whether a view has as many elements along an axis as its source."""
    before, after = node.src[0].shape[axis], node.shape[axis]
    return before is after or (
        isinstance(before, int) and isinstance(after, int) and before == after
    )


def _below_reshape(node: UOp, axis: int, unit: int) -> tuple[list[int], list[Place]]:
    """Where axes of the source begin inside of this one, and those that are whole in it."""
    source = node.src[0]
    if not all(isinstance(size, int) for size in (*node.shape, *source.shape)):
        return [], []
    inner = prod(node.shape[axis + 1 :])
    outer = inner * node.shape[axis]
    steps: list[int] = []
    below: list[Place] = []
    step = 1
    for position in reversed(range(len(source.shape))):
        size = source.shape[position]
        if inner <= step < outer and step % inner == 0:
            if step > inner and outer % step == 0:
                steps.append(step // inner * unit)
            if size > 1 and outer % (step * size) == 0:
                below.append((source, position, step // inner * unit))
        step *= size
    return steps, below


def _chain(size: int, steps: set[int]) -> list[int]:
    """The axis cut at those steps that divide each other."""
    chain = [1]
    for step in sorted(steps):
        if step % chain[-1] == 0 and size % step == 0 and chain[-1] < step < size:
            chain.append(step)
    chain.append(size)
    return [after // before for before, after in pairwise(chain)][::-1]
