"""Checks of arguments: what a method was given, in its own words, before it is used.

In: the name of an argument and what was given for it. Out: the value, as the method needs it, or
an ArgumentError that says what was found and what would be accepted.
Sits below all method families; imports no UOp, and knows one by its bounds.
Invariant: a wrong argument is refused here, in the words of whoever wrote it, and not by whatever
Python makes of it three layers down.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from weft.errors import ArgumentError


def is_symbolic(value: Any) -> bool:
    """Whether it is an expression of ints, such as a Variable."""
    return hasattr(value, "vmin") and not hasattr(value, "uop")


def whole_number(what: str, value: Any, least: int | None = None) -> Any:
    """An int (NumPy's too) or a symbolic one; with `least`, not below that.

    >>> whole_number("chunks", 3, least=1)
    3
    """
    number = value
    if not isinstance(value, int) and not is_symbolic(value):
        if hasattr(value, "uop") or not hasattr(value, "__index__"):
            raise ArgumentError(f"{what} is an int, found {described(value)}")
        number = value.__index__()
    if least is not None and isinstance(number, int) and number < least:
        raise ArgumentError(f"{what} is an int of at least {least}, found {number}")
    return number


def whole_numbers(what: str, value: Any) -> tuple[Any, ...]:
    """One int or several, as a tuple.

    >>> whole_numbers("shifts", 3), whole_numbers("shifts", [1, 2])
    ((3,), (1, 2))
    """
    if isinstance(value, (tuple, list)):
        return tuple([whole_number(f"each of {what}", part) for part in value])
    if isinstance(value, int) or is_symbolic(value) or hasattr(value, "__index__"):
        return (whole_number(what, value),)
    raise ArgumentError(f"{what} is an int or a sequence of ints, found {described(value)}")


def real_number(what: str, value: Any) -> Any:
    """An int or a float that is not nan.

    >>> real_number("p", 0.5)
    0.5
    """
    if isinstance(value, (int, float)) and not math.isnan(value):
        return value
    if not hasattr(value, "uop") and hasattr(value, "__float__") and not isinstance(value, float):
        return float(value)
    raise ArgumentError(f"{what} is a number, found {described(value)}")


def some_text(what: str, value: Any) -> str:
    """A text.

    >>> some_text("the formula", "ij->i")
    'ij->i'
    """
    if isinstance(value, str):
        return value
    raise ArgumentError(f"{what} is a text, found {described(value)}")


def tensors(what: str, values: Iterable[Any]) -> None:
    """Refuse what has no axes and elements: all must be tensors (or nodes that stand for them)."""
    for value in values:
        if not hasattr(value, "uop") and not hasattr(value, "toposort"):
            raise ArgumentError(
                f"{what} is a Tensor, found {described(value)}; Tensor(...) makes one of a number "
                "or a list"
            )


def described(value: Any) -> str:
    """What was found, in a few words.

    >>> described(2.5), described("a"), described(None)
    ('2.5', "'a'", 'None')
    """
    if hasattr(value, "uop"):
        return f"a Tensor of shape {value.shape}"
    text = repr(value)
    if len(text) > 60 or text.startswith("<"):
        return f"a {type(value).__name__}"
    return text
