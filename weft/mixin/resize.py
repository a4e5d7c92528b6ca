"""Resizing: interpolate, in all modes.

In: tensors whose last axes are space, and the new sizes of those axes. Out: tensors of that size.
Sits above the engine, one of the Tensor families.
Invariant: axes are resized one after another, and each reads only the few elements that it weighs.
Where an output falls in the input is a fraction of ints, so places are exact and only weights are
rounded.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from functools import lru_cache
from typing import Any, Self

from weft.dtype import computing_dtype, dtypes
from weft.errors import ArgumentError, ShapeError, UnsupportedError
from weft.helpers import ceildiv
from weft.mixin.check import whole_numbers
from weft.mixin.loss import LossMixin
from weft.mixin.movement import is_int

# modes by what they do along an axis, and of how many axes they are; None: of any
_MODES: dict[str, tuple[str, int | None]] = {
    "nearest": ("nearest", None),
    "nearest-exact": ("nearest-exact", None),
    "linear": ("linear", None),
    "bilinear": ("linear", 2),
    "trilinear": ("linear", 3),
    "cubic": ("cubic", None),
    "bicubic": ("cubic", 2),
    "area": ("area", None),
}
# the slope of the cubic kernel, as image libraries and PyTorch have it
_CUBIC = -0.75


class ResizeMixin(LossMixin):
    """Methods over `_take`, which gathers along axes."""

    __slots__ = ()

    def interpolate(
        self, size: int | Sequence[int], mode: str = "linear", align_corners: bool = False
    ) -> Self:
        """The last axes resized, with values between the elements.

        `mode` is "nearest", "nearest-exact", "linear" (also "bilinear", "trilinear"), "cubic" (also
        "bicubic") or "area". With `align_corners` the corner elements stay at the corners. Bytes
        are weighed by whole numbers and rounded after each axis, the last one first, as image
        libraries and PyTorch do it.

        >>> Tensor([[1.0, 3.0]]).interpolate((4,)).tolist()
        [[1.0, 1.5, 2.5, 3.0]]
        """
        sizes = whole_numbers("size", size)
        kind = self._checked_resize(sizes, mode, align_corners)
        first = self.ndim - len(sizes)
        value = self
        if self.dtype is dtypes.uint8 and kind in ("linear", "cubic"):
            for axis in reversed(range(first, self.ndim)):
                value = value._resized_bytes(axis, sizes[axis - first], kind, align_corners)
            return value
        if kind in ("linear", "cubic", "area"):
            value = self.cast(computing_dtype(self.dtype))
        for axis, new in enumerate(sizes, first):
            if kind.startswith("nearest"):
                value = value._resized_nearest(axis, new, kind == "nearest-exact")
            elif kind == "area":
                value = value._resized_area(axis, new)
            else:
                value = value._resized(axis, new, kind, align_corners)
        if value.dtype is self.dtype or dtypes.is_float(self.dtype):
            return value.cast(self.dtype)
        return value.round().cast(self.dtype)

    def _checked_resize(self, sizes: Sequence[Any], mode: str, align_corners: bool) -> str:
        if not isinstance(mode, str) or mode not in _MODES:
            named = ", ".join(f'"{name}"' for name in _MODES)
            raise UnsupportedError(f"interpolate has the modes {named}, found {mode!r}")
        kind, axes = _MODES[mode]
        if axes is not None and len(sizes) != axes:
            raise ArgumentError(
                f"interpolate with mode {mode!r} resizes {axes} axes, found the sizes {sizes}"
            )
        if align_corners and kind not in ("linear", "cubic"):
            raise ArgumentError(f"interpolate with mode {mode!r} has no align_corners")
        old = self.shape[self.ndim - len(sizes) :] if len(sizes) <= self.ndim else ()
        if not sizes or len(old) != len(sizes):
            raise ShapeError(f"interpolate of shape {self.shape} to the sizes {tuple(sizes)}")
        if not all(is_int(part) and part > 0 for part in (*sizes, *old)):
            raise ShapeError(
                f"interpolate takes sizes of at least 1, found {tuple(old)} to {tuple(sizes)}"
            )
        return kind

    # ------------------------------------------------------------ one axis
    def _resized_nearest(self, axis: int, new: int, centred: bool) -> Self:
        """The element under each place, of its start or of its centre."""
        old = self.shape[axis]
        if new % old == 0:
            # of either kind: each element as often
            return self.repeat_interleave(new // old, axis) if new > old else self
        places = self._iota(new)
        wide = places.cast(dtypes.int64) if 2 * old * new > dtypes.default_int.max else places
        index = ((wide * 2 + 1) * old) // (2 * new) if centred else (wide * old) // new
        return self._take({axis: index.cast(dtypes.default_int)})

    def _resized_area(self, axis: int, new: int) -> Self:
        """The mean of all elements that each place covers."""
        old = self.shape[axis]
        if new == old:
            return self
        places = self._iota(new).cast(dtypes.int64)
        start = (places * old) // new
        stop = ((places + 1) * old + new - 1) // new
        most = ceildiv(old, new) + 1
        index = start.unsqueeze(1) + self._iota(min(most, old))
        inside = index.lt(stop.unsqueeze(1))
        # what is beyond is read at no place, which gives 0
        window = self._take({axis: inside.where(index, old)})
        count = (stop - start).cast(self.dtype)
        shape = [new if i == axis else 1 for i in range(self.ndim)]
        return window.sum(axis + 1) / count.reshape(shape)

    def _resized(self, axis: int, new: int, kind: str, align_corners: bool) -> Self:
        """A weighted sum of the neighbours of each place, linear or cubic."""
        old = self.shape[axis]
        if new == old:
            return self
        low, fraction = self._low_neighbours(old, new, align_corners, kind == "linear")
        weights = _weights(kind, fraction.cast(self.dtype))
        shape = [new if i == axis else 1 for i in range(self.ndim)]
        total: Self | None = None
        for step, weight in weights.items():
            index = (low + step).clip(0, old - 1).cast(dtypes.default_int)
            term = self._take({axis: index}) * weight.reshape(shape)
            total = term if total is None else total + term
        assert total is not None
        return total

    def _resized_bytes(self, axis: int, new: int, kind: str, align_corners: bool) -> Self:
        """The same for bytes, with weights of whole numbers that share a denominator 2**bits."""
        old = self.shape[axis]
        if new == old:
            return self
        low, fraction = self._low_neighbours(old, new, align_corners, kind == "linear")
        weights = _weights(kind, fraction)
        bits = _weight_bits(old, new, kind, align_corners)
        index = {step: (low + step).clip(0, old - 1) for step in weights}
        shape = [new if i == axis else 1 for i in range(self.ndim)]
        # half of the denominator more: the shift then rounds to the nearest, halves up
        total: Any = 1 << (bits - 1)
        for step in weights:
            # beyond an end all weights go to the last element there, and are rounded as one
            merged: Any = sum(index[s].eq(index[step]).where(weights[s], 0.0) for s in weights)
            if step - 1 in weights:
                merged = index[step].eq(index[step - 1]).where(0.0, merged)
            scaled = merged * float(1 << bits)
            whole = scaled.lt(0).where((scaled - 0.5).ceil(), (scaled + 0.5).floor())
            taken = self._take({axis: index[step].cast(dtypes.default_int)})
            total = total + taken.cast(dtypes.int32) * whole.cast(dtypes.int32).reshape(shape)
        return (total >> bits).clip(0, 255).cast(dtypes.uint8)

    def _low_neighbours(
        self, old: int, new: int, align_corners: bool, clipped: bool
    ) -> tuple[Self, Self]:
        """The element before each place, and how far the place is behind it, from 0 to 1."""
        places = self._iota(new).cast(dtypes.int64)
        if align_corners:
            top, bottom = places * (old - 1), max(1, new - 1)
        else:
            # the centre of place i: (i + 1/2) * old / new - 1/2
            top, bottom = (places * 2 + 1) * old - new, 2 * new
        if clipped:
            top = top.maximum(0)
        return top // bottom, (top % bottom).cast(dtypes.float64) / bottom


def _weights(kind: str, fraction: Any) -> dict[int, Any]:
    """The weights of the elements around a place, by their distance from the one before it."""
    if kind == "linear":
        return {0: 1 - fraction, 1: fraction}
    return {
        -1: _cubic_far(fraction + 1),
        0: _cubic_near(fraction),
        1: _cubic_near(1 - fraction),
        2: _cubic_far(2 - fraction),
    }


def _cubic_near(x: Any) -> Any:
    """The cubic kernel of an element at a distance of up to 1."""
    return ((_CUBIC + 2) * x - (_CUBIC + 3)) * x * x + 1


def _cubic_far(x: Any) -> Any:
    """The cubic kernel of an element at a distance of 1 to 2."""
    return ((x - 5) * x + 8) * x * _CUBIC - 4 * _CUBIC


@lru_cache(maxsize=256)
def _weight_bits(old: int, new: int, kind: str, align_corners: bool) -> int:
    """How many bits after the point the weights of bytes have: as many as 16-bit numbers hold."""
    largest = 0.0
    for i in range(new):
        place = Fraction(i * (old - 1), max(1, new - 1))
        if not align_corners:
            place = Fraction((2 * i + 1) * old - new, 2 * new)
        if kind == "linear":
            place = max(place, Fraction(0))
        low = place.__floor__()
        merged: dict[int, float] = {}
        for step, weight in _weights(kind, float(place - low)).items():
            at = min(max(low + step, 0), old - 1)
            merged[at] = merged.get(at, 0.0) + weight
        largest = max(largest, *merged.values())
    bits = 0
    while bits < 21 and int(0.5 + largest * (1 << (bits + 1))) < 1 << 15:
        bits += 1
    return bits
