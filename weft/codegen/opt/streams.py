"""Streams: a matrix that is reduced along its rows' order is read as it lies in memory.

In: the survey of a nest and the lanes chosen for it. Out: the actions that sweep over it, or none
where a tile in registers is as good. Sits between the tile search and the heuristic.
Invariant: memory is what such a kernel waits for, so only the order of its reads matters.

x @ W and sums of columns read W[k, n] for sums over k. With a tile in registers each row would give
a short piece, and no prefetcher follows pieces that are far apart. Swept over, many sums lie in the
first cache and a few rows are read side by side, all of them from one end to the other.
"""

from __future__ import annotations

from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.opt.survey import Body, Item, Nest, extent, volume
from weft.codegen.opt.tile import Tile
from weft.helpers import round_up
from weft.renderer.base import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops

# rows of outputs that share what is read; with more of them arithmetic is what takes time
MOST_ROWS = 16
# bytes of a piece below which sweeping pays, and least bytes of one sweep
PIECE_BYTES, SWEEP_BYTES = 8 << 10, 1 << 10
# rows of the matrix that are read side by side
SIDE_BY_SIDE = 8
FEW_ROWS = 4


def sweep_opts(nest: Nest, tiles: dict[Body, Tile], target: Target) -> list[Opt]:
    """What makes the one reduction of a nest a sweep; nothing if it should not be one."""
    stores = nest.bodies[-1]
    vector = tiles[stores].choice.vector
    if nest.is_fill or nest.stages or len(nest.bodies) != 2 or vector is None:
        return []
    main = nest.bodies[0]
    rows = [axis for axis in nest.outputs if axis is not vector]
    if not main.is_reduction or len(main.closers) != 1 or set(main.around) != set(nest.outputs):
        return []
    if any([axis.src[0].op is not Ops.CONST for axis in (*nest.outputs, *main.own)]):
        return []
    if volume(rows) > MOST_ROWS or not _is_streamed(main, vector, rows, target):
        return []
    last = main.own[-1]
    wanted = _side_by_side(extent(last))
    if wanted < SIDE_BY_SIDE // 4 and extent(last) >= SIDE_BY_SIDE:
        # sums that go to memory and back with every row take longer than short pieces
        return []
    lanes = tiles[stores].choice.lanes
    size = _sweep_size(vector, volume(rows), main, lanes, target)
    if size < lanes:
        return []
    number = vector.arg.number
    names = tuple([axis.arg.number for axis in rows])
    opts: list[Opt] = []
    if size < extent(vector):
        opts.append(Opt(OptOps.SPLIT, number, size))
        number = (*number, 1)
    opts.append(Opt(OptOps.SWEEP, number, names or None))
    # of many rows of outputs, each number that they are multiplied with serves two vectors
    wide = (
        2 * lanes if volume(rows) > FEW_ROWS and 2 * wanted < target.vector_registers - 4 else lanes
    )
    opts.append(Opt(OptOps.VECTOR, (*number, 3), min(wide, size)))
    opts += [Opt(OptOps.UPCAST, (*name, 3), 0) for name in names]
    if wanted > 1:
        opts.append(Opt(OptOps.UNROLL, last.arg.number, wanted))
    opts.append(Opt(OptOps.VECTOR, number, lanes))
    return opts


def _side_by_side(rows: int) -> int:
    """How many rows are read at a time: as many as wanted, or near that, so that they divide."""
    counts = range(2 * SIDE_BY_SIDE, 0, -1)
    near = sorted(counts, key=lambda count: abs(count - SIDE_BY_SIDE))
    return next(count for count in near if rows % count == 0)


def _is_streamed(main: Body, vector: UOp, rows: list[UOp], target: Target) -> bool:
    """Whether one matrix of many long rows is all that is read from far away."""
    streams: list[Item] = []
    for item in main.items:
        if item.steps is None or item.node is None or item.node.op is not Ops.LOAD:
            continue
        if item.masked:
            return False
        if vector in item.ranges:
            streams.append(item)
        elif volume(item.ranges) * item.dtype.itemsize > target.l2 // 2:
            return False
    if len(streams) != 1:
        return False
    stream = streams[0]
    assert stream.steps is not None
    if stream.steps.get(vector) != 1 or not stream.ranges.isdisjoint(rows):
        return False
    step = stream.steps.get(main.own[-1])
    size = stream.dtype.itemsize
    if step is None or step * size < PIECE_BYTES or extent(vector) * size < PIECE_BYTES:
        return False
    return volume(stream.ranges) * size > 2 * target.l2


def _sweep_size(vector: UOp, rows: int, main: Body, lanes: int, target: Target) -> int:
    """Outputs of one sweep: as many rounds for each core, sums that stay in the first cache."""
    itemsize = main.closers[0].dtype.itemsize
    least = 2 * target.cores if target.has_threads and target.cores > 1 else 1
    most = target.l1 // (rows * itemsize)
    rounds = round_up(max(least, -(-extent(vector) // most)), least)
    size = round_up(-(-extent(vector) // rounds), lanes)
    return size if size * itemsize >= SWEEP_BYTES else 0
