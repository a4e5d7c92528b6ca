"""Attention and rotary embeddings.

In: queries, keys and values, with their masks and caches. Out: Tensors.
A family of the table of lowerings; `microsoft` uses its parts too.
Invariant: inside, everything is (batch, heads, length, width).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weft.dtype import DType, computing_dtype, dtypes
from weft.graphs.table import Call, lowers, refuse
from weft.graphs.types import data_type
from weft.tensor import Tensor


def split_heads(x: Tensor, heads: int) -> Tensor:
    """(batch, length, heads * width) to (batch, heads, length, width)."""
    if x.ndim == 4:
        return x
    if heads < 1 or x.shape[-1] % heads:
        raise refuse(f"{x.shape[-1]} features in {heads} heads")
    apart = x.reshape((*x.shape[:2], heads, x.shape[-1] // heads))
    return apart.permute((0, 2, 1, 3))


def join_heads(x: Tensor) -> Tensor:
    """The other way."""
    moved = x.permute((0, 2, 1, 3))
    return moved.reshape((*moved.shape[:2], moved.shape[2] * moved.shape[3]))


@dataclass
class Scores:
    """What attention looks at, step by step: for those who ask for one of them."""

    raw: Tensor
    masked: Tensor
    capped: Tensor
    weights: Tensor


def attend(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    scale: float | None = None,
    bias: Tensor | None = None,
    softcap: float = 0.0,
    precision: DType | None = None,
    sink: Tensor | None = None,
    cap_first: bool = False,
) -> tuple[Tensor, Scores]:
    """softmax(scale * query @ key.T + bias) @ value; groups of heads may share keys."""
    if query.shape[1] != key.shape[1]:
        if query.shape[1] % key.shape[1]:
            raise refuse(f"{query.shape[1]} heads of queries for {key.shape[1]} of keys")
        times = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(times, dim=1), value.repeat_interleave(times, dim=1)
    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    wide = precision or (dtypes.float64 if query.dtype is dtypes.float64 else dtypes.float32)
    root = math.sqrt(factor) if factor >= 0 else 0.0
    if root:
        raw = (query * root).matmul((key * root).transpose(-2, -1), dtype=wide)
    else:
        raw = query.matmul(key.transpose(-2, -1), dtype=wide) * factor
    capped = raw
    if cap_first and softcap:
        capped = (raw / softcap).tanh() * softcap
    masked = capped if bias is None else capped + bias.cast(wide)
    capped = masked
    if softcap and not cap_first:
        capped = (masked / softcap).tanh() * softcap
    if sink is None:
        weights = capped.softmax(-1)
    else:
        # one more score that takes its share and leads to no value
        most = capped.max(-1, keepdim=True).maximum(sink)
        powers = (capped - most).exp()
        weights = powers / (powers.sum(-1, keepdim=True) + (sink - most).exp())
    found = weights.cast(query.dtype).matmul(value)
    return found, Scores(raw, masked, capped, weights)


def bias_of(mask: Tensor, dtype: DType) -> Tensor:
    """A mask as what is added to the scores: of bools, minus infinity where it is False."""
    if mask.dtype is not dtypes.bool:
        return mask.cast(dtype)
    zero = Tensor.full((), 0.0, dtype=dtype)
    return mask.where(zero, -math.inf)


def causal(queries: Any, keys: Any, offset: Any = 0) -> Tensor:
    """True where a query may look: at itself and before."""
    rows = Tensor.arange(queries).reshape((queries, 1))
    return Tensor.arange(keys).reshape((1, keys)) <= rows + offset


@lowers("Attention", since=23)
def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    nonpad_kv_seqlen: Tensor | None = None,
    *,
    is_causal: int = 0,
    kv_num_heads: int = 0,
    q_num_heads: int = 0,
    qk_matmul_output_mode: int = 0,
    scale: float | None = None,
    softcap: float = 0.0,
    softmax_precision: int = 0,
    call: Call,
) -> tuple[Any, ...]:
    is_flat = query.ndim == 3
    q = split_heads(query, q_num_heads)
    k, v = split_heads(key, kv_num_heads), split_heads(value, kv_num_heads)
    past = 0
    if past_key is not None and past_value is not None:
        past = past_key.shape[2]
        k, v = past_key.cat(k, dim=2), past_value.cat(v, dim=2)
    queries, keys = q.shape[2], k.shape[2]
    wide = dtypes.float64 if q.dtype is dtypes.float64 else dtypes.float32
    bias: Tensor | None = None
    if attn_mask is not None:
        short = keys - attn_mask.shape[-1]
        bias = bias_of(attn_mask, wide)
        if short > 0:
            bias = bias.pad((0, short), value=-math.inf)
    if is_causal:
        allowed = bias_of(causal(queries, keys, past), wide)
        bias = allowed if bias is None else bias + allowed
    if nonpad_kv_seqlen is not None:
        lengths = nonpad_kv_seqlen.reshape((-1, 1, 1, 1))
        allowed = bias_of(Tensor.arange(keys).reshape((1, 1, 1, keys)) < lengths, wide)
        bias = allowed if bias is None else bias + allowed
    precision = data_type(softmax_precision, "precision").to_dtype() if softmax_precision else None
    if precision is not None and precision not in (dtypes.float32, dtypes.float64):
        precision = None
    y, scores = attend(q, k, v, scale, bias, softcap, precision)
    steps = (scores.raw, scores.masked, scores.capped, scores.weights)
    if not 0 <= qk_matmul_output_mode < len(steps):
        raise refuse(f"qk_matmul_output_mode is 0 to 3, found {qk_matmul_output_mode}")
    shown = steps[qk_matmul_output_mode].cast(query.dtype)
    outputs = (join_heads(y) if is_flat else y, k, v, shown)
    return outputs[: max(1, call.outputs)]


# ------------------------------------------------------------ rotary embeddings
def rotate(x: Tensor, cos: Tensor, sin: Tensor, interleaved: bool, width: int) -> Tensor:
    """(batch, length, heads, width) turned by the angles whose cosines (batch, length, width / 2)
    are given; what is beyond `width` stays."""
    turned, rest = x[..., :width], x[..., width:]
    cos, sin = cos.unsqueeze(2), sin.unsqueeze(2)
    half = width // 2
    if cos.shape[-1] != half:
        raise refuse(f"{cos.shape[-1]} cosines for a width of {width}")
    if interleaved:
        pairs = turned.reshape((*turned.shape[:-1], half, 2))
        first, second = pairs[..., 0], pairs[..., 1]
    else:
        first, second = turned[..., :half], turned[..., half:]
    real, imaginary = cos * first - sin * second, sin * first + cos * second
    if interleaved:
        found = real.stack(imaginary, dim=-1).reshape(turned.shape)
    else:
        found = real.cat(imaginary, dim=-1)
    return (found if width == x.shape[-1] else found.cat(rest, dim=-1)).cast(x.dtype)


def rotary(
    x: Tensor,
    cos: Tensor,
    sin: Tensor,
    positions: Tensor | None,
    interleaved: bool,
    heads: int,
    width: int,
) -> Tensor:
    """Rotary embedding of (batch, length, hidden) or (batch, heads, length, width)."""
    if x.ndim == 4:
        inner = x.permute((0, 2, 1, 3))
    else:
        if heads < 1:
            raise refuse("num_heads is wanted for an input of three axes")
        inner = x.reshape((*x.shape[:2], heads, x.shape[2] // heads))
    if positions is not None:
        cos, sin = cos[positions], sin[positions]
    found = rotate(inner, cos, sin, interleaved, width or inner.shape[-1])
    return found.permute((0, 2, 1, 3)) if x.ndim == 4 else found.reshape(x.shape)


@lowers("RotaryEmbedding", since=23)
def rotary_embedding(
    x: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    position_ids: Tensor | None = None,
    *,
    interleaved: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
) -> Tensor:
    return rotary(
        x,
        cos_cache,
        sin_cache,
        position_ids,
        bool(interleaved),
        num_heads,
        rotary_embedding_dim,
    )


@lowers("LinearAttention", since=27)
def linear_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    past_state: Tensor | None = None,
    decay: Tensor | None = None,
    beta: Tensor | None = None,
    *,
    chunk_size: int = 0,
    kv_num_heads: int,
    q_num_heads: int,
    scale: float = 0.0,
    update_rule: str = "gated_delta",
) -> tuple[Tensor, Tensor]:
    """One token after another: the state is a sum of products of keys and values that decays."""
    if update_rule not in ("linear", "gated", "delta", "gated_delta"):
        raise refuse(f"the update_rule {update_rule!r} is unknown")
    wide = computing_dtype(query.dtype)
    q = split_heads(query, q_num_heads).cast(wide)
    k, v = (split_heads(part, kv_num_heads).cast(wide) for part in (key, value))
    factor = scale or 1 / math.sqrt(q.shape[-1])
    batch, heads, length, width = k.shape
    state = Tensor.zeros(batch, heads, width, v.shape[-1], dtype=wide)
    state = state if past_state is None else past_state.cast(wide)
    gates = rates = None
    if decay is not None and update_rule.startswith("gated"):
        gates = split_heads(decay, kv_num_heads).cast(wide).exp()
    if beta is not None and update_rule.endswith("delta"):
        rates = beta.cast(wide).permute((0, 2, 1)).unsqueeze(-1)
    outputs = []
    for time in range(length):
        now, added = k[:, :, time].unsqueeze(-1), v[:, :, time].unsqueeze(-2)
        if gates is not None:
            state = state * gates[:, :, time].unsqueeze(-1)
        if update_rule.endswith("delta"):
            added = added - (state * now).sum(-2, keepdim=True)
            added = added if rates is None else added * rates[:, :, time].unsqueeze(-1)
        state = (state + now * added).contiguous()
        seen = state.repeat_interleave(q_num_heads // kv_num_heads, dim=1)
        outputs.append((q[:, :, time].unsqueeze(-1) * seen).sum(-2) * factor)
    found = Tensor.stack(*outputs, dim=2)
    kind = query.dtype if past_state is None else past_state.dtype
    return join_heads(found).cast(query.dtype), state.cast(kind)
