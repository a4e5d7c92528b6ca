"""Statistics: variance, extremes with their places, sums along an axis, comparison of tensors.

In: tensors. Out: var, std, argmax, logsumexp, cumsum and their relatives.
Sits above the engine, one of the Tensor families.
Invariant: what subtracts a mean does it in two passes, in at least float32.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Self

from weft.device import Device
from weft.dtype import computing_dtype, dtypes, least_upper_dtype, least_upper_float
from weft.engine.schedule import machine_of
from weft.errors import ArgumentError, ShapeError
from weft.helpers import ceildiv, prod
from weft.mixin.check import real_number
from weft.mixin.dtype import product_dtype, sum_dtype
from weft.mixin.indexing import IndexingMixin
from weft.mixin.movement import is_int
from weft.mixin.once import built_once
from weft.mixin.reduce import Axes
from weft.mixin.scan import greatest_gradient, log_sum_gradient, product_gradient
from weft.mixin.unary import in_wide_floats
from weft.uop.opset import Ops

# up to here every prefix is its own reduction; longer axes are cut into blocks first. The prefixes
# of a block are lanes of one vector.
_SCAN_BLOCK = 16
# so little work that blocks would only be more kernels
_SCAN_AT_ONCE = 1 << 18
# what a group of threads scans at once, where the machine has such scans: of longer axes, of those
# that one group scans, and what both are multiples of
_GROUP_BLOCK, _GROUP_MOST, _GROUP_UNIT = 2048, 8192, 256


@dataclass(frozen=True)
class _Fold:
    """A scan with one op."""

    op: Ops
    neutral: Any

    def reduce(self, x: Any, axis: int) -> Any:
        """All of an axis folded."""
        return x._reduce(self.op, axis, False)

    def combine(self, x: Any, y: Any) -> Any:
        """Two results folded into one."""
        return x.alu(self.op, y)


class _LogSumExp:
    """A scan of sums of exponentials that are only known by their logarithms."""

    neutral = -math.inf

    @staticmethod
    def reduce(x: Any, axis: int) -> Any:
        """All of an axis folded."""
        return x.logsumexp(axis)

    @staticmethod
    def combine(x: Any, y: Any) -> Any:
        """Two results folded into one."""
        return x.logaddexp(y)


class StatsMixin(IndexingMixin):
    """Methods over the reductions."""

    __slots__ = ()

    # ------------------------------------------------------------ spread
    def var(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The variance over axes; `correction` is taken from the count.

        >>> Tensor([1.0, 2.0, 3.0]).var().item()
        1.0
        """
        return self._variance(axis, keepdim, correction).cast(least_upper_float(self.dtype))

    def _variance(self, axis: Axes, keepdim: bool, correction: int) -> Self:
        wide = self.cast(computing_dtype(self.dtype))
        correction = real_number("correction", correction)
        count = prod(self.shape[i] for i in self._axes(axis))
        squares = (wide - wide.mean(axis, keepdim=True)).square()
        divisor = max(0, count - correction) if isinstance(count, int) else count - correction
        return squares.sum(axis, keepdim).div(divisor)

    def std(self, axis: Axes = None, keepdim: bool = False, correction: int = 1) -> Self:
        """The standard deviation over axes.

        >>> Tensor([1.0, 2.0, 3.0]).std().item()
        1.0
        """
        root = self._variance(axis, keepdim, correction).sqrt()
        return root.cast(least_upper_float(self.dtype))

    def var_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """The variance and the mean.

        >>> [x.item() for x in Tensor([1.0, 2.0, 3.0]).var_mean()]
        [1.0, 2.0]
        """
        return self.var(axis, keepdim, correction), self.mean(axis, keepdim)

    def std_mean(
        self, axis: Axes = None, keepdim: bool = False, correction: int = 1
    ) -> tuple[Self, Self]:
        """The standard deviation and the mean.

        >>> [x.item() for x in Tensor([1.0, 2.0, 3.0]).std_mean()]
        [1.0, 2.0]
        """
        return self.std(axis, keepdim, correction), self.mean(axis, keepdim)

    # ------------------------------------------------------------ places of extremes
    def argmax(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The place of the greatest element, the first one of several; of nan if there is one.

        >>> Tensor([1, 5, 5]).argmax().item()
        1
        """
        if axis is None:
            flat = self.flatten().argmax(0)
            return flat.reshape((1,) * self.ndim) if keepdim else flat
        place = self._axis(axis)
        if self.ndim == 0:
            return self._from_uop(self._constant(0).uop).cast(dtypes.default_int)
        count = self.shape[place]
        if is_int(count) and count == 0:
            raise ShapeError(
                f"argmax or argmin of shape {self.shape} along axis {axis}, which is empty: "
                "nothing has no place"
            )
        greatest = self.max(place, keepdim=True)
        found = self.eq(greatest) | self.isnan()
        # the first place is the one that most places follow
        shape = [count if i == place else 1 for i in range(self.ndim)]
        following = (self._iota(count) * -1 + count).reshape(shape)
        return found.where(following, 0).max(place, keepdim) * -1 + count

    def argmin(self, axis: int | None = None, keepdim: bool = False) -> Self:
        """The place of the least element, the first one of several; of nan if there is one.

        >>> Tensor([3, 1, 1]).argmin().item()
        1
        """
        return self.inverse().argmax(axis, keepdim)

    # ------------------------------------------------------------ exponentials
    def logsumexp(self, axis: Axes = None, keepdim: bool = False) -> Self:
        """log(sum(exp(x))) without overflow.

        >>> Tensor([0.0, 0.0]).logsumexp().item()
        0.6931471824645996
        """
        wide = self.cast(computing_dtype(self.dtype))
        if any(is_int(self.shape[i]) and self.shape[i] == 0 for i in self._axes(axis)):
            # the logarithm of a sum of nothing
            return wide.sum(axis, keepdim).log().cast(least_upper_float(self.dtype))
        greatest = wide.max(axis, keepdim=True)
        # of infinities nothing may be subtracted: inf - inf is nan
        shift = greatest.isfinite().where(greatest, greatest._constant(0))
        total = (wide - shift)._bounded_exp().sum(axis, keepdim).log()
        result = total + (shift if keepdim else shift.reshape(total.shape))
        return result.cast(least_upper_float(self.dtype))

    # ------------------------------------------------------------ along an axis
    def cumsum(self, axis: int = 0) -> Self:
        """The sum of each element and those before it.

        >>> Tensor([1, 2, 3]).cumsum().tolist()
        [1, 3, 6]
        """
        wide = self.cast(sum_dtype(self.dtype))
        result = wide._scan(axis, Ops.ADD)
        return result.cast(self.dtype) if dtypes.is_float(self.dtype) else result

    def cumprod(self, axis: int) -> Self:
        """The product of each element and those before it.

        >>> Tensor([1, 2, 3]).cumprod(0).tolist()
        [1, 2, 6]
        """
        wide = self.cast(sum_dtype(self.dtype))
        result = wide._scan(axis, Ops.MUL)
        if not dtypes.is_float(self.dtype):
            return result
        return result._of_scan("cumprod", (wide,), product_gradient, axis).cast(self.dtype)

    def cummax(self, axis: int = 0) -> tuple[Self, Self]:
        """The greatest of each element and those before it, and its place (the last of several).

        >>> [x.tolist() for x in Tensor([1, 3, 2]).cummax()]
        [[1, 3, 3], [0, 1, 1]]
        """
        place = self._axis(axis)
        values = self._scan(axis, Ops.MAX)
        if self.ndim == 0:
            return values, self._from_uop(self._constant(0).uop).cast(dtypes.default_int)
        count = self.shape[place]
        shape = [count if i == place else 1 for i in range(self.ndim)]
        positions = self._iota(count).reshape(shape)
        new = self.eq(values) | self.isnan()
        places = new.where(positions, 0)._scan(axis, Ops.MAX)
        if dtypes.is_float(self.dtype) and all(map(is_int, self.shape)):
            values = values._of_scan("cummax", (self, places), greatest_gradient, axis)
        return values, places

    def cummin(self, axis: int = 0) -> tuple[Self, Self]:
        """The least of each element and those before it, and its place (the last of several).

        >>> [x.tolist() for x in Tensor([3, 1, 2]).cummin()]
        [[3, 1, 1], [0, 1, 1]]
        """
        values, places = self.inverse().cummax(axis)
        return values.inverse(), places

    def logcumsumexp(self, axis: int = 0) -> Self:
        """log of the sum of exp of each element and those before it, without overflow.

        >>> Tensor([0.0, 0.0]).logcumsumexp().tolist()
        [0.0, 0.6931471824645996]
        """
        wide = self.cast(computing_dtype(self.dtype))
        place = self._axis(axis)
        result = wide._unchanged() if self.ndim == 0 else wide._scan_with(place, _LogSumExp)
        result = result._of_scan("logcumsumexp", (wide,), log_sum_gradient, axis)
        return result.cast(least_upper_float(self.dtype))

    def _of_scan(self, name: str, inputs: Any, rule: Any, axis: int) -> Self:
        """The prefixes, as a function of what was scanned; of one element they are that."""
        if self.ndim == 0:
            return self
        return self._with_rule(name, inputs, rule, (type(self), self._axis(axis)))

    def _scan(self, axis: int, op: Ops) -> Self:
        """Every prefix of an axis reduced with op."""
        place = self._axis(axis)
        if self.ndim == 0:
            return self._unchanged()
        neutral = self.dtype.min if op is Ops.MAX else {Ops.ADD: 0, Ops.MUL: 1}[op]
        scanned: Self = self._scan_with(place, _Fold(op, neutral))
        return scanned

    @built_once
    def _scan_with(self, place: int, fold: Any) -> Self:
        """Every prefix of an axis folded, in blocks: work linear in the number of elements.

        The blocks' totals are scanned in turn, and each block starts with what comes before it.
        """
        count = self.shape[place]
        before, after = self.shape[:place], self.shape[place + 1 :]
        if is_int(count) and count <= 1:
            return self._unchanged()
        width = self._scan_block(place, fold)
        is_little = (
            width == _SCAN_BLOCK and is_int(count) and (self.numel() * count <= _SCAN_AT_ONCE)
        )
        if not is_int(count) or count <= _SCAN_BLOCK or is_little:
            rows = self.reshape((*before, 1, count, *after))
            return rows._scan_blocks(place, fold).reshape(self.shape)
        blocks = ceildiv(count, width)
        filled = self
        if blocks * width != count:
            grow = [
                (0, blocks * width - size) if i == place else (0, 0)
                for i, size in enumerate(self.shape)
            ]
            filled = self._pad_constant(grow, fold.neutral)
        rows = filled.reshape((*before, blocks, width, *after))
        if blocks == 1:
            # stored whole: the group that scans a row holds all of it
            scanned = rows._scan_blocks(place, fold).contiguous()
            return scanned.reshape((*before, width, *after))._slice(place, 0, count)
        totals = fold.reduce(rows, place + 1)
        # the last block's total is nobody's start
        starts = totals._slice(place, 0, blocks - 1).contiguous()._scan_with(place, fold)
        first = [(1, 0) if i == place else (0, 0) for i in range(self.ndim)]
        starts = starts._pad_constant(first, fold.neutral).unsqueeze(place + 1)
        # stored in blocks: read through any other shape, lanes would have to be sorted out
        whole = fold.combine(rows._scan_blocks(place, fold), starts).contiguous()
        whole = whole.reshape((*before, blocks * width, *after))
        return whole._slice(place, 0, count)

    def _scan_block(self, place: int, fold: Any) -> int:
        """Elements of a block of a scan: what groups of threads scan together, where they do."""
        count, after = self.shape[place], self.shape[place + 1 :]
        if not isinstance(fold, _Fold) or not is_int(count) or not isinstance(self.device, str):
            return _SCAN_BLOCK
        if self.dtype.itemsize < 4 or any([not is_int(size) or size > 1 for size in after]):
            return _SCAN_BLOCK
        if count < _GROUP_UNIT or not machine_of(Device.canonicalize(self.device)).has_prefixes:
            return _SCAN_BLOCK
        whole: int = ceildiv(count, _GROUP_UNIT) * _GROUP_UNIT
        return whole if whole <= _GROUP_MOST else _GROUP_BLOCK

    def _scan_blocks(self, place: int, fold: Any) -> Self:
        """The prefixes of short rows along the axis after `place`: each place sees those before."""
        count = self.shape[place + 1]
        places = self._iota(count)
        sees = places.unsqueeze(1).ge(places)
        sees = sees.reshape((*sees.shape, *[1] * (self.ndim - place - 2)))
        seen = sees.where(self.unsqueeze(place + 1), self._constant(fold.neutral))
        return fold.reduce(seen, place + 2)

    # ------------------------------------------------------------ norms and comparison
    def normalize(self, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Self:
        """Divided by its p-norm along an axis.

        >>> Tensor([[3.0, 4.0]]).normalize().tolist()
        [[0.6000000238418579, 0.800000011920929]]
        """
        wide = self.cast(computing_dtype(self.dtype))
        norm = wide._norm(p, dim).maximum(eps)
        return (wide / norm).cast(least_upper_float(self.dtype))

    def _norm(self, p: float, dim: int) -> Self:
        if p == math.inf:
            return self.abs().max(dim, keepdim=True)
        if p == 0:
            return self.ne(0).sum(dim, keepdim=True).cast(self.dtype)
        if p == 2:
            return self.square().sum(dim, keepdim=True).sqrt()
        return self.abs().pow(p).sum(dim, keepdim=True).pow(1 / p)

    def isclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> Self:
        """Where the difference is at most atol + rtol * |other|.

        >>> Tensor([1.0, 2.0]).isclose(Tensor([1.0, 2.1])).tolist()
        [True, False]
        """
        y = self._operand(other)
        # a tolerance may be less than what a half type tells apart
        wide = product_dtype(least_upper_dtype(self.dtype, y.dtype, dtypes.uint8))
        apart = (self.cast(wide) - y.cast(wide)).abs()
        near = apart.le(y.cast(wide).abs() * rtol + atol) & self.isfinite() & y.isfinite()
        close = near | self.eq(y)
        return close | (self.isnan() & y.isnan()) if equal_nan else close

    def allclose(
        self, other: Any, rtol: float = 1e-05, atol: float = 1e-08, equal_nan: bool = False
    ) -> bool:
        """Whether `isclose` is true everywhere; it is computed now.

        >>> Tensor([1.0]).allclose(Tensor([1.0]))
        True
        """
        close: Any = self.isclose(other, rtol, atol, equal_nan).all()
        return bool(close.item())

    @in_wide_floats
    def _normalized(self, axis: Axes, eps: float) -> Self:
        centred = self - self.mean(axis, keepdim=True)
        return centred * (centred.square().mean(axis, keepdim=True) + eps).rsqrt()

    def _same_sized(self, name: str, other: Any) -> None:
        if other.shape != self.shape:
            raise ShapeError(f"{name} needs equal shapes, found {self.shape} and {other.shape}")

    @staticmethod
    def _checked_reduction(reduction: str) -> str:
        if reduction not in ("mean", "sum", "none"):
            raise ArgumentError(f'reduction is "mean", "sum" or "none", found {reduction!r}')
        return reduction
