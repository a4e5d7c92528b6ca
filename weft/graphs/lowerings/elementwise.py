"""Operators that work on each element alone.

In: Tensors. Out: Tensors of the broadcast shape. A family of the table of lowerings.
Invariant: results are of the type that the operator's definition gives, not of weft's promotion.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from weft.dtype import computing_dtype, dtypes, least_upper_dtype
from weft.graphs.table import lowers, refuse
from weft.tensor import Tensor


# ------------------------------------------------------------ one operand
def _unary(name: str, function: Callable[[Tensor], Tensor]) -> None:
    def lowered(x: Tensor, *, consumed_inputs: Any = None) -> Tensor:
        return function(x).cast(x.dtype)

    lowers(name)(lowered)


_UNARY: dict[str, Any] = {
    "Abs": Tensor.abs,
    "Acos": Tensor.acos,
    "Acosh": Tensor.acosh,
    "Asin": Tensor.asin,
    "Asinh": Tensor.asinh,
    "Atan": Tensor.atan,
    "Atanh": Tensor.atanh,
    "Ceil": Tensor.ceil,
    "Cos": Tensor.cos,
    "Cosh": Tensor.cosh,
    "Erf": Tensor.erf,
    "Exp": Tensor.exp,
    "Floor": Tensor.floor,
    "HardSwish": Tensor.hardswish,
    "Log": Tensor.log,
    "Mish": Tensor.mish,
    "Neg": Tensor.neg,
    "Reciprocal": Tensor.reciprocal,
    "Relu": Tensor.relu,
    "Round": Tensor.round,
    "Sigmoid": Tensor.sigmoid,
    "Sign": Tensor.sign,
    "Sin": Tensor.sin,
    "Sinh": Tensor.sinh,
    "Softplus": Tensor.softplus,
    "Softsign": Tensor.softsign,
    "Sqrt": Tensor.sqrt,
    "Tan": Tensor.tan,
    "Tanh": Tensor.tanh,
}
for _name, _function in _UNARY.items():
    _unary(_name, _function)


@lowers("Not")
def logical_not(x: Tensor) -> Tensor:
    return x.logical_not()


@lowers("BitwiseNot", since=18)
def bitwise_not(x: Tensor) -> Tensor:
    return x.bitwise_not()


@lowers("IsNaN", since=9)
def is_nan(x: Tensor) -> Tensor:
    return x.isnan()


@lowers("IsInf", since=10)
def is_inf(x: Tensor, *, detect_negative: int = 1, detect_positive: int = 1) -> Tensor:
    return x.isinf(bool(detect_positive), bool(detect_negative))


# ------------------------------------------------------------ activations with parameters
@lowers("LeakyRelu")
def leaky_relu(x: Tensor, *, alpha: float = 0.01, consumed_inputs: Any = None) -> Tensor:
    return x.leaky_relu(alpha).cast(x.dtype)


@lowers("Elu")
def elu(x: Tensor, *, alpha: float = 1.0, consumed_inputs: Any = None) -> Tensor:
    return x.elu(alpha).cast(x.dtype)


@lowers("Celu", since=12)
def celu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x.celu(alpha).cast(x.dtype)


@lowers("Selu")
def selu(
    x: Tensor,
    *,
    alpha: float = 1.67326319217681884765625,
    gamma: float = 1.05070102214813232421875,
    consumed_inputs: Any = None,
) -> Tensor:
    return x.selu(alpha, gamma).cast(x.dtype)


@lowers("HardSigmoid")
def hard_sigmoid(
    x: Tensor, *, alpha: float = 0.2, beta: float = 0.5, consumed_inputs: Any = None
) -> Tensor:
    return (x * alpha + beta).clip(0, 1).cast(x.dtype)


@lowers("ThresholdedRelu", since=10)
def thresholded_relu(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return (x > alpha).where(x, 0).cast(x.dtype)


@lowers("Shrink", since=9)
def shrink(x: Tensor, *, bias: float = 0.0, lambd: float = 0.5) -> Tensor:
    kept = (x > lambd).where(x - bias, 0)
    return (x < -lambd).where(x + bias, kept).cast(x.dtype)


@lowers("Gelu", since=20)
def gelu(x: Tensor, *, approximate: str = "none") -> Tensor:
    return x.gelu(approximate).cast(x.dtype)


@lowers("Swish", since=24)
def swish(x: Tensor, *, alpha: float = 1.0) -> Tensor:
    return x * (x * alpha).sigmoid()


@lowers("SwiGLU", since=28)
def swiglu(a: Tensor, b: Tensor, *, alpha: float = 1.0) -> Tensor:
    return (a * (a * alpha).sigmoid() * b).cast(a.dtype)


@lowers("PRelu")
def prelu(x: Tensor, slope: Tensor, *, consumed_inputs: Any = None) -> Tensor:
    if slope.ndim == 1 and x.ndim > 2 and slope.shape[0] == x.shape[1] != x.shape[-1]:
        slope = slope.reshape((-1, *[1] * (x.ndim - 2)))
    return (x < 0).where(x * slope, x).cast(x.dtype)


@lowers("Clip")
def clip_by_attributes(
    x: Tensor,
    *,
    min: float = -math.inf,  # noqa: A002
    max: float = math.inf,  # noqa: A002
    consumed_inputs: Any = None,
) -> Tensor:
    return x.maximum(min).minimum(max).cast(x.dtype)


@lowers("Clip", since=11)
def clip(x: Tensor, least: Tensor | None = None, most: Tensor | None = None) -> Tensor:
    found = x if least is None else x.maximum(least.reshape(()))
    return found if most is None else found.minimum(most.reshape(()))


# ------------------------------------------------------------ two operands
def aligned(a: Tensor, b: Tensor, broadcast: int, axis: int | None) -> Tensor:
    """The second operand as the first versions of ONNX broadcast it: from an axis on."""
    if not broadcast or axis is None or b.ndim == 0:
        return b
    place = axis % a.ndim
    return b.reshape((*b.shape, *[1] * (a.ndim - place - b.ndim)))


def _binary(name: str, function: Callable[[Tensor, Tensor], Tensor], since: int = 7) -> None:
    def lowered(a: Tensor, b: Tensor) -> Tensor:
        return function(a, b)

    def by_axis(
        a: Tensor,
        b: Tensor,
        *,
        broadcast: int = 0,
        axis: int | None = None,
        consumed_inputs: Any = None,
    ) -> Tensor:
        return function(a, aligned(a, b, broadcast, axis))

    if since == 7:
        lowers(name)(by_axis)
    lowers(name, since=since)(lowered)


def divide(a: Tensor, b: Tensor) -> Tensor:
    """A quotient; of whole numbers the one rounded towards zero."""
    return a / b if dtypes.is_float(a.dtype) else a.div(b, rounding_mode="trunc")


def power(a: Tensor, b: Tensor) -> Tensor:
    """A power of the type of its base."""
    if dtypes.is_float(b.dtype) and not dtypes.is_float(a.dtype):
        return a.cast(least_upper_dtype(a.dtype, b.dtype)).pow(b).cast(a.dtype)
    if dtypes.is_float(a.dtype):
        return a.pow(b.cast(a.dtype))
    return _integer_power(a, b)


def _integer_power(a: Tensor, b: Tensor) -> Tensor:
    """By squaring, exact as far as the type reaches; to a negative power, 1, -1 or 0."""
    total = (a * 0 + 1) * (b * 0 + 1).cast(a.dtype)
    square, rest = a, b.maximum(0)
    # a higher power of anything but 0, 1 and -1 is beyond every type
    for _ in range(7):
        total = (rest % 2).ne(0).where(total * square, total)
        square, rest = square * square, rest // 2
    small = (a.abs() if not dtypes.is_unsigned(a.dtype) else a) <= 1
    odd = (b % 2).ne(0)
    sign = odd.where(a, a * a)
    total = (small & (b > 63)).where(sign, total)
    return (b < 0).where(small.where(sign, 0), total).cast(a.dtype)


for _name, _two in {
    "Add": lambda a, b: a + b,
    "Sub": lambda a, b: a - b,
    "Mul": lambda a, b: a * b,
    "Div": divide,
    "Pow": power,
    "And": lambda a, b: a & b,
    "Or": lambda a, b: a | b,
    "Xor": lambda a, b: a ^ b,
    "Equal": lambda a, b: a.eq(b),
    "Greater": lambda a, b: a > b,
    "Less": lambda a, b: a < b,
}.items():
    _binary(_name, _two)
for _name, _two in {
    "GreaterOrEqual": lambda a, b: a >= b,
    "LessOrEqual": lambda a, b: a <= b,
}.items():
    _binary(_name, _two, since=12)
for _name, _two in {
    "BitwiseAnd": lambda a, b: a & b,
    "BitwiseOr": lambda a, b: a | b,
    "BitwiseXor": lambda a, b: a ^ b,
}.items():
    _binary(_name, _two, since=18)


@lowers("BitShift", since=11)
def bit_shift(a: Tensor, b: Tensor, *, direction: str) -> Tensor:
    bits = a.dtype.itemsize * 8
    if direction not in ("LEFT", "RIGHT"):
        raise refuse(f"direction is LEFT or RIGHT, found {direction!r}")
    inside = b < bits
    amount = inside.where(b, 0)
    if direction == "LEFT":
        return inside.where(a << amount, 0).cast(a.dtype)
    # of a negative number the sign is shifted in
    beyond = 0 if dtypes.is_unsigned(a.dtype) else (a < 0).where(-1, 0)
    return inside.where(a >> amount, beyond).cast(a.dtype)


@lowers("Mod", since=10)
def modulo(a: Tensor, b: Tensor, *, fmod: int = 0) -> Tensor:
    if not fmod:
        return a % b
    if dtypes.is_float(a.dtype):
        return a.fmod(b)
    return a - divide(a, b) * b


@lowers("Where", since=9)
def where(condition: Tensor, x: Tensor, y: Tensor) -> Tensor:
    return condition.where(x, y)


# ------------------------------------------------------------ as many operands as there are
def _fold_all(name: str, function: Callable[[Tensor, Tensor], Tensor]) -> None:
    def lowered(*operands: Tensor, consumed_inputs: Any = None) -> Tensor:
        if not operands:
            raise refuse("needs at least one input")
        return functools.reduce(function, operands)

    lowers(name)(lowered)


_fold_all("Max", lambda a, b: a.maximum(b))
_fold_all("Min", lambda a, b: a.minimum(b))
_fold_all("Sum", lambda a, b: a + b)


@lowers("Mean")
def mean_of(*operands: Tensor, consumed_inputs: Any = None) -> Tensor:
    wide = computing_dtype(operands[0].dtype)
    total = functools.reduce(lambda a, b: a + b, [x.cast(wide) for x in operands])
    return (total / len(operands)).cast(operands[0].dtype)


# ------------------------------------------------------------ along an axis, all elements kept
def _flattened(x: Tensor, axis: int, function: Callable[[Tensor], Tensor]) -> Tensor:
    """Applied to the matrix whose rows are the axes before `axis`, as versions below 13 do."""
    place = axis % x.ndim if x.ndim else 0
    rows = math.prod(x.shape[:place])
    columns = math.prod(x.shape[place:])
    return function(x.reshape((rows, columns))).reshape(x.shape)


def hardmax_along(x: Tensor, axis: int) -> Tensor:
    """1 at the first greatest element, else 0."""
    place = axis % x.ndim
    best = x.argmax(place, keepdim=True)
    shape = [x.shape[place] if i == place else 1 for i in range(x.ndim)]
    return Tensor.arange(x.shape[place]).reshape(shape).eq(best).cast(x.dtype)


_ALONG: dict[str, Callable[[Tensor, int], Tensor]] = {
    "Softmax": lambda x, axis: x.softmax(axis).cast(x.dtype),
    "LogSoftmax": lambda x, axis: x.log_softmax(axis).cast(x.dtype),
    "Hardmax": hardmax_along,
}


def _along(name: str, function: Callable[[Tensor, int], Tensor]) -> None:
    def of_rows(x: Tensor, *, axis: int = 1) -> Tensor:
        return _flattened(x, axis, lambda rows: function(rows, 1))

    def along(x: Tensor, *, axis: int = -1) -> Tensor:
        return function(x, axis)

    lowers(name)(of_rows)
    lowers(name, since=13)(along)


for _name, _one in _ALONG.items():
    _along(_name, _one)
