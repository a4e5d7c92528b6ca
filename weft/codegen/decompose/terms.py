"""Small building blocks of decompositions.

In: UOps of scalar or vector dtype. Out: UOps. Sits below the other files of this package.
Invariant: ADD and MUL round where they stand; what may be fused is a MULADD. The tag "raw" means
something to renderers: an op with C's semantics whose operands are proven safe.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dtype import DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops


def raw(op: Ops, x: UOp, y: UOp | int) -> UOp:
    """`x op y` with C's semantics; y is a safe operand."""
    other = y if isinstance(y, UOp) else x.const_like(y)
    return UOp(op, x.dtype, (x, other), tag="raw")


def shift_left(x: UOp, y: UOp | int) -> UOp:
    """x << y for 0 <= y < width."""
    return raw(Ops.SHL, x, y)


def shift_right(x: UOp, y: UOp | int) -> UOp:
    """x >> y for 0 <= y < width; arithmetic for signed x."""
    return raw(Ops.SHR, x, y)


def truncate_to(x: UOp, dtype: DType) -> UOp:
    """A float that is inside the range of an integer dtype, cut towards zero."""
    return UOp(Ops.CAST, like(dtype, x), (x,), tag="raw")


def like(dtype: DType, x: UOp) -> DType:
    """`dtype` with as many lanes as x."""
    return dtype.vec(x.dtype.count)


def constant(dtype: DType, value: Any, x: UOp) -> UOp:
    """A constant of `dtype` in every lane that x has."""
    return UOp.const(like(dtype, x), value)


def bits_as(x: UOp, dtype: DType) -> UOp:
    """The bits of x as another dtype of the same width."""
    return x.bitcast(like(dtype, x))


def fused(x: UOp, y: UOp | float, z: UOp | float) -> UOp:
    """x*y + z, rounded once."""
    return UOp(Ops.MULACC, x.dtype, (x, x.const_like(y), x.const_like(z)))


def muladd(x: UOp, y: UOp | float, z: UOp | float) -> UOp:
    """x*y + z, as fast as the target can."""
    return UOp(Ops.MULADD, x.dtype, (x, x.const_like(y), x.const_like(z)))


def polynomial(x: UOp, coefficients: Sequence[float]) -> UOp:
    """c0 + x*(c1 + x*(c2 + ...)), each step one operation where the target can."""
    value = x.const_like(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        value = muladd(value, x, coefficient)
    return value


def absolute(x: UOp) -> UOp:
    """|x| of a float: the sign bit off."""
    bits = INT_OF[x.dtype.scalar()]
    return bits_as(bits_as(x, bits) & bits.max, x.dtype.scalar())


def with_sign_of(magnitude: UOp, x: UOp) -> UOp:
    """`magnitude` (its sign bit off) with the sign bit of x."""
    bits = INT_OF[x.dtype.scalar()]
    sign = bits_as(x, bits) & bits.min
    return bits_as(bits_as(magnitude, bits) | sign, x.dtype.scalar())


INT_OF = {dtypes.float32: dtypes.int32, dtypes.float64: dtypes.int64}
# stored exponent of 1.0, and number of stored mantissa bits
BIAS = {dtypes.float32: 127, dtypes.float64: 1023}
MANTISSA = {dtypes.float32: 23, dtypes.float64: 52}


def power_of_two(exponent: UOp, dtype: DType) -> UOp:
    """2.0**exponent for an int of dtype's width that gives a normal number."""
    shifted = shift_left(exponent + BIAS[dtype], MANTISSA[dtype])
    return bits_as(shifted, dtype)
