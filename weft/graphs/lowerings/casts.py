"""Casts, also to the types of less than a byte that a wider dtype holds.

In: Tensors and types. Out: Tensors. A family of the table of lowerings; `quantised` uses it too.
Invariant: a value that was cast to a type is one that the type has, rounded to the nearest, to even
if two are as near.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from weft.dtype import dtypes
from weft.graphs.table import Call, Either, Host, is_symbolic, lowers, refuse
from weft.graphs.types import NARROW, OnnxDataType, data_type
from weft.tensor import Tensor

T = OnnxDataType
# greatest finite value of each, and what is beyond it when casts do not saturate
_FP8 = {
    T.FLOAT8E4M3FN: (448.0, 464.0, math.nan),
    T.FLOAT8E4M3FNUZ: (240.0, 248.0, math.nan),
    T.FLOAT8E5M2: (57344.0, 61440.0, math.inf),
    T.FLOAT8E5M2FNUZ: (57344.0, 61440.0, math.nan),
}
RANGES = {T.UINT4: (0, 15), T.INT4: (-8, 7), T.UINT2: (0, 3), T.INT2: (-2, 1)}


def to_kind(x: Tensor, kind: OnnxDataType, saturate: bool = True, round_mode: str = "up") -> Tensor:
    """A Tensor whose values are those of a type of ONNX."""
    if kind in _FP8:
        return _to_fp8(x, kind, saturate)
    if kind in RANGES:
        return _to_bits(x, kind)
    if kind is T.FLOAT4E2M1:
        return to_float4(x.cast(dtypes.float32))
    if kind is T.FLOAT8E8M0:
        return to_power(x.cast(dtypes.float32), round_mode, saturate)
    if kind is T.BOOL:
        return x.ne(0)
    return x.cast(kind.to_dtype())


def _to_fp8(x: Tensor, kind: OnnxDataType, saturate: bool) -> Tensor:
    dtype = kind.to_dtype()
    if x.dtype is dtype:
        return x
    # doubles are rounded once: every step to float32 would be a second rounding
    wide = x if dtypes.is_float(x.dtype) else x.cast(dtypes.float32)
    most, bound, beyond = _FP8[kind]
    inside = wide.clip(-most, most).cast(dtype)
    inside = wide.isnan().where(Tensor.full((), math.nan, dtype=dtypes.float32).cast(dtype), inside)
    if saturate:
        return inside
    # what rounds to more than the greatest value; halfway goes to the even one, which is beyond
    # but for E4M3FN, whose greatest value is even
    over = wide.abs() > bound if kind is T.FLOAT8E4M3FN else wide.abs() >= bound
    past = Tensor.full((), beyond, dtype=wide.dtype)
    past = past.expand(wide.shape).copysign(wide) if math.isinf(beyond) else past
    return over.where(past.cast(dtype), inside)


def _to_bits(x: Tensor, kind: OnnxDataType) -> Tensor:
    """Integers of a few bits: what does not fit loses its high bits."""
    low, high = RANGES[kind]
    dtype = kind.to_dtype()
    if x.dtype is dtypes.bool:
        return x.cast(dtype)
    span = high - low + 1
    wrapped = x.cast(dtypes.int64) & (span - 1)
    return (wrapped > high).where(wrapped - span, wrapped).cast(dtype)


def to_float4(x: Tensor) -> Tensor:
    """The nearest of 0, 0.5, 1, 1.5, 2, 3, 4, 6, with a sign; what is not a number becomes -0."""
    size = x.abs().minimum(6.0)
    # steps of 0.5 below 2, of 1 below 4, of 2 above
    step = (size < 2).where(0.5, (size < 4).where(1.0, 2.0))
    rounded = (size / step).round() * step
    return x.isnan().where(-0.0, rounded.copysign(x))


def to_power(x: Tensor, round_mode: str = "up", saturate: bool = True) -> Tensor:
    """A power of two from 2**-127 to 2**127; negative numbers, 0 aside, have none."""
    bits = x.bitcast(dtypes.uint32)
    exponent = (bits >> 23) & 0xFF
    mantissa = bits & 0x7FFFFF
    if round_mode == "up":
        more = ((mantissa > 0) & (exponent > 0)) | (mantissa > 0x400000)
    elif round_mode == "nearest":
        more = ((mantissa >= 0x400000) & (exponent > 0)) | (mantissa > 0x400000)
    elif round_mode == "down":
        more = mantissa < 0
    else:
        raise refuse(f"round_mode is up, down or nearest, found {round_mode!r}")
    special = exponent.eq(255)
    found = exponent + more.cast(dtypes.uint32)
    found = (found > 254).where(254 if saturate else 255, found)
    powers = (found.cast(dtypes.int32) << 23).bitcast(dtypes.float32)
    powers = found.eq(0).where(2.0**-127, found.eq(255).where(math.nan, powers))
    nothing = x.isnan() | (special & x.isnan())
    infinite = x.isinf()
    powers = infinite.where(2.0**127 if saturate else math.nan, powers)
    return nothing.where(math.nan, powers)


# ------------------------------------------------------------ the operators
def _cast_strings(x: Host, kind: OnnxDataType, call: Call) -> Tensor | Host:
    if kind is T.STRING:
        return x
    if kind in (T.FLOAT, T.DOUBLE, T.FLOAT16, T.BFLOAT16, *_FP8):
        numbers = numpy.array([float(text) for text in x.reshape(-1)], dtype=numpy.float64)
    else:
        numbers = numpy.array([int(text) for text in x.reshape(-1)], dtype=numpy.int64)
    return to_kind(call.tensor(numbers.reshape(x.shape)), kind)


def _to_strings(x: Either, call: Call) -> Host:
    array = call.fetch(x)
    texts = numpy.empty(array.shape, dtype=object)
    for place, value in numpy.ndenumerate(array):
        texts[place] = str(value)
    return texts


def converted(
    x: Either, kind: OnnxDataType, call: Call, saturate: bool = True, round_mode: str = "up"
) -> Tensor | Host:
    """A value as another type, strings too."""
    if is_symbolic(x):
        # a size is a size in any type of integers
        return x if kind in (T.INT64, T.INT32) else to_kind(call.tensor(x), kind)
    if isinstance(x, numpy.ndarray) and x.dtype == object:
        return _cast_strings(x, kind, call)
    if kind is T.STRING:
        return _to_strings(x, call)
    if kind in NARROW:
        call.declare(0, kind)
        if call.type_of(0) is kind:
            return x
    elif isinstance(x, numpy.ndarray) and kind in _PLAIN:
        return _cast_array(x, kind)
    return to_kind(call.tensor(x), kind, saturate, round_mode)


_PLAIN = {
    T.FLOAT: "float32",
    T.UINT8: "uint8",
    T.INT8: "int8",
    T.UINT16: "uint16",
    T.INT16: "int16",
    T.INT32: "int32",
    T.INT64: "int64",
    T.BOOL: "bool",
    T.DOUBLE: "float64",
    T.UINT32: "uint32",
    T.UINT64: "uint64",
}


def _cast_array(x: Host, kind: OnnxDataType) -> Host:
    if x.dtype.kind == "f" and kind not in (T.FLOAT, T.DOUBLE, T.BOOL):
        with numpy.errstate(invalid="ignore"):
            found = numpy.nan_to_num(numpy.trunc(x.astype(numpy.float64)), nan=0.0)
            limits = numpy.iinfo(_PLAIN[kind])
            return numpy.clip(found, float(limits.min), float(limits.max)).astype(_PLAIN[kind])
    with numpy.errstate(over="ignore"):
        return x.astype(_PLAIN[kind])


@lowers("Cast")
def cast_by_name(x: Either, *, to: Any, call: Call) -> Tensor | Host:
    number = OnnxDataType[to].value if to in OnnxDataType.__members__ else to
    return converted(x, data_type(int(number), "to"), call)


@lowers("Cast", since=6)
def cast(
    x: Either, *, to: int, saturate: int = 1, round_mode: str = "up", call: Call
) -> Tensor | Host:
    return converted(x, data_type(to, "to"), call, bool(saturate), round_mode)


@lowers("CastLike", since=15)
def cast_like(
    x: Either, other: Either, *, saturate: int = 1, round_mode: str = "up", call: Call
) -> Tensor | Host:
    kind = call.type_of(1)
    if kind is None:
        raise refuse("the second input is no tensor")
    return converted(x, kind, call, bool(saturate), round_mode)


@lowers("BitCast", since=26)
def bit_cast(x: Tensor, *, to: int) -> Tensor:
    return x.bitcast(data_type(to, "to").to_dtype())
