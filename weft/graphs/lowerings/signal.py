"""Fourier transforms and windows.

In: signals with real and imaginary parts on the last axis. Out: the same. A family of the table.
Invariant: the tables of sines are computed in float64 from exact angles, so that the error of a
transform is that of its sums.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from weft.dtype import dtypes, to_numpy_dtype
from weft.graphs.table import Call, Host, axis_of, lowers, one_of, refuse
from weft.graphs.types import data_type
from weft.tensor import Tensor


def _table(length: int, outputs: int, inverse: bool, kind: Any) -> numpy.ndarray[Any, Any]:
    """(2, length, outputs): cosines and sines of the angles between inputs and outputs."""
    turns = numpy.outer(numpy.arange(length), numpy.arange(outputs)) % max(length, 1)
    angles = turns * (2 * math.pi / max(length, 1))
    sines = numpy.sin(angles) if inverse else -numpy.sin(angles)
    found: numpy.ndarray[Any, Any] = numpy.stack([numpy.cos(angles), sines]).astype(kind)
    return found


def transform(
    real: Tensor,
    imaginary: Tensor | None,
    length: int,
    outputs: int,
    inverse: bool,
    call: Call,
) -> tuple[Tensor, Tensor]:
    """The discrete Fourier transform along the last axis, by its definition."""
    if real.shape[-1] != length:
        change = length - real.shape[-1]
        pads = (*[(0, 0)] * (real.ndim - 1), (0, change))
        real = real.pad(pads)
        imaginary = None if imaginary is None else imaginary.pad(pads)
    wide = dtypes.float64 if real.dtype is dtypes.float64 else dtypes.float32
    kind = to_numpy_dtype(wide)
    table = call.constant(
        (length, outputs, inverse, wide.name), lambda: _table(length, outputs, inverse, kind)
    )
    cosines, sines = table[0], table[1]
    re, im = real.cast(wide).matmul(cosines), real.cast(wide).matmul(sines)
    if imaginary is not None:
        other = imaginary.cast(wide)
        re, im = re - other.matmul(sines), im + other.matmul(cosines)
    if inverse:
        re, im = re / length, im / length
    return re.cast(real.dtype), im.cast(real.dtype)


def _dft(
    x: Tensor, length: int | None, axis: int, inverse: int, onesided: int, call: Call
) -> Tensor:
    place = axis_of(axis, x.ndim)
    if place == x.ndim - 1:
        raise refuse("the last axis holds real and imaginary parts")
    if x.shape[-1] not in (1, 2):
        raise refuse(f"the last axis has size 1 or 2, found {x.shape[-1]}")
    moved = x.transpose(place, -2) if place != x.ndim - 2 else x
    real = moved[..., 0]
    imaginary = moved[..., 1] if x.shape[-1] == 2 else None
    if inverse and onesided:
        return _inverse_real(real, imaginary, length, place, x.ndim, call)
    size = length or real.shape[-1]
    outputs = size // 2 + 1 if onesided else size
    re, im = transform(real, imaginary, size, outputs, bool(inverse), call)
    found = re.stack(im, dim=-1)
    return found.transpose(place, -2) if place != x.ndim - 2 else found


def _inverse_real(
    real: Tensor, imaginary: Tensor | None, length: int | None, place: int, rank: int, call: Call
) -> Tensor:
    """The real signal whose transform has this first half; the other half is its mirror image."""
    half = real.shape[-1]
    size = length or 2 * (half - 1)
    other = real.zeros_like() if imaginary is None else imaginary
    rest = size - half
    mirrored = real[..., 1 : 1 + rest].flip(-1), -other[..., 1 : 1 + rest].flip(-1)
    re, _ = transform(
        real.cat(mirrored[0], dim=-1), other.cat(mirrored[1], dim=-1), size, size, True, call
    )
    found = re.unsqueeze(-1)
    return found.transpose(place, -2) if place != rank - 2 else found


@lowers("DFT", since=17)
def dft_attribute(
    x: Tensor,
    dft_length: Host | None = None,
    *,
    axis: int = 1,
    inverse: int = 0,
    onesided: int = 0,
    call: Call,
) -> Tensor:
    return _dft(x, one_of(dft_length), axis, inverse, onesided, call)


@lowers("DFT", since=20)
def dft(
    x: Tensor,
    dft_length: Host | None = None,
    axis: Host | None = None,
    *,
    inverse: int = 0,
    onesided: int = 0,
    call: Call,
) -> Tensor:
    return _dft(x, one_of(dft_length), one_of(axis, -2), inverse, onesided, call)


@lowers("STFT", since=17)
def stft(
    x: Tensor,
    frame_step: Host,
    window: Tensor | None = None,
    frame_length: Host | None = None,
    *,
    onesided: int = 1,
    call: Call,
) -> Tensor:
    step = int(one_of(frame_step))
    length = int(one_of(frame_length, None if window is None else window.shape[0]))
    signal = x if x.ndim == 3 else x.unsqueeze(-1)
    if step < 1 or not 1 <= length <= signal.shape[1]:
        raise refuse(f"frames of {length} every {step} of a signal of {signal.shape[1]}")
    # (batch, frames, parts, length)
    frames = signal.unfold(1, length, step)
    if window is not None:
        frames = frames * window
    real = frames[:, :, 0]
    imaginary = frames[:, :, 1] if signal.shape[-1] == 2 else None
    outputs = length // 2 + 1 if onesided else length
    re, im = transform(real, imaginary, length, outputs, False, call)
    return re.stack(im, dim=-1)


# ------------------------------------------------------------ windows
def _window(size: Host, terms: list[float], periodic: int, output: int) -> Host:
    count = int(one_of(size))
    if not 0 <= count <= 1 << 24:
        raise refuse(f"a window of {count} elements")
    span = count if periodic else count - 1
    angles = numpy.arange(count) * (2 * math.pi / max(span, 1))
    total = sum(term * numpy.cos(angles * i) for i, term in enumerate(terms))
    kind = data_type(output, "output_datatype").to_dtype()
    found: Host = numpy.asarray(total * numpy.ones(count)).astype(to_numpy_dtype(kind))
    return found


@lowers("HannWindow", since=17)
def hann_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Host:
    return _window(size, [0.5, -0.5], periodic, output_datatype)


@lowers("HammingWindow", since=17)
def hamming_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Host:
    return _window(size, [25 / 46, -21 / 46], periodic, output_datatype)


@lowers("BlackmanWindow", since=17)
def blackman_window(size: Host, *, output_datatype: int = 1, periodic: int = 1) -> Host:
    return _window(size, [0.42, -0.5, 0.08], periodic, output_datatype)


@lowers("MelWeightMatrix", since=17)
def mel_weight_matrix(
    num_mel_bins: Host,
    dft_length: Host,
    sample_rate: Host,
    lower_edge_hertz: Host,
    upper_edge_hertz: Host,
    *,
    output_datatype: int = 1,
) -> Host:
    """Triangles that overlap by half, evenly spaced on the mel scale."""
    bins, length, rate = (int(one_of(v)) for v in (num_mel_bins, dft_length, sample_rate))
    if not 0 < bins <= 1 << 16 or not 0 < length <= 1 << 24 or rate <= 0:
        raise refuse(f"{bins} bins of a transform of {length} at {rate} Hz")
    spectrum = length // 2 + 1
    low, high = (
        2595 * math.log10(1 + float(one_of(v)) / 700) for v in (lower_edge_hertz, upper_edge_hertz)
    )
    # by bins + 2, as the reference has it: the last edge is not reached
    mels = low + numpy.arange(bins + 2) * ((high - low) / (bins + 2))
    hertz = 700 * (10 ** (mels / 2595) - 1)
    places = ((length + 1) * hertz // rate).astype(numpy.int64)
    found = numpy.zeros((spectrum, bins))
    for i in range(bins):
        first, middle, last = places[i : i + 3]
        if middle == first:
            found[middle, i] = 1
        else:
            rising = numpy.arange(first, middle + 1)
            found[rising, i] = (rising - first) / (middle - first)
        if last != middle:
            falling = numpy.arange(middle, last)
            found[falling, i] = (last - falling) / (last - middle)
    kind = data_type(output_datatype, "output_datatype").to_dtype()
    result: Host = found.astype(to_numpy_dtype(kind))
    return result
