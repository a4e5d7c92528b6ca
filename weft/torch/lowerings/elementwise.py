"""Element by element: arithmetic, comparisons, functions of one number, activations.

In: Tensors and numbers. Out: Tensors. A family of the table of lowerings.
Invariant: ints divide and shift as PyTorch's do, NaN goes where PyTorch lets it go.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import DType, dtypes, least_upper_float
from weft.tensor import Tensor
from weft.torch.table import Call, lowers, refuse


def as_tensor(value: Any) -> Tensor:
    """A Tensor; of a number a constant that has no dtype of its own."""
    return value if isinstance(value, Tensor) else Tensor(value)


def is_float(value: Any) -> bool:
    """Whether a Tensor or number is of a floating type."""
    if isinstance(value, Tensor):
        return value.dtype.kind == "float"
    return isinstance(value, float)


_SAME = (
    "abs acos acosh asin asinh atan atanh ceil cos cosh erf exp exp2 floor log log10 log2 neg "
    "reciprocal relu rsqrt sigmoid sin sinh sqrt tan tanh trunc bitwise_not logical_not "
    "isnan square"
).split()
for _name in _SAME:
    lowers(_name)(getattr(Tensor, _name))


@lowers("sign", "sgn")
def sign(x: Tensor) -> Tensor:
    # that of NaN is 0
    return x.isnan().where(0, x.sign()) if is_float(x) else x.sign()


@lowers("isinf")
def isinf(x: Tensor) -> Tensor:
    return x.isinf() if is_float(x) else x.ne(x)


@lowers("round", "round.decimals")
def round_(x: Tensor, *, decimals: int = 0) -> Tensor:
    if not decimals:
        return x.round()
    scale = 10.0 ** abs(decimals)
    return (x * scale).round() / scale if decimals > 0 else (x / scale).round() * scale


@lowers("log1p")
def log1p(x: Tensor) -> Tensor:
    # log of 1 + x, with what was lost by rounding 1 + x put back (Higham, 2002, problem 1.5)
    wide = x.cast(least_upper_float(x.dtype))
    whole = wide + 1
    exact = whole.log() * (wide / (whole - 1))
    return whole.eq(1).where(wide, whole.isinf().where(whole.log(), exact))


@lowers("expm1")
def expm1(x: Tensor) -> Tensor:
    # (e - 1) * x / log(e), the same correction
    wide = x.cast(least_upper_float(x.dtype))
    power = wide.exp()
    exact = (power - 1) * wide / power.log()
    is_far = (power - 1).eq(-1) | power.isinf() | power.isnan()
    return power.eq(1).where(wide, is_far.where(power - 1, exact))


@lowers("erfc")
def erfc(x: Tensor) -> Tensor:
    return 1 - x.erf()


@lowers("isfinite")
def isfinite(x: Tensor) -> Tensor:
    return x.isfinite() if is_float(x) else x.eq(x)


@lowers("clone", "alias", "detach", "lift_fresh_copy", "lift_fresh", "positive", "contiguous")
def clone(x: Tensor, **kwargs: Any) -> Tensor:
    return x


@lowers("fill")
def fill(x: Tensor, value: Any) -> Tensor:
    return as_tensor(value).cast(x.dtype).expand(x.shape)


@lowers("copy")
def copy(x: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    return source.cast(x.dtype).expand(x.shape)


# ------------------------------------------------------------ two operands
@lowers("add")
def add(x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return as_tensor(x) + (y if alpha == 1 else as_tensor(y) * alpha)


@lowers("sub")
def sub(x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return as_tensor(x) - (y if alpha == 1 else as_tensor(y) * alpha)


@lowers("rsub")
def rsub(x: Any, y: Any, alpha: Any = 1) -> Tensor:
    return sub(y, x, alpha)


@lowers("mul")
def mul(x: Any, y: Any) -> Tensor:
    return as_tensor(x) * y


@lowers("div", "true_divide")
def div(x: Any, y: Any, rounding_mode: str | None = None) -> Tensor:
    left = as_tensor(x)
    if rounding_mode is None:
        return left / y
    if not (is_float(x) or is_float(y)):
        return (left - left.fmod(y)) // y if rounding_mode == "trunc" else left // y
    quotient = left / y
    return quotient.trunc() if rounding_mode == "trunc" else floor_divide(x, y)


@lowers("floor_divide")
def floor_divide(x: Any, y: Any) -> Tensor:
    left = as_tensor(x)
    if not (is_float(x) or is_float(y)):
        return left // y
    # from the rest, so that what is divided without one is exact
    rest = left.fmod(y)
    right = as_tensor(y)
    quotient = (left - rest) / right
    quotient = (rest.ne(0) & rest.lt(0).ne(right.lt(0))).where(quotient - 1, quotient)
    rounded = (quotient - quotient.floor()).gt(0.5).where(quotient.floor() + 1, quotient.floor())
    return right.eq(0).where(left / right, rounded)


@lowers("remainder")
def remainder(x: Any, y: Any) -> Tensor:
    return as_tensor(x) % y


@lowers("fmod")
def fmod(x: Any, y: Any) -> Tensor:
    return as_tensor(x).fmod(y)


@lowers("maximum")
def maximum(x: Tensor, y: Tensor) -> Tensor:
    return x.maximum(y)


@lowers("minimum")
def minimum(x: Tensor, y: Tensor) -> Tensor:
    return x.minimum(y)


@lowers("fmax")
def fmax(x: Tensor, y: Tensor) -> Tensor:
    return x.isnan().where(y, y.isnan().where(x, x.maximum(y)))


@lowers("fmin")
def fmin(x: Tensor, y: Tensor) -> Tensor:
    return x.isnan().where(y, y.isnan().where(x, x.minimum(y)))


@lowers("pow")
def pow_(x: Any, y: Any) -> Tensor:
    return as_tensor(x).pow(y)


@lowers("atan2")
def atan2(y: Tensor, x: Tensor) -> Tensor:
    turn = (x.lt(0) | (x.eq(0) & (1 / x).lt(0))).where(
        y.copysign(y).ge(0).where(1.0, 1.0).copysign(y) * math.pi, 0.0
    )
    both_far = x.isinf() & y.isinf()
    both_zero = x.eq(0) & y.eq(0)
    ratio = both_far.where(x.sign() * y.sign(), both_zero.where(y * x.sign(), y / x))
    return ratio.atan() + turn


@lowers("hypot")
def hypot(x: Tensor, y: Tensor) -> Tensor:
    great, small = x.abs().maximum(y.abs()), x.abs().minimum(y.abs())
    ratio = great.eq(0).where(0.0, small / great)
    return great.isinf().where(great, great * (ratio * ratio + 1).sqrt())


@lowers("copysign")
def copysign(x: Tensor, y: Any) -> Tensor:
    return x.cast(least_upper_float(x.dtype)).copysign(y)


@lowers("logaddexp")
def logaddexp(x: Tensor, y: Tensor) -> Tensor:
    return x.logaddexp(y)


@lowers("heaviside")
def heaviside(x: Tensor, values: Tensor) -> Tensor:
    return x.eq(0).where(values, x.gt(0).cast(x.dtype))


@lowers("bitwise_and", "bitwise_and.Tensor")
def bitwise_and(x: Any, y: Any) -> Tensor:
    return as_tensor(x) & y


@lowers("bitwise_or")
def bitwise_or(x: Any, y: Any) -> Tensor:
    return as_tensor(x) | y


@lowers("bitwise_xor")
def bitwise_xor(x: Any, y: Any) -> Tensor:
    return as_tensor(x) ^ y


@lowers("bitwise_left_shift", "__lshift__")
def left_shift(x: Any, y: Any) -> Tensor:
    return as_tensor(x) << y


@lowers("bitwise_right_shift", "__rshift__")
def right_shift(x: Any, y: Any) -> Tensor:
    return as_tensor(x) >> y


@lowers("logical_and")
def logical_and(x: Tensor, y: Tensor) -> Tensor:
    return x.cast(dtypes.bool) & y.cast(dtypes.bool)


@lowers("logical_or")
def logical_or(x: Tensor, y: Tensor) -> Tensor:
    return x.cast(dtypes.bool) | y.cast(dtypes.bool)


@lowers("logical_xor")
def logical_xor(x: Tensor, y: Tensor) -> Tensor:
    return x.cast(dtypes.bool) ^ y.cast(dtypes.bool)


def _compare(name: str) -> None:
    @lowers(name)
    def compare(x: Any, y: Any) -> Tensor:
        found: Tensor = getattr(as_tensor(x), name)(y)
        return found


for _name in "eq ne lt le gt ge".split():
    _compare(_name)


@lowers("where")
def where(condition: Tensor, x: Any = None, y: Any = None) -> Tensor:
    if x is None:
        raise refuse("where of a condition alone gives as many places as are true")
    return condition.cast(dtypes.bool).where(x, y)


@lowers("clamp", "clip")
def clamp(x: Tensor, low: Any = None, high: Any = None) -> Tensor:
    return x.clip(low, high)


@lowers("clamp_min")
def clamp_min(x: Tensor, low: Any) -> Tensor:
    return x.clip(low, None)


@lowers("clamp_max")
def clamp_max(x: Tensor, high: Any) -> Tensor:
    return x.clip(None, high)


@lowers("masked_fill")
def masked_fill(x: Tensor, mask: Tensor, value: Any) -> Tensor:
    return mask.where(as_tensor(value).cast(x.dtype), x)


@lowers("addcmul")
def addcmul(x: Tensor, y: Tensor, z: Tensor, *, value: Any = 1) -> Tensor:
    product = y * z
    return x + (product if value == 1 else product * value)


@lowers("addcdiv")
def addcdiv(x: Tensor, y: Tensor, z: Tensor, *, value: Any = 1) -> Tensor:
    quotient = y / z
    return x + (quotient if value == 1 else quotient * value)


@lowers("lerp")
def lerp(x: Tensor, end: Tensor, weight: Any) -> Tensor:
    return x + (end - x) * weight


# ------------------------------------------------------------ activations
@lowers("gelu")
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        return x.gelu()
    return x * (x * math.sqrt(0.5)).erf().add(1) * 0.5


@lowers("silu")
def silu(x: Tensor) -> Tensor:
    return x.silu()


@lowers("mish")
def mish(x: Tensor) -> Tensor:
    return x.mish()


@lowers("hardsigmoid")
def hardsigmoid(x: Tensor) -> Tensor:
    return (x + 3).clip(0, 6) / 6


@lowers("hardswish")
def hardswish(x: Tensor) -> Tensor:
    return x * (x + 3).clip(0, 6) / 6


@lowers("hardtanh")
def hardtanh(x: Tensor, low: Any = -1, high: Any = 1) -> Tensor:
    return x.clip(low, high)


@lowers("leaky_relu")
def leaky_relu(x: Tensor, slope: Any = 0.01) -> Tensor:
    return x.gt(0).where(x, x * slope)


@lowers("elu")
def elu(x: Tensor, alpha: Any = 1.0, scale: Any = 1.0, input_scale: Any = 1.0) -> Tensor:
    return x.gt(0).where(x * scale, expm1(x * input_scale) * (alpha * scale))


@lowers("softplus")
def softplus(x: Tensor, beta: Any = 1, threshold: Any = 20) -> Tensor:
    scaled = x * beta
    return scaled.gt(threshold).where(x, log1p(scaled.exp()) / beta)


@lowers("sigmoid_backward")
def sigmoid_backward(gradient: Tensor, y: Tensor) -> Tensor:
    return gradient * (1 - y) * y


@lowers("tanh_backward")
def tanh_backward(gradient: Tensor, y: Tensor) -> Tensor:
    return gradient * (1 - y * y)


@lowers("threshold_backward")
def threshold_backward(gradient: Tensor, x: Tensor, threshold: Any) -> Tensor:
    return x.le(threshold).where(0, gradient)


@lowers("gelu_backward")
def gelu_backward(gradient: Tensor, x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate == "tanh":
        scale = math.sqrt(2 / math.pi)
        inner = (x + x * x * x * 0.044715) * scale
        slope = inner.tanh()
        outer = (1 - slope * slope) * (x * x * (3 * 0.044715) + 1) * scale
        return gradient * ((slope + 1) * 0.5 + x * outer * 0.5)
    share = ((x * math.sqrt(0.5)).erf() + 1) * 0.5
    return gradient * (share + x * (x * x * -0.5).exp() * (1 / math.sqrt(2 * math.pi)))


@lowers("silu_backward")
def silu_backward(gradient: Tensor, x: Tensor) -> Tensor:
    y = x.sigmoid()
    return gradient * y * (x * (1 - y) + 1)


@lowers("leaky_relu_backward")
def leaky_relu_backward(gradient: Tensor, x: Tensor, slope: Any, is_result: bool) -> Tensor:
    return x.gt(0).where(gradient, gradient * slope)


@lowers("hardtanh_backward")
def hardtanh_backward(gradient: Tensor, x: Tensor, low: Any, high: Any) -> Tensor:
    return (x.le(low) | x.ge(high)).where(0, gradient)


# ------------------------------------------------------------ types
@lowers("_to_copy", "to", call=True)
def to_copy(x: Tensor, *, dtype: Any = None, call: Call, **kwargs: Any) -> Tensor:
    return x if dtype is None else x.cast(call.dtype_of(dtype))


@lowers("view.dtype", call=True)
def view_dtype(x: Tensor, dtype: Any, *, call: Call) -> Tensor:
    return x.bitcast(call.dtype_of(dtype))


def finfo(dtype: DType) -> tuple[float, float]:
    """The least and the greatest finite number of a floating type."""
    exponent, mantissa = dtypes.finfo(dtype)
    most = (2 - 2.0**-mantissa) * 2.0 ** (2 ** (exponent - 1) - 1)
    return -most, most


@lowers("nan_to_num")
def nan_to_num(x: Tensor, nan: Any = None, high: Any = None, low: Any = None) -> Tensor:
    if not is_float(x):
        return x
    most = finfo(x.dtype)[1] if high is None else high
    least = finfo(x.dtype)[0] if low is None else low
    far = x.isinf().where(x.gt(0).where(most, least), x)
    return x.isnan().where(0.0 if nan is None else nan, far)
