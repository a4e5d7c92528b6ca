"""IDIV, MOD, SHL, SHR and float -> int CAST: from the op table's total meaning to what machines do.

In: one of these ops. Out: ops tagged "raw", with C's semantics and operands that are proven safe,
plus the selects that the edges need. Bounds remove what cannot happen: index arithmetic (nothing
negative, constant divisors) becomes one bare instruction, a shift or a mask.
Invariant: a raw op never sees a zero divisor, an overflow, a shift by the width or a float that is
out of range.
"""

from __future__ import annotations

from weft.codegen.decompose.terms import (
    constant,
    raw,
    shift_left,
    shift_right,
    truncate_to,
)
from weft.dtype import DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

# ---------------------------------------------------------------- division


def decompose_idiv(x: UOp, y: UOp) -> UOp:
    """x // y, rounding down, 0 for y = 0."""
    if y.vmin == y.vmax:
        return _divide_by_constant(x, int(y.vmin))
    divisor = _safe_divisor(x, y)
    quotient = raw(Ops.IDIV, x, divisor)
    if _may_round_up(x, y):
        remainder = x - quotient * divisor
        quotient = quotient - _signs_differ(remainder, divisor).cast(x.dtype)
    if _may_be(y, -1) and _may_overflow(x):
        quotient = y.eq(-1).where(-x, quotient)
    return y.eq(0).where(0, quotient) if _may_be(y, 0) else quotient


def decompose_mod(x: UOp, y: UOp) -> UOp:
    """x % y with the sign of y, 0 for y = 0."""
    if y.vmin == y.vmax:
        return _remainder_of_constant(x, int(y.vmin))
    divisor = _safe_divisor(x, y)
    remainder = raw(Ops.MOD, x, divisor)
    if _may_round_up(x, y):
        wrong = _signs_differ(remainder, divisor)
        remainder = wrong.where(remainder + divisor, remainder)
    return y.eq(0).where(0, remainder) if _may_be(y, 0) else remainder


def _divide_by_constant(x: UOp, divisor: int) -> UOp:
    if divisor == 0:
        return x.const_like(0)
    if divisor == 1:
        return x
    if divisor == -1:
        return -x
    if divisor > 0 and divisor & (divisor - 1) == 0:
        # an arithmetic shift rounds down, as we do
        return shift_right(x, divisor.bit_length() - 1)
    quotient = raw(Ops.IDIV, x, divisor)
    if not _may_round_up(x, x.const_like(divisor)):
        return quotient
    remainder = x - quotient * divisor
    wrong = (remainder < 0) if divisor > 0 else (remainder.const_like(0) < remainder)
    return quotient - wrong.cast(x.dtype)


def _remainder_of_constant(x: UOp, divisor: int) -> UOp:
    if divisor in (0, 1, -1):
        return x.const_like(0)
    if divisor > 0 and divisor & (divisor - 1) == 0:
        # two's complement: the low bits are what is left after rounding down, for negative x too
        return x & (divisor - 1)
    remainder = raw(Ops.MOD, x, divisor)
    if not _may_round_up(x, x.const_like(divisor)):
        return remainder
    wrong = (remainder < 0) if divisor > 0 else (remainder.const_like(0) < remainder)
    return wrong.where(remainder + divisor, remainder)


def _safe_divisor(x: UOp, y: UOp) -> UOp:
    """y, or 1 where the machine would trap: y = 0, and the least number by -1."""
    unsafe = y.eq(0) if _may_be(y, 0) else None
    if _may_be(y, -1) and _may_overflow(x):
        minus_one = y.eq(-1)
        unsafe = minus_one if unsafe is None else unsafe | minus_one
    return y if unsafe is None else unsafe.where(y.const_like(1), y)


def _may_be(x: UOp, value: int) -> bool:
    return bool(x.vmin <= value <= x.vmax)


def _may_overflow(x: UOp) -> bool:
    """Whether x may be the least number of its dtype (an index has no least number)."""
    return x.dtype.kind == "int" and bool(x.vmin <= x.dtype.min)


def _may_round_up(x: UOp, y: UOp) -> bool:
    """Whether x / y may be negative, where cutting off rounds up."""
    return bool((x.vmin < 0 and y.vmax > 0) or (x.vmax > 0 and y.vmin < 0))


def _signs_differ(remainder: UOp, divisor: UOp) -> UOp:
    """Whether a remainder is not 0 and has the other sign than its divisor."""
    return remainder.ne(0) & ((remainder ^ divisor) < 0)


# ---------------------------------------------------------------- shifts


def decompose_shl(x: UOp, y: UOp) -> UOp:
    """x << y, 0 where y is the width or more, or negative."""
    if _is_inside(x, y):
        return shift_left(x, y)
    return _fits(x, y).where(shift_left(x, y & (x.dtype.scalar().bitsize - 1)), 0)


def decompose_shr(x: UOp, y: UOp) -> UOp:
    """x >> y, only copies of the sign where y is the width or more, or negative."""
    if _is_inside(x, y):
        return shift_right(x, y)
    width = x.dtype.scalar().bitsize
    if x.dtype.kind == "int":
        return shift_right(x, _fits(x, y).where(y, width - 1))
    return _fits(x, y).where(shift_right(x, y & (width - 1)), 0)


def _is_inside(x: UOp, y: UOp) -> bool:
    return bool(0 <= y.vmin and y.vmax < x.dtype.scalar().bitsize)


def _fits(x: UOp, y: UOp) -> UOp:
    width = x.dtype.scalar().bitsize
    if y.vmin < 0:
        return (y < width) & (y.const_like(-1) < y)
    return y < width


# ---------------------------------------------------------------- float to int


def decompose_float_to_int(x: UOp, dtype: DType) -> UOp:
    """A float as an integer: cut towards zero, saturated, NaN is 0."""
    target = dtype.scalar()
    low, high = target.min, target.max
    # both ends are powers of two (or 0), which floats hold exactly; float32 holds up to 2**127
    below = x < float(high + 1)
    above = x.const_like(float(low)) < x
    inside = truncate_to((below & above).where(x, 0.0), target)
    least = inside if low == 0 else above.where(inside, low)
    return below.where(least, above.where(constant(target, high, x), 0))


def is_float_to_int(source: DType, target: DType) -> bool:
    """Whether a CAST between these needs the guard."""
    return source.kind == "float" and target.kind in ("int", "uint") and target not in dtypes.weaks
