"""Functions that reduce or scan axes: sums, products, extremes, moments, tests of all and any.

In: Arrays. Out: Arrays with fewer axes, or of the same shape for scans.
Sits above the functions that move elements, one of the families of the namespace.
Invariant: sums and products of ints are as wide as the default int; floats keep their dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.array_api import pairs, types
from weft.array_api.array import Array, as_array, dtype_name, unary
from weft.array_api.manipulation import concat, normal_axes, normal_axis
from weft.array_api.pairs import Pair
from weft.array_api.types import AnyDType
from weft.dtype import dtypes
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.helpers import prod as product_of
from weft.tensor import Tensor

Axis = int | tuple[int, ...] | None


def _checked(x: Any, what: str, kinds: tuple[str, ...], names: str) -> Array:
    array = as_array(x, what)
    if array.dtype.kind not in kinds:
        raise DTypeError(f"{what} takes arrays of a {names} dtype, found {dtype_name(array.dtype)}")
    return array


def _numeric(x: Any, what: str) -> Array:
    return _checked(x, what, ("int", "uint", "float", "complex"), "numeric")


def _real(x: Any, what: str) -> Array:
    return _checked(x, what, ("int", "uint", "float"), "real-valued")


def _summed_dtype(array: Array, dtype: Any) -> AnyDType:
    """Sums are as wide as the default int, unless a dtype is asked for."""
    if dtype is not None:
        return types.to_array_dtype(dtype)
    if array.dtype.kind == "int":
        return dtypes.int64
    return dtypes.uint64 if array.dtype.kind == "uint" else array.dtype


def _reduced(
    array: Array, axis: Axis, keepdims: bool, what: str, reduce: Callable[..., Any]
) -> Array:
    """Each part reduced over axes; over none of them it is as it is."""
    places = normal_axes(axis, array.ndim, what)
    if not places:
        return array
    return array.each(lambda part: reduce(part, places, keepdims))


def sum(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """Sums over axes.

    >>> import weft.array_api as xp
    >>> int(sum(xp.asarray([1, 2, 3], dtype=xp.int8)))
    6
    """
    array = _numeric(x, "sum")
    array = array.with_dtype(_summed_dtype(array, dtype))
    return _reduced(array, axis, keepdims, "sum", _sum_part)


def _sum_part(part: Tensor, places: tuple[int, ...], keepdims: bool) -> Tensor:
    return part.sum(places, keepdim=keepdims, dtype=part.dtype)


def prod(x: Array, /, *, axis: Axis = None, dtype: Any = None, keepdims: bool = False) -> Array:
    """Products over axes."""
    array = _numeric(x, "prod")
    array = array.with_dtype(_summed_dtype(array, dtype))
    if array.dtype.kind == "complex":
        return _pair_product(array, normal_axes(axis, array.ndim, "prod"), keepdims)
    return _reduced(
        array, axis, keepdims, "prod", lambda part, at, keep: part.prod(at, keepdim=keep)
    )


def _pair_product(array: Array, places: tuple[int, ...], keepdims: bool) -> Array:
    """Products of pairs, by halves."""
    if not places:
        return array
    others = [place for place in range(array.ndim) if place not in places]
    shape = tuple(array.shape[place] for place in others)
    count = int(product_of([array.shape[place] for place in places]))

    def lined(part: Tensor) -> Tensor:
        return part.permute([*others, *places]).reshape((*shape, count))

    z: Pair = lined(array.parts[0]), lined(array.parts[1])
    if not count:
        one = z[0].zeros(*shape, 1, dtype=z[0].dtype)
        z, count = (one + 1, one), 1
    while count > 1:
        half = count // 2
        low = z[0][..., :half], z[1][..., :half]
        high = z[0][..., half : 2 * half], z[1][..., half : 2 * half]
        both = pairs.multiply(low, high)
        if count % 2:
            rest = z[0][..., 2 * half :], z[1][..., 2 * half :]
            both = both[0].cat(rest[0], dim=-1), both[1].cat(rest[1], dim=-1)
        z, count = both, count - half
    final = tuple(1 if p in places else s for p, s in enumerate(array.shape)) if keepdims else shape
    return Array._of(*[part.reshape(final) for part in z])


def max(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The greatest over axes; nan if one is."""
    return _extreme(_real(x, "max"), axis, keepdims, "max")


def min(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """The least over axes; nan if one is."""
    return _extreme(_real(x, "min"), axis, keepdims, "min")


def _extreme(array: Array, axis: Axis, keepdims: bool, name: str) -> Array:
    places = normal_axes(axis, array.ndim, name)
    if 0 in [array.shape[place] for place in places]:
        raise ShapeError(f"{name} of nothing: axes {places} of shape {array.shape}")
    return _reduced(
        array, axis, keepdims, name, lambda part, at, keep: getattr(part, name)(at, keepdim=keep)
    )


def mean(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Arithmetic means over axes."""
    array = _checked(x, "mean", ("float", "complex"), "floating-point")
    return _reduced(
        array, axis, keepdims, "mean", lambda part, at, keep: part.mean(at, keepdim=keep)
    )


def var(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """Variances over axes; the divisor is the count less `correction`."""
    array = _checked(x, "var", ("float",), "real floating-point")
    places = normal_axes(axis, array.ndim, "var")
    value = array.tensor
    if not places:
        return Array._of((value - value) / (1.0 - float(correction)))
    count = int(product_of([array.shape[place] for place in places]))
    distance = value - value.mean(places, keepdim=True)
    total = (distance * distance).sum(places, keepdim=keepdims)
    return Array._of(total / total._constant(count - float(correction)))


def std(
    x: Array, /, *, axis: Axis = None, correction: float = 0.0, keepdims: bool = False
) -> Array:
    """Standard deviations over axes."""
    return unary("sqrt", var(x, axis=axis, correction=correction, keepdims=keepdims))


# ------------------------------------------------------------ scans
def cumulative_sum(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Sums of each element and those before it; `include_initial` begins with a zero."""
    array, place = _scanned(x, axis, dtype, "cumulative_sum")
    result = array.each(lambda part: part.cumsum(place).cast(part.dtype))
    return _begun(result, place, 0) if include_initial else result


def cumulative_prod(
    x: Array, /, *, axis: int | None = None, dtype: Any = None, include_initial: bool = False
) -> Array:
    """Products of each element and those before it; `include_initial` begins with a one."""
    array, place = _scanned(x, axis, dtype, "cumulative_prod")
    if array.dtype.kind == "complex":
        result = _pair_scan(array, place)
    else:
        result = array.each(lambda part: part.cumprod(place).cast(part.dtype))
    return _begun(result, place, 1) if include_initial else result


def _scanned(x: Any, axis: int | None, dtype: Any, what: str) -> tuple[Array, int]:
    array = _numeric(x, what)
    if axis is None and array.ndim != 1:
        raise ArgumentError(f"{what} of an array with {array.ndim} axes needs an axis")
    place = normal_axis(0 if axis is None else axis, array.ndim, what)
    return array.with_dtype(_summed_dtype(array, dtype)), place


def _begun(array: Array, place: int, first: int) -> Array:
    shape = (*array.shape[:place], 1, *array.shape[place + 1 :])
    part = types.part_of(array.dtype)
    start = Array._of(Tensor.full(shape, first, dtype=part)).with_dtype(array.dtype)
    return concat([start, array], axis=place)


def _pair_scan(array: Array, place: int) -> Array:
    """Products of pairs with all before them, in steps that double (W. Hillis, G. Steele, 1986)."""
    z: Pair = array.parts[0], array.parts[1]
    size = array.shape[place]
    step = 1
    while step < size:
        head = (*array.shape[:place], step, *array.shape[place + 1 :])
        tail = (*[slice(None)] * place, slice(0, size - step))
        ones = Tensor.ones(*head, dtype=z[0].dtype)
        before = ones.cat(z[0][tail], dim=place), ones.zeros_like().cat(z[1][tail], dim=place)
        product = pairs.multiply(z, before)
        z = product[0].contiguous(), product[1].contiguous()
        step *= 2
    return Array._of(*z)


def diff(
    x: Array,
    /,
    *,
    axis: int = -1,
    n: int = 1,
    prepend: Array | None = None,
    append: Array | None = None,
) -> Array:
    """Differences of neighbours along an axis, n times."""
    array = _numeric(x, "diff")
    place = normal_axis(axis, array.ndim, "diff")
    given = [each for each in (prepend, array, append) if each is not None]
    array = concat(given, axis=place) if len(given) > 1 else array
    before = (slice(None),) * place
    for _ in range(n):
        array = array[(*before, slice(1, None), ...)] - array[(*before, slice(None, -1), ...)]
    return array


# ------------------------------------------------------------ tests
def _truth(array: Array) -> Tensor:
    if array.dtype is dtypes.bool:
        return array.tensor
    tests = [part.ne(0) for part in array.parts]
    return tests[0] if len(tests) == 1 else tests[0] | tests[1]


def all(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether all elements are True, or not 0."""
    array = Array._of(_truth(as_array(x, "all")))
    return _reduced(array, axis, keepdims, "all", lambda part, at, keep: part.all(at, keepdim=keep))


def any(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """Whether an element is True, or not 0."""
    array = Array._of(_truth(as_array(x, "any")))
    return _reduced(array, axis, keepdims, "any", lambda part, at, keep: part.any(at, keepdim=keep))


def count_nonzero(x: Array, /, *, axis: Axis = None, keepdims: bool = False) -> Array:
    """How many elements are True, or not 0."""
    array = Array._of(_truth(as_array(x, "count_nonzero")).cast(types.INDEX))
    return _reduced(array, axis, keepdims, "count_nonzero", _sum_part)
