"""Conversions of float16, bfloat16 and the 8-bit floats, in integer operations.

In: a CAST from or to one of these. Out: the same value, rounded once and to nearest even, through
the bits of a float32. LOADs and STOREs stay as they are: a narrow float that the target does not
know is just bits to it. Invariant: `weft.dtype.convert` gives the same bits for every input.
"""

from __future__ import annotations

from weft.codegen.decompose.terms import bits_as, constant, shift_left, shift_right
from weft.dtype import FORMATS, DType, dtypes
from weft.float_format import FLOAT32, FloatFormat
from weft.uop.node import UOp

_STORED_AS = {1: dtypes.uint8, 2: dtypes.uint16}
_SIGN = 1 << 31
_INFINITY = 0x7F800000


def decompose_from_narrow(x: UOp, target: DType, native: bool) -> UOp | None:
    """CAST(narrow -> target) -> through float32. `native`: the machine converts it itself."""
    if target.scalar() is dtypes.float32:
        return None if native else widen_bits(x)
    return x.cast(dtypes.float32).cast(target)


def decompose_to_narrow(x: UOp, target: DType, native: bool) -> UOp | None:
    """CAST(x -> narrow) -> through a float32 that keeps what one rounding needs to know."""
    source = x.dtype.scalar()
    if source is dtypes.float32:
        return None if native else narrow_bits(x, target)
    return as_float32_for_rounding(x).cast(target)


def decompose_rounding(x: UOp, target: DType) -> UOp | None:
    """CAST(CAST(x: float32, bfloat16), float32) -> the bits of x with the low half rounded off.

    None where the format's exponents differ from float32's: there it is a conversion both ways.
    """
    layout = FORMATS[target.scalar()]
    if layout.exponent_bits != FLOAT32.exponent_bits or layout.finite_only:
        return None
    cut = FLOAT32.mantissa_bits - layout.mantissa_bits
    bits = bits_as(x, dtypes.uint32)
    odd = shift_right(bits, cut) & 1
    rounded = (bits + ((1 << (cut - 1)) - 1) + odd) & ((1 << FLOAT32.width) - (1 << cut))
    # a carry would turn some nans into numbers
    return bits_as(x.ne(x).where(layout.nan_bits << cut, rounded), dtypes.float32)


def widen_bits(x: UOp) -> UOp:
    """The float32 of a narrow float: its fields moved to their places, then scaled."""
    layout = FORMATS[x.dtype.scalar()]
    stored = bits_as(x, _STORED_AS[x.dtype.scalar().itemsize]).cast(dtypes.uint32)
    if layout.exponent_bits == FLOAT32.exponent_bits and not layout.finite_only:
        # the upper half of a float32, and nothing else
        return bits_as(shift_left(stored, FLOAT32.width - layout.width), dtypes.float32)
    magnitude = stored & ((1 << (layout.width - 1)) - 1)
    sign = shift_left(shift_right(stored, layout.width - 1), 31)
    fields = shift_left(magnitude, FLOAT32.mantissa_bits - layout.mantissa_bits)
    # a product with a power of two corrects the exponent, of denormals too, without rounding
    scaled = bits_as(fields, dtypes.float32) * 2.0 ** (FLOAT32.bias - layout.bias)
    bits = bits_as(scaled, dtypes.uint32)
    if not layout.finite_only:
        special = ((1 << layout.exponent_bits) - 1) << layout.mantissa_bits
        bits = (magnitude < special).where(bits, fields | _INFINITY)
    if layout.finite_only:
        code = stored if layout.single_nan else magnitude
        bits = code.eq(layout.nan_bits).where(0x7FC00000, bits)
        if layout.single_nan:
            sign = code.eq(layout.nan_bits).where(0, sign)
    return bits_as(bits | sign, dtypes.float32)


def narrow_bits(x: UOp, target: DType) -> UOp:
    """A float32 rounded to a narrow format."""
    layout = FORMATS[target.scalar()]
    bits = bits_as(x, dtypes.uint32)
    magnitude = bits & (_SIGN - 1)
    rounded = _round_magnitude(magnitude, layout)
    is_nan = magnitude.const_like(_INFINITY) < magnitude
    beyond = rounded.const_like(layout.largest_bits) < rounded
    if layout.saturates:
        rounded = beyond.where(layout.largest_bits, rounded)
        beyond = magnitude.eq(_INFINITY)
    if layout.finite_only:
        is_nan = is_nan | beyond
    else:
        rounded = beyond.where(_infinity_bits(layout), rounded)
    signed = rounded | shift_left(shift_right(bits, 31), layout.width - 1)
    if layout.single_nan:
        # its only NaN is the code of -0
        signed = rounded.eq(0).where(0, signed)
    result = is_nan.where(layout.nan_bits, signed)
    return bits_as(result.cast(_STORED_AS[target.scalar().itemsize]), target.scalar())


def _infinity_bits(layout: FloatFormat) -> int:
    return ((1 << layout.exponent_bits) - 1) << layout.mantissa_bits


def _round_magnitude(magnitude: UOp, layout: FloatFormat) -> UOp:
    """The bits of |x| in a narrow format, perhaps beyond its largest number."""
    cut = FLOAT32.mantissa_bits - layout.mantissa_bits
    rebias = FLOAT32.bias - layout.bias
    fields = magnitude - (rebias << FLOAT32.mantissa_bits)
    # half a unit less one, and one more if the kept part is odd: ties go to even
    odd = shift_right(fields, cut) & 1
    normal = shift_right(fields + ((1 << (cut - 1)) - 1) + odd, cut)
    if rebias == 0:
        return normal
    # Below the least normal number the unit is fixed. Adding a number whose unit is that one rounds
    # to it, and leaves the count of units in the low bits.
    unit_exponent = 1 - layout.bias - layout.mantissa_bits
    anchor = constant(dtypes.float32, 2.0 ** (unit_exponent + FLOAT32.mantissa_bits), magnitude)
    sum_bits = bits_as(bits_as(magnitude, dtypes.float32) + anchor, dtypes.uint32)
    denormal = sum_bits - bits_as(anchor, dtypes.uint32)
    return (magnitude < ((rebias + 1) << FLOAT32.mantissa_bits)).where(denormal, normal)


def as_float32_for_rounding(x: UOp) -> UOp:
    """A float32 from which rounding to a narrower format gives what rounding x would give.

    An integer above 2**24, or a float64, may need more bits than a float32 has. What is cut off
    makes the last bit odd ("round to odd"), so that a second rounding sees no false tie.
    """
    source = x.dtype.scalar()
    if source.kind == "bool" or source.itemsize < 4:
        return x.cast(dtypes.float32)
    if source.kind != "float":
        return _round_integer_to_odd(x).cast(dtypes.float32)
    return _round_float64_to_odd(x)


# From 2**power on so many low bits are cut off. The rest fits into the 24 bits of a float32, and
# at least 9 bits are above the last one, which is one more than any narrow format rounds to.
_CUTS = {4: ((24, 8),), 8: ((24, 10), (34, 25), (49, 40))}


def _round_integer_to_odd(x: UOp) -> UOp:
    """The same integer if it is small, else one near it that a float32 holds exactly."""
    result = x
    for power, bits in _CUTS[x.dtype.scalar().itemsize]:
        lost = x & ((1 << bits) - 1)
        kept = (x ^ lost) | lost.ne(0).where(x.const_like(1 << bits), 0)
        is_small = x < (1 << power)
        if x.dtype.kind == "int":
            is_small = is_small & (x.const_like(-(1 << power)) < x)
        result = is_small.where(result, kept)
    return result


def _round_float64_to_odd(x: UOp) -> UOp:
    nearest = x.cast(dtypes.float32)
    back = nearest.cast(dtypes.float64)
    bits = bits_as(nearest, dtypes.int32)
    magnitude, wanted = bits_as(back, dtypes.int64) & dtypes.int64.max, bits_as(x, dtypes.int64)
    too_large = (wanted & dtypes.int64.max) < magnitude
    # the neighbour on the other side of x; the sign bit is apart, so this is a step in magnitude
    step = too_large.where(bits.const_like(-1), 1)
    inexact = back.ne(x) & x.eq(x) & (bits & 1).eq(0)
    return bits_as(inexact.where(bits + step, bits), dtypes.float32)
