"""Functions of one value: the table's rows for unary methods, activations and casts.

In: the domain of each. Out: `ROWS`.
Sits above `row.py`. Invariant: each runs on a shape with a tail, a scalar, nothing, and its edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from test.methods.row import (
    ALL,
    FLOATS,
    INTS,
    NUMBERS,
    Case,
    Input,
    Row,
    always,
    boolean,
    case,
    floated,
    given,
    same,
)
from test.optional import optional
from weft import dtypes

scipy = optional("scipy")

INF, NAN = math.inf, math.nan
EDGES = (
    0.0,
    -0.0,
    1.0,
    -1.0,
    0.5,
    -0.5,
    2.5,
    -1.5,
    700.0,
    -700.0,
    INF,
    -INF,
    NAN,
    3e4,
    1e-6,
    -1e-6,
)
FUNCTION = (*FLOATS, "int32", "uint8", "bool")


def unary_cases(low: float, high: float, kwargs: dict[str, Any] | None = None) -> tuple[Case, ...]:
    """A shape with a tail, a scalar, nothing, the edges."""
    options = kwargs or {}
    shapes = [Input(shape, low, high) for shape in ((3, 35), (), (0, 4))]
    return tuple(Case((each,), (), options) for each in (*shapes, given(EDGES)))


def function(
    name: str,
    reference: Callable[..., Any],
    low: float = -3.0,
    high: float = 3.0,
    *more: Case,
    **options: Any,
) -> Row:
    """A row of a function of one value."""
    settings: dict[str, Any] = {"dtypes": FUNCTION, "result": floated, **options}
    return Row(name, reference, (*unary_cases(low, high), *more), **settings)


def wide(low: float, high: float, **kwargs: Any) -> Case:
    """One more case, with options."""
    return case(Input((2, 7), low, high), **kwargs)


def _logaddexp0(x: Any) -> Any:
    return np.logaddexp(0, x)


def _elu(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0)))


def _celu(x: Any, alpha: float = 1.0) -> Any:
    return np.where(x > 0, x, alpha * np.expm1(np.minimum(x, 0) / alpha))


def _gelu(x: Any, approximate: str = "tanh") -> Any:
    if approximate == "none":
        return x * scipy.special.ndtr(x)
    return x * 0.5 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def _hardtanh(x: Any, min_val: float = -1, max_val: float = 1) -> Any:
    # ints stay ints, as in PyTorch: the bounds become ints too
    return np.clip(x, np.asarray(min_val).astype(x.dtype), np.asarray(max_val).astype(x.dtype))


TRANSCENDENTAL = (
    function("exp", np.exp, -80.0, 80.0),
    function("exp2", np.exp2, -14.0, 14.0),
    function("log", np.log, 0.001, 200.0),
    function("log2", np.log2, 0.001, 200.0),
    function("log10", np.log10, 0.001, 200.0),
    function("sqrt", np.sqrt, 0.001, 200.0),
    function("rsqrt", lambda x: 1 / np.sqrt(x), 0.01, 200.0),
    function("reciprocal", lambda x: 1 / x, 0.01, 200.0),
    function("sin", np.sin, -30.0, 30.0),
    function("cos", np.cos, -30.0, 30.0),
    function("tan", np.tan, -1.5, 1.5),
    function("asin", np.arcsin, -1.0, 1.0),
    function("acos", np.arccos, -1.0, 1.0),
    function("atan", np.arctan, -30.0, 30.0),
    function("sinh", np.sinh, -10.0, 10.0),
    function("cosh", np.cosh, -10.0, 10.0),
    function("tanh", np.tanh),
    function("asinh", np.arcsinh, -30.0, 30.0),
    function("acosh", np.arccosh, 1.0, 200.0),
    function("atanh", np.arctanh, -0.99, 0.99),
    function("erf", scipy.special.erf),
    function("sigmoid", scipy.special.expit, -20.0, 20.0),
)

ACTIVATIONS = (
    function("relu", lambda x: np.maximum(x, 0), dtypes=NUMBERS, result=same),
    function("relu6", lambda x: np.clip(x, 0, 6), -8.0, 8.0, dtypes=NUMBERS, result=same),
    function(
        "leaky_relu",
        lambda x, neg_slope=0.01: np.where(x < 0, x * neg_slope, x),
        -3.0,
        3.0,
        wide(-3, 3, neg_slope=0.25),
    ),
    function("elu", _elu, -9.0, 3.0, wide(-3, 3, alpha=0.5)),
    function("celu", _celu, -9.0, 3.0, wide(-3, 3, alpha=0.5)),
    function(
        "selu",
        lambda x, alpha=1.67326, gamma=1.0507: gamma * _elu(x, alpha),
        -9.0,
        3.0,
        wide(-3, 3, alpha=1.0, gamma=2.0),
    ),
    function("silu", lambda x: x * scipy.special.expit(x), -9.0, 9.0),
    function("swish", lambda x: x * scipy.special.expit(x), -9.0, 9.0),
    function("gelu", _gelu, -5.0, 5.0, wide(-5, 5, approximate="none")),
    function("quick_gelu", lambda x: x * scipy.special.expit(1.702 * x), -9.0, 9.0),
    function(
        "hardsigmoid",
        lambda x, alpha=1 / 6, beta=0.5: np.clip(alpha * x + beta, 0, 1),
        -5.0,
        5.0,
        wide(-3, 3, alpha=0.25, beta=0.25),
    ),
    function("hardswish", lambda x: x * np.clip(x + 3, 0, 6) / 6, -5.0, 5.0),
    function(
        "hardtanh",
        _hardtanh,
        -3.0,
        3.0,
        wide(-3, 3, min_val=-0.5, max_val=2.0),
        dtypes=(*FLOATS, "int32"),
        result=same,
    ),
    function(
        "softplus",
        lambda x, beta=1.0: _logaddexp0(x * beta) / beta,
        -20.0,
        20.0,
        wide(-9, 9, beta=2.0),
    ),
    function("mish", lambda x: x * np.tanh(_logaddexp0(x)), -9.0, 9.0),
    function("logsigmoid", lambda x: -_logaddexp0(-x), -20.0, 20.0),
    function("softsign", lambda x: x / (1 + np.abs(x)), -9.0, 9.0),
)

# rounding a float of another dtype is exact, and so is every sign
ROUNDING = (
    function("abs", np.abs, dtypes=ALL, result=same),
    function("sign", lambda x: x if x.dtype == bool else np.sign(x), dtypes=ALL, result=same),
    function("floor", np.floor, dtypes=NUMBERS, result=same),
    function("ceil", np.ceil, dtypes=NUMBERS, result=same),
    function("trunc", np.trunc, dtypes=NUMBERS, result=same),
    function("round", np.round, dtypes=NUMBERS, result=same),
    function("neg", lambda x: ~x if x.dtype == bool else -x, dtypes=ALL, result=same),
    function("square", lambda x: x * x, dtypes=ALL, result=same),
    function(
        "inverse",
        lambda x: -x if x.dtype.kind == "f" else ~x,
        dtypes=ALL,
        result=same,
    ),
)

BITS = (
    Row(
        "bitwise_not",
        np.invert,
        (case((3, 35)), case(()), case((0, 4))),
        (*INTS, "bool"),
        gradient=False,
    ),
)

TESTS = (
    function("isnan", np.isnan, dtypes=ALL, result=boolean, gradient=False),
    function(
        "isinf",
        lambda x, detect_positive=True, detect_negative=True: (
            (detect_positive & (x == INF)) | (detect_negative & (x == -INF))
        ),
        -3.0,
        3.0,
        case(given(EDGES), detect_positive=False),
        case(given(EDGES), detect_negative=False),
        case(given(EDGES), detect_positive=False, detect_negative=False),
        dtypes=ALL,
        result=boolean,
        gradient=False,
    ),
    function("isfinite", np.isfinite, dtypes=ALL, result=boolean, gradient=False),
    function("logical_not", np.logical_not, dtypes=ALL, result=boolean, gradient=False),
)


def _cast(target: str) -> Callable[..., Any]:
    def reference(x: Any, **kwargs: Any) -> Any:
        name = kwargs["dtype"].name if kwargs else target
        if x.dtype.kind == "f" and name.startswith(("int", "uint")):
            limits = np.iinfo(name)
            # out of range saturates, and nan is zero
            clipped = np.clip(np.nan_to_num(np.trunc(x)), float(limits.min), float(limits.max))
            low, high = x <= float(limits.min), x >= float(limits.max)
            safe = np.where(low | high, 0, clipped).astype(name)
            return np.where(high, limits.max, np.where(low, limits.min, safe)).astype(name)
        return x if name.startswith(("float", "bfloat")) else x.astype(name)

    return reference


def _named_cast(name: str, target: str) -> Row:
    return function(
        name,
        _cast(target),
        dtypes=ALL,
        result=always(target),
        gradient=target.startswith(("float", "bfloat")),
    )


CASTS = (
    _named_cast("float", "float32"),
    _named_cast("double", "float64"),
    _named_cast("half", "float16"),
    _named_cast("bfloat16", "bfloat16"),
    _named_cast("int", "int32"),
    _named_cast("long", "int64"),
    _named_cast("short", "int16"),
    _named_cast("bool", "bool"),
    *[
        Row(
            "cast",
            _cast(""),
            (case((3, 35), dtype=target), case((), dtype=target), case(given(EDGES), dtype=target)),
            ALL,
            always(target.name),
            gradient=dtypes.is_float(target),
        )
        for target in (
            dtypes.uint8,
            dtypes.int8,
            dtypes.uint32,
            dtypes.uint64,
            dtypes.float64,
            dtypes.float16,
        )
    ],
)


def _bitcast(x: Any, dtype: Any) -> Any:
    return x.view(dtype.name)


BITCASTS = tuple(
    Row(
        "bitcast",
        _bitcast,
        tuple(
            case(Input(shape, 0, 100), dtype=target)
            for shape in ((3, 8), (0, 8), *([()] if source[-2:] == target.name[-2:] else []))
        ),
        (source,),
        always(target.name),
        gradient=False,
    )
    for source, target in (
        ("int32", dtypes.uint32),
        ("int32", dtypes.uint8),
        ("uint8", dtypes.int32),
        ("int64", dtypes.int32),
        ("uint32", dtypes.int64),
        ("int8", dtypes.uint32),
        ("int32", dtypes.float32),
        ("int64", dtypes.float64),
    )
)

ROWS = (*TRANSCENDENTAL, *ACTIVATIONS, *ROUNDING, *BITS, *TESTS, *CASTS, *BITCASTS)
