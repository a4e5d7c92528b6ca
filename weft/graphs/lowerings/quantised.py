"""Quantised operators: scales, zero points, and integer products.

In: Tensors of few bits, their scales and zero points. Out: Tensors. A family of the table.
Invariant: sums of products of integers are exact (int32); a value is rounded once, to even, and
limited to the range of its type.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import DType, dtypes
from weft.graphs.lowerings.casts import RANGES, to_kind
from weft.graphs.lowerings.conv import convolve
from weft.graphs.table import Call, axis_of, lowers, refuse
from weft.graphs.types import NARROW, OnnxDataType, data_type
from weft.tensor import Tensor

T = OnnxDataType


def spread(value: Tensor, x: Tensor, axis: int, block: int) -> Tensor:
    """A scale or zero point in the shape of what it belongs to: one for all, one for each place of
    an axis, or one for each block of an axis."""
    if value.numel() == 1:
        return value.reshape(())
    if value.ndim == 1 and not block:
        place = axis_of(axis, x.ndim)
        return value.reshape(tuple(-1 if i == place else 1 for i in range(x.ndim)))
    place = axis_of(axis, x.ndim)
    if value.ndim != x.ndim:
        raise refuse(f"a scale of shape {value.shape} for {x.shape}")
    size = block or -(-x.shape[place] // value.shape[place])
    wide = value.repeat_interleave(size, dim=place)
    return wide.shrink([None if i != place else (0, x.shape[place]) for i in range(x.ndim)])


def limits(kind: OnnxDataType) -> tuple[int, int]:
    """The least and the greatest integer of a type."""
    dtype = kind.to_dtype()
    return RANGES.get(kind, (int(dtype.min), int(dtype.max)))


def quantise(scaled: Tensor, zero: Tensor | None, kind: OnnxDataType) -> Tensor:
    """A float that is divided by its scale already, rounded, moved and limited."""
    low, high = limits(kind)
    rounded = scaled.round()
    moved = rounded if zero is None else rounded + zero.cast(rounded.dtype)
    return moved.clip(low, high).cast(kind.to_dtype())


@lowers("QuantizeLinear", since=10)
def quantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
    precision: int = 0,
    saturate: int = 1,
    call: Call,
) -> Tensor:
    kind = call.type_of(2) or T.UINT8
    if zero is None and output_dtype:
        kind = data_type(output_dtype, "output_dtype")
    wide = data_type(precision, "precision").to_dtype() if precision else scale.dtype
    if not dtypes.is_float(wide):
        wide = dtypes.float32
    factor = spread(scale, x, axis, block_size).cast(wide)
    scaled = x.cast(wide) / factor
    offset = None if zero is None else spread(zero, x, axis, block_size)
    if kind in NARROW:
        call.declare(0, kind)
    if kind in RANGES or dtypes.is_int(kind.to_dtype()):
        return quantise(scaled, offset, kind)
    moved = scaled if offset is None else scaled + offset.cast(wide)
    return to_kind(moved, kind, bool(saturate))


@lowers("DequantizeLinear", since=10)
def dequantize_linear(
    x: Tensor,
    scale: Tensor,
    zero: Tensor | None = None,
    *,
    axis: int = 1,
    block_size: int = 0,
    output_dtype: int = 0,
) -> Tensor:
    result = data_type(output_dtype, "output_dtype").to_dtype() if output_dtype else scale.dtype
    return dequantise(x, scale, zero, axis, block_size, result)


def dequantise(
    x: Tensor, scale: Tensor, zero: Tensor | None, axis: int, block: int, result: DType
) -> Tensor:
    """(x - zero) * scale, the difference of integers without overflow."""
    if dtypes.is_int(x.dtype):
        value = x.cast(dtypes.int32) if x.dtype.itemsize < 4 else x
        if zero is not None:
            value = value - spread(zero, x, axis, block).cast(value.dtype)
        value = value.cast(scale.dtype)
    else:
        value = x.cast(scale.dtype)
        if zero is not None:
            value = value - spread(zero, x, axis, block).cast(scale.dtype)
    return (value * spread(scale, x, axis, block)).cast(result)


@lowers("DynamicQuantizeLinear", since=11)
def dynamic_quantize_linear(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    least, most = x.min().minimum(0), x.max().maximum(0)
    scale = (most - least) / 255.0
    safe = scale.eq(0).where(1, scale)
    zero = (-(least / safe)).clip(0, 255).round().cast(dtypes.uint8)
    scaled = x / safe
    return quantise(scaled, zero, T.UINT8), scale, zero


# ------------------------------------------------------------ products of integers
def centred(x: Tensor, zero: Tensor | None, axis: int | None) -> Tensor:
    """Integers less their zero point, as int32."""
    wide = x.cast(dtypes.int32)
    if zero is None:
        return wide
    moved = zero.cast(dtypes.int32)
    if moved.ndim == 1 and moved.shape[0] > 1 and axis is not None:
        moved = moved.reshape(tuple(-1 if i == axis % x.ndim else 1 for i in range(x.ndim)))
    elif moved.ndim <= 1:
        moved = moved.reshape(())
    return wide - moved


def integer_matmul(a: Tensor, b: Tensor, a_zero: Tensor | None, b_zero: Tensor | None) -> Tensor:
    """The exact product of two matrices of small integers."""
    left = centred(a, a_zero, -2 if a.ndim > 1 else None)
    return left.matmul(centred(b, b_zero, -1), dtype=dtypes.int32)


@lowers("MatMulInteger", since=10)
def matmul_integer(
    a: Tensor, b: Tensor, a_zero: Tensor | None = None, b_zero: Tensor | None = None
) -> Tensor:
    return integer_matmul(a, b, a_zero, b_zero)


@lowers("QLinearMatMul", since=10)
def qlinear_matmul(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    *,
    call: Call,
) -> Tensor:
    total = integer_matmul(a, b, a_zero, b_zero).cast(dtypes.float32)
    left = _column(a_scale, a) if a_scale.ndim == 1 and a_scale.shape[0] > 1 else a_scale
    factor = left.reshape(()) if left.ndim <= 1 and left.numel() == 1 else left
    other = b_scale.reshape(()) if b_scale.numel() == 1 else b_scale
    wide = dtypes.float32
    scaled = total * (factor.cast(wide) * other.cast(wide) / y_scale.cast(wide).reshape(()))
    return quantise(scaled, y_zero.reshape(()), call.type_of(7) or T.UINT8)


def _column(value: Tensor, x: Tensor) -> Tensor:
    return value.reshape((-1, 1)) if x.ndim > 1 else value


@lowers("ConvInteger", since=10)
def conv_integer(
    x: Tensor,
    weight: Tensor,
    x_zero: Tensor | None = None,
    w_zero: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    return convolve(
        centred(x, x_zero, None),
        centred(weight, w_zero, 0),
        None,
        auto_pad,
        dilations,
        group,
        kernel_shape,
        pads,
        strides,
        dtypes.int32,
    )


@lowers("QLinearConv", since=10)
def qlinear_conv(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    weight: Tensor,
    w_scale: Tensor,
    w_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
    call: Call,
) -> Tensor:
    total = convolve(
        centred(x, x_zero, None),
        centred(weight, w_zero, 0),
        None,
        auto_pad,
        dilations,
        group,
        kernel_shape,
        pads,
        strides,
        dtypes.int32,
    )
    rank = x.ndim - 2
    if bias is not None:
        total = total + bias.reshape((1, -1, *[1] * rank))
    per_channel = w_scale.reshape((1, -1, *[1] * rank)) if w_scale.numel() > 1 else w_scale
    per_channel = per_channel if w_scale.numel() > 1 else w_scale.reshape(())
    factor: Any = x_scale.reshape(()) * per_channel / y_scale.reshape(())
    return quantise(total.cast(dtypes.float32) * factor, y_zero.reshape(()), _kind(call, 7))


def _kind(call: Call, number: int) -> OnnxDataType:
    return call.type_of(number) or T.UINT8
