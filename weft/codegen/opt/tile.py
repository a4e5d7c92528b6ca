"""Tile: how a body is best kept in registers, found by a small search over the cost model.

In: a body of a nest, the axis whose lanes it uses, the target. Out: a `Choice` (copies of axes in
registers, loads to stage) and its cost. Sits between the survey and the heuristic.
Invariant: registers are counted, never hoped for: accumulators, the operands that stay, and one
that passes by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.codegen.opt.stage import SCRATCH_BYTES
from weft.codegen.opt.survey import (
    Body,
    Choice,
    Item,
    body_cost,
    extent,
    item_cost,
    stays_in_order,
    volume,
)
from weft.renderer.base import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

LATENCY = 4  # cycles until a sum can be added to again
COPIES = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 14, 16)
# a stage that changes the order of elements must be read this often to be worth its filling
LEAST_REUSE = 24
# beyond this many instructions in one body LLVM's time is noticed
EXPANDED_OPS = 1600
ALIASING_BYTES = 4096
MOST_ROWS = 8
STREAMS = 4


@dataclass(frozen=True)
class Tile:
    """A choice and what it costs."""

    choice: Choice
    cost: float


def lanes_of(axis: UOp, items: list[Item], target: Target) -> int:
    """How many lanes an axis gives: a register of the widest dtype that meets it, or fewer."""
    widest = max((item.dtype.itemsize for item in items if axis in item.ranges), default=4)
    lanes = target.vector_bytes // widest
    while lanes > extent(axis):
        lanes //= 2
    return max(lanes, 1)


def plain_tile(body: Body, vector: UOp | None, lanes: int) -> Tile:
    """No copies: what the body costs with lanes alone."""
    choice = Choice(vector, lanes, {})
    return Tile(choice, body_cost(body, choice))


def best_tile(body: Body, vector: UOp | None, lanes: int, target: Target) -> Tile:
    """The cheapest copies for a reduction with these lanes."""
    staged = frozenset(_stageable(body, vector, lanes)) if vector is not None else frozenset()
    search = _Search(body, Choice(vector, lanes, {}, staged), target)
    copies, cost = search.run()
    return Tile(Choice(vector, lanes, copies, staged), cost)


class _Search:
    """All tiles of a body over the axis in lanes and at most two more output axes."""

    def __init__(self, body: Body, plain: Choice, target: Target) -> None:
        self.body = body
        self.plain = plain
        self.room = target.vector_registers
        self.axes = (plain.vector, *_reused_axes(body, plain.vector))
        # items that share the same copies cost the same fraction: one sum for all of them
        self.costs: dict[tuple[bool, ...], float] = {}
        self.fixed = 0.0
        for item in body.items:
            lacks = tuple([axis is not None and axis not in item.ranges for axis in self.axes])
            rounds, fill = item_cost(body, item, plain)
            self.costs[lacks] = self.costs.get(lacks, 0.0) + rounds
            self.fixed += fill
        self.rounds = volume(body.axes) / plain.lanes
        # rows that are read along the reduction are streams, of which memory feeds a few well
        self.most = self.room
        if plain.vector is not None and plain.vector in body.own:
            self.most = STREAMS if self.axes[2] is None else STREAMS + 2
        self.sizes = [1 if axis is None else extent(axis) for axis in self.axes]
        self.lanes = (plain.lanes if plain.vector is not None else 1, 1, 1)
        self.aliasing = (False, self._aliases(self.axes[1]), self._aliases(self.axes[2]))
        self.loads = [
            tuple([axis is not None and axis in item.ranges for axis in self.axes])
            for item in body.items
            if item.node is not None and item.node.op is Ops.LOAD
        ]
        self.panels = sum(
            panel_bytes([axis for axis in body.own if axis in item.ranges], plain.lanes, item)
            for item in body.items
            if item.node in plain.staged
        )
        heavy = [item for item in body.items if item.steps is None and item.weight > 1]
        self.passing = min(4, sum(_meets(item, plain.vector) for item in heavy))
        self.weight = max(body.weight(), 1.0)
        if plain.vector is not None and plain.vector in body.own:
            # the lanes are added up at the end, once per output
            outputs = volume(body.around) * len(body.closers)
            self.fixed += outputs * 2 * plain.lanes.bit_length()

    def run(self) -> tuple[dict[UOp, int], float]:
        best: tuple[int, int, int] = (1, 1, 1)
        least = self.cost(best)
        along, rows, more = self.axes
        most = min(self.room, EXPANDED_OPS / self.weight) / len(self.body.closers)
        for first in _counts(along, self.plain.lanes):
            for second in _counts(rows, 1):
                for third in _counts(more, 1):
                    if first * second * third >= most or max(second, third) > self.most:
                        break
                    counts = (first, second, third)
                    cost = self.cost(counts)
                    if cost < least * 0.999 and self.fits(counts):
                        best, least = counts, cost
        copies = {
            axis: count
            for axis, count in zip(self.axes, best, strict=True)
            if axis is not None and count > 1
        }
        return copies, least

    def fits(self, counts: tuple[int, int, int]) -> bool:
        """Accumulators, the operand that several of them use, one that passes by: in registers."""
        accumulators = counts[0] * counts[1] * counts[2] * len(self.body.closers)
        staying = min((_product(counts, meets) for meets in self.loads), default=0)
        if self.panels * counts[0] > SCRATCH_BYTES:
            return False
        return accumulators + staying + 1 + self.passing <= self.room

    def cost(self, counts: tuple[int, int, int]) -> float:
        """Instructions, or the time that the chains of sums need if that is more."""
        total = 0.0
        for lacks, cost in self.costs.items():
            total += cost / _product(counts, lacks)
        chain = LATENCY * self.rounds / (counts[0] * counts[1] * counts[2])
        total = max(total, chain)
        for count, size, lanes, aliases in zip(
            counts, self.sizes, self.lanes, self.aliasing, strict=True
        ):
            tile = count * lanes
            total *= -(-size // tile) * tile / size
            if aliases and count > MOST_ROWS:
                total *= 1.15
        return total + self.fixed

    def _aliases(self, axis: UOp | None) -> bool:
        """Whether neighbours along the axis fall into the same lines of the first cache."""
        if axis is None:
            return False
        steps = [
            (item.steps or {}).get(axis, 0)
            for item in self.body.items
            if self.plain.vector not in item.ranges
        ]
        return any([step and step * 4 % ALIASING_BYTES == 0 for step in steps])


def _product(counts: tuple[int, int, int], chosen: tuple[bool, ...]) -> int:
    total = counts[0] if chosen[0] else 1
    if chosen[1]:
        total *= counts[1]
    return total * counts[2] if chosen[2] else total


def _meets(item: Item, axis: UOp | None) -> bool:
    return axis is not None and axis in item.ranges


def _counts(axis: UOp | None, lanes: int) -> tuple[int, ...]:
    if axis is None or axis.src[0].op is not Ops.CONST:
        return (1,)
    most = extent(axis) // lanes
    return tuple([count for count in COPIES if count <= most]) or (1,)


def _reused_axes(body: Body, vector: UOp | None) -> tuple[UOp | None, UOp | None]:
    """The output axes on which most loads do not depend: copies of them share those loads."""
    saved: list[tuple[float, int, UOp]] = []
    for position, axis in enumerate(body.around):
        if axis is vector or axis.src[0].op is not Ops.CONST or extent(axis) == 1:
            continue
        weight = sum(
            item.weight for item in body.items if axis not in item.ranges and item.steps is not None
        )
        if weight:
            saved.append((weight, position, axis))
    saved.sort(key=lambda entry: (-entry[0], -entry[1]))
    axes: list[UOp | None] = [entry[2] for entry in saved]
    # lanes along an output reuse loads by themselves; along the reduction two axes are needed,
    # and where the first is short
    wanted = 1
    if vector is None or vector in body.own or (saved and extent(saved[0][2]) < MOST_ROWS):
        wanted = 2
    axes = [*axes[:wanted], None, None]
    return axes[0], axes[1]


def _stageable(body: Body, vector: UOp, lanes: int) -> Iterator[UOp]:
    """Loads whose lanes are apart in memory, but which are read often enough to be rearranged."""
    if vector in body.own:
        return
    for item in body.items:
        node = item.node
        if node is None or item.steps is None or vector not in item.ranges:
            continue
        if stays_in_order(item, vector) or node.op is not Ops.LOAD:
            continue
        reuse = volume([axis for axis in body.around if axis not in item.ranges])
        own = [axis for axis in body.own if axis in item.ranges]
        fixed = all([axis.src[0].op is Ops.CONST for axis in own])
        if fixed and reuse >= LEAST_REUSE and panel_bytes(own, lanes, item) <= SCRATCH_BYTES:
            yield node


def panel_bytes(own: list[UOp], width: int, item: Item) -> int:
    """Scratch that a panel of `width` columns takes; halves are staged as float32."""
    return volume(own) * width * max(item.dtype.itemsize, 4)
