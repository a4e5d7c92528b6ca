"""What neural nets are made of: normalisations, dropout, attention.

In: tensors. Out: layernorm, batchnorm, dropout, scaled_dot_product_attention, sequential.
Sits above the engine, one of the Tensor families.
Invariant: no parameters live here; layers with parameters are in `weft.nn`.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Self

from weft.dtype import NARROW_FLOATS, computing_dtype, dtypes, least_upper_dtype, least_upper_float
from weft.errors import ArgumentError, ShapeError
from weft.knobs import TRAINING
from weft.mixin.check import real_number, tensors, whole_numbers
from weft.mixin.rand import RandMixin
from weft.mixin.reduce import Axes
from weft.mixin.ring import is_ring, ring_attention


class NeuralMixin(RandMixin):
    """Functions of layers."""

    __slots__ = ()

    def sequential(self, ll: Sequence[Callable[[Any], Any]]) -> Self:
        """The functions applied one after another.

        >>> Tensor([-1.0, 2.0]).sequential([Tensor.relu, lambda x: x * 2]).tolist()
        [0.0, 4.0]
        """
        value: Any = self
        for function in ll:
            value = function(value)
        result: Self = value
        return result

    def layernorm(self, axis: Axes = -1, eps: float = 1e-5) -> Self:
        """Less its mean, divided by its standard deviation, along axes.

        >>> Tensor([1.0, 1.0]).layernorm().tolist()
        [0.0, 0.0]
        """
        return self._normalized(axis, eps)

    def batchnorm(
        self, weight: Any, bias: Any, mean: Any, invstd: Any, axis: int | Sequence[int] = 1
    ) -> Self:
        """(x - mean) * (weight * invstd) + bias, each along an axis.

        >>> one = Tensor([1.0])
        >>> Tensor([[3.0]]).batchnorm(one, one, one, one).tolist()
        [[3.0]]
        """
        axes = whole_numbers("axis", axis)
        tensors("each of mean and invstd", (mean, invstd))
        tensors("each of weight and bias", [x for x in (weight, bias) if x is not None])
        kept = [self._axis(dim) for dim in axes]
        shape = [size if i in kept else 1 for i, size in enumerate(self.shape)]
        wide = self.cast(computing_dtype(self.dtype))
        value = wide - mean.reshape(shape)
        scale = invstd.reshape(shape) if invstd.ndim == len(kept) else invstd
        # one factor for each feature: its gradient is one sum, which both of its parts share
        if weight is not None:
            scale = weight.cast(wide.dtype).reshape(shape) * scale
        value = value * scale
        value = value if bias is None else value + bias.reshape(shape)
        parts = [part.dtype for part in (weight, bias, mean, invstd) if part is not None]
        return value.cast(functools.reduce(least_upper_dtype, parts, least_upper_float(self.dtype)))

    def dropout(self, p: float = 0.5) -> Self:
        """While training, each element is zero with probability p and else divided by 1 - p.

        >>> Tensor([1.0, 2.0]).dropout().tolist()
        [1.0, 2.0]
        """
        if not 0 <= real_number("p", p) <= 1:
            raise ArgumentError(f"dropout has a probability from 0 to 1, found {p}")
        if not TRAINING or p == 0:
            return self
        if p == 1:
            return self.zeros_like()
        kept = self.rand_like(dtype=dtypes.default_float, contiguous=False).ge(p)
        return kept.contiguous().where(self, self._constant(0)) / (1.0 - p)

    def scaled_dot_product_attention(
        self,
        key: Any,
        value: Any,
        attn_mask: Any = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        enable_gqa: bool = False,
    ) -> Self:
        """softmax(query @ key.T / sqrt(d)) @ value.

        >>> x = Tensor.ones(1, 2, 4)
        >>> x.scaled_dot_product_attention(x, x).shape
        (1, 2, 4)
        """
        tensors("each of key and value", (key, value))
        if attn_mask is not None:
            tensors("attn_mask", (attn_mask,))
        if any(part.ndim < (3 if enable_gqa else 2) for part in (self, key, value)):
            wanted = "(..., heads, length, width)" if enable_gqa else "(..., length, width)"
            raise ShapeError(
                f"attention takes query, key and value of shape {wanted}, found {self.shape}, "
                f"{key.shape} and {value.shape}"
            )
        if enable_gqa and self.shape[-3] % max(1, key.shape[-3]):
            raise ShapeError(
                f"attention with enable_gqa needs a multiple of the {key.shape[-3]} heads of the "
                f"key, found {self.shape[-3]} heads of the query"
            )
        if enable_gqa:
            times = self.shape[-3] // key.shape[-3]
            key = key.repeat_interleave(times, dim=-3)
            value = value.repeat_interleave(times, dim=-3)
        if is_causal and attn_mask is not None:
            raise ArgumentError("attention is causal or has a mask, not both")
        if attn_mask is None and not dropout_p and is_ring(self, key, value):
            ring: Self = ring_attention(self, key, value, is_causal)
            return ring
        # scores of half types are not rounded before the softmax is
        wide = computing_dtype(least_upper_dtype(self.dtype, key.dtype))
        accumulated = wide if self.dtype in NARROW_FLOATS else None
        scores = self.matmul(key.transpose(-2, -1), dtype=accumulated) / math.sqrt(self.shape[-1])
        if is_causal:
            attn_mask = self._constant(1).cast(dtypes.bool).expand(scores.shape[-2:]).tril()
        if attn_mask is not None:
            if attn_mask.dtype is dtypes.bool:
                attn_mask = attn_mask.where(scores._constant(0), scores._constant(-math.inf))
            scores = scores + attn_mask
        weights = scores.softmax(-1).cast(self.dtype).dropout(dropout_p)
        return weights.matmul(value)

    def _check_channels(self, name: str, other: Any, axis: int) -> None:
        if other.shape != (self.shape[axis],):
            raise ShapeError(
                f"{name} needs {self.shape[axis]} values for axis {axis}, found {other.shape}"
            )
