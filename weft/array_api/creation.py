"""Functions that make arrays: of numbers, of other arrays, of ranges.

In: Python numbers, nested lists, arrays of any library. Out: Arrays.
Sits above Array, one of the families of the namespace.
Invariant: what is made of numbers alone takes no memory until it is used or written to. Data of
others is copied unless `copy=False` or DLPack says that memory is to be shared.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from weft.array_api import types
from weft.array_api.array import (
    Array,
    as_array,
    from_numpy,
    is_scalar,
    numpy_dtype,
    plain,
    scalar,
    together,
)
from weft.array_api.types import AnyDType, Scalar
from weft.device import Device
from weft.dtype import dtypes
from weft.engine import dlpack
from weft.errors import ArgumentError, DataError, DTypeError, OutOfRangeError
from weft.tensor import Tensor

Shape = int | tuple[int, ...]


def on_device(array: Array, device: Any) -> Array:
    return array if device is None else array.to_device(device)


def _asked(dtype: Any, default: AnyDType) -> AnyDType:
    return default if dtype is None else types.to_array_dtype(dtype)


def _shape(shape: Any) -> tuple[int, ...]:
    sizes = shape if isinstance(shape, (tuple, list)) else (shape,)
    found = tuple(size.__index__() for size in sizes)
    if any(size < 0 for size in found):
        raise ArgumentError(f"sizes of axes are not negative, found {found}")
    return found


def _default_of(value: Scalar) -> AnyDType:
    """The dtype of a Python scalar that stands alone."""
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        if dtypes.int64.max < value <= dtypes.uint64.max:
            return dtypes.uint64
        types.check_range(value, dtypes.int64)
        return dtypes.int64
    return types.default_float() if isinstance(value, float) else types.default_complex()


def _number(value: Scalar, dtype: AnyDType, what: str) -> Array:
    """A Python scalar in a dtype that holds it."""
    if isinstance(value, complex) and not isinstance(dtype, types.ComplexDType):
        raise DTypeError(f"{what}: a complex number has no {dtype}")
    if types.is_integral(dtype):
        if isinstance(value, float) and not math.isfinite(value):
            raise OutOfRangeError(f"{what}: {value} is no integer")
        types.check_range(int(value), types.part_of(dtype))  # type: ignore[arg-type]
    return scalar(value, dtype)


def full(shape: Shape, fill_value: Scalar, *, dtype: Any = None, device: Any = None) -> Array:
    """An array with one value everywhere.

    >>> full((2,), 3)
    Array([3, 3], dtype=int64)
    """
    value = plain(fill_value)
    if isinstance(value, Array):
        one = value if dtype is None else value.with_dtype(types.to_array_dtype(dtype))
        sizes = _shape(shape)
        return on_device(one.each(lambda part: part.expand(sizes).clone()), device)
    if not is_scalar(value):
        raise ArgumentError(f"full takes a Python scalar, found a {type(value).__name__}")
    chosen = _asked(dtype, _default_of(value))
    part, sizes = types.part_of(chosen), _shape(shape)
    one = _number(value, chosen, "full")
    numbers = [tensor.item() for tensor in one.parts]
    return on_device(Array._of(*[Tensor.full(sizes, each, dtype=part) for each in numbers]), device)


def full_like(x: Array, /, fill_value: Scalar, *, dtype: Any = None, device: Any = None) -> Array:
    """An array like another, with one value everywhere."""
    like = as_array(x, "full_like")
    return full(like.shape, fill_value, dtype=_asked(dtype, like.dtype), device=device or x.device)


def zeros(shape: Shape, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of zeros."""
    return full(shape, 0, dtype=_asked(dtype, types.default_float()), device=device)


def zeros_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Zeros like another array."""
    return full_like(x, 0, dtype=dtype, device=device)


def ones(shape: Shape, *, dtype: Any = None, device: Any = None) -> Array:
    """An array of ones."""
    return full(shape, 1, dtype=_asked(dtype, types.default_float()), device=device)


def ones_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """Ones like another array."""
    return full_like(x, 1, dtype=dtype, device=device)


def empty(shape: Shape, *, dtype: Any = None, device: Any = None) -> Array:
    """An array whose values nobody asked for: zeros, which take no memory until written to."""
    return zeros(shape, dtype=dtype, device=device)


def empty_like(x: Array, /, *, dtype: Any = None, device: Any = None) -> Array:
    """An array like another, whose values nobody asked for."""
    return zeros_like(x, dtype=dtype, device=device)


def eye(
    n_rows: int,
    n_cols: int | None = None,
    /,
    *,
    k: int = 0,
    dtype: Any = None,
    device: Any = None,
) -> Array:
    """Ones on a diagonal, zeros elsewhere."""
    columns = n_rows if n_cols is None else n_cols
    chosen = _asked(dtype, types.default_float())
    rows, columns = _shape((n_rows, columns))
    place = Tensor.arange(rows, dtype="int64").reshape((rows, 1)) + int(k)
    diagonal = place.eq(Tensor.arange(columns, dtype="int64").reshape((1, columns)))
    return on_device(Array._of(diagonal.cast(types.part_of(chosen))).with_dtype(chosen), device)


def arange(
    start: float,
    /,
    stop: float | None = None,
    step: float = 1,
    *,
    dtype: Any = None,
    device: Any = None,
) -> Array:
    """Numbers from start up to stop, which is left out, step by step.

    >>> arange(1, 6, 2)
    Array([1, 3, 5], dtype=int64)
    """
    first, last = (0, start) if stop is None else (start, stop)
    first, last, step = plain(first), plain(last), plain(step)
    if step == 0:
        raise ArgumentError("arange needs a step other than 0")
    whole = all(isinstance(value, int) for value in (first, last, step))
    chosen = _asked(dtype, dtypes.int64 if whole else types.default_float())
    if isinstance(chosen, types.ComplexDType) or chosen is dtypes.bool:
        raise DTypeError(f"arange makes real numbers, not {chosen}")
    count = max(0, -((first - last) // step) if whole else math.ceil((last - first) / step))
    if types.is_integral(chosen) and count:
        for value in (first, first + (count - 1) * step):
            types.check_range(int(value), types.part_of(chosen))
    # computed as wide as can be and rounded once
    places = Tensor.arange(int(count), dtype="int64")
    if whole:
        wide = dtypes.uint64 if chosen is dtypes.uint64 else dtypes.int64
        values = places.cast(wide) * _wrapped(int(step), wide) + _wrapped(int(first), wide)
    else:
        values = places.cast("float64") * float(step) + float(first)
    return on_device(Array._of(values.cast(types.part_of(chosen))), device)


def _wrapped(value: int, dtype: Any) -> Tensor:
    """An int whose low bits are what is added: sums of 64 bits wrap."""
    low = value & (2**64 - 1)
    signed = low - 2**64 if dtype is dtypes.int64 and low > dtypes.int64.max else low
    return Tensor(signed, dtype=dtype)


def linspace(
    start: complex,
    stop: complex,
    /,
    num: int,
    *,
    dtype: Any = None,
    device: Any = None,
    endpoint: bool = True,
) -> Array:
    """Evenly spaced numbers from start to stop."""
    first, last = plain(start), plain(stop)
    first, last = [complex(v) if isinstance(v, complex) else float(v) for v in (first, last)]
    complexes = isinstance(first, complex) or isinstance(last, complex)
    chosen = _asked(dtype, types.default_complex() if complexes else types.default_float())
    if chosen.kind not in ("float", "complex") or (complexes and chosen.kind == "float"):
        if chosen.kind != "float" and not complexes and types.is_integral(chosen):
            spaced = linspace(start, stop, num, dtype=dtypes.float64, endpoint=endpoint)
            return on_device(spaced.with_dtype(chosen), device)
        raise DTypeError(f"linspace from {start} to {stop} has no {chosen}")
    count = num.__index__()
    if count < 0:
        raise ArgumentError(f"linspace makes a number of values that is not negative, found {num}")
    parts = [_spaced(complex(first).real, complex(last).real, count, endpoint)]
    if isinstance(chosen, types.ComplexDType):
        parts.append(_spaced(complex(first).imag, complex(last).imag, count, endpoint))
    part = types.part_of(chosen)
    return on_device(Array._of(*[each.cast(part) for each in parts]), device)


def _spaced(first: float, last: float, count: int, endpoint: bool) -> Tensor:
    """Evenly spaced doubles; both ends are exact, and no difference overflows."""
    intervals = max(1, count - 1 if endpoint else count)
    places = Tensor.arange(count, dtype="int64").cast("float64")
    share = places / float(intervals)
    values = (1 - share) * first + share * last
    if math.isfinite(last - first):
        values = places * ((last - first) / intervals) + first
    if not endpoint or count < 2:
        return values
    return places.eq(float(count - 1)).where(values._constant(last), values)


def meshgrid(*arrays: Array, indexing: str = "xy") -> list[Array]:
    """Matrices of coordinates of vectors of coordinates."""
    if indexing not in ("xy", "ij"):
        raise ArgumentError(f'meshgrid has indexing "xy" or "ij", found {indexing!r}')
    found = [as_array(array, "meshgrid") for array in arrays]
    if len({array.dtype for array in found}) > 1:
        raise DTypeError("meshgrid takes arrays of one dtype")
    if any(array.ndim > 1 for array in found):
        raise ArgumentError("meshgrid takes vectors")
    swapped = indexing == "xy" and len(found) > 1
    order = [1, 0, *range(2, len(found))] if swapped else list(range(len(found)))
    sizes = [array.size for array in found]
    shape = tuple(sizes[place] for place in order)
    grids = []
    for number, array in enumerate(found):
        lines = [1] * len(found)
        lines[order.index(number)] = array.size
        grids.append(array.each(lambda part, at=tuple(lines): part.reshape(at).expand(shape)))
    return grids


def tril(x: Array, /, *, k: int = 0) -> Array:
    """Matrices without what is above a diagonal."""
    return as_array(x, "tril").each(lambda part: _kept(part, k, lower=True))


def triu(x: Array, /, *, k: int = 0) -> Array:
    """Matrices without what is below a diagonal."""
    return as_array(x, "triu").each(lambda part: _kept(part, k, lower=False))


def _kept(part: Tensor, k: int, lower: bool) -> Tensor:
    if part.ndim < 2:
        raise ArgumentError(f"a triangle is of matrices, found shape {part.shape}")
    rows, columns = part.shape[-2:]
    below = Tensor.arange(rows, dtype="int64").reshape((rows, 1)) + k
    place = Tensor.arange(columns, dtype="int64").reshape((1, columns))
    keep = place.le(below) if lower else place.ge(below)
    return keep.where(part, part._constant(0))


# ------------------------------------------------------------ of other objects
def asarray(
    obj: Any, /, *, dtype: Any = None, device: Any = None, copy: bool | None = None
) -> Array:
    """An array of a number, nested lists, an array of this or another library.

    Arrays of this namespace and Tensors are shared if they can be; memory of other libraries only
    with `copy=False`, since what is computed later would see what they write meanwhile.

    >>> asarray([[1.0, 2.0], [3.0, 4.0]]).shape
    (2, 2)
    """
    value = plain(obj)
    chosen = None if dtype is None else types.to_array_dtype(dtype)
    if isinstance(value, Tensor):
        strong = value.cast(types.default_float()) if value.dtype is dtypes.weakfloat else value
        strong = strong.cast(dtypes.int64) if strong.dtype is dtypes.weakint else strong
        value = Array._of(strong)
    if isinstance(value, Array):
        return _shared(value, chosen, device, copy)
    if copy is False:
        if not hasattr(value, "__dlpack__") and type(value).__module__ == "numpy":
            raise ArgumentError("this array cannot be shared without a copy")
        if not hasattr(value, "__dlpack__"):
            raise ArgumentError(f"a {type(value).__name__} cannot become an Array without a copy")
        return _shared(from_dlpack(value, copy=False), chosen, device, copy)
    if is_scalar(value):
        return on_device(_number(value, chosen or _default_of(value), "asarray"), device)
    if hasattr(value, "__dlpack__") and type(value).__module__ != "numpy":
        return _shared(from_dlpack(value, copy=True), chosen, device, None)
    return _from_data(value, chosen, device)


def _shared(array: Array, dtype: AnyDType | None, device: Any, copy: bool | None) -> Array:
    place = None if device is None else Device.canonicalize(device)
    same = dtype is None or dtype == array.dtype
    at_home = place is None or place == array.device
    if copy is False and not (same and at_home):
        raise ArgumentError("another dtype or device needs a copy, but copy is False")
    result = array if same or dtype is None else array.with_dtype(dtype)
    result = result if at_home else result.to_device(place)
    if copy:
        return result.each(lambda part: part.clone())
    return Array._of(*result.parts)


def _from_data(value: Any, dtype: AnyDType | None, device: Any) -> Array:
    """Nested lists, buffers and NumPy's arrays, through NumPy."""
    import numpy

    if isinstance(value, (list, tuple)):
        value = _with_numbers(value)
    nested = isinstance(value, (list, tuple))
    try:
        found = numpy.asarray(value, None if dtype is None or not nested else numpy_dtype(dtype))
    except OverflowError as error:
        raise OutOfRangeError(str(error)) from None
    except (TypeError, ValueError) as error:
        raise DataError(f"no Array can be made of this {type(value).__name__}: {error}") from None
    if found.dtype.kind not in "biufc":
        raise DataError(
            f"no Array can be made of a {type(value).__name__} of {found.dtype}; numbers, nested "
            "lists of them, and arrays would do"
        )
    if nested and dtype is None and found.dtype.kind in "fc":
        default = types.default_float() if found.dtype.kind == "f" else types.default_complex()
        found = found.astype(numpy_dtype(default))
    array = from_numpy(found, None if device is None else Device.canonicalize(device))
    return array if dtype is None else array.with_dtype(dtype)


def _with_numbers(data: Sequence[Any]) -> Any:
    """Nested lists in which arrays without axes are numbers, and others what NumPy takes."""
    if not any(isinstance(each, (Array, list, tuple)) for each in data):
        return data
    return [
        _with_numbers(each)
        if isinstance(each, (list, tuple))
        else (each._item("a list") if not each.ndim else each.__array__())
        if isinstance(each, Array)
        else each
        for each in data
    ]


def from_dlpack(x: Any, /, *, device: Any = None, copy: bool | None = None) -> Array:
    """The memory of an array of another library; shared unless `copy` or a `device` says else.

    Complex numbers are copied: here they are pairs.
    """
    if not hasattr(x, "__dlpack__"):
        raise ArgumentError(
            f"from_dlpack takes an object with __dlpack__, not a {type(x).__name__}"
        )
    wanted = None if device is None else str(Device.canonicalize(device))
    taken = dlpack.take(x, wanted, with_pairs=True)
    elsewhere = wanted is not None and wanted != taken.device
    if copy is False and (elsewhere or taken.is_complex or taken.is_read_only):
        raise ArgumentError("from_dlpack would copy this array, but copy is False")
    found = Tensor._from_taken(taken)
    if taken.is_complex:
        # two arrays of their own
        parts = found[..., 0].clone(), found[..., 1].clone()
        parts[0].realize(parts[1])
        return on_device(Array._of(*parts), wanted)
    found = found.to(wanted) if elsewhere else found
    # now: its owner may write to the memory before the values are needed
    return Array._of(found.clone().realize() if copy else found)


def astype(x: Array, dtype: Any, /, *, copy: bool = True, device: Any = None) -> Array:
    """The values in another dtype; of bools 0 and 1, of numbers whether they are not 0."""
    array, target = as_array(x, "astype"), types.to_array_dtype(dtype)
    if array.dtype.kind == "complex" and not isinstance(target, types.ComplexDType):
        if target is dtypes.bool:
            array = Array._of(array.parts[0].ne(0) | array.parts[1].ne(0))
        else:
            raise DTypeError(f"a complex array has no {target}; take real(x) or imag(x) first")
    result = array if target == array.dtype else array.with_dtype(target)
    result = on_device(result, device)
    if copy and result is array:
        return result.each(lambda part: part.clone())
    return result


__all__ = [
    "arange", "asarray", "astype", "empty", "empty_like", "eye", "from_dlpack", "full",
    "full_like", "linspace", "meshgrid", "ones", "ones_like", "together", "tril", "triu", "zeros",
    "zeros_like",
]  # fmt: skip
