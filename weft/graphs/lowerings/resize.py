"""Resizing of images.

In: Tensors of any number of axes, and sizes or scales. Out: Tensors. A family of the table.
Invariant: where to look is known from sizes and scales before anything runs, so resizing is a few
gathers with constant indices and weights along one axis after another.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import numpy

from weft.dtype import computing_dtype, dtypes
from weft.graphs.table import Call, Host, axes_of, lowers, refuse
from weft.tensor import Tensor

Array = numpy.ndarray[Any, Any]


# ------------------------------------------------------------ resizing
class _Axis:
    """One axis that is resized: where each output looks, and with which weights."""

    def __init__(self, size: int, output: int, scale: float, roi: tuple[float, float]) -> None:
        self.size = size
        self.output = output
        self.scale = scale
        self.roi = roi

    def places(self, mode: str) -> Array:
        """The coordinate of each output in the input."""
        x = numpy.arange(self.output, dtype=numpy.float64)
        size, output, scale = self.size, self.output, self.scale
        # the size before it was rounded down
        exact = scale * size
        if mode == "asymmetric":
            return x / scale
        if mode == "half_pixel" or (mode == "pytorch_half_pixel" and output > 1):
            return (x + 0.5) / scale - 0.5
        if mode == "pytorch_half_pixel":
            return x * 0
        if mode == "half_pixel_symmetric":
            adjustment = output / exact
            return size / 2 * (1 - adjustment) + (x + 0.5) / scale - 0.5
        if mode == "align_corners":
            return x * 0 if exact == 1 else x * ((size - 1) / (exact - 1))
        if mode == "tf_half_pixel_for_nn":
            return (x + 0.5) / scale
        if mode == "tf_crop_and_resize":
            start, end = self.roi
            if exact == 1:
                return x * 0 + 0.5 * (start + end) * (size - 1)
            return start * (size - 1) + x * ((end - start) * (size - 1) / (exact - 1))
        raise refuse(f"the coordinate_transformation_mode {mode!r} is unknown")

    def taps(
        self, mode: str, places: Array, cubic: float, exclude: bool, antialias: bool
    ) -> tuple[Array, Array]:
        """(taps, outputs): indices into the axis, and weights."""
        scale = min(self.scale, 1.0) if antialias else 1.0
        reach = 1 if mode == "linear" else 2
        first = math.floor(-reach / scale) + 1
        floor = numpy.floor(places)
        offsets = numpy.arange(first, 2 - first)[:, None]
        distance = numpy.abs((offsets - (places - floor)) * scale)
        if mode == "linear":
            weights = numpy.clip(1 - distance, 0, None)
        else:
            weights = _cubic(distance, cubic)
        indices = (floor + offsets).astype(numpy.int64)
        if exclude:
            weights = numpy.where((indices >= 0) & (indices < self.size), weights, 0)
        if exclude or antialias:
            weights = weights / weights.sum(0)
        used = numpy.any(weights != 0, axis=1)
        return numpy.clip(indices[used], 0, self.size - 1), weights[used]

    def nearest(self, places: Array, mode: str) -> Array:
        """The index of the nearest element for each output."""
        if mode == "round_prefer_floor":
            found = numpy.ceil(places - 0.5)
        elif mode == "round_prefer_ceil":
            found = numpy.floor(places + 0.5)
        elif mode == "floor":
            found = numpy.floor(places)
        elif mode == "ceil":
            found = numpy.ceil(places)
        else:
            raise refuse(f"the nearest_mode {mode!r} is unknown")
        return numpy.clip(found.astype(numpy.int64), 0, self.size - 1)


def _cubic(distance: Array, a: float) -> Array:
    near = ((a + 2) * distance - (a + 3)) * distance**2 + 1
    far = a * (((distance - 5) * distance + 8) * distance - 4)
    found: Array = numpy.where(distance <= 1, near, numpy.where(distance < 2, far, 0))
    return found


def _along(x: Tensor, place: int, indices: Array, call: Call) -> Tensor:
    """The elements at constant indices of one axis; evenly spaced ones are a slice."""
    count = len(indices)
    steps = numpy.diff(indices)
    if count and (count == 1 or (steps == steps[0]).all()) and (count == 1 or steps[0] > 0):
        step = int(steps[0]) if count > 1 else 1
        first = int(indices[0])
        return x[(*[slice(None)] * place, slice(first, int(indices[-1]) + 1, step))]
    times, rest = divmod(count, x.shape[place])
    if times and not rest:
        if (indices == numpy.repeat(numpy.arange(x.shape[place]), times)).all():
            return x.repeat_interleave(times, dim=place)
    table = call.constant(indices.tobytes(), lambda: indices.astype(numpy.int32))
    return x[(*[slice(None)] * place, table)]


def _resized_axis(
    x: Tensor, place: int, axis: _Axis, settings: dict[str, Any], call: Call
) -> Tensor:
    places = axis.places(settings["coordinates"])
    mode = settings["mode"]
    if mode == "nearest":
        return _along(x, place, axis.nearest(places, settings["nearest"]), call)
    indices, weights = axis.taps(
        mode, places, settings["cubic"], settings["exclude"], settings["antialias"]
    )
    wide = computing_dtype(x.dtype) if dtypes.is_float(x.dtype) else dtypes.float32
    source = x.cast(wide)
    shape = [-1 if i == place else 1 for i in range(x.ndim)]
    total: Any = None
    for index, weight in zip(indices, weights, strict=True):
        factor = call.constant((weight.tobytes(), wide.name), partial(weight.astype, wide.name))
        term = _along(source, place, index, call) * factor.reshape(shape)
        total = term if total is None else total + term
    return total


def resize_to(
    x: Tensor,
    axes: list[int],
    scales: list[float] | None,
    sizes: list[int] | None,
    roi: list[float] | None,
    policy: str,
    extrapolation: float,
    settings: dict[str, Any],
    call: Call,
) -> Tensor:
    """The tensor with some axes of other sizes."""
    if (scales is None) == (sizes is None):
        raise refuse("either scales or sizes are wanted")
    rank = len(axes)
    own = [x.shape[a] for a in axes]
    if len(scales if scales is not None else sizes or []) != rank:
        raise refuse(f"{rank} axes are resized, found scales {scales}, sizes {sizes}")
    if sizes is not None:
        scales = [n / m for n, m in zip(sizes, own, strict=True)]
        if policy != "stretch":
            scale = min(scales) if policy == "not_larger" else max(scales)
            scales = [scale] * rank
            sizes = [int(math.floor(scale * m + 0.5)) for m in own]
    else:
        assert scales is not None
        sizes = [int(math.floor(m * s)) for m, s in zip(own, scales, strict=True)]
    found: Any = x
    outside: list[tuple[int, Array]] = []
    for i, place in enumerate(axes):
        window = (0.0, 1.0) if roi is None else (roi[i], roi[i + rank])
        axis = _Axis(own[i], sizes[i], scales[i], window)
        if settings["coordinates"] == "tf_crop_and_resize":
            places = axis.places("tf_crop_and_resize")
            outside.append((place, (places < 0) | (places > own[i] - 1)))
        elif own[i] == sizes[i] and scales[i] == 1:
            continue
        found = _resized_axis(found, place, axis, settings, call)
    for place, mask in outside:
        if mask.any():
            shape = [-1 if j == place else 1 for j in range(x.ndim)]
            beyond = call.constant(mask.tobytes(), mask.copy).reshape(shape)
            found = beyond.where(extrapolation, found)
    if dtypes.is_float(x.dtype):
        return found.cast(x.dtype)
    limited = found if found.dtype is x.dtype else found.round().clip(x.dtype.min, x.dtype.max)
    return limited.cast(x.dtype)


def _settings(
    mode: str, coordinates: str, nearest: str, cubic: float, exclude: int, antialias: int
) -> dict[str, Any]:
    if mode not in ("nearest", "linear", "cubic"):
        raise refuse(f"mode is nearest, linear or cubic, found {mode!r}")
    return {
        "mode": mode,
        "coordinates": coordinates,
        "nearest": nearest,
        "cubic": cubic,
        "exclude": bool(exclude),
        "antialias": bool(antialias),
    }


def _given(value: Host | None) -> list[Any] | None:
    return None if value is None or value.size == 0 else value.reshape(-1).tolist()


@lowers("Upsample")
def upsample_attribute(
    x: Tensor,
    *,
    mode: str = "nearest",
    scales: list[float] | None = None,
    height_scale: float = 1.0,
    width_scale: float = 1.0,
    call: Call,
) -> Tensor:
    factors = list(scales) if scales is not None else [1.0, 1.0, height_scale, width_scale]
    return _upsampled(x, factors, mode, call)


@lowers("Upsample", since=9)
def upsample(x: Tensor, scales: Host, *, mode: str = "nearest", call: Call) -> Tensor:
    return _upsampled(x, _given(scales) or [], mode, call)


def _upsampled(x: Tensor, scales: list[float], mode: str, call: Call) -> Tensor:
    name = "linear" if mode in ("linear", "bilinear") else mode
    settings = _settings(name, "asymmetric", "floor", -0.75, 0, 0)
    return resize_to(x, list(range(x.ndim)), scales, None, None, "stretch", 0.0, settings, call)


@lowers("Resize", since=10)
def resize_by_scales(x: Tensor, scales: Host, *, mode: str = "nearest", call: Call) -> Tensor:
    return _upsampled(x, _given(scales) or [], mode, call)


@lowers("Resize", since=11)
def resize(
    x: Tensor,
    roi: Host | None = None,
    scales: Host | None = None,
    sizes: Host | None = None,
    *,
    antialias: int = 0,
    axes: list[int] | None = None,
    coordinate_transformation_mode: str = "half_pixel",
    cubic_coeff_a: float = -0.75,
    exclude_outside: int = 0,
    extrapolation_value: float = 0.0,
    keep_aspect_ratio_policy: str = "stretch",
    mode: str = "nearest",
    nearest_mode: str = "round_prefer_floor",
    call: Call,
) -> Tensor:
    places = list(range(x.ndim)) if axes is None else axes_of(axes, x.ndim)
    coordinates = coordinate_transformation_mode
    settings = _settings(mode, coordinates, nearest_mode, cubic_coeff_a, exclude_outside, antialias)
    return resize_to(
        x,
        places,
        _given(scales),
        _given(sizes),
        _given(roi) if coordinates == "tf_crop_and_resize" else None,
        keep_aspect_ratio_policy,
        extrapolation_value,
        settings,
        call,
    )
