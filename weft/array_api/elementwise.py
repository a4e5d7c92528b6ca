"""The elementwise functions of the namespace: each by its name, with the standard's signature.

In: Arrays, or one Array and a Python scalar. Out: an Array.
Sits above Array; what each function is stands in the table of `functions`.
"""

from __future__ import annotations

from typing import Any

from weft.array_api import types
from weft.array_api.array import Array, as_array, binary, broadcast_shapes, operand, unary
from weft.errors import DTypeError

# an Array or a Python scalar
Operand = Any


def abs(x: Array, /) -> Array:
    """Magnitudes."""
    return unary("abs", x)


def acos(x: Array, /) -> Array:
    """The inverse of cos."""
    return unary("acos", x)


def acosh(x: Array, /) -> Array:
    """The inverse of cosh."""
    return unary("acosh", x)


def add(x1: Operand, x2: Operand, /) -> Array:
    """Sums."""
    return binary("add", x1, x2)


def asin(x: Array, /) -> Array:
    """The inverse of sin."""
    return unary("asin", x)


def asinh(x: Array, /) -> Array:
    """The inverse of sinh."""
    return unary("asinh", x)


def atan(x: Array, /) -> Array:
    """The inverse of tan."""
    return unary("atan", x)


def atan2(x1: Operand, x2: Operand, /) -> Array:
    """Angles of the points (x2, x1)."""
    return binary("atan2", x1, x2)


def atanh(x: Array, /) -> Array:
    """The inverse of tanh."""
    return unary("atanh", x)


def bitwise_and(x1: Operand, x2: Operand, /) -> Array:
    """Bits that both have."""
    return binary("bitwise_and", x1, x2)


def bitwise_invert(x: Array, /) -> Array:
    """Every bit the other way round."""
    return unary("bitwise_invert", x)


def bitwise_left_shift(x1: Operand, x2: Operand, /) -> Array:
    """x1 with its bits moved up by x2."""
    return binary("bitwise_left_shift", x1, x2)


def bitwise_or(x1: Operand, x2: Operand, /) -> Array:
    """Bits that one of both has."""
    return binary("bitwise_or", x1, x2)


def bitwise_right_shift(x1: Operand, x2: Operand, /) -> Array:
    """x1 with its bits moved down by x2, keeping the sign."""
    return binary("bitwise_right_shift", x1, x2)


def bitwise_xor(x1: Operand, x2: Operand, /) -> Array:
    """Bits in which both differ."""
    return binary("bitwise_xor", x1, x2)


def ceil(x: Array, /) -> Array:
    """Rounded up."""
    return unary("ceil", x)


def clip(x: Array, /, min: Operand | None = None, max: Operand | None = None) -> Array:
    """Not below min, not above max; a bound takes the dtype of x, and nan stays nan."""
    array = as_array(x, "clip")
    if array.dtype.kind not in ("int", "uint", "float"):
        raise DTypeError(f"clip takes arrays of a real-valued dtype, found {array.dtype}")
    bounds = [
        None if bound is None else operand(bound, array.dtype, "a bound of clip")
        for bound in (min, max)
    ]
    for bound in bounds:
        # the kinds must mix, but the result keeps its dtype
        if bound is not None:
            types.promote(array.dtype, bound.dtype)
    given = [bound for bound in bounds if bound is not None]
    shape = broadcast_shapes(array.shape, *[bound.shape for bound in given])
    value = array.tensor
    least, greatest = [
        None if bound is None else bound.with_dtype(array.dtype).tensor for bound in bounds
    ]
    value = value if least is None else _bounded(value, least, above=True)
    value = value if greatest is None else _bounded(value, greatest, above=False)
    return Array._of(value if value.shape == shape else value.expand(shape))


def _bounded(value: Any, bound: Any, above: bool) -> Any:
    """A value on one side of a bound; what is nan of both stays nan."""
    beyond = value.lt(bound) if above else value.gt(bound)
    return (beyond | bound.isnan()).where(bound, value)


def conj(x: Array, /) -> Array:
    """Complex conjugates."""
    return unary("conj", x)


def copysign(x1: Operand, x2: Operand, /) -> Array:
    """Magnitudes of x1 with the signs of x2."""
    return binary("copysign", x1, x2)


def cos(x: Array, /) -> Array:
    """Cosines."""
    return unary("cos", x)


def cosh(x: Array, /) -> Array:
    """Hyperbolic cosines."""
    return unary("cosh", x)


def divide(x1: Operand, x2: Operand, /) -> Array:
    """Quotients."""
    return binary("divide", x1, x2)


def equal(x1: Operand, x2: Operand, /) -> Array:
    """Where both are equal."""
    return binary("equal", x1, x2)


def exp(x: Array, /) -> Array:
    """Powers of e."""
    return unary("exp", x)


def expm1(x: Array, /) -> Array:
    """exp(x) - 1, exact also for small x."""
    return unary("expm1", x)


def floor(x: Array, /) -> Array:
    """Rounded down."""
    return unary("floor", x)


def floor_divide(x1: Operand, x2: Operand, /) -> Array:
    """Quotients rounded down."""
    return binary("floor_divide", x1, x2)


def greater(x1: Operand, x2: Operand, /) -> Array:
    """Where x1 is greater."""
    return binary("greater", x1, x2)


def greater_equal(x1: Operand, x2: Operand, /) -> Array:
    """Where x1 is not less."""
    return binary("greater_equal", x1, x2)


def hypot(x1: Operand, x2: Operand, /) -> Array:
    """sqrt(x1*x1 + x2*x2) without overflow."""
    return binary("hypot", x1, x2)


def imag(x: Array, /) -> Array:
    """Imaginary parts."""
    return unary("imag", x)


def isfinite(x: Array, /) -> Array:
    """Where numbers are neither infinite nor nan."""
    return unary("isfinite", x)


def isinf(x: Array, /) -> Array:
    """Where numbers are infinite."""
    return unary("isinf", x)


def isnan(x: Array, /) -> Array:
    """Where numbers are nan."""
    return unary("isnan", x)


def less(x1: Operand, x2: Operand, /) -> Array:
    """Where x1 is less."""
    return binary("less", x1, x2)


def less_equal(x1: Operand, x2: Operand, /) -> Array:
    """Where x1 is not greater."""
    return binary("less_equal", x1, x2)


def log(x: Array, /) -> Array:
    """Natural logarithms."""
    return unary("log", x)


def log10(x: Array, /) -> Array:
    """Logarithms to base 10."""
    return unary("log10", x)


def log1p(x: Array, /) -> Array:
    """log(1 + x), exact also for small x."""
    return unary("log1p", x)


def log2(x: Array, /) -> Array:
    """Logarithms to base 2."""
    return unary("log2", x)


def logaddexp(x1: Operand, x2: Operand, /) -> Array:
    """log(exp(x1) + exp(x2)) without overflow."""
    return binary("logaddexp", x1, x2)


def logical_and(x1: Operand, x2: Operand, /) -> Array:
    """Where both are True."""
    return binary("logical_and", x1, x2)


def logical_not(x: Array, /) -> Array:
    """Where bools are False."""
    return unary("logical_not", x)


def logical_or(x1: Operand, x2: Operand, /) -> Array:
    """Where one of both is True."""
    return binary("logical_or", x1, x2)


def logical_xor(x1: Operand, x2: Operand, /) -> Array:
    """Where one is True and the other is not."""
    return binary("logical_xor", x1, x2)


def maximum(x1: Operand, x2: Operand, /) -> Array:
    """The greater of both; nan beside nan."""
    return binary("maximum", x1, x2)


def minimum(x1: Operand, x2: Operand, /) -> Array:
    """The lesser of both; nan beside nan."""
    return binary("minimum", x1, x2)


def multiply(x1: Operand, x2: Operand, /) -> Array:
    """Products."""
    return binary("multiply", x1, x2)


def negative(x: Array, /) -> Array:
    """Negatives."""
    return unary("negative", x)


def nextafter(x1: Operand, x2: Operand, /) -> Array:
    """The next float from x1 towards x2."""
    return binary("nextafter", x1, x2)


def not_equal(x1: Operand, x2: Operand, /) -> Array:
    """Where both differ."""
    return binary("not_equal", x1, x2)


def positive(x: Array, /) -> Array:
    """The numbers as they are."""
    return unary("positive", x)


def pow(x1: Operand, x2: Operand, /) -> Array:
    """x1 to the power of x2."""
    return binary("pow", x1, x2)


def real(x: Array, /) -> Array:
    """Real parts."""
    return unary("real", x)


def reciprocal(x: Array, /) -> Array:
    """One over each number."""
    return unary("reciprocal", x)


def remainder(x1: Operand, x2: Operand, /) -> Array:
    """What is left of floor_divide, with the sign of x2."""
    return binary("remainder", x1, x2)


def round(x: Array, /) -> Array:
    """Rounded to the nearest whole number, halves to the even one."""
    return unary("round", x)


def sign(x: Array, /) -> Array:
    """-1, 0 or 1; of complex numbers their direction."""
    return unary("sign", x)


def signbit(x: Array, /) -> Array:
    """Where the sign is negative, that of -0.0 included."""
    return unary("signbit", x)


def sin(x: Array, /) -> Array:
    """Sines."""
    return unary("sin", x)


def sinh(x: Array, /) -> Array:
    """Hyperbolic sines."""
    return unary("sinh", x)


def sqrt(x: Array, /) -> Array:
    """Square roots."""
    return unary("sqrt", x)


def square(x: Array, /) -> Array:
    """Squares."""
    return unary("square", x)


def subtract(x1: Operand, x2: Operand, /) -> Array:
    """Differences."""
    return binary("subtract", x1, x2)


def tan(x: Array, /) -> Array:
    """Tangents."""
    return unary("tan", x)


def tanh(x: Array, /) -> Array:
    """Hyperbolic tangents."""
    return unary("tanh", x)


def trunc(x: Array, /) -> Array:
    """Rounded towards zero."""
    return unary("trunc", x)
