"""Functions of one value (and the powers of two), shared by `UOp` and `Tensor`.

In: a class with `alu`, `cast`, `where`. Out: roots, exponentials, rounding, signs, tests.
Sits below both users; imports no UOp.
Invariant: what is computed with constants is computed in at least float32 and rounded once, so a
half type loses nothing to its own constants; ints become floats first.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Concatenate, ParamSpec, Self, TypeVar

from weft.dtype import computing_dtype, dtypes, least_upper_dtype, least_upper_float
from weft.errors import ArgumentError
from weft.mixin.dtype import DTypeMixin, product_dtype
from weft.uop.opset import BOUNDED, FALLING, Ops

LOG2_E = math.log2(math.e)
# log2(e) = the float32 nearest to it + this
LOG2_E_REST = 1.9259629911266175e-08
LN_2 = math.log(2)

Parameters = ParamSpec("Parameters")
Value = TypeVar("Value", bound="UnaryMixin")


def in_wide_floats(
    function: Callable[Concatenate[Value, Parameters], Value],
) -> Callable[Concatenate[Value, Parameters], Value]:
    """Makes a method compute in at least float32 and give its operand's float type."""

    @functools.wraps(function)
    def widened(self: Value, *args: Parameters.args, **kwargs: Parameters.kwargs) -> Value:
        result = function(self.cast(computing_dtype(self.dtype)), *args, **kwargs)
        return result.cast(least_upper_float(self.dtype))

    return widened


def polynomial(x: Any, coefficients: Sequence[float]) -> Any:
    """The polynomial with these coefficients, the constant one first, by Horner's rule.

    Each step is one node: its product is rounded or not, but the same wherever it is computed.
    """
    result = x._constant(coefficients[-1])
    for coefficient in reversed(coefficients[:-1]):
        result = x.alu(Ops.MULADD, result, x._constant(coefficient))
    return result


# tanh(x) / x in powers of x*x, for |x| < 0.625; relative error 4e-9 and 1e-17
_TANH_SHORT = (
    0.9999999960227217, -0.3333325986294753, 0.1333111405568977, -0.05372010765662894,
    0.02058819145458637, -0.005657135184380392,
)  # fmt: skip
_TANH_LONG = (
    1.0, -0.3333333333333333, 0.13333333333333322, -0.053968253968245894, 0.021869488535834838,
    -0.008863235522231967, 0.0035921279164735508, -0.0014558330943201733, 0.000590017574983575,
    -0.00023907478350662572, 9.669804997153767e-05, -3.864912440304512e-05, 1.4619932354247982e-05,
    -4.593068283991715e-06, 8.510270303436795e-07,
)  # fmt: skip
# erf(x) / x in powers of x*x, for |x| < 1; relative error 2e-9 and 3e-17
_ERF_SHORT = (
    1.1283791658483509, -0.37612626666720334, 0.11283594715160218, -0.026854212010626412,
    0.005189087423433974, -0.000801686428716587, 7.875875062685488e-05,
)  # fmt: skip
_ERF_LONG = (
    1.1283791670955126, -0.37612638903183754, 0.11283791670955126, -0.026866170645131218,
    0.005223977625441674, -0.0008548327023403001, 0.00012055332978879483, -1.4925650236967501e-05,
    1.6462110782018636e-06, -1.636576864883207e-07, 1.4806027146128752e-08, -1.2277734486795524e-09,
    9.323723518153027e-11, -6.1967364287877e-12, 2.8067128195611264e-13,
)  # fmt: skip
# exp(x*x) * erfc(x) in powers of (x-2)/(x+2), for 1 <= x <= 4 and 1 <= x <= 6; 1e-9 and 1e-16
_ERFCX_SHORT = (
    0.25539567625190335, -0.42718584761434303, 0.24165821109072444, -0.07897852327253349,
    0.0037321413513030097, 0.006994855413599958, -0.0008365899736486057, -0.0009441596340872735,
)  # fmt: skip
_ERFCX_LONG = (
    0.25539567631050575, -0.4271858474139584, 0.24165819424246635, -0.07897858101573309,
    0.003732892404344556, 0.006997461739289944, -0.0008471432519742267, -0.0009819770300762522,
    4.355563606906135e-05, 0.0001743612315319066, 2.7524861673829758e-05, -2.758043996166221e-05,
    -1.3961467042970603e-05, 1.3937647275858412e-06, 3.7492294331455126e-06, 1.1924348155131436e-06,
    -4.086889531377557e-07, -5.022472940496373e-07, -1.5712486225792008e-07, 8.22026259674723e-08,
    1.0599753079203089e-07, -2.992083159656815e-08,
)  # fmt: skip


class UnaryMixin(DTypeMixin):
    """Functions over the protocol of `ArithMixin`."""

    __slots__ = ()

    @property
    def _is_single(self) -> bool:
        """Whether short polynomials are exact enough."""
        return bool(self.dtype.scalar() is dtypes.float32)

    @property
    def _logarithmic(self) -> float:
        """From where asinh(x) and acosh(x) are log(2x): they differ by 1/(4x*x)."""
        return 1e4 if self._is_single else 1e8

    # ------------------------------------------------------------ roots and powers
    def sqrt(self) -> Self:
        """The square root; nan below zero.

        >>> Tensor([1.0, 4.0, 9.0]).sqrt().tolist()
        [1.0, 2.0, 3.0]
        """
        return self._float_operand().alu(Ops.SQRT)

    @in_wide_floats
    def rsqrt(self) -> Self:
        """One over the square root.

        >>> Tensor([1.0, 4.0]).rsqrt().tolist()
        [1.0, 0.5]
        """
        return self.sqrt().reciprocal()

    def reciprocal(self) -> Self:
        """One over the value.

        >>> Tensor([1.0, 4.0]).reciprocal().tolist()
        [1.0, 0.25]
        """
        value = self._float_operand()
        return value._constant(1).alu(Ops.FDIV, value)

    def square(self) -> Self:
        """The value times itself.

        >>> Tensor([1, -3]).square().tolist()
        [1, 9]
        """
        return self * self

    def pow(self, x: Any, reverse: bool = False) -> Self:
        """`x ** y`. Ints stay ints and wrap.

        >>> Tensor([1, 2, 3]).pow(2).tolist()
        [1, 4, 9]
        >>> (2 ** Tensor([1.0, 2.0])).tolist()
        [2.0, 4.0]
        """
        if not reverse and isinstance(x, (int, float)):
            short = self._short_power(x)
            if short is not None:
                return short
        if reverse and isinstance(x, (int, float)) and x == 2 and dtypes.is_float(self.dtype):
            return self.exp2()
        other = self._operand(x)
        base, exponent = (other, self) if reverse else (self, other)
        common = least_upper_dtype(base.dtype, exponent.dtype)
        if dtypes.is_float(common):
            return base.cast(common).alu(Ops.POW, exponent.cast(common))
        if common is dtypes.bool:
            common = dtypes.default_int
        return base.cast(common)._int_power(exponent.cast(common))

    def _short_power(self, exponent: int | float) -> Self | None:
        """Powers that are a multiplication or a root, which is faster and at least as exact."""
        if exponent == 1:
            kept = isinstance(exponent, int) or dtypes.is_float(self.dtype)
            return self._unchanged() if kept else self._float_operand()
        if exponent in (2, 3) and (isinstance(exponent, int) or dtypes.is_float(self.dtype)):
            return self * self if exponent == 2 else self._cube()
        if exponent == -1 and dtypes.is_float(self.dtype):
            return self.reciprocal()
        return None

    def _cube(self) -> Self:
        wide = self.cast(product_dtype(self.dtype))
        return (wide * wide * wide).cast(self.dtype)

    def _int_power(self, exponent: Any) -> Self:
        """Powers of ints by repeated squaring; of a negative exponent the whole part of 1/x**n."""
        bits = 64 if self.dtype is dtypes.weakint else self.dtype.bitsize
        if exponent.dtype.kind != "uint":
            bits -= 1
        known = getattr(exponent, "uop", exponent)
        may_be_negative = exponent.dtype.kind != "uint"
        if known.op.name == "CONST" and known.arg >= 0:
            may_be_negative = False
            bits = int(known.arg).bit_length()
            if bits == 0:
                return self.const_like(1)
        result, square = self._constant(1), self
        for bit in range(bits):
            wanted = exponent.rshift(bit).bitwise_and(1).ne(0)
            result = wanted.where(result * square, result)
            if bit + 1 < bits:
                square = square * square
        if not may_be_negative:
            return result
        sign = exponent.bitwise_and(1).ne(0).where(self._constant(-1), self._constant(1))
        inverse = self.eq(1).where(self._constant(1), self.eq(-1).where(sign, self._constant(0)))
        return exponent.lt(0).where(inverse, result)

    def __pow__(self, x: Any) -> Self:
        return self.pow(x)

    def __rpow__(self, x: Any) -> Self:
        return self.pow(x, True)

    # ------------------------------------------------------------ exponentials
    def exp2(self) -> Self:
        """2 to the power of the value.

        >>> Tensor([0.0, 3.0]).exp2().tolist()
        [1.0, 8.0]
        """
        return self._float_operand().alu(Ops.EXP2)

    @in_wide_floats
    def exp(self) -> Self:
        """e to the power of the value.

        >>> Tensor([0.0, 1.0]).exp().tolist()
        [1.0, 2.7182817459106445]
        """
        if not self._is_single:
            return (self * LOG2_E).exp2()._sloped("exp", self)
        # The product's rounding error would be magnified by its size; so it is computed too, and
        # exp2(h + l) = exp2(h) * (1 + l*ln2). Beyond the bounds the result is 0 or inf anyway.
        bounded = self.clip(-104.0, 88.72283)
        low = bounded.alu(Ops.MULACC, bounded._constant(LOG2_E), (bounded * LOG2_E).neg())
        low = bounded.alu(Ops.MULADD, bounded._constant(LOG2_E_REST), low)
        error = low.alu(Ops.MULADD, low._constant(LN_2), low._constant(1))
        return ((self * LOG2_E).exp2() * error)._sloped("exp", self)

    def _sloped(self, name: str, operand: Any) -> Self:
        """This value of a function whose derivative `slopes` has; a class without gradients need
        not know it."""
        return self

    def _bounded_exp(self) -> Self:
        """`exp` where only the absolute error counts: of what is negative, or becomes a divisor.

        Its relative error grows with |x|, but there the result no longer matters.
        """
        return (self * LOG2_E).exp2()

    def _falling_exp(self) -> Self:
        """The same of what is at most 0, or nan; below the least normal number it is 0."""
        return self._bounded_exp()._marked(FALLING)

    def log2(self) -> Self:
        """The logarithm to base 2; -inf of zero, nan below.

        >>> Tensor([1.0, 8.0]).log2().tolist()
        [0.0, 3.0]
        """
        return self._float_operand().alu(Ops.LOG2)

    @in_wide_floats
    def log(self) -> Self:
        """The natural logarithm; -inf of zero, nan below.

        >>> Tensor([1.0]).log().tolist()
        [0.0]
        """
        return self.log2() * LN_2

    @in_wide_floats
    def log10(self) -> Self:
        """The logarithm to base 10.

        >>> Tensor([1.0]).log10().tolist()
        [0.0]
        """
        return self.log2() * math.log10(2)

    def _log1p(self) -> Self:
        """log(1 + x), exact also for small x: the rounding of 1 + x is divided out again."""
        total = self + 1
        # x/(total-1) would be nan for x = inf, and is 0/0 where 1 + x is 1; there it divides by 1,
        # for the gradient of what is not chosen must not be nan either
        rest = total - 1
        lost = rest.eq(0)
        ratio = self / lost.where(rest._constant(1), rest)
        plain = lost.where(self, total.log() * ratio)
        return self.eq(math.inf).where(self, plain)

    def logaddexp(self, other: Any) -> Self:
        """log(exp(x) + exp(y)) without overflow.

        >>> Tensor([0.0]).logaddexp(Tensor([0.0])).tolist()
        [0.6931471824645996]
        """
        y = self._operand(other)
        dtype = least_upper_float(least_upper_dtype(self.dtype, y.dtype))
        wide = computing_dtype(dtype)
        left, right = self.cast(wide), y.cast(wide)
        greater = left.maximum(right)
        # of two equal infinities the difference is nan, but the greater is the answer
        difference = left.eq(right).where(greater._constant(0), (left - right).abs())
        return (greater + difference.neg()._falling_exp()._log1p()).cast(dtype)

    @in_wide_floats
    def sigmoid(self) -> Self:
        """1 / (1 + exp(-x)).

        >>> Tensor([0.0]).sigmoid().tolist()
        [0.5]
        """
        # of the side where the exponential does not overflow: inf in it would make gradients nan
        power = self._size().neg()._falling_exp()
        side = self.lt(0).where(power, power._constant(1))
        return (side / (power + 1))._marked(BOUNDED)

    @in_wide_floats
    def tanh(self) -> Self:
        """The hyperbolic tangent.

        >>> Tensor([0.0]).tanh().tolist()
        [0.0]
        """
        size = self._size()
        near, inner = self._near_zero(0.625)
        small = inner * polynomial(inner * inner, _TANH_SHORT if self._is_single else _TANH_LONG)
        power = (size * -2)._falling_exp()
        large = ((1 - power) / (power + 1))._marked(BOUNDED)
        return near.where(small, self.lt(0).where(large.neg(), large))

    @in_wide_floats
    def sinh(self) -> Self:
        """The hyperbolic sine.

        >>> Tensor([0.0]).sinh().tolist()
        [0.0]
        """
        terms = 6 if self._is_single else 10
        taylor = [1 / math.factorial(2 * k + 1) for k in range(terms)]
        near, inner = self._near_zero(1)
        small = inner * polynomial(inner * inner, taylor)
        # the root of the exponential does not overflow before the result does
        half = self._size() * 0.5
        root, inverse = half.exp(), half.neg().exp()
        large = (root * 0.5) * root - (inverse * 0.5) * inverse
        return near.where(small, self.lt(0).where(large.neg(), large))._sloped("sinh", self)

    @in_wide_floats
    def cosh(self) -> Self:
        """The hyperbolic cosine.

        >>> Tensor([0.0]).cosh().tolist()
        [1.0]
        """
        half = self.abs() * 0.5
        root, inverse = half.exp(), half.neg().exp()
        return ((root * 0.5) * root + (inverse * 0.5) * inverse)._sloped("cosh", self)

    @in_wide_floats
    def asinh(self) -> Self:
        """The inverse of `sinh`.

        >>> Tensor([0.0]).asinh().tolist()
        [0.0]
        """
        size = self.abs()
        limit = self._logarithmic
        moderate = size.minimum(limit)
        root = (moderate * moderate + 1).sqrt()
        near = (moderate + moderate * moderate / (root + 1))._log1p()
        result = size.lt(limit).where(near, size.clip(min_=1.0).log() + LN_2)
        return self.lt(0).where(result.neg(), self.eq(0).where(self, result))

    @in_wide_floats
    def acosh(self) -> Self:
        """The inverse of `cosh`; nan below 1.

        >>> Tensor([1.0]).acosh().tolist()
        [0.0]
        """
        limit = self._logarithmic
        above = self.minimum(limit) - 1
        # two roots: that of the product would be real for x < -1
        near = (above + above.sqrt() * (above + 2).sqrt())._log1p()
        return self.gt(limit).where(self.log() + LN_2, near)._sloped("acosh", self)

    @in_wide_floats
    def atanh(self) -> Self:
        """The inverse of `tanh`; nan outside -1 to 1.

        >>> Tensor([0.0]).atanh().tolist()
        [0.0]
        """
        size = self.abs()
        result = (size * 2 / (1 - size))._log1p() * 0.5
        result = self.lt(0).where(result.neg(), self.eq(0).where(self, result))
        return result._sloped("atanh", self)

    @in_wide_floats
    def erf(self) -> Self:
        """The error function.

        >>> Tensor([0.0]).erf().tolist()
        [0.0]
        """
        single = self._is_single
        near, inner = self._near_zero(1)
        small = inner * polynomial(inner * inner, _ERF_SHORT if single else _ERF_LONG)
        size = self._size().clip(1.0, 4.0 if single else 6.0)
        tail = polynomial((size - 2) / (size + 2), _ERFCX_SHORT if single else _ERFCX_LONG)
        large = 1 - (size * size).neg()._falling_exp() * tail
        return near.where(small, self.lt(0).where(large.neg(), large))._sloped("erf", self)

    def _size(self) -> Self:
        """The magnitude of a float, whose slope at 0 is 1: for formulas, where 0 would be wrong."""
        return self.lt(0).where(self.neg(), self)

    def _near_zero(self, bound: float) -> tuple[Self, Self]:
        """Where the magnitude is below a bound, and the value there; elsewhere 0.

        A polynomial of what is not chosen may overflow, and then its gradient, 0 * inf, is nan.
        """
        near = self.abs().lt(bound)
        return near, near.where(self, self._constant(0))

    # ------------------------------------------------------------ rounding and signs
    def trunc(self) -> Self:
        """Towards zero.

        >>> Tensor([1.7, -1.7]).trunc().tolist()
        [1.0, -1.0]
        """
        return self.alu(Ops.TRUNC) if dtypes.is_float(self.dtype) else self._unchanged()

    def floor(self) -> Self:
        """Down.

        >>> Tensor([1.7, -1.2]).floor().tolist()
        [1.0, -2.0]
        """
        if not dtypes.is_float(self.dtype):
            return self._unchanged()
        whole = self.trunc()
        return self.lt(whole).where(whole - 1, whole)

    def ceil(self) -> Self:
        """Up.

        >>> Tensor([1.2, -1.7]).ceil().tolist()
        [2.0, -1.0]
        """
        if not dtypes.is_float(self.dtype):
            return self._unchanged()
        whole = self.trunc()
        return self.gt(whole).where(whole + 1, whole)

    def round(self) -> Self:
        """To the nearest whole number; a half goes to the even one.

        >>> Tensor([0.5, 1.5, -1.2]).round().tolist()
        [0.0, 2.0, -1.0]
        """
        if not dtypes.is_float(self.dtype):
            return self._unchanged()
        whole = self.trunc()
        rest = (self - whole).abs()
        half = whole * 0.5
        away = self.lt(0).where(whole - 1, whole + 1)
        odd = half.trunc().ne(half)
        return (rest.gt(0.5) | (rest.eq(0.5) & odd)).where(away, whole)

    def abs(self) -> Self:
        """Without its sign.

        >>> Tensor([-1, 2]).abs().tolist()
        [1, 2]
        """
        if self.dtype.kind in ("uint", "bool"):
            return self._unchanged()
        return self.maximum(self.neg())

    def sign(self) -> Self:
        """-1, 0 or 1; nan of nan.

        >>> Tensor([-3, 0, 5]).sign().tolist()
        [-1, 0, 1]
        """
        if self.dtype is dtypes.bool:
            return self._unchanged()
        # numbers only, not the value itself where it is 0: steps have no slope
        rest = self._constant(0)
        if dtypes.is_float(self.dtype):
            rest = self.eq(0).where(rest, self._constant(math.nan))
        negative = self.lt(0).where(self._constant(-1), rest)
        return self.gt(0).where(self._constant(1), negative)

    def copysign(self, other: Any) -> Self:
        """This magnitude with the other's sign, that of -0.0 included.

        >>> Tensor([1.0, 2.0]).copysign(Tensor([-0.0, 3.0])).tolist()
        [-1.0, 2.0]
        """
        y = self._operand(other)._float_operand()
        if y.dtype is dtypes.weakfloat:
            y = y.cast(dtypes.default_float)
        integer = {1: dtypes.int8, 2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}
        negative = y.bitcast(integer[y.dtype.itemsize]).lt(0)
        size = self.cast(least_upper_float(self.dtype)).abs()
        return negative.where(size.neg(), size)

    def bitcast(self, dtype: Any) -> Self:
        """The same bits as another dtype. Provided by the class."""
        raise NotImplementedError

    def fmod(self, x: Any) -> Self:
        """The rest of the division that rounds towards zero: it has the sign of this value.

        Of ints the rest of a division by zero is 0, as of `%`.

        >>> Tensor([7, -7]).fmod(3).tolist()
        [1, -1]
        """
        other = self._operand(x)
        common = least_upper_dtype(self.dtype, other.dtype)
        left, right = self.cast(common), other.cast(common)
        if not dtypes.is_float(common):
            rest = left - left.div(right, rounding_mode="trunc") * right
            return right.eq(0).where(left._constant(0), rest)
        rest = left.abs()._float_divmod(right.abs())[1]
        return rest.copysign(left)

    # ------------------------------------------------------------ tests
    def isnan(self) -> Self:
        """Where it is not a number.

        >>> Tensor([1.0, float("nan")]).isnan().tolist()
        [False, True]
        """
        return self.ne(self)

    def isinf(self, detect_positive: bool = True, detect_negative: bool = True) -> Self:
        """Where it is infinite, of either sign or one.

        >>> Tensor([1.0, float("-inf")]).isinf().tolist()
        [False, True]
        """
        positive = self.eq(math.inf) if detect_positive else self.ne(self).bitwise_and(False)
        return positive.bitwise_or(self.eq(-math.inf)) if detect_negative else positive

    def isfinite(self) -> Self:
        """Where it is a number and not infinite.

        >>> Tensor([1.0, float("inf")]).isfinite().tolist()
        [True, False]
        """
        return self.isinf().bitwise_or(self.isnan()).logical_not()

    # ------------------------------------------------------------ bounds
    def clip(self, min_: Any = None, max_: Any = None) -> Self:
        """Not below min_, not above max_.

        >>> Tensor([-1, 5, 20]).clip(0, 10).tolist()
        [0, 5, 10]
        """
        if min_ is None and max_ is None:
            raise ArgumentError("clip needs min_ or max_, both were None")
        # not maximum and minimum: at a bound they would share the gradient with it
        bounded = self
        least = None if min_ is None else self._limit(min_, -1)
        if least is not None:
            bounded = bounded.lt(least).where(least, bounded)
        greatest = None if max_ is None else self._limit(max_, 1)
        return bounded if greatest is None else bounded.gt(greatest).where(greatest, bounded)

    def clamp(self, min_: Any = None, max_: Any = None) -> Self:
        """Another name of `clip`.

        >>> Tensor([-1, 5, 20]).clamp(max_=10).tolist()
        [-1, 5, 10]
        """
        return self.clip(min_, max_)

    def lerp(self, end: Any, weight: Any) -> Self:
        """On the way from this to `end`: `self + (end - self) * weight`, which is `end` where the
        weight is 1: from the half on it is counted from there.

        >>> Tensor([0.0, 10.0]).lerp(Tensor([1.0, 20.0]), 0.5).tolist()
        [0.5, 15.0]
        """
        y = self._operand(end)
        share = self._operand(weight)
        common = least_upper_dtype(least_upper_dtype(self.dtype, y.dtype), share.dtype)
        wide = product_dtype(common)
        start, stop, share = self.cast(wide), y.cast(wide), share.cast(wide)
        if not dtypes.is_float(wide):
            return (start + (stop - start) * share).cast(common)
        way, is_late = stop - start, share.lt(0.5).logical_not()
        late, early = stop - way * (1 - share), start + way * share
        return is_late.where(late, early).cast(common)
