"""Winograd's convolution: windows of three or five elements with fewer products.

In: a padded tensor (batch, channels, *space) and weights (out, in / groups, *kernel) whose kernel
is 5, 3 or 1 along each axis. Out: what the windows times the weights sum up to. Sits below conv,
which says when it is used.
Invariant: the matrices are numbers of Python, with no device, shape or dtype of their own; a zero
is no term and a one no product.

A tile of m outputs of windows of r needs m + r - 1 inputs along an axis, and as many products
instead of m * r: the inputs are polynomials, multiplied at m + r - 1 points. F(4, 3) has 6 for 12,
F(2, 3) 4 for 6, F(2, 5) 6 for 10, and in two axes 36 for 144, 16 for 36, 36 for 100. The price is
rounding: sums over six points have terms that are up to a hundred times larger than their result.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.device import Device
from weft.dtype import dtypes
from weft.helpers import ceildiv, prod
from weft.knobs import WINO
from weft.machine import Target
from weft.mixin.movement import is_int
from weft.uop.opset import Ops

Matrix = tuple[tuple[float, ...], ...]

# by how many points there are: what inputs are multiplied with
INPUTS: dict[int, Matrix] = {
    4: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, -1, 0, 1)),
    6: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
# the points, of which the first are used; the last one is at infinity
POINTS = (0, 1, -1, 2, -2)
SCALES = {4: (1, 1 / 2, 1 / 2), 6: (1 / 4, -1 / 6, -1 / 6, 1 / 24, 1 / 24)}


def weights_at(points: int, width: int) -> Matrix:
    """What weights are multiplied with: powers of the points; at infinity the last one counts."""
    rows = [
        tuple([scale * point**k for k in range(width)])
        for scale, point in zip(SCALES[points], POINTS, strict=False)
    ]
    return (*rows, tuple([float(k == width - 1) for k in range(width)]))


def outputs_of(points: int, tile: int) -> Matrix:
    """What products are multiplied with."""
    return tuple(
        [(*[point**k for point in POINTS[: points - 1]], int(k == tile - 1)) for k in range(tile)]
    )


# points of all axes together that one kernel computes side by side
MOST_POINTS = 64
# tiles in a row, at least: the lanes of a vector
LEAST_LANES = 8
# bytes of transformed weights that are read again for every few tiles
MOST_WEIGHTS = 4 << 20
# how many times fewer instructions, and how many of them, are worth another kernel
LEAST_GAIN, LEAST_WORK = 1.3, 1 << 17
# instructions for a point of a tile: to transform an input, a weight, an output
INPUT_WORK, WEIGHT_WORK, OUTPUT_WORK = 7.0, 8.0, 6.0

# pieces that are summed apart, since pairs of rows are the sum and the difference of those sums
PARITY = (slice(0, None, 2), slice(1, None, 2))
PAIRS = (slice(0, 1), slice(1, 3), slice(3, 5), slice(5, None))


def tiles_for(
    source: Any, weight: Any, groups: int, steps: Sequence[int], gaps: Sequence[int]
) -> tuple[int, ...] | None:
    """The outputs of a tile along each axis, 1 where the kernel is 1; None: no Winograd.

    `WINO=1` asks for it wherever it can be, `WINO=0` never; else where it takes less time.
    """
    kernel = weight.shape[2:]
    if not WINO or not set(kernel) <= {1, 3, 5} or set(kernel) == {1} or len(kernel) > 3:
        return None
    if any(step != 1 for step in (*steps, *gaps)):
        return None
    if not all(is_int(n) and n > 0 for n in (*source.shape, *weight.shape)):
        return None
    if not (dtypes.is_float(source.dtype) and dtypes.is_float(weight.dtype)):
        return None
    space = [n - width + 1 for n, width in zip(source.shape[2:], kernel, strict=True)]
    if any(n < 1 for n in space):
        return None
    forms = [_tiles(kernel, space, wide) for wide in (4, 2)]
    if WINO > 0:
        return forms[0]
    device = source.device
    if not isinstance(device, str) or max(source.dtype.itemsize, weight.dtype.itemsize) > 4:
        return None
    target = Device[device].renderer.target
    work = [_gain(source.shape[0], weight.shape, groups, space, form, target) for form in forms]
    best = max(range(len(forms)), key=work.__getitem__)
    return forms[best] if work[best] >= LEAST_GAIN else None


def _tiles(kernel: Sequence[int], space: Sequence[int], last: int) -> tuple[int, ...]:
    """Outputs for six points along each axis, for three weights along the innermost at most `last`;
    for four points where there are no more outputs, or so many axes that six would be too many."""
    tiles = []
    for width, n in zip(kernel, space, strict=True):
        tiles.append(1 if width == 1 else 2 if width == 5 or n <= 2 else 4)
    inner = max(axis for axis, width in enumerate(kernel) if width > 1)
    tiles[inner] = min(tiles[inner], last)
    while 4 in tiles and prod(_points(tiles, kernel)) > MOST_POINTS:
        tiles[tiles.index(4)] = 2
    return tuple(tiles)


def _points(tiles: Sequence[int], kernel: Sequence[int]) -> list[int]:
    return [tile + width - 1 for tile, width in zip(tiles, kernel, strict=True)]


def _gain(
    batch: int,
    weight: Sequence[int],
    groups: int,
    space: Sequence[int],
    tiles: Sequence[int],
    target: Target,
) -> float:
    """How many times fewer instructions than the plain sums take; 0 where it is not to be used."""
    outer, inner, *kernel = weight
    counts = [ceildiv(n, tile) for n, tile in zip(space, tiles, strict=True)]
    points = prod(_points(tiles, kernel))
    tile_count = float(batch * prod(counts))
    # one row of tiles is a vector, and what is transformed stays near a core
    if target.has_local or target.vector_bytes < 4 * LEAST_LANES or counts[-1] < LEAST_LANES:
        return 0.0
    if points * outer * inner * 4 > MOST_WEIGHTS or tiles[-1] == 1:
        return 0.0
    lanes = target.vector_bytes // 4
    plain = batch * prod(space) * outer * inner * prod(kernel) / lanes
    if plain < LEAST_WORK:
        return 0.0
    # tiles of a row are whole vectors, perhaps of half the lanes; the last one repeats some
    width = lanes if counts[-1] >= lanes else LEAST_LANES
    tile_count = tile_count / counts[-1] * ceildiv(counts[-1], width) * width
    products = tile_count * points * outer * inner
    transforms = tile_count * points * (inner * groups * INPUT_WORK + outer * OUTPUT_WORK)
    once = points * outer * inner * WEIGHT_WORK
    return plain * lanes / (products + transforms * lanes / width + once)


def _added(total: Any, piece: Any, factor: float) -> Any:
    """total + piece * factor, as few operations as it takes; None is nothing yet."""
    if abs(factor) == 1:
        if total is None:
            return piece if factor > 0 else -piece
        return total + piece if factor > 0 else total - piece
    if total is None:
        return piece * factor
    return piece.alu(Ops.MULADD, piece._constant(factor), total)


def _sum_of(factors: Sequence[float], pieces: Sequence[Any]) -> tuple[Any, float] | None:
    """Pieces times numbers, added up, and a factor of all: it takes the first sign, and what all
    have in common, so that rows which differ in that alone have one sum."""
    terms = [(factor, piece) for factor, piece in zip(factors, pieces, strict=True) if factor]
    if not terms:
        return None
    sizes = {abs(factor) for factor, _ in terms}
    whole = sizes.pop() if len(sizes) == 1 else 1
    whole = -whole if terms[0][0] < 0 else whole
    total: Any = None
    # what is not multiplied comes first: the products then are added as they are made
    for factor, piece in sorted(terms, key=lambda term: abs(term[0]) != abs(whole)):
        total = _added(total, piece, factor / whole)
    return total, whole


def combine(matrix: Matrix, pieces: Sequence[Any], parts: Sequence[slice]) -> list[Any]:
    """A matrix times pieces of a tensor: for each row the sum of its numbers times the pieces."""
    rows = []
    for row in matrix:
        sums = [_sum_of(row[part], pieces[part]) for part in parts]
        # what is added comes first
        found = sorted([one for one in sums if one is not None], key=lambda one: one[1] < 0)
        total: Any = None
        for part, factor in found:
            total = _added(total, part, factor)
        rows.append(total)
    return rows


def _transformed(source: Any, axis: int, matrix: Matrix, step: int, first: Sequence[int]) -> Any:
    """Tiles along an axis, `step` apart, times a matrix: (rows, ..., tiles, ...).

    Computed in the order of the `first` axes, then rows, then the others.
    """
    width = len(matrix[0])
    reach = source.shape[axis] - width + 1
    order = [*first, *[i for i in range(source.ndim) if i not in first]]
    moved, place = source.permute(order), order.index(axis)
    steps = [step if i == place else 1 for i in range(source.ndim)]
    pieces = [moved._slice(place, i, i + reach)._stride(steps) for i in range(width)]
    one, *others = combine(matrix, pieces, PARITY)
    found = one.stack(*others, dim=len(first))
    order.insert(len(first), -1)
    return found.permute([order.index(i) for i in range(-1, source.ndim)])


def correlate(source: Any, weight: Any, groups: int, tiles: Sequence[int]) -> Any:
    """The convolution of a padded input; `tiles` are the outputs of a tile along each axis, 1 along
    those where the kernel is 1."""
    kernel = weight.shape[2:]
    outer, inner = weight.shape[0] // groups, weight.shape[1]
    batch = source.shape[0]
    space = [n - width + 1 for n, width in zip(source.shape[2:], kernel, strict=True)]
    counts = [ceildiv(n, tile) for n, tile in zip(space, tiles, strict=True)]
    whole = [count * tile for count, tile in zip(counts, tiles, strict=True)]
    # channels first: tiles of all images are then one axis of a product of matrices
    more = [(0, all_of - n) for all_of, n in zip(whole, space, strict=True)]
    below, folded = source.transpose(0, 1)._pad_space(more), weight
    moved = [axis for axis, tile in enumerate(tiles) if tile > 1]
    at = _points(tiles, kernel)
    for done, axis in enumerate(moved):
        weights = weights_at(at[axis], kernel[axis])
        place = 2 + axis + done
        # images and tiles first: where it is stored, what a tile needs lies together
        first = range(0) if axis == moved[-1] else range(done + 1, place + 1)
        below = _transformed(below, place, INPUTS[at[axis]], tiles[axis], first)
        folded = _transformed(folded, place, weights, 1, ())
    points = below.shape[: len(moved)]
    factors = folded.reshape((prod(points), groups, outer, 1, inner))
    windows = below.reshape((prod(points), groups, 1, inner, batch * prod(counts)))
    total = (factors * windows.transpose(-1, -2)).sum(-1)
    total = total.reshape((*points, groups * outer, batch, *counts))
    # images first again, as the result is stored; the last transform is the first axis
    order = list(range(total.ndim))
    order[len(moved)], order[len(moved) + 1] = order[len(moved) + 1], order[len(moved)]
    total = total.permute(order)
    for left, axis in reversed(list(enumerate(moved))):
        pieces = [total._slice(0, i, i + 1).reshape(total.shape[1:]) for i in range(len(total))]
        first, *others = combine(outputs_of(at[axis], tiles[axis]), pieces, PAIRS)
        total = first.stack(*others, dim=left + 2 + axis + 1)
    total = total.reshape((batch, groups * outer, *whole))
    if whole == space:
        return total
    # tiles over the edge are computed whole: what is cut off must not cut them apart
    return total.contiguous().shrink([None, None, *[(0, n) for n in space]])
