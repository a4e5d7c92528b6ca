"""Streams: a matrix that is reduced along its rows' order is read as it lies in memory.

In: the survey of a nest and the lanes chosen for it. Out: the actions that sweep over it, or none
where a tile in registers is as good. Sits between the tile search and the heuristic.
Invariant: memory is what such a kernel waits for, so only the order of its reads matters.

x @ W and sums of columns read W[k, n] for sums over k. With a tile in registers each row would give
a short piece, and no prefetcher follows pieces that are far apart. Swept over, many sums lie in the
first cache and a few rows are read side by side, all of them from one end to the other.
"""

from __future__ import annotations

from dataclasses import replace
from math import gcd

from weft.budgets import UNROLLED_TERMS
from weft.codegen.opt.axes import FRESH
from weft.codegen.opt.cost import Proposal, swept_cost
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.opt.survey import Body, Item, Nest, extent, volume
from weft.codegen.opt.tile import Tile, most_sums
from weft.helpers import round_up
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops


def propose_sweep(nest: Nest, tiles: dict[Body, Tile], target: Target) -> Proposal | None:
    """What makes the one reduction of a nest a sweep; nothing if it should not be one."""
    stores = nest.bodies[-1]
    vector = tiles[stores].choice.vector
    if nest.is_fill or nest.stages or len(nest.bodies) != 2 or vector is None:
        return None
    main = nest.bodies[0]
    rows = [axis for axis in nest.outputs if axis is not vector]
    if not main.is_reduction or len(main.closers) != 1 or set(main.around) != set(nest.outputs):
        return None
    if any([axis.src[0].op is not Ops.CONST for axis in (*nest.outputs, *main.own)]):
        return None
    stream = _find_stream(main, vector, target)
    if stream is None:
        return None
    # one matrix after the other
    matrices = volume([axis for axis in rows if axis in stream.ranges])
    rows = [axis for axis in rows if axis not in stream.ranges]
    if volume(rows) > UNROLLED_TERMS:
        return None
    lanes = tiles[stores].choice.lanes
    most = target.l1 // (volume(rows) * main.closers[0].dtype.itemsize)
    cores = -(-target.cores // matrices) if target.has_threads else 1
    # what is near comes in time in shorter pieces, and more than a few sums are in each other's way
    wants_pages = volume(rows) <= target.streams or stream.nbytes > target.l3
    piece = target.page_bytes // stream.dtype.itemsize if wants_pages else 0
    size = _sweep_size(extent(vector), most, piece, lanes, cores)
    if size < lanes:
        return None
    last = main.own[-1]
    assert stream.steps is not None
    if stream.steps[last] == size:
        # row after row is one piece of memory
        wanted = 1
    else:
        wanted = _side_by_side(extent(last), target)
        if not _has_long_rows(stream, vector, last, target):
            return None
    number = vector.arg.number
    names = tuple([axis.arg.number for axis in rows])
    opts: list[Opt] = []
    if size < extent(vector):
        opts.append(Opt(OptOps.SPLIT, number, size))
        number = (*number, 1)
    opts.append(Opt(OptOps.SWEEP, number, names or None))
    # of several rows of outputs, each number that they are multiplied with serves two vectors
    serves_two = volume(rows) > target.streams // 2 and 2 * wanted <= most_sums(target)
    wide = 2 * lanes if serves_two else lanes
    opts.append(Opt(OptOps.VECTOR, (*number, FRESH), gcd(wide, size)))
    opts += [Opt(OptOps.UPCAST, (*name, FRESH), 0) for name in names]
    if wanted > 1:
        opts.append(Opt(OptOps.UNROLL, last.arg.number, wanted))
    opts.append(Opt(OptOps.VECTOR, number, lanes))
    # two vectors share a number that they are multiplied with
    copies = {axis: extent(axis) for axis in rows} | {vector: wide // lanes}
    choice = replace(tiles[stores].choice, copies=copies)
    cost = swept_cost(main, choice, stream, wanted, target) + tiles[stores].cost
    return Proposal(opts, cost)


def _side_by_side(rows: int, target: Target) -> int:
    """How many rows are read at a time: two for each stream that memory feeds, or near that, so
    that they divide."""
    wanted = 2 * target.streams
    near = sorted(range(2 * wanted, 0, -1), key=lambda count: abs(count - wanted))
    return next(count for count in near if rows % count == 0)


def _find_stream(main: Body, vector: UOp, target: Target) -> Item | None:
    """The one matrix of many rows, or row of such, if it is all that is read from far away."""
    streams: list[Item] = []
    for item in main.loads:
        if item.masked:
            return None
        if vector in item.ranges:
            streams.append(item)
        elif item.nbytes > target.l2 // 2:
            return None
    if len(streams) != 1:
        return None
    stream = streams[0]
    assert stream.steps is not None
    if stream.steps.get(vector) != 1:
        return None
    if stream.steps.get(main.own[-1]) is None:
        return None
    return stream if stream.nbytes > 2 * target.l2 else None


def _has_long_rows(stream: Item, vector: UOp, last: UOp, target: Target) -> bool:
    """Whether a row, and what lies from one to the next, is long enough for a prefetcher."""
    step = stream.steps.get(last) if stream.steps is not None else None
    # prefetchers begin anew at every page; rows of half of one are still better swept over if the
    # caches do not hold the matrix
    least = target.page_bytes // 2 if stream.nbytes > target.l3 else target.page_bytes
    return step is not None and min(step, extent(vector)) * stream.dtype.itemsize >= least


def _sweep_size(outputs: int, most: int, piece: int, lanes: int, cores: int) -> int:
    """Outputs of one sweep: as many rounds for each of the cores that share a matrix, and no more
    than `most`, whose sums stay in the first cache. Two rounds even out a slow core, unless they
    are of fewer outputs than a `piece` of the matrix should have."""
    size = 0
    for least in (2 * cores if cores > 1 else 1, cores):
        rounds = round_up(max(least, -(-outputs // most)), least)
        if rounds == 1:
            # the last of several rounds may begin earlier, but one alone has to be whole vectors
            if gcd(outputs, lanes) ** 2 >= lanes:
                return outputs
            rounds = 2
        size = round_up(-(-outputs // rounds), lanes)
        if size >= piece:
            break
    return size
