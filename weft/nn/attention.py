"""Multi-head attention with its projections, as PyTorch's MultiheadAttention.

In: queries, keys, values: (steps, batch, features), or with the batch first, or without one.
Out: what was attended to, and the weights. Sits above Linear.
Invariant: names and shapes of parameters and the meaning of masks are PyTorch's: a True in a mask
of bools means "do not look here", the opposite of scaled_dot_product_attention's.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import computing_dtype, dtypes
from weft.errors import ArgumentError, ShapeError
from weft.nn.amp import computing
from weft.nn.initial import glorot_normal, glorot_uniform
from weft.nn.linear import Linear
from weft.tensor import Tensor


class MultiheadAttention:
    """Several attentions beside each other, over projections of their inputs.

    >>> x = Tensor.ones(5, 2, 8)
    >>> out, weights = MultiheadAttention(8, 2)(x, x, x)
    >>> out.shape, weights.shape
    ((5, 2, 8), (2, 5, 5))
    """

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
    ) -> None:
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError(f"{embed_dim} features cannot be shared by {num_heads} heads")
        self.embed_dim = embed_dim
        self.num_heads = num_heads
        self.dropout = dropout
        self.add_zero_attn = add_zero_attn
        self.batch_first = batch_first
        self.kdim = embed_dim if kdim is None else kdim
        self.vdim = embed_dim if vdim is None else vdim
        if self.kdim == self.vdim == embed_dim:
            self.in_proj_weight = glorot_uniform(3 * embed_dim, embed_dim)
        else:
            self.q_proj_weight = glorot_uniform(embed_dim, embed_dim)
            self.k_proj_weight = glorot_uniform(embed_dim, self.kdim)
            self.v_proj_weight = glorot_uniform(embed_dim, self.vdim)
        self.in_proj_bias = Tensor.zeros(3 * embed_dim) if bias else None
        # one more key and value that every query may look at
        self.bias_k = glorot_normal(1, 1, embed_dim) if add_bias_kv else None
        self.bias_v = glorot_normal(1, 1, embed_dim) if add_bias_kv else None
        self.out_proj = Linear(embed_dim, embed_dim, bias)
        if bias:
            self.out_proj.bias = Tensor.zeros(embed_dim)

    def _weights(self) -> list[Tensor]:
        if self.kdim == self.vdim == self.embed_dim:
            return list(self.in_proj_weight.chunk(3))
        return [self.q_proj_weight, self.k_proj_weight, self.v_proj_weight]

    def _heads(self, inputs: list[Tensor]) -> list[Tensor]:
        """The projections of (batch, steps, features) as (batch, heads, steps, size)."""
        biases: list[Any] = [None] * 3
        if self.in_proj_bias is not None:
            biases = list(self.in_proj_bias.chunk(3))
        result = []
        more = (None, self.bias_k, self.bias_v)
        for x, parameter, offset, extra in zip(inputs, self._weights(), biases, more, strict=True):
            values, weight, bias = computing(x, parameter, offset)
            projected = values.linear(weight.transpose(), bias)
            if extra is not None:
                row = computing(extra)[0].expand(x.shape[0], 1, self.embed_dim)
                projected = projected.cat(row, dim=1)
            cut = projected.reshape(x.shape[0], projected.shape[1], self.num_heads, -1)
            result.append(cut.transpose(1, 2))
        if self.add_zero_attn:
            # one more step of zeros
            result[1:] = [head.pad((0, 0, 0, 1)) for head in result[1:]]
        return result

    def __call__(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        batched = query.ndim == 3
        inputs = [query, key, value]
        if any(x.ndim != query.ndim for x in inputs) or query.ndim not in (2, 3):
            shapes = [x.shape for x in inputs]
            raise ShapeError(f"attention takes three inputs of 2 or of 3 axes, found {shapes}")
        if not batched:
            inputs = [x.unsqueeze(0) for x in inputs]
            key_padding_mask = None if key_padding_mask is None else key_padding_mask.unsqueeze(0)
        elif not self.batch_first:
            inputs = [x.transpose(0, 1) for x in inputs]
        heads = self._heads(inputs)
        mask = self._mask(heads[0], heads[1], attn_mask, key_padding_mask, is_causal)
        joined, weights = self._attend(heads, mask, need_weights)
        batch, steps = inputs[0].shape[:2]
        out = self.out_proj(joined.transpose(1, 2).reshape(batch, steps, self.embed_dim))
        if weights is not None and average_attn_weights:
            weights = weights.mean(1)
        if not batched:
            return out.squeeze(0), None if weights is None else weights.squeeze(0)
        return (out if self.batch_first else out.transpose(0, 1)), weights

    def _attend(
        self, heads: list[Tensor], mask: Tensor | None, need_weights: bool
    ) -> tuple[Tensor, Tensor | None]:
        query, key, value = heads
        if not need_weights:
            return query.scaled_dot_product_attention(key, value, mask, self.dropout), None
        scores = (query / math.sqrt(query.shape[-1])).matmul(key.transpose(-2, -1))
        weights = (scores if mask is None else scores + mask).softmax(-1).dropout(self.dropout)
        return weights.matmul(value), weights

    def _mask(
        self,
        query: Tensor,
        key: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool,
    ) -> Tensor | None:
        """What is added to the scores, broadcastable to (batch, heads, queries, keys)."""
        batch, queries = query.shape[0], query.shape[-2]
        # what a layer adds to the keys by itself is never masked
        added = (self.bias_k is not None) + self.add_zero_attn
        keys = key.shape[-2] - added
        parts = []
        if is_causal and attn_mask is None:
            attn_mask = Tensor.ones(queries, keys, dtype=dtypes.bool).triu(1)
        if attn_mask is not None:
            if attn_mask.ndim == 3:
                attn_mask = attn_mask.reshape(batch, self.num_heads, queries, keys)
            parts.append(_added(attn_mask, query).pad((0, added)))
        if key_padding_mask is not None:
            mask = key_padding_mask.reshape(batch, 1, 1, keys)
            parts.append(_added(mask, query).pad((0, added)))
        if not parts:
            return None
        return parts[0] if len(parts) == 1 else parts[0] + parts[1]


def _added(mask: Tensor, like: Tensor) -> Tensor:
    """A mask of bools as numbers to add: minus infinity where it is True."""
    if mask.dtype is not dtypes.bool:
        return mask
    return mask.where(-math.inf, 0.0).cast(computing_dtype(like.dtype)).cast(like.dtype)


MultiHeadAttention = MultiheadAttention
