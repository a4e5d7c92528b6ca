"""Rows of the tables of meanings, and the small expressions that they share.

In: nothing. Out: `Row` (what an instruction reads, writes and computes), tables that collect them,
and functions of UOps. First of the semantics.
Invariant: an expression is over leaves of exact dtypes and total, so that the interpreter of UOps
and compiled code agree for every bit pattern.

Types of operands: u8 to u64, i8 to i64, f16, bf16, f32, f64 as in dtypes; `m` a lane's bit of a
mask (a bool); `scc` the scalar condition; `exec` the whole mask of active lanes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.dtype import DType, dtypes
from weft.uop.args import VariableArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

TYPES: dict[str, DType] = {
    "u8": dtypes.uint8, "u16": dtypes.uint16, "u32": dtypes.uint32, "u64": dtypes.uint64,
    "i8": dtypes.int8, "i16": dtypes.int16, "i32": dtypes.int32, "i64": dtypes.int64,
    "f16": dtypes.float16, "bf16": dtypes.bfloat16, "f32": dtypes.float32, "f64": dtypes.float64,
    "m": dtypes.bool, "scc": dtypes.bool,
}  # fmt: skip
# the unsigned type with the bits of another
BITS: dict[int, DType] = {
    8: dtypes.uint8, 16: dtypes.uint16, 32: dtypes.uint32, 64: dtypes.uint64,
}  # fmt: skip
u8, u16, u32, u64 = dtypes.uint8, dtypes.uint16, dtypes.uint32, dtypes.uint64
i8, i16, i32, i64 = dtypes.int8, dtypes.int16, dtypes.int32, dtypes.int64
f16, bf16, f32, f64 = dtypes.float16, dtypes.bfloat16, dtypes.float32, dtypes.float64


@dataclass(frozen=True)
class Row:
    """An instruction: types of its results and sources, and what it computes of one lane."""

    results: tuple[str, ...]
    sources: tuple[str, ...]
    function: Callable[..., Any]

    def compute(self, values: list[UOp]) -> tuple[UOp, ...]:
        found = self.function(*values)
        return found if isinstance(found, tuple) else (found,)


class Table(dict[str, Row]):
    """Rows by mnemonic."""

    def add(self, names: str, signature: str, function: Callable[..., Any]) -> None:
        """`signature` is "results <- sources"; several names share a row."""
        results, _, sources = signature.partition("<-")
        row = Row(tuple(results.split()), tuple(sources.split()), function)
        for name in names.split():
            self[name] = row

    def each(self, pattern: str, kinds: str, signature: str, function: Callable[..., Any]) -> None:
        """A row for each type: `{t}` in the name and `t` in the signature stand for it."""
        for kind in kinds.split():
            words = [kind if word == "t" else word for word in signature.split()]
            self.add(pattern.replace("{t}", kind), " ".join(words), function)


def leaf(name: str, dtype: DType) -> UOp:
    """An operand, of which nothing is known but its dtype."""
    bounds = (0, 1) if dtype.kind == "bool" else (dtype.min, dtype.max)
    return UOp(Ops.VARIABLE, dtype, (), VariableArg(name, *bounds))


@functools.cache
def expression(row: Row) -> tuple[tuple[UOp, ...], tuple[UOp, ...]]:
    """(leaves, results) of a row. Leaves of sources that are not bools have their typed dtype."""
    leaves = tuple([leaf(f"s{i}", TYPES[kind]) for i, kind in enumerate(row.sources)])
    return leaves, row.compute(list(leaves))


# ------------------------------------------------------------ expressions
def const(value: Any, like: UOp) -> UOp:
    return UOp.const(like.dtype, value)


def both(x: UOp, y: UOp) -> UOp:
    return x.alu(Ops.AND, y)


def either(x: UOp, y: UOp) -> UOp:
    return x.alu(Ops.OR, y)


def negated(x: UOp) -> UOp:
    return x.alu(Ops.XOR, UOp.const(dtypes.bool, True))


def less(x: UOp, y: UOp) -> UOp:
    return x.alu(Ops.CMPLT, y)


def same(x: UOp, y: UOp) -> UOp:
    return x.alu(Ops.CMPEQ, y)


def differs(x: UOp, y: UOp) -> UOp:
    return x.alu(Ops.CMPNE, y)


def is_nan(x: UOp) -> UOp:
    return differs(x, x)


def as_bits(x: UOp) -> UOp:
    """The same bits as an unsigned int; a bool is 0 or 1 of 32 bits."""
    if x.dtype.kind == "bool":
        return x.cast(u32)
    wanted = BITS[x.dtype.bitsize]
    return x if x.dtype is wanted else x.bitcast(wanted)


def of_bits(x: UOp, dtype: DType) -> UOp:
    return x if x.dtype is dtype else x.bitcast(dtype)


def shift_left(x: UOp, count: UOp) -> UOp:
    """By the count's low bits, as the hardware does."""
    return x.alu(Ops.SHL, (count & const(x.dtype.bitsize - 1, count)).cast(x.dtype))


def shift_right(x: UOp, count: UOp) -> UOp:
    return x.alu(Ops.SHR, (count & const(x.dtype.bitsize - 1, count)).cast(x.dtype))


def by(x: UOp, count: int, left: bool = False) -> UOp:
    """Shifted by a known count."""
    return x.alu(Ops.SHL if left else Ops.SHR, const(count, x))


def maximum(x: UOp, y: UOp) -> UOp:
    """NaN where one is."""
    return x.alu(Ops.MAX, y)


def minimum(x: UOp, y: UOp) -> UOp:
    if x.dtype.kind == "float":
        return -maximum(-x, -y)
    return less(y, x).where(y, x)


def maximum_number(x: UOp, y: UOp) -> UOp:
    """The other one where one is NaN."""
    return is_nan(x).where(y, is_nan(y).where(x, maximum(x, y)))


def minimum_number(x: UOp, y: UOp) -> UOp:
    return is_nan(x).where(y, is_nan(y).where(x, minimum(x, y)))


def fused(x: UOp, y: UOp, z: UOp) -> UOp:
    """x * y + z, rounded once."""
    if x.dtype is not f16:
        return x.alu(Ops.MULACC, y, z)
    return fused_wide(x.cast(f32), y.cast(f32), z.cast(f32)).cast(f16)


def fused_wide(x: UOp, y: UOp, z: UOp) -> UOp:
    """x * y + z of halves in float32, rounded to odd: a further rounding to a half is the only one.

    The product of two halves is exact in float32. What its sum with z loses is known exactly
    (Knuth), and makes the last bit odd, so that no tie appears where none is.
    """
    product = x * y
    total = product + z
    part = total - product
    lost = (product - (total - part)) + (z - part)
    bits = as_bits(total)
    is_even = same(bits & const(1, bits), const(0, bits))
    grows = same(less(lost, const(0.0, lost)), less(total, const(0.0, total)))
    nudged = grows.where(bits + const(1, bits), bits - const(1, bits))
    inexact = both(differs(lost, const(0.0, lost)), is_even)
    finite = less(bits & const(0x7FFFFFFF, bits), const(0x7F800000, bits))
    return of_bits(both(inexact, finite).where(nudged, bits), f32)


class FloatFormat:
    """Where sign, exponent and mantissa of a float are."""

    def __init__(self, dtype: DType, mantissa: int) -> None:
        self.dtype = dtype
        self.bits = dtype.bitsize
        self.mantissa = mantissa
        self.exponent_bits = self.bits - 1 - mantissa
        self.bias = (1 << (self.exponent_bits - 1)) - 1
        self.most = (1 << self.exponent_bits) - 1  # the exponent of infinity
        self.sign_mask = 1 << (self.bits - 1)
        self.mantissa_mask = (1 << mantissa) - 1
        self.infinity = self.most << mantissa

    def exponent(self, x: UOp) -> UOp:
        """As stored, as an int32."""
        bits = as_bits(x)
        return (by(bits, self.mantissa) & const(self.most, bits)).cast(i32)

    def sign(self, x: UOp) -> UOp:
        bits = as_bits(x)
        return differs(bits & const(self.sign_mask, bits), const(0, bits))

    def magnitude(self, x: UOp) -> UOp:
        bits = as_bits(x)
        return of_bits(bits & const(self.sign_mask - 1, bits), x.dtype)

    def with_sign(self, size: UOp, sign: UOp) -> UOp:
        """`size`, negative where `sign` is true."""
        bits = as_bits(self.magnitude(size))
        return of_bits(sign.where(bits | const(self.sign_mask, bits), bits), size.dtype)

    def power(self, stored: UOp) -> UOp:
        """The power of two with this stored exponent, an int32 from 1 to below `most`."""
        unsigned = BITS[self.bits]
        return of_bits(by(stored.cast(unsigned), self.mantissa, left=True), self.dtype)

    def is_denormal(self, x: UOp) -> UOp:
        bits = as_bits(x) & const(self.sign_mask - 1, as_bits(x))
        return both(differs(bits, const(0, bits)), less(bits, const(1 << self.mantissa, bits)))


FORMATS = {f16: FloatFormat(f16, 10), f32: FloatFormat(f32, 23), f64: FloatFormat(f64, 52)}


def scale(x: UOp, count: UOp) -> UOp:
    """x * 2**count, rounded once; `count` is an int32."""
    form = FORMATS[x.dtype]
    if x.dtype is f16:
        return scale(x.cast(f32), count).cast(f16)
    stored = form.exponent(x)
    # a denormal is first made normal, which is exact
    lift = form.mantissa + 1
    lifted = x * const(2.0**lift, x)
    is_low = same(stored, const(0, stored))
    value = is_low.where(lifted, x)
    stored = is_low.where(form.exponent(lifted) - const(lift, stored), stored)
    limit = const(4 * form.most, count)
    bounded = minimum(maximum(count, -limit), limit)
    wanted = stored + bounded
    bits = as_bits(value)
    rest = bits & const((1 << form.bits) - 1 - form.infinity, bits)
    low = less(wanted, const(1, wanted))
    # below the normal numbers: a multiplication rounds, once
    drop = 2 * form.mantissa
    raised = maximum(low.where(wanted + const(drop, wanted), wanted), const(1, wanted))
    high = less(const(form.most - 1, wanted), wanted)
    kept = minimum(raised, const(form.most - 1, wanted))
    exponent = by(kept.cast(bits.dtype), form.mantissa, left=True)
    found = of_bits(rest | exponent, x.dtype)
    found = low.where(found * const(2.0**-drop, found), found)
    gone = less(wanted, const(1 - drop, wanted))
    signed_zero = of_bits(bits & const(form.sign_mask, bits), x.dtype)
    infinite = of_bits((bits & const(form.sign_mask, bits)) | const(form.infinity, bits), x.dtype)
    found = gone.where(signed_zero, high.where(infinite, found))
    special = either(same(form.exponent(x), const(form.most, stored)), same(x, const(0.0, x)))
    return special.where(x, found)


def round_even(x: UOp) -> UOp:
    """To the nearest whole number, ties to even; zeros keep their sign."""
    whole = x.alu(Ops.TRUNC)
    form = FORMATS[x.dtype]
    rest = form.magnitude(x - whole)
    half = whole * const(0.5, x)
    is_odd = differs(half.alu(Ops.TRUNC), half)
    up = either(less(const(0.5, x), rest), both(same(rest, const(0.5, x)), is_odd))
    one = form.with_sign(const(1.0, x), form.sign(x))
    return form.with_sign(up.where(whole + one, whole), form.sign(x))


def floor(x: UOp) -> UOp:
    whole = x.alu(Ops.TRUNC)
    found = less(x, whole).where(whole - const(1.0, x), whole)
    form = FORMATS[x.dtype]
    return same(found, const(0.0, x)).where(form.with_sign(found, form.sign(x)), found)


def ceil(x: UOp) -> UOp:
    return -floor(-x)


def wide(function: Callable[..., UOp]) -> Callable[..., UOp]:
    """A function of float32 on halves, rounded at its end."""

    def computed(*values: UOp) -> UOp:
        return function(*[value.cast(f32) for value in values]).cast(f16)

    return computed
