"""SIN in plain ops, for float32 and float64, right for every argument however large.

In: SIN(x). Out: x reduced to |r| <= pi/4 and a quadrant, then a polynomial; no branch, no table in
memory. A quarter turn is subtracted as often as it fits (Cody and Waite), or of a large x only the
bits of 2/pi are used that matter (Payne and Hanek): for float32 in float64 arithmetic, for float64
in integers. All is computed and selected, unless bounds decide. Largest errors found: 0.51 ulp in
float32, which is computed in float64, and 1.1 ulp in float64.
Invariant: the reduction keeps more bits than the worst cancellation of its dtype takes away.
"""

from __future__ import annotations

import math

from weft.codegen.decompose.terms import (
    absolute,
    bits_as,
    constant,
    muladd,
    polynomial,
    shift_left,
    shift_right,
    truncate_to,
)
from weft.codegen.decompose.transcendental import Pair, fast_sum, multiply_pairs, sum_pair
from weft.dtype import dtypes
from weft.uop.node import UOp

# minimax fits of our own: (sin(x)/x - 1) / x**2 and (cos(x) - 1 + x*x/2) / x**4 in powers of x*x,
# the short ones a little beyond pi/4
_SIN_SHORT = (
    -0.16666666639558125,
    0.008333329143936148,
    -0.00019839256638791918,
    2.7175644909749385e-06,
)  # 2**-37.4
_COS_SHORT = (0.041666645652890605, -0.0013887306044000857, 2.4431205052991826e-05)  # 2**-33.1
_SIN_LONG = (
    -0.16666666666666632,
    0.008333333333322413,
    -0.00019841269829807726,
    2.755731369189455e-06,
    -2.505075811212313e-08,
    1.5896795493347592e-10,
)  # 2**-58.0
_COS_LONG = (
    0.0416666666666666,
    -0.0013888888888874125,
    2.480158728948222e-05,
    -2.75573143523421e-07,
    2.087572327437556e-09,
    -1.1359647857309942e-11,
)  # 2**-64.2

_TWO_OVER_PI = float.fromhex("0x1.45f306dc9c883p-1")
_ROUNDER = 1.5 * 2.0**52
# pi/2 in parts of 33 bits, whose products with a quadrant number below 2**20 are exact
_HALF_PI_PARTS = tuple(
    map(float.fromhex, ("0x1.921fb544p+0", "0x1.0b4611a6p-34", "0x1.3198a2e037073p-69"))
)
_HALF_PI = (float.fromhex("0x1.921fb54442d18p+0"), float.fromhex("0x1.1a62633145c07p-54"))

_TWO_OVER_PI_BITS = int(
    "a2f9836e4e441529fc2757d1f534ddc0db6295993c439041fe5163abdebbc561"
    "b7246e3a424dd2e006492eea09d1921cfe1deb1cb129a73ee88235f52ebb4484"
    "e99c7026b45f7e413991d639835339f49c845f8bbdf9283b1ff897ffde05980f"
    "ef2f118b5a0a6d1f6d367ecf27cb09b74f463f669e5fea2d7527bac7ebe5f17b"
    "3d0739f78a5292ea6bfb5fb11f8d5d0856033046fc7b6babf0cfbc209af4361d",
    16,
)
_TABLE_BITS = 1280


def decompose_sin(x: UOp) -> UOp:
    """SIN(x) -> the sine or cosine polynomial of what is left of x."""
    sine = _sin_float32(x) if x.dtype.scalar() is dtypes.float32 else _sin_float64(x)
    return (absolute(x) < math.inf).where(sine, math.nan)


def _sin_float32(x: UOp) -> UOp:
    turns, quadrant = _reduce_float32(x)
    r = turns * _HALF_PI[0]
    z = r * r
    sine = muladd(r * z, polynomial(z, _SIN_SHORT), r)
    cosine = muladd(z * z, polynomial(z, _COS_SHORT), z * -0.5) + 1.0
    return _choose(quadrant, sine, cosine, x)


def _sin_float64(x: UOp) -> UOp:
    size = absolute(x)
    n, quadrant = _round(size * _TWO_OVER_PI)
    first = size - n * _HALF_PI_PARTS[0]
    second = sum_pair(first, -(n * _HALF_PI_PARTS[1]))
    r, rest = fast_sum(second[0], second[1] - n * _HALF_PI_PARTS[2])
    if not _is_below(x, _LIMIT_64):
        (large_r, large_rest), large_quadrant = _reduce_large_float64(x)
        small = size < _LIMIT_64
        r, rest = small.where(r, large_r), small.where(rest, large_rest)
        quadrant = small.where(quadrant, large_quadrant)
    z = r * r
    sine = r + (z * r * polynomial(z, _SIN_LONG) + (rest - z * rest * 0.5))
    half = z * 0.5
    main = x.const_like(1.0) - half
    correction = (x.const_like(1.0) - main) - half
    cosine = main + (correction + (z * z * polynomial(z, _COS_LONG) - r * rest))
    return _choose(quadrant, sine, cosine, x)


def _choose(quadrant: UOp, sine: UOp, cosine: UOp, x: UOp) -> UOp:
    """The value of the quadrant in x's dtype, with x's sign."""
    value = (quadrant & 1).ne(0).where(cosine, sine).cast(x.dtype)
    bits = dtypes.int32 if x.dtype.scalar() is dtypes.float32 else dtypes.int64
    flip = (quadrant & 2).ne(0).where(constant(bits, bits.min, x), 0)
    sign = (bits_as(x, bits) & bits.min) ^ flip
    return bits_as(bits_as(value, bits) ^ sign, x.dtype.scalar())


def _is_below(x: UOp, limit: float) -> bool:
    """Whether bounds prove |x| < limit (or NaN, which both reductions pass on)."""
    return bool(-limit < x.vmin and x.vmax < limit)


# ---------------------------------------------------------------- bits of 2/pi that matter
#
# x = m * 2**e with an integer m. Of x * 2/pi only the value modulo 4 matters, so a window of the
# bits of 2/pi is enough: the ones whose products with m are neither multiples of 4 nor too small.

# float32: below 2**32 the window is the start of 2/pi; from there on 24 exponents share one
_GROUPS_32 = 5
_FIRST_32 = 32
_STEP_32 = 24
_PART_BITS = 29  # times 24 bits of m: exact in float64
_LIMIT_64 = 2.0**20


def _window_float32(group: int) -> tuple[float, float, float]:
    """2/pi * 2**(24*group), without what cannot matter, in parts of 29, 29 and 53 bits."""
    # the least x of a group, scaled by 2**(-24*group), is 2**8: all are multiples of 2**-15, whose
    # products with multiples of 2**17 are multiples of 4
    top = 17 if group else 0
    shift = _STEP_32 * group
    bits = _TWO_OVER_PI_BITS
    kept = bits & ((1 << (_TABLE_BITS - shift + top)) - 1)
    parts = []
    low = _TABLE_BITS - shift + top
    for width in (_PART_BITS, _PART_BITS, 53):
        low -= width
        part = kept >> low << low
        kept -= part
        parts.append(math.ldexp(part >> low, low - _TABLE_BITS + shift))
    return parts[0], parts[1], parts[2]


def _reduce_float32(x: UOp) -> tuple[UOp, UOp]:
    """(signed distance to the nearest quarter turn, in quarter turns; its number)."""
    size = absolute(x).cast(dtypes.float64)
    groups = 1 if _is_below(x, 2.0**_FIRST_32) else _GROUPS_32
    constants = [(*_window_float32(group), 2.0 ** (-_STEP_32 * group)) for group in range(groups)]
    picked = [size.const_like(value) for value in constants[-1]]
    for group in reversed(range(groups - 1)):
        below = size < 2.0 ** (_FIRST_32 + _STEP_32 * group)
        picked = [
            below.where(size.const_like(value), other)
            for value, other in zip(constants[group], picked, strict=True)
        ]
    first, second, third, scale = picked
    if groups > 1:
        size = size * scale
    # each product is exact, and so is each difference
    whole, number = _round(size * first)
    rest = (size * first - whole) + size * second
    other_whole, other_number = _round(rest)
    return (rest - other_whole) + size * third, number + other_number


def _round(x: UOp) -> tuple[UOp, UOp]:
    """The nearest whole number as float64, and as int64."""
    shifted = x + _ROUNDER
    number = bits_as(shifted, dtypes.int64) - bits_as(x.const_like(_ROUNDER), dtypes.int64)
    return shifted - _ROUNDER, number


def _words(zeros: int, width: int, count: int) -> list[int]:
    """2/pi as words of `width` bits, after some zeros."""
    shift = _TABLE_BITS + zeros - width * count
    bits = _TWO_OVER_PI_BITS >> shift
    mask = (1 << width) - 1
    return [(bits >> (width * (count - 1 - i))) & mask for i in range(count)]


def _pick(words: list[int], start: UOp, count: int, steps: int) -> list[UOp]:
    """words[start], words[start + 1], ... by selects; start < steps."""
    tests = [start.eq(step) for step in range(steps - 1)]
    picked = []
    for offset in range(count):
        value = start.const_like(words[steps - 1 + offset])
        for step in reversed(range(steps - 1)):
            value = tests[step].where(start.const_like(words[step + offset]), value)
        picked.append(value)
    return picked


def _reduce_large_float64(x: UOp) -> tuple[Pair, UOp]:
    """((r, what rounding took from it), quadrant) of |x| >= 2**20."""
    bits = bits_as(x, dtypes.uint64)
    m = (bits & ((1 << 52) - 1)) | (1 << 52)
    # x * 2/pi / 4 = m * 2**(e - 54) * 2/pi, and e is at least 20: the window starts e - 20 bits
    # into a table that begins with 34 zeros
    position = (shift_right(bits, 52) & 0x7FF) - (1023 + 20)
    position = (position < 1004).where(position, 0)
    words = _pick(_words(34, 64, 19), shift_right(position, 6), 4, 16)
    offset = position & 63
    back = offset ^ 63
    window = []
    for high, low in zip(words[:-1], words[1:], strict=True):
        window.append(shift_left(high, offset) | shift_right(shift_right(low, 1), back))
    middle_high, middle_low = _multiply_wide(m, window[1])
    low = middle_low + _multiply_wide(m, window[2])[0]
    carry = (low < middle_low).cast(dtypes.uint64)
    turns = m * window[0] + middle_high + carry
    fraction, quadrant = _split_turns(turns)
    rounded = fraction.cast(dtypes.float64)
    left = (fraction - truncate_to(rounded, dtypes.int64)).cast(dtypes.float64)
    below = bits_as(shift_right(low, 1), dtypes.int64).cast(dtypes.float64) * 2.0**-63
    pair = fast_sum(rounded, left + below)
    scale = rounded.const_like(_HALF_PI[0] * 2.0**-62), rounded.const_like(_HALF_PI[1] * 2.0**-62)
    return multiply_pairs(pair, scale), quadrant


def _split_turns(turns: UOp) -> tuple[UOp, UOp]:
    """A fraction of a turn in 64 bits -> (signed distance to the nearest quarter, its number)."""
    quadrant = shift_right(turns + (1 << 61), 62)
    distance = turns - shift_left(quadrant, 62)
    return bits_as(distance, dtypes.int64), bits_as(quadrant, dtypes.int64)


def _multiply_wide(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    """The high and the low 64 bits of a product of two uint64."""
    mask = (1 << 32) - 1
    x_high, x_low = shift_right(x, 32), x & mask
    y_high, y_low = shift_right(y, 32), y & mask
    cross, other = x_low * y_high, x_high * y_low
    middle = shift_right(x_low * y_low, 32) + (cross & mask) + (other & mask)
    high = x_high * y_high + shift_right(cross, 32) + shift_right(other, 32)
    return high + shift_right(middle, 32), x * y
