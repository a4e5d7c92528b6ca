"""How a value lies on several devices: whole on each of them, or cut along one axis.

What comes in: a node whose sources know how they lie. What goes out: how it lies itself, and how
each source has to lie for every device to compute its part alone.
Where it sits: under infer.py, which keeps the answer with the device; schedule/shard.py follows it.
The one invariant: `plan` is the one place that decides; the lowering does what it says.

A `Layout` names the shape that was cut. A RESHAPE whose shape has no such axis keeps the layout as
it is: the parts are the same elements, and a later RESHAPE may find the axis again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.helpers import prod
from weft.uop.opset import GroupOp, Ops


@dataclass(frozen=True)
class Layout:
    """`shape` cut along `axis`; part i has the indices bounds[i] <= index < bounds[i + 1]."""

    shape: tuple[Any, ...]
    axis: int
    bounds: tuple[int, ...]

    @property
    def count(self) -> int:
        """How many parts."""
        return len(self.bounds) - 1

    def part(self, number: int) -> tuple[int, int]:
        """Where a part starts and stops."""
        return self.bounds[number], self.bounds[number + 1]

    def part_shape(self, number: int) -> tuple[Any, ...]:
        """The shape of a part."""
        start, stop = self.part(number)
        return (*self.shape[: self.axis], stop - start, *self.shape[self.axis + 1 :])

    @property
    def largest(self) -> int:
        """The length of the longest part."""
        return max(
            [stop - start for start, stop in zip(self.bounds, self.bounds[1:], strict=False)]
        )

    def with_shape(self, shape: tuple[Any, ...]) -> Layout:
        """The same cut of the same axis of another shape."""
        return Layout(shape, self.axis, self.bounds)


@dataclass(frozen=True)
class ShardArg:
    """The arg of a COPY to several devices that cuts: which axis, and where."""

    devices: tuple[str, ...]
    axis: int
    bounds: tuple[int, ...]


@dataclass(frozen=True)
class Placement:
    """Several devices, and how a value lies on them; without a layout it is whole on each."""

    devices: tuple[str, ...]
    layout: Layout | None


@dataclass(frozen=True)
class Plan:
    """How sources have to lie (None: whole; `KEEP`: as they do), and how the result then lies."""

    sources: tuple[Any, ...]
    result: Layout | None


KEEP = "keep"


def even_bounds(size: int, count: int) -> tuple[int, ...]:
    """Cuts into parts that differ by one at most, the longer ones first."""
    each, more = divmod(size, count)
    return tuple([i * each + min(i, more) for i in range(count + 1)])


def cut_evenly(shape: tuple[Any, ...], axis: int, count: int) -> Layout:
    """A shape cut along an axis."""
    return Layout(shape, axis, even_bounds(shape[axis], count))


def layout_of(node: Any) -> Layout | None:
    """How a node lies; None for what is whole, or on one device or none."""
    placed = node._device
    return placed.layout if type(placed) is Placement else None


# ------------------------------------------------------------ following the cut
def follow(layout: Layout, shape: tuple[Any, ...]) -> Layout | None:
    """The same parts as a cut of another shape with as many elements; None if none is that.

    (4, 6) cut along 0 -> (2, 2, 6) cut along 0, (24,) along 0; along 1 -> (4, 2, 3) along 1
    """
    if shape == layout.shape:
        return layout
    before, after = list(layout.shape), list(shape)
    axis, bounds = layout.axis, layout.bounds
    skipped = 0
    while _same(before, after, axis):
        before, after, axis, skipped = before[1:], after[1:], axis - 1, skipped + 1
    while len(before) - 1 > axis and len(after) > 1 and _equal(before[-1], after[-1]):
        before, after = before[:-1], after[:-1]
    if not all([type(size) is int for size in (*before, *after)]):
        return _follow_symbolic(layout, shape, skipped, before, after, axis)
    outer, inner = prod(before[:axis]), prod(before[axis + 1 :])
    if 0 in before or not after:
        return None
    flat = [bound * inner for bound in bounds]
    for place in range(len(after)):
        rest = prod(after[place + 1 :])
        is_here = prod(after[:place]) == outer and after[place] * rest == before[axis] * inner
        if is_here and all([bound % rest == 0 for bound in flat]):
            return Layout(shape, place + skipped, tuple([bound // rest for bound in flat]))
    return None


def _equal(one: Any, other: Any) -> bool:
    if type(one) is int or type(other) is int:
        return type(one) is type(other) and bool(one == other)
    return one is other


def _same(before: list[Any], after: list[Any], axis: int) -> bool:
    return axis > 0 and bool(after) and _equal(before[0], after[0])


def _follow_symbolic(
    layout: Layout,
    shape: tuple[Any, ...],
    skipped: int,
    before: list[Any],
    after: list[Any],
    axis: int,
) -> Layout | None:
    """Where a size is symbolic only axes of size 1 may come and go."""
    wanted = [size for size in before if not _equal(size, 1)]
    found = [size for size in after if not _equal(size, 1)]
    if len(wanted) != len(found) or not all(map(_equal, wanted, found)):
        return None
    if _equal(before[axis], 1):
        return None
    place = len([size for size in before[:axis] if not _equal(size, 1)])
    axes = [i for i, size in enumerate(after) if not _equal(size, 1)]
    return Layout(shape, axes[place] + skipped, layout.bounds)


def recut(shape: tuple[Any, ...], count: int, avoid: Sequence[int] = ()) -> Layout | None:
    """A cut along an axis that an op leaves alone; None if there is none worth it."""
    best = None
    for axis, size in enumerate(shape):
        if axis in avoid or type(size) is not int or size < 2:
            continue
        worth = (size >= count, size % count == 0, -axis)
        if best is None or worth > best[0]:
            best = (worth, axis)
    return None if best is None else cut_evenly(shape, best[1], count)


# ------------------------------------------------------------ one op
def plan(node: Any) -> Plan:
    """How the sources of a node on several devices have to lie, and how it lies then."""
    op = node.op
    if op is Ops.BUFFER:
        return Plan((), node.arg.layout)
    if op is Ops.COPY:
        arg = node.arg
        cut = Layout(node.shape, arg.axis, arg.bounds) if type(arg) is ShardArg else None
        return Plan((cut,), cut)
    found = [layout_of(source) for source in node.src]
    if all([layout is None for layout in found]):
        return Plan((None,) * len(found), None)
    if op in (Ops.STORE, Ops.SINK):
        return Plan((KEEP,) * len(found), None)
    rule = _RULES.get(op)
    if rule is not None:
        answer: Plan = rule(node, found)
        return answer
    if op in GroupOp.Elementwise:
        return _elementwise(node, found)
    # what is only known as a whole: functions of the host
    return Plan((None,) * len(found), None)


def _elementwise(node: Any, found: list[Layout | None]) -> Plan:
    cuts = dict.fromkeys([layout for layout in found if layout is not None])
    followed = [layout for layout in cuts if layout.shape == node.shape]
    choices = followed or list(cuts)
    best = choices[0]
    if len(choices) > 1:
        pairs = list(zip(found, node.src, strict=True))
        best = min(choices, key=lambda choice: _elements_moved(choice, pairs))
    return Plan(tuple([best if source.shape else None for source in node.src]), best)


def _elements_moved(choice: Layout, pairs: list[tuple[Layout | None, Any]]) -> tuple[int, int]:
    """How many elements have to move if all operands are cut alike, and the longest part then."""
    moved = 0
    for layout, source in pairs:
        if layout is not None and layout != choice:
            size = prod([s for s in unexpanded(source).shape if type(s) is int])
            moved += size
    return moved, choice.largest


# movement ops that are looked through for what they repeat
_DEPTH = 8


def unexpanded(node: Any) -> Any:
    """What a value is a view of, if that has fewer elements: what it repeats need not move."""
    found = best = node
    for _ in range(_DEPTH):
        if found.op not in (Ops.EXPAND, Ops.RESHAPE, Ops.PERMUTE):
            break
        found = found.src[0]
        if _is_smaller(found.shape, best.shape):
            best = found
    return best


def _is_smaller(shape: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    if not all([type(size) is int for size in (*shape, *other)]):
        return False
    return bool(prod(shape) < prod(other))


def _first(node: Any, found: list[Layout | None]) -> Plan:
    return Plan((KEEP,) * len(found), found[0])


def _reshape(node: Any, found: list[Layout | None]) -> Plan:
    layout = found[0]
    assert layout is not None
    if not node.shape:
        # one number is on every device
        return Plan((None,) * len(found), None)
    return Plan((KEEP,) * len(found), follow(layout, node.shape) or layout)


def _moved(node: Any, layout: Layout | None, avoid: Sequence[int]) -> Layout | None:
    """How the source of a movement has to lie: as it does, if its axis is known and not in the
    way."""
    shape = node.src[0].shape
    if layout is not None and layout.shape == shape and layout.axis not in avoid:
        return layout
    return None if layout is None else recut(shape, layout.count, avoid)


def _movement(node: Any, found: list[Layout | None]) -> Plan:
    avoid = _in_the_way(node)
    source = _moved(node, found[0], avoid)
    result = None if source is None else _RESULTS[node.op](node, source)
    return Plan((source, *[None] * (len(found) - 1)), result)


def _in_the_way(node: Any) -> list[int]:
    """Axes along which the parts of a source are not parts of the result."""
    shape = node.src[0].shape
    if node.op is Ops.EXPAND:
        return [i for i, size in enumerate(shape) if not _equal(size, node.shape[i])]
    if node.op in (Ops.PAD, Ops.SHRINK):
        return [i for i, pair in enumerate(node.arg) if None in pair]
    if node.op is Ops.REDUCE_AXIS:
        return list(node.arg.axes)
    return []


def _same_axis(node: Any, layout: Layout) -> Layout:
    return layout.with_shape(node.shape)


def _permuted(node: Any, layout: Layout) -> Layout:
    return Layout(node.shape, node.arg.index(layout.axis), layout.bounds)


def _padded(node: Any, layout: Layout) -> Layout:
    before, after = node.arg[layout.axis]
    bounds = [bound + before for bound in layout.bounds]
    return Layout(node.shape, layout.axis, (0, *bounds[1:-1], bounds[-1] + after))


def _shrunk(node: Any, layout: Layout) -> Layout:
    start, stop = node.arg[layout.axis]
    bounds = tuple([min(max(bound, start), stop) - start for bound in layout.bounds])
    return Layout(node.shape, layout.axis, bounds)


def _flipped(node: Any, layout: Layout) -> Layout:
    if not node.arg[layout.axis]:
        return layout
    size = layout.bounds[-1]
    return Layout(node.shape, layout.axis, tuple([size - b for b in reversed(layout.bounds)]))


def _strided(node: Any, layout: Layout) -> Layout:
    step = node.arg[layout.axis]
    bounds = tuple([(bound + step - 1) // step for bound in layout.bounds])
    return Layout(node.shape, layout.axis, bounds)


_RESULTS: dict[Ops, Any] = {
    Ops.EXPAND: _same_axis,
    Ops.PERMUTE: _permuted,
    Ops.PAD: _padded,
    Ops.SHRINK: _shrunk,
    Ops.FLIP: _flipped,
    Ops.STRIDE: _strided,
    Ops.REDUCE_AXIS: _same_axis,
}


def _reduce(node: Any, found: list[Layout | None]) -> Plan:
    """Along the cut axis the parts are reduced, and then their results."""
    layout, shape = found[0], node.src[0].shape
    assert layout is not None
    is_all = len(node.arg.axes) == len(shape)
    if is_all or (layout.shape == shape and layout.axis in node.arg.axes):
        return Plan((KEEP,), None)
    return _movement(node, found)


def _cat(node: Any, found: list[Layout | None]) -> Plan:
    pairs = zip(found, node.src, strict=True)
    cuts = [layout for layout, source in pairs if layout and layout.shape == source.shape]
    first = next(layout for layout in found if layout is not None)
    best = cuts[0] if cuts else recut(node.shape, first.count, (node.arg,))
    if best is None:
        return Plan((None,) * len(found), None)
    if best.axis == node.arg:
        return Plan((KEEP,) * len(found), cut_evenly(node.shape, node.arg, best.count))
    wanted = tuple([best.with_shape(source.shape) for source in node.src])
    return Plan(wanted, best.with_shape(node.shape))


def _gather(node: Any, found: list[Layout | None]) -> Plan:
    source, first = node.src[0], node.src[1]
    layout = found[0]
    others = (None,) * (len(found) - 1)
    if layout is None:
        cuts = [cut for cut in found[1:] if cut is not None]
        followed = [cut for cut in cuts if cut.shape == first.shape]
        best = followed[0] if followed else recut(first.shape, cuts[0].count)
        if best is None:
            return Plan((None, *others), None)
        return Plan((None, *[best] * len(others)), best.with_shape(node.shape))
    if layout.shape == source.shape and layout.axis in node.arg:
        # each part gives what it has, the others zeros
        return Plan((KEEP, *others), None)
    if layout.shape != source.shape:
        layout = recut(source.shape, layout.count, node.arg)
        if layout is None:
            return Plan((None, *others), None)
    kept = [axis for axis in range(len(source.shape)) if axis not in node.arg]
    axis = len(first.shape) + kept.index(layout.axis)
    return Plan((layout, *others), Layout(node.shape, axis, layout.bounds))


def _bitcast(node: Any, found: list[Layout | None]) -> Plan:
    """Elements of another size are along the last axis."""
    source = node.src[0]
    before, after = source.dtype.itemsize, node.dtype.itemsize
    if before == after:
        return _elementwise(node, found)
    layout, last = found[0], len(source.shape) - 1
    assert layout is not None
    if layout.shape == source.shape and layout.axis == last:
        if all([bound * before % after == 0 for bound in layout.bounds]):
            bounds = tuple([bound * before // after for bound in layout.bounds])
            return Plan((layout,), Layout(node.shape, last, bounds))
    wanted = _moved(node, layout, (last,))
    return Plan((wanted,), None if wanted is None else wanted.with_shape(node.shape))


_RULES: dict[Ops, Any] = {
    Ops.RESHAPE: _reshape,
    Ops.PERMUTE: _movement,
    Ops.EXPAND: _movement,
    Ops.PAD: _movement,
    Ops.SHRINK: _movement,
    Ops.FLIP: _movement,
    Ops.STRIDE: _movement,
    Ops.CAT: _cat,
    Ops.GATHER: _gather,
    Ops.REDUCE_AXIS: _reduce,
    Ops.BITCAST: _bitcast,
    Ops.CONTIGUOUS: _first,
    Ops.CONTIGUOUS_BACKWARD: _first,
    Ops.DETACH: _first,
    Ops.FUNCTION: _first,
    Ops.AFTER: _first,
}
