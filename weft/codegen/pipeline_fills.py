"""Pipeline fills: shared memory holds several rounds of a loop, and is filled some rounds ahead.

In: a kernel of one thread, in which the fill of some shared memory says that it is for more than
one round (the tag of its AFTER). Out: the same kernel that fills the first rounds before the loop,
and in each round the one that is needed last, while earlier ones are computed with. Copies that the
machine makes by itself are FETCHes. Sits between bind_axes, which spreads a fill over the threads,
and add_barriers, for memory of one round.
Invariant: one barrier a round. Before it a thread waits for what it fetched for this round, so that
behind it all of that is there; and all threads are done with the round before, whose memory the
next fetches go to.

    AFTER(LOCAL, STORE(LOCAL[t], x[k, t])) in a loop over k, of depth 3
    -> before: LOCAL[t] = x[0, t]; COMMIT; LOCAL[size + t] = x[1, t]; COMMIT
       in k: WAIT(1); BARRIER; LOCAL[(k + 2) % 3 * size + t] = x[k + 2, t]; COMMIT
             reads of LOCAL[k % 3 * size + ...]

Products that read by themselves may still be read for when a round ends. Where there is room for
it, those of one round are left to go on: the next barrier settles only those before, and what is
fetched is one round less ahead.
"""

from __future__ import annotations

from math import gcd

from weft.codegen.lanes import common_factor, index_const, plus
from weft.codegen.loops import own_axes
from weft.dtype import dtypes
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def pipeline_fills(sink: UOp, target: Target) -> UOp:
    """The kernel with its deep fills ahead of their use."""
    order = sink.toposort()
    fills = [node for node in order if _is_deep(node)]
    if not fills:
        return sink
    groups: dict[UOp, list[UOp]] = {}
    plain: dict[UOp, UOp] = {}
    for fill in fills:
        loops = [axis for axis in fill.ranges if axis.arg.kind is AxisType.REDUCE]
        # what is filled before the loop is read, so there must be a first round
        if len(loops) == 1 and loops[0].src[0].vmin >= 1:
            groups.setdefault(loops[0], []).append(fill)
        else:
            plain[fill] = fill.rtag(None)
    written = {store.src[0].src[0] for store in sink.src}
    products = [node for node in order if node.op is Ops.WMMA and node.arg.in_shared]
    done: dict[UOp, UOp] = {}
    slots: dict[UOp, UOp] = {}  # of the memory that replaces a fill: where the round's part begins
    for axis, some in groups.items():
        count = sum([not _fills_of(product).isdisjoint(some) for product in products])
        for fill, (memory, start) in _Pipeline(axis, some, target, written, count).run().items():
            done[fill] = memory
            slots[fill] = start
    for node in order:
        if node in done:
            continue
        if node in plain:
            node_src = tuple([done[s] for s in node.src])
            done[node] = plain[node].with_src(node_src)
            continue
        src = tuple([done[s] for s in node.src])
        if node.op is Ops.INDEX and node.src[0] in slots:
            src = (src[0], plus(src[1], slots[node.src[0]]), *src[2:])
        done[node] = node if src == node.src else node.with_src(src)
    return done[sink]


def _is_deep(node: UOp) -> bool:
    return node.op is Ops.AFTER and isinstance(node.tag, int) and len(node.src) > 1


def _fills_of(product: UOp) -> set[UOp]:
    """The memory that a product reads by itself."""
    return {operand.src[0].src[0] for operand in product.src[:2]}


class _Pipeline:
    """The fills of one loop; `products` of each round read them by themselves."""

    def __init__(
        self, axis: UOp, fills: list[UOp], target: Target, written: set[UOp], products: int
    ) -> None:
        self.axis = axis
        self.fills = fills
        self.target = target
        self.written = written
        self.depth = min(int(fill.tag) for fill in fills)
        size = axis.src[0].simplify()
        self.rounds: UOp | int = int(size.arg) if size.op is Ops.CONST else size
        self.products = products
        # rounds whose products go on beyond the barrier: not beside loops, which move registers
        self.are_fetched = products > 0 and all(
            [self._is_fetched(store) for fill in fills for store in fill.src[1:]]
        )
        self.going_on = 1 if self.are_fetched and self.depth > 2 else 0

    def _is_fetched(self, store: UOp) -> bool:
        zeros = {axis: index_const(0) for axis in (self.axis, *own_axes(store))}
        return bool(self._fetches(*self._moved(store, zeros, index_const(0), None, None)))

    def run(self) -> dict[UOp, tuple[UOp, UOp]]:
        """For each fill, the memory that is read in its place and where its round begins."""
        ahead = self.depth - 1 - self.going_on
        if isinstance(self.rounds, int):
            ahead = min(ahead, self.rounds)
        effects: list[UOp] = []
        for number in range(ahead):
            valid = None
            if isinstance(self.rounds, UOp) and self.rounds.vmin <= number:
                valid = index_const(number) < self.rounds
            stores = self._copies(index_const(number), index_const(number), valid, {})
            effects = [UOp(Ops.COMMIT, dtypes.void, (*stores, *effects))]
        waiting = UOp(Ops.WAIT, dtypes.void, (self.axis, *effects), ahead - 1)
        if self.are_fetched:
            left = self.products * self.going_on
            waiting = UOp(Ops.SETTLE, dtypes.void, (waiting,), left)
        barrier = UOp(Ops.BARRIER, dtypes.void, (waiting,))
        fresh = {fill: fill.src[0].after(barrier) for fill in self.fills}
        effect = barrier
        if isinstance(self.rounds, UOp) or self.rounds > ahead:
            later = self.axis + ahead
            valid = later < self.rounds
            stores = self._copies(later, later % self.depth, valid, fresh)
            effect = UOp(Ops.COMMIT, dtypes.void, tuple(stores))
        else:
            # groups are counted: this one is empty
            effect = UOp(Ops.COMMIT, dtypes.void, (barrier,))
        turn = (self.axis % self.depth).simplify()
        return {
            fill: (fill.src[0].after(effect), (turn * self._size(fill)).simplify())
            for fill in self.fills
        }

    def _size(self, fill: UOp) -> int:
        """Elements of one round."""
        return int(fill.src[0].arg.size) // int(fill.tag)

    def _copies(
        self, number: UOp, slot: UOp, valid: UOp | None, fresh: dict[UOp, UOp]
    ) -> list[UOp]:
        """What fills the memory of all fills for one round."""
        found: list[UOp] = []
        for fill in self.fills:
            start = (slot * self._size(fill)).simplify()
            for store in fill.src[1:]:
                found += self._copy(store, {self.axis: number}, start, valid, fresh.get(fill))
        return found

    def _copy(
        self, store: UOp, values: dict[UOp, UOp], start: UOp, valid: UOp | None, fresh: UOp | None
    ) -> list[UOp]:
        """One store of a fill: as FETCHes, which are written out, or as the loop that it is."""
        found: list[UOp] = []
        for rounds in _combinations(own_axes(store)):
            place, value = self._moved(store, {**values, **rounds}, start, valid, fresh)
            fetches = self._fetches(place, value)
            if not fetches:
                place, value = self._moved(store, values, start, valid, fresh)
                return [place.store(value, *own_axes(store))]
            found += fetches
        return found

    def _moved(
        self, store: UOp, values: dict[UOp, UOp], start: UOp, valid: UOp | None, fresh: UOp | None
    ) -> tuple[UOp, UOp]:
        """Where a store goes and what it stores, for other values of loops."""
        place, value = store.src[:2]
        value = _only_if(value.substitute(values), valid)
        memory, at, *conditions = place.src
        at = plus(at.substitute(values), start).simplify()
        conditions = [condition.substitute(values) for condition in conditions]
        return place.with_src((memory if fresh is None else fresh, at, *conditions)), value

    def _fetches(self, place: UOp, value: UOp) -> list[UOp]:
        """The copy as the machine makes it by itself, if that is all there is to do."""
        if value.op is not Ops.LOAD or value.arg is not None or not self.target.async_copies:
            return []
        source = value.src[0]
        if source.src[0].op is not Ops.PARAM or source.src[0] in self.written:
            return []
        if any([part.dtype.count > 1 for part in (*source.src[1:], *place.src[1:])]):
            return []
        width = value.dtype.scalar().itemsize
        index = source.src[1].simplify()
        nbytes = value.dtype.count * width
        aligned = gcd(common_factor(index), common_factor(place.src[1])) * width
        sizes = [n for n in self.target.async_copies if nbytes % n == 0 and aligned % n == 0]
        if not sizes:
            return []
        count = max(sizes) // width
        found = []
        for first in range(0, value.dtype.count, count):
            pair = [
                part.with_src((part.src[0], plus(at, index_const(first)), *part.src[2:]))
                for part, at in ((place, place.src[1]), (source, index))
            ]
            found.append(UOp(Ops.FETCH, dtypes.void, tuple(pair), count))
        return found


def _combinations(axes: tuple[UOp, ...]) -> list[dict[UOp, UOp]]:
    """Values for the loops of a fill, which is written out."""
    found: list[dict[UOp, UOp]] = [{}]
    for axis in axes:
        size = int(axis.src[0].arg)
        found = [{**some, axis: index_const(i)} for some in found for i in range(size)]
    return found


def _only_if(value: UOp, valid: UOp | None) -> UOp:
    """A value that reads buffers only under a condition."""
    if valid is None:
        return value
    done: dict[UOp, UOp] = {}
    for node in value.toposort():
        src = tuple([done[s] for s in node.src])
        if node.op is Ops.INDEX and node.src[0].op is Ops.PARAM:
            condition = valid
            if len(src) > 2:
                condition = src[2] & valid.broadcast(src[2].dtype.count)
            src = (src[0], src[1], condition)
        done[node] = node if src == node.src else node.with_src(src)
    return done[value]
