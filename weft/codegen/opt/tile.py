"""Tile: how a body is best kept in registers, found by a small search over the cost model.

In: a body of a nest, the axis whose lanes it uses, the target. Out: a `Choice` (copies of axes in
registers, loads to stage) and its cost. Sits between the survey and the heuristic.
Invariant: registers are counted, never hoped for: accumulators, the operands that stay, and one
that passes by.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from weft.budgets import BLOCK_OPS, CHOICES, UNROLLED_TERMS
from weft.codegen.opt.cost import Choice, body_cost, item_cost, rounds_of
from weft.codegen.opt.rows import is_one_stream
from weft.codegen.opt.survey import Body, Item, extent, stays_in_order, volume
from weft.dtype import dtypes
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

# a stage that changes the order of elements must be read this often to be worth its filling
LEAST_REUSE = 24
# uses of a panel of an operand that are worth packing it even if its rows are read in order
PACKED_REUSE = 64


# share of the work whose dtype does not decide how many lanes there are: it takes two registers
# (half: products of float16 take twice as long, `python -m bench.trees`)
RARE = 1 / 8


@dataclass(frozen=True)
class Tile:
    """A choice and what it costs."""

    choice: Choice
    cost: float


def lanes_of(axis: UOp, items: list[Item], target: Target, exact: bool = False) -> int:
    """How many lanes an axis gives: a register of the widest dtype that most of the work meets, or
    fewer."""
    work: dict[int, float] = {}  # by size of a dtype
    for item in items:
        if axis in item.ranges:
            work[item.dtype.itemsize] = work.get(item.dtype.itemsize, 0.0) + item.weight
    sizes = sorted(work)
    # what little is wider takes two registers
    while len(sizes) > 1 and work[sizes[-1]] < RARE * sum(work.values()):
        sizes.pop()
    lanes = target.vector_bytes // sizes[-1] if sizes else target.vector_lanes
    while lanes > extent(axis) or (exact and lanes > 1 and extent(axis) % lanes):
        lanes //= 2
    return max(lanes, 1)


def most_sums(target: Target) -> int:
    """Accumulators that a reduction along its lanes has at most."""
    return target.vector_registers // 2


def plain_tile(body: Body, vector: UOp | None, lanes: int, target: Target) -> Tile:
    """No copies: what the body costs with lanes alone."""
    choice = Choice(vector, lanes, {})
    return Tile(choice, body_cost(body, choice, target))


def best_tile(body: Body, vector: UOp | None, lanes: int, target: Target) -> Tile:
    """The cheapest copies for a reduction with these lanes."""
    staged = (
        frozenset(_stageable(body, vector, lanes, target)) if vector is not None else frozenset()
    )
    plain = Choice(vector, lanes, {}, staged)
    found = [
        _Search(body, plain, target, rows, more).run() for rows, more in _reused_axes(body, vector)
    ]
    copies, cost = min(found, key=lambda each: each[1])
    return Tile(Choice(vector, lanes, copies, staged), cost)


class _Search:
    """All tiles of a body over the axis in lanes and at most two more output axes."""

    def __init__(
        self, body: Body, plain: Choice, target: Target, rows: UOp | None, more: UOp | None
    ) -> None:
        self.body = body
        self.plain = plain
        self.target = target
        self.room = target.vector_registers
        has_panel = any([item.parts for item in body.items])
        if has_panel:
            # the numbers that fill it stay in registers around all loops
            self.room -= self.room // 4
        self.axes = (plain.vector, rows, more)
        # items that share the same copies cost the same fraction: one sum for all of them
        self.costs: dict[tuple[bool, ...], float] = {}
        self.jumps: dict[tuple[bool, ...], float] = {}
        self.fixed = 0.0
        for item in body.items:
            lacks = self._lacks(item)
            rounds, fill = item_cost(body, item, plain, target)
            steps = rounds_of(body, item.ranges, plain)
            rounds += steps * _misses(body, item, plain, target)
            self.costs[lacks] = self.costs.get(lacks, 0.0) + rounds
            self.jumps[lacks] = self.jumps.get(lacks, 0.0)
            self.jumps[lacks] += steps * _jumps(body, item, plain, target)
            self.fixed += fill
        self.rounds = volume(body.axes) / plain.lanes
        # rows that are read along the reduction are streams, of which memory feeds a few well
        self.most = self.room
        if plain.vector is not None and plain.vector in body.own:
            self.most = target.streams if self.axes[2] is None else target.streams + 2
            self.most = max(
                1, min(self.most, most_sums(target) // _written_out(body, plain, target))
            )
        self.limits = [
            1 if is_one_stream(body, plain.vector, axis, target) else self.most
            for axis in self.axes
        ]
        if plain.vector in body.own:
            # of these copies the reduction's plan has its own idea
            self.limits[0] = self.room
        elif self._saves_little():
            self.limits[0] = 1 if body.fields else target.streams
        self.sizes = [1 if axis is None else extent(axis) for axis in self.axes]
        self.lanes = (plain.lanes if plain.vector is not None else 1, 1, 1)
        self.aliasing = (False, self._aliases(self.axes[1]), self._aliases(self.axes[2]))
        self.waste: dict[tuple[int, int], float] = {}  # of (axis, copies)
        self.loads = [
            tuple([axis is not None and axis in item.ranges for axis in self.axes])
            for item in body.items
            if item.parts or (item.node is not None and item.node.op is Ops.LOAD)
        ]
        self.panels = sum(
            panel_bytes([axis for axis in body.own if axis in item.ranges], plain.lanes, item)
            for item in body.items
            if item.node in plain.staged
        )
        packed = sum(
            panel_bytes([axis for axis in body.own if axis in item.ranges], plain.lanes, item)
            for item in body.items
            if item.node not in plain.staged and _is_packed(body, item, plain, target)
        )
        # a tile as wide as one panel still fits; if not even one vector does, none is packed
        self.scratch = target.scratch_bytes
        if self.panels + packed <= self.scratch:
            self.panels += packed
        if has_panel:
            # beside a panel, what it is made of and the other operand pass through the cache
            self.scratch = max(self.panels, target.l2 // 2)
        heavy = [item for item in body.items if item.steps is None and item.weight > 1]
        self.passing = min(target.sum_latency, sum(_meets(item, plain.vector) for item in heavy))
        # what is written out has sums of its own
        self.fields = volume(body.fields) if plain.vector in body.around else 1
        self.weight = max(body.weight(), 1.0)
        # the sums that keep the machine busy, where that is all it takes; None: more pay off
        self.busy = None
        if self._is_near(target):
            self.busy = 2 * target.sum_latency * target.products
        if plain.vector is not None and plain.vector in body.own:
            # the lanes are added up at the end, once per output
            outputs = volume(body.around) * len(body.closers)
            self.fixed += outputs * 2 * plain.lanes.bit_length()
            streamed = _streamed(body, plain, target)
            if streamed is not None:
                far = target.far_cycles * rounds_of(body, streamed.ranges, plain)
                self.costs[self._lacks(streamed)] += far

    def _is_near(self, target: Target) -> bool:
        """Whether whole vectors of outputs are summed up, what is read stays near, and what is
        spread over lanes is read in order."""
        body, vector, lanes = self.body, self.plain.vector, self.plain.lanes
        if target.broadcast_cycles >= 1:
            return False
        if vector is None or vector in body.own or volume(body.own) <= UNROLLED_TERMS:
            return False
        if body.fields or any([item.parts for item in body.items]):
            return False
        total, batch = 0, self._batch()
        for item in body.loads:
            if lanes * item.dtype.itemsize != target.vector_bytes:
                return False
            in_order = item.steps is not None and item.steps.get(body.own[-1]) == 1
            if vector not in item.ranges and not in_order:
                return False
            # for each sample of a batch others are read, again and again until the next one
            total += (
                volume([axis for axis in item.ranges if axis is not batch]) * item.dtype.itemsize
            )
        return total <= target.near_bytes

    def _batch(self) -> UOp | None:
        """The outermost axis, if no tile is cut of it and some operand is the same all along it."""
        first = self.body.around[0]
        is_shared = any([first not in item.ranges for item in self.body.loads])
        return first if is_shared and first not in self.axes else None

    def _lacks(self, item: Item) -> tuple[bool, ...]:
        """Of which of the axes an item is shared by the copies."""
        return tuple([axis is not None and axis not in item.ranges for axis in self.axes])

    def run(self) -> tuple[dict[UOp, int], float]:
        most = min(self.room, BLOCK_OPS / self.weight) / len(self.body.closers)
        best, least = self._cheapest(most)
        if self.busy is not None:
            # all the same to the machine, so as short as possible
            self.jumps = {}
            spread = self.target.broadcast_cycles
            self.costs = {lacks: x * spread if lacks[0] else x for lacks, x in self.costs.items()}
            best, _ = self._cheapest(min(most, self.busy / len(self.body.closers) + 1))
        copies = {
            axis: count
            for axis, count in zip(self.axes, best, strict=True)
            if axis is not None and count > 1
        }
        return copies, least

    def _cheapest(self, most: float) -> tuple[tuple[int, int, int], float]:
        """The best of all tiles with fewer copies than this, and its cost."""
        best: tuple[int, int, int] = (1, 1, 1)
        least = self.cost(best)
        along, rows, more = self.axes
        exact = self.body.is_fill
        whole = along in self.body.aligned or (exact and along not in self.body.own)
        seconds = [n for n in _counts(rows, 1, exact) if n <= self.limits[1]]
        thirds = [n for n in _counts(more, 1, exact) if n <= self.limits[2]]
        for first in _counts(along, self.plain.lanes, whole):
            if first > self.limits[0]:
                break
            for second in seconds:
                for third in thirds:
                    if first * second * third >= most:
                        break
                    counts = (first, second, third)
                    cost = self.cost(counts)
                    # whole instructions: of tiles that are equal but for rounding, the first
                    if round(cost) < round(least) and self.fits(counts):
                        best, least = counts, cost
        return best, least

    def fits(self, counts: tuple[int, int, int]) -> bool:
        """Accumulators, the operand that several of them use, one that passes by: in registers."""
        accumulators = counts[0] * counts[1] * counts[2] * len(self.body.closers) * self.fields
        staying = min((_product(counts, meets) for meets in self.loads), default=0)
        if self.panels * counts[0] > self.scratch:
            return False
        return accumulators + staying + 1 + self.passing <= self.room

    def cost(self, counts: tuple[int, int, int]) -> float:
        """Instructions, or the time that the chains of sums need if that is more."""
        first, second, third = counts
        total = 0.0
        # asked for thousands of tiles: written for Python's sake
        for (shares_first, shares_second, shares_third), cost in self.costs.items():
            if shares_first:
                cost /= first
            if shares_second:
                cost /= second
            if shares_third:
                cost /= third
            total += cost
        # the wider a row, the fewer there are, and the more the machine reads ahead of each
        for lacks, jumps in self.jumps.items():
            if jumps:
                total += jumps / (_product(counts, lacks) * first * first)
        chain = self.target.sum_latency * self.rounds / (first * second * third)
        if chain > total:
            total = chain
        for place, count in enumerate(counts):
            waste = self.waste.get((place, count))
            if waste is None:
                waste = self.waste[place, count] = self._waste(place, count)
            total *= waste
        return total + self.fixed

    def _waste(self, place: int, count: int) -> float:
        """How much longer it takes as the last tile along an axis repeats some of it, and as rows
        push each other out of the first cache."""
        size, tile = self.sizes[place], count * self.lanes[place]
        waste = -(-size // tile) * tile / size
        ways = self.target.l1 // self.target.alias_bytes
        return waste * count / ways if self.aliasing[place] and count > ways else waste

    def _saves_little(self) -> bool:
        """Whether almost all of the work is on what the lanes hold: copies would share the rest."""
        shared = sum(cost for lacks, cost in self.costs.items() if lacks[0])
        return 2 * shared < sum(self.costs.values())

    def _aliases(self, axis: UOp | None) -> bool:
        """Whether neighbours along the axis fall into the same lines of the first cache."""
        if axis is None:
            return False
        steps = [
            ((item.steps or {}).get(axis) or 0) * item.dtype.itemsize
            for item in self.body.items
            if self.plain.vector not in item.ranges
        ]
        return any([step and step % self.target.alias_bytes == 0 for step in steps])


def _written_out(body: Body, plain: Choice, target: Target) -> int:
    """Vectors of the short inner axes of a reduction that computes more than it reads: to write
    these out, all of them, saves more than to share the other operand between rows."""
    # it waits for memory
    if body.weight() < target.vector_lanes:
        return 1
    vectors = copies = 1
    for axis in reversed(body.own):
        steps = extent(axis) if axis is not plain.vector else -(-extent(axis) // plain.lanes)
        if vectors * steps > most_sums(target):
            break
        vectors *= steps
        copies *= 1 if axis is plain.vector else steps
    return vectors if copies > 1 else 1


def _streamed(body: Body, plain: Choice, target: Target) -> Item | None:
    """The operand whose rows are read again for each tile, if they come from far away every time.

    The loops are in such an order that it is the smaller one: rows of the larger one stay near for
    as long as they are needed.
    """
    operands: list[tuple[int, Item]] = []
    loads = [item for item in body.loads if plain.vector in item.ranges and item.steps is not None]
    for item in loads:
        # axes of the outputs that all have are around everything
        axes = [a for a in item.ranges if a in body.own or any([a not in i.ranges for i in loads])]
        memory = item.node.src[0].src[0]  # type: ignore[union-attr]
        count = volume(axes)
        if memory.op is Ops.PARAM:
            # windows that overlap read less than they have places
            count = min(count, memory.arg.size)
        operands.append((count * item.dtype.itemsize, item))
    if len(operands) < 2:
        return None
    size, smaller = min(operands, key=lambda each: each[0])
    return smaller if size > target.l2 // 2 else None


def _misses(body: Body, item: Item, plain: Choice, target: Target) -> float:
    """What a vector load costs more where the rows it runs along do not stay in the first cache.

    Neighbours that fall into the same line share what it costs; packed rows have none.
    """
    vector = plain.vector
    if vector is None or vector not in item.ranges or item.steps is None or item.is_store():
        return 0.0
    lines, shared = 1.0, 1
    for axis in body.own:
        step = item.steps.get(axis, 0)
        if axis is vector:
            lines *= extent(axis) / plain.lanes
        elif item.node in plain.staged or step is None or abs(step) >= plain.lanes:
            lines *= extent(axis) if axis in item.ranges else 1
        elif step:
            shared *= extent(axis)
    # of two operands, beside what is read ahead
    if 2 * lines * target.vector_bytes < target.l1:
        return 0.0
    return target.l2_cycles / shared


def _jumps(body: Body, item: Item, plain: Choice, target: Target) -> float:
    """What it costs that every round of a reduction reads a short row at another place.

    Nothing, if all rows stay in the first cache, or are packed so that they follow each other.
    """
    vector = plain.vector
    if vector is None or vector in body.own or vector not in item.ranges:
        return 0.0
    if item.steps is None or item.is_store() or item.node in plain.staged:
        return 0.0
    reach, shared = 0, 1
    moving = [axis for axis in body.own if item.steps.get(axis, 0) != 0]
    if moving and plain.lanes <= abs(item.steps[moving[-1]] or 0) < 2 * plain.lanes:
        # the next row follows this one, or begins in the line after it
        return 0.0
    for axis in body.own:
        step = item.steps.get(axis, 0)
        reach = max(reach, abs(step or 0) * extent(axis) * item.dtype.itemsize)
        shared *= extent(axis) if step and abs(step) < plain.lanes else 1
    reuse = body.reuse(item)
    if reach <= target.l1 or (reuse >= PACKED_REUSE and shared == 1):
        return 0.0
    return (target.far_miss if reach > target.l2 // 2 else target.l2_miss) / shared


def _product(counts: tuple[int, int, int], chosen: tuple[bool, ...]) -> int:
    total = counts[0] if chosen[0] else 1
    if chosen[1]:
        total *= counts[1]
    return total * counts[2] if chosen[2] else total


def _meets(item: Item, axis: UOp | None) -> bool:
    return axis is not None and axis in item.ranges


def _counts(axis: UOp | None, lanes: int, exact: bool) -> tuple[int, ...]:
    if axis is None or axis.src[0].op is not Ops.CONST:
        return (1,)
    most = extent(axis) // lanes
    counts = range(1, min(most, UNROLLED_TERMS) + 1)
    return tuple([n for n in counts if not (exact and extent(axis) % (n * lanes))]) or (1,)


def _reused_axes(body: Body, vector: UOp | None) -> list[tuple[UOp | None, UOp | None]]:
    """Output axes on which some loads do not depend: copies of them share those loads.

    One or two axes at a time. Axes that share the same loads are equal, but for their size.
    """
    groups: dict[tuple[bool, ...], list[UOp]] = {}
    weights: dict[tuple[bool, ...], float] = {}
    for axis in reversed(body.around):
        if axis is vector or axis.src[0].op is not Ops.CONST or extent(axis) == 1:
            continue
        if axis in body.pinned:
            continue
        shared = tuple([axis not in item.ranges for item in body.items if item.steps is not None])
        if any(shared):
            groups.setdefault(shared, []).append(axis)
            accesses = [item for item in body.items if item.steps is not None]
            weights[shared] = sum(
                item.weight for item, is_shared in zip(accesses, shared, strict=True) if is_shared
            )
    if not groups:
        return [(None, None)]
    best = [groups[key] for key in sorted(groups, key=lambda key: -weights[key])]
    options: list[tuple[UOp | None, UOp | None]] = []
    for axes in best:
        # where one is short, the next has copies too
        more = axes[1] if len(axes) > 1 and extent(axes[0]) < UNROLLED_TERMS else None
        options.append((axes[0], more))
    if len(best) > 1:
        # two operands of which each is shared by the copies of one axis
        options.append((best[0][0], best[1][0]))
    elif vector is None or vector in body.own:
        # lanes along an output reuse loads by themselves; along the reduction two axes are needed
        options.append((best[0][0], best[0][1] if len(best[0]) > 1 else None))
    return options


def _stageable(body: Body, vector: UOp, lanes: int, target: Target) -> Iterator[UOp]:
    """Loads whose lanes are apart in memory, but which are read often enough to be rearranged."""
    if vector in body.own:
        return
    for item in body.items:
        node = item.node
        if node is None or item.steps is None or vector not in item.ranges:
            continue
        own = [axis for axis in body.own if axis in item.ranges]
        if item.parts:
            if panel_bytes(own, lanes, item) <= target.row_room:
                yield node
            continue
        if stays_in_order(item, vector) or node.op is not Ops.LOAD:
            continue
        reuse = body.reuse(item)
        fixed = all([axis.src[0].op is Ops.CONST for axis in own])
        if fixed and reuse >= LEAST_REUSE and panel_bytes(own, lanes, item) <= target.scratch_bytes:
            yield node


def _is_packed(body: Body, item: Item, plain: Choice, target: Target) -> bool:
    """Whether a panel of what is read in order is better packed, if it is large."""
    vector = plain.vector
    if item.node is None or item.node.op is not Ops.LOAD or vector in body.own:
        return False
    if vector not in item.ranges or item.masked or overlaps(body, item):
        return False
    panel = panel_bytes(list(body.own), plain.lanes, item)
    return body.reuse(item) >= PACKED_REUSE and panel > 2 * target.l1


def overlaps(body: Body, item: Item) -> bool:
    """Whether a reduction reads neighbouring windows: packed, an element would be there often."""
    steps = [(item.steps or {}).get(axis, 0) for axis in body.own]
    return any([step is not None and 0 < abs(step) < CHOICES for step in steps])


def panel_bytes(own: list[UOp], width: int, item: Item) -> int:
    """Scratch that a panel of `width` columns takes; halves are staged as float32."""
    return volume(own) * width * max(item.dtype.itemsize, dtypes.float32.itemsize)
