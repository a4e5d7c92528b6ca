"""Python objects as the JIT sees them: containers of tensors, of any depth.

In: lists, dicts, tuples, dataclasses, objects, closures. Out: their children by key, a way to set
one, and `Reachable`, everything that can be reached from some roots.
Sits beside `tensors`, below what records and replays.
Invariant: a walk goes only through what a program's state is made of. Modules, classes, weft's own
nodes and devices, and other libraries' objects without attributes are leaves.
"""

from __future__ import annotations

import collections
import enum
import functools
import pathlib
import types
import weakref
from collections.abc import Iterable
from typing import Any

from weft.device import BaseDevice, Buffer
from weft.dtype import DType
from weft.engine.cell import Cell
from weft.engine.forms import CallCache
from weft.knobs import Context, ContextVar
from weft.tensor import Tensor
from weft.uop.node import UOp

NUMBERS = (bool, int, float)
PLAIN = frozenset((bool, int, float, complex, str, bytes, type(None), type(...)))
# beyond so many containers a walk stops: what lies further out is not watched
MOST_CONTAINERS = 50_000
# elements of a container with more come last: a data set does not hide a model from the walk
MANY_CHILDREN = 1_000
_LEAVES = (
    UOp,
    DType,
    Cell,
    Buffer,
    BaseDevice,
    CallCache,
    ContextVar,
    Context,
    pathlib.PurePath,
    enum.Enum,
    type,
    types.ModuleType,
    types.BuiltinFunctionType,
    types.CodeType,
    types.FrameType,
    types.TracebackType,
    types.GeneratorType,
    types.CoroutineType,
    weakref.ReferenceType,
    weakref.WeakKeyDictionary,
    weakref.WeakValueDictionary,
    weakref.WeakSet,
)
_opaque: set[type] = set()


def mark_opaque(kind: type) -> None:
    """Objects of this class are leaves."""
    _opaque.add(kind)


def is_leaf(value: Any) -> bool:
    """Whether nothing is looked for inside."""
    kind = type(value)
    if kind in PLAIN or kind in _opaque or isinstance(value, _LEAVES):
        return True
    return kind.__module__.partition(".")[0] in ("numpy", "torch", "ctypes", "_thread", "threading")


@functools.lru_cache(maxsize=4096)
def slots_of(kind: Any) -> tuple[str, ...]:
    found: list[str] = []
    for part in kind.__mro__:
        names = part.__dict__.get("__slots__", ())
        for name in (names,) if isinstance(names, str) else names:
            if name not in ("__dict__", "__weakref__"):
                private = name.startswith("__") and not name.endswith("__")
                found.append(f"_{part.__name__.lstrip('_')}{name}" if private else name)
    return tuple(found)


def children_of(value: Any) -> dict[Any, Any] | None:
    """What a container holds, by key; None for a leaf."""
    if isinstance(value, Tensor):
        return {} if value.grad is None else {"grad": value.grad}
    if isinstance(value, dict):
        return value
    if isinstance(value, (list, tuple, collections.deque)):
        return dict(enumerate(value))
    if is_leaf(value):
        return None
    if isinstance(value, types.FunctionType):
        cells: dict[Any, Any] = dict(enumerate(value.__closure__ or ()))
        if value.__defaults__:
            cells["__defaults__"] = value.__defaults__
        if value.__kwdefaults__:
            cells["__kwdefaults__"] = value.__kwdefaults__
        return cells
    if isinstance(value, types.MethodType):
        return {"__self__": value.__self__, "__func__": value.__func__}
    if isinstance(value, types.CellType):
        try:
            return {"cell_contents": value.cell_contents}
        except ValueError:
            return {}
    if isinstance(value, functools.partial):
        return {"func": value.func, "args": value.args, "keywords": value.keywords}
    inside = getattr(value, "__dict__", None)
    found: dict[Any, Any] = {}
    if isinstance(inside, dict):
        found = {k: v for k, v in inside.items() if type(v) not in _opaque}
    kind: Any = type(value)
    for name in slots_of(kind):
        try:
            found[name] = getattr(value, name)
        except AttributeError:
            continue
    return found if found or hasattr(value, "__dict__") else None


def is_fixed(value: Any) -> bool:
    """Whether a container's children cannot be replaced, so that the JIT need not look again."""
    return isinstance(
        value, (tuple, types.MethodType, functools.partial, types.FunctionType, frozenset)
    )


def child_of(container: Any, key: Any) -> Any:
    """One child; a key that is not there raises LookupError or AttributeError."""
    if isinstance(container, (dict, list, tuple, collections.deque)):
        return container[key]
    if isinstance(container, types.FunctionType) and isinstance(key, int):
        return (container.__closure__ or ())[key]
    return getattr(container, key)


def set_child(container: Any, key: Any, value: Any) -> None:
    """Replace or add one child."""
    if isinstance(container, (dict, list, collections.deque)):
        container[key] = value
    elif isinstance(container, types.CellType):
        container.cell_contents = value
    elif isinstance(container, type):
        setattr(container, key, value)
    else:
        # also for frozen dataclasses: whoever changed this one knew how
        object.__setattr__(container, key, value)


def remove_child(container: Any, key: Any) -> None:
    """Take one child away."""
    if isinstance(container, dict):
        container.pop(key, None)
    elif hasattr(container, key):
        delattr(container, key)


class Found:
    """A tensor, where it was found first: `container` and `key`, and a label that two walks over
    the same structure share."""

    __slots__ = ("container", "key", "label", "tensor")

    def __init__(self, tensor: Tensor, container: Any, key: Any, label: tuple[Any, ...]) -> None:
        self.tensor = tensor
        self.container = container
        self.key = key
        self.label = label


class Reachable:
    """All containers and tensors that can be reached from roots.

    `roots` are (label, container, key, child): a root's own place may be replaced as well.
    """

    def __init__(self, roots: Iterable[tuple[Any, Any, Any, Any]]) -> None:
        self.found: list[Found] = []
        self.containers: list[Any] = []
        # id of a container or tensor -> its label
        self.labels: dict[int, tuple[Any, ...]] = {}
        # further ways to the same: (label of the container, key, id)
        self.again: list[tuple[tuple[Any, ...], Any, int]] = []
        pending: list[tuple[tuple[Any, ...], Any, Any, Any]]
        pending = [((name,), container, key, child) for name, container, key, child in roots]
        pending.reverse()
        last: list[tuple[tuple[Any, ...], Any, Any, Any]] = []
        while (pending or last) and len(self.containers) < MOST_CONTAINERS:
            if not pending:
                pending, last = last[::-1], []
            label, container, key, child = pending.pop()
            if type(child) in PLAIN:
                continue
            if id(child) in self.labels:
                self.again.append((label[:-1], label[-1], id(child)))
                continue
            children = children_of(child)
            if children is None:
                continue
            self.labels[id(child)] = label
            self.containers.append(child)
            if isinstance(child, Tensor):
                self.found.append(Found(child, container, key, label))
            following = [((*label, k), child, k, v) for k, v in children.items()]
            if len(following) > MANY_CHILDREN:
                last.extend(following)
            else:
                pending.extend(reversed(following))

    def snapshot(self) -> list[tuple[Any, dict[Any, Any]]]:
        """The containers that can change, and what they hold now."""
        return [(c, dict(children_of(c) or {})) for c in self.containers if not is_fixed(c)]


def holds_tensor(value: Any) -> bool:
    """Whether there is a tensor in it, at any depth."""
    if isinstance(value, Tensor):
        return True
    if type(value) in PLAIN:
        return False
    return bool(Reachable([("", None, None, value)]).found)
