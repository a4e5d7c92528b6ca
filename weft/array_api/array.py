"""Array: what the functions of the array API take and give. One tensor, or two for complex numbers.

In: tensors, Python scalars, other arrays. Out: arrays; numbers and memory when asked.
Sits above the table of elementwise functions, below the functions of the namespace.
Invariant: nothing is promoted that the standard does not promote. Both parts of a complex array
have one shape and dtype. Writing to an array writes to the storage of its tensors.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from weft.array_api import types
from weft.array_api.functions import FUNCTIONS
from weft.array_api.operators import Operators
from weft.array_api.types import AnyDType, ComplexDType, Scalar
from weft.device import Device
from weft.dtype import DType, dtypes, to_numpy_dtype
from weft.engine import dlpack
from weft.errors import ArgumentError, DeviceError, DTypeError, IndexingError, ShapeError
from weft.helpers import prod
from weft.tensor import Tensor

VERSION = "2024.12"
_VERSIONS = ("2021.12", "2022.12", "2023.12", VERSION)


def is_scalar(value: Any) -> bool:
    """Whether it is a Python scalar; NumPy's are what `item()` gives."""
    return isinstance(value, (bool, int, float, complex))


class Array(Operators):
    """An array of the standard. Made by `asarray` and the other functions of the namespace.

    >>> import weft.array_api as xp
    >>> xp.asarray([1, 2]) + 1
    Array([2, 3], dtype=int64)
    """

    __slots__ = ("__weakref__", "_im", "_re")
    _re: Tensor
    _im: Tensor | None
    # NumPy lets an Array handle `array + x`, which refuses to mix
    __array_priority__ = 1000
    __hash__ = None  # type: ignore[assignment]

    def __init__(self, *args: Any) -> None:
        raise ArgumentError("an Array is made by weft.array_api.asarray and its like, not by Array")

    @classmethod
    def _of(cls, real: Tensor, imaginary: Tensor | None = None) -> Array:
        """An array that holds these tensors, not copies of them."""
        array = object.__new__(cls)
        array._re, array._im = real, imaginary
        return array

    @property
    def tensor(self) -> Tensor:
        """The Tensor behind a real array; it shares storage and gradients with the array.

        >>> import weft.array_api as xp
        >>> xp.ones(2).tensor.tolist()
        [1.0, 1.0]
        """
        if self._im is not None:
            raise DTypeError("a complex array has two tensors: real(x).tensor and imag(x).tensor")
        return self._re

    @property
    def parts(self) -> tuple[Tensor, ...]:
        """The tensors behind: one, or two of a complex array."""
        return (self._re,) if self._im is None else (self._re, self._im)

    # ------------------------------------------------------------ attributes
    @property
    def dtype(self) -> AnyDType:
        """The type of the elements."""
        return self._re.dtype if self._im is None else types.complex_of(self._re.dtype)

    @property
    def device(self) -> str:
        """Where it lives; what is made of numbers alone lives on the default device."""
        return str(Device.canonicalize(self._re.device))

    @property
    def shape(self) -> tuple[int, ...]:
        """The sizes of the axes."""
        return self._re.shape

    @property
    def ndim(self) -> int:
        """How many axes there are."""
        return len(self._re.shape)

    @property
    def size(self) -> int:
        """How many elements there are."""
        return int(prod(self._re.shape))

    @property
    def T(self) -> Array:
        """The transpose of a matrix."""
        if self.ndim != 2:
            raise ShapeError(
                f".T is of a matrix; this array has {self.ndim} axes, use .mT or permute_dims"
            )
        return self.mT

    @property
    def mT(self) -> Array:
        """The matrices of the last two axes transposed."""
        if self.ndim < 2:
            raise ShapeError(f".mT needs at least two axes, found shape {self.shape}")
        return self.each(lambda part: part.transpose(-2, -1))

    def each(self, function: Any) -> Array:
        """A function of tensors applied to each part."""
        return self._of(*[function(part) for part in self.parts])

    def with_dtype(self, dtype: AnyDType) -> Array:
        """The same values in another dtype; a complex array stays complex."""
        part = types.part_of(dtype)
        if isinstance(dtype, ComplexDType):
            imaginary = self._re.zeros_like().cast(part) if self._im is None else self._im
            return self._of(self._re.cast(part), imaginary.cast(part))
        if self._im is not None:
            raise DTypeError(f"a complex array has no {dtype}; take real(x) or imag(x) first")
        return self._of(self._re.cast(part))

    # ------------------------------------------------------------ protocols
    def __array_namespace__(self, /, *, api_version: str | None = None) -> ModuleType:
        if api_version is not None and api_version not in _VERSIONS:
            raise ArgumentError(
                f"version {api_version!r} of the array API is not here; there are {_VERSIONS}"
            )
        return sys.modules["weft.array_api"]

    def __dlpack__(
        self,
        /,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[Any, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory of this array for another library; that of a complex one is a copy."""
        if self._im is None:
            return self._re.__dlpack__(
                stream=stream, max_version=max_version, dl_device=dl_device, copy=copy
            )
        if copy is False:
            raise ArgumentError("complex arrays are pairs: DLPack needs copy=None or copy=True")
        both = self._re.stack(self._im, dim=-1).contiguous()
        place = Device[both._sharing_place()]
        if dl_device is not None and (int(dl_device[0]), int(dl_device[1])) != place.memory_kind:
            found = Device.with_memory((int(dl_device[0]), int(dl_device[1])))
            if found is None:
                raise DeviceError(f"no device has memory of DLPack's kind {dl_device}")
            both, place = both.to(found.name).contiguous(), found
        buffer = both._buffer()
        place.let_wait(stream)
        versioned = max_version is not None and max_version[0] >= 1
        return dlpack.give(buffer, self.shape, versioned, of_pairs=True)

    def __dlpack_device__(self, /) -> tuple[int, int]:
        """The kind of memory that `__dlpack__` shares, and which of that kind."""
        return self._re.__dlpack_device__()

    def to_device(self, device: Any, /, *, stream: Any = None) -> Array:
        """The array on another device."""
        if stream is not None:
            raise ArgumentError("to_device has no streams: copies are ordered by themselves")
        place = Device.canonicalize(device)
        return self.each(lambda part: part.to(place))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For NumPy: on the CPU a real array is shared, not copied."""
        if self._im is None:
            return self._re.__array__(dtype, copy)
        if copy is False:
            raise ArgumentError("complex arrays are pairs: NumPy's are copies of them")
        import numpy

        parts = [part.numpy() for part in self.parts]
        joined = numpy.empty(self.shape, f"c{2 * parts[0].dtype.itemsize}")
        joined.real, joined.imag = parts
        return joined if dtype is None else joined.astype(dtype)

    def __repr__(self) -> str:
        import numpy

        text = numpy.array2string(self.__array__(), separator=", ", prefix="Array(", threshold=100)
        return f"Array({text}, dtype={dtype_name(self.dtype)})"

    # ------------------------------------------------------------ Python numbers
    def _item(self, what: str) -> Any:
        if self.ndim:
            raise ArgumentError(f"{what} takes an array without axes, found shape {self.shape}")
        values = [part.item() for part in self.parts]
        return values[0] if self._im is None else complex(*values)

    def __bool__(self, /) -> bool:
        return bool(self._item("bool()"))

    def __complex__(self, /) -> complex:
        return complex(self._item("complex()"))

    def __float__(self, /) -> float:
        return float(self._real_item("float()"))

    def __int__(self, /) -> int:
        return int(self._real_item("int()"))

    def __index__(self, /) -> int:
        if not types.is_integral(self.dtype):
            raise DTypeError(f"an index must be an integer, found an array of {self.dtype}")
        return int(self._item("index()"))

    def _real_item(self, what: str) -> Any:
        if self._im is not None:
            raise DTypeError(f"{what} takes a real number, found {self.dtype}; use real(x)")
        return self._item(what)

    def __len__(self) -> int:
        if not self.ndim:
            raise ArgumentError("an array without axes has no length")
        return self.shape[0]

    def __iter__(self) -> Iterator[Array]:
        return iter([self[place] for place in range(len(self))])

    # ------------------------------------------------------------ indexing
    def __getitem__(self, key: Any, /) -> Array:
        chosen = self._key(key)
        if _is_switch(chosen):
            # a mask without axes adds one, of one element or none
            taken = int(chosen.item())
            return self.each(lambda part: part.reshape((1, *part.shape))[:taken])
        return self.each(lambda part: part[chosen])

    def __setitem__(self, key: Any, value: Any, /) -> None:
        chosen = self._key(key)
        new = operand(value, self.dtype, "the value that is assigned")
        if types.promote(self.dtype, new.dtype) != self.dtype:
            raise DTypeError(f"an array of {self.dtype} cannot hold values of {new.dtype}")
        if _is_switch(chosen):
            if not chosen.item():
                return
            # a mask without axes adds one of one element
            new = new.each(lambda part: part.expand((1, *self.shape)).reshape(self.shape))
            chosen = ...
        for part, source in zip(self.parts, new.with_dtype(self.dtype).parts, strict=True):
            part[chosen] = source

    def _key(self, key: Any) -> Any:
        """A key of the standard as one of Tensor's."""
        items = key if isinstance(key, tuple) else (key,)
        found = [self._key_item(item) for item in items]
        masks = [item for item in found if isinstance(item, Tensor) and item.dtype is dtypes.bool]
        if masks and len(found) > 1:
            raise IndexingError("a boolean array must be the only index")
        named = len([item for item in found if item is not None and item is not Ellipsis])
        if not masks and named > self.ndim:
            raise IndexingError(f"{named} indices for an array of {self.ndim} axes")
        return tuple(found) if isinstance(key, tuple) else found[0]

    @staticmethod
    def _key_item(item: Any) -> Any:
        if item is None or item is Ellipsis:
            return item
        if isinstance(item, slice):
            bounds = (item.start, item.stop, item.step)
            return slice(*[None if bound is None else bound.__index__() for bound in bounds])
        if isinstance(item, Array):
            if item.dtype.kind not in ("bool", "int", "uint"):
                raise IndexingError(f"an index is an array of ints or of bools, found {item.dtype}")
            return item._re
        if not isinstance(item, bool) and hasattr(item, "__index__"):
            return item.__index__()
        raise IndexingError(
            f"{item!r} cannot index an Array; ints, slices, ..., None, arrays of ints or bools can"
        )

    # ------------------------------------------------------------ operators
    def _with(self, name: str, other: Any, reverse: bool = False) -> Any:
        other = plain(other)
        if not isinstance(other, Array) and not is_scalar(other):
            return NotImplemented
        return binary(name, other, self) if reverse else binary(name, self, other)

    def _into(self, name: str, other: Any) -> Any:
        """An operator that writes its result into this array."""
        result = self._with(name, other)
        if result is NotImplemented:
            return result
        return self._becomes(result)

    def _becomes(self, result: Array) -> Array:
        if result.dtype != self.dtype:
            raise DTypeError(f"an array of {self.dtype} cannot become {result.dtype} in place")
        if result.shape != self.shape:
            raise ShapeError(
                f"an array of shape {self.shape} cannot become {result.shape} in place"
            )
        for part, source in zip(self.parts, result.parts, strict=True):
            part.assign(source)
        return self

    def __neg__(self, /) -> Array:
        return unary("negative", self)

    def __pos__(self, /) -> Array:
        return unary("positive", self)

    def __abs__(self, /) -> Array:
        return unary("abs", self)

    def __invert__(self, /) -> Array:
        return unary("bitwise_invert", self)

    def __matmul__(self, other: Any, /) -> Any:
        return product(self, other) if isinstance(other, Array) else NotImplemented

    def __rmatmul__(self, other: Any, /) -> Any:
        return product(other, self) if isinstance(other, Array) else NotImplemented

    def __imatmul__(self, other: Any, /) -> Any:
        return self._becomes(product(self, other)) if isinstance(other, Array) else NotImplemented


def _is_switch(key: Any) -> bool:
    """Whether a key is one bool, as an array."""
    return isinstance(key, Tensor) and key.dtype is dtypes.bool and key.ndim == 0


# ------------------------------------------------------------ operands
def dtype_name(dtype: AnyDType) -> str:
    """How the standard calls it."""
    known = [name for name, each in types.ALL.items() if each == dtype]
    return known[0] if known else dtype.name


def plain(value: Any) -> Any:
    """A scalar of NumPy as Python's, anything else as it is."""
    if type(value).__module__ == "numpy" and getattr(value, "shape", None) == ():
        return value.item()
    return value


def as_array(value: Any, what: str) -> Array:
    """Refuses what is no Array."""
    if not isinstance(value, Array):
        raise ArgumentError(
            f"{what} takes an Array, found a {type(value).__name__}; asarray makes one"
        )
    return value


def operand(value: Any, beside: AnyDType, what: str) -> Array:
    """An Array, or a Python scalar as one of the dtype it has beside an array."""
    value = plain(value)
    if is_scalar(value):
        return scalar(value, types.dtype_of_scalar(value, beside))
    return as_array(value, what)


def scalar(value: Scalar, dtype: AnyDType) -> Array:
    """An array without axes that folds into what uses it."""
    part = types.part_of(dtype)
    if isinstance(dtype, ComplexDType):
        number = complex(value)
        return Array._of(Tensor(number.real, dtype=part), Tensor(number.imag, dtype=part))
    return Array._of(Tensor(value, dtype=part))


def together(what: str, *values: Any) -> list[Array]:
    """Operands as arrays of their common dtype; at least one is an array."""
    values = tuple(plain(value) for value in values)
    arrays = [as_array(value, what) for value in values if not is_scalar(value)]
    scalars = [value for value in values if is_scalar(value)]
    if not arrays:
        raise ArgumentError(f"{what} takes at least one Array, found Python scalars only")
    dtype = types.result_dtype([array.dtype for array in arrays], scalars)
    return [
        scalar(value, dtype) if is_scalar(value) else value.with_dtype(dtype) for value in values
    ]


def _refuse(name: str, dtype: AnyDType) -> None:
    row = FUNCTIONS[name]
    if not row.accepts(dtype):
        raise DTypeError(f"{name} takes arrays of a {row.takes} dtype, found {dtype_name(dtype)}")


def _called(name: str, arrays: list[Array]) -> Array:
    """A function of operands of one dtype."""
    row = FUNCTIONS[name]
    if arrays[0]._im is None:
        assert row.real is not None, "whoever takes complex numbers only has refused others"
        return Array._of(row.real(*[array._re for array in arrays]))
    assert row.pair is not None, "complex numbers were refused"
    shaped = [_broadcast_parts(array) for array in arrays]
    result = row.pair(*shaped)
    return Array._of(*result) if row.gives == "same" else Array._of(result)


def _broadcast_parts(array: Array) -> tuple[Tensor, Tensor]:
    assert array._im is not None, "a pair"
    return array._re, array._im


def unary(name: str, x: Any) -> Array:
    """An elementwise function of one array."""
    array = as_array(x, name)
    _refuse(name, array.dtype)
    return _called(name, [array])


def binary(name: str, first: Any, second: Any) -> Array:
    """An elementwise function of two operands, of which one may be a Python scalar."""
    arrays = together(name, first, second)
    _refuse(name, arrays[0].dtype)
    shape = broadcast_shapes(*[array.shape for array in arrays])
    result = _called(name, arrays)
    # one part of a pair may have been made of a scalar alone
    return result.each(lambda part: part if part.shape == shape else part.expand(shape))


def broadcast_shapes(*shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The shape that all of these broadcast to."""
    rank = max([len(shape) for shape in shapes], default=0)
    result = []
    for place in range(-rank, 0):
        sizes = {shape[place] for shape in shapes if len(shape) >= -place} - {1}
        if len(sizes) > 1:
            raise ShapeError(f"shapes {', '.join(map(str, shapes))} do not broadcast together")
        result.append(sizes.pop() if sizes else 1)
    return tuple(result)


def product(x1: Any, x2: Any) -> Array:
    """The matrix product."""
    first, second = together("matmul", as_array(x1, "matmul"), as_array(x2, "matmul"))
    if first.dtype.kind == "bool":
        raise DTypeError("matmul takes arrays of a numeric dtype, found bool")
    if not first.ndim or not second.ndim:
        raise ShapeError(f"matmul needs an axis of each, found {first.shape} and {second.shape}")
    if first._im is None or second._im is None:
        return Array._of(first._re.matmul(second._re))
    a, b, c, d = first._re, first._im, second._re, second._im
    return Array._of(a.matmul(c) - b.matmul(d), a.matmul(d) + b.matmul(c))


def real_dtype(array: Array) -> DType:
    """The dtype of the tensors of an array."""
    return array._re.dtype


def to_numpy(array: Array) -> Any:
    """The values of an array, for functions of the host."""
    return array.__array__()


def from_numpy(values: Any, device: Any = None) -> Array:
    """A NumPy array's values as an Array, copied."""
    import numpy

    if values.dtype.kind == "c":
        part = numpy.dtype(f"f{values.dtype.itemsize // 2}")
        parts = [numpy.ascontiguousarray(each, dtype=part) for each in (values.real, values.imag)]
        return Array._of(*[Tensor(part.reshape(values.shape), device=device) for part in parts])
    return Array._of(Tensor(values, device=device))


def numpy_dtype(dtype: AnyDType) -> Any:
    """NumPy's dtype of the same name."""
    if isinstance(dtype, ComplexDType):
        return dtype.name
    return to_numpy_dtype(dtype)
