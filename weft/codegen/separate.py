"""Separate: every loop gets axes of its own.

In: a kernel in which one RANGE may be closed in several places. Out: the same kernel in which
closers share a RANGE only if they run in one loop: reduces and fills of equal rank over the same
axes at the same level, and stores of one nest. Sits before optimise (which may then type each
loop by itself), and again after expand.
Invariant: nests run in the order of the SINK; within a nest every load of a buffer comes before a
store to it.
"""

from __future__ import annotations

from weft.codegen.loops import FreshAxes, ordered, own_axes, rename
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def separate(sink: UOp) -> UOp:
    """The kernel with nests and loops apart: a RANGE belongs to one loop."""
    return separate_loops(_separate_nests(sink))


# ------------------------------------------------------------ loops inside nests
def separate_loops(sink: UOp) -> UOp:
    """REDUCE(x[k] - REDUCE(x[k], k), k) -> REDUCE(x[k] - REDUCE(x[j], j), k)."""
    while True:
        order, by_rank = ordered(sink)
        clashing = _find_clashes(sink, by_rank)
        if not clashing:
            return sink
        fresh = FreshAxes(order)
        names: dict[object, dict[UOp, UOp]] = {}
        changes: dict[UOp, UOp] = {}
        for closer, key in clashing.items():
            if key not in names:
                names[key] = {axis: fresh.like(axis) for axis in own_axes(closer)}
            changes[closer] = rename(closer, names[key])
        sink = sink.substitute(changes)


def _find_clashes(sink: UOp, by_rank: dict[UOp, int]) -> dict[UOp, object]:
    """Closers that must leave an axis to another loop, with the loop each belongs to.

    Only those of the highest rank that has any: renaming copies what is inside, so the inner ones
    are looked at again afterwards.
    """
    outer_first = sorted(by_rank, key=lambda closer: -by_rank[closer])
    owners: dict[UOp, object] = {}
    clashing: dict[UOp, object] = {}
    stores = {s for s in sink.src if s.op is Ops.STORE}
    rank = -1
    for closer in outer_first:
        if clashing and by_rank[closer] != rank:
            break
        rank = by_rank[closer]
        axes = own_axes(closer)
        # stores that still share an axis are one nest: `_separate_nests` has renamed the others
        key: object = "nest" if closer in stores else (closer.ranges, axes, rank)
        if all([owners.get(axis, key) == key for axis in axes]):
            owners.update(dict.fromkeys(axes, key))
        else:
            clashing[closer] = key
    return clashing


# ------------------------------------------------------------ nests
def _separate_nests(sink: UOp) -> UOp:
    """Stores share loops if their axes nest and neither reads what the other writes elsewhere."""
    stores = [s for s in sink.src if s.op is Ops.STORE]
    if len(stores) < 2 or len(stores) != len(sink.src):
        return sink
    reads = _reads_of_written(sink, stores)
    nests: list[list[UOp]] = []
    for store in stores:
        for nest in nests:
            if all([_can_share(store, other, reads) for other in nest]):
                nest.append(store)
                break
        else:
            nests.append([store])
    if len(nests) == 1:
        return sink
    nests = _order_nests(nests, reads)
    fresh = FreshAxes(sink.toposort())
    taken: set[UOp] = set()
    result: list[UOp] = []
    for nest in nests:
        axes = dict.fromkeys([axis for store in nest for axis in own_axes(store)])
        names = {axis: fresh.like(axis) for axis in axes if axis in taken}
        taken.update(axes)
        for store in nest:
            mine = {axis: names[axis] for axis in own_axes(store) if axis in names}
            result.append(rename(store, mine) if mine else store)
    return sink.with_src(tuple(result))


def _reads_of_written(sink: UOp, stores: list[UOp]) -> dict[UOp, frozenset[UOp]]:
    """For each store, the INDEXes it loads from buffers that some store of the kernel writes."""
    written = {store.src[0].src[0] for store in stores}
    none: frozenset[UOp] = frozenset()
    reads: dict[UOp, frozenset[UOp]] = {}
    for node in sink.toposort():
        found = none
        for s in node.src:
            if reads[s] and not reads[s] <= found:
                found = found | reads[s]
        if node.op is Ops.LOAD and node.src[0].src[0] in written:
            found = found | {node.src[0]}
        reads[node] = found
    return {store: reads[store] for store in stores}


def _disturbs(writer: UOp, reader: UOp, reads: dict[UOp, frozenset[UOp]]) -> bool:
    """Whether the writer may change an element that the reader reads in another iteration."""
    memory, index = writer.src[0].src[:2]
    return any([read.src[0] is memory and read.src[1] is not index for read in reads[reader]])


def _can_share(store: UOp, other: UOp, reads: dict[UOp, frozenset[UOp]]) -> bool:
    mine, others = set(own_axes(store)), set(own_axes(other))
    if not (mine <= others or others <= mine) or bool(mine) != bool(others):
        return False
    # the shallower store would run once per thread if only the deeper one has the thread axis
    if any([axis.arg.kind is AxisType.THREAD for axis in mine ^ others]):
        return False
    return not _disturbs(store, other, reads) and not _disturbs(other, store, reads)


def _order_nests(nests: list[list[UOp]], reads: dict[UOp, frozenset[UOp]]) -> list[list[UOp]]:
    """As given, but a nest that reads a buffer runs before the one that writes it.

    The values of a kernel are functions of what its buffers held before. Where two nests write what
    the other reads, they touch different elements (two parts of one split nest), and stay as given.
    """

    written = [{store.src[0].src[0] for store in nest} for nest in nests]
    readers: dict[UOp, set[int]] = {}
    for number, nest in enumerate(nests):
        for store in nest:
            for read in reads[store]:
                readers.setdefault(read.src[0], set()).add(number)
    waits = [
        set().union(*[readers.get(memory, set()) for memory in memories]) - {number}
        for number, memories in enumerate(written)
    ]
    ordered: list[list[UOp]] = []
    left = list(range(len(nests)))
    while left:
        number = next((n for n in left if waits[n].isdisjoint(left)), left[0])
        ordered.append(nests[number])
        left.remove(number)
    return ordered
