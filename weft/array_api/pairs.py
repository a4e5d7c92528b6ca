"""Functions of complex numbers, each a pair of tensors: the real and the imaginary part.

In: pairs of tensors of one float dtype and shape. Out: a pair, or one tensor.
Sits between the functions of real tensors and the Array.
Invariant: branch cuts and special values are those of C99 (annex G), which the standard repeats.
Everything is a composition of differentiable methods: a gradient of the parts follows by itself.

The inverse functions are W. Kahan's ("Branch cuts for complex elementary functions, or much ado
about nothing's sign bit", 1987): signs of zeros choose the side of a cut.
"""

from __future__ import annotations

import math

from weft.array_api.floats import atan2, copysign, expm1_real, hypot, is_finite, log1p, signbit
from weft.dtype import dtypes
from weft.tensor import Tensor

Pair = tuple[Tensor, Tensor]


def _zero(x: Tensor) -> Tensor:
    return x._constant(0)


def _choose(condition: Tensor, yes: Pair, no: Pair) -> Pair:
    return condition.where(yes[0], no[0]), condition.where(yes[1], no[1])


def _both_finite(z: Pair) -> Tensor:
    return is_finite(z[0]) & is_finite(z[1])


# ------------------------------------------------------------ arithmetic
def add(x: Pair, y: Pair) -> Pair:
    """x + y."""
    return x[0] + y[0], x[1] + y[1]


def subtract(x: Pair, y: Pair) -> Pair:
    """x - y."""
    return x[0] - y[0], x[1] - y[1]


def multiply(x: Pair, y: Pair) -> Pair:
    """x * y."""
    return x[0] * y[0] - x[1] * y[1], x[0] * y[1] + x[1] * y[0]


def divide(x: Pair, y: Pair) -> Pair:
    """x / y without overflow (R. Smith, 1962): by the greater part of y first."""
    wide = y[0].abs().ge(y[1].abs())
    greater, lesser = wide.where(y[0], y[1]), wide.where(y[1], y[0])
    ratio = lesser / greater
    ratio = greater.eq(0).where(_zero(ratio), ratio)
    scale = greater + lesser * ratio
    first, second = wide.where(x[0], x[1]), wide.where(x[1], x[0])
    real = (first + second * ratio) / scale
    rest = (second - first * ratio) / scale
    return real, wide.where(rest, rest.neg())


def negative(z: Pair) -> Pair:
    """-z."""
    return z[0].neg(), z[1].neg()


def conjugate(z: Pair) -> Pair:
    """The pair with the other sign of its imaginary part."""
    return z[0], z[1].neg()


def square(z: Pair) -> Pair:
    """z * z."""
    return multiply(z, z)


def reciprocal(z: Pair) -> Pair:
    """1 / z."""
    return divide((z[0]._constant(1).expand(z[0].shape), _zero(z[0]).expand(z[0].shape)), z)


def magnitude(z: Pair) -> Tensor:
    """abs(z)."""
    return hypot(*z)


def sign(z: Pair) -> Pair:
    """z / abs(z), and 0 of 0."""
    length = hypot(*z)
    nothing = length.eq(0)
    safe = nothing.where(length._constant(1), length)
    zero = _zero(length)
    return _choose(nothing, (zero, zero), (z[0] / safe, z[1] / safe))


def equal(x: Pair, y: Pair) -> Tensor:
    """Where both parts are equal."""
    return x[0].eq(y[0]) & x[1].eq(y[1])


def times_i(z: Pair) -> Pair:
    """i * z."""
    return z[1].neg(), z[0]


def over_i(z: Pair) -> Pair:
    """z / i."""
    return z[1], z[0].neg()


# ------------------------------------------------------------ powers and logarithms
def exp(z: Pair) -> Pair:
    """e**z."""
    a, b = z
    return _growing(a, b, a.exp())


def _growing(a: Tensor, b: Tensor, power: Tensor) -> Pair:
    """exp(a) * (cos(b) + i sin(b)), where `power` is exp(a)."""
    # near its greatest value exp is infinite, but not times the cosine
    root = (a * 0.5).exp()
    overflows = power.eq(math.inf) & is_finite(a)
    cosine, sine = b.cos(), b.sin()
    real = overflows.where(root * cosine * root, power * cosine)
    imaginary = overflows.where(root * sine * root, power * sine)
    # a direction that is unknown does not matter to nothing, and not to the size of infinity
    unknown = is_finite(b).logical_not()
    real = (unknown & a.eq(-math.inf)).where(_zero(a), real)
    imaginary = (unknown & a.eq(-math.inf)).where(_zero(a), imaginary)
    real = (unknown & a.eq(math.inf)).where(a, real)
    return b.eq(0).where(power, real), b.eq(0).where(b, imaginary)


def expm1(z: Pair) -> Pair:
    """e**z - 1, exact also for small z."""
    a, b = z
    real, imaginary = exp(z)
    half = (b * 0.5).sin()
    less = expm1_real(a)
    small = less * b.cos() - half * half * 2
    special = (_both_finite(z) & is_finite(less)).logical_not()
    return special.where(b.eq(0).where(less, real - 1), small), imaginary


def log(z: Pair) -> Pair:
    """The natural logarithm; the cut is along the negative real axis."""
    return _log_length(z), atan2(z[1], z[0])


def _log_length(z: Pair) -> Tensor:
    """log(abs(z)), exact also where abs(z) is nearly 1."""
    first, second = z[0].abs(), z[1].abs()
    greater, lesser = first.maximum(second), first.minimum(second)
    usual = is_finite(greater) & greater.gt(0)
    scale = usual.where(greater, greater._constant(1))
    ratio = usual.where(lesser, _zero(lesser)) / scale
    far = scale.log() + log1p(ratio * ratio) * 0.5
    near = usual & greater.gt(0.5) & greater.lt(2)
    inner = near.where(greater, greater._constant(1))
    rest = near.where(lesser, _zero(lesser))
    close = log1p((inner - 1) * (inner + 1) + rest * rest) * 0.5
    length = near.where(close, far)
    infinite = first.eq(math.inf) | second.eq(math.inf)
    # 0 has -inf, nan has nan
    return infinite.where(length._constant(math.inf), usual.where(length, greater.log()))


def log1p_pair(z: Pair) -> Pair:
    """log(1 + z), exact also for small z."""
    a, b = z
    moved = (a + 1, b)
    small = a.abs().lt(0.5) & b.abs().lt(0.5)
    near = small.where(a * 2 + (a * a + b * b), _zero(a))
    real, imaginary = log(moved)
    return small.where(log1p(near) * 0.5, real), imaginary


def scaled_log(z: Pair, factor: float) -> Pair:
    """log(z) * factor."""
    real, imaginary = log(z)
    return real * factor, imaginary * factor


def log2(z: Pair) -> Pair:
    """The logarithm to base 2."""
    return scaled_log(z, 1 / math.log(2))


def log10(z: Pair) -> Pair:
    """The logarithm to base 10."""
    return scaled_log(z, 1 / math.log(10))


def sqrt(z: Pair) -> Pair:
    """The root whose real part is not negative; its imaginary part has the sign of z's."""
    a, b = z
    finite = _both_finite(z)
    greatest = finite.where(a.abs().maximum(b.abs()), a._constant(1))
    exponent = 2.0 ** (dtypes.finfo(a.dtype)[0])
    huge, tiny = greatest.gt(2.0 ** (exponent / 4)), greatest.lt(2.0 ** (-exponent / 4))
    # by powers of four, so that neither the sum overflows nor its parts vanish
    power = 2.0 ** int(exponent / 4)
    scale = huge.where(a._constant(1 / power), tiny.where(a._constant(power), a._constant(1)))
    back = huge.where(a._constant(power**0.5), tiny.where(a._constant(power**-0.5), a._constant(1)))
    nothing = a.eq(0) & b.eq(0)
    safe = (finite & nothing.logical_not()).logical_not()
    real, imaginary = safe.where(a._constant(1), a * scale), safe.where(_zero(b), b * scale)
    half = ((real.abs() + hypot(real, imaginary)) * 0.5).sqrt()
    other = imaginary.abs() / (half * 2)
    left = real.lt(0)
    parts = left.where(other, half) * back, left.where(half, other) * back
    infinite, unknown = a._constant(math.inf), a._constant(math.nan)
    right = a.eq(math.inf)
    along = (
        right.where(infinite, a.eq(-math.inf).where(b.isnan().where(b, _zero(a)), unknown)),
        right.where(b.isnan().where(b, _zero(b)), a.eq(-math.inf).where(infinite, unknown)),
    )
    parts = _choose(finite, _choose(nothing, (_zero(a), _zero(b)), parts), along)
    parts = _choose(b.abs().eq(math.inf), (infinite, infinite), parts)
    return parts[0], copysign(parts[1], b)


def power(x: Pair, y: Pair) -> Pair:
    """x**y, the principal value; 0**y is 0 where the real part of y is positive, and x**0 is 1."""
    general = exp(multiply(y, log(x)))
    base_zero = x[0].eq(0) & x[1].eq(0)
    nothing = (_zero(x[0]), _zero(x[0]))
    general = _choose(base_zero & y[0].gt(0), nothing, general)
    one = (x[0]._constant(1), _zero(x[0]))
    return _choose(y[0].eq(0) & y[1].eq(0), one, general)


# ------------------------------------------------------------ hyperbolic functions
def _halves(a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Where cosh(a) may overflow; its root, and half of that: their product is exp(abs(a)) / 2."""
    root = (a.abs() * 0.5).exp()
    large = a.abs().gt(85.0 if a.dtype is dtypes.float32 else 700.0)
    return large, root, root * 0.5


def sinh(z: Pair) -> Pair:
    """(e**z - e**-z) / 2."""
    a, b = z
    large, root, half = _halves(a)
    cosine, sine = b.cos(), b.sin()
    real = large.where(copysign(half, a) * cosine * root, a.sinh() * cosine)
    imaginary = large.where(half * sine * root, a.cosh() * sine)
    known = is_finite(b)
    same = (a.eq(0) | a.abs().eq(math.inf)) & known.logical_not()
    real = same.where(a, real)
    return b.eq(0).where(a.sinh(), real), b.eq(0).where(b, imaginary)


def cosh(z: Pair) -> Pair:
    """(e**z + e**-z) / 2."""
    a, b = z
    large, root, half = _halves(a)
    cosine, sine = b.cos(), b.sin()
    real = large.where(half * cosine * root, a.cosh() * cosine)
    imaginary = large.where(copysign(half, a) * sine * root, a.sinh() * sine)
    known = is_finite(b)
    real = (a.abs().eq(math.inf) & known.logical_not()).where(a.abs(), real)
    nothing = copysign(copysign(_zero(a).expand(a.shape), a), b)
    nothing = (signbit(a) & signbit(b)).where(_zero(a), nothing)
    nothing = (signbit(a).ne(signbit(b))).where(a._constant(-0.0), nothing)
    # a side that is 0 makes the imaginary part 0, whatever the other one is
    is_nothing = b.eq(0) | (a.eq(0) & known.logical_not())
    return b.eq(0).where(a.cosh(), real), is_nothing.where(nothing, imaginary)


def tanh(z: Pair) -> Pair:
    """sinh(z) / cosh(z)."""
    a, b = z
    limit = 20.0 if a.dtype is dtypes.float64 else 12.0
    large = a.abs().gt(limit) & (is_finite(b) | a.abs().eq(math.inf))
    inner = large.where(_zero(a), a)
    tangent = b.tan()
    spread = tangent * tangent + 1
    slope = inner.sinh()
    length = (slope * slope + 1).sqrt()
    below = spread * slope * slope + 1
    steep = spread.eq(math.inf)
    real = steep.where(length / slope, spread * length * slope / below)
    imaginary = steep.where(tangent.reciprocal(), tangent / below)
    far = b.sin() * b.cos() * 4 * (a.abs() * -2).exp()
    direction = (is_finite(a) & is_finite(b)).where((b * 2).sin(), b)
    flat = copysign(_zero(far).expand(far.shape), direction)
    far = (is_finite(a) & is_finite(b) & far.ne(0)).where(far, flat)
    real = large.where(copysign(a._constant(1).expand(a.shape), a), real)
    imaginary = large.where(far, imaginary)
    real = a.eq(0).where(a, real)
    return b.eq(0).where(a.tanh(), real), b.eq(0).where(b, imaginary)


def asinh(z: Pair) -> Pair:
    """The inverse of sinh; cuts are along the imaginary axis, beyond i and -i."""
    a, b = z
    safe = _choose(_both_finite(z), z, (a._constant(1), _zero(b)))
    first = sqrt((safe[1] + 1, safe[0].neg()))
    second = sqrt((1 - safe[1], safe[0]))
    real = (first[0] * second[1] - first[1] * second[0]).asinh()
    imaginary = atan2(safe[1], first[0] * second[0] - first[1] * second[1])
    far = copysign(hypot(a, b), a), b.eq(0).where(b, atan2(b, a.abs()))
    return _choose(_both_finite(z), (copysign(real, a), imaginary), far)


def acosh(z: Pair) -> Pair:
    """The inverse of cosh with a real part that is not negative; the cut is below 1."""
    a, b = z
    safe = _choose(_both_finite(z), z, (a._constant(2), _zero(b)))
    first = sqrt((safe[0] - 1, safe[1]))
    second = sqrt((safe[0] + 1, safe[1]))
    real = (first[0] * second[0] + first[1] * second[1]).asinh()
    imaginary = atan2(first[1], second[0]) * 2
    angle = atan2(b, a)
    angle = (a.eq(0) & b.isnan()).where(angle._constant(math.pi / 2), angle)
    return _choose(_both_finite(z), (real, imaginary), (hypot(a, b), angle))


def acos(z: Pair) -> Pair:
    """The inverse of cos; cuts are along the real axis, beyond 1 and -1."""
    a, b = z
    safe = _choose(_both_finite(z), z, (_zero(a), _zero(b)))
    first = sqrt((1 - safe[0], safe[1].neg()))
    second = sqrt((safe[0] + 1, safe[1]))
    real = atan2(first[0], second[0]) * 2
    imaginary = (second[0] * first[1] - second[1] * first[0]).asinh()
    angle = atan2(b.abs(), a)
    angle = (a.eq(0) & b.isnan()).where(angle._constant(math.pi / 2), angle)
    far = angle, copysign(hypot(a, b), b).neg()
    return _choose(_both_finite(z), (real, imaginary), far)


def atanh(z: Pair) -> Pair:
    """The inverse of tanh; cuts are along the real axis, beyond 1 and -1."""
    a, b = z[0].abs(), z[1].abs()
    finite = _both_finite(z)
    exponent = 2.0 ** (dtypes.finfo(a.dtype)[0])
    large = finite & a.maximum(b).gt(2.0 ** (exponent / 8))
    usual = finite & large.logical_not()
    x, y = usual.where(a, a._constant(0.5)), usual.where(b, _zero(b))
    # right above or below 1 the square of a small y would vanish
    edge = x.eq(1) & y.lt(1)
    inner = edge.where(x._constant(0.5), x)
    real = log1p(inner * 4 / ((1 - inner) * (1 - inner) + y * y)) * 0.25
    at_edge = (hypot(y._constant(2).expand(y.shape), y).log() - y.log()) * 0.5
    imaginary = atan2(y * 2, (1 - x) * (x + 1) - y * y) * 0.5
    length = large.where(hypot(a, b), a._constant(1))
    real = large.where(a / length / length, edge.where(at_edge, real))
    right = a._constant(math.pi / 2)
    imaginary = large.where(right, imaginary)
    infinite = a.eq(math.inf) | b.eq(math.inf)
    # infinitely far away, or right of nan
    real = finite.where(real, (infinite | a.eq(0)).where(_zero(a), a._constant(math.nan)))
    beside = b.isnan() | (a.isnan() & b.ne(math.inf))
    imaginary = finite.where(imaginary, beside.where(b._constant(math.nan), right))
    return copysign(real, z[0]), copysign(imaginary, z[1])


# ------------------------------------------------------------ of a turned argument
def sin(z: Pair) -> Pair:
    """sinh(iz) / i."""
    return over_i(sinh(times_i(z)))


def cos(z: Pair) -> Pair:
    """cosh(iz)."""
    return cosh(times_i(z))


def tan(z: Pair) -> Pair:
    """tanh(iz) / i."""
    return over_i(tanh(times_i(z)))


def asin(z: Pair) -> Pair:
    """asinh(iz) / i; cuts are along the real axis, beyond 1 and -1."""
    return over_i(asinh(times_i(z)))


def atan(z: Pair) -> Pair:
    """atanh(iz) / i; cuts are along the imaginary axis, beyond i and -i."""
    return over_i(atanh(times_i(z)))
