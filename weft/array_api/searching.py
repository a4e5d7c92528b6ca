"""Searching, sorting and sets.

In: Arrays. Out: Arrays of values, or of places in them (int64).
Sits above the functions that move elements, one of the families of the namespace.
Invariant: what has a shape that depends on values (nonzero, the sets) computes now; sets are found
by NumPy, on the host.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.array_api import types
from weft.array_api.array import (
    Array,
    as_array,
    broadcast_shapes,
    dtype_name,
    from_numpy,
    to_numpy,
    together,
)
from weft.array_api.manipulation import normal_axis
from weft.dtype import dtypes
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.tensor import Tensor


def _real(x: Any, what: str) -> Array:
    array = as_array(x, what)
    if array.dtype.kind not in ("int", "uint", "float"):
        raise DTypeError(
            f"{what} takes arrays of a real-valued dtype, found {dtype_name(array.dtype)}"
        )
    return array


def argmax(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the greatest element is; the first of several.

    >>> import weft.array_api as xp
    >>> int(argmax(xp.asarray([1, 3, 2])))
    1
    """
    return _place(x, axis, keepdims, "argmax")


def argmin(x: Array, /, *, axis: int | None = None, keepdims: bool = False) -> Array:
    """Where the least element is; the first of several."""
    return _place(x, axis, keepdims, "argmin")


def _place(x: Any, axis: int | None, keepdims: bool, name: str) -> Array:
    array = _real(x, name)
    if axis is None:
        shape = (1,) * array.ndim if keepdims else ()
        if not array.size:
            raise ShapeError(f"{name} of an array without elements")
        found = getattr(array.tensor.reshape((-1,)), name)(0)
        return Array._of(found.cast(types.INDEX).reshape(shape))
    place = normal_axis(axis, array.ndim, name)
    if not array.shape[place]:
        raise ShapeError(f"{name} along axis {axis} of shape {array.shape}, which has no elements")
    found = getattr(array.tensor, name)(place, keepdim=keepdims)
    return Array._of(found.cast(types.INDEX))


def where(condition: Array, x1: Any, x2: Any, /) -> Array:
    """Elements of x1 where the condition is True, else of x2."""
    chosen = as_array(condition, "where")
    if chosen.dtype is not dtypes.bool:
        raise DTypeError(f"where takes a condition of bools, found {chosen.dtype}")
    first, second = together("where", x1, x2)
    shape = broadcast_shapes(chosen.shape, first.shape, second.shape)
    parts = zip(first.parts, second.parts, strict=True)
    found = [chosen.tensor.where(yes, no) for yes, no in parts]
    return Array._of(*[part if part.shape == shape else part.expand(shape) for part in found])


def nonzero(x: Array, /) -> tuple[Array, ...]:
    """Where elements are not 0: an array of places for each axis."""
    array = as_array(x, "nonzero")
    if not array.ndim:
        raise ArgumentError("nonzero takes an array with axes")
    tests = [part.ne(0) for part in array.parts]
    truth = tests[0] if len(tests) == 1 else tests[0] | tests[1]
    if not array.size:
        return tuple(Array._of(Tensor.zeros(0, dtype=types.INDEX)) for _ in array.shape)
    places = truth.nonzero().cast(types.INDEX)
    return tuple(Array._of(places[:, axis]) for axis in range(array.ndim))


def searchsorted(
    x1: Array, x2: Array, /, *, side: str = "left", sorter: Array | None = None
) -> Array:
    """Where elements of x2 belong in the sorted vector x1; nan is behind all numbers."""
    if side not in ("left", "right"):
        raise ArgumentError(f'searchsorted has side "left" or "right", found {side!r}')
    line, sought = together("searchsorted", _real(x1, "searchsorted"), _real(x2, "searchsorted"))
    if line.ndim != 1:
        raise ShapeError(f"searchsorted takes a sorted vector, found shape {line.shape}")
    if sorter is not None:
        line = line[sorter]
    return Array._of(_binary_search(line.tensor.contiguous(), sought.tensor, side == "right"))


def _binary_search(line: Tensor, sought: Tensor, after_equal: bool) -> Tensor:
    """How many elements are before each: one bit of that number a step."""
    size = line.shape[0]
    count = Tensor.zeros(*sought.shape, dtype=types.INDEX)
    if not size or not sought.numel():
        return count
    step = 1 << (size.bit_length() - 1)
    while step:
        further = count + step
        inside = further.le(size)
        probe = line[inside.where(further, 1) - 1]
        before = probe.le(sought) if after_equal else probe.lt(sought)
        if line.dtype.kind == "float":
            unknown = sought.isnan()
            before = before | (unknown & (probe.isnan().logical_not() | after_equal))
        count = (inside & before).where(further, count)
        step >>= 1
    return count


# ------------------------------------------------------------ sorting
def sort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """In order along an axis."""
    array = _real(x, "sort")
    if not array.size or not array.ndim:
        return array.each(lambda part: part.clone())
    place = normal_axis(axis, array.ndim, "sort")
    return Array._of(array.tensor.sort(place, descending=descending)[0])


def argsort(x: Array, /, *, axis: int = -1, descending: bool = False, stable: bool = True) -> Array:
    """The places that put an array in order along an axis; equal elements keep theirs."""
    array = _real(x, "argsort")
    if not array.size or not array.ndim:
        return Array._of(Tensor.zeros(*array.shape, dtype=types.INDEX))
    place = normal_axis(axis, array.ndim, "argsort")
    order = array.tensor.sort(place, descending=descending)[1]
    return Array._of(order.cast(types.INDEX))


# ------------------------------------------------------------ sets
class UniqueAll(NamedTuple):
    """What `unique_all` gives."""

    values: Array
    indices: Array
    inverse_indices: Array
    counts: Array


class UniqueCounts(NamedTuple):
    """What `unique_counts` gives."""

    values: Array
    counts: Array


class UniqueInverse(NamedTuple):
    """What `unique_inverse` gives."""

    values: Array
    inverse_indices: Array


def unique_all(x: Array, /) -> UniqueAll:
    """Different elements, where each is first, which of them each element is, how many there are.

    Each nan is an element of its own.
    """
    import numpy

    array = as_array(x, "unique_all")
    values, first, inverse, counts = numpy.unique(
        to_numpy(array),
        return_index=True,
        return_inverse=True,
        return_counts=True,
        equal_nan=False,
    )
    found = [values, first, inverse.reshape(array.shape), counts]
    places = [each if number == 0 else each.astype("int64") for number, each in enumerate(found)]
    return UniqueAll(*[from_numpy(each, array._re.device) for each in places])


def unique_counts(x: Array, /) -> UniqueCounts:
    """Different elements and how many there are of each."""
    found = unique_all(x)
    return UniqueCounts(found.values, found.counts)


def unique_inverse(x: Array, /) -> UniqueInverse:
    """Different elements, and which of them each element is."""
    found = unique_all(x)
    return UniqueInverse(found.values, found.inverse_indices)


def unique_values(x: Array, /) -> Array:
    """Different elements."""
    return unique_all(x).values
