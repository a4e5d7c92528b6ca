"""Lower index dtype: the unbounded ints of a kernel become machine integers.

In: an expanded kernel whose ranges, variables and index arithmetic are `weakint` with known
bounds. Out: the same kernel with int32 or int64 in their place. Sits after expand and before
place, so that the casts between the two widths are ordinary nodes that find their own loop.
Invariant: no value is ever wider than the dtype it gets; a scalar takes the target's index dtype
if it fits, lanes take int32 if they fit, because twice as many of them go into a register.
"""

from __future__ import annotations

from weft.dtype import DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops


def lower_index(sink: UOp, index_dtype: DType) -> UOp:
    """weakint -> int32 or int64 by bounds (and weakfloat -> float32)."""
    lowered: dict[UOp, UOp] = {}
    for node in sink.toposort():
        if node.op in _OF_ONE_DTYPE and node.dtype.priority not in _WEAK:
            # the most by far: no source is weak
            src = tuple([lowered[s] for s in node.src])
            lowered[node] = node if src == node.src else node.with_src(src)
        else:
            lowered[node] = _lower_node(node, lowered, index_dtype)
    return lowered[sink]


# Types are told apart by priority here: lanes have that of their scalar.
_WEAKINT = dtypes.weakint.priority
_WEAKFLOAT = dtypes.weakfloat.priority
_WEAK = (_WEAKINT, _WEAKFLOAT)
# ops whose sources have their dtype, or are places and conditions
_OF_ONE_DTYPE = frozenset(
    {Ops.ADD, Ops.MUL, Ops.FDIV, Ops.NEG, Ops.SQRT, Ops.MAX, Ops.WHERE, Ops.LOAD, Ops.GEP}
    | {Ops.VECTORIZE, Ops.AND, Ops.OR}
)


def _lower_node(node: UOp, lowered: dict[UOp, UOp], index_dtype: DType) -> UOp:
    src = tuple([lowered[s] for s in node.src])
    weak = [s for s in node.src if s.dtype.priority == _WEAKINT]
    priority = node.dtype.priority
    is_weak = priority == _WEAKINT
    if priority == _WEAKFLOAT:
        return node.replace(dtype=dtypes.float32.vec(node.dtype.count), src=src)
    if not is_weak and not weak:
        return node if src == node.src else node.with_src(src)
    if node.op is Ops.CAST and not is_weak:
        return src[0] if src[0].dtype is node.dtype else node.with_src(src)
    if node.op in _PASS_ON:
        return _lower_memory(node, src)
    count = node.dtype.count
    if node.op in _CHOOSE_OWN_WIDTH:
        width = _width([node], count, index_dtype)
        if node.op is Ops.RANGE:
            # the counter is compared with the size, so the size has to fit as well
            width = _width([node, node.src[0]], count, index_dtype)
    else:
        # also the already lowered sources count: one of them may have become wider than its bounds
        wider = any([s.dtype.scalar() is dtypes.int64 for s in src])
        width = dtypes.int64 if wider else _width([node, *weak], count, index_dtype)
    if node.op is Ops.CAST:
        target = width.vec(count)
        return src[0] if src[0].dtype is target else UOp(Ops.CAST, target, src, None, node.tag)
    src = tuple(
        [
            new.cast(width) if old.dtype.priority == _WEAKINT else new
            for old, new in zip(node.src, src, strict=True)
        ]
    )
    if node.op is Ops.CONST:
        return UOp.const(width.vec(count), node.arg)
    return UOp(node.op, width.vec(count) if is_weak else node.dtype, src, node.arg, node.tag)


# ops whose sources keep the widths they have; memory and registers of weakint are int64
_PASS_ON = frozenset(
    {Ops.INDEX, Ops.LOAD, Ops.STORE, Ops.REDUCE, Ops.SINK, Ops.AFTER, Ops.LOCAL}
    | {Ops.FETCH, Ops.COMMIT, Ops.WAIT, Ops.SETTLE, Ops.SCAN, Ops.RANK, Ops.MOVE}
)
# ops whose width follows from their own bounds; sources are cast to it
_CHOOSE_OWN_WIDTH = frozenset(
    {Ops.CONST, Ops.VARIABLE, Ops.RANGE, Ops.SPECIAL, Ops.CAST, Ops.VECTORIZE, Ops.GEP, Ops.BIND}
)


def _lower_memory(node: UOp, src: tuple[UOp, ...]) -> UOp:
    if node.op is Ops.STORE and node.src[1].dtype.scalar() is dtypes.weakint:
        return node.with_src((src[0], src[1].cast(dtypes.int64), *src[2:]))
    if node.dtype.scalar() is not dtypes.weakint:
        return node.with_src(src)
    if node.op is Ops.REDUCE:
        src = (src[0].cast(dtypes.int64), *src[1:])
    return UOp(node.op, dtypes.int64.vec(node.dtype.count), src, node.arg, node.tag)


def _width(nodes: list[UOp], count: int, index_dtype: DType) -> DType:
    if count == 1 and index_dtype is dtypes.int64:
        return dtypes.int64
    fits = all([_fits(node) for node in nodes if node.dtype.scalar() is dtypes.weakint])
    return dtypes.int32 if fits else dtypes.int64


def _fits(node: UOp) -> bool:
    low, high = node.vmin, node.vmax
    return bool(low >= dtypes.int32.min and high <= dtypes.int32.max)
