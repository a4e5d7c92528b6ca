"""Losses, named as in PyTorch and tinygrad.

In: predictions and what they should have been. Out: the loss, reduced as asked.
Sits above the engine, last of the Tensor families.
Invariant: what takes logits never computes a probability that could round to 0 or 1 first.
"""

from __future__ import annotations

from typing import Any, Self

from weft.dtype import DType, computing_dtype, dtypes, least_upper_dtype, least_upper_float
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.mixin.check import real_number, tensors
from weft.mixin.neural import NeuralMixin


class LossMixin(NeuralMixin):
    """Losses over predictions."""

    __slots__ = ()

    def _reduced(self, reduction: str) -> Self:
        self._checked_reduction(reduction)
        if reduction == "none":
            return self
        return self.mean() if reduction == "mean" else self.sum()

    def _widened(self, other: Any) -> tuple[Self, Any, DType]:
        """Both in the type that a loss is computed in, and the type that it is rounded to."""
        result = least_upper_float(least_upper_dtype(self.dtype, other.dtype))
        wide = computing_dtype(result)
        return self.cast(wide), other.cast(wide), result

    def _check_targets(self, name: str, Y: Any, label_smoothing: float = 0.0) -> None:
        tensors("Y", (Y,))
        if not 0 <= real_number("label_smoothing", label_smoothing) <= 1:
            raise ArgumentError(f"label_smoothing is from 0 to 1, found {label_smoothing}")
        if self.ndim == 0:
            raise ShapeError(f"{name} of a tensor of shape (): it needs an axis of classes")

    def binary_crossentropy(self, Y: Any, reduction: str = "mean") -> Self:
        """Of probabilities with targets between 0 and 1.

        >>> Tensor([0.5]).binary_crossentropy(Tensor([1.0])).item()
        0.6931471824645996
        """
        tensors("Y", (Y,))
        wide, target, result = self._widened(Y)
        # as PyTorch: a logarithm is never below -100, so that 0 * log(0) is 0
        yes = wide.log().maximum(-100.0)
        no = (1 - wide).log().maximum(-100.0)
        return (target * yes + (1 - target) * no).neg()._reduced(reduction).cast(result)

    def binary_crossentropy_logits(
        self, Y: Any, reduction: str = "mean", pos_weight: Any = None
    ) -> Self:
        """Of logits with targets between 0 and 1.

        >>> Tensor([0.0]).binary_crossentropy_logits(Tensor([1.0])).item()
        0.6931471824645996
        """
        tensors("Y", (Y,))
        wide, target, result = self._widened(Y)
        yes, no = wide.logsigmoid(), wide.neg().logsigmoid()
        weight = 1 if pos_weight is None else pos_weight
        loss = (target * yes * weight + (1 - target) * no).neg()._reduced(reduction)
        return loss.cast(result)

    def sparse_categorical_crossentropy(
        self,
        Y: Any,
        ignore_index: int = -1,
        label_smoothing: float = 0.0,
        reduction: str = "mean",
    ) -> Self:
        """Of logits (..., classes) with the numbers of classes as targets.

        >>> Tensor([[0.0, 0.0]]).sparse_categorical_crossentropy(Tensor([1])).item()
        0.6931471824645996
        """
        self._check_targets("sparse_categorical_crossentropy", Y, label_smoothing)
        if Y.shape != self.shape[:-1]:
            raise ShapeError(
                f"targets for logits of shape {self.shape} have shape {self.shape[:-1]}, found "
                f"{Y.shape}"
            )
        logs = self.cast(computing_dtype(self.dtype)).log_softmax()
        counted = Y.ne(ignore_index)
        hit = Y.unsqueeze(-1).eq(self._iota(self.shape[-1])) & counted.unsqueeze(-1)
        picked = hit.where(logs, logs._constant(0)).sum(-1)
        flat = counted.where(logs.mean(-1), logs._constant(0))
        loss = (picked * (1 - label_smoothing) + flat * label_smoothing).neg()
        if self._checked_reduction(reduction) == "mean":
            loss = loss.sum() / counted.sum().cast(loss.dtype)
        else:
            loss = loss._reduced(reduction)
        return loss.cast(least_upper_float(self.dtype))

    def cross_entropy(self, Y: Any, reduction: str = "mean", label_smoothing: float = 0.0) -> Self:
        """Of logits with classes along axis 1 (0 of a vector); targets: numbers or probabilities.

        >>> Tensor([[0.0, 0.0]]).cross_entropy(Tensor([1])).item()
        0.6931471824645996
        """
        self._check_targets("cross_entropy", Y, label_smoothing)
        axis = 1 if self.ndim > 1 else 0
        classes = self.shape[axis]
        if Y.ndim == self.ndim - 1:
            if not dtypes.is_int(Y.dtype):
                raise DTypeError(f"cross_entropy takes numbers of classes as ints, found {Y.dtype}")
            shape = [classes if i == axis else 1 for i in range(self.ndim)]
            Y = Y.unsqueeze(axis).eq(self._iota(classes).reshape(shape)).cast(self.dtype)
        if Y.shape != self.shape:
            raise ShapeError(f"cross_entropy of shape {self.shape} with targets {Y.shape}")
        wide, target, result = self._widened(Y)
        target = target * (1 - label_smoothing) + label_smoothing / classes
        loss = (wide.log_softmax(axis) * target).sum(axis).neg()
        return loss._reduced(reduction).cast(result)

    def nll_loss(
        self,
        Y: Any,
        weight: Any = None,
        ignore_index: int | None = None,
        reduction: str = "mean",
    ) -> Self:
        """Of log-probabilities with classes along axis 1 (0 of a vector) and numbers as targets.

        >>> Tensor([[-1.0, -2.0]]).nll_loss(Tensor([1])).item()
        2.0
        """
        self._check_targets("nll_loss", Y)
        if weight is not None:
            tensors("weight", (weight,))
        axis = 1 if self.ndim > 1 else 0
        classes = self.shape[axis]
        wanted = self.shape[:axis] + self.shape[axis + 1 :]
        if Y.shape != wanted or not dtypes.is_int(Y.dtype):
            raise ShapeError(
                f"nll_loss of shape {self.shape} takes ints of shape {wanted} as targets, found "
                f"{Y.dtype} of shape {Y.shape}"
            )
        shape = [classes if i == axis else 1 for i in range(self.ndim)]
        hit = Y.unsqueeze(axis).eq(self._iota(classes).reshape(shape))
        each = self._constant(1).expand(Y.shape) if weight is None else weight._take({0: Y})
        if ignore_index is not None:
            each = Y.ne(ignore_index).where(each, each._constant(0))
        wide, each, result = self._widened(each)
        picked = hit.where(wide, wide._constant(0)).sum(axis)
        loss = (picked * each).neg()
        if self._checked_reduction(reduction) == "mean":
            return (loss.sum() / each.sum()).cast(result)
        return loss._reduced(reduction).cast(result)
