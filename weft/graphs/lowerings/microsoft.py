"""Operators of com.microsoft that exported and optimised models use.

In: Tensors. Out: Tensors. A family of the table; its parts are in `microsoft_attention` and
`microsoft_quantised`.
Invariant: the meaning is that of ONNX Runtime's documentation of contributed operators.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import computing_dtype, dtypes
from weft.graphs.lowerings import microsoft_attention, microsoft_quantised
from weft.graphs.lowerings.conv import convolve
from weft.graphs.lowerings.elementwise import gelu
from weft.graphs.lowerings.linalg import gemm, matmul
from weft.graphs.lowerings.movement import gather_nd, pad, range_of, trilu, unique
from weft.graphs.lowerings.norm import layer_norm_parts
from weft.graphs.table import Call, Host, lowers, one_of, refuse
from weft.graphs.types import Domain
from weft.tensor import Tensor

_DOMAIN = Domain.MICROSOFT
PARTS = (microsoft_attention, microsoft_quantised)

lowers("Pad", domain=_DOMAIN)(pad)
lowers("Range", domain=_DOMAIN)(range_of)
lowers("Trilu", domain=_DOMAIN)(trilu)
lowers("Unique", domain=_DOMAIN)(unique)
lowers("GatherND", domain=_DOMAIN)(gather_nd)
lowers("MatMul", domain=_DOMAIN)(matmul)
lowers("Gelu", domain=_DOMAIN)(gelu)


# ------------------------------------------------------------ activations
@lowers("FastGelu", domain=_DOMAIN)
def fast_gelu(x: Tensor, bias: Tensor | None = None) -> Tensor:
    return (x if bias is None else x + bias).gelu("tanh")


@lowers("BiasGelu", domain=_DOMAIN)
def bias_gelu(x: Tensor, bias: Tensor) -> Tensor:
    return (x + bias).gelu("none")


@lowers("QuickGelu", domain=_DOMAIN)
def quick_gelu(x: Tensor, *, alpha: float = 1.702) -> Tensor:
    return x * (x * alpha).sigmoid()


@lowers("BiasSplitGelu", domain=_DOMAIN)
def bias_split_gelu(x: Tensor, bias: Tensor) -> Tensor:
    left, right = (x + bias).chunk(2, dim=-1)
    return left * right.gelu("none")


@lowers("BiasAdd", domain=_DOMAIN)
def bias_add(x: Tensor, bias: Tensor, skip: Tensor) -> Tensor:
    return x + bias + skip


@lowers("BiasSoftmax", domain=_DOMAIN)
def bias_softmax(x: Tensor, bias: Tensor, *, axis: int = 1, is_inner_broadcast: int = 1) -> Tensor:
    total = x + bias
    place = axis % x.ndim
    rows, columns = math.prod(x.shape[:place]), math.prod(x.shape[place:])
    return total.reshape((rows, columns)).softmax(-1).reshape(x.shape)


# ------------------------------------------------------------ norms
@lowers("LayerNormalization", domain=_DOMAIN)
def layer_norm(
    x: Tensor,
    scale: Tensor,
    bias: Tensor | None = None,
    *,
    axis: int = -1,
    epsilon: float = 1e-5,
    stash_type: int = 1,
) -> tuple[Tensor, Tensor, Tensor]:
    return layer_norm_parts(x, scale, bias, axis, epsilon, computing_dtype(x.dtype))


def rms(x: Tensor, scale: Tensor, axis: int, epsilon: float) -> tuple[Tensor, Tensor]:
    """Divided by the root of the mean square; also what it is multiplied with."""
    wide = x.cast(computing_dtype(x.dtype))
    axes = tuple(range(axis % x.ndim, x.ndim))
    inverse = (wide.square().mean(axes, keepdim=True) + epsilon).rsqrt()
    return (wide * inverse * scale.cast(wide.dtype)).cast(x.dtype), inverse


@lowers("SimplifiedLayerNormalization", domain=_DOMAIN)
@lowers("SimplifiedLayerNormalization")
def simplified_layer_norm(
    x: Tensor, scale: Tensor, *, axis: int = -1, epsilon: float = 1e-5, stash_type: int = 1
) -> tuple[Tensor, Tensor]:
    return rms(x, scale, axis, epsilon)


@lowers("SkipLayerNormalization", domain=_DOMAIN)
def skip_layer_norm(
    x: Tensor,
    skip: Tensor,
    gamma: Tensor,
    beta: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    total = x + skip if bias is None else x + skip + bias
    found, mean, inverse = layer_norm_parts(
        total, gamma, beta, -1, epsilon, computing_dtype(x.dtype)
    )
    return found, mean, inverse, total


@lowers("SkipSimplifiedLayerNormalization", domain=_DOMAIN)
def skip_simplified_layer_norm(
    x: Tensor, skip: Tensor, gamma: Tensor, bias: Tensor | None = None, *, epsilon: float = 1e-12
) -> tuple[Tensor, Any, Tensor, Tensor]:
    total = x + skip if bias is None else x + skip + bias
    found, inverse = rms(total, gamma, -1, epsilon)
    return found, inverse, inverse, total


@lowers("EmbedLayerNormalization", domain=_DOMAIN)
def embed_layer_norm(
    input_ids: Tensor,
    segment_ids: Tensor | None,
    words: Tensor,
    positions: Tensor,
    segments: Tensor | None,
    gamma: Tensor,
    beta: Tensor,
    mask: Tensor | None = None,
    position_ids: Tensor | None = None,
    *,
    epsilon: float = 1e-12,
    mask_index_type: int = 0,
) -> tuple[Tensor, Tensor, Tensor]:
    length = input_ids.shape[1]
    places = positions[:length] if position_ids is None else positions[position_ids]
    total = words[input_ids] + places
    if segment_ids is not None and segments is not None:
        total = total + segments[segment_ids]
    found = layer_norm_parts(total, gamma, beta, -1, epsilon, computing_dtype(words.dtype))[0]
    counts = Tensor.zeros(input_ids.shape[0], dtype=dtypes.int32)
    if mask is not None:
        counts = mask.ne(0).sum(1).cast(dtypes.int32)
    return found, counts, total


@lowers("GroupNorm", domain=_DOMAIN)
def group_norm(
    x: Tensor,
    gamma: Tensor,
    beta: Tensor,
    *,
    activation: int,
    channels_last: int = 1,
    epsilon: float = 1e-5,
    groups: int,
) -> Tensor:
    moved = x.permute((0, x.ndim - 1, *range(1, x.ndim - 1))) if channels_last else x
    wide = moved.cast(dtypes.float32)
    inner = wide.reshape((moved.shape[0], groups, -1)).layernorm(-1, epsilon).reshape(moved.shape)
    shape = (1, -1, *[1] * (x.ndim - 2))
    found = inner * gamma.reshape(shape) + beta.reshape(shape)
    found = found.silu() if activation else found
    back = found.permute((0, *range(2, x.ndim), 1)) if channels_last else found
    return back.cast(x.dtype)


# ------------------------------------------------------------ products
def _turned(x: Tensor, inner: int, batch: int) -> Tensor:
    """With its last two axes exchanged, and before that its batch axis moved inwards."""
    if batch:
        x = x.permute((*range(1, x.ndim - 1), 0, x.ndim - 1))
    return x.transpose(-2, -1) if inner and x.ndim > 1 else x


@lowers("FusedMatMul", "TransposeMatMul", domain=_DOMAIN)
def fused_matmul(
    a: Tensor,
    b: Tensor,
    *,
    alpha: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
    transBatchA: int = 0,  # noqa: N803
    transBatchB: int = 0,  # noqa: N803
) -> Tensor:
    product = _turned(a, transA, transBatchA).matmul(_turned(b, transB, transBatchB))
    return product if alpha == 1 else (product * alpha).cast(a.dtype)


def activated(x: Tensor, name: str, parameters: list[float] | None) -> Tensor:
    """The activation that a fused operator ends in."""
    first, second = (list(parameters or []) + [None, None])[:2]
    if name in ("", "None"):
        return x
    if name == "Relu":
        return x.relu()
    if name == "Tanh":
        return x.tanh()
    if name == "Sigmoid":
        return x.sigmoid()
    if name == "LeakyRelu":
        return x.leaky_relu(0.01 if first is None else first)
    if name == "Clip":
        return x.clip(first, second)
    if name == "HardSigmoid":
        alpha, beta = 0.2 if first is None else first, 0.5 if second is None else second
        return (x * alpha + beta).clip(0, 1)
    raise refuse(f"the activation {name!r} is unknown")


@lowers("FusedGemm", domain=_DOMAIN)
def fused_gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    activation: str = "",
    activation_alpha: float | None = None,
    activation_beta: float | None = None,
    activation_gamma: float | None = None,
    alpha: float = 1.0,
    beta: float = 1.0,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Tensor:
    product: Tensor = gemm(a, b, c, alpha=alpha, beta=beta, transA=transA, transB=transB)
    given = [v for v in (activation_alpha, activation_beta) if v is not None]
    return activated(product, activation, given)


@lowers("FusedConv", domain=_DOMAIN)
def fused_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    added: Tensor | None = None,
    *,
    activation: str = "",
    activation_params: list[float] | None = None,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    found = convolve(x, weight, bias, auto_pad, dilations, group, kernel_shape, pads, strides)
    return activated(found if added is None else found + added, activation, activation_params)


@lowers("NhwcConv", domain=_DOMAIN)
def nhwc_conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    def first(t: Tensor) -> Tensor:
        return t.permute((0, t.ndim - 1, *range(1, t.ndim - 1)))

    found = convolve(
        first(x), first(weight), bias, auto_pad, dilations, group, kernel_shape, pads, strides
    )
    return found.permute((0, *range(2, x.ndim), 1))


@lowers("Inverse", domain=_DOMAIN)
def inverse(x: Tensor) -> Tensor:
    """By Gauss and Jordan, with the largest pivot of each column."""
    size = x.shape[-1]
    wide = x.cast(computing_dtype(x.dtype))
    rest = wide.cat(Tensor.eye(size, dtype=wide.dtype).expand(x.shape), dim=-1)
    rows = Tensor.arange(size)
    for step in range(size):
        column = rest[..., :, step].abs()
        best = (rows >= step).where(column, -1.0).argmax(-1, keepdim=True)
        chosen, here = rows.eq(best).unsqueeze(-1), rows.eq(step).unsqueeze(-1)
        pivot = chosen.where(rest, 0).sum(-2, keepdim=True)
        own = rest[..., step : step + 1, :]
        swapped = here.where(pivot, chosen.where(own, rest))
        scaled = pivot / pivot[..., step : step + 1]
        rest = here.where(scaled, swapped - swapped[..., step : step + 1] * scaled).contiguous()
    return rest[..., size:].cast(x.dtype)


@lowers("ExpandDims", domain=_DOMAIN)
def expand_dims(x: Tensor, axis: Host) -> Tensor:
    return x.unsqueeze(int(one_of(axis)))


@lowers("BiasDropout", domain=_DOMAIN)
def bias_dropout(
    x: Tensor,
    bias: Tensor,
    residual: Tensor | None = None,
    ratio: Host | None = None,
    training_mode: Host | None = None,
    *,
    seed: int | None = None,
    call: Call,
) -> Any:
    if one_of(training_mode, False):
        raise refuse("training_mode of a fused dropout is not lowered")
    total = x + bias if residual is None else x + bias + residual
    return (total, Tensor.ones(*x.shape, dtype=dtypes.bool))[: max(1, call.outputs)]
