"""What the code that was executed mentions, all of it together.

In: code objects with the globals of each, as `observe` saw them run. Out: `Scope`, which names are
loaded, opened and stored; the code that a call of something starts with.
Sits above `bytecode` and `observe`, below `walk`, which follows these names.
Invariant: what is not understood widens a scope; it never narrows one.
"""

from __future__ import annotations

import functools
import types
from typing import Any

from weft.engine.jit.bytecode import mentions_of, nested_codes
from weft.engine.jit.kinds import functions_in
from weft.engine.jit.observe import is_library

# names that look attributes up by strings, or all at once
_DYNAMIC = frozenset(
    "__dict__ __getattribute__ __getstate__ __reduce__ __reduce_ex__ asdict astuple attrgetter copy"
    " deepcopy dir eval exec fields getattr getmembers methodcaller pickle replace vars".split()
)
_BY_NAME = frozenset("globals eval exec modules import_module __import__".split())
# what calls the functions it is given, unseen
_CALLERS = frozenset("accumulate defaultdict filter iter map partial reduce starmap".split())


class Scope:
    """What the code that was executed mentions, all of it together."""

    def __init__(self, codes: dict[types.CodeType, dict[str, Any]]) -> None:
        self.codes = dict(codes)
        self.loaded: set[str] = set()
        self.opened: set[str] = set()
        self.strings: set[str] = set()
        self.imported: set[str] = set()
        stored: set[str] = set()
        names: set[str] = set()
        for code, globals_ in codes.items():
            found = mentions_of(code)
            if not is_library(globals_.get("__name__")):
                self.strings |= found.strings
            self.loaded |= found.loaded_attributes | found.strings
            self.opened |= found.opened | found.strings
            self.imported |= found.imported
            stored |= found.stored_attributes
            names |= found.loaded_globals | found.loaded_attributes
        self.stored = stored - self.loaded
        self.is_dynamic = not _DYNAMIC.isdisjoint(names)
        self.is_by_name = not _BY_NAME.isdisjoint(names)
        self.calls_unseen = not _CALLERS.isdisjoint(names)
        # functions that are made while the function runs: what they close over is made there, too
        self.nested = {inner for code in codes for inner in nested_codes(code)}

    def add_names(self, names: set[str]) -> bool:
        """Attributes that are asked for by other means than code; whether they are new."""
        is_new = not names <= self.loaded
        self.loaded |= names
        self.opened |= names
        return is_new

    def free_names(self, code: types.CodeType) -> tuple[set[str], set[str]]:
        """Closed-over names that a function loads, and that it only stores."""
        loaded: set[str] = set()
        stored: set[str] = set()
        for part in (code, *nested_codes(code)):
            found = mentions_of(part)
            loaded |= found.loaded_free
            stored |= found.stored_free
        return loaded, stored - loaded


def root_codes(function: Any) -> dict[types.CodeType, dict[str, Any]]:
    """The code that a call of something starts with."""
    for _ in range(8):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, types.MethodType):
            function = function.__func__
        elif not isinstance(function, types.FunctionType):
            inner = functions_in(function)
            function = inner[0] if inner else vars(type(function)).get("__call__")
    if isinstance(function, types.FunctionType):
        return {function.__code__: function.__globals__}
    return {}
