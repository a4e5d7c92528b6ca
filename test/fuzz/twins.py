"""NumPy's side of what NumPy has no function for: convolutions, pools, scatters.

In: arrays of small whole numbers. Out: arrays, exact. Written for reading, not for speed; the twin
of a random program calls them by the name of this module.
"""

from __future__ import annotations

import itertools

import numpy as np


def _windows(
    x: np.ndarray, kernel: tuple[int, ...], stride: int, dilation: int
) -> tuple[np.ndarray, ...]:
    """For every place of the kernel the elements that it meets, over all positions."""
    rank = len(kernel)
    counts = [
        (size - dilation * (k - 1) - 1) // stride + 1
        for size, k in zip(x.shape[-rank:], kernel, strict=True)
    ]
    return tuple(
        x[
            (
                ...,
                *[
                    slice(k * dilation, k * dilation + stride * (count - 1) + 1, stride)
                    for k, count in zip(place, counts, strict=True)
                ],
            )
        ]
        for place in itertools.product(*map(range, kernel))
    )


def conv(
    x: np.ndarray, weight: np.ndarray, groups: int, stride: int, dilation: int, padding: int
) -> np.ndarray:
    """Correlation of (batch, channels, *space) with (out, channels / groups, *kernel)."""
    rank = weight.ndim - 2
    wide = np.float64 if x.dtype.kind == "f" else np.int64
    pads = [(0, 0), (0, 0), *[(padding, padding)] * rank]
    padded = np.pad(x.astype(wide), pads)
    places = _windows(padded, weight.shape[2:], stride, dilation)
    inputs, outputs = x.shape[1] // groups, weight.shape[0] // groups
    flat = weight.reshape(*weight.shape[:2], -1).astype(wide)
    parts = []
    for group in range(groups):
        mine = slice(group * inputs, (group + 1) * inputs)
        rows = slice(group * outputs, (group + 1) * outputs)
        part = sum(
            np.einsum("bc...,oc->bo...", elements[:, mine], flat[rows, :, place])
            for place, elements in enumerate(places)
        )
        parts.append(part)
    return np.concatenate(parts, axis=1).astype(x.dtype)


def max_pool(
    x: np.ndarray, kernel: tuple[int, ...], stride: int, dilation: int, padding: int
) -> np.ndarray:
    """The greatest element of every window; what is padded never wins."""
    pads = [(0, 0)] * (x.ndim - len(kernel)) + [(padding, padding)] * len(kernel)
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    padded = np.pad(x, pads, constant_values=lowest)
    return np.maximum.reduce(_windows(padded, kernel, stride, dilation))


def sum_pool(x: np.ndarray, kernel: tuple[int, ...], stride: int) -> np.ndarray:
    """The sum of every window."""
    total: np.ndarray = np.add.reduce(_windows(x, kernel, stride, 1))
    return total


def scatter(
    x: np.ndarray, axis: int, index: np.ndarray, source: np.ndarray, add: bool = False
) -> np.ndarray:
    """x with the elements of `source` at the places of `index`; the last one of a place wins."""
    result = x.copy()
    for place in np.ndindex(index.shape):
        target = (*place[:axis], int(index[place]), *place[axis + 1 :])
        result[target] = result[target] + source[place] if add else source[place]
    return result
