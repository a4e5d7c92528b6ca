"""Products of matrices, and attention.

In: Tensors. Out: Tensors. A family of the table of lowerings.
Invariant: a product of half types is summed up in float32, and rounded once.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import dtypes
from weft.tensor import Tensor
from weft.torch.table import Call, lowers, refuse


@lowers("mm", "bmm", "matmul", "mv", "dot", "vdot", call=True)
def mm(x: Tensor, y: Tensor, *, call: Call) -> Tensor:
    return x.matmul(y)


@lowers("linear")
def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    return x.linear(weight.transpose(0, 1), bias)


@lowers("addmm", "addmv", "baddbmm")
def addmm(
    bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1, **kwargs: Any
) -> Tensor:
    product = x.matmul(y)
    product = product if alpha == 1 else product * alpha
    if beta == 0:
        return product
    return product + (bias if beta == 1 else bias * beta)


@lowers("addbmm")
def addbmm(bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return bias * beta + x.matmul(y).sum(0) * alpha


@lowers("addr")
def addr(bias: Tensor, x: Tensor, y: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    return bias * beta + x.unsqueeze(1) * y.unsqueeze(0) * alpha


@lowers("_int_mm")
def int_mm(x: Tensor, y: Tensor) -> Tensor:
    return x.matmul(y, dtype=dtypes.int32)


# ------------------------------------------------------------ attention
def _scores(q: Tensor, k: Tensor, mask: Any, is_causal: bool, scale: Any) -> Tensor:
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = (q.float() * factor).matmul(k.float().transpose(-2, -1))
    if mask is not None:
        if mask.dtype is dtypes.bool:
            scores = mask.where(scores, -math.inf)
        else:
            scores = scores + mask
    if is_causal:
        rows, columns = q.shape[-2], k.shape[-2]
        allowed = Tensor.ones(rows, columns, dtype=dtypes.bool).tril()
        scores = allowed.where(scores, -math.inf)
    return scores


def attention(q: Tensor, k: Tensor, v: Tensor, mask: Any, is_causal: bool, scale: Any) -> Tensor:
    """Softmax of the scaled products of queries and keys, times the values."""
    if k.shape[1] != q.shape[1]:
        times = q.shape[1] // k.shape[1]
        k, v = (part.repeat_interleave(times, 1) for part in (k, v))
    if scale is not None:
        q = q * (scale * math.sqrt(q.shape[-1]))
    return q.scaled_dot_product_attention(k, v, mask, 0.0, is_causal)


def _log_sums(q: Tensor, k: Tensor, mask: Any, is_causal: bool, scale: Any) -> Tensor:
    return _scores(q, k, mask, is_causal, scale).logsumexp(-1)


@lowers("_scaled_dot_product_flash_attention_for_cpu", call=True)
def flash_attention_for_cpu(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    attn_mask: Any = None,
    scale: Any = None,
    call: Call,
) -> tuple[Tensor, Tensor]:
    if dropout:
        raise refuse("attention with dropout inside of the operator")
    y = attention(q, k, v, attn_mask, is_causal, scale)
    return y, _log_sums(q, k, attn_mask, is_causal, scale)


@lowers("scaled_dot_product_attention")
def scaled_dot_product_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Any = None,
    dropout: float = 0.0,
    is_causal: bool = False,
    *,
    scale: Any = None,
    enable_gqa: bool = False,
) -> Tensor:
    if dropout:
        raise refuse("attention with dropout inside of the operator")
    return attention(q, k, v, mask, is_causal, scale)


@lowers("_scaled_dot_product_flash_attention_for_cpu_backward")
def flash_attention_for_cpu_backward(
    gradient: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    y: Tensor,
    log_sums: Tensor,
    dropout: float,
    is_causal: bool,
    *,
    attn_mask: Any = None,
    scale: Any = None,
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients, the softmax made again out of its logarithmic sums (Dao et al., 2022)."""
    factor = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    shares = (_scores(q, k, attn_mask, is_causal, scale) - log_sums.unsqueeze(-1)).exp()
    to_v = shares.transpose(-2, -1).matmul(gradient.float())
    to_shares = gradient.float().matmul(v.float().transpose(-2, -1))
    rows = (gradient.float() * y.float()).sum(-1, True)
    to_scores = shares * (to_shares - rows) * factor
    return (
        to_scores.matmul(k.float()),
        to_scores.transpose(-2, -1).matmul(q.float()),
        to_v,
    )
