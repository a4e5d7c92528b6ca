"""Operators that move elements: shapes, slices, joins, gathers and scatters.

In: Tensors, and sizes and axes as attributes or as inputs on the host. Out: Tensors.
A family of the table of lowerings. Invariant: what is known before running (a constant index, a
shape) becomes movement; only indices that are computed become gathers.
"""

from __future__ import annotations

import math
from typing import Any

import numpy

from weft.dtype import dtypes
from weft.errors import ShapeError
from weft.graphs.model import StoredTensor
from weft.graphs.table import (
    Call,
    Either,
    Host,
    axes_of,
    axis_of,
    is_symbolic,
    lowers,
    one_of,
    refuse,
    sizes_of,
)
from weft.graphs.types import OnnxDataType, data_type
from weft.mixin.movement import broadcast_shape
from weft.tensor import Tensor

# elements of integer tables that stay on the host
_HOST_ELEMENTS = 1024


@lowers("Identity")
def identity(x: Any) -> Any:
    return x


# ------------------------------------------------------------ shapes
@lowers("Shape")
def shape(x: Either, *, start: int = 0, end: int | None = None) -> Host:
    sizes = list(x.shape)[slice(start, end)]
    if all(isinstance(size, int) for size in sizes):
        return numpy.array(sizes, dtype=numpy.int64)
    return numpy.array(sizes, dtype=object)


@lowers("Size")
def size(x: Either) -> Host:
    return numpy.array(math.prod(x.shape), dtype=numpy.int64)


def reshaped(x: Tensor, sizes: list[Any], allow_zero: int) -> Tensor:
    """The tensor in another shape; 0 keeps the size of the axis, -1 is what is left."""
    wanted = [
        x.shape[i] if isinstance(n, int) and n == 0 and not allow_zero and i < x.ndim else n
        for i, n in enumerate(sizes)
    ]
    if sum(isinstance(n, int) and n == -1 for n in wanted) > 1:
        raise refuse(f"more than one size of {sizes} is -1")
    if x.numel() == 0 and -1 in wanted:
        others = math.prod(n for n in wanted if n != -1)
        wanted = [(0 if others else 0) if n == -1 else n for n in wanted]
    return x.reshape(tuple(wanted))


@lowers("Reshape")
def reshape_attribute(x: Tensor, *, shape: list[int], consumed_inputs: Any = None) -> Tensor:
    return reshaped(x, list(shape), 0)


@lowers("Reshape", since=5)
def reshape(x: Tensor, shape: Host, *, allowzero: int = 0) -> Tensor:
    return reshaped(x, sizes_of(shape), allowzero)


@lowers("Flatten")
def flatten(x: Tensor, *, axis: int = 1) -> Tensor:
    place = axis + x.ndim if axis < 0 else axis
    if not 0 <= place <= x.ndim:
        raise refuse(f"axis {axis} of a tensor with {x.ndim} axes")
    return x.reshape((math.prod(x.shape[:place]), math.prod(x.shape[place:])))


@lowers("Squeeze")
def squeeze_attribute(x: Tensor, *, axes: list[int] | None = None) -> Tensor:
    return _squeezed(x, axes)


@lowers("Squeeze", since=13)
def squeeze(x: Tensor, axes: Host | None = None) -> Tensor:
    return _squeezed(x, None if axes is None else sizes_of(axes))


def _squeezed(x: Tensor, axes: list[int] | None) -> Tensor:
    if axes is None:
        return x.reshape(tuple(n for n in x.shape if not isinstance(n, int) or n != 1))
    places = axes_of(axes, x.ndim)
    if any(x.shape[place] != 1 for place in places):
        raise refuse(f"the axes {axes} of shape {x.shape} do not have size 1")
    return x.reshape(tuple(n for i, n in enumerate(x.shape) if i not in places))


@lowers("Unsqueeze")
def unsqueeze_attribute(x: Tensor, *, axes: list[int]) -> Tensor:
    return _unsqueezed(x, axes)


@lowers("Unsqueeze", since=13)
def unsqueeze(x: Tensor, axes: Host) -> Tensor:
    return _unsqueezed(x, sizes_of(axes))


def _unsqueezed(x: Tensor, axes: list[int]) -> Tensor:
    places = set(axes_of(axes, x.ndim + len(axes)))
    own = iter(x.shape)
    return x.reshape(tuple(1 if i in places else next(own) for i in range(x.ndim + len(places))))


@lowers("Transpose")
def transpose(x: Tensor, *, perm: list[int] | None = None) -> Tensor:
    order = list(range(x.ndim))[::-1] if perm is None else axes_of(perm, x.ndim)
    return x.permute(order)


@lowers("Expand", since=8)
def expand(x: Tensor, shape: Host) -> Tensor:
    return x.expand(broadcast_shape(x.shape, tuple(sizes_of(shape))))


@lowers("Tile")
def tile_axis(x: Tensor, tiles: Host, axis: Host) -> Tensor:
    place = axis_of(one_of(axis), x.ndim)
    return x.repeat(tuple(int(one_of(tiles)) if i == place else 1 for i in range(x.ndim)))


@lowers("Tile", since=6)
def tile(x: Tensor, repeats: Host) -> Tensor:
    return x.repeat(tuple(sizes_of(repeats)))


# ------------------------------------------------------------ slices and joins
@lowers("Slice")
def slice_attributes(
    x: Tensor, *, starts: list[int], ends: list[int], axes: list[int] | None = None
) -> Tensor:
    return _sliced(x, starts, ends, axes, None)


@lowers("Slice", since=10)
def slice_inputs(
    x: Tensor, starts: Host, ends: Host, axes: Host | None = None, steps: Host | None = None
) -> Tensor:
    return _sliced(
        x,
        sizes_of(starts),
        sizes_of(ends),
        None if axes is None else sizes_of(axes),
        None if steps is None else sizes_of(steps),
    )


def slices_of(
    rank: int, starts: list[Any], ends: list[Any], axes: list[int] | None, steps: list[int] | None
) -> tuple[slice, ...]:
    """The slices of every axis, as Python has them."""
    places = list(range(len(starts))) if axes is None else [axis_of(a, rank) for a in axes]
    found = [slice(None)] * rank
    for i, place in enumerate(places):
        step = 1 if steps is None else steps[i]
        if step == 0:
            raise refuse("a step of 0")
        start, end = starts[i], ends[i]
        if isinstance(end, int) and end < -(1 << 31):
            end = None if step < 0 else -(1 << 31)
        found[place] = slice(start, end, step)
    return tuple(found)


def _sliced(x: Tensor, starts: Any, ends: Any, axes: Any, steps: Any) -> Tensor:
    if not len(starts) == len(ends) == len(axes if axes is not None else ends):
        raise refuse(f"{len(starts)} starts, {len(ends)} ends and axes {axes}")
    return x[clamped(slices_of(x.ndim, list(starts), list(ends), axes, steps), x.shape)]


def clamped(found: tuple[slice, ...], sizes: tuple[Any, ...]) -> tuple[slice, ...]:
    """The slices with bounds inside of their axes, so that any large number may end them."""
    result = []
    for one, size in zip(found, sizes, strict=True):
        if not isinstance(size, int) or one == slice(None):
            result.append(one)
            continue
        if not all(isinstance(n, int) or n is None for n in (one.start, one.stop)):
            result.append(one)
            continue
        start, stop, step = one.indices(size)
        result.append(slice(start, None if stop < 0 else stop, step))
    return tuple(result)


@lowers("Concat")
def concat(*parts: Tensor, axis: int = 1) -> Tensor:
    if not parts:
        raise refuse("needs at least one input")
    place = axis_of(axis, parts[0].ndim)
    full = [part for part in parts if part.ndim != 1 or part.shape[0] != 0] or [parts[0]]
    return full[0].cat(*full[1:], dim=place) if len(full) > 1 else full[0]


def _split_sizes(x: Tensor, place: int, sizes: list[int] | None, count: int) -> list[int]:
    total = x.shape[place]
    if sizes is None:
        each = -(-total // count)
        sizes = [each] * (count - 1) + [total - each * (count - 1)]
    if sum(sizes) != total or any(n < 0 for n in sizes):
        raise refuse(f"sizes {sizes} do not add up to {total}, the size of axis {place}")
    return sizes


def _split(x: Tensor, axis: int, sizes: list[int] | None, count: int) -> tuple[Tensor, ...]:
    place = axis_of(axis, x.ndim)
    parts, start = [], 0
    for n in _split_sizes(x, place, sizes, count):
        box = [None if i != place else (start, start + n) for i in range(x.ndim)]
        parts.append(x.shrink(box))
        start += n
    return tuple(parts)


@lowers("Split")
def split_attribute(
    x: Tensor,
    sizes: Host | None = None,
    *,
    axis: int = 0,
    split: list[int] | None = None,
    call: Call,
) -> tuple[Tensor, ...]:
    return _split(x, axis, split if sizes is None else sizes_of(sizes), call.outputs)


@lowers("Split", since=13)
def split(
    x: Tensor,
    split: Host | None = None,
    *,
    axis: int = 0,
    num_outputs: int | None = None,
    call: Call,
) -> tuple[Tensor, ...]:
    sizes = None if split is None else sizes_of(split)
    return _split(x, axis, sizes, num_outputs or call.outputs)


# ------------------------------------------------------------ padding
_MODES = {"reflect": "reflect", "edge": "edge", "wrap": "wrap"}


def padded(x: Tensor, pairs: list[tuple[int, int]], mode: str, value: Any) -> Tensor:
    """Elements around; `pairs` are (before, after) of each axis, negative ones cut off."""
    if mode == "constant":
        return x.pad(tuple(pairs), value=value)
    if mode not in _MODES:
        raise refuse(f"mode is constant, reflect, edge or wrap, found {mode!r}")
    for place, (before, after) in enumerate(pairs):
        if before == after == 0:
            continue
        if x.shape[place] == 0:
            raise refuse(f"axis {place} is empty: there is nothing to copy")
        around = (max(before, 0), max(after, 0))
        where = numpy.pad(numpy.arange(x.shape[place]), around, mode=mode)  # type: ignore[call-overload]
        where = where[max(-before, 0) : len(where) - max(-after, 0)]
        x = x[(*[slice(None)] * place, Tensor(where))]
    return x


def _pairs(numbers: list[int], axes: list[int], rank: int) -> list[tuple[int, int]]:
    if len(numbers) != 2 * len(axes):
        raise refuse(f"{len(numbers)} pads for {len(axes)} axes")
    found = [(0, 0)] * rank
    for i, place in enumerate(axes):
        found[place] = (numbers[i], numbers[i + len(axes)])
    return found


@lowers("Pad")
def pad_attributes(
    x: Tensor,
    *,
    pads: list[int] | None = None,
    paddings: list[int] | None = None,
    mode: str = "constant",
    value: float = 0.0,
) -> Tensor:
    numbers = list(pads if pads is not None else paddings or [])
    return padded(x, _pairs(numbers, list(range(x.ndim)), x.ndim), mode, value)


@lowers("Pad", since=11)
def pad(
    x: Tensor,
    pads: Host,
    value: Host | None = None,
    axes: Host | None = None,
    *,
    mode: str = "constant",
) -> Tensor:
    places = list(range(x.ndim)) if axes is None else axes_of(sizes_of(axes), x.ndim)
    return padded(x, _pairs(sizes_of(pads), places, x.ndim), mode, one_of(value, 0))


@lowers("CenterCropPad", since=18)
def center_crop_pad(x: Tensor, shape: Host, *, axes: list[int] | None = None) -> Tensor:
    places = list(range(x.ndim)) if axes is None else axes_of(axes, x.ndim)
    pairs = [(0, 0)] * x.ndim
    for place, wanted in zip(places, sizes_of(shape), strict=True):
        more = wanted - x.shape[place]
        # what is odd goes to the end when padding and is cut from the end when cropping
        first = more // 2 if more >= 0 else -(-more // 2)
        pairs[place] = (first, more - first)
    return x.pad(tuple(pairs))


# ------------------------------------------------------------ constants
def stored_value(stored: StoredTensor) -> Any:
    """A tensor of an attribute: on the host if it is small."""
    dtype = None if stored.kind is OnnxDataType.STRING else stored.kind.to_dtype()
    if dtype is None or (dtype not in (dtypes.bfloat16, *dtypes.fp8s) and stored.count <= 4096):
        return stored.numpy()
    return stored.tensor()


@lowers("Constant")
def constant(
    *,
    value: StoredTensor | None = None,
    sparse_value: StoredTensor | None = None,
    value_int: int | None = None,
    value_ints: list[int] | None = None,
    value_float: float | None = None,
    value_floats: list[float] | None = None,
    value_string: str | None = None,
    value_strings: list[str] | None = None,
    call: Call,
) -> Any:
    stored = value if value is not None else sparse_value
    if stored is not None:
        call.declare(0, stored.kind)
        return stored_value(stored)
    if value_int is not None or value_ints is not None:
        return numpy.array(value_int if value_ints is None else value_ints, dtype=numpy.int64)
    if value_float is not None or value_floats is not None:
        found = value_float if value_floats is None else value_floats
        return numpy.array(found, dtype=numpy.float32)
    if value_string is not None or value_strings is not None:
        return numpy.array(value_string if value_strings is None else value_strings, dtype=object)
    raise refuse("has no value")


@lowers("ConstantOfShape", since=9)
def constant_of_shape(shape: Host, *, value: StoredTensor | None = None) -> Any:
    sizes = tuple(sizes_of(shape))
    if any(isinstance(n, int) and n < 0 for n in sizes):
        raise refuse(f"the shape {sizes} has a negative size")
    if value is None:
        return Tensor.zeros(*sizes, dtype=dtypes.float32)
    dtype = value.kind.to_dtype()
    number = one_of(value.numpy())
    if dtypes.is_int(dtype) and all(isinstance(n, int) for n in sizes):
        if math.prod(sizes) <= _HOST_ELEMENTS:
            return numpy.full(sizes, number, dtype=dtype.name)
    return Tensor.full(sizes, number, dtype=dtype)


@lowers("EyeLike", since=9)
def eye_like(x: Tensor, *, dtype: int | None = None, k: int = 0) -> Tensor:
    rows, columns = x.shape
    kind = x.dtype if dtype is None else data_type(dtype, "dtype").to_dtype()
    across = Tensor.arange(columns).reshape((1, columns))
    return across.eq(Tensor.arange(rows).reshape((rows, 1)) + k).cast(kind)


@lowers("Range", since=11)
def range_of(start: Host, limit: Host, delta: Host) -> Any:
    first, last, step = one_of(start), one_of(limit), one_of(delta)
    if is_symbolic(limit) and isinstance(step, int) and step == 1:
        return (Tensor.arange(last - first) + Tensor(first)).cast(dtypes.int64)
    if step == 0:
        raise refuse("a step of 0")
    count = max(0, math.ceil((last - first) / step))
    kind = Tensor(start.reshape(-1)).dtype
    if count <= _HOST_ELEMENTS and start.dtype.kind in "iuf":
        return (first + numpy.arange(count) * step).astype(start.dtype)
    return (Tensor.arange(count) * step + first).cast(kind)


@lowers("OneHot", since=9)
def one_hot(indices: Tensor, depth: Host, values: Tensor, *, axis: int = -1) -> Tensor:
    count = int(one_of(depth))
    place = axis_of(axis, indices.ndim + 1)
    whole = indices.cast(dtypes.int64)
    inside = (whole < 0).where(whole + count, whole).unsqueeze(place)
    sizes = [count if i == place else 1 for i in range(inside.ndim)]
    hot = Tensor.arange(count, dtype=dtypes.int64).reshape(sizes).eq(inside)
    return hot.where(values[1], values[0])


@lowers("Trilu", since=14)
def trilu(x: Tensor, k: Host | None = None, *, upper: int = 1) -> Tensor:
    diagonal = int(one_of(k, 0))
    if x.numel() == 0:
        return x
    return x.triu(diagonal) if upper else x.tril(diagonal)


# ------------------------------------------------------------ gathers
def inside(index: Tensor, size: Any) -> Tensor:
    """Indices counted from the front."""
    whole = index.cast(dtypes.int64) if not dtypes.is_int(index.dtype) else index
    return whole if dtypes.is_unsigned(whole.dtype) else (whole < 0).where(whole + size, whole)


@lowers("Gather")
def gather(x: Any, indices: Either, *, axis: int = 0, call: Call) -> Any:
    if isinstance(x, numpy.ndarray):
        return numpy.take(x, call.fetch(indices), axis=axis)
    place = axis_of(axis, x.ndim)
    if isinstance(indices, numpy.ndarray):
        size = x.shape[place]
        if indices.size == 1 and isinstance(size, int):
            first = int(indices.reshape(-1)[0])
            if not -size <= first < size:
                raise refuse(f"index {first} on axis {axis}, which has {size} elements")
            first %= size
            box = [None if i != place else (first, first + 1) for i in range(x.ndim)]
            return x.shrink(box).reshape((*x.shape[:place], *indices.shape, *x.shape[place + 1 :]))
        if isinstance(size, int) and indices.size:
            if not -size <= int(indices.min()) <= int(indices.max()) < size:
                raise refuse(f"an index of {indices.tolist()} is not on axis {axis} of {x.shape}")
    index = inside(call.tensor(indices), x.shape[place])
    return x[(*[slice(None)] * place, index)]


@lowers("GatherElements", since=11)
def gather_elements(x: Tensor, indices: Tensor, *, axis: int = 0) -> Tensor:
    place = axis_of(axis, x.ndim)
    return x.gather(place, inside(indices, x.shape[place]))


@lowers("GatherND", since=11)
def gather_nd(x: Tensor, indices: Tensor, *, batch_dims: int = 0) -> Tensor:
    depth = indices.shape[-1]
    if batch_dims + depth > x.ndim or batch_dims >= indices.ndim:
        raise refuse(f"indices of shape {indices.shape} for {x.ndim} axes")
    lead = indices.shape[:-1]
    places: list[Tensor] = []
    for i in range(batch_dims):
        sizes = [lead[j] if j == i else 1 for j in range(len(lead))]
        places.append(Tensor.arange(lead[i], dtype=dtypes.int64).reshape(sizes).expand(lead))
    for i in range(depth):
        places.append(inside(indices[..., i], x.shape[batch_dims + i]))
    return x[tuple(places)]


# ------------------------------------------------------------ scatters
_REDUCTIONS = {"add": "sum", "mul": "prod", "max": "amax", "min": "amin"}


def _scattered(x: Tensor, axis: int, indices: Tensor, updates: Tensor, reduction: str) -> Tensor:
    place = axis_of(axis, x.ndim)
    index = inside(indices, x.shape[place])
    if reduction == "none":
        return x.scatter(place, index, updates)
    if reduction not in _REDUCTIONS:
        raise refuse(f"reduction is none, add, mul, max or min, found {reduction!r}")
    return x.scatter_reduce(place, index, updates, _REDUCTIONS[reduction])


@lowers("Scatter", since=9)
def scatter(x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0) -> Tensor:
    return _scattered(x, axis, indices, updates, "none")


@lowers("ScatterElements", since=11)
def scatter_elements(
    x: Tensor, indices: Tensor, updates: Tensor, *, axis: int = 0, reduction: str = "none"
) -> Tensor:
    return _scattered(x, axis, indices, updates, reduction)


@lowers("ScatterND", since=11)
def scatter_nd(x: Tensor, indices: Tensor, updates: Tensor, *, reduction: str = "none") -> Tensor:
    depth = indices.shape[-1]
    outer, inner = x.shape[:depth], x.shape[depth:]
    lead = indices.shape[:-1]
    if updates.shape != (*lead, *inner):
        raise ShapeError(f"updates of shape {updates.shape}; wanted is {(*lead, *inner)}")
    flat = indices.cast(dtypes.int64)
    place: Any = 0
    for i in range(depth):
        place = place * outer[i] + inside(flat[..., i], outer[i])
    rows, width = math.prod(outer), math.prod(inner)
    table = x.reshape((rows, width))
    index = place.reshape((math.prod(lead), 1)).expand((math.prod(lead), width))
    values = updates.reshape((math.prod(lead), width))
    return _scattered(table, 0, index, values, reduction).reshape(x.shape)


@lowers("TensorScatter", since=24)
def tensor_scatter(
    past: Tensor,
    update: Tensor,
    write_indices: Tensor | None = None,
    *,
    axis: int = -2,
    mode: str = "linear",
) -> Tensor:
    place = axis_of(axis, past.ndim)
    count, size = update.shape[place], past.shape[place]
    steps = Tensor.arange(count, dtype=dtypes.int64)
    if write_indices is None:
        where = steps.reshape((1, count)).expand((past.shape[0], count))
    else:
        where = write_indices.cast(dtypes.int64).reshape((-1, 1)) + steps
    where = where % size if mode == "circular" else where
    sizes = [past.shape[0] if i == 0 else count if i == place else 1 for i in range(past.ndim)]
    return past.scatter(place, where.reshape(sizes).expand(update.shape), update)


# ------------------------------------------------------------ selections
@lowers("Compress", since=9)
def compress(x: Tensor, condition: Host, *, axis: int | None = None) -> Tensor:
    source = x.flatten() if axis is None else x
    place = 0 if axis is None else axis_of(axis, x.ndim)
    chosen = numpy.flatnonzero(condition.reshape(-1)[: source.shape[place]])
    if len(chosen) == 0:
        box = [None if i != place else (0, 0) for i in range(source.ndim)]
        return source.shrink(box)
    return source[(*[slice(None)] * place, Tensor(chosen))]


@lowers("NonZero", since=9)
def non_zero(x: Host) -> Host:
    return numpy.array(numpy.nonzero(x), dtype=numpy.int64).reshape((x.ndim, -1))


@lowers("Unique", since=11)
def unique(x: Host, *, axis: int | None = None, sorted: int = 1) -> tuple[Any, ...]:  # noqa: A002
    values, first, inverse, counts = numpy.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=axis
    )
    inverse = inverse.reshape(-1)
    if not sorted:
        order = numpy.argsort(first, kind="stable")
        values = numpy.take(values, order, axis=0 if axis is None else axis)
        rank = numpy.empty_like(order)
        rank[order] = numpy.arange(len(order))
        first, inverse, counts = first[order], rank[inverse], counts[order]
    return values, *(part.astype(numpy.int64) for part in (first, inverse, counts))


@lowers("ReverseSequence", since=10)
def reverse_sequence(
    x: Tensor, lengths: Tensor, *, batch_axis: int = 1, time_axis: int = 0
) -> Tensor:
    steps, batch = x.shape[time_axis], x.shape[batch_axis]
    time = Tensor.arange(steps, dtype=dtypes.int64)
    sizes = [1] * x.ndim
    sizes[time_axis] = steps
    time = time.reshape(sizes)
    sizes = [1] * x.ndim
    sizes[batch_axis] = batch
    length = lengths.cast(dtypes.int64).reshape(sizes)
    index = (time < length).where(length - 1 - time, time)
    return x.gather(time_axis, index.expand(x.shape))


# ------------------------------------------------------------ blocks
@lowers("DepthToSpace")
def depth_to_space(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    if mode == "DCR":
        apart = x.reshape((n, b, b, c // (b * b), h, w)).permute((0, 3, 4, 1, 5, 2))
    else:
        apart = x.reshape((n, c // (b * b), b, b, h, w)).permute((0, 1, 4, 2, 5, 3))
    return apart.reshape((n, c // (b * b), h * b, w * b))


@lowers("SpaceToDepth")
def space_to_depth(x: Tensor, *, blocksize: int, mode: str = "DCR") -> Tensor:
    n, c, h, w = x.shape
    b = blocksize
    apart = x.reshape((n, c, h // b, b, w // b, b))
    order = (0, 3, 5, 1, 2, 4) if mode == "DCR" else (0, 1, 3, 5, 2, 4)
    return apart.permute(order).reshape((n, c * b * b, h // b, w // b))
