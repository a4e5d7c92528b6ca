"""Binary floating point formats, emulated exactly with Python numbers.

In: a Python number and a `FloatFormat`. Out: the number as that format would store it, or its bits;
and `ConstFloat`, a float fit to be a constant of an interned node. Sits below `dtype`, knows no
dtypes. Invariant: one rounding, to nearest, ties to even; a wide value never passes through a third
format on its way.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any


class ConstFloat(float):
    """A float that is equal to another when it is the same constant.

    Inside an interned node -0.0 and 0.0 must differ and NaN must be equal to itself, or the intern
    table would mix up the first and never find the second. Arithmetic gives plain floats.
    """

    __slots__ = ()

    def __new__(cls, value: float) -> ConstFloat:
        # All NaNs are one constant: neither sign nor payload of a NaN means anything in weft.
        return super().__new__(cls, math.nan if value != value else value)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, (float, int)):
            return NotImplemented
        if math.isnan(self):
            return isinstance(other, float) and math.isnan(other)
        if not self:
            return not other and math.copysign(1.0, self) == math.copysign(1.0, other)
        return float.__eq__(self, other)

    def __ne__(self, other: object) -> bool:
        equal = self.__eq__(other)
        return equal if equal is NotImplemented else not equal

    def __hash__(
        self,
        isnan: Callable[[float], bool] = math.isnan,
        copysign: Callable[[float, float], float] = math.copysign,
    ) -> int:
        # defaults: nodes that die when the process ends are hashed after its modules are cleared
        if isnan(self):
            return 0x7FF8
        if not self and copysign(1.0, self) < 0:
            return 0x8000
        return float.__hash__(self)

    def __repr__(self) -> str:
        return float.__repr__(self)


@dataclass(frozen=True)
class FloatFormat:
    """Layout of a format: sign, then `exponent_bits`, then `mantissa_bits`.

    `finite_only` formats have no infinity; what would be infinite is NaN. `single_nan` formats
    (the "fnuz" kind) spend the code of -0 on their only NaN and so have no negative zero. Formats
    that `saturate` store their largest number for a greater one, as the machines that have them
    do; an infinite one is infinite, or NaN, in every format.
    """

    exponent_bits: int
    mantissa_bits: int
    bias: int
    finite_only: bool = False
    single_nan: bool = False
    saturates: bool = False

    @cached_property
    def width(self) -> int:
        """Bits of storage."""
        return 1 + self.exponent_bits + self.mantissa_bits

    @cached_property
    def nan_bits(self) -> int:
        """The bits that this module writes for NaN."""
        if self.single_nan:
            return 1 << (self.width - 1)
        if self.finite_only:
            return (1 << (self.width - 1)) - 1
        exponent = ((1 << self.exponent_bits) - 1) << self.mantissa_bits
        return exponent | 1 << (self.mantissa_bits - 1)

    @cached_property
    def largest_bits(self) -> int:
        """The bits of the largest finite number."""
        if self.single_nan:
            return (1 << (self.width - 1)) - 1
        if self.finite_only:
            return (1 << (self.width - 1)) - 2
        return (((1 << self.exponent_bits) - 1) << self.mantissa_bits) - 1

    @cached_property
    def largest(self) -> float:
        """The largest finite number."""
        return decode(self.largest_bits, self)


FP8E4M3 = FloatFormat(4, 3, bias=7, finite_only=True, saturates=True)
FP8E5M2 = FloatFormat(5, 2, bias=15, saturates=True)
FP8E4M3FNUZ = FloatFormat(4, 3, bias=8, finite_only=True, single_nan=True, saturates=True)
FP8E5M2FNUZ = FloatFormat(5, 2, bias=16, finite_only=True, single_nan=True, saturates=True)
FLOAT16 = FloatFormat(5, 10, bias=15)
BFLOAT16 = FloatFormat(8, 7, bias=127)
FLOAT32 = FloatFormat(8, 23, bias=127)
FLOAT64 = FloatFormat(11, 52, bias=1023)


def python_number(value: Any) -> Any:
    """A number of NumPy, or of a library like it, as Python's; other values as they are.

    Everything that takes a number of Python takes those too. A Tensor is none: it has a `uop`, and
    neither is a node, which has an `op`.
    """
    if isinstance(value, (int, float)) or hasattr(value, "uop") or hasattr(value, "op"):
        return value
    if not hasattr(value, "item") or getattr(value, "shape", None) != ():
        return value
    number = value.item()
    # a long double, and a half type of ml_dtypes, give themselves
    return number if isinstance(number, (int, float)) else float(number)


def widen(value: int | float) -> float:
    """`value` as a float from which rounding to any narrower format is exact.

    An integer of more than 53 bits is rounded to odd: its last bit says "something was cut off
    here", so that rounding again cannot mistake it for a tie.
    """
    if isinstance(value, float):
        # Plain: a ConstFloat compares as a constant, here NaN and -0.0 must compare as numbers.
        return float(value)
    if not isinstance(value, int):
        number = python_number(value)
        return widen(number) if isinstance(number, int) else float(number)
    magnitude = abs(value)
    excess = magnitude.bit_length() - 53
    if excess <= 0:
        return float(value)
    kept = magnitude >> excess
    if kept << excess != magnitude:
        kept |= 1
    try:
        return math.copysign(math.ldexp(kept, excess), value)
    except OverflowError:
        return math.inf if value > 0 else -math.inf


def round_to_format(value: int | float, target: FloatFormat) -> float:
    """The number that `target` stores for `value`.

    >>> round_to_format(0.1, FP8E4M3)
    0.1015625
    """
    if target is FLOAT64:
        try:
            return float(value)
        except OverflowError:
            return math.inf if value > 0 else -math.inf
    wide = widen(value)
    if math.isnan(wide):
        return math.nan
    if wide == 0.0:
        return 0.0 if target.single_nan else wide
    exponent = math.frexp(wide)[1] - 1
    if math.isinf(wide) or exponent > math.frexp(target.largest)[1]:
        return _beyond(wide, target)
    quantum = max(exponent, 1 - target.bias) - target.mantissa_bits
    rounded = math.ldexp(round(math.ldexp(wide, -quantum)), quantum)
    if abs(rounded) > target.largest:
        return _beyond(wide, target)
    if rounded == 0.0 and target.single_nan:
        return 0.0
    return math.copysign(rounded, wide)


def _beyond(wide: float, target: FloatFormat) -> float:
    """What stands for a number above the largest one, or for an infinite one."""
    if target.saturates and not math.isinf(wide):
        return math.copysign(target.largest, wide)
    return math.nan if target.finite_only else math.copysign(math.inf, wide)


def encode(value: int | float, target: FloatFormat) -> int:
    """The bits of `value` rounded to `target`.

    >>> hex(encode(1.0, FLOAT16))
    '0x3c00'
    """
    rounded = round_to_format(value, target)
    if math.isnan(rounded):
        return target.nan_bits
    sign = int(math.copysign(1.0, rounded) < 0) << (target.width - 1)
    if math.isinf(rounded):
        return sign | ((1 << target.exponent_bits) - 1) << target.mantissa_bits
    if rounded == 0.0:
        return sign
    exponent = max(math.frexp(rounded)[1] - 1, 1 - target.bias)
    mantissa = int(math.ldexp(abs(rounded), target.mantissa_bits - exponent))
    # A normal number's mantissa carries its leading one, which adds one to the exponent field;
    # a subnormal's does not, and its exponent field is 0.
    return sign | ((exponent + target.bias - 1) << target.mantissa_bits) + mantissa


def decode(bits: int, source: FloatFormat) -> float:
    """The number that `bits` mean in `source`.

    >>> decode(0x3C00, FLOAT16)
    1.0
    """
    if not 0 <= bits < 1 << source.width:
        raise OverflowError(f"{bits:#x} does not fit the {source.width} bits of the format")
    if source is FLOAT64:
        return float(struct.unpack("<d", struct.pack("<Q", bits))[0])
    sign = -1.0 if bits >> (source.width - 1) else 1.0
    magnitude = bits & ((1 << (source.width - 1)) - 1)
    if source.single_nan and bits == source.nan_bits:
        return math.nan
    if source.finite_only and not source.single_nan and magnitude == source.nan_bits:
        return math.nan
    exponent = magnitude >> source.mantissa_bits
    mantissa = magnitude & ((1 << source.mantissa_bits) - 1)
    if not source.finite_only and exponent == (1 << source.exponent_bits) - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * math.ldexp(mantissa, 1 - source.bias - source.mantissa_bits)
    whole = mantissa | 1 << source.mantissa_bits
    return sign * math.ldexp(whole, exponent - source.bias - source.mantissa_bits)
