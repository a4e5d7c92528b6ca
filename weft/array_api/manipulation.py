"""Functions that move elements about, and that choose some of them.

In: Arrays. Out: Arrays, most of them views: index arithmetic that copies nothing.
Sits above Array, one of the families of the namespace.
Invariant: only `repeat` with an array of counts needs values, since its shape depends on them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from weft.array_api import types
from weft.array_api.array import Array, as_array, broadcast_shapes, together
from weft.array_api.types import AnyDType
from weft.dtype import dtypes
from weft.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from weft.helpers import prod
from weft.tensor import Tensor


def normal_axis(axis: int, ndim: int, what: str) -> int:
    """An axis counted from the front."""
    place = axis.__index__()
    if not -ndim <= place < ndim:
        raise IndexingError(f"{what}: axis {axis} of an array with {ndim} axes")
    return place % ndim


def normal_axes(axis: Any, ndim: int, what: str) -> tuple[int, ...]:
    """One axis, several, or None for all; counted from the front and different."""
    if axis is None:
        return tuple(range(ndim))
    asked = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = tuple(normal_axis(each, ndim, what) for each in asked)
    if len(set(places)) != len(places):
        raise ArgumentError(f"{what}: an axis is named twice in {axis}")
    return places


def broadcast_to(x: Array, /, shape: tuple[int, ...]) -> Array:
    """The array repeated along new axes and axes of size 1."""
    array = as_array(x, "broadcast_to")
    sizes = tuple(shape)
    if broadcast_shapes(array.shape, sizes) != sizes:
        raise ShapeError(f"an array of shape {array.shape} does not broadcast to {sizes}")
    return array.each(lambda part: part.expand(sizes))


def broadcast_arrays(*arrays: Array) -> list[Array]:
    """Arrays broadcast against each other."""
    found = [as_array(array, "broadcast_arrays") for array in arrays]
    shape = broadcast_shapes(*[array.shape for array in found])
    return [broadcast_to(array, shape) for array in found]


def _of_one_dtype(arrays: Sequence[Array], what: str) -> list[Array]:
    if not isinstance(arrays, (tuple, list)) or not arrays:
        raise ArgumentError(f"{what} takes a tuple or list of at least one array")
    return together(what, *[as_array(array, what) for array in arrays])


def concat(arrays: tuple[Array, ...] | list[Array], /, *, axis: int | None = 0) -> Array:
    """Arrays one after the other along an axis; None flattens them first.

    >>> import weft.array_api as xp
    >>> concat([xp.asarray([1, 2]), xp.asarray([3])])
    Array([1, 2, 3], dtype=int64)
    """
    found = _of_one_dtype(arrays, "concat")
    if axis is None:
        found = [array.each(lambda part: part.reshape((-1,))) for array in found]
    place = normal_axis(axis or 0, found[0].ndim, "concat")
    return _joined(found, lambda parts: parts[0].cat(*parts[1:], dim=place))


def stack(arrays: tuple[Array, ...] | list[Array], /, *, axis: int = 0) -> Array:
    """Arrays of one shape beside each other along a new axis."""
    found = _of_one_dtype(arrays, "stack")
    place = normal_axis(axis, found[0].ndim + 1, "stack")
    if len({array.shape for array in found}) > 1:
        raise ShapeError(f"stack takes arrays of one shape, found {[a.shape for a in found]}")
    return _joined(found, lambda parts: parts[0].stack(*parts[1:], dim=place))


def _joined(arrays: list[Array], join: Any) -> Array:
    sides = zip(*[array.parts for array in arrays], strict=True)
    return Array._of(*[join(list(parts)) for parts in sides])


def unstack(x: Array, /, *, axis: int = 0) -> tuple[Array, ...]:
    """The slices along an axis."""
    array = as_array(x, "unstack")
    place = normal_axis(axis, array.ndim, "unstack")
    before = (slice(None),) * place
    return tuple(array[(*before, number, ...)] for number in range(array.shape[place]))


def expand_dims(x: Array, /, *, axis: int = 0) -> Array:
    """With a new axis of size 1."""
    array = as_array(x, "expand_dims")
    place = normal_axis(axis, array.ndim + 1, "expand_dims")
    shape = (*array.shape[:place], 1, *array.shape[place:])
    return array.each(lambda part: part.reshape(shape))


def squeeze(x: Array, /, axis: int | tuple[int, ...]) -> Array:
    """Without axes of size 1."""
    array = as_array(x, "squeeze")
    places = normal_axes(axis, array.ndim, "squeeze")
    if any(array.shape[place] != 1 for place in places):
        raise ShapeError(f"squeeze: axes {axis} of shape {array.shape} are not of size 1")
    shape = tuple(size for place, size in enumerate(array.shape) if place not in places)
    return array.each(lambda part: part.reshape(shape))


def flip(x: Array, /, *, axis: int | tuple[int, ...] | None = None) -> Array:
    """In reverse order along axes."""
    array = as_array(x, "flip")
    places = normal_axes(axis, array.ndim, "flip")
    return array.each(lambda part: part.flip(places) if places else part)


def permute_dims(x: Array, /, axes: tuple[int, ...]) -> Array:
    """With its axes in another order."""
    array = as_array(x, "permute_dims")
    places = normal_axes(tuple(axes), array.ndim, "permute_dims")
    if len(places) != array.ndim:
        raise ArgumentError(f"permute_dims: {axes} do not name the {array.ndim} axes")
    return array.each(lambda part: part.permute(places))


def moveaxis(
    x: Array, source: int | tuple[int, ...], destination: int | tuple[int, ...], /
) -> Array:
    """With axes at other places, the rest in order."""
    array = as_array(x, "moveaxis")
    from_ = normal_axes(source, array.ndim, "moveaxis")
    to = normal_axes(destination, array.ndim, "moveaxis")
    if len(from_) != len(to):
        raise ArgumentError(f"moveaxis: {source} and {destination} are not of one length")
    rest = iter([place for place in range(array.ndim) if place not in from_])
    given = dict(zip(to, from_, strict=True))
    order = [given[place] if place in given else next(rest) for place in range(array.ndim)]
    return array.each(lambda part: part.permute(order))


def matrix_transpose(x: Array, /) -> Array:
    """The matrices of the last two axes transposed."""
    return as_array(x, "matrix_transpose").mT


def reshape(x: Array, /, shape: tuple[int, ...], *, copy: bool | None = None) -> Array:
    """The same elements in another shape; one size may be -1."""
    array = as_array(x, "reshape")
    sizes = list(shape) if isinstance(shape, (tuple, list)) else [shape]
    known = int(prod([size for size in sizes if size != -1]))
    if sizes.count(-1) == 1 and known and array.size % known == 0:
        sizes[sizes.index(-1)] = array.size // known
    if -1 in sizes or int(prod(sizes)) != array.size:
        raise ShapeError(f"{array.size} elements of shape {array.shape} do not fit {tuple(shape)}")
    result = array.each(lambda part: part.reshape(tuple(sizes)))
    return result.each(lambda part: part.clone()) if copy else result


def roll(
    x: Array, /, shift: int | tuple[int, ...], *, axis: int | tuple[int, ...] | None = None
) -> Array:
    """Moved along axes; what leaves at one end comes in at the other."""
    array = as_array(x, "roll")
    if axis is None:
        if isinstance(shift, tuple):
            raise ArgumentError("roll: several shifts need as many axes")
        flat = array.each(lambda part: part.reshape((-1,)))
        return reshape(_rolled(flat, int(shift), 0), array.shape)
    asked = axis if isinstance(axis, (tuple, list)) else (axis,)
    places = [normal_axis(each, array.ndim, "roll") for each in asked]
    shifts = list(shift) if isinstance(shift, (tuple, list)) else [shift] * len(places)
    if len(shifts) != len(places):
        raise ArgumentError(f"roll: {len(shifts)} shifts for {len(places)} axes")
    for place, steps in zip(places, shifts, strict=True):
        array = _rolled(array, int(steps), place)
    return array


def _rolled(array: Array, steps: int, place: int) -> Array:
    size = array.shape[place]
    if size == 0 or steps % size == 0:
        return array
    before = (slice(None),) * place
    cut = size - steps % size
    ends = [array[(*before, slice(cut, size), ...)], array[(*before, slice(0, cut), ...)]]
    return concat(ends, axis=place)


def tile(x: Array, repetitions: tuple[int, ...], /) -> Array:
    """The whole array repeated along each axis."""
    array = as_array(x, "tile")
    times = tuple(repetitions)
    rank = max(array.ndim, len(times))
    times = (1,) * (rank - len(times)) + times
    shape = (1,) * (rank - array.ndim) + array.shape
    wide = tuple(size for pair in zip([1] * rank, shape, strict=True) for size in pair)
    full = tuple(size for pair in zip(times, shape, strict=True) for size in pair)
    final = tuple(n * size for n, size in zip(times, shape, strict=True))
    return array.each(lambda part: part.reshape(wide).expand(full).reshape(final))


def repeat(x: Array, repeats: int | Array, /, *, axis: int | None = None) -> Array:
    """Each element repeated; counts of an array are read now, since the shape depends on them."""
    array = as_array(x, "repeat")
    if axis is None:
        array = array.each(lambda part: part.reshape((-1,)))
    place = normal_axis(axis or 0, array.ndim, "repeat")
    size = array.shape[place]
    if isinstance(repeats, Array):
        if not types.is_integral(repeats.dtype):
            raise DTypeError(f"repeat takes counts of an integer dtype, found {repeats.dtype}")
        counts = repeats.tensor.reshape((-1,)).tolist()
        counts = counts * size if len(counts) == 1 else counts
        if len(counts) != size:
            raise ShapeError(f"repeat: {len(counts)} counts for {size} elements")
        order = [number for number, count in enumerate(counts) for _ in range(count)]
        index = Tensor(order, dtype="int64") if order else Tensor.zeros(0, dtype="int64")
        return take(array, Array._of(index), axis=place)
    times = repeats.__index__()
    shape = array.shape
    wide = (*shape[: place + 1], 1, *shape[place + 1 :])
    full = (*shape[: place + 1], times, *shape[place + 1 :])
    final = (*shape[:place], size * times, *shape[place + 1 :])
    return array.each(lambda part: part.reshape(wide).expand(full).reshape(final))


# ------------------------------------------------------------ by places
def take(x: Array, indices: Array, /, *, axis: int | None = None) -> Array:
    """Elements at places along an axis."""
    array, places = as_array(x, "take"), as_array(indices, "take")
    if not types.is_integral(places.dtype) or places.ndim > 1:
        raise DTypeError(
            f"take needs a vector of ints, found {places.dtype} of shape {places.shape}"
        )
    if axis is None:
        if array.ndim != 1:
            raise ArgumentError(f"take from an array with {array.ndim} axes needs an axis")
        axis = 0
    place = normal_axis(axis, array.ndim, "take")
    if not places.size:
        shape = (*array.shape[:place], *places.shape, *array.shape[place + 1 :])
        return array.each(lambda part: Tensor.zeros(*shape, dtype=part.dtype))
    before = (slice(None),) * place
    return array[(*before, places, ...)]


def take_along_axis(x: Array, indices: Array, /, *, axis: int = -1) -> Array:
    """Elements at places of their own along an axis."""
    array, places = as_array(x, "take_along_axis"), as_array(indices, "take_along_axis")
    if not types.is_integral(places.dtype) or places.ndim != array.ndim:
        raise DTypeError("take_along_axis needs ints with as many axes as the array")
    place = normal_axis(axis, array.ndim, "take_along_axis")
    size = array.shape[place]
    others = [*array.shape[:place], 1, *array.shape[place + 1 :]]
    mine = [*places.shape[:place], 1, *places.shape[place + 1 :]]
    shape = broadcast_shapes(tuple(others), tuple(mine))
    wide = (*shape[:place], size, *shape[place + 1 :])
    full = (*shape[:place], places.shape[place], *shape[place + 1 :])
    index = places.tensor.cast("int64").expand(full)
    index = index.lt(0).where(index + size, index)
    if not prod(full):
        return array.each(lambda part: Tensor.zeros(*full, dtype=part.dtype))
    return array.each(lambda part: part.expand(wide).gather(place, index))


# ------------------------------------------------------------ dtypes
def result_type(*arrays_and_dtypes: Any) -> AnyDType:
    """The dtype of a result of these arrays, dtypes and Python scalars."""
    scalars = [each for each in arrays_and_dtypes if isinstance(each, (bool, int, float, complex))]
    found = [
        each.dtype if isinstance(each, Array) else types.to_array_dtype(each)
        for each in arrays_and_dtypes
        if not isinstance(each, (bool, int, float, complex))
    ]
    return types.result_dtype(found, scalars)


def can_cast(from_: Any, to: Any, /) -> bool:
    """Whether promotion takes one dtype to another."""
    source = from_.dtype if isinstance(from_, Array) else types.to_array_dtype(from_)
    target = types.to_array_dtype(to)
    try:
        return bool(types.promote(source, target) == target)
    except DTypeError:
        return False


def finfo(type: Any, /) -> types.FloatInfo:
    """Limits of a float dtype."""
    return types.float_info(type.dtype if isinstance(type, Array) else types.to_array_dtype(type))


def iinfo(type: Any, /) -> types.IntInfo:
    """Limits of an int dtype."""
    return types.int_info(type.dtype if isinstance(type, Array) else types.to_array_dtype(type))


def isdtype(dtype: Any, kind: Any) -> bool:
    """Whether a dtype is of a kind: a name of one, a dtype, or a tuple of these."""
    return types.is_kind(types.to_array_dtype(dtype), kind)


@functools.cache
def index_dtype() -> AnyDType:
    """The dtype of places and counts."""
    return dtypes.int64
