"""The elementwise functions of the standard: one row each.

In: tensors, or pairs of them. Out: the rows, by name: what a function takes, what it is for real
numbers, what for complex ones, and what comes out.
Sits between the arithmetic of real numbers and pairs below and the Array above, which checks,
promotes and calls.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.array_api import floats, pairs
from weft.array_api.floats import method
from weft.array_api.types import AnyDType

# kinds of dtypes that functions take, and how a message names them
_ACCEPTED: dict[str, tuple[str, ...]] = {
    "any": ("bool", "int", "uint", "float", "complex"),
    "numeric": ("int", "uint", "float", "complex"),
    "real-valued": ("int", "uint", "float"),
    "floating-point": ("float", "complex"),
    "real floating-point": ("float",),
    "complex": ("complex",),
    "integer": ("int", "uint"),
    "integer or boolean": ("int", "uint", "bool"),
    "boolean": ("bool",),
}


@dataclass(frozen=True)
class Function:
    """One row: `gives` is "same" (the dtype of the operands), "bool", or "part" of a complex."""

    takes: str
    real: Callable[..., Any] | None
    pair: Callable[..., Any] | None = None
    gives: str = "same"

    def accepts(self, dtype: AnyDType) -> bool:
        """Whether operands of this dtype are in the domain of the function."""
        return dtype.kind in _ACCEPTED[self.takes]


def _same(x: Any) -> Any:
    return x


def _whole(name: str) -> Callable[..., Any]:
    """A rounding method, which leaves ints as they are."""

    def call(x: Any) -> Any:
        return getattr(x, name)() if x.dtype.kind == "float" else x

    return call


def _by_kind(of_floats: Callable[..., Any], of_ints: str) -> Callable[..., Any]:
    """One function for floats, a method for ints."""

    def call(x: Any, y: Any) -> Any:
        return of_floats(x, y) if x.dtype.kind == "float" else getattr(x, of_ints)(y)

    return call


def _either(test: Callable[..., Any]) -> Callable[..., Any]:
    """Whether a test holds of a part."""
    return lambda z: test(z[0]) | test(z[1])


def _no(x: Any) -> Any:
    return x.ne(x) & x.eq(x)


def _float_test(name: str) -> Callable[..., Any]:
    """A test of floats; of ints it is False."""
    return lambda x: getattr(x, name)() if x.dtype.kind == "float" else _no(x)


def _is_finite(x: Any) -> Any:
    return x.isfinite() if x.dtype.kind == "float" else x.eq(x)


def _float(name: str, pair: Callable[..., Any]) -> Function:
    return Function("floating-point", method(name), pair)


def _compare(name: str) -> Function:
    return Function("real-valued", method(name), gives="bool")


def _bitwise(name: str) -> Function:
    return Function("integer or boolean", method(name))


FUNCTIONS: dict[str, Function] = {
    "abs": Function("numeric", method("abs"), pairs.magnitude, gives="part"),
    "acos": _float("acos", pairs.acos),
    "acosh": _float("acosh", pairs.acosh),
    "add": Function("numeric", method("add"), pairs.add),
    "asin": _float("asin", pairs.asin),
    "asinh": _float("asinh", pairs.asinh),
    "atan": _float("atan", pairs.atan),
    "atan2": Function("real floating-point", floats.atan2),
    "atanh": _float("atanh", pairs.atanh),
    "bitwise_and": _bitwise("bitwise_and"),
    "bitwise_invert": _bitwise("bitwise_not"),
    "bitwise_left_shift": Function("integer", method("lshift")),
    "bitwise_or": _bitwise("bitwise_or"),
    "bitwise_right_shift": Function("integer", method("rshift")),
    "bitwise_xor": _bitwise("bitwise_xor"),
    "ceil": Function("real-valued", _whole("ceil")),
    "conj": Function("numeric", _same, pairs.conjugate),
    "copysign": Function("real floating-point", floats.copysign),
    "cos": _float("cos", pairs.cos),
    "cosh": _float("cosh", pairs.cosh),
    "divide": Function("floating-point", method("div"), pairs.divide),
    "equal": Function("any", method("eq"), pairs.equal, gives="bool"),
    "exp": _float("exp", pairs.exp),
    "expm1": Function("floating-point", floats.expm1_real, pairs.expm1),
    "floor": Function("real-valued", _whole("floor")),
    "floor_divide": Function("real-valued", _by_kind(floats.floor_divide, "idiv")),
    "greater": _compare("gt"),
    "greater_equal": _compare("ge"),
    "hypot": Function("real floating-point", floats.hypot),
    "imag": Function("complex", None, lambda z: z[1], gives="part"),
    "isfinite": Function(
        "numeric", _is_finite, lambda z: z[0].isfinite() & z[1].isfinite(), gives="bool"
    ),
    "isinf": Function("numeric", _float_test("isinf"), _either(method("isinf")), gives="bool"),
    "isnan": Function("numeric", _float_test("isnan"), _either(method("isnan")), gives="bool"),
    "less": _compare("lt"),
    "less_equal": _compare("le"),
    "log": _float("log", pairs.log),
    "log10": _float("log10", pairs.log10),
    "log1p": Function("floating-point", floats.log1p, pairs.log1p_pair),
    "log2": _float("log2", pairs.log2),
    "logaddexp": Function("real floating-point", method("logaddexp")),
    "logical_and": Function("boolean", method("bitwise_and")),
    "logical_not": Function("boolean", method("logical_not")),
    "logical_or": Function("boolean", method("bitwise_or")),
    "logical_xor": Function("boolean", method("bitwise_xor")),
    "maximum": Function("real-valued", method("maximum")),
    "minimum": Function("real-valued", method("minimum")),
    "multiply": Function("numeric", method("mul"), pairs.multiply),
    "negative": Function("numeric", method("neg"), pairs.negative),
    "nextafter": Function("real floating-point", floats.nextafter),
    "not_equal": Function(
        "any", method("ne"), lambda x, y: pairs.equal(x, y).logical_not(), gives="bool"
    ),
    "positive": Function("numeric", _same, _same),
    "pow": Function("numeric", method("pow"), pairs.power),
    "real": Function("numeric", _same, lambda z: z[0], gives="part"),
    "reciprocal": Function("floating-point", floats.reciprocal, pairs.reciprocal),
    "remainder": Function("real-valued", _by_kind(floats.remainder, "mod")),
    "round": Function("numeric", _whole("round"), lambda z: (z[0].round(), z[1].round())),
    "sign": Function("numeric", floats.sign, pairs.sign),
    "signbit": Function("real floating-point", floats.signbit, gives="bool"),
    "sin": _float("sin", pairs.sin),
    "sinh": _float("sinh", pairs.sinh),
    "sqrt": _float("sqrt", pairs.sqrt),
    "square": Function("numeric", lambda x: x * x, pairs.square),
    "subtract": Function("numeric", method("sub"), pairs.subtract),
    "tan": _float("tan", pairs.tan),
    "tanh": _float("tanh", pairs.tanh),
    "trunc": Function("real-valued", _whole("trunc")),
}
