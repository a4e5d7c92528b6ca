"""Rows: a matrix whose rows are summed up, each read once, as memory reads it best.

In: the survey of a body with lanes along its sum, and an output axis that counts rows. Out: whether
one row is read after the other, and how many in a row where several are read side by side. Sits
between the survey and the tile search.
Invariant: memory is what such a body waits for, so only the order of its reads matters.

Row after row, a matrix is one long stream, which is what memory feeds best. A vector that takes up
the first cache is pushed out by each row, so rows of such a product share what they read of it.
Neighbours would do so from their beginning to their end, and then so many streams begin anew
somewhere else. Rows that are some apart go on into the row behind them instead:

rows 0, 1, 2, 3 side by side, then 4, 5, 6, 7 -> rows 0, 8, 16, 24, then 1, 9, 17, 25
"""

from __future__ import annotations

from weft.codegen.opt.survey import Body, Item, extent, volume
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops


def is_one_stream(body: Body, vector: UOp | None, axis: UOp | None, target: Target) -> bool:
    """Whether rows that adjoin in memory are read from far away, each of them once, and leave what
    they share in the first cache."""
    if axis is None or vector is None or body.own != (vector,):
        return False
    for item in body.items:
        if item.steps is None or axis not in item.ranges:
            continue
        row = extent(vector) * item.dtype.itemsize
        if body.reuse(item) > target.streams or _shared(body, axis) + row >= target.l1:
            # arithmetic takes longer than reading, or the rows push out what they share
            return False
        # bytes take longer to widen than to read: rows of them share the other operand
        if item.dtype.itemsize > 1 and _is_stream(body, item, axis, target):
            return True
    return False


def rows_of_stream(body: Body, vector: UOp | None, axis: UOp, copies: int, target: Target) -> int:
    """How many rows each of some streams reads in a row, where as many copies of the axis are read
    side by side. One: the copies are neighbours."""
    if vector is None or body.own != (vector,) or axis.src[0].op is not Ops.CONST:
        return 1
    streams = [item for item in body.loads if axis in item.ranges and vector in item.ranges]
    if len(streams) != 1 or not _is_stream(body, streams[0], axis, target):
        return 1
    rows = target.stream_bytes // (extent(vector) * streams[0].dtype.itemsize)
    rounds = volume([other for other in body.around if other in streams[0].ranges])
    rows = max(1, min(rows, rounds // (2 * copies * target.core_rounds * target.cores)))
    # the last round overlaps the one before: as little as possible
    return min(range(rows, rows // 2, -1), key=lambda n: -extent(axis) % (copies * n))


def _is_stream(body: Body, item: Item, axis: UOp, target: Target) -> bool:
    """Whether it was mostly pushed out of the caches since the last launch, and what is read for a
    round of the axis ends where the next round begins."""
    steps = item.steps or {}
    step = steps.get(axis) or 0
    filled = [other for other in body.axes if 0 < (steps.get(other) or 0) < step]
    return item.nbytes > target.l2 // 2 and step == volume(filled)


def _shared(body: Body, axis: UOp) -> int:
    """Bytes that every round of the axis reads again."""
    again = [
        item
        for item in body.items
        if item.steps is not None and axis not in item.ranges and not item.is_store()
    ]
    return sum([item.nbytes for item in again])
