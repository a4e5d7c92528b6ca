"""EXP2, LOG2 and POW as polynomials in plain ops, for float32 and float64.

In: one of these ops. Out: arithmetic, bit operations and selects that vectorise without a branch.
Narrower floats are computed in float32 before they come here. Largest errors found, in units in the
last place: EXP2 0.95 (1.22 without fused multiply-add), LOG2 0.83 (0.87), POW 0.51 in float32 and
1.1 in float64.
Invariant: every edge (denormals, infinities, NaN, both zeros, the thresholds of overflow and
underflow) is what the op table says.

The polynomials are minimax fits of our own (Remez exchange at 300 bits, then rounded).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from weft.codegen.decompose.terms import (
    BIAS,
    INT_OF,
    MANTISSA,
    absolute,
    bits_as,
    fused,
    muladd,
    polynomial,
    power_of_two,
    shift_left,
    shift_right,
    with_sign_of,
)
from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

# ---------------------------------------------------------------- EXP2


@dataclass(frozen=True)
class _Exp2Table:
    """`terms`: (2**f - 1) / f for |f| <= 1/2. Outside [low, high] the result is 0 or infinity."""

    terms: tuple[float, ...]
    low: float
    high: float
    # adding it rounds to an integer, which then stands in the low bits
    rounder: float


# exponents between what may be denormal and what it is computed as
_FAR = 64

_EXP2 = {
    # relative error 2**-28.9
    dtypes.float32: _Exp2Table(
        (
            0.6931471824645996,
            0.24022647738456726,
            0.055503323674201965,
            0.009618437848985195,
            0.0013398900628089905,
            0.00015353340131696314,
        ),
        -151.0,
        129.0,
        1.5 * 2**23,
    ),
    # relative error 2**-58.0
    dtypes.float64: _Exp2Table(
        (
            0.6931471805599453,
            0.2402265069591013,
            0.05550410866482008,
            0.009618129107594065,
            0.0013333558146775147,
            0.0001540353045718803,
            1.5252733492781789e-05,
            1.3215435241372031e-06,
            1.0178199651096105e-07,
            7.073790753026286e-09,
            4.434768752407751e-10,
        ),
        -1076.0,
        1025.0,
        1.5 * 2**52,
    ),
}


def decompose_exp2(x: UOp) -> UOp:
    """EXP2(x) -> 2**f * 2**n with n = round(x)."""
    return exp2_of_sum(x, None)


def falling_exp2(x: UOp) -> UOp:
    """EXP2(x) of what is at most 0, with half of the operations: 0 where it is less than the least
    normal number.

    The rounder puts n + bias into the lowest bits: shifted up, they are the bits of 2**n. What
    comes of x far below is not looked at.
    """
    dtype = x.dtype.scalar()
    table, integer = _EXP2[dtype], INT_OF[dtype]
    rounder = table.rounder + BIAS[dtype]
    shifted = x + rounder
    power = polynomial(x - (shifted - rounder), (1.0, *table.terms))
    scale = bits_as(shift_left(bits_as(shifted, integer), MANTISSA[dtype]), dtype)
    return (x < 1.0 - BIAS[dtype]).where(0.0, power * scale)


def exp2_of_sum(x: UOp, rest: UOp | None) -> UOp:
    """2**(x + rest), where rest is far smaller than x, or nothing.

    As 2**(1 + f) * 2**(n - 1): the largest results have n = 128 in float32, whose power of two is
    none. Where the result may be denormal, 2**n is far too large first, so that it rounds once.
    """
    dtype = x.dtype.scalar()
    table, integer, mantissa = _EXP2[dtype], INT_OF[dtype], MANTISSA[dtype]
    rounder = table.rounder + BIAS[dtype] - 1
    # comparisons with NaN are false, so NaN goes on; one after the other, each is one instruction
    clamped = (x.const_like(table.high) < x).where(table.high, x)
    clamped = (clamped < table.low).where(table.low, clamped)
    shifted = clamped + rounder
    f = clamped - (shifted - rounder)
    terms = [2 * term for term in table.terms]
    if rest is None:
        power = polynomial(f, (2.0, *terms))
    else:
        f = f + rest
        power = fused(f, polynomial(f, terms), 2.0)
    # the bits of 2**(n - 1): all but the exponent fall off
    scale = shift_left(bits_as(shifted, integer), mantissa)
    is_small = clamped < 3.0 - BIAS[dtype]
    scale = is_small.where(scale + (_FAR << mantissa), scale)
    found = power * bits_as(scale, dtype)
    return is_small.where(found * 2.0**-_FAR, found)


# ---------------------------------------------------------------- LOG2


@dataclass(frozen=True)
class _Log2Table:
    """`terms`: (log((1+s)/(1-s))/s - 2) / s**2 in powers of s**2. 1/ln 2 is high + low, where high
    has so few bits that its product with a number of `kept` bits is exact."""

    terms: tuple[float, ...]
    high: float
    low: float
    kept: int
    sqrt_half_bits: int


_LOG2 = {
    # relative error 2**-30.2
    dtypes.float32: _Log2Table(
        (0.6666677594184875, 0.39977535605430603, 0.2987186312675476),
        1.4423828125,
        0.00031222838896340733,
        12,
        0x3F3504F3,
    ),
    # relative error 2**-59.5
    dtypes.float64: _Log2Table(
        (
            0.6666666666666734,
            0.3999999999941432,
            0.28571428742474514,
            0.2222219856352205,
            0.18183564864825452,
            0.15314035881230695,
            0.14796104992588677,
        ),
        float.fromhex("0x1.71547p+0"),
        float.fromhex("0x1.94ae0bf85ddf4p-22"),
        32,
        0x3FE6A09E667F3BCD,
    ),
}


def split_exponent(x: UOp) -> tuple[UOp, UOp]:
    """(m, e) with x = m * 2**e and sqrt(1/2) <= m < sqrt(2), for x > 0; e is a float."""
    dtype = x.dtype.scalar()
    integer, mantissa = INT_OF[dtype], MANTISSA[dtype]
    scale = mantissa + 2
    denormal = x < 2.0 ** (1 - BIAS[dtype])
    normal = denormal.where(x * 2.0**scale, x)
    bits = bits_as(normal, integer)
    exponent = shift_right(bits - _LOG2[dtype].sqrt_half_bits, mantissa)
    m = bits_as(bits - shift_left(exponent, mantissa), dtype)
    adjusted = exponent + denormal.where(exponent.const_like(-scale), 0)
    return m, adjusted.cast(dtype)


def decompose_log2(x: UOp) -> UOp:
    """LOG2(x) -> e + log(m) / ln 2.

    log(m) with f = m - 1 and s = f / (2 + f) is f - f*f/2 + s*(f*f/2 + s*s*R(s*s)). The leading
    part is cut to few bits, so that its product with 1/ln 2 is exact.
    """
    dtype = x.dtype.scalar()
    table, integer = _LOG2[dtype], INT_OF[dtype]
    m, e = split_exponent(x)
    f = m - 1.0
    s = f / (f + 2.0)
    z = s * s
    half_square = f * f * 0.5
    tail = s * muladd(z, polynomial(z, table.terms), half_square)
    mask = -(1 << (MANTISSA[dtype] + 1 - table.kept))
    high = bits_as(bits_as(f - half_square, integer) & mask, dtype)
    low = (f - high) - half_square + tail
    product = high * table.high
    total = e + product
    small = muladd(low + high, table.low, low * table.high)
    rest = ((e - total) + product) + small
    value = total + rest
    infinite = x.eq(math.inf)
    value = infinite.where(math.inf, value)
    value = (x.const_like(0.0) < x).where(value, math.nan)
    return x.eq(0.0).where(-math.inf, value)


# ---------------------------------------------------------------- POW

Pair = tuple[UOp, UOp]  # an unevaluated sum: the value, and what rounding took from it

_THIRD = (float.fromhex("0x1.5555555555555p-2"), float.fromhex("0x1.5555555555555p-56"))
_TWO_OVER_LN2 = (float.fromhex("0x1.71547652b82fep+1"), float.fromhex("0x1.777d0ffda0d24p-55"))
# float32's pow: log2((1+s)/(1-s)) / s in powers of s*s, error 2**-44.9; 2**f, error 2**-34.3
_LOG2_SHORT = (
    2.8853900817779268,
    0.9617966940578074,
    0.5770779531764669,
    0.4122084033798928,
    0.3199347188243737,
    0.2825403158335481,
)
_EXP2_SHORT = (
    1.0,
    0.6931471807047638,
    0.2402265106700203,
    0.05550410365389386,
    0.009618038059758126,
    0.001333393535904067,
    0.00015466781488699058,
    1.5196133360295509e-05,
)
# (log((1+s)/(1-s)) / (2*s) - 1 - s*s/3) / s**4 in powers of s*s; error in the logarithm 2**-73.5
_ATANH_TAIL = (
    0.1999999999999999,
    0.14285714285722556,
    0.11111111108768254,
    0.0909090943515463,
    0.07692278435679496,
    0.06668158702881449,
    0.05837409380013105,
    0.05994505603964757,
)


def decompose_pow(x: UOp, y: UOp) -> UOp:
    """POW(x, y) -> 2**(y * log2|x|) with the sign and the edges of C's pow.

    float32 is computed in float64; float64 with a logarithm of twice the precision.
    """
    size = absolute(x)
    if x.dtype.scalar() is dtypes.float32:
        magnitude = _pow_float32(size, y)
    else:
        magnitude = _pow_float64(size, y)
    return _pow_edges(x, y, magnitude)


def _pow_float32(size: UOp, y: UOp) -> UOp:
    """size**y for finite size > 0, by short polynomials in float64."""
    bits = bits_as(size.cast(dtypes.float64), dtypes.int64)
    exponent = shift_right(bits - _LOG2[dtypes.float64].sqrt_half_bits, 52)
    f = bits_as(bits - shift_left(exponent, 52), dtypes.float64) - 1.0
    s = f / (f + 2.0)
    z = s * s
    logarithm = muladd(s, polynomial(z, _LOG2_SHORT), exponent.cast(dtypes.float64))
    power = y.cast(dtypes.float64) * logarithm
    # far enough that float32 overflows or underflows, and 2**n is a normal float64
    power = (power < -300.0).where(-300.0, (power.const_like(300.0) < power).where(300.0, power))
    rounder = _EXP2[dtypes.float64].rounder
    shifted = power + rounder
    n = bits_as(shifted, dtypes.int64) - bits_as(power.const_like(rounder), dtypes.int64)
    fraction = power - (shifted - rounder)
    value = polynomial(fraction, _EXP2_SHORT) * power_of_two(n, dtypes.float64)
    return value.cast(dtypes.float32)


def _pow_float64(size: UOp, y: UOp) -> UOp:
    """size**y for finite size > 0."""
    high, low = _log2_pair(size)
    product = y * high
    rest = fused(y, high, -product) + y * low
    # beyond this all is 0 or infinity, and the rest may be the NaN of infinity minus infinity
    inside = absolute(product) < 1100.0
    return exp2_of_sum(product, inside.where(rest, 0.0))


def _pow_edges(x: UOp, y: UOp, magnitude: UOp) -> UOp:
    size = absolute(x)
    zero = x.const_like(0.0)
    infinity = x.const_like(math.inf)
    falls = y < zero
    magnitude = size.eq(zero).where(falls.where(infinity, zero), magnitude)
    magnitude = size.eq(infinity).where(falls.where(zero, infinity), magnitude)
    half = y * 0.5
    whole = y.alu(Ops.TRUNC).eq(y)
    odd = whole & half.alu(Ops.TRUNC).ne(half)
    # +-1 to anything but NaN has the magnitude 1, infinite exponents included
    magnitude = size.eq(1.0).where(1.0, magnitude)
    signed = odd.where(with_sign_of(magnitude, x), magnitude)
    finite_negative = (x < zero) & size.ne(infinity)
    value = (finite_negative & (whole ^ True)).where(math.nan, signed)
    value = (x.ne(x) | y.ne(y)).where(math.nan, value)
    return (x.eq(1.0) | y.eq(zero)).where(1.0, value)


def _log2_pair(x: UOp) -> Pair:
    """log2(x) for x > 0 to about 70 bits, in float64."""
    m, e = split_exponent(x)
    f = m - 1.0
    divisor = f + 2.0
    divisor_rest = f - (divisor - 2.0)
    s = f / divisor
    s_rest = (fused(-s, divisor, f) - s * divisor_rest) / divisor
    z = multiply_pairs((s, s_rest), (s, s_rest))
    series = add_to_pair(
        (x.const_like(_THIRD[0]), x.const_like(_THIRD[1])), z[0] * polynomial(z[0], _ATANH_TAIL)
    )
    grown = multiply_pairs(z, series)
    one_more = fast_sum(x.const_like(1.0), grown[0])
    factor = one_more[0], one_more[1] + grown[1]
    natural = multiply_pairs((s, s_rest), factor)
    binary = multiply_pairs(
        natural, (x.const_like(_TWO_OVER_LN2[0]), x.const_like(_TWO_OVER_LN2[1]))
    )
    total = sum_pair(e, binary[0])
    return fast_sum(total[0], total[1] + binary[1])


def fast_sum(x: UOp, y: UOp) -> Pair:
    """x + y and its rounding error, for |x| >= |y|."""
    total = x + y
    return total, y - (total - x)


def sum_pair(x: UOp, y: UOp) -> Pair:
    """x + y and its rounding error."""
    total = x + y
    part = total - x
    return total, (x - (total - part)) + (y - part)


def add_to_pair(x: Pair, y: UOp) -> Pair:
    total = sum_pair(x[0], y)
    return fast_sum(total[0], total[1] + x[1])


def multiply_pairs(x: Pair, y: Pair) -> Pair:
    product = x[0] * y[0]
    rest = fused(x[0], y[0], -product) + (x[0] * y[1] + x[1] * y[0])
    return fast_sum(product, rest)
