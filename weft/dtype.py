"""The namespace `dtypes`, the promotion lattice, and the meaning of casts.

In: types, and Python values. Out: the type that operands promote to, the value that a cast gives.
Sits above the knobs (which choose the default types), below everything that has a type, and passes
on the names of `scalar`. Invariant: promotion depends on the set of operands, not on their order.
"""

from __future__ import annotations

import functools
import importlib
import math
from collections.abc import Iterable
from enum import Enum, auto
from typing import Any

from weft import float_format
from weft.errors import ArgumentError, DTypeError
from weft.float_format import ConstFloat, FloatFormat, python_number
from weft.knobs import DEFAULT_FLOAT, DEFAULT_INT
from weft.scalar import (
    BY_NAME,
    BY_SPELLING,
    FORMATS,
    DType,
    Names,
    PyConst,
    bits_of,
    store,
    to_dtype,
    truncate,
    value_of_bits,
)

__all__ = [
    "DTYPES_DICT",
    "FORMATS",
    "INVERSE_DTYPES_DICT",
    "AddrSpace",
    "ConstFloat",
    "ConstType",
    "DType",
    "DTypeLike",
    "DTypes",
    "Invalid",
    "InvalidType",
    "PyConst",
    "bitcast",
    "bitcast_value",
    "bits_of",
    "can_lossless_cast",
    "convert",
    "dtypes",
    "float_to_bf16",
    "float_to_fp16",
    "float_to_fp8",
    "fp8_to_float",
    "from_numpy_dtype",
    "from_storage_scalar",
    "least_upper_dtype",
    "least_upper_float",
    "promo_lattice",
    "python_number",
    "storage_fmt_for_dtype",
    "strong_dtype",
    "sum_acc_dtype",
    "to_dtype",
    "to_numpy_dtype",
    "to_storage_scalar",
    "truncate",
    "value_of_bits",
    "weak_dtype",
]


class DTypes(Names):
    """The object `dtypes`: the types by name, the defaults, and questions about types."""

    @property
    def default_float(self) -> DType:
        """Type of floats when none is given; the knob DEFAULT_FLOAT, and may be assigned."""
        return _chosen_float(DEFAULT_FLOAT.value)

    @default_float.setter
    def default_float(self, dtype: DType | str) -> None:
        DEFAULT_FLOAT.value = _chosen_float(dtype).name

    @property
    def default_int(self) -> DType:
        """Type of integers when none is given; the knob DEFAULT_INT, and may be assigned."""
        return _chosen_int(DEFAULT_INT.value)

    @default_int.setter
    def default_int(self, dtype: DType | str) -> None:
        DEFAULT_INT.value = _chosen_int(dtype).name

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in ("default_float", "default_int"):
            raise ArgumentError(
                f"dtypes.{name} cannot be assigned; only default_float and default_int can"
            )
        super().__setattr__(name, value)

    def fields(self) -> dict[str, DType]:
        """All types by name, without aliases."""
        return dict(BY_NAME)

    def is_float(self, dtype: DType) -> bool:
        """Whether it is a floating point type, weak ones and vectors included."""
        return dtype.kind == "float"

    def is_int(self, dtype: DType) -> bool:
        """Whether it is an integer type, signed or not, weak ones and vectors included."""
        return dtype.kind == "int" or dtype.kind == "uint"

    def is_unsigned(self, dtype: DType) -> bool:
        """Whether it is an unsigned integer type."""
        return dtype.kind == "uint"

    def is_bool(self, dtype: DType) -> bool:
        """Whether it is the type of truth values."""
        return dtype.kind == "bool"

    def is_weak(self, dtype: DType) -> bool:
        """Whether it is the type of a number that has not met data yet."""
        return dtype.scalar() in self.weaks

    def min(self, dtype: DType) -> PyConst:
        """The least value of a type."""
        return dtype.min

    def max(self, dtype: DType) -> PyConst:
        """The greatest value of a type."""
        return dtype.max

    def finfo(self, dtype: DType) -> tuple[int, int]:
        """Exponent and mantissa bits of a floating point type.

        >>> dtypes.finfo(dtypes.float16)
        (5, 10)
        """
        found = FORMATS.get(dtype.scalar())
        if found is None:
            raise DTypeError(f"finfo is asked of {dtype}, which is no floating point type")
        return found.exponent_bits, found.mantissa_bits

    def from_py(self, value: Any) -> DType:
        """The type in which Python data is stored: a number, or nested lists of them.

        An integer that does not fit `default_int` takes int64, or uint64 above that. The type of a
        bare number in an expression is `weak_dtype` of it instead.

        >>> dtypes.from_py([1, [2, 3.0]]) is dtypes.default_float
        True
        """
        value = python_number(value)
        if isinstance(value, bool):
            return self.bool
        if isinstance(value, float):
            return self.default_float
        if isinstance(value, int):
            return _fitting_int((value,))
        if isinstance(value, (list, tuple)):
            return _dtype_of_data(value)
        raise DTypeError(
            f"cannot infer a dtype from {value!r}, a {type(value).__name__}; "
            "a bool, int, float, or nested lists of them would do"
        )


dtypes = DTypes()


def _choose(what: str, asked: DType | str, accepted: tuple[DType, ...]) -> DType:
    """Checks a choice of a default type."""
    found = BY_SPELLING.get(asked.lower()) if isinstance(asked, str) else asked
    if found not in accepted:
        names = " ".join(option.name for option in accepted)
        raise ArgumentError(f"{what} is {asked!r}, but must be one of {names}")
    return found


# Cached, for promotion asks for the defaults all the time.
@functools.cache
def _chosen_float(asked: DType | str) -> DType:
    return _choose("the default float (DEFAULT_FLOAT)", asked, dtypes.floats)


@functools.cache
def _chosen_int(asked: DType | str) -> DType:
    return _choose("the default int (DEFAULT_INT)", asked, dtypes.ints)


# A bad choice in the environment is reported now, not in the middle of some computation.
_chosen_float(DEFAULT_FLOAT.value)
_chosen_int(DEFAULT_INT.value)


def _fitting_int(values: Iterable[int]) -> DType:
    """`default_int` if it holds all values, else int64, else uint64."""
    least = most = 0
    for value in values:
        least = min(least, value)
        most = max(most, value)
    for option in (dtypes.default_int, dtypes.int64, dtypes.uint64):
        if option.min <= least and most <= option.max:
            return option
    raise DTypeError(f"integers from {least} to {most} fit no dtype; int64 and uint64 are widest")


def _dtype_of_data(data: list[Any] | tuple[Any, ...]) -> DType:
    """The type of nested lists of numbers: the widest kind found in them."""
    found_float = found_bool = False
    integers: list[int] = []
    pending: list[Any] = [data]
    while pending:
        value = pending.pop()
        if isinstance(value, (list, tuple)):
            pending.extend(value)
        elif isinstance(value, bool):
            found_bool = True
        elif isinstance(value, int):
            integers.append(value)
        elif isinstance(value, float):
            found_float = True
        else:
            dtypes.from_py(value)
    if found_float or not (integers or found_bool):
        return dtypes.default_float
    return _fitting_int(integers) if integers else dtypes.bool


# Promotion. The edges say which types come right above a type:
#
#   bool - weakint +- int8 --- int16 --- int32 --- int64 --+
#                  |     ____/     ____/     ____/         |
#                  +- uint8 -- uint16 -- uint32 -- uint64 -+- weakfloat
#
#   weakfloat - each fp8 +- float16 --+- float32 - float64
#                        +- bfloat16 -+
_ABOVE: dict[DType, tuple[DType, ...]] = {
    dtypes.bool: (dtypes.weakint,),
    dtypes.weakint: (dtypes.int8, dtypes.uint8),
    dtypes.int8: (dtypes.int16,),
    dtypes.int16: (dtypes.int32,),
    dtypes.int32: (dtypes.int64,),
    dtypes.int64: (dtypes.weakfloat,),
    dtypes.uint8: (dtypes.int16, dtypes.uint16),
    dtypes.uint16: (dtypes.int32, dtypes.uint32),
    dtypes.uint32: (dtypes.int64, dtypes.uint64),
    dtypes.uint64: (dtypes.weakfloat,),
    dtypes.weakfloat: dtypes.fp8s,
    **dict.fromkeys(dtypes.fp8s, (dtypes.float16, dtypes.bfloat16)),
    dtypes.float16: (dtypes.float32,),
    dtypes.bfloat16: (dtypes.float32,),
    dtypes.float32: (dtypes.float64,),
    dtypes.float64: (),
}


def _upper_sets() -> dict[DType, frozenset[DType]]:
    """For each type, itself and all that it promotes to."""
    upper: dict[DType, frozenset[DType]] = {}
    for dtype in sorted(_ABOVE, reverse=True):
        upper[dtype] = frozenset((dtype,)).union(*(upper[above] for above in _ABOVE[dtype]))
    return upper


_UPPER = _upper_sets()
_JOINS: dict[frozenset[DType], DType] = {}


def least_upper_dtype(*operands: DType) -> DType:
    """The least type that all operands promote to.

    It depends on the set of operands only, never on their order. In two places the least upper
    bound is replaced by a type that can be stored: strong integers whose bound is weakfloat
    (int32 with 0.5, int64 with uint64) give `default_float`, for data is never weak; and two
    different fp8 types, which both float16 and bfloat16 hold, give float16. So promote all operands
    in one call: int32 with 0.5 alone is float32, and with a half beside them it is half.

    >>> least_upper_dtype(dtypes.float16, dtypes.weakfloat)
    dtypes.half
    >>> least_upper_dtype(dtypes.int8, dtypes.uint8)
    dtypes.short
    """
    types = frozenset(operands)
    if len(types) == 1:
        return operands[0]
    found = _JOINS.get(types)
    if found is None:
        found = _JOINS.setdefault(types, _join(types))
    if found.scalar() is dtypes.weakfloat and any(d.scalar() in dtypes.ints for d in types):
        return dtypes.default_float.vec(found.count)
    return found


def _join(types: frozenset[DType]) -> DType:
    """The least upper bound in the lattice, lane by lane for vectors."""
    if not types:
        raise ArgumentError("least_upper_dtype was given no dtype; it needs at least one")
    counts = {dtype.count for dtype in types}
    if dtypes.void in types or len(counts) != 1:
        listed = " and ".join(str(dtype) for dtype in sorted(types))
        raise DTypeError(f"{listed} have no common dtype; take types with values and equal lanes")
    common = frozenset.intersection(*(_UPPER[dtype.scalar()] for dtype in types))
    return min(common).vec(counts.pop())


def least_upper_float(dtype: DType) -> DType:
    """The type in which a function such as `sin` of this type is computed.

    Floats stay as they are, a weak integer becomes a weak float, the others `default_float`.
    """
    if dtype.kind == "float":
        return dtype
    if dtype.scalar() is dtypes.weakint:
        return dtypes.weakfloat.vec(dtype.count)
    if dtype.kind == "void":
        raise DTypeError("void holds no values, so no floating point type holds them")
    return dtypes.default_float.vec(dtype.count)


# what a half type computes in, so that its constants and partial results are not rounded to it
NARROW_FLOATS = frozenset((dtypes.float16, dtypes.bfloat16, *dtypes.fp8s))


def computing_dtype(dtype: DType) -> DType:
    """The float type in which a function of this dtype is computed.

    >>> computing_dtype(dtypes.float16), computing_dtype(dtypes.float64)
    (dtypes.float, dtypes.double)
    """
    found = least_upper_float(dtype)
    return dtypes.float32.vec(found.count) if found.scalar() in NARROW_FLOATS else found


def strong_dtype(dtype: DType) -> DType:
    """The type that a weak one takes when it must be stored; others stay."""
    scalar = dtype.scalar()
    if scalar is dtypes.weakint:
        return dtypes.default_int.vec(dtype.count)
    if scalar is dtypes.weakfloat:
        return dtypes.default_float.vec(dtype.count)
    return dtype


def weak_dtype(value: PyConst) -> DType:
    """The type of a bare Python number: bool, weakint or weakfloat."""
    if isinstance(value, bool):
        return dtypes.bool
    if isinstance(value, int):
        return dtypes.weakint
    if isinstance(value, float):
        return dtypes.weakfloat
    raise DTypeError(f"{value!r} is a {type(value).__name__}; a constant is a bool, int or float")


def can_lossless_cast(source: DType, target: DType) -> bool:
    """Whether every value of `source` is a value of `target`.

    >>> can_lossless_cast(dtypes.int32, dtypes.float32)
    False
    """
    if source is target or source.kind == "bool":
        return source.count == target.count and target.kind != "void"
    if source.count != target.count or "void" in (source.kind, target.kind):
        return False
    if target.kind == "bool":
        return False
    if source.kind == "float":
        return target.kind == "float" and _format_holds(FORMATS[target.scalar()], source.scalar())
    if target.kind == "float":
        return _exact_integer_bits(target) >= source.scalar().bitsize - (source.kind == "int")
    return target.min <= source.min and source.max <= target.max


def _format_holds(target: FloatFormat, source_dtype: DType) -> bool:
    """Whether a format has all values of another, infinities and negative zero included."""
    source = FORMATS[source_dtype]
    if source == target:
        return True
    if target.finite_only and not source.finite_only or target.single_nan > source.single_nan:
        return False
    return (
        source.mantissa_bits <= target.mantissa_bits
        and source.largest <= target.largest
        and source.bias + source.mantissa_bits <= target.bias + target.mantissa_bits
    )


def _exact_integer_bits(dtype: DType) -> int:
    """The largest n such that a float type holds -2**n, and all integers below in magnitude."""
    layout = FORMATS[dtype.scalar()]
    return min(layout.mantissa_bits + 1, math.frexp(layout.largest)[1])


def convert(value: PyConst, source: DType, target: DType) -> Any:
    """The meaning of CAST for one value of type `source`.

    To bool: whether it is not zero. Float to integer: cut towards zero, saturated at the type's
    ends, NaN is 0. Integer to integer: wraps. To float: rounded once, to nearest even.

    >>> convert(300.7, dtypes.float32, dtypes.uint8), convert(300, dtypes.int32, dtypes.uint8)
    (255, 44)
    """
    if "void" in (source.kind, target.kind):
        raise DTypeError(f"cannot cast {source} to {target}: void holds no values")
    return store(value, target.scalar())


def bitcast_value(value: PyConst, source: DType, target: DType) -> Any:
    """The meaning of BITCAST for one value: the same bits, read as another type.

    >>> hex(bitcast_value(1.0, dtypes.float32, dtypes.uint32))
    '0x3f800000'
    """
    if source.scalar().itemsize != target.scalar().itemsize:
        raise DTypeError(
            f"cannot bitcast {source} ({source.scalar().itemsize} bytes) to "
            f"{target} ({target.scalar().itemsize} bytes): the sizes must be equal"
        )
    return value_of_bits(bits_of(value, source), target)


def float_to_fp16(value: float) -> float:
    """`value` rounded to float16."""
    return float(truncate[dtypes.float16](value))


def float_to_bf16(value: float) -> float:
    """`value` rounded to bfloat16."""
    return float(truncate[dtypes.bfloat16](value))


def float_to_fp8(value: float, dtype: DType) -> int:
    """The bits of `value` rounded to an fp8 type."""
    if dtype not in dtypes.fp8s:
        raise DTypeError(f"float_to_fp8 is asked for {dtype}, but takes one of {dtypes.fp8s}")
    return float_format.encode(value, FORMATS[dtype])


def fp8_to_float(bits: int, dtype: DType) -> float:
    """The number that the bits of an fp8 type mean."""
    if dtype not in dtypes.fp8s:
        raise DTypeError(f"fp8_to_float is asked for {dtype}, but takes one of {dtypes.fp8s}")
    if not 0 <= bits <= 0xFF:
        raise ArgumentError(f"fp8_to_float is given bits {bits:#x}, but takes 0 to 0xff")
    return float_format.decode(bits, FORMATS[dtype])


# Types that NumPy lacks travel as integers of their size.
_STORED_AS = {dtypes.bfloat16: "uint16", **dict.fromkeys(dtypes.fp8s, "uint8")}
# NumPy takes microseconds to name a dtype; both are bounded by the types that there are
_TO_NUMPY: dict[DType, Any] = {}
_FROM_NUMPY: dict[Any, DType] = {}


def to_numpy_dtype(dtype: DType) -> Any:
    """The NumPy dtype of the same storage; bfloat16 and fp8 travel as uint16 and uint8."""
    found = _TO_NUMPY.get(dtype)
    if found is not None:
        return found
    import numpy

    if dtype.count != 1 or dtype.kind == "void" or dtype in dtypes.weaks:
        raise DTypeError(f"NumPy has no dtype for {dtype}; it has one for scalar, strong types")
    return _TO_NUMPY.setdefault(dtype, numpy.dtype(_STORED_AS.get(dtype, dtype.name)))


def from_numpy_dtype(numpy_dtype: Any) -> DType:
    """The type of a NumPy dtype, whatever its byte order; the ones of `ml_dtypes` included."""
    import numpy

    given = numpy.dtype(numpy_dtype)
    if given in _FROM_NUMPY:
        return _FROM_NUMPY[given]
    name = given.name
    name = _ML_DTYPES.get(name, name)
    found = BY_NAME.get(name)
    if found is None or found not in dtypes.all:
        names = " ".join(dtype.name for dtype in dtypes.all)
        raise DTypeError(f"NumPy's {name} has no dtype here; there are {names}")
    _FROM_NUMPY[given] = found
    return found


_ML_DTYPES = {
    "float8_e4m3fn": "fp8e4m3",
    "float8_e5m2": "fp8e5m2",
    "float8_e4m3fnuz": "fp8e4m3fnuz",
    "float8_e5m2fnuz": "fp8e5m2fnuz",
}


# Names that programs written for tinygrad import; nothing in weft itself needs them.


class InvalidType:
    """The type of `Invalid`: no number, where an index is not valid (`UOp.valid`)."""

    _only: InvalidType | None = None

    def __new__(cls) -> InvalidType:
        if cls._only is None:
            cls._only = super().__new__(cls)
        return cls._only

    def __repr__(self) -> str:
        return "Invalid"

    def __reduce__(self) -> str:
        return "Invalid"


class AddrSpace(Enum):
    """Kinds of memory, as tinygrad counts them."""

    GLOBAL = auto()
    LOCAL = auto()
    REG = auto()
    ALU = auto()

    def __repr__(self) -> str:
        return f"AddrSpace.{self.name}"


Invalid = InvalidType()
DTypeLike = str | DType
ConstType = float | int | bool | InvalidType
bitcast = bitcast_value
promo_lattice: dict[DType, list[DType]] = {dtype: list(above) for dtype, above in _ABOVE.items()}
DTYPES_DICT: dict[str, DType] = {
    name: dtype for name, dtype in BY_SPELLING.items() if dtype in dtypes.all
}
INVERSE_DTYPES_DICT: dict[str, str] = {
    **{dtype.name: name for name, dtype in DTYPES_DICT.items()},
    "void": "void",
    "weakint": "weakint",
    "weakfloat": "weakfloat",
}


def sum_acc_dtype(dtype: DType) -> DType:
    """The type that a sum of this type is computed in; `Tensor.sum` rounds back to its own."""
    if dtype.kind == "uint":
        return least_upper_dtype(dtype, dtypes.uint32)
    if dtype.kind in ("int", "bool"):
        return least_upper_dtype(dtype, dtypes.int32)
    return least_upper_dtype(dtype, dtypes.float32)


def storage_fmt_for_dtype(dtype: DType) -> str | None:
    """The letter of the `struct` module of what is stored; bfloat16 and fp8 are stored as bits."""
    return {"uint16": "H", "uint8": "B"}.get(_STORED_AS.get(dtype, ""), dtype.fmt)


def to_storage_scalar(value: PyConst, dtype: DType) -> Any:
    """A number as it is stored: bits for bfloat16 and fp8."""
    return bits_of(value, dtype) if dtype in _STORED_AS else value


def from_storage_scalar(value: PyConst, dtype: DType) -> Any:
    """A number from what is stored."""
    return value_of_bits(int(value), dtype) if dtype in _STORED_AS else value


def _to_np_dtype(dtype: DType) -> Any:
    """The NumPy type that holds the values, float32 for bfloat16 and fp8, None if there is none."""
    if dtype.count != 1 or dtype not in dtypes.all:
        return None
    return to_numpy_dtype(dtypes.float32 if dtype in _STORED_AS else dtype).type


def _from_np_dtype(numpy_dtype: Any) -> DType:
    """The type of a NumPy dtype."""
    return from_numpy_dtype(numpy_dtype)


def _to_torch_dtype(dtype: DType) -> Any:
    """PyTorch's type of the same storage, None if there is none."""
    name = "uint8" if dtype in dtypes.fp8s else dtype.name
    # by name: only who asks for PyTorch's types needs it
    return getattr(importlib.import_module("torch"), name, None) if dtype in dtypes.all else None


def _from_torch_dtype(torch_dtype: Any) -> DType:
    """The type of a PyTorch dtype."""
    name = str(torch_dtype).removeprefix("torch.")
    found = BY_NAME.get(_ML_DTYPES.get(name, name))
    if found is None:
        raise DTypeError(f"PyTorch's {torch_dtype} has no dtype here; there are {dtypes.all}")
    return found
