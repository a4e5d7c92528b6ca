"""Convolutions, pools, resizing, and their gradients.

In: Tensors whose last axes are space. Out: Tensors. A family of the table of lowerings.
Invariant: a gradient is that of the very expression that the forward operator is lowered to, so
what one can do, the other can.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.helpers import ceildiv, prod
from weft.tensor import Tensor
from weft.torch.table import Call, lowers, refuse


def gradients(
    function: Callable[..., Tensor], inputs: list[Tensor], gradient: Tensor, wanted: Any
) -> list[Tensor | None]:
    """The gradients of a function of Tensors to those that are wanted, whatever they are made of.

    Of leaves: a weight that also stands behind the input is not differentiated through it.
    """
    leaves = [value.detach() for value in inputs]
    result = function(*leaves)
    asked = [leaf for leaf, is_wanted in zip(leaves, wanted, strict=True) if is_wanted]
    found = iter(result.gradient(*asked, gradient=gradient.cast(result.dtype)))
    return [next(found) if is_wanted else None for is_wanted in wanted]


def slope(function: Callable[[Tensor], Tensor], x: Tensor, gradient: Tensor) -> Tensor:
    """The gradient of a function of one Tensor."""
    (found,) = gradients(function, [x], gradient, [True])
    assert found is not None
    return found


# ------------------------------------------------------------ convolution
def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    stride: Any,
    padding: Any,
    dilation: Any,
    is_transposed: bool,
    output_padding: Any,
    groups: int,
) -> Tensor:
    """What `aten.convolution` is."""
    rank = weight.ndim - 2
    has_batch = x.ndim == rank + 2
    source = x if has_batch else x.unsqueeze(0)
    steps, pads, gaps = (_each(value, rank) for value in (stride, padding, dilation))
    sides = [side for pad in reversed(pads) for side in (pad, pad)]
    if is_transposed:
        extra = _each(output_padding, rank)
        made = source.conv_transpose2d(weight, bias, groups, steps, gaps, pads, extra)
    else:
        made = source.conv2d(weight, bias, groups, steps, gaps, sides)
    return made if has_batch else made.squeeze(0)


def _each(value: Any, rank: int) -> tuple[int, ...]:
    given = tuple(value) if isinstance(value, (list, tuple)) else (value,)
    return given * rank if len(given) == 1 else given


lowers("convolution")(convolve)


@lowers("convolution_backward")
def convolution_backward(
    gradient: Tensor,
    x: Tensor,
    weight: Tensor,
    bias_sizes: Any,
    stride: Any,
    padding: Any,
    dilation: Any,
    is_transposed: bool,
    output_padding: Any,
    groups: int,
    wanted: Any,
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    def forward(source: Tensor, weights: Tensor) -> Tensor:
        return convolve(
            source, weights, None, stride, padding, dilation, is_transposed, output_padding, groups
        )

    to_x, to_weight = (
        gradients(forward, [x, weight], gradient, wanted[:2]) if any(wanted[:2]) else (None, None)
    )
    to_bias = None
    if wanted[2]:
        channels = gradient.ndim - (weight.ndim - 2) - 1
        to_bias = gradient.sum(tuple([i for i in range(gradient.ndim) if i != channels]))
    return to_x, to_weight, to_bias


# ------------------------------------------------------------ pools
def _max_pool(
    x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, is_ceil: bool, indices: bool
) -> Any:
    rank = len(kernel)
    steps = tuple(stride) if stride else tuple(kernel)
    return x.max_pool2d(
        tuple(kernel),
        _each(steps, rank),
        _each(dilation, rank),
        _sides(padding, rank),
        is_ceil,
        indices,
    )


def _sides(padding: Any, rank: int) -> list[int]:
    pads = _each(padding, rank)
    return [side for pad in reversed(pads) for side in (pad, pad)]


for _rank in (1, 2, 3):

    @lowers(f"max_pool{_rank}d_with_indices")
    def max_pool(
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        is_ceil: bool = False,
        *,
        rank: int = _rank,
    ) -> Any:
        return tuple(_max_pool(x, _each(kernel, rank), stride, padding, dilation, is_ceil, True))

    @lowers(f"max_pool{_rank}d")
    def max_pool_alone(
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        dilation: Any = 1,
        is_ceil: bool = False,
        *,
        rank: int = _rank,
    ) -> Any:
        return _max_pool(x, _each(kernel, rank), stride, padding, dilation, is_ceil, False)

    @lowers(f"max_pool{_rank}d_with_indices_backward")
    def max_pool_backward(
        gradient: Tensor,
        x: Tensor,
        kernel: Any,
        stride: Any,
        padding: Any,
        dilation: Any,
        is_ceil: bool,
        indices: Tensor,
        *,
        rank: int = _rank,
    ) -> Tensor:
        """Each element collects from the windows that took it.

        Gathered, not scattered: of the few windows over an element, those whose place it is.
        """
        return _collected(gradient, x, _each(kernel, rank), stride, padding, dilation, indices)

    @lowers(f"avg_pool{_rank}d")
    def avg_pool(
        x: Tensor,
        kernel: Any,
        stride: Any = (),
        padding: Any = 0,
        is_ceil: bool = False,
        counts_padding: bool = True,
        divisor: Any = None,
        *,
        rank: int = _rank,
    ) -> Tensor:
        return _avg_pool(x, _each(kernel, rank), stride, padding, is_ceil, counts_padding, divisor)

    @lowers(f"avg_pool{_rank}d_backward")
    def avg_pool_backward(
        gradient: Tensor,
        x: Tensor,
        kernel: Any,
        stride: Any,
        padding: Any,
        is_ceil: bool,
        counts_padding: bool,
        divisor: Any,
        *,
        rank: int = _rank,
    ) -> Tensor:
        def forward(source: Tensor) -> Tensor:
            return _avg_pool(
                source, _each(kernel, rank), stride, padding, is_ceil, counts_padding, divisor
            )

        return slope(forward, x, gradient)

    @lowers(f"_adaptive_avg_pool{_rank}d", f"adaptive_avg_pool{_rank}d")
    def adaptive_avg_pool(x: Tensor, sizes: Any, *, rank: int = _rank) -> Tensor:
        return _adaptive_avg_pool(x, _each(sizes, rank))

    @lowers(f"_adaptive_avg_pool{_rank}d_backward")
    def adaptive_avg_pool_backward(gradient: Tensor, x: Tensor, *, rank: int = _rank) -> Tensor:
        sizes = gradient.shape[-rank:]

        def forward(source: Tensor) -> Tensor:
            return _adaptive_avg_pool(source, sizes)

        return slope(forward, x, gradient)

    @lowers(f"adaptive_max_pool{_rank}d")
    def adaptive_max_pool(x: Tensor, sizes: Any, *, rank: int = _rank) -> Any:
        wanted = _each(sizes, rank)
        space = x.shape[-rank:]
        if any(n % m for n, m in zip(space, wanted, strict=True)):
            raise refuse("adaptive_max_pool with windows of different sizes")
        kernel = tuple(n // m for n, m in zip(space, wanted, strict=True))
        return tuple(_max_pool(x, kernel, kernel, 0, 1, False, True))


def _collected(
    gradient: Tensor,
    x: Tensor,
    kernel: tuple[int, ...],
    stride: Any,
    padding: Any,
    dilation: Any,
    indices: Tensor,
) -> Tensor:
    rank = len(kernel)
    steps = _each(stride, rank) if stride else kernel
    pads, gaps = _each(padding, rank), _each(dilation, rank)
    space, small = x.shape[-rank:], gradient.shape[-rank:]
    if any(gap != 1 for gap in gaps):
        kept = x.shape[:-rank]
        flat = Tensor.zeros(*kept, prod(space), dtype=gradient.dtype)
        places = indices.reshape((*kept, prod(small)))
        values = gradient.reshape((*kept, prod(small)))
        return flat.scatter_reduce(-1, places, values, "sum").reshape(x.shape)
    # the windows over an element along an axis: the first one, and how many there may be
    total: Any = None
    counts = [ceildiv(width, step) for width, step in zip(kernel, steps, strict=True)]
    place = Tensor.arange(prod(space)).reshape(space)
    for number in range(prod(counts)):
        parts: list[int] = []
        rest = number
        for count in reversed(counts):
            parts.insert(0, rest % count)
            rest //= count
        taken, seen = gradient, indices
        for axis in range(rank):
            taken = _window_number(
                taken, axis - rank, space[axis], steps[axis], pads[axis], parts[axis], 0
            )
            seen = _window_number(
                seen, axis - rank, space[axis], steps[axis], pads[axis], parts[axis], -1
            )
        share = seen.eq(place).where(taken, 0)
        total = share if total is None else total + share
    return total


def _window_number(
    x: Tensor, axis: int, size: int, step: int, pad: int, back: int, nothing: int
) -> Tensor:
    """For each element along an axis, the value of window number (element + pad) // step - back."""
    many = x.shape[axis]
    # window w serves the elements w * step - pad ... of which it is the last to begin
    first = pad - back * step
    lead = (pad + step - 1) // step + back + 1
    whole = [(0, 0)] * x.ndim
    last = (size - 1 + pad) // step - back
    after = max(0, last - (many - 1))
    whole[axis % x.ndim] = (lead, after)
    padded = x.pad(tuple(whole), value=nothing)
    spread = padded.repeat_interleave(step, axis)
    start = lead * step + first
    limits: list[Any] = [None] * x.ndim
    limits[axis % x.ndim] = (start, start + size)
    return spread.shrink(tuple(limits))


def _avg_pool(
    x: Tensor,
    kernel: tuple[int, ...],
    stride: Any,
    padding: Any,
    is_ceil: bool,
    counts_padding: bool,
    divisor: Any,
) -> Tensor:
    rank = len(kernel)
    steps = _each(stride, rank) if stride else kernel
    sides = _sides(padding, rank)
    if divisor is not None:
        sums = x.avg_pool2d(kernel, steps, 1, sides, is_ceil, True)
        if is_ceil:
            raise refuse("avg_pool with a divisor and windows over the edge")
        return sums * (prod(kernel) / divisor)
    return x.avg_pool2d(kernel, steps, 1, sides, is_ceil, counts_padding)


def _adaptive_avg_pool(x: Tensor, sizes: Any) -> Tensor:
    """Windows that begin at floor(i * n / m) and end at ceil((i + 1) * n / m), axis by axis."""
    rank = len(sizes)
    wanted = [x.shape[i - rank] if size is None else size for i, size in enumerate(sizes)]
    if all(size == 1 for size in wanted):
        return x.mean(tuple(range(-rank, 0)), keepdim=True)
    space = x.shape[-rank:]
    if all(isinstance(n, int) and n % m == 0 for n, m in zip(space, wanted, strict=True)):
        kernel = tuple(n // m for n, m in zip(space, wanted, strict=True))
        return x.avg_pool2d(kernel, kernel)
    for axis, new in enumerate(wanted, -rank):
        old = x.shape[axis]
        parts = []
        for place in range(new):
            first, last = place * old // new, ceildiv((place + 1) * old, new)
            limits: list[Any] = [None] * x.ndim
            limits[axis] = (first, last)
            parts.append(x.shrink(tuple(limits)).mean(axis, keepdim=True))
        x = parts[0].cat(*parts[1:], dim=axis) if new > 1 else parts[0]
    return x


# ------------------------------------------------------------ resizing
_UPSAMPLES = {
    "upsample_nearest1d": ("nearest", 1),
    "upsample_nearest2d": ("nearest", 2),
    "upsample_nearest3d": ("nearest", 3),
    "_upsample_nearest_exact1d": ("nearest-exact", 1),
    "_upsample_nearest_exact2d": ("nearest-exact", 2),
    "_upsample_nearest_exact3d": ("nearest-exact", 3),
    "upsample_linear1d": ("linear", 1),
    "upsample_bilinear2d": ("bilinear", 2),
    "upsample_trilinear3d": ("trilinear", 3),
    "upsample_bicubic2d": ("bicubic", 2),
}


def _check_scales(x: Tensor, sizes: tuple[int, ...], scales: Any) -> None:
    """A scale that is not the ratio of the sizes changes where outputs fall."""
    for old, new, scale in zip(x.shape[-len(sizes) :], sizes, scales, strict=False):
        if scale is not None and not math.isclose(scale, new / old, rel_tol=1e-6):
            raise refuse(f"resizing {old} to {new} elements with a scale of {scale}")


def _enter_upsample(name: str, mode: str, rank: int) -> None:
    has_corners = not mode.startswith("nearest")

    @lowers(name, call=True)
    def upsample(x: Tensor, size: Any, *rest: Any, call: Call) -> Tensor:
        sizes = call.shape[-rank:]
        align = bool(rest[0]) if has_corners and rest else False
        scales = rest[1:] if has_corners else rest
        if scales and isinstance(scales[0], (list, tuple)):
            scales = tuple(scales[0])
        _check_scales(x, sizes, scales)
        return x.interpolate(sizes, mode, align)

    @lowers(f"{name}_backward", call=True)
    def upsample_backward(
        gradient: Tensor, size: Any, input_size: Any, *rest: Any, call: Call
    ) -> Tensor:
        align = bool(rest[0]) if has_corners and rest else False
        scales = rest[1:] if has_corners else rest
        source = Tensor.zeros(*call.shape, dtype=gradient.dtype)
        _check_scales(source, gradient.shape[-rank:], scales)

        def forward(x: Tensor) -> Tensor:
            return x.interpolate(gradient.shape[-rank:], mode, align)

        return slope(forward, source, gradient)


for _name, (_mode, _axes) in _UPSAMPLES.items():
    _enter_upsample(_name, _mode, _axes)


@lowers("im2col")
def im2col(x: Tensor, kernel: Any, dilation: Any, padding: Any, stride: Any) -> Tensor:
    has_batch = x.ndim == 4
    source = x if has_batch else x.unsqueeze(0)
    sides = _sides(padding, 2)
    padded = source.pad(((0, 0), (0, 0), (sides[2], sides[3]), (sides[0], sides[1])))
    windows = padded._windows(tuple(kernel), tuple(stride), tuple(dilation))
    batch, channels, high, wide = windows.shape[:4]
    made = windows.permute((0, 1, 4, 5, 2, 3)).reshape(
        (batch, channels * prod(kernel), high * wide)
    )
    return made if has_batch else made.squeeze(0)


@lowers("col2im", call=True)
def col2im(
    x: Tensor, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any, *, call: Call
) -> Tensor:
    empty = Tensor.zeros(*call.shape, dtype=x.dtype)

    def forward(source: Tensor) -> Tensor:
        return im2col(source, kernel, dilation, padding, stride)

    return slope(forward, empty, x)
