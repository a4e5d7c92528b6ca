"""Promotion as the standard's tables say, for functions, operators and Python scalars.

In: a namespace. Out: checks, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Named = tuple[str, Callable[[], None]]

BOOL = ("bool",)
SIGNED = ("int8", "int16", "int32", "int64")
UNSIGNED = ("uint8", "uint16", "uint32", "uint64")
FLOATS = ("float32", "float64")
COMPLEX = ("complex64", "complex128")
INTS = (*SIGNED, *UNSIGNED)
REAL = (*INTS, *FLOATS)
NUMERIC = (*REAL, *COMPLEX)
ALL = (*BOOL, *NUMERIC)


def promoted(first: str, second: str) -> str | None:
    """The dtype of a result; None where the standard says nothing."""
    if first == second:
        return first
    for kind in (SIGNED, UNSIGNED, FLOATS, COMPLEX):
        if first in kind and second in kind:
            return max(first, second, key=kind.index)
    if {first, second} <= set(INTS):
        signed, unsigned = (first, second) if first in SIGNED else (second, first)
        width = max(SIGNED.index(signed), UNSIGNED.index(unsigned) + 1)
        return SIGNED[width] if width < 4 else None
    if {first, second} <= {*FLOATS, *COMPLEX}:
        widths = [FLOATS.index(d) if d in FLOATS else COMPLEX.index(d) for d in (first, second)]
        return COMPLEX[max(widths)]
    return None


# functions of two arrays, with the dtypes they take and what comes out
BINARY: dict[str, tuple[tuple[str, ...], str]] = {
    **dict.fromkeys(("add", "subtract", "multiply", "pow"), (NUMERIC, "same")),
    "divide": ((*FLOATS, *COMPLEX), "same"),
    **dict.fromkeys(("floor_divide", "remainder", "maximum", "minimum"), (REAL, "same")),
    **dict.fromkeys(("atan2", "copysign", "hypot", "logaddexp", "nextafter"), (FLOATS, "same")),
    **dict.fromkeys(("bitwise_and", "bitwise_or", "bitwise_xor"), ((*BOOL, *INTS), "same")),
    **dict.fromkeys(("bitwise_left_shift", "bitwise_right_shift"), (INTS, "same")),
    **dict.fromkeys(("equal", "not_equal"), (ALL, "bool")),
    **dict.fromkeys(("greater", "greater_equal", "less", "less_equal"), (REAL, "bool")),
    **dict.fromkeys(("logical_and", "logical_or", "logical_xor"), (BOOL, "bool")),
}
UNARY: dict[str, tuple[tuple[str, ...], str]] = {
    "abs": (NUMERIC, "part"),
    **dict.fromkeys(
        (
            "acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 reciprocal "
            "sin sinh sqrt tan tanh"
        ).split(),
        ((*FLOATS, *COMPLEX), "same"),
    ),
    **dict.fromkeys(("ceil", "floor", "trunc"), (REAL, "same")),
    **dict.fromkeys(("negative", "positive", "round", "sign", "square", "conj"), (NUMERIC, "same")),
    **dict.fromkeys(("isfinite", "isinf", "isnan"), (NUMERIC, "bool")),
    "bitwise_invert": ((*BOOL, *INTS), "same"),
    "logical_not": (BOOL, "bool"),
    "signbit": (FLOATS, "bool"),
    "imag": (COMPLEX, "part"),
    "real": (NUMERIC, "part"),
}
OPERATORS = {
    "__add__": "add", "__sub__": "subtract", "__mul__": "multiply", "__truediv__": "divide",
    "__floordiv__": "floor_divide", "__mod__": "remainder", "__pow__": "pow",
    "__and__": "bitwise_and", "__or__": "bitwise_or", "__xor__": "bitwise_xor",
    "__lshift__": "bitwise_left_shift", "__rshift__": "bitwise_right_shift", "__eq__": "equal",
    "__ne__": "not_equal", "__lt__": "less", "__le__": "less_equal", "__gt__": "greater",
    "__ge__": "greater_equal",
}  # fmt: skip
_PART = {"complex64": "float32", "complex128": "float64"}


def _out(rule: str, dtype: str) -> str:
    if rule == "bool":
        return "bool"
    return _PART.get(dtype, dtype) if rule == "part" else dtype


def _one(xp: Any, dtype: str) -> Any:
    return xp.ones((2,), dtype=getattr(xp, dtype))


def check_pairs(xp: Any, call: Callable[..., Any], name: str) -> None:
    """Every pair of dtypes that a function takes and the tables promote."""
    taken, rule = BINARY[name]
    for first in taken:
        for second in taken:
            common = promoted(first, second)
            if common is None:
                continue
            found = call(_one(xp, first), _one(xp, second)).dtype
            wanted = getattr(xp, _out(rule, common))
            assert found == wanted, f"{name}({first}, {second}) is {found}, not {wanted}"


def check_unary(xp: Any, name: str) -> None:
    """Every dtype that a function takes."""
    taken, rule = UNARY[name]
    for dtype in taken:
        found = getattr(xp, name)(_one(xp, dtype)).dtype
        wanted = getattr(xp, _out(rule, dtype))
        assert found == wanted, f"{name}({dtype}) is {found}, not {wanted}"


def check_scalars(xp: Any, call: Callable[..., Any], name: str) -> None:
    """A Python scalar takes the dtype of the array beside it."""
    taken, rule = BINARY[name]
    for dtype in taken:
        scalars: list[Any] = [True] if dtype == "bool" else [1]
        scalars += [1.0] if dtype in (*FLOATS, *COMPLEX) else []
        scalars += [1 + 0j] if dtype in COMPLEX else []
        for scalar in scalars:
            found = call(_one(xp, dtype), scalar).dtype
            wanted = getattr(xp, _out(rule, dtype))
            assert found == wanted, f"{name}({dtype}, {scalar!r}) is {found}, not {wanted}"


def check_in_place(xp: Any, operator: str) -> None:
    """An operator in place keeps the dtype of what it writes to."""
    taken, _ = BINARY[OPERATORS[operator]]
    for dtype in taken:
        x = _one(xp, dtype)
        found = getattr(x, operator.replace("__", "__i", 1))(_one(xp, dtype))
        assert found.dtype == getattr(xp, dtype), f"{operator} in place of {dtype}"


def checks(xp: Any) -> Iterator[Named]:
    """All of them."""
    for name in UNARY:
        yield f"{name}", lambda n=name: check_unary(xp, n)
    for name in BINARY:
        yield f"{name}", lambda n=name: check_pairs(xp, getattr(xp, n), n)
        yield f"{name} of a scalar", lambda n=name: check_scalars(xp, getattr(xp, n), n)
        yield (
            f"a scalar and {name}",
            lambda n=name: check_scalars(xp, lambda x, y: getattr(xp, n)(y, x), n),
        )
    for operator, name in OPERATORS.items():
        apply = lambda x, y, o=operator: getattr(x, o)(y)  # noqa: E731
        yield operator, lambda n=name, a=apply: check_pairs(xp, a, n)
        yield f"{operator} of a scalar", lambda n=name, a=apply: check_scalars(xp, a, n)
        if BINARY[name][1] == "same":
            yield f"{operator} in place", lambda o=operator: check_in_place(xp, o)
    for first in ALL:
        yield f"result_type of {first}", lambda f=first: check_result_type(xp, f)
        yield f"can_cast from {first}", lambda f=first: check_can_cast(xp, f)
    yield "where", lambda: check_where(xp)
    yield "concat and stack", lambda: check_joins(xp)


def check_result_type(xp: Any, first: str) -> None:
    """The tables."""
    for second in ALL:
        common = promoted(first, second)
        if common is not None:
            found = xp.result_type(getattr(xp, first), getattr(xp, second))
            assert found == getattr(xp, common), f"{first} with {second} is {found}"


def check_can_cast(xp: Any, first: str) -> None:
    """What promotes to a dtype can be cast to it."""
    for second in ALL:
        if promoted(first, second) == second:
            assert xp.can_cast(getattr(xp, first), getattr(xp, second)) is True, (first, second)


def check_where(xp: Any) -> None:
    """Both choices promote."""
    mask = xp.asarray([True, False])
    for first in ALL:
        for second in ALL:
            common = promoted(first, second)
            if common is not None:
                found = xp.where(mask, _one(xp, first), _one(xp, second)).dtype
                assert found == getattr(xp, common), (first, second, found)


def check_joins(xp: Any) -> None:
    """Joined arrays promote."""
    for first in ALL:
        for second in ALL:
            common = promoted(first, second)
            if common is not None:
                found = xp.concat([_one(xp, first), _one(xp, second)]).dtype
                assert found == getattr(xp, common), (first, second, found)
