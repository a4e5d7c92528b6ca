"""The types of elements themselves, and what storing a Python number in one does to it.

In: names and Python numbers. Out: `DType`, the types by name, their limits and formats, `store`.
Sits under `dtype`, which adds defaults and promotion and passes these names on: import from there.
Invariant: a `DType` is interned, so `is` is equality, also after pickling.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from weft import float_format
from weft.errors import DTypeError, UnknownDTypeError
from weft.float_format import ConstFloat, FloatFormat

PyConst: TypeAlias = float | int | bool
Kind: TypeAlias = Literal["void", "bool", "int", "uint", "float"]


_SHORT_NAMES = {
    "int8": "char",
    "uint8": "uchar",
    "int16": "short",
    "uint16": "ushort",
    "int32": "int",
    "uint32": "uint",
    "int64": "long",
    "uint64": "ulong",
    "float16": "half",
    "float32": "float",
    "float64": "double",
}


@dataclass(frozen=True, eq=False, slots=True)
class DType:
    """A type of elements, or a vector of `count` of them. Interned: take them from `dtypes`.

    `priority` orders the types so that a type stands after all that promote to it. `fmt` is the
    letter of the `struct` module, None where it has none. Equality and hash are those of identity.
    """

    kind: Kind
    priority: int
    bitsize: int
    itemsize: int
    name: str
    fmt: str | None
    count: int = 1

    def __reduce__(self) -> tuple[Any, ...]:
        return (_find_dtype, (self.scalar().name, self.count))

    def __copy__(self) -> DType:
        return self

    def __deepcopy__(self, memo: object) -> DType:
        return self

    def __repr__(self) -> str:
        # by the short name, as tinygrad's print: its users compare the text
        name = self.scalar().name
        scalar = f"dtypes.{_SHORT_NAMES.get(name, name)}"
        return scalar if self.count == 1 else f"{scalar}.vec({self.count})"

    def __lt__(self, other: DType) -> bool:
        return (self.priority, self.count) < (other.priority, other.count)

    @property
    def base(self) -> DType:
        """The type itself; there for code that also meets types with a storage of their own."""
        return self

    @property
    def vcount(self) -> int:
        """Number of lanes, the same as `count`."""
        return self.count

    def scalar(self) -> DType:
        """The type of one lane."""
        return self if self.count == 1 else _SCALAR_OF[self]

    def vec(self, count: int) -> DType:
        """The type of a vector of `count` of these.

        >>> Names.float32.vec(4).itemsize
        16
        """
        if count == self.count:
            return self
        return self.scalar() if count == 1 else _make_vector(self.scalar(), count)

    @property
    def min(self) -> PyConst:
        """The least value: minus infinity for floats that have it."""
        return limits(self)[0]

    @property
    def max(self) -> PyConst:
        """The greatest value: infinity for floats that have it."""
        return limits(self)[1]

    def const(self, value: PyConst | tuple[PyConst, ...]) -> Any:
        """`value` as a constant of this type: an int, a bool, or a `ConstFloat`.

        Integers wrap, floats round to this type, a tuple becomes one constant per lane.

        >>> Names.int8.const(200), Names.float16.const(0.1), Names.bool.const(2)
        (-56, 0.0999755859375, True)
        """
        if type(value) is int and self.kind in ("int", "uint"):
            # most constants are indices, and fit
            low, high = _LIMITS.get(self) or limits(self)
            if low <= value <= high:
                return value
        if isinstance(value, tuple):
            if len(value) != self.count:
                raise DTypeError(f"{len(value)} values given for the {self.count} lanes of {self}")
            scalar = self.scalar()
            return tuple(scalar.const(lane) for lane in value)
        value = float_format.python_number(value)
        if not isinstance(value, (float, int)):
            raise DTypeError(
                f"{value!r} is a {type(value).__name__}; a constant is a bool, int or float"
            )
        if self.kind == "void":
            raise DTypeError(f"void holds no values, so {value!r} cannot be one of them")
        if self.kind == "float":
            return ConstFloat(truncate[self.scalar()](value))
        return store(value, self.scalar())


BY_NAME: dict[str, DType] = {}
_VECTORS: dict[tuple[DType, int], DType] = {}
_SCALAR_OF: dict[DType, DType] = {}
_LIMITS: dict[DType, tuple[PyConst, PyConst]] = {}


def _new(kind: Kind, bitsize: int, name: str, fmt: str | None) -> DType:
    """Makes and interns a scalar type. Called in order of priority."""
    BY_NAME[name] = DType(kind, len(BY_NAME) - 1, bitsize, (bitsize + 7) // 8, name, fmt)
    return BY_NAME[name]


def _make_vector(scalar: DType, count: int) -> DType:
    """The interned vector type of `count` lanes of `scalar`."""
    found = _VECTORS.get((scalar, count))
    if found is not None:
        return found
    if not isinstance(count, int) or count < 1 or scalar.kind == "void":
        raise DTypeError(f"there is no vector of {count} {scalar.name}; take 1 or more of a type")
    made = DType(
        scalar.kind,
        scalar.priority,
        scalar.bitsize * count,
        scalar.itemsize * count,
        f"{scalar.name}x{count}",
        None,
        count,
    )
    _SCALAR_OF[made] = scalar
    # setdefault: two threads may get here at once, and both must leave with the same object.
    return _VECTORS.setdefault((scalar, count), made)


def _find_dtype(name: str, count: int) -> DType:
    """What a pickled type comes back as."""
    return BY_NAME[name].vec(count)


class Names:
    """The types, their aliases and groups.

    A class of its own: here `bool`, `int` and `float` are types of elements, which must not hide
    Python's in the signatures of `DTypes`.
    """

    void = _new("void", 0, "void", None)
    bool = _new("bool", 1, "bool", "?")
    weakint = _new("int", 64, "weakint", "q")
    int8 = _new("int", 8, "int8", "b")
    uint8 = _new("uint", 8, "uint8", "B")
    int16 = _new("int", 16, "int16", "h")
    uint16 = _new("uint", 16, "uint16", "H")
    int32 = _new("int", 32, "int32", "i")
    uint32 = _new("uint", 32, "uint32", "I")
    int64 = _new("int", 64, "int64", "q")
    uint64 = _new("uint", 64, "uint64", "Q")
    weakfloat = _new("float", 64, "weakfloat", "d")
    fp8e4m3 = _new("float", 8, "fp8e4m3", None)
    fp8e5m2 = _new("float", 8, "fp8e5m2", None)
    fp8e4m3fnuz = _new("float", 8, "fp8e4m3fnuz", None)
    fp8e5m2fnuz = _new("float", 8, "fp8e5m2fnuz", None)
    float16 = _new("float", 16, "float16", "e")
    bfloat16 = _new("float", 16, "bfloat16", None)
    float32 = _new("float", 32, "float32", "f")
    float64 = _new("float", 64, "float64", "d")

    char = int8
    uchar = uint8
    short = int16
    ushort = uint16
    int = int32
    uint = uint32
    long = int64
    ulong = uint64
    half = float16
    float = float32
    double = float64

    fp8s = (fp8e4m3, fp8e5m2, fp8e4m3fnuz, fp8e5m2fnuz)
    floats = (*fp8s, float16, bfloat16, float32, float64)
    uints = (uint8, uint16, uint32, uint64)
    sints = (int8, int16, int32, int64)
    ints = (*uints, *sints)
    weaks = (weakint, weakfloat)
    all = (bool, *ints, *floats)
    # groups that tinygrad names
    fp8_ocp = (fp8e4m3, fp8e5m2)
    fp8_fnuz = (fp8e4m3fnuz, fp8e5m2fnuz)
    int8s = (uint8, int8)
    int16s = (uint16, int16)
    int32s = (uint32, int32)
    int64s = (uint64, int64)


_ALIASES = "char uchar short ushort int uint long ulong half float double".split()
BY_SPELLING = BY_NAME | {alias: getattr(Names, alias) for alias in _ALIASES}


def to_dtype(dtype: str | DType) -> DType:
    """A type from its name, an alias of it, or itself.

    >>> to_dtype("half")
    dtypes.half
    """
    if isinstance(dtype, DType):
        return dtype
    found = BY_SPELLING.get(dtype.lower()) if isinstance(dtype, str) else None
    if found is None:
        raise UnknownDTypeError(f"{dtype!r} names no dtype; there are {' '.join(BY_SPELLING)}")
    return found


FORMATS: dict[DType, FloatFormat] = {
    Names.fp8e4m3: float_format.FP8E4M3,
    Names.fp8e5m2: float_format.FP8E5M2,
    Names.fp8e4m3fnuz: float_format.FP8E4M3FNUZ,
    Names.fp8e5m2fnuz: float_format.FP8E5M2FNUZ,
    Names.float16: float_format.FLOAT16,
    Names.bfloat16: float_format.BFLOAT16,
    Names.float32: float_format.FLOAT32,
    Names.float64: float_format.FLOAT64,
    Names.weakfloat: float_format.FLOAT64,
}


def limits(dtype: DType) -> tuple[PyConst, PyConst]:
    """Least and greatest value of a type."""
    found = _LIMITS.get(dtype)
    if found is not None:
        return found
    scalar = dtype.scalar()
    low: PyConst
    high: PyConst
    if scalar.kind == "bool":
        low, high = False, True
    elif scalar.kind == "uint":
        low, high = 0, (1 << scalar.bitsize) - 1
    elif scalar.kind == "int":
        low, high = -(1 << (scalar.bitsize - 1)), (1 << (scalar.bitsize - 1)) - 1
    elif scalar.kind == "float":
        # A format without infinity ends at its largest number: infinity would store as NaN.
        high = FORMATS[scalar].largest if FORMATS[scalar].finite_only else math.inf
        low = -high
    else:
        raise DTypeError(f"{dtype} holds no values, so it has no least or greatest one")
    return _LIMITS.setdefault(dtype, (low, high))


def _wrap_to(dtype: DType) -> Callable[[Any], int]:
    """A function that wraps integers into an integer type."""
    mask = (1 << dtype.bitsize) - 1
    if dtype.kind == "uint":
        return lambda value: int(value) & mask
    half = 1 << (dtype.bitsize - 1)
    return lambda value: ((int(value) + half) & mask) - half


def _pack_round(fmt: str) -> Callable[[Any], float]:
    """Rounds through `struct`, which rounds once and to even, and is faster than we are."""
    layout = struct.Struct(fmt)

    def round_value(value: int | float) -> float:
        try:
            return float(layout.unpack(layout.pack(float_format.widen(value)))[0])
        except OverflowError:
            return math.copysign(math.inf, value)

    return round_value


def _round_to(dtype: DType) -> Callable[[Any], float]:
    """A function that rounds numbers to a floating point type."""
    if dtype in (Names.float16, Names.float32):
        return _pack_round(f"<{dtype.fmt}")
    layout = FORMATS[dtype]
    return lambda value: float_format.round_to_format(value, layout)


# What storing a Python number in a type gives: integers wrap, floats round once to nearest even.
truncate: dict[DType, Callable[[Any], Any]] = {
    Names.bool: bool,
    **{dtype: _wrap_to(dtype) for dtype in (*Names.ints, Names.weakint)},
    **{dtype: _round_to(dtype) for dtype in FORMATS},
}


def store(value: PyConst, target: DType) -> Any:
    """`value` as `target` holds it. Bools, ints and floats of Python say themselves what they are,
    so the type that a value comes from needs no look."""
    value = float_format.python_number(value)
    if target.kind == "bool":
        return bool(value)
    if target.kind == "float" or not isinstance(value, float):
        return truncate[target](value)
    if math.isnan(value):
        return 0
    low, high = limits(target)
    if value <= low:
        return low
    return high if value >= high else int(value)


def bits_of(value: PyConst, dtype: DType) -> int:
    """The bits that `value` has in memory as a `dtype`, as an unsigned integer."""
    scalar = dtype.scalar()
    if scalar.kind == "float":
        return float_format.encode(value, FORMATS[scalar])
    if scalar.kind == "bool":
        return int(bool(value))
    if scalar.kind == "void":
        raise DTypeError("void holds no values, so they have no bits")
    return int(value) & ((1 << scalar.bitsize) - 1)


def value_of_bits(bits: int, dtype: DType) -> Any:
    """The value that bits in memory have as a `dtype`."""
    scalar = dtype.scalar()
    if scalar.kind == "float":
        return float_format.decode(bits, FORMATS[scalar])
    if scalar.kind == "void":
        raise DTypeError("void holds no values, so bits mean nothing in it")
    return truncate[scalar](bits)
