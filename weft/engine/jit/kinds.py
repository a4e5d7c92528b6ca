"""Kinds of Python objects: whose class it is, what it may hide, what is in raw memory.

In: an object or a class. Out: whether its attributes show all that it holds; its attributes; the
function that it stands for; `RawMemory` and `Records`, the contents of arrays as they were.
Sits above `observe`, below `scope` and `walk`.
Invariant: nothing here runs code of the user's.
"""

from __future__ import annotations

import array
import ctypes
import enum
import functools
import hashlib
import io
import marshal
import operator
import pathlib
import re
import sys
import threading
import types
from collections import deque, namedtuple
from collections.abc import Sequence
from typing import Any

from weft.engine import host
from weft.engine.jit.objects import PLAIN
from weft.engine.jit.observe import is_internal, is_library
from weft.tensor import Tensor

_HEAP_TYPE = 1 << 9  # Py_TPFLAGS_HEAPTYPE
# types written in C whose objects never change, or are not read by being reached
FIXED: tuple[Any, ...] = (
    range,
    slice,
    pathlib.PurePath,
    re.Pattern,
    type(NotImplemented),
    types.CodeType,
)
FIXED += (types.GenericAlias, types.UnionType, types.GetSetDescriptorType, io.IOBase)
FIXED += (types.MemberDescriptorType, types.WrapperDescriptorType, types.MethodWrapperType)
FIXED += (types.MethodDescriptorType, types.ClassMethodDescriptorType, operator.itemgetter)
FIXED += (type(namedtuple("_Pair", "left right").left),)  # type: ignore[attr-defined]
FIXED_MODULES = frozenset("_abc decimal fractions datetime _decimal zoneinfo uuid _thread".split())
BASES: tuple[Any, ...] = (object, int, float, str, bytes, list, tuple, dict, set, frozenset, deque)
BASES += (types.SimpleNamespace, types.ModuleType, type, enum.Enum)
BASES += (threading.local,)


@functools.lru_cache(maxsize=4096)
def is_python_class(kind: Any) -> bool:
    """Whether a class statement made it, so that its objects hold what their attributes say."""
    if not kind.__flags__ & _HEAP_TYPE:
        return False
    module = sys.modules.get(kind.__module__)
    origin = getattr(module, "__file__", None) or ""
    if kind.__module__ == "builtins":
        # a class of a program that was executed without a name
        return True
    if kind.__module__ in sys.builtin_module_names or origin.endswith((".so", ".pyd", ".dylib")):
        return False
    if kind.__bases__ == (object,):
        return not {"__dict__", "__slots__", "__weakref__"}.isdisjoint(kind.__dict__)
    return True


def is_user_class(kind: type) -> bool:
    if not kind.__flags__ & _HEAP_TYPE:
        return False
    return kind.__module__ == "builtins" or not is_library(kind.__module__)


@functools.lru_cache(maxsize=4096)
def hides_state(kind: Any) -> bool:
    """Whether objects of a class may hold something that no attribute shows."""
    return not all(
        is_python_class(part) or part in BASES or issubclass(part, BaseException)
        for part in kind.__mro__
    )


def attributes_of(value: Any) -> dict[str, Any] | None:
    """The attributes of an object's own, without running its code."""
    if isinstance(value, threading.local):
        return vars(value)
    try:
        found = object.__getattribute__(value, "__dict__")
    except AttributeError:
        return None
    return found if type(found) is dict else None


def functions_in(value: Any) -> list[types.FunctionType]:
    """The Python function that something in a class, or an object of weft, stands for."""
    if isinstance(value, (staticmethod, classmethod)):
        value = value.__func__
    elif isinstance(value, property):
        value = value.fget
    elif isinstance(value, functools.cached_property):
        value = value.func
    elif is_internal(type(value).__module__) and not isinstance(value, Tensor):
        value = getattr(value, "function", None) or getattr(value, "fxn", None)
    if isinstance(value, types.MethodType):
        value = value.__func__
    return [value] if isinstance(value, types.FunctionType) else []


def raw_memory_of(value: Any) -> RawMemory | None:
    """Arrays of other libraries, bytearrays, values for C: what is in them; None for others."""
    if isinstance(value, type):
        return None
    is_bytes = isinstance(value, (bytearray, memoryview, array.array))
    is_ctypes = any(part.__module__ == "_ctypes" for part in type(value).__mro__)
    return RawMemory(value) if is_bytes or is_ctypes or host.is_numpy(value) else None


class RawMemory:
    """The contents of a memory that others write to, as they were.

    A copy: to compare two memories takes a tenth of the time of a digest.
    """

    __slots__ = ("_contents", "_like")

    def __init__(self, value: Any) -> None:
        self._like = _likeness(value)
        self._contents = _bytes_of(value)

    @property
    def token(self) -> tuple[Any, ...]:
        """Equal for equal contents."""
        return (*self._like, digest(self._contents))

    def is_in(self, value: Any) -> bool:
        """Whether a memory is as this one was."""
        if _likeness(value) != self._like:
            return False
        size = len(self._contents)
        if size > _SMALL and _compare is not None and host.is_numpy(value):
            if value.ndim and value.flags.c_contiguous:
                return not _compare(value.__array_interface__["data"][0], self._contents, size)
        return _bytes_of(value) == self._contents


def is_record(value: Any) -> bool:
    """Whether it is data that only writing to arrays can change: plain values, arrays of numbers,
    and tuples of these."""
    kind = type(value)
    if kind in PLAIN:
        return True
    if kind is tuple:
        return all([is_record(part) for part in value])
    return kind.__name__ == "ndarray" and host.is_numpy(value) and not value.dtype.hasobject


class Records:
    """The elements of a data set, all of them records: compared as a whole, since they are many.

    Which objects they are is for others to compare; here is what their arrays hold.
    """

    __slots__ = ("_arrays", "_contents", "_shapes", "token")

    def __init__(self, elements: Sequence[Any]) -> None:
        self._arrays: list[Any] = []
        plain = [self._plain(element) for element in elements]
        self._shapes = [value.shape for value in self._arrays]
        self._contents = [value.tobytes() for value in self._arrays]
        whole = hashlib.blake2b(marshal.dumps(plain, 2), digest_size=16)
        for contents in self._contents:
            whole.update(contents)
        self.token = whole.digest()  # equal for equal contents

    def _plain(self, value: Any) -> Any:
        """A record without what its arrays hold."""
        if type(value) is tuple:
            return tuple([self._plain(part) for part in value])
        if type(value) in PLAIN:
            return value
        self._arrays.append(value)
        return (value.shape, str(value.dtype), value.strides)

    def are_same(self) -> bool:
        """Whether the arrays hold what they held."""
        if not all(map(operator.eq, [value.shape for value in self._arrays], self._shapes)):
            return False
        return all(
            [
                value.tobytes() == contents
                for value, contents in zip(self._arrays, self._contents, strict=True)
            ]
        )


# bytes up to which a copy costs less than asking for an address
_SMALL = 1 << 12
# of C's library, where Python's own names lead to it
_compare = getattr(ctypes.pythonapi, "memcmp", None)
if _compare is not None:
    _compare.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t]


def _likeness(value: Any) -> tuple[Any, ...]:
    if host.is_numpy(value):
        return type(value), value.shape, value.dtype, value.strides
    return (type(value),)


def _bytes_of(value: Any) -> bytes:
    return value.tobytes() if host.is_numpy(value) else bytes(value)


def digest(contents: bytes) -> bytes:
    """Short, and equal for equal contents only."""
    return hashlib.blake2b(contents, digest_size=16).digest()
