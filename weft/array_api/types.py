"""Types of the array API: those of weft and two complex ones; kinds and promotion.

In: dtypes, Python scalars. Out: the dtype of a result, or an error that names what does not mix.
First room of the namespace, above weft's own dtypes.
Invariant: a real dtype is weft's own object. A complex number has no dtype below this namespace: it
is a pair of tensors of floats, and `part` is their dtype.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

from weft.dtype import DType, dtypes, least_upper_dtype
from weft.errors import ArgumentError, DTypeError, OutOfRangeError


@dataclass(frozen=True)
class ComplexDType:
    """A complex number: two floats of the dtype `part`."""

    name: str
    part: DType
    kind: str = "complex"

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return 2 * self.part.itemsize

    def __repr__(self) -> str:
        return f"weft.array_api.{self.name}"


AnyDType = DType | ComplexDType
Scalar = bool | int | float | complex

complex64 = ComplexDType("complex64", dtypes.float32)
complex128 = ComplexDType("complex128", dtypes.float64)
_COMPLEX = {dtypes.float32: complex64, dtypes.float64: complex128}

SIGNED = (dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64)
UNSIGNED = (dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64)
REAL = (dtypes.float32, dtypes.float64)
COMPLEX = (complex64, complex128)
# what the standard names; weft's other floats may be in an Array too
ALL: dict[str, AnyDType] = {
    "bool": dtypes.bool,
    **{f"int{8 * d.itemsize}": d for d in SIGNED},
    **{f"uint{8 * d.itemsize}": d for d in UNSIGNED},
    "float32": dtypes.float32,
    "float64": dtypes.float64,
    "complex64": complex64,
    "complex128": complex128,
}
KINDS: dict[str, tuple[AnyDType, ...]] = {
    "bool": (dtypes.bool,),
    "signed integer": SIGNED,
    "unsigned integer": UNSIGNED,
    "integral": (*SIGNED, *UNSIGNED),
    "real floating": REAL,
    "complex floating": COMPLEX,
    "numeric": (*SIGNED, *UNSIGNED, *REAL, *COMPLEX),
}
# places and counts
INDEX = dtypes.int64


def to_array_dtype(dtype: Any) -> AnyDType:
    """A dtype that was asked for: of this namespace or of weft, a name, or a Python type."""
    if isinstance(dtype, ComplexDType):
        return dtype
    if isinstance(dtype, type) and dtype in (bool, int, float, complex):
        defaults = {bool: dtypes.bool, int: dtypes.int64, float: default_float()}
        return defaults.get(dtype, default_complex())
    if isinstance(dtype, str) and dtype in ALL:
        return ALL[dtype]
    if isinstance(dtype, DType) and dtype not in dtypes.weaks and dtype.count == 1:
        return dtype
    raise DTypeError(f"{dtype!r} is no dtype of the array API; there are {', '.join(ALL)}")


def default_float() -> DType:
    """weft's default float where the standard has it, else float32."""
    chosen = dtypes.default_float
    return chosen if chosen in REAL else dtypes.float32


def default_complex() -> ComplexDType:
    """Of the same precision as the default float."""
    return _COMPLEX[default_float()]


def is_complex(dtype: AnyDType) -> bool:
    """Whether its elements are pairs."""
    return isinstance(dtype, ComplexDType)


def is_real_float(dtype: AnyDType) -> bool:
    """Whether it is a float of one part."""
    return dtype.kind == "float"


def is_integral(dtype: AnyDType) -> bool:
    """Whether it is an int, signed or not."""
    return dtype.kind in ("int", "uint")


def part_of(dtype: AnyDType) -> DType:
    """The dtype of the tensors that hold it."""
    return dtype.part if isinstance(dtype, ComplexDType) else dtype


def complex_of(part: DType) -> ComplexDType:
    """The complex dtype whose parts these are."""
    if part not in _COMPLEX:
        raise DTypeError(f"complex numbers have parts of float32 or float64, not {part}")
    return _COMPLEX[part]


@functools.cache
def promote(first: AnyDType, second: AnyDType) -> AnyDType:
    """The dtype of a result of two dtypes of one kind, by the tables of the standard.

    >>> promote(dtypes.int8, dtypes.uint8)
    dtypes.short
    """
    if first == second:
        return first
    kinds = {first.kind, second.kind}
    if kinds <= {"float", "complex"}:
        part = least_upper_dtype(part_of(first), part_of(second))
        return part if kinds == {"float"} else complex_of(part)
    if kinds <= {"int", "uint"}:
        found = least_upper_dtype(part_of(first), part_of(second))
        if found.kind != "float":
            return found
    raise DTypeError(
        f"{first} and {second} do not mix: the standard promotes inside a kind (bool, ints, "
        "floats), and no int holds both uint64 and a signed int; use astype"
    )


def dtype_of_scalar(value: Scalar, beside: AnyDType) -> AnyDType:
    """The dtype of a Python scalar beside an array of this dtype."""
    if isinstance(value, bool):
        accepted = beside.kind == "bool"
    elif isinstance(value, int):
        accepted = beside.kind != "bool"
        if accepted and is_integral(beside):
            check_range(value, part_of(beside))
    elif isinstance(value, float):
        accepted = beside.kind in ("float", "complex")
    else:
        accepted = beside.kind in ("float", "complex")
        if accepted and beside.kind == "float":
            return complex_of(part_of(beside))
    if not accepted:
        raise DTypeError(
            f"the Python scalar {value!r} does not mix with an array of {beside}: a bool goes with "
            "bools, an int with numbers, a float or complex with floats and complex numbers"
        )
    return beside


def check_range(value: int, dtype: DType) -> None:
    """Refuses an int that the dtype does not hold."""
    if not dtype.min <= value <= dtype.max:
        raise OutOfRangeError(
            f"{value} is out of range for {dtype}, which holds {dtype.min} to {dtype.max}"
        )


def result_dtype(found: list[AnyDType], scalars: list[Scalar]) -> AnyDType:
    """The dtype of what is computed of arrays of these dtypes and of these Python scalars."""
    if not found:
        raise ArgumentError("a result type needs at least one array or dtype beside Python scalars")
    common = functools.reduce(promote, found)
    for scalar in scalars:
        common = promote(common, dtype_of_scalar(scalar, common))
    return common


@dataclass(frozen=True)
class FloatInfo:
    """Limits of a float dtype, or of the parts of a complex one."""

    bits: int
    eps: float
    max: float
    min: float
    smallest_normal: float
    dtype: DType


@dataclass(frozen=True)
class IntInfo:
    """Limits of an int dtype."""

    bits: int
    max: int
    min: int
    dtype: DType


def float_info(dtype: AnyDType) -> FloatInfo:
    """What finfo gives."""
    if dtype.kind not in ("float", "complex"):
        raise DTypeError(f"finfo is asked of {dtype}, which is no float and no complex dtype")
    part = part_of(dtype)
    exponent, mantissa = dtypes.finfo(part)
    bias = 2 ** (exponent - 1) - 1
    greatest = (2.0 - 2.0**-mantissa) * 2.0**bias
    return FloatInfo(
        8 * part.itemsize, 2.0**-mantissa, greatest, -greatest, 2.0 ** (1 - bias), part
    )


def int_info(dtype: AnyDType) -> IntInfo:
    """What iinfo gives."""
    if not is_integral(dtype):
        raise DTypeError(f"iinfo is asked of {dtype}, which is no int dtype")
    part = part_of(dtype)
    return IntInfo(8 * part.itemsize, int(part.max), int(part.min), part)


def is_kind(dtype: AnyDType, kind: Any) -> bool:
    """Whether a dtype is of a kind, which is a name, a dtype, or a tuple of them."""
    if isinstance(kind, tuple):
        return any(is_kind(dtype, each) for each in kind)
    if not isinstance(kind, str):
        return bool(dtype == to_array_dtype(kind))
    if kind not in KINDS:
        raise ArgumentError(f"{kind!r} is no kind of dtypes; there are {', '.join(KINDS)}")
    return dtype in KINDS[kind]
