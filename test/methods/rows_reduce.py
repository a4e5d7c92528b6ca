"""Reductions over axes and along them: sums, extremes, statistics, scans, softmaxes, norms.

In: shapes and axes. Out: `ROWS`.
Sits above `row.py`. Invariant: each is run over all axes, one, several, negative ones, with and
without `keepdim`, on a scalar, and where it is defined on nothing.
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
    boolean,
    case,
    floated,
    given,
    places,
    same,
    summed,
)
from test.optional import optional
from weft import dtypes

scipy = optional("scipy")

Function = Callable[..., Any]
INF, NAN = math.inf, math.nan
SPECIAL = given([[1.0, NAN, 2.0], [INF, 1.0, 0.0], [-INF, 0.0, 1.0], [INF, -INF, 1.0], [0, 0, 0]])


def axes_cases(low: float, high: float, empty: bool = True, several: bool = True) -> list[Case]:
    """Over all axes, one, several, negative ones; a scalar; nothing."""

    def shaped(shape: tuple[int, ...], **kwargs: Any) -> Case:
        return case(Input(shape, low, high), **kwargs)

    cases = [
        shaped((3, 35), axis=1),
        shaped((3, 35)),
        shaped((2, 3, 4), axis=0),
        shaped((2, 3, 4), axis=-2, keepdim=True),
        shaped((2, 3, 4), keepdim=True),
        shaped(()),
        shaped((2, 1, 3), axis=1),
        shaped((5, 0, 3), axis=2),
    ]
    if several:
        cases += [shaped((2, 3, 4), axis=(0, -1)), shaped((2, 3, 4), axis=(1, 2), keepdim=True)]
    if empty:
        cases += [shaped((5, 0, 3), axis=1), shaped((0,))]
    return cases


def numpy_reduction(function: Function) -> Function:
    """The NumPy function with PyTorch's names of arguments."""

    def reference(x: Any, axis: Any = None, keepdim: bool = False, **kwargs: Any) -> Any:
        return function(x, axis=axis, keepdims=keepdim, **kwargs)

    return reference


def terms(x: Any, axis: Any = None, keepdim: bool = False, **kwargs: Any) -> tuple[int, Any]:
    """How many terms a sum has, and the sum of their sizes."""
    total = np.sum(np.abs(x), axis=axis, keepdims=keepdim)
    return max(1, x.size // max(1, total.size)), total


def mean_terms(x: Any, axis: Any = None, keepdim: bool = False) -> tuple[int, Any]:
    """The terms of a mean."""
    count, total = terms(x, axis, keepdim)
    return count, total / count


def _sum(x: Any, axis: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if x.dtype.kind == "f":
        total = np.sum(x, axis=axis, keepdims=keepdim)
        return total if dtype is None or dtypes.is_float(dtype) else np.trunc(total)
    wide = summed(x.dtype.name) if dtype is None else dtype.name
    return np.sum(x, axis=axis, keepdims=keepdim, dtype=wide)


def _prod(x: Any, axis: Any = None, keepdim: bool = False, dtype: Any = None) -> Any:
    if x.dtype.kind == "f":
        return np.prod(x, axis=axis, keepdims=keepdim)
    wide = summed(x.dtype.name) if dtype is None else dtype.name
    return np.prod(x, axis=axis, keepdims=keepdim, dtype=wide)


def _spread(function: Function) -> Function:
    def reference(x: Any, axis: Any = None, keepdim: bool = False, correction: int = 1) -> Any:
        return function(x, axis=axis, keepdims=keepdim, ddof=correction)

    return reference


def _with_mean(function: Function) -> Function:
    def reference(x: Any, axis: Any = None, keepdim: bool = False, correction: int = 1) -> Any:
        mean = np.mean(x, axis=axis, keepdims=keepdim)
        return _spread(function)(x, axis, keepdim, correction), mean

    return reference


def _arg(function: Function) -> Function:
    def reference(x: Any, axis: Any = None, keepdim: bool = False) -> Any:
        if x.ndim == 0:
            return np.zeros((), dtype=np.int32)
        # the place of a nan, and the first of several
        found = function(x, axis=axis, keepdims=keepdim)
        return np.asarray(found, dtype=np.int32)

    return reference


def _logsumexp(x: Any, axis: Any = None, keepdim: bool = False) -> Any:
    greatest = np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    shift = np.where(np.isfinite(greatest), greatest, 0)
    total = np.log(np.sum(np.exp(x - shift), axis=axis, keepdims=True)) + shift
    return total if keepdim else total.reshape(np.sum(x, axis=axis).shape)


SPREAD_CASES = (
    *[c for c in axes_cases(-3, 3, empty=False) if c.inputs[0].shape not in ((), (2, 1, 3))],
    case((3, 4), axis=1, correction=0),
    case((3, 4), correction=2),
    case(given([[1e4, 1e4 + 1, 1e4 + 2]]), axis=1),
    case(SPECIAL, axis=1),
)

REDUCTIONS = (
    Row("sum", _sum, tuple(axes_cases(-3, 3)), ALL, summed, terms=terms),
    Row(
        "sum",
        _sum,
        (case((3, 35), axis=1, dtype=dtypes.float64),),
        ("float32", "float16", "int32", "bool"),
        lambda dtype: "float64",
    ),
    Row(
        "sum",
        _sum,
        (case((3, 35), axis=1, dtype=dtypes.int64),),
        (*INTS, "bool"),
        lambda dtype: "int64",
        gradient=False,
    ),
    Row("prod", _prod, tuple(axes_cases(-1.5, 1.5)), ALL, summed),
    Row(
        "prod",
        _prod,
        (case((3, 9), axis=1, dtype=dtypes.float32),),
        ("float16", "float32"),
        lambda dtype: "float32",
    ),
    Row(
        "max",
        numpy_reduction(np.max),
        (*axes_cases(-3, 3, empty=False), case(SPECIAL, axis=1)),
        ALL,
    ),
    Row(
        "min",
        numpy_reduction(np.min),
        (*axes_cases(-3, 3, empty=False), case(SPECIAL, axis=1)),
        ALL,
    ),
    Row("mean", numpy_reduction(np.mean), tuple(axes_cases(-3, 3)), ALL, floated, terms=mean_terms),
    Row("any", numpy_reduction(np.any), tuple(axes_cases(0, 1)), ALL, boolean, gradient=False),
    Row("all", numpy_reduction(np.all), tuple(axes_cases(0, 1)), ALL, boolean, gradient=False),
    Row("var", _spread(np.var), SPREAD_CASES, (*FLOATS, "int32"), floated),
    Row("std", _spread(np.std), SPREAD_CASES, (*FLOATS, "int32"), floated),
    Row("var_mean", _with_mean(np.var), SPREAD_CASES, (*FLOATS, "int32"), floated),
    Row("std_mean", _with_mean(np.std), SPREAD_CASES, (*FLOATS, "int32"), floated),
    *[
        Row(
            name,
            _arg(getattr(np, name)),
            (
                *axes_cases(-3, 3, empty=False, several=False),
                case(given([[1.0, 5.0, 5.0], [NAN, 7.0, NAN]]), axis=1),
                case(given([[3.0, 3.0], [-INF, -INF], [INF, INF]]), axis=1),
            ),
            ALL,
            places,
            gradient=False,
        )
        for name in ("argmax", "argmin")
    ],
    Row(
        "logsumexp",
        _logsumexp,
        (*axes_cases(-9, 9), case(SPECIAL, axis=1), case(given([-1e3, -1e3, 9e2]))),
        (*FLOATS, "int32"),
        floated,
    ),
)


# ------------------------------------------------------------ softmaxes
def _softmax(x: Any, axis: Any = -1, dtype: Any = None) -> Any:
    return np.ones(x.shape) if x.ndim * x.size == 0 else scipy.special.softmax(x, axis=axis)


def _log_softmax(x: Any, axis: Any = -1, dtype: Any = None) -> Any:
    return np.zeros(x.shape) if x.ndim * x.size == 0 else scipy.special.log_softmax(x, axis=axis)


def _softmax_rows(name: str, reference: Function) -> tuple[Row, ...]:
    cases = [case(Input(s, -9, 9), axis=a) for s, a in (((3, 35), 0), ((2, 3, 4), 1), ((3, 4), -2))]
    cases = [case(Input((3, 35), -9, 9)), *cases, case(()), case((0, 3)), case((3, 0))]
    cases += [case(Input((2, 3, 4), -9, 9), axis=(0, 2)), case(given([1e4, 0.0, -1e4]))]
    wide = case((3, 9), axis=-1, dtype=dtypes.float32)
    return (
        Row(name, reference, tuple(cases), (*FLOATS, "int32"), floated),
        Row(name, reference, (wide,), ("float16", "float64"), lambda dtype: "float32"),
    )


SOFTMAXES = (
    *_softmax_rows("softmax", _softmax),
    *_softmax_rows("softmin", lambda x, axis=-1, dtype=None: _softmax(-x, axis)),
    *_softmax_rows("log_softmax", _log_softmax),
)


# ------------------------------------------------------------ scans
def scan_cases(low: float, high: float, length: int = 35) -> tuple[Case, ...]:
    """Along each axis, short and long, of a scalar, of one element, of nothing."""
    shapes = (((3, length), 1), ((3, 4), 0), ((2, 3, 4), -2), ((), 0), ((1,), 0), ((0,), 0))
    shapes = (*shapes, ((3, 0), 0), ((3, 0), -1), ((2, 300), -1))
    return tuple(case(Input(shape, low, high), axis=axis) for shape, axis in shapes)


def _scan(function: Function) -> Function:
    def reference(x: Any, axis: int = 0) -> Any:
        wide = x if x.dtype.kind == "f" else x.astype(summed(x.dtype.name))
        return wide if x.ndim == 0 else function(wide, axis=axis, dtype=wide.dtype)

    return reference


def _extreme_scan(function: Any, beats: Function) -> Function:
    def reference(x: Any, axis: int = 0) -> Any:
        if x.ndim == 0:
            return x, np.zeros((), dtype=np.int32)
        values = function.accumulate(x, axis=axis)
        position = np.arange(x.shape[axis]).reshape([-1 if i == axis % x.ndim else 1
                                                     for i in range(x.ndim)])  # fmt: skip
        # where an element is as great as all before it, it is the place; also every nan
        new = (x == values) | np.isnan(x.astype(np.float64))
        found = np.maximum.accumulate(np.where(new, position, 0), axis=axis)
        return values, found.astype(np.int32)

    return reference


def _log_scan(x: Any, axis: int = 0) -> Any:
    return x if x.ndim == 0 else np.logaddexp.accumulate(x, axis=axis)


def scan_terms(x: Any, axis: int = 0) -> tuple[int, Any]:
    """The terms of the sums along an axis."""
    return (1, np.abs(x)) if x.ndim == 0 else (x.shape[axis], np.cumsum(np.abs(x), axis=axis))


SCANS = (
    Row("cumsum", _scan(np.cumsum), scan_cases(-3, 3), NUMBERS, summed, terms=scan_terms),
    Row("cumprod", _scan(np.cumprod), scan_cases(0.8, 1.2), NUMBERS, summed),
    *[
        Row(
            name,
            _extreme_scan(function, beats),
            (*scan_cases(-3, 3), case(given([1.0, 3.0, 3.0, NAN, 5.0, NAN]), axis=0)),
            NUMBERS,
            (same, places),
        )
        for name, function, beats in (
            ("cummax", np.maximum, np.greater_equal),
            ("cummin", np.minimum, np.less_equal),
        )
    ],
    Row(
        "logcumsumexp",
        _log_scan,
        (
            *scan_cases(-9, 9),
            case(given([-INF, -INF, 0.0, 1.0, INF, 0.0]), axis=0),
            case(given([-1e3, -1e3, 9e2, -1e3])),
        ),
        FLOATS,
        floated,
    ),
)


# ------------------------------------------------------------ norms
def _layernorm(x: Any, axis: Any = -1, eps: float = 1e-5) -> Any:
    centred = x - x.mean(axis, keepdims=True)
    return centred / np.sqrt((centred**2).mean(axis, keepdims=True) + eps)


def _normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12) -> Any:
    if p == 0:
        norm = (x != 0).sum(dim, keepdims=True).astype(float)
    elif p == INF:
        norm = np.abs(x).max(dim, keepdims=True)
    else:
        norm = (np.abs(x) ** p).sum(dim, keepdims=True) ** (1 / p)
    return x / np.maximum(norm, eps)


def _batchnorm(x: Any, weight: Any, bias: Any, mean: Any, invstd: Any, axis: Any = 1) -> Any:
    axes = (axis,) if isinstance(axis, int) else axis
    shape = [n if i in axes else 1 for i, n in enumerate(x.shape)]
    parts = [part.reshape(shape) for part in (weight, bias, mean, invstd)]
    return (x - parts[2]) * parts[0] * parts[3] + parts[1]


NORMS = (
    Row(
        "layernorm",
        _layernorm,
        (
            case((3, 35)),
            case((2, 3, 4), axis=(1, 2)),
            case((2, 3, 4), axis=0),
            case((3, 4), eps=0.5),
            case((3, 0)),
            case(given([[1e4, 1e4 + 1, 1e4 + 2]])),
        ),
        (*FLOATS, "int32"),
        floated,
    ),
    Row(
        "normalize",
        _normalize,
        (
            case((3, 35)),
            case((3, 4), p=1),
            case((3, 4), p=3.0, dim=0),
            case((3, 4), p=INF, dim=-1),
            case((2, 3, 4), p=0),
            case(given([[0.0, 0.0]])),
            case((3, 4), eps=10.0),
            case((0, 4)),
        ),
        FLOATS,
    ),
    Row(
        "batchnorm",
        _batchnorm,
        (
            case((2, 5, 7), (5,), (5,), (5,), Input((5,), 0.5, 2)),
            case((2, 3), (3,), (3,), (3,), Input((3,), 0.5, 2)),
            case((3, 2), (3,), (3,), (3,), Input((3,), 0.5, 2), axis=0),
            case((2, 3, 4), (2, 4), (2, 4), (2, 4), Input((2, 4), 0.5, 2), axis=(0, 2)),
            case((0, 3), (3,), (3,), (3,), Input((3,), 0.5, 2)),
        ),
        FLOATS,
    ),
)

ROWS = (*REDUCTIONS, *SOFTMAXES, *SCANS, *NORMS)
