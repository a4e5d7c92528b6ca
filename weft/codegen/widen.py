"""Widen: inside a kernel the half types compute in float32, and every result is rounded.

In: a kernel AST. Out: the same kernel where float16, bfloat16 and the 8-bit floats only appear at
LOAD, STORE, CAST and BITCAST. Sits before optimise, so that register and vector sizes are counted
in what is computed.
Invariant: a value of a half type is a number of that type, whether it is stored or not: what an op
gives in float32 is rounded by CAST(CAST(x, half), float32), which no rule removes. A reduction is
rounded once, at its end.
"""

from __future__ import annotations

from weft.dtype import NARROW_FLOATS, DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

# of numbers of a half type these give one of that type: there is nothing to round
_EXACT = frozenset({Ops.NEG, Ops.MAX, Ops.WHERE, Ops.TRUNC, Ops.STAGE, Ops.VECTORIZE, Ops.GEP})


def widen(sink: UOp) -> UOp:
    """half + half -> round(float32 + float32); a half STORE gets its value through a CAST."""
    order = sink.toposort()
    if not any(u.dtype in NARROW_FLOATS for u in order):
        return sink
    wide: dict[UOp, UOp] = {}
    for node in order:
        wide[node] = _widen_node(node, wide)
    return wide[sink]


def _widen_node(node: UOp, wide: dict[UOp, UOp]) -> UOp:
    src = tuple([wide[s] for s in node.src])
    if node.op is Ops.PARAM or node.op is Ops.INDEX:
        return node.with_src(src) if node.op is Ops.PARAM else _index(node, src)
    if node.op is Ops.STORE:
        return node.with_src((src[0], _narrow(src[1], src[0].dtype), *src[2:]))
    if node.op is Ops.BITCAST:
        source = _narrow(src[0], node.src[0].dtype)
        return _float32(source.bitcast(node.dtype))
    if node.dtype not in NARROW_FLOATS:
        if node.op is Ops.CAST and src[0].dtype is node.dtype:
            return src[0]
        return node.with_src(src)
    if node.op is Ops.CAST:
        return _float32(src[0].cast(node.dtype))
    if node.op is Ops.CONST:
        # a constant of a half type is made as a number of that type
        return UOp.const(dtypes.float32, float(node.arg))
    if node.op is Ops.LOAD:
        # memory that was widened itself (a STAGE) already gives float32
        return _float32(src[0].load())
    result = node.replace(dtype=dtypes.float32, src=src)
    folds = node.arg if node.op is Ops.REDUCE else node.op
    return result if folds in _EXACT else result.cast(node.dtype).cast(dtypes.float32)


def _index(node: UOp, src: tuple[UOp, ...]) -> UOp:
    return UOp(Ops.INDEX, src[0].dtype, src)


def _float32(value: UOp) -> UOp:
    return value.cast(dtypes.float32) if value.dtype in NARROW_FLOATS else value


def _narrow(value: UOp, dtype: DType) -> UOp:
    """A widened value as a half again: the LOAD or BITCAST it came from, or rounded by a CAST."""
    if dtype not in NARROW_FLOATS or value.dtype is dtype:
        return value
    if value.op is Ops.CAST and value.src[0].dtype is dtype:
        return value.src[0]
    return value.cast(dtype)
