"""Shuffle: lanes that stand apart in memory, reached by whole rows and exchanged in registers.

In: places of loads and values of stores whose lanes are not neighbours. Out: loads and stores of
neighbours, and GEPs from two vectors, which are one instruction each. Sits between lanes, which
asks for one vector at a time, and expand, which knows all copies of a node.
Invariant: only addresses between those of the first and the last lane are touched, so nothing is
read or written outside of what the plain accesses reach.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.lanes import Place, Ramp, Value, index_const, materialize, plus
from weft.codegen.opt.cost import FEW_APART
from weft.uop.node import UOp
from weft.uop.opset import Ops

# copies that are exchanged at a time; a load must save more than a store, which is slow apart
ROWS = (16, 8, 4, 2)
LEAST_LOADED = 4


Terms = frozenset[tuple[UOp, int]]


def pick(first: UOp, second: UOp, lanes: Sequence[int]) -> UOp:
    """A vector of these lanes of two vectors, the second's counted on from the first's."""
    return first.gep(tuple(lanes), second)


def _row(place: Place, start: UOp, dtype_of: UOp, count: int) -> UOp:
    """`count` neighbours from `start` on."""
    at = place.memory.index(start, place.valid)
    return UOp(Ops.LOAD, dtype_of.dtype.scalar().vec(count), (at,))


# ------------------------------------------------------------ a few apart
def load_apart(node: UOp, place: Place, count: int) -> UOp | None:
    """Lanes 2 to 4 elements apart: all that lies between is read, and the lanes are picked.

    x[2*lane] for 4 lanes -> (x[0 1 2 3], x[3 4 5 6]) picked at 0, 2, 5, 7
    """
    at = place.at
    if not isinstance(at, Ramp) or not 2 <= at.step <= FEW_APART or count < 4:
        return None
    if place.valid is not None and place.valid.dtype.count > 1:
        return None
    span = at.step * (count - 1) + 1
    starts = [*range(0, span - count, count), span - count]
    rows = [_row(place, plus(at.base, index_const(start)), node, count) for start in starts]
    # each lane comes from the first row that holds it; until that is met it can be anything
    owners = [
        next(i for i, start in enumerate(starts) if at.step * lane < start + count)
        for lane in range(count)
    ]
    result = rows[0]
    for number in range(1, len(rows)):
        lanes = []
        for lane, owner in enumerate(owners):
            if owner == number:
                lanes.append(count + at.step * lane - starts[number])
            elif owner == 0 and number == 1:
                lanes.append(at.step * lane)
            else:
                lanes.append(lane)
        result = pick(result, rows[number], lanes)
    return result


# ------------------------------------------------------------ squares
def exchange(vectors: list[UOp]) -> list[UOp]:
    """n vectors as columns of squares: lane b*n + i of vector j <- lane b*n + j of vector i."""
    size = len(vectors)
    count = vectors[0].dtype.count
    distance = 1
    while distance < size:
        turned = list(vectors)
        for i in range(size):
            if i & distance:
                continue
            upper, lower = vectors[i], vectors[i + distance]
            low = [k if not k & distance else count + k - distance for k in range(count)]
            high = [k + distance if not k & distance else count + k for k in range(count)]
            turned[i] = pick(upper, lower, low)
            turned[i + distance] = pick(upper, lower, high)
        vectors = turned
        distance *= 2
    return vectors


def load_square(node: UOp, places: Sequence[Place], count: int) -> list[UOp]:
    """n copies of a load, neighbours each, with `count` lanes apart -> rows of n, exchanged."""
    size, first = len(places), places[0]
    assert isinstance(first.at, Ramp)
    rows = [
        _row(first, plus(first.at.base, index_const(first.at.step * lane)), node, size)
        for lane in range(count)
    ]
    # rows i, i + n, i + 2n ... side by side
    wide = [rows[i::size] for i in range(size)]
    while len(wide[0]) > 1:
        wide = [
            [
                pick(left, right, range(2 * left.dtype.count))
                for left, right in zip(parts[::2], parts[1::2], strict=True)
            ]
            for parts in wide
        ]
    return exchange([parts[0] for parts in wide])


def store_square(
    places: Sequence[Place], values: Sequence[Value], count: int, loops: tuple[UOp, ...]
) -> list[UOp]:
    """n copies of a store, neighbours each, with `count` lanes apart -> exchanged rows of n."""
    size, first = len(places), places[0]
    assert isinstance(first.at, Ramp)
    turned = exchange([materialize(value, count).broadcast(count) for value in values])
    stores = []
    for lane in range(count):
        block = lane // size * size
        row = turned[lane % size].gep(tuple(range(block, block + size)))
        start = plus(first.at.base, index_const(first.at.step * lane))
        stores.append(first.memory.index(start, first.valid).store(row, *loops))
    return stores


# ------------------------------------------------------------ which copies are neighbours
def squares(places: Sequence[Place], count: int, least: int = 2) -> list[list[int]]:
    """Groups of 2 to 16 places that are neighbours in memory, each with lanes that are apart."""
    if count < 2 or count & (count - 1) or len(places) < least:
        return []
    by_terms: dict[tuple[UOp, UOp | None, int, Terms], dict[int, int]] = {}
    for number, place in enumerate(places):
        at = place.at
        if not isinstance(at, Ramp) or abs(at.step) < 2:
            return []
        if place.valid is not None and place.valid.dtype.count > 1:
            return []
        terms, offset = terms_of(at.base)
        by_terms.setdefault((place.memory, place.valid, at.step, terms), {})[offset] = number
    groups: list[list[int]] = []
    for (_, _, step, _), found in by_terms.items():
        run: list[int] = []
        previous: int | None = None
        for offset in sorted(found):
            if previous is not None and offset != previous + 1:
                groups += _cut(run, step, count, least)
                run = []
            run.append(found[offset])
            previous = offset
        groups += _cut(run, step, count, least)
    return groups


def _cut(run: list[int], step: int, count: int, least: int) -> list[list[int]]:
    """Neighbours in groups whose rows do not overlap."""
    groups: list[list[int]] = []
    while True:
        size = next((n for n in ROWS if n <= min(len(run), count, abs(step))), 0)
        if size < least:
            return groups
        groups.append(run[:size])
        run = run[size:]


def terms_of(index: UOp) -> tuple[Terms, int]:
    """An index as its terms, each with how often it occurs, and its constant."""
    counts: dict[UOp, int] = {}
    offset = 0
    stack = [index]
    while stack:
        node = stack.pop()
        if node.op is Ops.ADD:
            stack.extend(node.src)
        elif node.op is Ops.CONST:
            offset += node.arg
        else:
            counts[node] = counts.get(node, 0) + 1
    return frozenset(counts.items()), offset
