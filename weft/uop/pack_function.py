"""Functions as plain data, lambdas too: what pickles a PatternMatcher.

What comes in: a Python function. What goes out: data that pickle stores, and the function again.
Where it sits: below the matcher.
The one invariant: a function that can be imported travels as its name; another one as its code, its
defaults and what it closed over, and finds its globals in the module that it was written in.
"""

from __future__ import annotations

import functools
import importlib
import marshal
import types
from collections.abc import Callable
from typing import Any


def pack_function(function: Callable[..., Any]) -> tuple[Any, ...]:
    """The function as data."""
    if isinstance(function, functools.partial):
        inner = pack_function(function.func)
        return ("partial", inner, function.args, function.keywords)
    if not isinstance(function, types.FunctionType) or _is_importable(function):
        return ("object", function)
    cells = function.__closure__ or ()
    return (
        "code",
        marshal.dumps(function.__code__),
        function.__module__,
        function.__name__,
        function.__defaults__,
        function.__kwdefaults__,
        tuple([_pack_value(cell.cell_contents) for cell in cells]),
    )


def unpack_function(packed: tuple[Any, ...]) -> Callable[..., Any]:
    """The function that `pack_function` was given."""
    if packed[0] == "object":
        found: Callable[..., Any] = packed[1]
        return found
    if packed[0] == "partial":
        return functools.partial(unpack_function(packed[1]), *packed[2], **packed[3])
    _, code, module, name, defaults, keyword_defaults, cells = packed
    closure = tuple([types.CellType(_unpack_value(value)) for value in cells])
    names = vars(importlib.import_module(module))
    function = types.FunctionType(marshal.loads(code), names, name, defaults, closure)
    function.__kwdefaults__ = keyword_defaults
    function.__module__ = module
    return function


def _is_importable(function: types.FunctionType) -> bool:
    try:
        found: Any = importlib.import_module(function.__module__)
        for part in function.__qualname__.split("."):
            found = getattr(found, part)
    except (AttributeError, ImportError):
        return False
    return found is function


def _pack_value(value: Any) -> tuple[Any, ...]:
    if isinstance(value, types.FunctionType):
        return ("function", pack_function(value))
    return ("value", value)


def _unpack_value(packed: tuple[Any, ...]) -> Any:
    return unpack_function(packed[1]) if packed[0] == "function" else packed[1]
