"""The arguments of a call, taken apart: structure, numbers, tensors, variables.

In: what a jitted function is called with. Out: `Arguments`; two calls with equal `structure` and
`numbers` are served by one captured graph.
Sits above `tensors` and `objects`, below what runs.
Invariant: everything a function can learn from its arguments without reading a tensor's values is
in `structure`, `numbers` or `variables`.
"""

from __future__ import annotations

import inspect
import math
import pathlib
from collections.abc import Callable
from typing import Any

from weft.device import Device
from weft.engine import host
from weft.engine import realize as engine
from weft.engine.cell import Cell
from weft.engine.jit.kinds import raw_memory_of
from weft.engine.jit.objects import PLAIN, children_of
from weft.engine.jit.tensors import Description, Window, describe, free_of, window_of
from weft.errors import JitError
from weft.tensor import Tensor
from weft.uop.node import UOp
from weft.uop.opset import Ops

_EMPTY = inspect.Parameter.empty
# immutable values of these modules, known by equality
_BY_VALUE = ("decimal", "fractions", "datetime")


class Arguments:
    """One call's arguments."""

    __slots__ = (
        "containers",
        "descriptions",
        "is_stored",
        "kept",
        "numbers",
        "places",
        "raw",
        "structure",
        "tensors",
        "values",
        "variables",
        "windows",
    )

    def __init__(self, values: tuple[Any, ...], use_windows: bool) -> None:
        self.values = values
        self.tensors: list[Tensor] = []
        self.containers: list[Any] = []
        self.numbers: list[Any] = []
        self.raw: list[Any] = []  # the numbers themselves
        # where each stands: (container, key)
        self.places: list[tuple[Any, Any]] = []
        self.variables: dict[str, int] = {}
        self.kept: list[Any] = []  # objects known by their id: that stays theirs while they live
        self.windows: dict[int, Window] = {}
        self.descriptions: list[Description] = []
        self.is_stored = self._take_stored()
        if not self.is_stored:
            tokens = _flatten(values, self)
            self._realize()
            self._find_windows(use_windows)
            self.structure = (*tokens, *self._describe_tensors())

    def _take_stored(self) -> bool:
        """The usual case, quickly: different tensors, each the whole of a storage."""
        found: list[Any] = []
        numbers: dict[UOp, int] = {}
        for value in self.values:
            if type(value) is not Tensor or value._moves or value.grad is not None:
                return False
            node = value._cell._value
            if node.op is Ops.RESHAPE:
                node = node.src[0]
            if node.op is not Ops.BUFFER or node in numbers:
                return False
            numbers[node] = len(numbers)
            found.append(value)
        self.tensors = found
        self.structure = (len(found), *["tensor"] * len(found), *self._describe_tensors())
        return True

    def _realize(self) -> None:
        """Inputs are memory. What belongs to no device yet joins the others'."""
        pending = [t._cell for t in self.tensors if not t._cell.pure and not t._cell.is_realized]
        if not pending:
            return
        places = [t.device for t in self.tensors]
        place = next((p for p in places if p is not None and not host.is_storage(p)), None)
        for cell in dict.fromkeys(pending):
            if cell.value.device is None and place is not None and place != Device.DEFAULT:
                cell.value = host.pin(cell.value, place)
        engine.realize_apart(pending, Cell.live)

    def _find_windows(self, use_windows: bool) -> None:
        """A view of a part of a storage that appears once is that part, wherever it starts."""
        if not use_windows:
            return
        for index, tensor in enumerate(self.tensors):
            if not tensor._moves or tensor._cell.pure:
                continue
            storage = tensor._cell.storage
            if storage is None or Cell.is_shared(storage) or type(storage.arg.device) is tuple:
                continue
            if sum(other._cell.storage is storage for other in self.tensors) == 1:
                window = window_of(tensor)
                if window is not None:
                    self.windows[index] = window

    def _describe_tensors(self) -> list[Any]:
        result: list[Any] = []
        numbers: dict[UOp, int] = {}
        for index, tensor in enumerate(self.tensors):
            try:
                found = describe(tensor, self.windows.get(index))
            except KeyError as error:
                # one name with two values in one tensor: only this very tensor is like it
                found = Description(("odd", str(error), id(tensor)), tensor._cell.storage, {})
                self.kept.append(tensor)
            self.descriptions.append(found)
            result.append(found.structure)
            if found.storage is not None:
                result.append(numbers.setdefault(found.storage, len(numbers)))
            if found.variables:
                result.extend(self.add_variables(found.variables))
        return result

    @property
    def extra(self) -> tuple[Any, ...]:
        """What of the arguments has code: their classes, and functions among them."""
        if not (self.containers or self.kept):
            return ()
        return (*dict.fromkeys([type(c) for c in self.containers]), *self.kept)

    def add_variables(self, values: dict[str, int]) -> list[Any]:
        """Values of variables. A name with two values is known by them, not free."""
        odd = []
        for name, value in values.items():
            if self.variables.setdefault(name, value) != value:
                odd.append((name, self.variables[name], value))
        return odd


def _flatten(values: tuple[Any, ...], into: Arguments) -> list[Any]:
    """The structure as a flat list; tensors, numbers and containers are collected on the way."""
    tokens: list[Any] = [len(values)]
    known: dict[int, int] = {}
    pending: list[tuple[Any, Any, Any]] = [
        (values, i, values[i]) for i in range(len(values) - 1, -1, -1)
    ]
    while pending:
        container, key, value = pending.pop()
        kind = type(value)
        if kind is Tensor or isinstance(value, Tensor):
            seen = known.get(id(value))
            if seen is not None:
                tokens.append(("tensor", seen))
                continue
            known[id(value)] = len(into.tensors)
            tokens.append("tensor")
            into.tensors.append(value)
            if value.grad is not None:
                tokens.append("grad")
                pending.append((value, "grad", value.grad))
        elif kind is int or kind is float or kind is bool:
            tokens.append(kind)
            into.numbers.append(value.hex() if kind is float else value)
            into.raw.append(value)
            into.places.append((container, key))
        elif kind in PLAIN:
            tokens.append((kind, value))
        elif isinstance(value, UOp):
            tokens.extend(_symbolic(value, into))
        elif id(value) in known:
            tokens.append(("again", known[id(value)]))
        else:
            tokens.extend(_open(value, into, known, pending))
    return tokens


def _symbolic(value: UOp, into: Arguments) -> list[Any]:
    try:
        free, variables = free_of(value)
    except KeyError:
        return [value]
    return [free, *into.add_variables(variables)]


def _open(
    value: Any, into: Arguments, known: dict[int, int], pending: list[tuple[Any, Any, Any]]
) -> list[Any]:
    """A container's own token; its children wait to be flattened."""
    memory = raw_memory_of(value)
    if memory is not None:
        return [memory.token]
    children = children_of(value)
    if children is None:
        return [_leaf(value, into)]
    known[id(value)] = len(into.containers)
    into.containers.append(value)
    if callable(value):
        into.kept.append(value)
    following = [(value, key, child) for key, child in children.items()]
    following.reverse()
    pending.extend(following)
    identity = id(value) if callable(value) else None
    keys = tuple([(type(key), key) if type(key) in PLAIN else id(key) for key in children])
    return [(type(value), identity, keys)]


def _leaf(value: Any, into: Arguments) -> Any:
    """What is not looked into: by its contents where Python knows them, else by identity."""
    if isinstance(value, (range, pathlib.PurePath)) or type(value).__module__ in _BY_VALUE:
        return type(value), value
    if isinstance(value, slice):
        parts = (value.start, value.stop, value.step)
        if all(part is None or isinstance(part, int) for part in parts):
            return slice, parts
    if isinstance(value, (set, frozenset)) and all(type(part) in PLAIN for part in value):
        return type(value), frozenset((type(part), part) for part in value)
    into.kept.append(value)
    return "is", id(value)


class _Bound:
    """Marks values that were put in order by name."""


_BOUND = _Bound()


class Signature:
    """Puts arguments in the order of a function's parameters.

    Defaults that a call without names leaves out stay out: they are parts of the function, which
    guards compare as they compare everything else that it reads.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.names: tuple[str, ...] | None = None
        self.defaults: tuple[Any, ...] = ()
        # how many arguments without names are a call
        self.least, self.most = 0, -1.0
        try:
            self.signature: inspect.Signature | None = inspect.signature(function)
        except (TypeError, ValueError):
            self.signature = None
            return
        parameters = list(self.signature.parameters.values())
        kinds = [p.kind for p in parameters]
        named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
        by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        if all(kind in named for kind in kinds):
            self.names = tuple(p.name for p in parameters)
            self.defaults = tuple(p.default for p in parameters)
        needed = [p for p in parameters if p.default is _EMPTY and p.kind in (*by_place, *named)]
        if all(p.kind in by_place for p in needed):
            takes_rest = inspect.Parameter.VAR_POSITIONAL in kinds
            self.least = len(needed)
            self.most = math.inf if takes_rest else sum(kind in by_place for kind in kinds)

    def order(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
        """The values of the parameters; TypeError if the call does not fit."""
        names = self.names
        if not kwargs and self.least <= len(args) <= self.most:
            return args
        if names is not None and len(args) <= self.most:
            values = list(args)
            used = 0
            for name, default in zip(names[len(args) :], self.defaults[len(args) :], strict=True):
                if name in kwargs:
                    values.append(kwargs[name])
                    used += 1
                elif default is not _EMPTY:
                    values.append(default)
                else:
                    break
            else:
                if used == len(kwargs):
                    return tuple(values)
        if self.signature is None:
            return (*args, *[item for name in sorted(kwargs) for item in (name, kwargs[name])])
        bound = self.signature.bind(*args, **kwargs)
        bound.apply_defaults()
        ordered = tuple(bound.arguments.values())
        # not to be taken for a call that is given a tuple and a dict
        return ordered if names is not None else (*ordered, _BOUND)

    def call(self, function: Callable[..., Any], values: tuple[Any, ...]) -> Any:
        """The function with ordered values."""
        if self.names is None:
            raise JitError("a function whose parameters are not plain names")
        return function(**dict(zip(self.names, values, strict=False)))
