"""Functions of real tensors that the standard has and Tensor lacks, exact at special values.

In: tensors of one dtype. Out: a tensor of that dtype, or of bools.
Sits below the functions of pairs, which are made of these.
Invariant: infinities, zeros with their signs and nan come out as the standard's tables say; where
a gradient exists, what is not chosen does not make it nan.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.dtype import DType, dtypes
from weft.tensor import Tensor
from weft.uop.opset import Ops

_INTS = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}


def mantissa_bits(dtype: DType) -> int:
    """Bits of a float after the point."""
    return dtypes.finfo(dtype)[1]


def signbit(x: Tensor) -> Tensor:
    """Where the sign is negative, that of -0.0 and of nan included."""
    return x.bitcast(_INTS[x.dtype.itemsize]).lt(0)


def copysign(x: Tensor, y: Tensor) -> Tensor:
    """The magnitude of x with the sign of y, those of nan included."""
    integer = _INTS[x.dtype.itemsize]
    same = x.bitcast(integer).bitwise_xor(y.bitcast(integer)).ge(0)
    return same.where(x, x.neg())


def is_finite(x: Tensor) -> Tensor:
    """Neither infinite nor nan."""
    return x.abs().lt(math.inf)


def expm1_real(x: Tensor) -> Tensor:
    """exp(x) - 1, exact also for small x: the rounding of exp is divided out (W. Kahan)."""
    power = x.exp()
    less = power - 1
    # where the logarithm would be 0 or infinite, it is not needed
    plain = power.eq(1) | less.eq(-1) | x.gt(1)
    safe = plain.where(power._constant(2), power)
    corrected = less * x / safe.log()
    return power.eq(1).where(x, plain.where(less, corrected))


def log1p(x: Tensor) -> Tensor:
    """log(1 + x), exact also for small x."""
    return x._log1p()


def hypot(x: Tensor, y: Tensor) -> Tensor:
    """sqrt(x*x + y*y) without overflow; infinite beside nan."""
    first, second = x.abs(), y.abs()
    greater, lesser = first.maximum(second), first.minimum(second)
    usual = is_finite(greater) & greater.gt(0)
    scale = usual.where(greater, greater._constant(1))
    ratio = usual.where(lesser, lesser._constant(0)) / scale
    length = scale * (ratio * ratio + 1).sqrt()
    either = first.eq(math.inf) | second.eq(math.inf)
    return either.where(greater._constant(math.inf), usual.where(length, greater))


def atan2(y: Tensor, x: Tensor) -> Tensor:
    """The angle of the point (x, y), from -pi to pi; the sign is that of y."""
    up, along = y.abs(), x.abs()
    equal = up.eq(along)  # of two infinities or two zeros the quotient would be nan
    zero = equal & up.eq(0)
    safe = equal.where(along._constant(1), along)
    ratio = equal.where(up._constant(1), up) / safe
    angle = zero.where(up._constant(0), ratio.atan())
    angle = signbit(x).where(math.pi - angle, angle)
    unknown = x.isnan() | y.isnan()
    return unknown.where(angle._constant(math.nan), copysign(angle, y))


def nextafter(x: Tensor, y: Tensor) -> Tensor:
    """The next float from x towards y."""
    integer = _INTS[x.dtype.itemsize]
    bits = x.bitcast(integer)
    # away from zero the bits grow, towards it they fall
    away = x.lt(y) == x.gt(0)
    moved = (bits + away.where(bits._constant(1), bits._constant(-1))).bitcast(x.dtype)
    tiny = x._constant(1).cast(integer).expand(x.shape).bitcast(x.dtype)
    result = x.eq(0).where(copysign(tiny, y), moved)
    unknown = x.isnan() | y.isnan()
    return unknown.where(x._constant(math.nan), x.eq(y).where(y, result))


def remainder(x: Tensor, y: Tensor) -> Tensor:
    """The rest of floor(x / y), with the sign of y: also 0 has it.

    Exact for any quotient: multiples of y * 2**k are taken away from the greatest k down, each
    with one rounding, of a value that a float holds.
    """
    step = mantissa_bits(x.dtype) - 1
    divisor, rest = y.abs(), x
    exponents = 2 ** dtypes.finfo(x.dtype)[0] + mantissa_bits(x.dtype)
    for power in range(exponents // step, -1, -1):
        scaled = _scaled(divisor, power * step)
        times = (rest / scaled).trunc()
        less = times.neg().alu(Ops.MULACC, scaled, rest)
        # nothing to take away, and the multiple may be infinite
        rest = times.eq(0).where(rest, less) if power else times.ne(times).where(times, less)
    rest = is_finite(x).where(is_finite(y).where(rest, x), rest._constant(math.nan))
    # the quotient of the last step may be rounded up, so that its rest is below zero
    rest = (rest.ne(0) & signbit(rest).ne(signbit(y))).where(rest + y, rest)
    rest = rest.eq(0).where(copysign(rest, y), rest)
    return (x.isnan() | y.isnan()).where(rest._constant(math.nan), rest)


def _scaled(x: Tensor, power: int) -> Tensor:
    """x * 2**power, of a power beyond those of one float too."""
    most = 2 ** (dtypes.finfo(x.dtype)[0] - 1) - 1
    while power > 0:
        part = min(power, most)
        x, power = x * 2.0**part, power - part
    return x


def floor_divide(x: Tensor, y: Tensor) -> Tensor:
    """floor(x / y) of floats; an infinite x stays infinite, an infinite y gives a signed zero."""
    quotient = x / y
    # beyond the bits of a float the quotient is whole, or infinite
    exact = quotient.abs().lt(2.0 ** mantissa_bits(x.dtype)) & y.abs().ne(math.inf)
    whole = x._float_divmod(y)[0]
    zero = whole.eq(0)
    return exact.where(zero.where(copysign(whole, quotient), whole), quotient)


def integer_power(x: Tensor, y: Tensor) -> Tensor:
    """x ** y of ints, which wrap."""
    return x.pow(y)


def reciprocal(x: Tensor) -> Tensor:
    """1 / x."""
    return x._constant(1) / x


def maximum(x: Tensor, y: Tensor) -> Tensor:
    """The greater; nan of nan."""
    return x.maximum(y)


def sign(x: Tensor) -> Tensor:
    """-1, 0 or 1; zeros keep their sign, nan is nan."""
    if x.dtype.kind != "float":
        return x.sign()
    return (x.eq(0) | x.isnan()).where(x, x.sign())


def method(name: str) -> Callable[..., Any]:
    """A method of Tensor as a function."""

    def call(x: Tensor, *others: Any) -> Any:
        return getattr(x, name)(*others)

    return call
