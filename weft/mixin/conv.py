"""Convolution and pooling over any number of spatial axes.

In: tensors of shape (batch, channels, *space). Out: conv2d, conv_transpose2d, pools.
Sits above the engine, one of the Tensor families.
Invariant: a convolution is windows (pure movement) times weights, summed; no im2col is stored.
Where windows of three take less time by Winograd's way, they are summed by that.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Self

from weft.dtype import NARROW_FLOATS, DType, dtypes, least_upper_dtype, to_dtype
from weft.errors import ArgumentError, ShapeError
from weft.helpers import ceildiv, prod
from weft.mixin import check, winograd
from weft.mixin.dtype import product_dtype
from weft.mixin.linalg import LinalgMixin
from weft.mixin.movement import is_int
from weft.mixin.unary import in_wide_floats
from weft.uop.node import UOp

Sizes = int | Sequence[int]
# padding may be negative: it then cuts off
NO_LEAST = -(1 << 62)
# windows along an axis that an element may be in for their gradient to be one expression
MOST_OVERLAPPING = 8
# remainders of steps that are convolutions of their own
MOST_APART = 9


@dataclass(frozen=True)
class PoolGeometry:
    """Where the windows of a pool lie, along each axis of space."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: list[tuple[int, int]]  # before and after
    more: tuple[int, ...]  # what ceil_mode adds at the end

    @property
    def windows(self) -> tuple[tuple[int, ...], ...]:
        return self.kernel, self.stride, self.dilation

    @property
    def ends(self) -> list[tuple[int, int]]:
        """All that is added before and after."""
        pairs = zip(self.padding, self.more, strict=True)
        return [(before, after + more) for (before, after), more in pairs]


def per_axis(value: Sizes, rank: int, name: str, least: int = 0) -> tuple[int, ...]:
    """One number for each spatial axis, from one number or as many; none below `least`."""
    sizes = check.whole_numbers(name, value)
    if not isinstance(value, (tuple, list)):
        sizes *= rank
    if len(sizes) != rank:
        raise ArgumentError(f"{name} {value} needs one number, or {rank} for {rank} axes of space")
    return tuple([check.whole_number(name, size, least) for size in sizes])


def _turned(weight: Any, groups: int, parts: Sequence[int], taps: Sequence[int]) -> Any:
    """Weights (in, out / groups, *kernel) as those of the transpose: (out * parts, in / groups,
    *taps), reversed. Tap t of part r is weight t * parts + r, or 0 behind the last."""
    rank = len(parts)
    inner, outer = weight.shape[0] // groups, weight.shape[1]
    pairs = [
        (0, part * tap - width)
        for part, tap, width in zip(parts, taps, weight.shape[2:], strict=True)
    ]
    split = [n for part, tap in zip(parts, taps, strict=True) for n in (tap, part)]
    whole = weight._pad_space(pairs).reshape((groups, inner, outer, *split))
    tap_axes, part_axes = range(3, 3 + 2 * rank, 2), range(4, 4 + 2 * rank, 2)
    turned = whole.permute([0, 2, *part_axes, 1, *tap_axes]).flip(
        tuple(range(3 + rank, 3 + 2 * rank))
    )
    return turned.reshape((groups * outer * prod(parts), inner, *taps))


def _correlation_gradient(
    gradient: UOp, node: UOp, static: tuple[Any, ...]
) -> tuple[UOp | None, ...]:
    """To the input the transposed convolution of the gradient, to the weights the gradient times
    the windows, summed over batch and space: both reductions with the reuse of a matmul."""
    tensor, groups, steps, gaps, pads = static
    above = tensor._from_uop(gradient)
    below, weight = tensor._from_uop(node.src[1]), tensor._from_uop(node.src[2])
    kernel = weight.shape[2:]
    rank = len(kernel)
    padded = below._pad_space(pads)
    extra = [
        0 if step == 1 else (size - gap * (width - 1) - 1) % step
        for size, step, gap, width in zip(padded.shape[2:], steps, gaps, kernel, strict=True)
    ]
    to_below = above._scattered(weight.cast(above.dtype), groups, steps, gaps, extra, pads)
    windows = padded.cast(above.dtype)._pooled(kernel, steps, gaps)
    batch, space = windows.shape[0], windows.shape[2 : 2 + rank]
    inner, outer = weight.shape[1], weight.shape[0] // groups
    left = above.reshape((batch, groups, outer, 1, *space, *[1] * rank))
    right = windows.reshape((batch, groups, 1, inner, *space, *kernel))
    products = (left * right).sum((0, *range(4, 4 + rank)))
    to_weight = products.reshape(weight.shape)
    return to_below.cast(below.dtype).uop, to_weight.cast(weight.dtype).uop


def _windows_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """To each element the sum of what the windows that it is in have for it.

    Along an axis with step s an element i = m*s + r is element t*s + r of window m - t: as many
    shifted terms as windows overlap, and no index that is a quotient.
    """
    tensor, kernel, steps, gaps = static
    rank, below = len(kernel), node.src[1].shape
    kept = len(below) - rank
    # what overlaps is added up in a wide type, and rounded once
    total = tensor._from_uop(gradient.cast(product_dtype(gradient.dtype)))
    for axis in range(rank):
        total = total._overlapped(kept + axis, kept + rank, steps[axis], gaps[axis])
        # its remainders wait behind the last axis
        total = total.permute([i for i in range(total.ndim) if i != kept + rank] + [kept + rank])
    order = [i for axis in range(rank) for i in (kept + axis, kept + rank + axis)]
    total = total.permute([*range(kept), *order])
    if any(step > 1 for step in steps):
        # the remainders take turns in memory: as axes of their own they are written side by side
        total = total.contiguous()
    whole = [total.shape[i] * total.shape[i + 1] for i in range(kept, kept + 2 * rank, 2)]
    total = total.reshape((*below[:kept], *whole))
    ends = [(0, size - n) for size, n in zip(below[kept:], whole, strict=True)]
    return (total._pad_space(ends).cast(gradient.dtype).uop,)


def _overlaps(kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int]) -> list[int]:
    """How many windows an element is in, along each axis."""
    sizes = zip(kernel, steps, gaps, strict=True)
    return [ceildiv(width, step) if gap == 1 else width for width, step, gap in sizes]


class ConvMixin(LinalgMixin):
    """Windows over space."""

    __slots__ = ()

    def _padding_of(self, padding: Sizes, rank: int) -> list[tuple[int, int]]:
        """(before, after) for each spatial axis; twice as many numbers are PyTorch's pad order."""
        numbers = check.whole_numbers("padding", padding)
        if len(numbers) == 2 * rank and rank:
            pairs = [(numbers[i], numbers[i + 1]) for i in range(0, 2 * rank, 2)]
            return pairs[::-1]
        return [(n, n) for n in per_axis(padding, rank, "padding", NO_LEAST)]

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
        rank = self._check_conv(weight, bias, groups, "conv2d")
        kind = least_upper_dtype(self.dtype, weight.dtype)
        if kind in NARROW_FLOATS:
            whole = (groups, stride, dilation, padding)
            return self._in_wide_products(ConvMixin.conv2d, weight, bias, dtype or kind, whole)
        pads = self._padding_of(padding, rank)
        steps = per_axis(stride, rank, "stride", 1)
        gaps = per_axis(dilation, rank, "dilation", 1)
        return self._correlated(weight, groups, steps, gaps, pads, dtype)._with_bias(bias, rank)

    def _in_wide_products(
        self,
        convolution: Callable[..., Self],
        weight: Any,
        bias: Any,
        dtype: DType,
        settings: tuple[Any, ...],
    ) -> Self:
        """A convolution of half types: its products are exact, and it is rounded once, at its end,
        with the bias in it."""
        wide = dtypes.float32
        added = None if bias is None else bias.cast(wide)
        total = convolution(self.cast(wide), weight.cast(wide), added, *settings)
        return total.cast(dtype if bias is None else least_upper_dtype(dtype, bias.dtype))

    def _with_bias(self, bias: Any, rank: int) -> Self:
        """With one number added to each channel."""
        return self if bias is None else self + bias.reshape((1, -1, *[1] * rank))

    def _correlated(
        self,
        weight: Any,
        groups: int,
        steps: Sequence[int],
        gaps: Sequence[int],
        pads: Sequence[tuple[int, int]],
        dtype: DType | None = None,
    ) -> Self:
        """The windows of the input with zeros around it times the weights, summed."""
        padded = self._pad_space(pads)
        result = least_upper_dtype(self.dtype, weight.dtype)
        static = (type(self), groups, tuple(steps), tuple(gaps), tuple(pads))
        tiles = winograd.tiles_for(padded, weight, groups, steps, gaps) if dtype is None else None
        if tiles is not None:
            found: Self = winograd.correlate(
                padded.cast(result), weight.cast(result), groups, tiles
            )
            return found._with_rule("conv", (self, weight), _correlation_gradient, static)
        kernel = weight.shape[2:]
        rank = len(kernel)
        windows = padded._windows(kernel, steps, gaps)
        batch, space = windows.shape[0], windows.shape[2 : 2 + rank]
        inner, outer = weight.shape[1], weight.shape[0] // groups
        # batch, group, out channel, *space, in channel, *kernel
        left = windows.reshape((batch, groups, 1, inner, *space, *kernel))
        left = left.permute([0, 1, 2, *range(4, 4 + rank), 3, *range(4 + rank, 4 + 2 * rank)])
        right = weight.reshape((1, groups, outer, *[1] * rank, inner, *kernel))
        if dtype is not None:
            # products are as wide as their sum
            wide = product_dtype(to_dtype(dtype))
            left, right = left.cast(wide), right.cast(wide)
        summed = tuple(range(3 + rank, 4 + 2 * rank))
        total = (left * right).sum(summed, dtype=dtype)
        total = total if dtype is not None else total.cast(result)
        total = total.reshape((batch, groups * outer, *space))
        if not all(step == 1 or is_int(n) for step, n in zip(steps, padded.shape[2:], strict=True)):
            # how much of such an axis no window reaches is not a number
            return total
        return total._with_rule("conv", (self, weight), _correlation_gradient, static)

    def _check_conv(self, weight: Any, bias: Any, groups: int, name: str) -> int:
        """The number of axes of space, if everything fits."""
        check.tensors("weight", (weight,))
        if bias is not None:
            check.tensors("bias", (bias,))
        check.whole_number("groups", groups, least=1)
        rank = weight.ndim - 2
        if rank < 1 or self.ndim != rank + 2:
            raise ShapeError(
                f"{name} of shape {self.shape} with weights {weight.shape}: both have (batch or "
                "out, channels) and the same number of axes of space"
            )
        channels = self.shape[1]
        inner = weight.shape[1] * groups if name == "conv2d" else weight.shape[0]
        if inner != channels or weight.shape[0] % groups:
            raise ShapeError(
                f"{name} of shape {self.shape} with weights {weight.shape} in {groups} groups: the "
                f"input has {channels} channels, the weights are for {inner}"
            )
        outputs = weight.shape[0] if name == "conv2d" else weight.shape[1] * groups
        if bias is not None and bias.shape not in ((outputs,), (1,), ()):
            raise ShapeError(f"the bias of {outputs} outputs has shape {bias.shape}")
        return int(rank)

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
        rank = self._check_conv(weight, bias, groups, "conv_transpose2d")
        kind = least_upper_dtype(self.dtype, weight.dtype)
        if kind in NARROW_FLOATS:
            whole = (groups, stride, dilation, padding, output_padding)
            return self._in_wide_products(ConvMixin.conv_transpose2d, weight, bias, kind, whole)
        steps = per_axis(stride, rank, "stride", 1)
        gaps = per_axis(dilation, rank, "dilation", 1)
        extra = per_axis(output_padding, rank, "output_padding")
        cut = self._padding_of(padding, rank)
        return self._scattered(weight, groups, steps, gaps, extra, cut)._with_bias(bias, rank)

    def _scattered(
        self,
        weight: Any,
        groups: int,
        steps: Sequence[int],
        gaps: Sequence[int],
        extra: Sequence[int],
        cut: Sequence[tuple[int, int]],
    ) -> Self:
        """The transpose of `_correlated`: each element adds its multiple of the weights.

        Weights are (in, out / groups, *kernel); `extra` zeros follow at the end of each axis. What
        is `cut` off before and after is not computed where elements stand one apart.
        Along an axis with step s, the places with remainder r meet every s-th weight from the r-th
        on: s plain convolutions with fewer weights, as channels of one. So nothing is multiplied
        with the zeros between elements.
        """
        rank = len(steps)
        if self._is_uneven(weight, steps, gaps):
            return self._scattered_apart(weight, groups, steps, gaps, extra, cut)
        source, pairs, taps = self, [], []
        apart = list(steps)
        for axis, (gap, width, more) in enumerate(zip(gaps, weight.shape[2:], extra, strict=True)):
            if gap > 1 and apart[axis] > 1:
                # with gaps each weight has its own remainder: zeros between the elements, then
                source = source._spread(2 + axis, apart[axis])
                apart[axis] = 1
            taps.append(ceildiv(width, apart[axis]))
            reach = gap * (width - 1) + 1 + more
            before, after = cut[axis] if apart[axis] == 1 else (0, 0)
            pairs.append(((taps[axis] - 1) * gap - before, ceildiv(reach, apart[axis]) - 1 - after))
        parts = [min(step, width) for step, width in zip(apart, weight.shape[2:], strict=True)]
        turned = _turned(weight, groups, parts, taps)
        dilation = [gap if step == 1 else 1 for gap, step in zip(gaps, apart, strict=True)]
        sums = source._correlated(turned, groups, [1] * rank, dilation, pairs)
        if all(step == 1 for step in apart):
            return sums
        batch, rounds = sums.shape[0], sums.shape[2:]
        sums = sums.reshape((batch, groups * weight.shape[1], *parts, *rounds))
        none = [(0, step - part) for step, part in zip(apart, parts, strict=True)]
        sums = sums._pad_space([*none, *[(0, 0)] * rank])
        sums = sums.permute([0, 1, *[n for i in range(rank) for n in (2 + rank + i, 2 + i)]])
        whole = [n * step for n, step in zip(rounds, apart, strict=True)]
        sums = sums.reshape((batch, groups * weight.shape[1], *whole))
        ends = [
            (0, n) if step == 1 else (0, (m - 1) * step + gap * (width - 1) + 1 + more)
            for n, m, step, gap, width, more in zip(
                whole, source.shape[2:], apart, gaps, weight.shape[2:], extra, strict=True
            )
        ]
        pads = [
            (0, 0) if step == 1 else (-before, -after)
            for step, (before, after) in zip(apart, cut, strict=True)
        ]
        return sums.shrink([None, None, *ends])._pad_space(pads)

    def _is_uneven(self, weight: Any, steps: Sequence[int], gaps: Sequence[int]) -> bool:
        """Whether remainders have different numbers of weights, which zeros would make equal."""
        kernel = weight.shape[2:]
        if not all(is_int(n) for n in self.shape[2:]) or prod(steps) > MOST_APART:
            return False
        if any(gap > 1 and step > 1 for gap, step in zip(gaps, steps, strict=True)):
            return False
        return any(width > step and width % step for width, step in zip(kernel, steps, strict=True))

    def _scattered_apart(
        self,
        weight: Any,
        groups: int,
        steps: Sequence[int],
        gaps: Sequence[int],
        extra: Sequence[int],
        cut: Sequence[tuple[int, int]],
    ) -> Self:
        """`_scattered` with a convolution of its own for each remainder, of its weights alone."""
        kernel = weight.shape[2:]
        rank = len(steps)
        sizes, rounds = [], []
        for m, step, gap, width, more, (before, after) in zip(
            self.shape[2:], steps, gaps, kernel, extra, cut, strict=True
        ):
            sizes.append((m - 1) * step + gap * (width - 1) + 1 + more - before - after)
            rounds.append(ceildiv(sizes[-1], step))
        pieces: list[Self] = []
        for places in product(*[range(step) for step in steps]):
            pads, part, taps = [], weight, []
            for axis, (place, step, gap) in enumerate(zip(places, steps, gaps, strict=True)):
                first, remainder = divmod(place + cut[axis][0], step)
                part = part[(*[slice(None)] * (2 + axis), slice(remainder, None, step))]
                taps.append(part.shape[2 + axis])
                m = self.shape[2 + axis]
                pads.append((gap * (taps[-1] - 1) - first, first + rounds[axis] - m))
            turned = _turned(part, groups, [1] * rank, taps)
            pieces.append(self._correlated(turned, groups, [1] * rank, gaps, pads))
        # the last axis first: remainders stand behind what they are remainders of
        for axis in reversed(range(rank)):
            step = steps[axis]
            if step > 1:
                rows = [pieces[i : i + step] for i in range(0, len(pieces), step)]
                pieces = [row[0].stack(*row[1:], dim=3 + axis) for row in rows]
        total = pieces[0].reshape(
            (
                self.shape[0],
                groups * weight.shape[1],
                *[n * step for n, step in zip(rounds, steps, strict=True)],
            )
        )
        return total.shrink([None, None, *[(0, n) for n in sizes]])

    def _spread(self, axis: int, step: int) -> Self:
        """Zeros between the elements of an axis, so that they stand `step` apart."""
        before, n, after = self.shape[:axis], self.shape[axis], self.shape[axis + 1 :]
        apart = self.reshape((*before, n, 1, *after))
        zeros = [(0, step - 1) if i == axis + 1 else (0, 0) for i in range(apart.ndim)]
        wide = apart._pad_zeros(zeros).reshape((*before, n * step, *after))
        return wide._slice(axis, 0, (n - 1) * step + 1)

    # ------------------------------------------------------------ windows with a gradient
    def _pooled(self, kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int]) -> Self:
        """The windows over the last axes, whose gradient adds up what overlaps."""
        windows = self._windows(kernel, steps, gaps)
        terms = _overlaps(kernel, steps, gaps)
        space = self.shape[-len(kernel) :]
        if prod(terms) == 1 or max(terms) > MOST_OVERLAPPING or not all(map(is_int, space)):
            # nothing overlaps, or so much that one expression would be too long
            return windows
        static = (type(self), tuple(kernel), tuple(steps), tuple(gaps))
        return windows._with_rule("windows", (self,), _windows_gradient, static)

    def _pool_windows(
        self, kernel: Sequence[int], steps: Sequence[int], gaps: Sequence[int]
    ) -> tuple[Self, tuple[int, ...]]:
        """The same, and which of its axes count the elements of a window.

        Where nothing overlaps, all axes stay in order, and so does what a gradient stores.
        """
        rank = len(kernel)
        kept = self.ndim - rank
        end = kept + 2 * rank
        if prod(_overlaps(kernel, steps, gaps)) == 1:
            return self._window_pairs(kernel, steps, gaps), tuple(range(kept + 1, end, 2))
        return self._pooled(kernel, steps, gaps), tuple(range(kept + rank, end))

    def _overlapped(self, place: int, inside: int, step: int, gap: int) -> Self:
        """Windows at `place` with elements `inside` added up where they overlap.

        The axis `place` counts rounds of `step` elements afterwards, `inside` the step's elements.
        """
        width = self.shape[inside]
        if gap > 1:
            source, shifts = self._spread(place, step) if step > 1 else self, gap
            parts, terms = 1, width
        else:
            parts, terms = min(step, width), ceildiv(width, step)
            source, shifts = self._pad_axis(inside, 0, parts * terms - width), 1
        total: Self | None = None
        for term in range(terms):
            part = source._slice(inside, term * parts, (term + 1) * parts)
            part = part._pad_axis(place, term * shifts, (terms - 1 - term) * shifts)
            total = part if total is None else total + part
        assert total is not None
        return total._pad_axis(inside, 0, step - parts) if gap == 1 else total

    def _pad_axis(self, axis: int, before: int, after: int) -> Self:
        if not before and not after:
            return self
        pairs = [(before, after) if i == axis else (0, 0) for i in range(self.ndim)]
        return self._pad_zeros(pairs)

    # ------------------------------------------------------------ pooling
    def _pool_geometry(
        self, kernel_size: Sizes, stride: Sizes | None, dilation: Sizes, padding: Sizes, ceil: bool
    ) -> PoolGeometry:
        numbers = check.whole_numbers("kernel_size", kernel_size)
        if not numbers:
            raise ArgumentError("kernel_size has a number for each axis of space, found none")
        rank = min(len(numbers) if isinstance(kernel_size, (tuple, list)) else 2, self.ndim)
        kernel = per_axis(kernel_size, rank, "kernel_size", 1)
        steps = per_axis(kernel if stride is None else stride, rank, "stride", 1)
        gaps = per_axis(dilation, rank, "dilation", 1)
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
        return PoolGeometry(kernel, steps, gaps, pairs, tuple(more))

    @in_wide_floats
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
        pool = self._pool_geometry(kernel_size, stride, dilation, padding, ceil_mode)
        rank = len(pool.kernel)
        windows, inside = self._pad_space(pool.ends)._pool_windows(*pool.windows)
        is_padded = any(n for pair in pool.padding for n in pair)
        if not any(pool.more) and (count_include_pad or not is_padded):
            return windows.mean(inside)
        # windows over the edge: what counts is 1, what does not is 0
        ones = self._constant(1).expand(self.shape[-rank:])
        if count_include_pad:
            ones = ones._pad_space(pool.padding, 1.0)._pad_space([(0, c) for c in pool.more])
        else:
            ones = ones._pad_space(pool.ends)
        counts = ones._windows(*pool.windows).sum(tuple(range(-rank, 0)))
        return windows.sum(inside) / counts

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
        pool = self._pool_geometry(kernel_size, stride, dilation, padding, ceil_mode)
        rank, ends, lowest = len(pool.kernel), pool.ends, self.dtype.min
        windows, inside = self._pad_lowest(ends, lowest)._pool_windows(*pool.windows)
        greatest = windows.max(inside)
        if not return_indices:
            return greatest
        space = self.shape[-rank:]
        places = self._iota(prod(space)).reshape(space)
        # the first place that holds the greatest: the one with the most places after it
        left = prod(space) - places
        left, _ = left._pad_space(ends)._pool_windows(*pool.windows)
        top = greatest.reshape([1 if i in inside else n for i, n in enumerate(windows.shape)])
        hits = windows.eq(top) | windows.isnan()
        # places have axes of space alone
        fewer = self.ndim - rank
        left = left.reshape((*[1] * fewer, *left.shape))
        return greatest, prod(space) - hits.where(left, 0).max(inside)

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
        check.tensors("indices", (indices,))
        pool = self._pool_geometry(kernel_size, stride, dilation, padding, False)
        rank = len(pool.kernel)
        space = self.shape[-rank:]
        if output_size is None:
            sizes = tuple(
                (n - 1) * step - sum(pair) + gap * (width - 1) + 1
                for n, pair, width, step, gap in zip(
                    space, pool.padding, *pool.windows, strict=True
                )
            )
        else:
            sizes = check.whole_numbers("output_size", output_size)[-rank:]
        kept = self.shape[:-rank]
        flat = self.reshape((*kept, prod(space)))
        places = indices.reshape((*kept, prod(space)))
        nothing = self._constant(0).expand((*kept, prod(sizes)))
        return nothing.scatter(-1, places, flat).reshape((*kept, *sizes))
