"""Pickling functions: a jitted function goes elsewhere with what it reads.

In: a Python function. Out: something that `pickle` takes, and the function again from it.
Sits under the JIT. A function that can be imported goes by its name; another one (made inside of a
function, a lambda) goes as its code, its defaults, and the values of the names that it reads.
Invariant: names are taken over as they are now; what is not read is left behind.
"""

from __future__ import annotations

import builtins
import importlib
import marshal
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

from weft.errors import JitError


class Carried:
    """A function as data; equal functions of one pickle are one object, also among themselves."""

    def __init__(self) -> None:
        self.state: dict[str, Any] = {}
        self.restored: Any = None

    def __getstate__(self) -> dict[str, Any]:
        return self.state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.state = state
        self.restored = None

    def function(self) -> Callable[..., Any]:
        """The function, made of its parts; once, so that it may mention itself."""
        if self.restored is not None:
            made: Callable[..., Any] = self.restored
            return made
        state = self.state
        _check_version(state["version"])
        code = marshal.loads(state["code"])
        names: dict[str, Any] = {"__builtins__": builtins, "__name__": state["module"]}
        cells = tuple([types.CellType() for _ in state["closure"]])
        made = types.FunctionType(code, names, state["name"], None, cells)
        self.restored = made
        names |= {name: given(value) for name, value in state["names"].items()}
        for cell, value in zip(cells, state["closure"], strict=True):
            if value is not _EMPTY:
                cell.cell_contents = given(value)
        made.__defaults__ = given(state["defaults"])
        made.__kwdefaults__ = given(state["kwdefaults"])
        made.__qualname__ = state["qualname"]
        made.__doc__ = state["doc"]
        return made


class Module:
    """A module by its name."""

    def __init__(self, name: str) -> None:
        self.name = name


_EMPTY = "weft: a cell without a value"


def carried(value: Any, seen: dict[int, Carried] | None = None) -> Any:
    """The value as pickle takes it: functions that cannot be imported as `Carried`."""
    seen = {} if seen is None else seen
    if isinstance(value, types.ModuleType):
        return Module(value.__name__)
    if isinstance(value, types.MethodType) and isinstance(value.__func__, types.FunctionType):
        # pickle looks a method up by its name, where the class may have something else by now
        return types.MethodType, (carried(value.__func__, seen), value.__self__)
    if type(value) in (tuple, list):
        return type(value)([carried(part, seen) for part in value])
    if type(value) is dict:
        return {key: carried(part, seen) for key, part in value.items()}
    if not isinstance(value, types.FunctionType) or _is_importable(value):
        return value
    found = seen.get(id(value))
    if found is None:
        found = seen[id(value)] = Carried()
        found.state = _state_of(value, seen)
    return found


def given(value: Any) -> Any:
    """What `carried` was given."""
    if isinstance(value, Carried):
        return value.function()
    if isinstance(value, Module):
        return importlib.import_module(value.name)
    if type(value) is tuple and len(value) == 2 and value[0] is types.MethodType:
        return types.MethodType(*[given(part) for part in value[1]])
    if type(value) in (tuple, list):
        return type(value)([given(part) for part in value])
    if type(value) is dict:
        return {key: given(part) for key, part in value.items()}
    return value


def _is_importable(function: types.FunctionType) -> bool:
    """Whether its name leads to it; what was decorated is not itself any more."""
    found: Any = sys.modules.get(function.__module__)
    for name in function.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is function


def _state_of(function: types.FunctionType, seen: dict[int, Carried]) -> dict[str, Any]:
    read = set(_names_in(function.__code__))
    own = {name: value for name, value in function.__globals__.items() if name in read}
    closure = []
    for cell in function.__closure__ or ():
        try:
            closure.append(carried(cell.cell_contents, seen))
        except ValueError:
            closure.append(_EMPTY)
    return {
        "version": sys.version_info[:2],
        "code": marshal.dumps(function.__code__),
        "module": function.__module__,
        "name": function.__name__,
        "qualname": function.__qualname__,
        "doc": function.__doc__,
        "defaults": carried(function.__defaults__, seen),
        "kwdefaults": carried(function.__kwdefaults__, seen),
        "closure": closure,
        "names": {name: carried(value, seen) for name, value in own.items()},
    }


def _names_in(code: types.CodeType) -> Iterator[str]:
    """The names that a function, and those inside of it, look up."""
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names_in(constant)


def _check_version(version: tuple[int, int]) -> None:
    now = sys.version_info[:2]
    if tuple(version) != now:
        raise JitError(
            f"a function pickled by Python {'.'.join(map(str, version))} has code of that version; "
            f"this is Python {'.'.join(map(str, now))}"
        )
