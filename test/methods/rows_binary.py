"""Functions of two values and more: arithmetic, comparison, bits, choices.

In: the domain of each. Out: `ROWS`.
Sits above `row.py`. Invariant: each is run on equal shapes, broadcast ones, scalars, and nothing.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from test.methods.row import (
    ALL,
    FLOATS,
    INTS,
    NUMBERS,
    Array,
    Case,
    Input,
    Row,
    Rule,
    always,
    boolean,
    case,
    floated,
    given,
    same,
)
from test.methods.rows_unary import EDGES
from weft import Tensor
from weft.uop.ops import Ops

Function = Callable[..., Any]
# every edge meets every other one
ROW_EDGES, COLUMN_EDGES = given([list(EDGES)]), given([[x] for x in EDGES])


def pairs(left: Input, right: Input) -> tuple[Case, ...]:
    """Equal shapes, broadcast ones, scalars, nothing."""

    def shaped(a: tuple[int, ...], b: tuple[int, ...]) -> Case:
        first = Input(a, left.low, left.high, left.dtype)
        return case(first, Input(b, right.low, right.high, right.dtype))

    return (
        shaped((3, 35), (3, 35)),
        shaped((4, 1, 5), (3, 1)),
        shaped((2, 3), ()),
        shaped((), (5,)),
        shaped((), ()),
        shaped((0, 3), (1, 3)),
    )


def binary(
    name: str,
    reference: Function,
    left: Input | None = None,
    right: Input | None = None,
    *more: Case,
    result: Rule = same,
    dtypes: tuple[str, ...] = NUMBERS,
    **options: Any,
) -> tuple[Row, ...]:
    """The rows of a function of two values: of two tensors, and of one and a plain number."""
    cases = pairs(left or Input(), right or Input())
    if dtypes[0] in FLOATS:
        cases = (*cases, case(ROW_EDGES, COLUMN_EDGES))
    row = Row(name, reference, cases, dtypes, result, **options)
    if not more:
        return (row,)
    # a number of another kind than the tensor's would change its dtype
    kind = FLOATS if dtypes[0] in FLOATS else INTS
    return row, replace(row, cases=more, dtypes=tuple(d for d in dtypes if d in kind))


def number(value: float, **kwargs: Any) -> Case:
    """The other operand is a plain number."""
    return Case((Input((2, 7), 0.5, 3.0),), (value,), kwargs)


def turned(function: Function) -> Function:
    """With `reverse=True` the operands are swapped."""

    def reference(x: Any, y: Any, reverse: bool = False) -> Any:
        return function(y, x) if reverse else function(x, y)

    return reference


NONZERO, POSITIVE = Input((), 0.5, 4.0), Input((), 0.5, 3.0)
REVERSED = number(2, reverse=True)


def _floor_divide(x: Any, y: Any) -> Any:
    return np.floor_divide(x, y)


def _divide(x: Any, y: Any, reverse: bool = False, rounding_mode: str | None = None) -> Any:
    left, right = (y, x) if reverse else (x, y)
    if rounding_mode == "floor":
        return np.floor_divide(left, right)
    if rounding_mode == "trunc":
        return np.trunc(left / right)
    return left / right


def _integer_divide(x: Any, y: Any, rounding_mode: str) -> Any:
    quotient = np.floor_divide(x, y)
    if rounding_mode == "trunc":
        quotient = quotient + ((quotient < 0) & (quotient * y != x))
    return quotient.astype(x.dtype)


ARITHMETIC = (
    *binary("add", turned(np.add), None, None, REVERSED, number(1.5), dtypes=ALL),
    *binary("mul", turned(np.multiply), None, None, REVERSED, dtypes=ALL),
    *binary("sub", turned(np.subtract), None, None, REVERSED, number(1.5)),
    *binary(
        "div",
        _divide,
        None,
        NONZERO,
        REVERSED,
        number(1.5, rounding_mode="floor"),
        number(1.5, rounding_mode="trunc"),
        result=floated,
    ),
    Row(
        "div",
        _integer_divide,
        tuple(
            case(Input((3, 35), -40, 40), Input((3, 35), 1, 7), rounding_mode=mode)
            for mode in ("trunc", "floor")
        ),
        INTS,
        gradient=False,
    ),
    *binary("fdiv", turned(np.true_divide), None, NONZERO, REVERSED, result=floated),
    *binary("idiv", turned(_floor_divide), None, NONZERO, REVERSED),
    *binary("mod", turned(np.mod), None, NONZERO, REVERSED),
    *binary("fmod", np.fmod, None, NONZERO),
    *binary("maximum", np.maximum, None, None, number(1), dtypes=ALL),
    *binary("minimum", np.minimum, None, None, number(1), dtypes=ALL),
    *binary(
        "pow",
        turned(np.power),
        POSITIVE,
        Input((), -2.0, 3.0),
        REVERSED,
        *[number(n) for n in (0, 1, 2, 3, -1, 0.5, 2.0, 5)],
        dtypes=FLOATS,
    ),
    Row(
        "pow",
        lambda x, y: x**y,
        (case(Input((3, 35), -5, 5), Input((3, 35), 0, 7)), Case((Input((2, 7)),), (3,))),
        INTS,
        gradient=False,
    ),
    *binary("copysign", np.copysign, Input((), 0.2, 3.0), None, dtypes=FLOATS),
    *binary("logaddexp", np.logaddexp, Input((), -20, 20), Input((), -20, 20), dtypes=FLOATS),
)

COMPARED = (
    ("eq", np.equal),
    ("ne", np.not_equal),
    ("lt", np.less),
    ("le", np.less_equal),
    ("gt", np.greater),
    ("ge", np.greater_equal),
)
SMALL, BYTE = Input((), -2, 2), Input((), 0, 100)

COMPARISONS = tuple(
    row
    for name, function in COMPARED
    for row in binary(
        name, function, SMALL, SMALL, number(1), dtypes=ALL, result=boolean, gradient=False
    )
)

BITWISE = tuple(
    row
    for name, function in (
        ("bitwise_and", np.bitwise_and),
        ("bitwise_or", np.bitwise_or),
        ("bitwise_xor", np.bitwise_xor),
    )
    for row in binary(
        name, turned(function), BYTE, BYTE, REVERSED, dtypes=(*INTS, "bool"), gradient=False
    )
)


def _shift(left: bool) -> Function:
    def reference(x: Any, y: Any) -> Any:
        width = 8 * x.dtype.itemsize
        inside = (np.left_shift if left else np.right_shift)(x, np.minimum(y, width - 1))
        beyond = 0 if left else np.right_shift(x, width - 1)
        beyond = 0 if not left and x.dtype.kind == "u" else beyond
        return np.where(np.asarray(y) < width, inside, beyond).astype(x.dtype)

    return turned(lambda x, y: reference(np.asarray(x, np.asarray(y).dtype), y))


SHIFTS = tuple(
    row
    for name in ("lshift", "rshift")
    for row in binary(
        name,
        _shift(name == "lshift"),
        Input((), -100, 100),
        Input((), 0, 40),
        number(3, reverse=True),
        dtypes=INTS,
        gradient=False,
    )
)

OPERATORS: dict[str, Function] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "truediv": operator.truediv,
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "pow": operator.pow,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "lshift": operator.lshift,
    "rshift": operator.rshift,
    "matmul": operator.matmul,
}
FOR_INTS = ("and", "or", "xor", "lshift", "rshift")


def _in_place(name: str, function: Function) -> Function:
    """`x op= y` on a copy; another view of it must see the change."""

    def call(x: Tensor, y: Any) -> Tensor:
        changed = x.clone()
        view = changed.reshape(changed.shape)
        result = getattr(Tensor, f"__i{name}__")(changed, y)
        assert result is changed
        return view

    return call


def _operator_rows(name: str, function: Function) -> tuple[Row, ...]:
    ints = name in FOR_INTS
    types = ("int32",) if ints else ("float32",)
    left = Input((3, 3), 1 if ints else 0.5, 3)
    forward = case(left, left)
    swapped = Row(
        f"__r{name}__",
        lambda x, y: function(y, x),
        (forward if name == "matmul" else Case((left,), (2,)),),
        types,
    )
    return (
        Row(f"__{name}__", function, (forward,), types),
        swapped,
        Row(f"__i{name}__", function, (forward,), types, call=_in_place(name, function)),
    )


PROTOCOL = (
    *[row for name, function in OPERATORS.items() for row in _operator_rows(name, function)],
    *[
        Row(
            f"__{name}__",
            getattr(operator, name),
            (case(Input((3, 5), 0, 2), Input((3, 5), 0, 2)),),
            ("int32", "float32"),
            boolean,
            gradient=False,
        )
        for name in ("eq", "ne", "lt", "le", "gt", "ge")
    ],
    Row("__neg__", operator.neg, (case((3, 5)),), ("float32", "int32")),
    Row("__invert__", operator.invert, (case((3, 5)),), ("int32", "bool"), gradient=False),
)


def _clip(x: Any, min_: Any = None, max_: Any = None) -> Any:
    return np.clip(x, min_, max_)


def _clip_row(name: str) -> Row:
    limits: tuple[dict[str, float], ...] = (
        {"min_": -1, "max_": 2}, {"min_": 0}, {"max_": 1}, {"min_": 2, "max_": 1},
    )  # fmt: skip
    cases = [case(shape, **limits[0]) for shape in ((3, 35), (), (0, 4))]
    cases += [case((2, 7), **bounds) for bounds in limits[1:]]
    cases.append(case(given(EDGES), min_=-1, max_=2))
    return Row(name, _clip, tuple(cases), (*FLOATS, "int32", "int8", "int64"))


def _close(x: Any, y: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False) -> Any:
    return np.isclose(x, y, rtol, atol, equal_nan)


NEAR = given([1.0, 1.0, 1.0, 0.0, np.inf, np.inf, np.nan, np.nan])
ALSO = given([1.0, 1.000001, 1.1, 1e-9, np.inf, -np.inf, np.nan, 1.0])

CHOICES = (
    _clip_row("clip"),
    _clip_row("clamp"),
    Row(
        "where",
        np.where,
        tuple(
            case(Input(a, dtype="bool"), b, c)
            for a, b, c in (
                ((3, 35), (3, 35), (3, 35)),
                ((3, 1), (1, 4), ()),
                ((), (5,), (2, 1)),
                ((), (), ()),
                ((0, 3), (3,), (1, 3)),
            )
        ),
        ALL,
    ),
    Row("where", np.where, (Case((Input((3, 4), dtype="bool"), Input((3, 4))), (2,)),), NUMBERS),
    Row(
        "masked_fill",
        lambda x, mask, value: np.where(mask, np.asarray(value).astype(x.dtype), x),
        tuple(
            case(Input(a), Input(b, dtype="bool"), value=2)
            for a, b in (((3, 35), (3, 35)), ((3, 4), (4,)), ((), ()), ((0, 3), (3,)))
        ),
        NUMBERS,
    ),
    Row(
        "lerp",
        lambda x, end, weight: x + (end - x) * weight,
        (
            case((3, 35), (3, 35), Input((3, 35), 0, 1)),
            case((3, 1), (4,), Input((), 0, 1)),
            case((), (), weight=0.25),
            case((0, 3), (0, 3), weight=0.25),
        ),
    ),
    Row(
        "isclose",
        _close,
        (
            case(NEAR, ALSO),
            case(NEAR, ALSO, equal_nan=True),
            case(NEAR, ALSO, rtol=0.2, atol=0.0),
            case(NEAR, ALSO, atol=0.2),
            case((3, 4), (4,)),
            case((0, 4), (4,)),
            case((), ()),
        ),
        ("float32", "float64", "float16", "bfloat16", "int32"),
        boolean,
        gradient=False,
    ),
    Row(
        "allclose",
        lambda x, y, **kwargs: _close(x, y, **kwargs).all(),
        (
            case((3, 4), (3, 4)),
            case(NEAR, NEAR),
            case(NEAR, NEAR, equal_nan=True),
            case(given([1.0]), given([1.1]), rtol=0.2),
            case(given([0.0]), given([0.1]), atol=0.2),
            case((0, 4), (4,)),
        ),
        ("float32", "float64", "float16", "int32"),
        boolean,
        call=lambda *args, **kwargs: Tensor(Tensor.allclose(*args, **kwargs)),
        gradient=False,
    ),
    Row(
        "alu",
        lambda x, y: np.maximum(x, y),
        pairs(Input(), Input()),
        ALL,
        call=lambda x, y: x.alu(Ops.MAX, y),
        elsewhere={"op": "given by the call", "src": "given by the call"},
    ),
    Row(
        "threefry",
        lambda x, seed: _threefry(x, seed),
        (case(given([0, 1, 2**40, 2**64 - 1]), given([0, 5, 2**33, 2**64 - 1])),),
        ("uint64",),
        always("uint64"),
        gradient=False,
    ),
)


def _threefry(counters: Array, keys: Array) -> Array:
    """Threefry-2x32-20 as its paper (Salmon and others, 2011) describes it, in Python ints."""
    mask = (1 << 32) - 1
    rotations = ((13, 15, 26, 6), (17, 29, 16, 24))
    results = []
    for counter, key in zip(counters.tolist(), keys.tolist(), strict=True):
        first, second = key & mask, key >> 32
        schedule = (first, second, 0x1BD11BDA ^ first ^ second)
        low, high = ((counter & mask) + first) & mask, ((counter >> 32) + second) & mask
        for block in range(5):
            for turn in rotations[block % 2]:
                low = (low + high) & mask
                high = (((high << turn) | (high >> (32 - turn))) & mask) ^ low
            low = (low + schedule[(block + 1) % 3]) & mask
            high = (high + schedule[(block + 2) % 3] + block + 1) & mask
        results.append(low | (high << 32))
    return np.array(results, dtype=np.uint64)


ROWS = (*ARITHMETIC, *COMPARISONS, *BITWISE, *SHIFTS, *PROTOCOL, *CHOICES)
