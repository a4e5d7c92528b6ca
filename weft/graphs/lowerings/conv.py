"""Convolutions and pools.

In: Tensors of shape (batch, channels, *space). Out: Tensors. A family of the table of lowerings.
Invariant: pads are those of ONNX, all starts and then all ends; auto_pad is resolved here, once.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import DType, computing_dtype, dtypes
from weft.graphs.table import Call, Host, lowers, refuse, sizes_of
from weft.helpers import ceildiv
from weft.tensor import Tensor

Pairs = list[tuple[int, int]]


def window_pads(
    sizes: Any,
    kernel: list[int],
    strides: list[int],
    dilations: list[int],
    auto_pad: str,
    pads: list[int] | None,
) -> Pairs:
    """(before, after) for each axis of space."""
    rank = len(kernel)
    if auto_pad in ("NOTSET", ""):
        numbers = [0] * (2 * rank) if pads is None else list(pads)
        if len(numbers) != 2 * rank:
            raise refuse(f"pads {numbers} for {rank} axes of space")
        return [(numbers[i], numbers[i + rank]) for i in range(rank)]
    if auto_pad == "VALID":
        return [(0, 0)] * rank
    if auto_pad not in ("SAME_UPPER", "SAME_LOWER"):
        raise refuse(f"auto_pad is NOTSET, VALID, SAME_UPPER or SAME_LOWER, found {auto_pad!r}")
    found = []
    for size, width, step, gap in zip(sizes, kernel, strides, dilations, strict=True):
        total = max(0, (ceildiv(size, step) - 1) * step + gap * (width - 1) + 1 - size)
        less, more = total // 2, total - total // 2
        found.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
    return found


def torch_order(pairs: Pairs) -> list[int]:
    """Pads as `conv2d` takes them: the last axis first."""
    return [n for pair in pairs[::-1] for n in pair]


def convolve(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    auto_pad: str,
    dilations: list[int] | None,
    group: int,
    kernel_shape: list[int] | None,
    pads: list[int] | None,
    strides: list[int] | None,
    dtype: DType | None = None,
) -> Tensor:
    """A convolution with the attributes of ONNX."""
    rank = weight.ndim - 2
    kernel = list(weight.shape[2:])
    if kernel_shape is not None and list(kernel_shape) != kernel:
        raise refuse(f"kernel_shape {kernel_shape}, but the weights are {weight.shape}")
    steps, gaps = list(strides or [1] * rank), list(dilations or [1] * rank)
    pairs = window_pads(x.shape[2:], kernel, steps, gaps, auto_pad, pads)
    return x.conv2d(weight, bias, group, steps, gaps, torch_order(pairs), dtype=dtype)


@lowers("Conv")
def conv(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    return convolve(x, weight, bias, auto_pad, dilations, group, kernel_shape, pads, strides)


@lowers("CausalConvWithState", since=27)
def causal_conv_with_state(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    past_state: Tensor | None = None,
    *,
    activation: str = "none",
) -> tuple[Tensor, Tensor]:
    before = weight.shape[-1] - 1
    if past_state is None:
        whole = x.pad(((0, 0), (0, 0), (before, 0)))
    else:
        whole = past_state.cat(x, dim=2)
    found = whole.conv2d(weight, bias, x.shape[1])
    if activation not in ("none", "silu", "swish"):
        raise refuse(f"activation is none, silu or swish, found {activation!r}")
    found = found if activation == "none" else found.silu()
    last = whole.shape[2]
    return found.cast(x.dtype), whole.shrink((None, None, (last - before, last)))


@lowers("ConvTranspose")
def conv_transpose(
    x: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    *,
    auto_pad: str = "NOTSET",
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    output_padding: list[int] | None = None,
    output_shape: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    rank = weight.ndim - 2
    steps, gaps = list(strides or [1] * rank), list(dilations or [1] * rank)
    extra = list(output_padding or [0] * rank)
    spans = [
        step * (n - 1) + more + gap * (width - 1) + 1
        for step, n, more, gap, width in zip(
            steps, x.shape[2:], extra, gaps, weight.shape[2:], strict=True
        )
    ]
    wanted = list(output_shape)[-rank:] if output_shape else None
    if wanted is None and auto_pad in ("SAME_UPPER", "SAME_LOWER"):
        wanted = [n * step for n, step in zip(x.shape[2:], steps, strict=True)]
    if wanted is None:
        numbers = list(pads or [0] * 2 * rank)
        if auto_pad == "VALID":
            numbers = [0] * 2 * rank
        pairs = [(numbers[i], numbers[i + rank]) for i in range(rank)]
    else:
        pairs = []
        for span, size in zip(spans, wanted, strict=True):
            total = span - size
            less, more = total // 2, total - total // 2
            pairs.append((less, more) if auto_pad == "SAME_UPPER" else (more, less))
    if any(before < 0 or after < 0 for before, after in pairs):
        whole = x.conv_transpose2d(weight, None, group, steps, gaps, 0, extra)
        whole = whole.pad(((0, 0), (0, 0), *[(-before, -after) for before, after in pairs]))
        return whole if bias is None else whole + bias.reshape((1, -1, *[1] * rank))
    return x.conv_transpose2d(weight, bias, group, steps, gaps, torch_order(pairs), extra)


@lowers("DeformConv", since=19)
def deform_conv(
    x: Tensor,
    weight: Tensor,
    offset: Tensor,
    bias: Tensor | None = None,
    mask: Tensor | None = None,
    *,
    dilations: list[int] | None = None,
    group: int = 1,
    kernel_shape: list[int] | None = None,
    offset_group: int = 1,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    batch, channels = x.shape[:2]
    kernel = list(weight.shape[2:])
    rank = len(kernel)
    if rank != 2:
        raise refuse(f"two axes of space are wanted, found {rank}")
    steps, gaps = list(strides or [1, 1]), list(dilations or [1, 1])
    pairs = window_pads(x.shape[2:], kernel, steps, gaps, "NOTSET", pads)
    space = list(offset.shape[2:])
    taps, places = math.prod(kernel), math.prod(space)
    moved = offset.reshape((batch, offset_group, taps, 2, *space))
    coordinates = []
    for axis in range(2):
        tap_shape = [1, 1, *[kernel[i] if i == axis else 1 for i in range(2)], 1, 1]
        tap = (Tensor.arange(kernel[axis]) * gaps[axis]).reshape(tap_shape)
        tap = tap.expand((1, 1, *kernel, 1, 1)).reshape((1, 1, taps, 1, 1))
        base_shape = [1, 1, 1, *[space[i] if i == axis else 1 for i in range(2)]]
        base = (Tensor.arange(space[axis]) * steps[axis] - pairs[axis][0]).reshape(base_shape)
        coordinates.append(moved[:, :, :, axis] + (tap + base).cast(offset.dtype))
    # groups of offsets are samples of their own
    source = x.reshape((batch * offset_group, channels // offset_group, *x.shape[2:]))
    points = [c.reshape((batch * offset_group, taps * places)) for c in coordinates]
    found = sample_linear(source, points)
    if mask is not None:
        found = found * mask.reshape((batch * offset_group, 1, taps * places))
    columns = found.reshape((batch, group, channels // group, taps, places))
    columns = columns.reshape((batch, group, channels // group * taps, places))
    outputs = weight.shape[0]
    matrix = weight.reshape((1, group, outputs // group, channels // group * taps))
    total = matrix.matmul(columns).reshape((batch, outputs, *space))
    return total if bias is None else total + bias.reshape((1, -1, 1, 1))


def take_points(x: Tensor, places: list[Tensor]) -> Tensor:
    """The elements of (batch, channels, *space) at whole coordinates (batch, points), each inside;
    elsewhere 0. The result is (batch, channels, points)."""
    batch, channels = x.shape[:2]
    flat: Any = 0
    valid: Any = None
    for place, size in zip(places, x.shape[2:], strict=True):
        ok = (place >= 0) & (place < size)
        valid = ok if valid is None else valid & ok
        flat = flat * size + ok.where(place, 0)
    points = places[0].shape[-1]
    index = flat.reshape((batch, 1, points)).expand((batch, channels, points))
    found = x.reshape((batch, channels, math.prod(x.shape[2:]))).gather(2, index)
    return valid.reshape((batch, 1, points)).where(found, 0)


def sample_linear(x: Tensor, points: list[Tensor]) -> Tensor:
    """The elements at real coordinates, each a mean of its neighbours; those outside are 0."""
    floors = [point.floor() for point in points]
    parts = [point - floor for point, floor in zip(points, floors, strict=True)]
    whole = [floor.clip(-(2**30), 2**30).cast(dtypes.int32) for floor in floors]
    total: Any = None
    for corner in range(1 << len(points)):
        bits = [(corner >> axis) & 1 for axis in range(len(points))]
        weight: Any = None
        for bit, part in zip(bits, parts, strict=True):
            factor = part if bit else 1 - part
            weight = factor if weight is None else weight * factor
        found = take_points(x, [w + bit for w, bit in zip(whole, bits, strict=True)])
        term = found * weight.unsqueeze(1)
        total = term if total is None else total + term
    return total.cast(x.dtype)


# ------------------------------------------------------------ pools
def _geometry(
    x: Tensor,
    kernel_shape: list[int],
    strides: list[int] | None,
    dilations: list[int] | None,
    auto_pad: str,
    pads: list[int] | None,
) -> tuple[list[int], list[int], list[int], Pairs]:
    rank = len(kernel_shape)
    if x.ndim != rank + 2:
        raise refuse(f"kernel_shape {kernel_shape} for shape {x.shape}")
    steps, gaps = list(strides or [1] * rank), list(dilations or [1] * rank)
    if min([*kernel_shape, *steps, *gaps]) < 1:
        raise refuse(f"kernel {kernel_shape}, strides {steps}, dilations {gaps}: all are 1 or more")
    return (
        list(kernel_shape),
        steps,
        gaps,
        window_pads(x.shape[2:], list(kernel_shape), steps, gaps, auto_pad, pads),
    )


@lowers("AveragePool")
def average_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    count_include_pad: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    kernel, steps, gaps, pairs = _geometry(x, kernel_shape, strides, dilations, auto_pad, pads)
    return x.avg_pool2d(
        tuple(kernel),
        tuple(steps),
        tuple(gaps),
        torch_order(pairs),
        bool(ceil_mode),
        bool(count_include_pad),
    )


@lowers("LpPool")
def lp_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    p: float = 2,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    kernel, steps, gaps, pairs = _geometry(x, kernel_shape, strides, dilations, auto_pad, pads)
    powers = x.abs().cast(computing_dtype(x.dtype)).pow(p)
    mean = powers.avg_pool2d(
        tuple(kernel), tuple(steps), tuple(gaps), torch_order(pairs), bool(ceil_mode), True
    )
    if not ceil_mode:
        return (mean * math.prod(kernel)).pow(1 / p).cast(x.dtype)
    # the last window may be cut short, so that its mean is not over the whole kernel
    ones = powers.ones_like().avg_pool2d(
        tuple(kernel), tuple(steps), tuple(gaps), torch_order(pairs), True, True
    )
    inner = powers.ones_like().avg_pool2d(
        tuple(kernel), tuple(steps), tuple(gaps), torch_order(pairs), True, False
    )
    return (mean / ones * inner * math.prod(kernel)).pow(1 / p).cast(x.dtype)


@lowers("MaxPool")
def max_pool(
    x: Tensor,
    *,
    kernel_shape: list[int],
    auto_pad: str = "NOTSET",
    ceil_mode: int = 0,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    storage_order: int = 0,
    strides: list[int] | None = None,
    call: Call,
) -> Any:
    kernel, steps, gaps, pairs = _geometry(x, kernel_shape, strides, dilations, auto_pad, pads)
    if call.outputs < 2:
        return x.max_pool2d(
            tuple(kernel), tuple(steps), tuple(gaps), torch_order(pairs), bool(ceil_mode)
        )
    around = x._pool_geometry(
        tuple(kernel), tuple(steps), tuple(gaps), torch_order(pairs), bool(ceil_mode)
    ).ends
    rank = len(kernel)
    lowest = -math.inf if dtypes.is_float(x.dtype) else x.dtype.min
    windows = x._pad_space(around, lowest)._windows(kernel, steps, gaps)
    flat = windows.reshape((*windows.shape[: 2 + rank], math.prod(kernel)))
    best, order = flat.max(-1), flat.argmax(-1)
    sizes, spot = x.shape[2:], order.cast(dtypes.int64)
    places: list[Any] = [None] * rank
    for axis in reversed(range(rank)):
        out = [best.shape[2 + axis] if i == 2 + axis else 1 for i in range(2 + rank)]
        first = Tensor.arange(best.shape[2 + axis], dtype=dtypes.int64).reshape(out)
        places[axis] = first * steps[axis] - pairs[axis][0] + spot % kernel[axis] * gaps[axis]
        spot = spot // kernel[axis]
    axes = list(range(rank))[::-1] if storage_order else list(range(rank))
    inner: Any = 0
    for axis in axes:
        inner = inner * sizes[axis] + places[axis]
    channels = Tensor.arange(x.shape[0] * x.shape[1], dtype=dtypes.int64)
    channels = channels.reshape((x.shape[0], x.shape[1], *[1] * rank))
    return best, channels * math.prod(sizes) + inner


@lowers("MaxUnpool", since=9)
def max_unpool(
    x: Tensor,
    indices: Tensor,
    output_shape: Host | None = None,
    *,
    kernel_shape: list[int],
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    rank = len(kernel_shape)
    steps, numbers = strides or [1] * rank, pads or [0] * 2 * rank
    own = [
        (n - 1) * step + width - numbers[i] - numbers[i + rank]
        for i, (n, step, width) in enumerate(zip(x.shape[2:], steps, kernel_shape, strict=True))
    ]
    shape = [*x.shape[:2], *own]
    flat = Tensor.zeros(math.prod(shape), dtype=x.dtype)
    flat = flat.scatter(0, indices.flatten().cast(dtypes.int64), x.flatten()).reshape(tuple(shape))
    if output_shape is None:
        return flat
    wanted = sizes_of(output_shape)
    # the indices count in the smaller shape, which lies at the start of the larger one
    return flat.pad(tuple((0, n - size) for n, size in zip(wanted, shape, strict=True)))


@lowers("GlobalAveragePool")
def global_average_pool(x: Tensor) -> Tensor:
    return x.mean(tuple(range(2, x.ndim)), keepdim=True)


@lowers("GlobalMaxPool")
def global_max_pool(x: Tensor) -> Tensor:
    return x.max(tuple(range(2, x.ndim)), keepdim=True)


@lowers("GlobalLpPool")
def global_lp_pool(x: Tensor, *, p: float = 2) -> Tensor:
    wide = x.cast(computing_dtype(x.dtype)).abs().pow(p)
    return wide.sum(tuple(range(2, x.ndim)), keepdim=True).pow(1 / p).cast(x.dtype)


@lowers("Col2Im", since=18)
def col2im(
    x: Tensor,
    image_shape: Host,
    block_shape: Host,
    *,
    dilations: list[int] | None = None,
    pads: list[int] | None = None,
    strides: list[int] | None = None,
) -> Tensor:
    image, block = sizes_of(image_shape), sizes_of(block_shape)
    rank = len(image)
    steps, gaps = list(strides or [1] * rank), list(dilations or [1] * rank)
    numbers = list(pads or [0] * 2 * rank)
    pairs = [(numbers[i], numbers[i + rank]) for i in range(rank)]
    space = [
        (n + sum(pair) - gap * (width - 1) - 1) // step + 1
        for n, pair, gap, width, step in zip(image, pairs, gaps, block, steps, strict=True)
    ]
    batch, taps = x.shape[0], math.prod(block)
    channels = x.shape[1] // taps
    columns = x.reshape((batch, channels, *block, *space))
    total: Any = columns.permute((0, 1, *range(2 + rank, 2 + 2 * rank), *range(2, 2 + rank)))
    # the windows laid over each other, one axis after another
    for axis in range(rank):
        total = _overlay(
            total, 2 + axis, 2 + rank, steps[axis], gaps[axis], image[axis], pairs[axis]
        )
    return total


def _overlay(
    x: Tensor, place: int, inside: int, step: int, gap: int, size: int, pads: tuple[int, int]
) -> Tensor:
    """Windows at axis `place` with elements at axis `inside`, added up where they overlap; the
    axis `inside` is gone then."""
    whole = size + sum(pads)
    total: Any = None
    for tap in range(x.shape[inside]):
        part = x.shrink([None if i != inside else (tap, tap + 1) for i in range(x.ndim)])
        part = part.reshape(tuple(n for i, n in enumerate(part.shape) if i != inside))
        part = part._spread(place, step) if step > 1 else part
        after = whole - tap * gap - part.shape[place]
        pairs = [(tap * gap, after) if i == place else (0, 0) for i in range(part.ndim)]
        part = part.pad(tuple(pairs))
        total = part if total is None else total + part
    box = [None if i != place else (pads[0], pads[0] + size) for i in range(total.ndim)]
    found: Tensor = total.shrink(box)
    return found
