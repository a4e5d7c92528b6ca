"""Convolution and pooling over any number of spatial axes.

In: tensors of shape (batch, channels, *space). Out: conv2d, conv_transpose2d, pools.
Sits above the engine, one of the Tensor families.
Invariant: a convolution is windows (pure movement) times weights, summed; no im2col is stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from weft.dtype import DType, dtypes, least_upper_dtype
from weft.errors import ArgumentError, ShapeError
from weft.helpers import ceildiv, prod
from weft.mixin.linalg import LinalgMixin

Sizes = int | Sequence[int]


def per_axis(value: Sizes, rank: int, name: str) -> tuple[int, ...]:
    """One number for each spatial axis, from one number or as many."""
    sizes = (value,) * rank if isinstance(value, int) else tuple(value)
    if len(sizes) != rank:
        raise ArgumentError(f"{name} {value} needs one number, or {rank} for {rank} axes of space")
    return sizes


class ConvMixin(LinalgMixin):
    """Windows over space."""

    __slots__ = ()

    def _padding_of(self, padding: Sizes, rank: int) -> list[tuple[int, int]]:
        """(before, after) for each spatial axis; twice as many numbers are PyTorch's pad order."""
        if not isinstance(padding, int) and len(padding) == 2 * rank and rank:
            pairs = [(padding[i], padding[i + 1]) for i in range(0, 2 * rank, 2)]
            return pairs[::-1]
        return [(n, n) for n in per_axis(padding, rank, "padding")]

    def _pad_space(self, pairs: Sequence[tuple[int, int]], value: float = 0.0) -> Self:
        if not any(n for pair in pairs for n in pair):
            return self
        kept = self.ndim - len(pairs)
        return self._pad_constant([(0, 0)] * kept + list(pairs), value)

    # ------------------------------------------------------------ convolution
    def conv2d(
        self,
        weight: Any,
        bias: Any = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        dtype: DType | None = None,
    ) -> Self:
        """Convolution with weights (out, in / groups, *kernel), in as many axes as the kernel has.

        >>> Tensor.ones(1, 1, 3, 3).conv2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[4.0, 4.0], [4.0, 4.0]]]]
        """
        kernel = weight.shape[2:]
        rank = len(kernel)
        self._check_conv(weight, groups, "conv2d", self.shape[1] if self.ndim > 1 else 0)
        padded = self._pad_space(self._padding_of(padding, rank))
        windows = padded._windows(
            kernel, per_axis(stride, rank, "stride"), per_axis(dilation, rank, "dilation")
        )
        batch, space = windows.shape[0], windows.shape[2 : 2 + rank]
        inner, outer = weight.shape[1], weight.shape[0] // groups
        # batch, group, out channel, *space, in channel, *kernel
        left = windows.reshape((batch, groups, 1, inner, *space, *kernel))
        left = left.permute([0, 1, 2, *range(4, 4 + rank), 3, *range(4 + rank, 4 + 2 * rank)])
        right = weight.reshape((1, groups, outer, *[1] * rank, inner, *kernel))
        if dtype is not None:
            left, right = left.cast(dtype), right.cast(dtype)
        result = least_upper_dtype(self.dtype, weight.dtype)
        summed = tuple(range(3 + rank, 4 + 2 * rank))
        total = (left * right).sum(summed, dtype=dtype)
        total = total if dtype is not None else total.cast(result)
        total = total.reshape((batch, groups * outer, *space))
        return total if bias is None else total + bias.reshape((1, -1, *[1] * rank))

    def _check_conv(self, weight: Any, groups: int, name: str, channels: Any) -> None:
        rank = weight.ndim - 2
        if rank < 1 or self.ndim != rank + 2:
            raise ShapeError(
                f"{name} of shape {self.shape} with weights {weight.shape}: both have (batch or "
                "out, channels) and the same number of axes of space"
            )
        inner = weight.shape[1] * groups if name == "conv2d" else weight.shape[0]
        if inner != channels or weight.shape[0] % groups:
            raise ShapeError(
                f"{name} of shape {self.shape} with weights {weight.shape} in {groups} groups: the "
                f"input has {channels} channels, the weights are for {inner}"
            )

    def conv_transpose2d(
        self,
        weight: Any,
        bias: Any = None,
        groups: int = 1,
        stride: Sizes = 1,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_padding: Sizes = 0,
    ) -> Self:
        """The transpose of `conv2d`, with weights (in, out / groups, *kernel).

        >>> Tensor.ones(1, 1, 2, 2).conv_transpose2d(Tensor.ones(1, 1, 2, 2)).tolist()
        [[[[1.0, 2.0, 1.0], [2.0, 4.0, 2.0], [1.0, 2.0, 1.0]]]]
        """
        kernel = weight.shape[2:]
        rank = len(kernel)
        self._check_conv(weight, groups, "conv_transpose2d", self.shape[1])
        steps = per_axis(stride, rank, "stride")
        gaps = per_axis(dilation, rank, "dilation")
        extra = per_axis(output_padding, rank, "output_padding")
        space = tuple(range(3, 3 + rank))
        turned = weight.reshape((groups, weight.shape[0] // groups, *weight.shape[1:]))
        turned = turned.transpose(1, 2).flip(space)
        turned = turned.reshape((-1, weight.shape[0] // groups, *kernel))
        spread = self._spread(steps)
        pairs = [
            ((width - 1) * gap - before, (width - 1) * gap - after + more)
            for width, gap, (before, after), more in zip(
                kernel, gaps, self._padding_of(padding, rank), extra, strict=True
            )
        ]
        return spread._pad_space(pairs).conv2d(turned, bias, groups, dilation=gaps)

    def _spread(self, steps: Sequence[int]) -> Self:
        """Zeros between the elements of the spatial axes, so that they stand `steps` apart."""
        if all(step == 1 for step in steps):
            return self
        kept, space = self.shape[: -len(steps)], self.shape[-len(steps) :]
        apart = self.reshape((*kept, *[part for size in space for part in (size, 1)]))
        grow = [(0, 0)] * len(kept) + [p for step in steps for p in ((0, 0), (0, step - 1))]
        wide = apart._pad_zeros(grow)
        wide = wide.reshape((*kept, *[n * step for n, step in zip(space, steps, strict=True)]))
        ends = [(0, n * step - step + 1) for n, step in zip(space, steps, strict=True)]
        return wide.shrink([None] * len(kept) + ends)

    # ------------------------------------------------------------ pooling
    def _pool_geometry(
        self, kernel_size: Sizes, stride: Sizes | None, dilation: Sizes, padding: Sizes, ceil: bool
    ) -> tuple[tuple[int, ...], ...]:
        """Kernel, stride, dilation, padding before and after, what ceil_mode adds at the end."""
        rank = 2 if isinstance(kernel_size, int) else len(kernel_size)
        rank = min(rank, self.ndim)
        kernel = per_axis(kernel_size, rank, "kernel_size")
        steps = per_axis(kernel if stride is None else stride, rank, "stride")
        gaps = per_axis(dilation, rank, "dilation")
        pairs = self._padding_of(padding, rank)
        more = [0] * rank
        if ceil:
            for i, size in enumerate(self.shape[-rank:]):
                whole = size + sum(pairs[i])
                reach = gaps[i] * (kernel[i] - 1) + 1
                count = ceildiv(whole - reach, steps[i]) + 1
                # a window must start inside the input or its padding before
                if (count - 1) * steps[i] >= size + pairs[i][0]:
                    count -= 1
                more[i] = max(0, (count - 1) * steps[i] + reach - whole)
        before = tuple(pair[0] for pair in pairs)
        after = tuple(pair[1] for pair in pairs)
        return kernel, steps, gaps, before, after, tuple(more)

    def avg_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        count_include_pad: bool = True,
    ) -> Self:
        """The averages of windows over the last axes.

        >>> Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).avg_pool2d().tolist()
        [[[[2.5]]]]
        """
        kernel, steps, gaps, before, after, more = self._pool_geometry(
            kernel_size, stride, dilation, padding, ceil_mode
        )
        rank = len(kernel)
        axes = tuple(range(-rank, 0))
        ends = [(a, b + c) for a, b, c in zip(before, after, more, strict=True)]
        windows = self._pad_space(ends)._windows(kernel, steps, gaps)
        if not any(more) and (count_include_pad or not any(before + after)):
            return windows.mean(axes)
        # windows over the edge: what counts is 1, what does not is 0
        ones = self._constant(1).expand(self.shape[-rank:])
        if count_include_pad:
            ones = ones._pad_space(list(zip(before, after, strict=True)), 1.0)
            ones = ones._pad_space([(0, c) for c in more])
        else:
            ones = ones._pad_space(ends)
        counts = ones._windows(kernel, steps, gaps).sum(axes)
        return windows.sum(axes) / counts

    def max_pool2d(
        self,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        ceil_mode: bool = False,
        return_indices: bool = False,
    ) -> Any:
        """The greatest of windows over the last axes; with `return_indices` also their places.

        >>> Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).max_pool2d().tolist()
        [[[[4.0]]]]
        """
        kernel, steps, gaps, before, after, more = self._pool_geometry(
            kernel_size, stride, dilation, padding, ceil_mode
        )
        rank = len(kernel)
        ends = [(a, b + c) for a, b, c in zip(before, after, more, strict=True)]
        lowest = self.dtype.min
        windows = self._pad_lowest(ends, lowest)._windows(kernel, steps, gaps)
        greatest = windows.max(tuple(range(-rank, 0)))
        if not return_indices:
            return greatest
        space = self.shape[-rank:]
        places = self._iota(prod(space)).reshape(space)
        # the first place that holds the greatest: the one with the most places after it
        left = prod(space) - places
        left = left._pad_space(ends)._windows(kernel, steps, gaps)
        top = greatest.reshape((*greatest.shape, *[1] * rank))
        hits = windows.eq(top) | windows.isnan()
        return greatest, prod(space) - hits.where(left, 0).max(tuple(range(-rank, 0)))

    def _pad_lowest(self, pairs: Sequence[tuple[int, int]], lowest: Any) -> Self:
        """Padding that no maximum takes, in this dtype."""
        padded = self._pad_space(pairs)
        if padded is self:
            return self
        space = self.shape[-len(pairs) :]
        inside = self._constant(1).cast(dtypes.bool).expand(space)._pad_space(pairs)
        return inside.where(padded, padded._constant(lowest))

    def max_unpool2d(
        self,
        indices: Any,
        kernel_size: Sizes = (2, 2),
        stride: Sizes | None = None,
        dilation: Sizes = 1,
        padding: Sizes = 0,
        output_size: Sequence[int] | None = None,
    ) -> Self:
        """The inverse of `max_pool2d`: values back at their places, zeros elsewhere.

        >>> x, places = Tensor([[[[1.0, 2.0], [3.0, 4.0]]]]).max_pool2d(return_indices=True)
        >>> x.max_unpool2d(places).tolist()
        [[[[0.0, 0.0], [0.0, 4.0]]]]
        """
        kernel, steps, gaps, before, after, _ = self._pool_geometry(
            kernel_size, stride, dilation, padding, False
        )
        rank = len(kernel)
        space = self.shape[-rank:]
        if output_size is None:
            sizes = tuple(
                (n - 1) * step - a - b + gap * (width - 1) + 1
                for n, step, a, b, gap, width in zip(
                    space, steps, before, after, gaps, kernel, strict=True
                )
            )
        else:
            sizes = tuple(output_size)[-rank:]
        kept = self.shape[:-rank]
        flat = self.reshape((*kept, prod(space)))
        places = indices.reshape((*kept, prod(space)))
        nothing = self._constant(0).expand((*kept, prod(sizes)))
        return nothing.scatter(-1, places, flat).reshape((*kept, *sizes))
