"""Images: sampling, regions of interest, boxes; resizing is in `resize`.

In: Tensors of shape (batch, channels, *space). Out: Tensors. A family of the table of lowerings.
Invariant: places outside of an image have the value 0, or are moved inside first.
"""

from __future__ import annotations

import io
import math
from typing import Any

import numpy

from weft.dtype import computing_dtype, dtypes
from weft.errors import UnsupportedError
from weft.graphs.lowerings.conv import sample_linear, take_points
from weft.graphs.table import Call, Host, lowers, one_of, refuse, sizes_of
from weft.tensor import Tensor

Array = numpy.ndarray[Any, Any]


# ------------------------------------------------------------ sampling at computed places
def _reflected(x: Tensor, low: float, high: float) -> Tensor:
    """Coordinates outside of an interval, mirrored at its ends until they are inside."""
    span = high - low
    if span <= 0:
        return x * 0
    distance = (x - low).abs()
    turns = (distance / span).floor()
    rest = distance - turns * span
    return (turns % 2).eq(0).where(low + rest, high - rest)


def _cubic_weights(part: Tensor, a: float) -> list[Tensor]:
    def near(d: Tensor) -> Tensor:
        return ((a + 2) * d - (a + 3)) * d * d + 1

    def far(d: Tensor) -> Tensor:
        return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a

    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _bounded(place: Tensor, size: int, padding: str, align: bool) -> Tensor:
    """Whole or real coordinates as the padding mode moves them."""
    if padding == "border":
        return place.clip(0, size - 1)
    if padding == "reflection":
        low, high = (0.0, size - 1.0) if align else (-0.5, size - 0.5)
        return _reflected(place, low, high).clip(0, size - 1)
    return place


@lowers("GridSample", since=16)
def grid_sample(
    x: Tensor,
    grid: Tensor,
    *,
    align_corners: int = 0,
    mode: str = "linear",
    padding_mode: str = "zeros",
) -> Tensor:
    name = {"bilinear": "linear", "bicubic": "cubic"}.get(mode, mode)
    if name not in ("linear", "nearest", "cubic"):
        raise refuse(f"mode is linear, nearest or cubic, found {mode!r}")
    if padding_mode not in ("zeros", "border", "reflection"):
        raise refuse(f"padding_mode is zeros, border or reflection, found {padding_mode!r}")
    space, rank = x.shape[2:], x.ndim - 2
    outputs = grid.shape[1:-1]
    align = bool(align_corners)
    wide = computing_dtype(grid.dtype)
    points = []
    for axis, size in enumerate(space):
        # the last axis of the grid has x first
        along = grid[..., rank - 1 - axis].reshape((grid.shape[0], math.prod(outputs))).cast(wide)
        if align:
            points.append((along + 1) * ((size - 1) / 2))
        else:
            points.append(((along + 1) * size - 1) / 2)
    source = x
    if name != "cubic":
        points = [_bounded(p, n, padding_mode, align) for p, n in zip(points, space, strict=True)]
    if name == "nearest":
        found = take_points(source, [p.round().cast(dtypes.int32) for p in points])
    elif name == "linear":
        found = sample_linear(source, points)
    else:
        found = _sample_cubic(source, points, padding_mode, align)
    return found.reshape((*x.shape[:2], *outputs)).cast(x.dtype)


def _sample_cubic(x: Tensor, points: list[Tensor], padding: str, align: bool) -> Tensor:
    floors = [point.floor() for point in points]
    weights = [_cubic_weights(p - f, -0.75) for p, f in zip(points, floors, strict=True)]
    total: Any = None
    for number in range(4 ** len(points)):
        taps = [(number >> (2 * axis)) & 3 for axis in range(len(points))]
        places, factor = [], None
        for axis, tap in enumerate(taps):
            place = _bounded(floors[axis] + (tap - 1), x.shape[2 + axis], padding, align)
            places.append(place.round().cast(dtypes.int32))
            own = weights[axis][tap]
            factor = own if factor is None else factor * own
        assert factor is not None
        term = take_points(x, places) * factor.unsqueeze(1)
        total = term if total is None else total + term
    found: Tensor = total
    return found


@lowers("AffineGrid", since=20)
def affine_grid(theta: Tensor, size: Host, *, align_corners: int = 0) -> Tensor:
    sizes = sizes_of(size)
    space = sizes[2:]
    rank = len(space)
    axes = []
    for axis, count in enumerate(space):
        if align_corners:
            line = Tensor.linspace(-1, 1, count) if count > 1 else Tensor.zeros(1) - 1
        else:
            line = (Tensor.arange(count).cast(dtypes.float32) * 2 + 1) / count - 1
        shape = [count if i == axis else 1 for i in range(rank)]
        axes.append(line.cast(theta.dtype).reshape(shape).expand(tuple(space)))
    ones = Tensor.ones(*space, dtype=theta.dtype)
    base = Tensor.stack(*axes[::-1], ones, dim=-1).reshape((1, math.prod(space), rank + 1))
    found = base.matmul(theta.transpose(1, 2))
    return found.reshape((sizes[0], *space, rank))


@lowers("RoiAlign", since=10)
def roi_align_output_half(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    call: Call,
) -> Tensor:
    return _roi_align(
        x, rois, batch_indices, mode, output_height, output_width, sampling_ratio, spatial_scale,
        0.0, call,
    )  # fmt: skip


@lowers("RoiAlign", since=16)
def roi_align(
    x: Tensor,
    rois: Tensor,
    batch_indices: Tensor,
    *,
    coordinate_transformation_mode: str = "half_pixel",
    mode: str = "avg",
    output_height: int = 1,
    output_width: int = 1,
    sampling_ratio: int = 0,
    spatial_scale: float = 1.0,
    call: Call,
) -> Tensor:
    half = 0.5 if coordinate_transformation_mode == "half_pixel" else 0.0
    return _roi_align(
        x, rois, batch_indices, mode, output_height, output_width, sampling_ratio, spatial_scale,
        half, call,
    )  # fmt: skip


def _roi_align(
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    mode: str,
    height: int,
    width: int,
    ratio: int,
    scale: float,
    half: float,
    call: Call,
) -> Tensor:
    if ratio <= 0:
        # how many samples a bin has depends on the size of its box
        boxes = call.fetch(rois)
        parts = [
            _rois_of(
                x, rois[i : i + 1], batches[i : i + 1], mode, (height, width), counts, scale, half
            )
            for i, counts in enumerate(_samples(boxes, height, width, scale, half))
        ]
        return parts[0].cat(*parts[1:], dim=0) if len(parts) > 1 else parts[0]
    return _rois_of(x, rois, batches, mode, (height, width), (ratio, ratio), scale, half)


def _samples(
    boxes: Host, height: int, width: int, scale: float, half: float
) -> list[tuple[int, int]]:
    found = []
    for x1, y1, x2, y2 in boxes.tolist():
        wide, high = (x2 - x1) * scale, (y2 - y1) * scale
        if not half:
            wide, high = max(wide, 1.0), max(high, 1.0)
        found.append((max(1, math.ceil(high / height)), max(1, math.ceil(wide / width))))
    if any(n > 4096 for pair in found for n in pair):
        raise refuse("a region needs more than 4096 samples for one bin")
    return found


def _rois_of(
    x: Tensor,
    rois: Tensor,
    batches: Tensor,
    mode: str,
    bins: tuple[int, int],
    counts: tuple[int, int],
    scale: float,
    half: float,
) -> Tensor:
    number, channels = rois.shape[0], x.shape[1]
    lines = []
    for axis in range(2):
        start = rois[:, 1 - axis] * scale - half
        size = rois[:, 3 - axis] * scale - half - start
        size = size if half else size.maximum(1.0)
        step = size / bins[axis] / counts[axis]
        places = Tensor.arange(bins[axis] * counts[axis]).cast(rois.dtype) + 0.5
        lines.append(start.unsqueeze(1) + places * step.unsqueeze(1))
    rows, columns = lines[0].shape[1], lines[1].shape[1]
    y = lines[0].unsqueeze(2).expand((number, rows, columns)).reshape((number, rows * columns))
    z = lines[1].unsqueeze(1).expand((number, rows, columns)).reshape((number, rows * columns))
    outside = (y < -1) | (y > x.shape[2]) | (z < -1) | (z > x.shape[3])
    y, z = y.clip(0, x.shape[2] - 1), z.clip(0, x.shape[3] - 1)
    images = x[batches]
    if mode == "max":
        found = _greatest_term(images, y, z)
    else:
        found = sample_linear(images, [y, z])
    found = outside.unsqueeze(1).where(0, found)
    shape = (number, channels, bins[0], counts[0], bins[1], counts[1])
    apart = found.reshape(shape)
    return (apart.max((3, 5)) if mode == "max" else apart.mean((3, 5))).cast(x.dtype)


def _greatest_term(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """The greatest of the four weighted neighbours, which the max of this operator is over."""
    top, left = y.floor(), z.floor()
    parts = (y - top, z - left)
    total: Any = None
    for corner in range(4):
        down, right = corner & 1, corner >> 1
        factor = (parts[0] if down else 1 - parts[0]) * (parts[1] if right else 1 - parts[1])
        places = [
            (top + down).clip(0, x.shape[2] - 1).cast(dtypes.int32),
            (left + right).clip(0, x.shape[3] - 1).cast(dtypes.int32),
        ]
        term = take_points(x, places) * factor.unsqueeze(1)
        total = term if total is None else total.maximum(term)
    found: Tensor = total
    return found


@lowers("MaxRoiPool")
def max_roi_pool(
    x: Tensor, rois: Host, *, pooled_shape: list[int], spatial_scale: float = 1.0
) -> Tensor:
    height, width = x.shape[2:]
    rows = []
    for box in rois.tolist():
        image = int(box[0])
        left, top, right, bottom = (int(math.floor(v * spatial_scale + 0.5)) for v in box[1:])
        high, wide = max(bottom - top + 1, 1), max(right - left + 1, 1)
        cells = []
        for i in range(pooled_shape[0]):
            first = min(max(top + math.floor(i * high / pooled_shape[0]), 0), height)
            last = min(max(top + math.ceil((i + 1) * high / pooled_shape[0]), 0), height)
            for j in range(pooled_shape[1]):
                begin = min(max(left + math.floor(j * wide / pooled_shape[1]), 0), width)
                end = min(max(left + math.ceil((j + 1) * wide / pooled_shape[1]), 0), width)
                if last <= first or end <= begin:
                    cells.append(Tensor.zeros(x.shape[1], dtype=x.dtype))
                else:
                    cells.append(x[image, :, first:last, begin:end].max((1, 2)))
        rows.append(Tensor.stack(*cells, dim=1).reshape((x.shape[1], *pooled_shape)))
    return Tensor.stack(*rows, dim=0)


# ------------------------------------------------------------ boxes
@lowers("NonMaxSuppression", since=10)
def non_max_suppression(
    boxes: Host,
    scores: Host,
    most: Host | None = None,
    overlap: Host | None = None,
    least: Host | None = None,
    *,
    center_point_box: int = 0,
) -> Host:
    limit = int(one_of(most, 0))
    threshold = float(one_of(overlap, 0.0))
    lowest = one_of(least)
    kept: list[list[int]] = []
    for batch in range(scores.shape[0]):
        corners = _corners(boxes[batch].astype(numpy.float64), bool(center_point_box))
        for label in range(scores.shape[1]):
            found = _suppressed(corners, scores[batch, label], limit, threshold, lowest)
            kept.extend([batch, label, place] for place in found)
    return numpy.array(kept, dtype=numpy.int64).reshape((-1, 3))


def _corners(boxes: Array, is_centred: bool) -> Array:
    if is_centred:
        x, y, wide, high = boxes.T
        pairs = (y - high / 2, x - wide / 2, y + high / 2, x + wide / 2)
    else:
        y1, x1, y2, x2 = boxes.T
        pairs = (
            numpy.minimum(y1, y2),
            numpy.minimum(x1, x2),
            numpy.maximum(y1, y2),
            numpy.maximum(x1, x2),
        )
    return numpy.stack(pairs, axis=1)


def _suppressed(
    corners: Array, scores: Array, limit: int, threshold: float, lowest: float | None
) -> list[int]:
    """The places of the boxes that overlap no better one too much, the best one first."""
    order = numpy.argsort(-scores, kind="stable")
    if lowest is not None:
        order = order[scores[order] > lowest]
    areas = numpy.maximum(corners[:, 2] - corners[:, 0], 0) * numpy.maximum(
        corners[:, 3] - corners[:, 1], 0
    )
    kept: list[int] = []
    while len(order) and len(kept) < limit:
        best, order = int(order[0]), order[1:]
        kept.append(best)
        top = numpy.maximum(corners[best, :2], corners[order, :2])
        bottom = numpy.minimum(corners[best, 2:], corners[order, 2:])
        shared = numpy.prod(numpy.maximum(bottom - top, 0), axis=1)
        union = areas[best] + areas[order] - shared
        ratio = numpy.where(union > 0, shared / numpy.where(union > 0, union, 1), 0)
        order = order[ratio <= threshold]
    return kept


@lowers("ImageDecoder", since=20)
def image_decoder(data: Host, *, pixel_format: str = "RGB") -> Host:
    """Pixels of an encoded image, by Pillow where it is installed."""
    try:
        from PIL import Image
    except ImportError as error:
        raise UnsupportedError("images are decoded by Pillow: pip install pillow") from error
    if pixel_format not in ("RGB", "BGR", "Grayscale"):
        raise refuse(f"pixel_format is RGB, BGR or Grayscale, found {pixel_format!r}")
    image = Image.open(io.BytesIO(data.tobytes()))
    if pixel_format == "Grayscale":
        return numpy.array(image.convert("L"))[:, :, None]
    pixels = numpy.array(image.convert("RGB"))
    return pixels if pixel_format == "RGB" else pixels[:, :, ::-1].copy()
