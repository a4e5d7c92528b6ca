"""Layers that multiply, look up, drop or chain: Linear, Embedding, Dropout, Sequential.

In: Tensors of features or of indices. Out: Tensors. Sits above the initial values.
Invariant: names and shapes of parameters are PyTorch's, so its state dicts load.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.dtype import computing_dtype, dtypes
from weft.errors import ArgumentError, DTypeError
from weft.mixin.check import whole_number
from weft.nn.amp import computing
from weft.nn.initial import also_called, fan_in_uniform, normal
from weft.tensor import Tensor


class Linear:
    """x @ weight.T + bias, over the last axis.

    >>> Linear(3, 4)(Tensor.ones(2, 3)).shape
    (2, 4)
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        self.in_features = whole_number("in_features", in_features, least=0)
        self.out_features = whole_number("out_features", out_features, least=0)
        self.weight = fan_in_uniform(out_features, in_features, fan_in=in_features)
        self.bias = fan_in_uniform(out_features, fan_in=in_features) if bias else None

    def __call__(self, x: Tensor) -> Tensor:
        values, weight, bias = computing(x, self.weight, self.bias)
        product: Tensor = values.linear(weight.transpose(), bias)
        return product


class Embedding:
    """The rows of a table that indices name; the row `padding_idx` starts as 0 and is not trained.

    With `max_norm`, rows that are used and have a greater norm (of power `norm_type`) are made
    shorter in the table itself, before they are used.

    >>> Embedding(10, 4)(Tensor([[1, 2, 3]])).shape
    (1, 3, 4)
    """

    @also_called(vocab_size="num_embeddings", embed_size="embedding_dim")
    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
    ) -> None:
        if padding_idx is not None:
            if not -num_embeddings <= padding_idx < num_embeddings:
                raise ArgumentError(
                    f"an Embedding of {num_embeddings} rows has padding_idx {padding_idx}; it must "
                    "be one of them"
                )
            padding_idx %= num_embeddings
        if norm_type <= 0:
            raise ArgumentError(f"norm_type is above 0, or inf, found {norm_type}")
        self.num_embeddings = num_embeddings
        self.embedding_dim = embedding_dim
        self.padding_idx = padding_idx
        self.max_norm = max_norm
        self.norm_type = norm_type
        self.weight = normal(num_embeddings, embedding_dim)
        if padding_idx is not None:
            padded = Tensor.arange(num_embeddings).reshape(-1, 1).eq(padding_idx)
            self.weight = padded.where(0.0, self.weight).contiguous()

    def __call__(self, idx: Tensor) -> Tensor:
        if not dtypes.is_int(idx.dtype):
            raise DTypeError(f"an Embedding takes indices that are ints, found {idx.dtype}")
        if self.max_norm is not None:
            self._shorten(idx, self.max_norm)
        rows: Tensor = self.weight[idx]
        if self.padding_idx is None:
            return rows
        return idx.eq(self.padding_idx).unsqueeze(-1).where(rows.detach(), rows)

    @Tensor.no_grad()
    def _shorten(self, idx: Tensor, longest: float) -> None:
        used = idx.reshape(-1)
        rows = self.weight[used]
        wide = rows.cast(computing_dtype(rows.dtype)).abs()
        if self.norm_type == math.inf:
            norms = wide.max(1, keepdim=True)
        else:
            norms = wide.pow(self.norm_type).sum(1, keepdim=True).pow(1 / self.norm_type)
        # a little below, as PyTorch has it, so that rounding does not shorten a row again
        scale = (norms > longest).where(longest / (norms + 1e-7), 1.0)
        self.weight[used] = (rows * scale).cast(self.weight.dtype)


class Dropout:
    """While training, each element is zero with probability p and else divided by 1 - p.

    >>> Dropout(0.5)(Tensor([1.0, 2.0])).tolist()
    [1.0, 2.0]
    """

    def __init__(self, p: float = 0.5) -> None:
        if not 0 <= p <= 1:
            raise ArgumentError(f"Dropout has a probability from 0 to 1, found {p}")
        self.p = p

    def __call__(self, x: Tensor) -> Tensor:
        return x.dropout(self.p)


class Sequential(list[Callable[[Any], Any]]):
    """Layers and functions one after another; a list, so its state is named "0.weight" and so on.

    >>> Sequential(Linear(3, 4), Tensor.relu, Linear(4, 2))(Tensor.ones(1, 3)).shape
    (1, 2)
    """

    def __init__(self, *layers: Callable[[Any], Any]) -> None:
        super().__init__(layers)

    def __call__(self, x: Tensor) -> Tensor:
        return x.sequential(self)
