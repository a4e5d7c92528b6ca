"""Templates: what a function returned and changed, written down so that it can be made anew.

In: Python objects of one run. Out: small dataclasses that name tensors by their label or by the
memory they are in, and copy everything else that is new.
Sits above `objects`, below what records (`capture`) and what makes the objects again (`replay`).
Invariant: a template holds no tensor and no memory of the run that it was made from.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from weft.engine import host
from weft.engine.cell import Cell
from weft.engine.jit.objects import PLAIN, children_of, is_leaf
from weft.engine.jit.tensors import free_of
from weft.tensor import Tensor
from weft.uop.layout import Layout
from weft.uop.node import UOp


class Template:
    """One of the dataclasses below: equal ones of two runs mean the same."""

    __slots__ = ()

    def parts(self) -> Iterator[Any]:
        """Its fields, in order."""
        return (getattr(self, field.name) for field in fields(self))  # type: ignore[arg-type]


class Label:
    """Names something that was there before a call, in a way that holds for other calls too.

    kind: "argument" (a tensor), "container" (of the arguments), "state" (a tensor or container that
    names in the function lead to), "root" (the place of such a name).
    """

    __slots__ = ("_hash", "kind", "path")

    def __init__(self, kind: str, path: tuple[Any, ...]) -> None:
        self.kind = kind
        self.path = path
        # labels are looked up in every replay
        self._hash = hash((kind, path))

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        if self is other:
            return True
        return isinstance(other, Label) and (self.kind, self.path) == (other.kind, other.path)

    def __repr__(self) -> str:
        return f"<{self.kind} {self.path}>"


@dataclass(frozen=True, slots=True)
class Source:
    """Where a variable's value comes from.

    kind: "given" (value, and what the arguments give that name), then either "argument" or "fixed"
    (value); "draw" (number of the draw, which word of it); "number" (number of an expression).
    """

    name: str
    kind: str
    value: Any = None
    other: Any = None


Sources = tuple[Source, ...]


# ------------------------------------------------------------ memory
@dataclass(frozen=True, slots=True)
class Input(Template):
    """The memory of something that was there before; on several devices, that of one of them."""

    label: Label
    part: int | None = None


@dataclass(frozen=True, slots=True)
class Made(Template):
    """What an execution made: the memory of this number in its schedule."""

    execution: int
    number: int


@dataclass(frozen=True, slots=True)
class Outside(Template):
    """Memory that was reached in another way than by arguments and names."""

    node: UOp


@dataclass(frozen=True, slots=True)
class Own(Template):
    """Memory that the function made itself: with these contents, or (None) without any."""

    number: int
    dtype: Any
    size: int
    device: str
    contents: bytes | None


@dataclass(frozen=True, slots=True)
class Spread(Template):
    """Memory on several devices."""

    roles: tuple[Input | Made | Outside | Own, ...]
    layout: Layout | None


Role = Input | Made | Outside | Own | Spread


# ------------------------------------------------------------ cells
@dataclass(frozen=True, slots=True)
class CellOf(Template):
    """The cell of a tensor that was there before."""

    label: Label


@dataclass(frozen=True, slots=True)
class OutsideCell(Template):
    """A cell that was there before, reached in another way."""

    cell: Cell


@dataclass(frozen=True, slots=True)
class ConstantCell(Template):
    """A new cell with a value that is in no memory."""

    number: int
    value: Any  # trace.Constant
    sources: Sources
    is_pure: bool


@dataclass(frozen=True, slots=True)
class StoredCell(Template):
    """A new cell over a memory."""

    number: int
    role: Role
    shape: Any
    sources: Sources


# ------------------------------------------------------------ objects
@dataclass(frozen=True, slots=True)
class Plain(Template):
    """A number or text; floats as text, where NaN is like NaN."""

    kind: type
    shown: Any

    @property
    def value(self) -> Any:
        """The number or text itself."""
        return float(self.shown) if self.kind is float else self.shown


@dataclass(frozen=True, slots=True)
class Same(Template):
    """This very object."""

    value: Any


@dataclass(frozen=True, slots=True)
class Known(Template):
    """A tensor or container that was there before."""

    label: Label


@dataclass(frozen=True, slots=True)
class Again(Template):
    """What was made under this number."""

    number: int


@dataclass(frozen=True, slots=True)
class Symbolic(Template):
    """An expression of variables."""

    free: Any
    sources: Sources


@dataclass(frozen=True, slots=True)
class Array(Template):
    """An array of NumPy's."""

    dtype: str
    shape: tuple[int, ...]
    contents: bytes


@dataclass(frozen=True, slots=True)
class New(Template):
    """A new container or object with these children."""

    number: int
    kind: type
    blank: _Blank
    children: tuple[tuple[Any, Template], ...]


@dataclass(frozen=True, slots=True)
class View(Template):
    """A new tensor."""

    number: int
    kind: type[Tensor]
    cell: Template
    moves: Any
    sources: Sources
    requires_grad: bool | None
    grad: Template | None


# ------------------------------------------------------------ effects
@dataclass(frozen=True, slots=True)
class SetChild(Template):
    """A place in a container holds something else."""

    label: Label
    key: Any
    value: Template


@dataclass(frozen=True, slots=True)
class Fill(Template):
    """A sequence has other elements."""

    label: Label
    value: Template


@dataclass(frozen=True, slots=True)
class Remove(Template):
    """A place in a container is gone."""

    label: Label
    key: Any


@dataclass(frozen=True, slots=True)
class Rebind(Template):
    """A tensor was made another name of something."""

    label: Label
    value: Template


@dataclass(frozen=True, slots=True)
class Move(Template):
    """A storage (of a tensor, or this cell) is in other memory, or is a constant."""

    cell: Label | Cell
    value: Template


class TemplateMaker:
    """Makes templates of one run's objects."""

    def __init__(
        self,
        known: dict[int, Label],
        containers: dict[int, Label],
        cell_template: Callable[[Cell], Template],
        classify: Callable[[dict[str, int]], Sources],
    ) -> None:
        self.known = {**containers, **known}  # tensors and containers that were there, by id
        self.cell_template = cell_template
        self.classify = classify
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # keeps ids from being reused while they are compared
        self.tensors: list[Tensor] = []  # the new ones

    def make(self, value: Any) -> Template:
        """The template of an object."""
        if type(value) in PLAIN:
            return Plain(type(value), repr(value) if type(value) is float else value)
        if isinstance(value, UOp):
            try:
                free, values = free_of(value)
            except KeyError:
                return Same(value)
            return Symbolic(free, self.classify(values))
        label = self.known.get(id(value))
        if label is not None:
            return Known(label)
        if isinstance(value, Tensor):
            return self.make_view(value)
        if id(value) in self.seen:
            return Again(self.seen[id(value)])
        if host.is_numpy(value):
            return Array(str(value.dtype), value.shape, value.tobytes())
        children = None if is_leaf(value) or callable(value) else children_of(value)
        if children is None:
            return Same(value)
        number = self._number(value)
        parts = tuple([(key, self.make(child)) for key, child in children.items()])
        return New(number, type(value), _Blank(value), parts)

    def make_view(self, tensor: Tensor) -> Template:
        """What a tensor is a view of."""
        if id(tensor) in self.seen:
            return Again(self.seen[id(tensor)])
        number = self._number(tensor)
        self.tensors.append(tensor)
        moves, values = free_of(tensor._moves)
        grad = None if tensor.grad is None else self.make(tensor.grad)
        cell = self.cell_template(tensor._cell)
        sources = self.classify(values)
        return View(number, type(tensor), cell, moves, sources, tensor.requires_grad, grad)

    def _number(self, value: Any) -> int:
        self.kept.append(value)
        return self.seen.setdefault(id(value), len(self.seen))


class _Blank:
    """An object of which copies are made; all that differs is elsewhere in the template."""

    __slots__ = ("original",)

    def __init__(self, value: Any) -> None:
        self.original: Any = None
        if isinstance(value, (dict, list, deque)):
            self.original = copy.copy(value)
            self.original.clear()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Blank)

    def __hash__(self) -> int:
        return 0

    def start(self, kind: type) -> Any:
        """A new object without children."""
        return object.__new__(kind) if self.original is None else copy.copy(self.original)

    @staticmethod
    def fill(made: Any, parts: list[tuple[Any, Any]]) -> None:
        """Give a new object its children."""
        if isinstance(made, dict):
            made.update(parts)
        elif isinstance(made, (list, deque)):
            made.extend(child for _, child in parts)
        else:
            for key, child in parts:
                object.__setattr__(made, key, child)
