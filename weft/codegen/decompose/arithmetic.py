"""SQRT, TRUNC and MAX for targets that lack them, floats in the order of their bits, and THREEFRY.

In: one of these ops. Out: plain ops. Narrower floats are computed in float32 before they come here.
Invariant: TRUNC, MAX and THREEFRY are exact; SQRT is within one unit in the last place.
"""

from __future__ import annotations

import math

from weft.codegen.decompose.terms import (
    BIAS,
    INT_OF,
    MANTISSA,
    absolute,
    bits_as,
    fused,
    shift_left,
    shift_right,
    truncate_to,
    with_sign_of,
)
from weft.dtype import dtypes
from weft.uop.node import UOp


def decompose_trunc(x: UOp) -> UOp:
    """TRUNC(x) -> through an integer, where there is a fraction to cut off; keeps -0.0."""
    dtype = x.dtype.scalar()
    size = absolute(x)
    has_fraction = size < 2.0 ** MANTISSA[dtype]
    whole = truncate_to(has_fraction.where(size, 0.0), INT_OF[dtype]).cast(dtype)
    return has_fraction.where(with_sign_of(whole, x), x)


def decompose_max(x: UOp, y: UOp) -> UOp:
    """MAX(x, y) -> comparisons; NaN wins, and 0.0 is above -0.0."""
    dtype = x.dtype.scalar()
    if dtype.kind == "bool":
        return x | y
    if dtype.kind != "float":
        return (x < y).where(y, x)
    bits = INT_OF[dtype]
    # equal numbers have equal bits, but for the zeros, whose common bits are 0.0
    equal = bits_as(bits_as(x, bits) & bits_as(y, bits), dtype)
    unequal = (y < x).where(x, x.eq(y).where(equal, x + y))
    return (x < y).where(y, unequal)


# the bits of the least float32 that is no NaN, -inf, once they are in order
_LEAST = 0x007FFFFF


def ordered_bits(x: UOp) -> UOp:
    """A uint32 for a float32: as one is above another, so are these; of -inf it is 0, and those of
    NaN are above all others.

    The bits of negative numbers are in reverse order: all are turned, of the others the sign. Then
    negative NaNs are lowest; -inf as 0 makes them come around as the highest.
    """
    bits = bits_as(x, dtypes.int32)
    turned = bits ^ (shift_right(bits, 31) | -0x80000000)
    return bits_as(turned, dtypes.uint32) - _LEAST


def from_ordered_bits(order: UOp) -> UOp:
    """The float32 again."""
    turned = bits_as(order + _LEAST, dtypes.int32)
    return bits_as(turned ^ (~shift_right(turned, 31) | -0x80000000), dtypes.float32)


_RECIPROCAL_ROOT_SEED = {dtypes.float32: 0x5F375A86, dtypes.float64: 0x5FE6EB50C7B537A9}
_STEPS = {dtypes.float32: 3, dtypes.float64: 4}


def decompose_sqrt(x: UOp) -> UOp:
    """SQRT(x) -> Newton's iteration for 1/sqrt(x), then one exact correction."""
    dtype = x.dtype.scalar()
    integer = INT_OF[dtype]
    # an even power of two takes denormals out of the way
    shift = MANTISSA[dtype] + MANTISSA[dtype] % 2
    tiny = x < 2.0 ** (2 - BIAS[dtype])
    scaled = tiny.where(x * 2.0**shift, x)
    seed = bits_as(scaled, integer).const_like(_RECIPROCAL_ROOT_SEED[dtype])
    y = bits_as(seed - shift_right(bits_as(scaled, integer), 1), dtype)
    for _ in range(_STEPS[dtype]):
        y = y * (1.5 - scaled * 0.5 * y * y)
    root = scaled * y
    root = root + fused(-root, root, scaled) * (y * 0.5)
    root = tiny.where(root * 2.0 ** -(shift // 2), root)
    root = (x.eq(0.0) | x.eq(math.inf)).where(x, root)
    return (x < 0.0).where(math.nan, root)


# Random123: the rotations of Threefry-2x32 and the parity word of the key schedule
_ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
_PARITY = 0x1BD11BDA
_ROUNDS = 20


def decompose_threefry(counter: UOp, key: UOp) -> UOp:
    """THREEFRY(counter, key) -> twenty rounds on two words of 32 bits, the low half first."""
    first, second = _halves(counter)
    low_key, high_key = _halves(key)
    keys = low_key, high_key, low_key ^ high_key ^ _PARITY
    first, second = first + keys[0], second + keys[1]
    for number in range(_ROUNDS):
        rotation = _ROTATIONS[number % len(_ROTATIONS)]
        first = first + second
        second = shift_left(second, rotation) | shift_right(second, 32 - rotation)
        second = second ^ first
        if number % 4 == 3:
            injection = number // 4 + 1
            first = first + keys[injection % 3]
            second = second + keys[(injection + 1) % 3] + injection
    return first.cast(dtypes.uint64) | shift_left(second.cast(dtypes.uint64), 32)


def _halves(x: UOp) -> tuple[UOp, UOp]:
    """Low and high word of a uint64."""
    return x.cast(dtypes.uint32), shift_right(x, 32).cast(dtypes.uint32)
