"""Quantised operators of com.microsoft.

In: Tensors of few bits, their scales and zero points. Out: Tensors. Part of the family `microsoft`.
Invariant: what is computed between integers is dequantised, computed in float32 and quantised once;
products of integers are exact.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.dtype import dtypes
from weft.graphs.lowerings.quantised import (
    dequantise,
    dequantize_linear,
    dynamic_quantize_linear,
    integer_matmul,
    qlinear_conv,
    quantise,
    quantize_linear,
)
from weft.graphs.lowerings.rnn import Layer, lengths_of, run_lstm
from weft.graphs.table import Call, lowers, refuse
from weft.graphs.types import Domain, OnnxDataType
from weft.tensor import Tensor

_DOMAIN = Domain.MICROSOFT
T = OnnxDataType

lowers("QuantizeLinear", domain=_DOMAIN)(quantize_linear)
lowers("DequantizeLinear", domain=_DOMAIN)(dequantize_linear)


def real(x: Tensor, scale: Tensor, zero: Tensor | None) -> Tensor:
    """The numbers that integers stand for."""
    flat = None if zero is None else zero.reshape(())
    return dequantise(x, scale.reshape(()), flat, 0, 0, dtypes.float32)


def again(x: Tensor, scale: Tensor, zero: Tensor | None, kind: OnnxDataType | None) -> Tensor:
    """Numbers as integers of a type."""
    flat = None if zero is None else zero.reshape(())
    return quantise(x / scale.reshape(()), flat, kind or T.UINT8)


def _two(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    def lowered(
        a: Tensor,
        a_scale: Tensor,
        a_zero: Tensor | None,
        b: Tensor,
        b_scale: Tensor,
        b_zero: Tensor | None,
        c_scale: Tensor,
        c_zero: Tensor | None = None,
        *,
        call: Call,
    ) -> Tensor:
        found = function(real(a, a_scale, a_zero), real(b, b_scale, b_zero))
        return again(found, c_scale, c_zero, call.type_of(0))

    lowers(name, domain=_DOMAIN)(lowered)


_two("QLinearAdd", lambda a, b: a + b)
_two("QLinearMul", lambda a, b: a * b)


@lowers("QLinearSigmoid", domain=_DOMAIN)
def qlinear_sigmoid(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    call: Call,
) -> Tensor:
    return again(real(x, x_scale, x_zero).sigmoid(), y_scale, y_zero, call.type_of(0))


@lowers("QLinearLeakyRelu", domain=_DOMAIN)
def qlinear_leaky_relu(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 0.01,
    call: Call,
) -> Tensor:
    return again(real(x, x_scale, x_zero).leaky_relu(alpha), y_scale, y_zero, call.type_of(0))


@lowers("QLinearSoftmax", domain=_DOMAIN)
def qlinear_softmax(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor | None,
    y_scale: Tensor,
    y_zero: Tensor | None = None,
    *,
    axis: int = -1,
    opset: int = 13,
    call: Call,
) -> Tensor:
    numbers = real(x, x_scale, x_zero)
    if opset < 13:
        place = axis % x.ndim
        shape = (math.prod(x.shape[:place]), math.prod(x.shape[place:]))
        found = numbers.reshape(shape).softmax(-1).reshape(x.shape)
    else:
        found = numbers.softmax(axis)
    return again(found, y_scale, y_zero, call.type_of(0))


@lowers("QLinearGlobalAveragePool", domain=_DOMAIN)
def qlinear_global_average_pool(
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    *,
    channels_last: int = 0,
    call: Call,
) -> Tensor:
    axes = tuple(range(1, x.ndim - 1)) if channels_last else tuple(range(2, x.ndim))
    found = real(x, x_scale, x_zero).mean(axes, keepdim=True)
    return again(found, y_scale, y_zero, call.type_of(0))


@lowers("QLinearConcat", domain=_DOMAIN)
def qlinear_concat(
    y_scale: Tensor, y_zero: Tensor, *parts: Tensor, axis: int, call: Call
) -> Tensor:
    if len(parts) % 3:
        raise refuse(f"{len(parts)} inputs in groups of a tensor, a scale and a zero point")
    found = [
        again(real(*parts[i : i + 3]), y_scale, y_zero, call.type_of(1))
        for i in range(0, len(parts), 3)
    ]
    return found[0].cat(*found[1:], dim=axis) if len(found) > 1 else found[0]


@lowers("QLinearWhere", domain=_DOMAIN)
def qlinear_where(
    condition: Tensor,
    x: Tensor,
    x_scale: Tensor,
    x_zero: Tensor,
    y: Tensor,
    y_scale: Tensor,
    y_zero: Tensor,
    z_scale: Tensor,
    z_zero: Tensor,
    *,
    call: Call,
) -> Tensor:
    found = condition.where(real(x, x_scale, x_zero), real(y, y_scale, y_zero))
    return again(found, z_scale, z_zero, call.type_of(1))


@lowers("QLinearConv", domain=_DOMAIN)
def qlinear_conv_any(
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
    channels_last: int = 0,
    call: Call,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    source = x.permute((0, x.ndim - 1, *range(1, x.ndim - 1))) if channels_last else x
    found: Tensor = qlinear_conv(
        source, x_scale, x_zero, weight, w_scale, w_zero, y_scale, y_zero, bias,
        auto_pad=auto_pad, dilations=dilations, group=group, kernel_shape=kernel_shape, pads=pads,
        strides=strides, call=call,
    )  # fmt: skip
    return found.permute((0, *range(2, x.ndim), 1)) if channels_last else found


# ------------------------------------------------------------ products
@lowers("MatMulIntegerToFloat", domain=_DOMAIN)
def matmul_integer_to_float(
    a: Tensor,
    b: Tensor,
    a_scale: Tensor,
    b_scale: Tensor,
    a_zero: Tensor | None = None,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    product = integer_matmul(a, b, a_zero, b_zero).cast(a_scale.dtype)
    left = a_scale.reshape(()) if a_scale.numel() == 1 else a_scale.reshape((-1, 1))
    right = b_scale.reshape(()) if b_scale.numel() == 1 else b_scale
    total = product * (left * right)
    return total if bias is None else total + bias


@lowers("DynamicQuantizeMatMul", domain=_DOMAIN)
def dynamic_quantize_matmul(
    a: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    small, scale, zero = dynamic_quantize_linear(a)
    found: Tensor = matmul_integer_to_float(small, b, scale, b_scale, zero, b_zero, bias)
    return found


@lowers("QGemm", domain=_DOMAIN)
def qgemm(
    a: Tensor,
    a_scale: Tensor,
    a_zero: Tensor,
    b: Tensor,
    b_scale: Tensor,
    b_zero: Tensor,
    c: Tensor | None = None,
    y_scale: Tensor | None = None,
    y_zero: Tensor | None = None,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
    call: Call,
) -> Tensor:
    left = a.transpose() if transA else a
    right = b.transpose() if transB else b
    total = integer_matmul(left, right, a_zero, b_zero)
    total = total if c is None else total + c
    factor = a_scale.reshape(()) * (b_scale.reshape(()) if b_scale.numel() == 1 else b_scale)
    found = total.cast(dtypes.float32) * factor * alpha
    return found if y_scale is None else again(found, y_scale, y_zero, call.type_of(8))


def unpacked(packed: Tensor, bits: int) -> Tensor:
    """The small integers in bytes, the first in the lowest bits, along the last axis."""
    if bits == 8:
        return packed
    if bits not in (2, 4):
        raise refuse(f"integers of {bits} bits; 2, 4 and 8 are known")
    parts = [(packed >> shift) & ((1 << bits) - 1) for shift in range(0, 8, bits)]
    apart = parts[0].stack(*parts[1:], dim=-1)
    return apart.reshape((*packed.shape[:-1], packed.shape[-1] * (8 // bits)))


@lowers("MatMulNBits", domain=_DOMAIN)
def matmul_nbits(
    a: Tensor,
    b: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    g_idx: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    K: int,  # noqa: N803
    N: int,  # noqa: N803
    accuracy_level: int = 0,
    bits: int = 4,
    block_size: int = 32,
    weight_prepacked: int = 0,
) -> Tensor:
    blocks = -(-K // block_size)
    codes = unpacked(b.reshape((N, blocks, -1)), bits).cast(a.dtype)
    factors = scales.reshape((N, blocks, 1))
    if zero_points is None:
        zero: Any = float(1 << (bits - 1))
    elif zero_points.dtype is dtypes.uint8:
        rows = unpacked(zero_points.reshape((N, -1)), bits)
        zero = rows.shrink(((0, N), (0, blocks))).reshape((N, blocks, 1)).cast(a.dtype)
    else:
        zero = zero_points.reshape((N, blocks, 1)).cast(a.dtype)
    if g_idx is None:
        weights = ((codes - zero) * factors.cast(a.dtype)).reshape((N, blocks * block_size))
        weights = weights.shrink(((0, N), (0, K)))
    else:
        flat = codes.reshape((N, blocks * block_size)).shrink(((0, N), (0, K)))
        group = g_idx[:K]
        offset = zero if isinstance(zero, float) else zero.reshape((N, blocks))[:, group]
        weights = (flat - offset) * factors.reshape((N, blocks))[:, group].cast(a.dtype)
    product = a.matmul(weights.transpose())
    return product if bias is None else product + bias


@lowers("GatherBlockQuantized", domain=_DOMAIN)
def gather_block_quantized(
    data: Tensor,
    indices: Tensor,
    scales: Tensor,
    zero_points: Tensor | None = None,
    *,
    bits: int = 4,
    block_size: int = 128,
    gather_axis: int = 0,
    quantize_axis: int = 1,
    call: Call,
) -> Tensor:
    if gather_axis % data.ndim != 0 or quantize_axis % data.ndim != data.ndim - 1:
        raise refuse("rows are gathered, and their last axis is quantised")
    is_packed = data.dtype is dtypes.uint8 and call.type_of(0) is T.UINT8
    rows = data[indices]
    codes = unpacked(rows, bits) if is_packed else rows
    factors = scales[indices].repeat_interleave(block_size, dim=-1)[..., : codes.shape[-1]]
    if zero_points is None:
        middle = float(1 << (bits - 1)) if is_packed else 0.0
        return (codes.cast(scales.dtype) - middle) * factors
    zeros = zero_points[indices]
    zeros = unpacked(zeros, bits) if is_packed else zeros
    zeros = zeros.repeat_interleave(block_size, dim=-1)[..., : codes.shape[-1]]
    return (codes.cast(scales.dtype) - zeros.cast(scales.dtype)) * factors


@lowers("DynamicQuantizeLSTM", domain=_DOMAIN)
def dynamic_quantize_lstm(
    x: Tensor,
    weights: Tensor,
    recurrent: Tensor,
    bias: Tensor | None,
    lengths: Tensor | None,
    initial: Tensor | None,
    initial_cell: Tensor | None,
    peepholes: Tensor | None,
    weights_scale: Tensor,
    weights_zero: Tensor,
    recurrent_scale: Tensor,
    recurrent_zero: Tensor,
    *,
    activation_alpha: list[float] | None = None,
    activation_beta: list[float] | None = None,
    activations: list[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    call: Call,
) -> tuple[Any, ...]:
    """An LSTM whose weights are (directions, terms, gates) in bytes: what they are multiplied by is
    quantised at each product, all of it by one scale."""
    scales = {weights: (weights_scale, weights_zero), recurrent: (recurrent_scale, recurrent_zero)}

    def product(value: Tensor, kept: Tensor, number: int) -> Tensor:
        scale, zero = scales[kept]
        found, found_scale, found_zero = dynamic_quantize_linear(value)
        whole = integer_matmul(found, kept[number], found_zero, zero[number])
        return whole.cast(dtypes.float32) * (found_scale * scale[number])

    layer = Layer(
        x, weights, recurrent, bias, lengths_of(lengths), [initial, initial_cell],
        hidden_size or int(recurrent.shape[1]), direction, activations, activation_alpha,
        activation_beta, clip, 0, 4, ["Sigmoid", "Tanh", "Tanh"], product,
    )  # fmt: skip
    return run_lstm(layer, peepholes, input_forget, call)
