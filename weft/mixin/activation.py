"""Activation functions.

In: tensors. Out: the nonlinear functions of neural nets, named as in PyTorch.
Sits above the engine, one of the Tensor families.
Invariant: they are plain expressions, so they fuse into whatever surrounds them.
"""

from __future__ import annotations

import math
from typing import Any, Self, cast

from weft.dtype import DType, computing_dtype, least_upper_float
from weft.errors import ArgumentError
from weft.mixin.reduce import Axes
from weft.mixin.stats import StatsMixin
from weft.mixin.unary import LN_2, in_wide_floats


class ActivationMixin(StatsMixin):
    """Elementwise activations, and the softmaxes."""

    __slots__ = ()

    def relu(self) -> Self:
        """Zero where it is negative.

        >>> Tensor([-1.0, 2.0]).relu().tolist()
        [0.0, 2.0]
        """
        # not maximum, which at 0 gives half of the gradient
        return self.le(0).where(self._constant(0), self)

    def relu6(self) -> Self:
        """Between 0 and 6.

        >>> Tensor([-1.0, 9.0]).relu6().tolist()
        [0.0, 6.0]
        """
        return self.hardtanh(0, 6)

    @in_wide_floats
    def leaky_relu(self, neg_slope: float = 0.01) -> Self:
        """Multiplied by neg_slope where it is negative.

        >>> Tensor([-1.0, 2.0]).leaky_relu(0.5).tolist()
        [-0.5, 2.0]
        """
        return self.gt(0).where(self, self * neg_slope)

    @in_wide_floats
    def elu(self, alpha: float = 1.0) -> Self:
        """alpha * (exp(x) - 1) where it is negative.

        >>> Tensor([0.0, 2.0]).elu().tolist()
        [0.0, 2.0]
        """
        return self.gt(0).where(self, (self.clip(max_=0.0)._falling_exp() - 1) * alpha)

    @in_wide_floats
    def celu(self, alpha: float = 1.0) -> Self:
        """alpha * (exp(x / alpha) - 1) where it is negative.

        >>> Tensor([0.0, 2.0]).celu().tolist()
        [0.0, 2.0]
        """
        return self.gt(0).where(self, ((self.clip(max_=0.0) / alpha)._bounded_exp() - 1) * alpha)

    @in_wide_floats
    def selu(self, alpha: float = 1.67326, gamma: float = 1.0507) -> Self:
        """gamma times `elu`.

        >>> Tensor([0.0]).selu().tolist()
        [0.0]
        """
        negative = (self.clip(max_=0.0)._falling_exp() - 1) * alpha
        return self.gt(0).where(self, negative) * gamma

    @in_wide_floats
    def silu(self) -> Self:
        """x * sigmoid(x).

        >>> Tensor([0.0]).silu().tolist()
        [0.0]
        """
        return self * self.sigmoid()

    def swish(self) -> Self:
        """Another name of `silu`.

        >>> Tensor([0.0]).swish().tolist()
        [0.0]
        """
        return self.silu()

    @in_wide_floats
    def gelu(self, approximate: str = "tanh") -> Self:
        """x times the normal distribution up to x; `approximate` is "tanh" or "none".

        >>> Tensor([0.0]).gelu().tolist()
        [0.0]
        """
        if approximate == "none":
            return self * 0.5 * ((self * math.sqrt(0.5)).erf() + 1)
        if approximate != "tanh":
            raise ArgumentError(f'gelu has approximate "tanh" or "none", found {approximate!r}')
        inner = (self + self * self * self * 0.044715) * math.sqrt(2 / math.pi)
        # (1 + tanh(u)) / 2 is sigmoid(2u), which takes one exponential and no cases
        return self * (inner * 2).sigmoid()

    @in_wide_floats
    def quick_gelu(self) -> Self:
        """x * sigmoid(1.702 * x).

        >>> Tensor([0.0]).quick_gelu().tolist()
        [0.0]
        """
        return self * (self * 1.702).sigmoid()

    @in_wide_floats
    def hardsigmoid(self, alpha: float = 1 / 6, beta: float = 0.5) -> Self:
        """alpha * x + beta, between 0 and 1.

        >>> Tensor([-9.0, 0.0, 9.0]).hardsigmoid().tolist()
        [0.0, 0.5, 1.0]
        """
        return (self * alpha + beta).hardtanh(0, 1)

    @in_wide_floats
    def hardswish(self) -> Self:
        """x * relu6(x + 3) / 6.

        >>> Tensor([0.0, 3.0]).hardswish().tolist()
        [0.0, 3.0]
        """
        return self * (self + 3).relu6() * (1 / 6)

    def hardtanh(self, min_val: float = -1, max_val: float = 1) -> Self:
        """Between min_val and max_val.

        >>> Tensor([-3.0, 0.5]).hardtanh().tolist()
        [-1.0, 0.5]
        """
        # a bound belongs to the flat side, other than in clip
        above = self.ge(max_val).where(self._constant(max_val), self)
        return self.le(min_val).where(self._constant(min_val), above)

    @in_wide_floats
    def softplus(self, beta: float = 1.0) -> Self:
        """log(1 + exp(beta * x)) / beta.

        >>> Tensor([0.0]).softplus().tolist()
        [0.6931471824645996]
        """
        scaled = self * beta
        return (scaled.maximum(0.0) + scaled.abs().neg()._falling_exp()._log1p()) * (1 / beta)

    @in_wide_floats
    def mish(self) -> Self:
        """x * tanh(softplus(x)).

        >>> Tensor([0.0]).mish().tolist()
        [0.0]
        """
        # tanh(log(1 + e)) is (e*e + 2e) / (e*e + 2e + 2); from 20 on it rounds to 1
        power = self.minimum(20.0)._bounded_exp()
        ratio = power * (power + 2)
        return self * (ratio / (ratio + 2))

    @in_wide_floats
    def logsigmoid(self) -> Self:
        """log(sigmoid(x)).

        >>> Tensor([0.0]).logsigmoid().tolist()
        [-0.6931471824645996]
        """
        return self.neg().softplus().neg()

    @in_wide_floats
    def softsign(self) -> Self:
        """x / (1 + |x|).

        >>> Tensor([1.0, -3.0]).softsign().tolist()
        [0.5, -0.75]
        """
        return self / (self.abs() + 1)

    # ------------------------------------------------------------ softmaxes
    def _shifted(self, axis: Axes, dtype: DType | None) -> tuple[Self, DType]:
        """The values less their greatest, in a wide float, and the dtype of the result."""
        value = self if dtype is None else self.cast(dtype)
        wide = value.cast(computing_dtype(value.dtype))
        if self.ndim == 0 or 0 in self.shape:
            # there is no greatest of nothing, and none is needed
            return wide - wide, least_upper_float(value.dtype)
        # whatever is subtracted, the result is the same: nothing depends on the greatest
        greatest = cast(Any, wide.max(axis, keepdim=True)).detach()
        return wide - greatest, least_upper_float(value.dtype)

    def softmax(self, axis: Axes = -1, dtype: DType | None = None) -> Self:
        """exp(x) divided by its sum along an axis.

        >>> Tensor([1.0, 1.0]).softmax().tolist()
        [0.5, 0.5]
        """
        shifted, result = self._shifted(axis, dtype)
        # what is far below the greatest vanishes, so the plain exponential is exact enough
        power = shifted._falling_exp()
        # one division for a row; a sum is at least 1, so that its inverse is as exact
        return (power * power.sum(axis, keepdim=True).reciprocal()).cast(result)

    def softmin(self, axis: Axes = -1, dtype: DType | None = None) -> Self:
        """`softmax` of the negative.

        >>> Tensor([1.0, 1.0]).softmin().tolist()
        [0.5, 0.5]
        """
        return self.neg().softmax(axis, dtype)

    def log_softmax(self, axis: Axes = -1, dtype: DType | None = None) -> Self:
        """The logarithm of `softmax`.

        >>> Tensor([1.0, 1.0]).log_softmax().tolist()
        [-0.6931471824645996, -0.6931471824645996]
        """
        shifted, result = self._shifted(axis, dtype)
        total = shifted._falling_exp().sum(axis, keepdim=True)
        return (shifted - total.log2() * LN_2).cast(result)
