"""Survey: what a nest of a kernel does in each of its loops, in numbers.

In: the STOREs of one nest, or a STAGE, which is filled by a nest of its own. Out: its bodies (each
group of reductions that share a loop, and the stores), each with the loads, stores and arithmetic
that run in it. Sits under the cost model, which says what a choice makes of them.
Invariant: weights are in vector instructions; only their ratios mean anything.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from weft.budgets import CHOICES
from weft.codegen.opt.axes import closed_axes
from weft.codegen.opt.strides import Steps, Strides
from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# a run-time size counts as this much
USUAL_SIZE = 256


@dataclass(eq=False, slots=True)
class Item:
    """One operation: the axes it depends on, what it costs, and how its address moves."""

    ranges: frozenset[UOp]
    weight: float
    dtype: DType
    steps: Steps | None = None  # None: no access to memory
    node: UOp | None = None
    masked: frozenset[UOp] = frozenset()  # axes that decide whether there is an access
    parts: tuple[Item, ...] = ()  # what is done for it where it is staged, if it is not just read

    def is_store(self) -> bool:
        return self.node is not None and self.node.op in (Ops.STORE, Ops.STAGE)

    @property
    def nbytes(self) -> int:
        """Of all that it touches."""
        return volume(self.ranges) * self.dtype.itemsize


@dataclass(eq=False)
class Body:
    """The innermost part of a loop: reductions over the same axes, or the stores (of a fill)."""

    closers: list[UOp]
    own: tuple[UOp, ...]  # the axes that end there
    around: tuple[UOp, ...]  # output axes whose loops it runs inside of, outermost first
    items: list[Item] = field(default_factory=list)
    is_fill: bool = False  # of fast memory, whose axes can only be split evenly
    pinned: frozenset[UOp] = frozenset()  # axes that staged values depend on: they stay loops
    # short reduce axes by which bits are shifted in its innermost loop: the fields of a word
    fields: list[UOp] = field(default_factory=list)
    # axes whose neighbours are neighbours in memory in aligned groups only: tiles must not overlap
    aligned: frozenset[UOp] = frozenset()

    @property
    def is_reduction(self) -> bool:
        return self.closers[0].op is Ops.REDUCE

    @property
    def axes(self) -> tuple[UOp, ...]:
        """Every axis that makes it run again."""
        return self.around + self.own if self.is_reduction else self.own

    @property
    def loads(self) -> list[Item]:
        """What it reads from memory."""
        return [item for item in self.items if item.node is not None and item.node.op is Ops.LOAD]

    def weight(self) -> float:
        return sum(item.weight for item in self.items)

    def reuse(self, item: Item) -> int:
        """How often each of its elements is used where it could be packed, inside pinned loops."""
        return volume([a for a in self.around if a not in item.ranges and a not in self.pinned])


def extent(axis: UOp) -> int:
    """The size of an axis, a usual one if only known at run time."""
    size = axis.src[0]
    return max(int(size.arg), 1) if size.op is Ops.CONST else min(size.vmax, USUAL_SIZE)


def volume(axes: Iterable[UOp]) -> int:
    """How many combinations the axes have."""
    total = 1
    for axis in axes:
        total *= extent(axis)
    return total


def nests_of(stores: list[UOp], target: Target) -> list[Nest]:
    """The nest of these stores, and one for every value that is staged on the way."""
    found = [Nest(stores, target)]
    known: set[UOp] = set()
    for nest in found:
        for stage in nest.stages:
            if stage not in known:
                known.add(stage)
                found.append(Nest([stage], target))
    return found


class Nest:
    """The bodies of one nest: reductions, inner ones before those around them; stores last.

    What is staged is read like any memory; how it is filled is another nest's business.
    """

    def __init__(self, stores: list[UOp], target: Target) -> None:
        self.stores = stores
        self.target = target
        self.is_fill = stores[0].op is Ops.STAGE
        # the last tile of a single row may overlap
        self.must_divide = self.is_fill and len(closed_axes(stores[0])) > 1
        self.strides = Strides(target.vector_lanes)
        deepest = max(stores, key=lambda store: len(store.src))
        self.outputs = closed_axes(deepest)
        # how often all of it is done
        self.rounds = volume(deepest.ranges)
        root = UOp.sink(*stores)
        own = set(stores)
        self.order = root.toposort(gate=lambda u: u.op is not Ops.STAGE or u in own)
        self.stages = [u for u in self.order if u.op is Ops.STAGE and u not in own]
        self.pinned = frozenset().union(*[stage.ranges for stage in self.stages])
        self.bodies: list[Body] = []
        self.home: dict[UOp, Body] = {}  # reduce axis -> the body that ends it
        self._find_bodies()
        self._fill_bodies()

    def _find_bodies(self) -> None:
        groups: dict[tuple[UOp, ...], list[UOp]] = {}
        for node in self.order:
            if node.op is Ops.REDUCE:
                groups.setdefault(closed_axes(node), []).append(node)
        for own, closers in groups.items():
            needed = frozenset().union(*[closer.src[0].ranges for closer in closers])
            around = tuple([a for a in self.outputs if a in needed])
            body = Body(closers, own, around, [], self.is_fill, self.pinned)
            self.bodies.append(body)
            for axis in own:
                self.home[axis] = body
        outputs = self.outputs
        self.bodies.append(Body(self.stores, outputs, outputs, [], self.is_fill, self.pinned))

    def _fill_bodies(self) -> None:
        fused = {
            node.src[0]
            for node in self.order
            if node.op is Ops.REDUCE and node.arg is Ops.ADD and node.src[0].op is Ops.MUL
        }
        for node in self.order:
            item = self._item(node, node in fused)
            if item is not None:
                body = self._body_of(item.ranges)
                body.items.append(item)
                if node.op in (Ops.SHL, Ops.SHR) and body.is_reduction:
                    _note_fields(body, node)
        for body in self.bodies:
            body.aligned = frozenset(self.strides.aligned)

    def _body_of(self, ranges: frozenset[UOp]) -> Body:
        """The innermost loop an operation runs in: the first body in order that has its axes."""
        for body in self.bodies[:-1]:
            if not ranges.isdisjoint(body.own):
                return body
        return self.bodies[-1]

    def _item(self, node: UOp, fused: bool) -> Item | None:
        if node.op in (Ops.LOAD, Ops.STORE):
            place = node.src[0]
            if place.op is not Ops.INDEX:
                return None
            ranges = node.ranges if node.op is Ops.LOAD else frozenset(closed_axes(node))
            masked = place.src[2].ranges if len(place.src) > 2 else frozenset()
            weight = 1.0 if not masked else 1.5
            return Item(ranges, weight, place.dtype, self.strides.of(place.src[1]), node, masked)
        if node.op is Ops.STAGE:
            return self._fill_item(node) if node in self.stores else None
        if node.op is Ops.REDUCE:
            ranges = node.src[0].ranges | set(closed_axes(node))
            return Item(ranges, self.target.op_cost(node.arg), node.dtype, node=node)
        if node.op not in GroupOp.Elementwise or fused:
            return None
        if node.dtype is dtypes.weakint or node.src[-1].dtype is dtypes.weakint:
            return None
        # its rounds are on halves
        dtype = dtypes.uint32 if node.op is Ops.THREEFRY else node.dtype
        return Item(node.ranges, self.target.op_cost(node.op), dtype, node=node)

    def _fill_item(self, stage: UOp) -> Item:
        """Fast memory is filled row by row."""
        steps: Steps = {}
        step = 1
        for axis in reversed(closed_axes(stage)):
            steps[axis] = step
            step *= extent(axis)
        return Item(frozenset(steps), 1.0, stage.dtype, steps, stage)


def _note_fields(body: Body, shift: UOp) -> None:
    """The axes that number the fields of a word: written out, each shift is by a number, and the
    word is read once."""
    if body.own[-1] not in shift.ranges or not shift.src[0].ranges:
        return
    for axis in body.own:
        if axis in shift.src[1].ranges and axis not in body.fields and extent(axis) <= CHOICES:
            body.fields.append(axis)


def stays_in_order(item: Item, axis: UOp) -> bool:
    """Whether lanes along the axis are neighbours in memory, or one element for all."""
    return item.steps is None or item.steps.get(axis, 0) in (0, 1)
