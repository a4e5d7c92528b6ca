"""Attention of com.microsoft: Attention, MultiHeadAttention, GroupQueryAttention, rotary.

In: queries, keys and values in the layouts of ONNX Runtime. Out: Tensors. Part of `microsoft`.
Invariant: inside, everything is (batch, heads, length, width); `attention.attend` does the sums.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import dtypes
from weft.graphs.lowerings.attention import (
    attend,
    bias_of,
    causal,
    join_heads,
    rotary,
    split_heads,
)
from weft.graphs.table import Call, Host, lowers, one_of, refuse
from weft.graphs.types import Domain
from weft.tensor import Tensor

_DOMAIN = Domain.MICROSOFT


def _added(bias: Tensor | None, more: Tensor | None) -> Tensor | None:
    if bias is None or more is None:
        return more if bias is None else bias
    return bias + more


def padding_bias(
    mask: Tensor | None, keys: Any, filler: float, queries: Any = None
) -> Tensor | None:
    """A mask of keys as what is added: (batch) lengths, (batch, keys) or (batch, queries, keys)."""
    if mask is None:
        return None
    zero = Tensor.full((), 0.0, dtype=dtypes.float32)
    if mask.ndim == 1:
        allowed = Tensor.arange(keys).reshape((1, 1, 1, keys)) < mask.reshape((-1, 1, 1, 1))
    elif mask.ndim == 2:
        allowed = mask.ne(0).unsqueeze(1).unsqueeze(1)
    elif mask.ndim == 3:
        allowed = mask.ne(0).unsqueeze(1)
    else:
        raise refuse(f"a mask of shape {mask.shape}")
    return allowed.where(zero, filler)


@lowers("Attention", domain=_DOMAIN)
def attention(
    x: Tensor,
    weights: Tensor,
    bias: Tensor | None = None,
    mask_index: Tensor | None = None,
    past: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_sequence_length: Host | None = None,
    *,
    do_rotary: int = 0,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    past_present_share_buffer: int = 0,
    qkv_hidden_sizes: list[int] | None = None,
    rotary_embedding_dim: int = 0,
    scale: float | None = None,
    unidirectional: int = 0,
    call: Call,
) -> Any:
    if do_rotary or past_present_share_buffer:
        raise refuse("do_rotary and past_present_share_buffer are not lowered")
    total = x.matmul(weights)
    total = total if bias is None else total + bias
    sizes = list(qkv_hidden_sizes or [total.shape[-1] // 3] * 3)
    parts = total.split(sizes, dim=-1)
    query, key, value = (split_heads(part, num_heads) for part in parts)
    before: Any = 0
    if past is not None:
        before = past.shape[3]
        key, value = past[0].cat(key, dim=2), past[1].cat(value, dim=2)
    present = key.stack(value, dim=0) if key.shape[-1] == value.shape[-1] else key
    added = _added(padding_bias(mask_index, key.shape[2], mask_filter_value), attention_bias)
    if unidirectional:
        allowed = causal(query.shape[2], key.shape[2], before)
        added = _added(added, bias_of(allowed, dtypes.float32))
    found, _ = attend(query, key, value, scale or None, added)
    return (join_heads(found), present)[: max(1, call.outputs)]


@lowers("MultiHeadAttention", domain=_DOMAIN)
def multi_head_attention(
    query: Tensor,
    key: Tensor | None = None,
    value: Tensor | None = None,
    bias: Tensor | None = None,
    key_padding_mask: Tensor | None = None,
    attention_bias: Tensor | None = None,
    past_key: Tensor | None = None,
    past_value: Tensor | None = None,
    past_sequence_length: Host | None = None,
    cache_indirection: Tensor | None = None,
    *,
    mask_filter_value: float = -10000.0,
    num_heads: int,
    scale: float | None = None,
    unidirectional: int = 0,
    call: Call,
) -> Any:
    if query.ndim == 5:
        parts = [query[:, :, :, i] for i in range(3)]
        query, key, value = (part.reshape((*part.shape[:2], -1)) for part in parts)
    elif key is not None and key.ndim == 5:
        pair = [key[:, :, :, i] for i in range(2)]
        key, value = (part.reshape((*part.shape[:2], -1)) for part in pair)
    if key is None or value is None:
        raise refuse("a key and a value are wanted")
    if bias is not None:
        width = query.shape[-1]
        inner = width if key.ndim != 3 else key.shape[-1]
        query = query + bias[:width]
        if key.ndim == 3 and value.ndim == 3:
            key, value = key + bias[width : width + inner], value + bias[width + inner :]
    q, k, v = (split_heads(part, num_heads) for part in (query, key, value))
    before: Any = 0
    if past_key is not None and past_value is not None:
        before = past_key.shape[2]
        k, v = past_key.cat(k, dim=2), past_value.cat(v, dim=2)
    added = _added(padding_bias(key_padding_mask, k.shape[2], mask_filter_value), attention_bias)
    if unidirectional:
        added = _added(added, bias_of(causal(q.shape[2], k.shape[2], before), dtypes.float32))
    found, scores = attend(q, k, v, scale or None, added)
    return (join_heads(found), k, v, scores.masked)[: max(1, call.outputs)]


@lowers("RotaryEmbedding", domain=_DOMAIN)
def rotary_embedding(
    x: Tensor,
    position_ids: Tensor,
    cos_cache: Tensor,
    sin_cache: Tensor,
    *,
    interleaved: int = 0,
    is_packed_batching: int = 0,
    num_heads: int = 0,
    rotary_embedding_dim: int = 0,
    scale: float = 1.0,
) -> Tensor:
    length = x.shape[2] if x.ndim == 4 else x.shape[1]
    positions = position_ids
    if position_ids.ndim == 1 or position_ids.shape != (x.shape[0], length):
        # one number: where the first token stands
        start = position_ids.flatten()[0]
        positions = (Tensor.arange(length, dtype=dtypes.int64) + start).reshape((1, length))
        positions = positions.expand((x.shape[0], length))
    heads = num_heads
    if not heads and x.ndim == 3:
        heads = x.shape[-1] // (rotary_embedding_dim or 2 * cos_cache.shape[-1])
    return rotary(
        x, cos_cache, sin_cache, positions, bool(interleaved), heads, rotary_embedding_dim
    )


@lowers("GroupQueryAttention", domain=_DOMAIN)
def group_query_attention(
    query: Tensor,
    key: Tensor | None,
    value: Tensor | None,
    past_key: Tensor | None,
    past_value: Tensor | None,
    seqlens_k: Tensor,
    total_sequence_length: Host,
    cos_cache: Tensor | None = None,
    sin_cache: Tensor | None = None,
    position_ids: Tensor | None = None,
    attention_bias: Tensor | None = None,
    head_sink: Tensor | None = None,
    *,
    do_rotary: int = 0,
    kv_num_heads: int,
    local_window_size: int = -1,
    num_heads: int,
    qk_output: int = 0,
    rotary_interleaved: int = 0,
    scale: float | None = None,
    smooth_softmax: int = 0,
    softcap: float = 0.0,
    call: Call,
) -> Any:
    if key is None or value is None:
        width = query.shape[-1] // (num_heads + 2 * kv_num_heads)
        sizes = [num_heads * width, kv_num_heads * width, kv_num_heads * width]
        query, key, value = query.split(sizes, dim=-1)
    batch, count = query.shape[:2]
    # the place of the first new token of each sample
    lengths = seqlens_k.reshape((batch, 1)).cast(dtypes.int64) + 1
    total = int(one_of(total_sequence_length))
    is_prompt = past_key is None or past_key.shape[2] == 0 or total == count
    steps = Tensor.arange(count, dtype=dtypes.int64).reshape((1, count))
    first = Tensor.zeros(batch, 1, dtype=dtypes.int64) if is_prompt else lengths - count
    places = first + steps
    positions = places if position_ids is None else position_ids
    if do_rotary:
        if cos_cache is None or sin_cache is None:
            raise refuse("do_rotary needs the caches of cosines and sines")
        limit = cos_cache.shape[0] - 1
        safe = positions.clip(0, limit).expand((batch, count))
        width = 2 * cos_cache.shape[-1]
        turn = bool(rotary_interleaved)
        query = rotary(query, cos_cache, sin_cache, safe, turn, num_heads, width)
        key = rotary(key, cos_cache, sin_cache, safe, turn, kv_num_heads, width)
    q = split_heads(query, num_heads)
    new = [split_heads(part, kv_num_heads) for part in (key, value)]
    present = [_cached(past, part, places, total) for past, part in
               zip((past_key, past_value), new, strict=True)]  # fmt: skip
    keys = present[0].shape[2]
    across = Tensor.arange(keys).reshape((1, 1, 1, keys))
    down = places.reshape((-1, 1, count, 1))
    allowed = across <= down
    if local_window_size > 0:
        allowed = allowed & (across > down - local_window_size)
    bias: Tensor | None = bias_of(allowed, dtypes.float32)
    if attention_bias is not None:
        short = keys - attention_bias.shape[-1]
        wide = attention_bias.cast(dtypes.float32)
        bias = _added(bias, wide.pad((0, short), value=-math.inf) if short > 0 else wide)
    sink = None
    if head_sink is not None:
        sink = head_sink.reshape((1, -1, 1, 1)).cast(dtypes.float32)
    elif smooth_softmax:
        sink = Tensor.zeros(1, 1, 1, 1)
    found, _ = attend(
        q, present[0], present[1], scale or None, bias, softcap, None, sink, cap_first=True
    )
    return (join_heads(found), *present)[: max(1, call.outputs)]


def _cached(past: Tensor | None, new: Tensor, places: Tensor, total: int) -> Tensor:
    """The cache with the new keys or values written at their places."""
    if past is None or past.shape[2] == 0:
        return new
    batch, heads, count, width = new.shape
    size = max(past.shape[2], total)
    grown = past.pad((None, None, (0, size - past.shape[2]), None))
    index = places.reshape((-1, 1, count, 1)).expand((batch, heads, count, width))
    return grown.scatter(2, index, new)
