"""Which Python code a run executes, and which functions written in C it calls.

In: a run, while it goes on. Out: `Observed`: the code objects of the user's program that were
executed, with their globals; the first call of a function that may give something else tomorrow.
Sits under the recording; the guards follow what the code that ran mentions.
Invariant: weft's own code is not followed, nor what it calls, but for functions of the user's.

`sys.setprofile` reports frames and calls of C functions alike in all versions of Python, whatever
their instructions are.
"""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from weft.engine import record

# packages that are part of the program rather than of its state
_LIBRARIES = frozenset(sys.stdlib_module_names) | {"numpy", "torch", "scipy"}
_adopted: set[str] = set()
# parts of weft that are written like a user's program
_FAMILIAR = ("weft.nn", "weft.apps")
# what they write down is seen by people, not by the program
_EFFECTS = frozenset(("logging", "warnings", "traceback", "linecache", "tokenize", "threading"))
_INTERNAL, _USER, _LIBRARY, _UNNAMED = 0, 1, 2, 3
# what the garbage collector calls, in the midst of anything
_COLLECTOR = 4

# Functions of these modules depend on nothing but what they are given.
_PURE_MODULES = frozenset(
    "math cmath _operator operator _functools functools _collections _collections_abc itertools"
    " _bisect _heapq _abc _weakref _struct _json _sre zlib binascii _hashlib _contextvars copyreg"
    " _codecs _string _typing _warnings _tracemalloc _decimal unicodedata _thread gc marshal"
    " _statistics _imp".split()
)
# ... and these of modules that do otherwise
_PURE_FUNCTIONS = frozenset(
    "sys.intern sys.getsizeof sys.getrefcount sys.exc_info sys._getframe sys.getprofile sys.audit"
    " sys.getrecursionlimit sys.is_finalizing posix.fspath nt.fspath".split()
)
_IMPURE_BUILTINS = frozenset("open input breakpoint".split())
_IMPURE_METHODS = frozenset("now utcnow today".split())  # of dates and times
_DATA: tuple[Any, ...] = (
    (bool, int, float, complex, str, bytes, list, tuple, dict, set, frozenset, bytearray, slice)
    + (memoryview, range, deque, OrderedDict, defaultdict, type(None), type, property)
    + (types.FunctionType, types.GeneratorType, types.MappingProxyType, types.SimpleNamespace)
    + (types.CellType, types.ModuleType, types.MethodType, types.CodeType, BaseException)
    + (type({}.keys()), type({}.values()), type({}.items()), staticmethod, classmethod)
)


@functools.lru_cache(maxsize=4096)
def kind_of_module(name: Any) -> int:
    """Whose code it is, by the name of a module: weft's, the user's, or a library's."""
    name = name if isinstance(name, str) else ""
    if name.startswith(_FAMILIAR):
        return _USER
    top = name.partition(".")[0]
    if top == "weft" or top in _EFFECTS:
        return _INTERNAL
    if top in _adopted or top == "__main__":
        return _USER
    origin = getattr(sys.modules.get(name), "__file__", None) or ""
    is_installed = "site-packages" in origin or "dist-packages" in origin
    return _LIBRARY if top in _LIBRARIES or is_installed else _USER


def adopt(module: str) -> None:
    """The package of a jitted function is the user's, also where it is installed."""
    top = module.partition(".")[0]
    if top not in _adopted:
        _adopted.add(top)
        kind_of_module.cache_clear()


def is_internal(name: Any) -> bool:
    """Whether a module is weft's own machinery."""
    return kind_of_module(name) == _INTERNAL


def is_library(name: Any) -> bool:
    """Whether a module belongs to the program, not to the user's part of it."""
    return kind_of_module(name) != _USER


def impurity_of(function: Any) -> str | None:
    """The name of a C function that may give something else in another call; None for others."""
    name = getattr(function, "__name__", "?")
    owner = getattr(function, "__self__", None)
    if owner is None or isinstance(owner, types.ModuleType):
        module = getattr(function, "__module__", None) or ""
        if owner is None and not module:
            # the method of a type that is written in C
            kind = getattr(function, "__objclass__", object)
            return None if _is_data(kind) else f"{kind.__name__}.{name}"
        if module == "builtins" or module == "_io" or module == "io":
            return name if name in _IMPURE_BUILTINS else None
        top = module.partition(".")[0]
        is_pure = module in _PURE_MODULES or f"{module}.{name}" in _PURE_FUNCTIONS
        is_pure = is_pure or (top == "numpy" and ".random" not in module)
        return None if is_pure else f"{module}.{name}"
    kind = owner if isinstance(owner, type) else type(owner)
    if _is_data(kind):
        is_date = kind.__module__ == "datetime" and name in _IMPURE_METHODS
        return f"{kind.__name__}.{name}" if is_date else None
    return f"{kind.__name__}.{name}"


def _is_data(kind: type) -> bool:
    """Whether objects of a type are what they hold, which guards compare."""
    if kind is object or issubclass(kind, _DATA) or not kind.__module__:
        return True
    top = kind.__module__.partition(".")[0]
    if top == "numpy":
        return ".random" not in kind.__module__
    if top in ("_io", "io"):
        return True
    known = ("datetime", "decimal", "fractions", "re", "array", "weakref", "functools", "ctypes")
    return top in known or kind.__module__ in _PURE_MODULES or kind.__module__ == "_ctypes"


class Observed:
    """What one function was seen to execute, in all of its runs."""

    def __init__(self) -> None:
        self.codes: dict[types.CodeType, dict[str, Any]] = {}  # with the globals of each
        self.impure: str | None = None  # a call that may give something else, of the last run
        self._kinds: dict[types.CodeType, int] = {}
        self._is_collecting = False

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look at all frames of this thread meanwhile."""
        self.impure = None
        with record.observing(self._event):
            yield

    def _kind(self, frame: types.FrameType) -> int:
        kind = self._kinds.get(frame.f_code)
        if kind is None:
            name = frame.f_globals.get("__name__")
            kind = kind_of_module(name)
            if name is None or name.startswith("namedtuple_"):
                # made from text: it belongs to whoever calls it
                kind = _UNNAMED
            elif any([getattr(c, "__code__", None) is frame.f_code for c in gc.callbacks]):
                kind = _COLLECTOR
            self._kinds[frame.f_code] = kind
        return kind

    def _event(self, frame: types.FrameType, event: str, argument: Any) -> None:
        code = frame.f_code
        kind = self._kinds.get(code)
        if kind is None:
            kind = self._kind(frame)
        if kind == _INTERNAL or self._is_collecting and kind != _COLLECTOR:
            return
        if kind == _COLLECTOR:
            self._is_collecting = event != "return"
        elif event == "call":
            if code not in self.codes and self._is_followed(frame):
                self.codes[code] = frame.f_globals
        elif event == "c_call" and self.impure is None and self._is_followed(frame):
            self.impure = impurity_of(argument)

    def _is_followed(self, at: types.FrameType) -> bool:
        """Whether it is the user's code, or works for it."""
        frame: types.FrameType | None = at
        while frame is not None:
            kind = self._kind(frame)
            if kind == _INTERNAL:
                return False
            if kind == _USER or (kind == _UNNAMED and frame.f_code in self.codes):
                return True
            frame = frame.f_back
        return False
