"""Reductions over axes, shared by `UOp` and `Tensor`.

In: a class with `shape`, `cast` and `_reduce_axis`. Out: sum, prod, max, min, any, all, mean.
Sits below both users; imports no UOp.
Invariant: partial results are as wide as they must be (`sum_dtype`), and the result has the dtype
that was asked for or the operand's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Self

from weft.dtype import DType, computing_dtype, dtypes, least_upper_float, to_dtype
from weft.errors import ArgumentError
from weft.helpers import prod
from weft.mixin.check import whole_numbers
from weft.mixin.dtype import DTypeMixin, sum_dtype
from weft.mixin.movement import MovementMixin
from weft.uop.opset import Ops

Axes = int | Sequence[int] | None


class ReduceMixin(MovementMixin, DTypeMixin):
    """Methods over the protocol `_reduce_axis(op, axes)`, which keeps reduced axes with size 1."""

    __slots__ = ()

    def _reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> Self:
        """One REDUCE_AXIS. Provided by the class."""
        raise NotImplementedError

    def _axes(self, axis: Axes) -> tuple[int, ...]:
        """Axis numbers in ascending order; None is all of them."""
        if axis is None:
            return tuple(range(self.ndim))
        asked = (axis,) if isinstance(axis, int) else whole_numbers("axis", axis)
        axes = tuple(sorted(self._axis(dim) for dim in asked))
        if len(set(axes)) != len(axes):
            raise ArgumentError(f"reduction over the axes {asked}: an axis is there twice")
        return axes if self.ndim else ()

    def _reduce(self, op: Ops, axis: Axes, keepdim: bool) -> Self:
        axes = self._axes(axis)
        # also where nothing is folded: a result is never a view, whatever the sizes are
        result = self._reduce_axis(op, axes)
        if keepdim or not axes:
            return result
        return result.reshape(tuple(s for i, s in enumerate(self.shape) if i not in axes))

    def sum(self, axis: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Self:
        """The sum over axes, all by default.

        Half types accumulate in float32, small ints in 32 bits, bools are counted.

        >>> Tensor([[1, 2], [3, 4]]).sum(axis=0).tolist()
        [4, 6]
        """
        wide = sum_dtype(self.dtype) if dtype is None else to_dtype(dtype)
        narrow = dtypes.is_float(self.dtype) and dtype is None
        accumulating = sum_dtype(wide) if dtypes.is_float(wide) else wide
        result = self.cast(accumulating)._reduce(Ops.ADD, axis, keepdim)
        return result.cast(self.dtype if narrow else wide)

    def prod(self, axis: Axes = None, keepdim: bool = False, dtype: DType | None = None) -> Self:
        """The product over axes, all by default.

        >>> Tensor([[1, 2], [3, 4]]).prod().item()
        24
        """
        wide = sum_dtype(self.dtype) if dtype is None else to_dtype(dtype)
        narrow = dtypes.is_float(self.dtype) and dtype is None
        accumulating = sum_dtype(wide) if dtypes.is_float(wide) else wide
        result = self.cast(accumulating)._reduce(Ops.MUL, axis, keepdim)
        return result.cast(self.dtype if narrow else wide)

    def max(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The greatest element over axes, all by default; nan if there is one.

        Of nothing it is the least value of the dtype, as a sum of nothing is 0.

        >>> Tensor([[1, 5], [3, 4]]).max(axis=1).tolist()
        [5, 4]
        """
        return self._reduce(Ops.MAX, axis, keepdim)

    def min(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The least element over axes, all by default; nan if there is one.

        Of nothing it is the greatest value of the dtype.

        >>> Tensor([[1, 5], [3, 4]]).min(axis=1).tolist()
        [1, 3]
        """
        return self.inverse().max(axis, keepdim).inverse()

    def any(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether some element is not zero.

        >>> Tensor([[0, 0], [0, 4]]).any(axis=1).tolist()
        [False, True]
        """
        return self.cast(dtypes.bool)._reduce(Ops.MAX, axis, keepdim)

    def all(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """Whether no element is zero.

        >>> Tensor([[1, 0], [3, 4]]).all(axis=1).tolist()
        [False, True]
        """
        return self.cast(dtypes.bool).logical_not()._reduce(Ops.MAX, axis, keepdim).logical_not()

    def mean(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """The average over axes, all by default.

        >>> Tensor([[1., 2.], [3., 4.]]).mean(axis=0).tolist()
        [2.0, 3.0]
        """
        wide = self.cast(computing_dtype(self.dtype))
        count = prod(self.shape[i] for i in self._axes(axis))
        total = wide._reduce(Ops.ADD, axis, keepdim)
        return total.div(count).cast(least_upper_float(self.dtype))
