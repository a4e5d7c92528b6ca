"""Columns: the copies of a value along one axis that is written out, as lanes of a few vectors.

In: the places or operands of such copies. Out: the vectors, or None where the copies are better
made one by one. Sits beside shuffle, between lanes and expand.
Invariant: a copy is the same number either way; vectors only need fewer instructions for all.

A tile has some rows, and its results are scaled by something for each row, such as a bias or the
variance of a feature: 14 rows are then three loads and three square roots instead of 14 of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.lanes import Place
from weft.codegen.shuffle import terms_of
from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# the least copies that are worth a vector, and the sizes of vectors
LEAST_COPIES = 4
SIZES = (16, 8, 4, 2, 1)
# other floats are computed in one of these
_DTYPES = frozenset({dtypes.float32, dtypes.float64})

Column = list[UOp]


def load_column(node: UOp, places: Sequence[Place]) -> Column | None:
    """Copies of a load that are neighbours in memory, in order."""
    first = places[0]
    if node.dtype not in _DTYPES or len(places) < LEAST_COPIES:
        return None
    terms = None
    for number, place in enumerate(places):
        if place.memory is not first.memory or place.valid is not None:
            return None
        if not isinstance(place.at, UOp) or place.at.dtype.count > 1:
            return None
        found, offset = terms_of(place.at)
        if terms is None:
            terms, start = found, offset
        if found != terms or offset != start + number:
            return None
    column = []
    begin = 0
    while begin < len(places):
        count = next(size for size in SIZES if size <= len(places) - begin)
        at = places[begin].at
        assert isinstance(at, UOp)
        column.append(UOp(Ops.LOAD, node.dtype.vec(count), (first.memory.index(at),)))
        begin += count
    return column


def apply_column(node: UOp, operands: Sequence[Column | UOp]) -> Column | None:
    """An op on columns, and on scalars that are the same for all copies."""
    if node.op not in GroupOp.ALU or node.dtype not in _DTYPES:
        return None
    if any([source.dtype is not node.dtype for source in node.src]):
        return None
    shape = next(operand for operand in operands if isinstance(operand, list))
    column = []
    for number, vector in enumerate(shape):
        count = vector.dtype.count
        src = [x[number] if isinstance(x, list) else x.broadcast(count) for x in operands]
        column.append(UOp(node.op, node.dtype.vec(count), tuple(src), node.arg, node.tag))
    return column


def copies_of(column: Column) -> list[UOp]:
    """The copies, each a lane."""
    return [
        vector if vector.dtype.count == 1 else vector.gep(lane)
        for vector in column
        for lane in range(vector.dtype.count)
    ]
