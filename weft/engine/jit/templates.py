"""Templates: what a function returned and changed, written down so that it can be made anew.

In: Python objects of one run. Out: nested tuples that name tensors by their label or by the memory
they are in, and copy everything else that is new; and the same objects made from a template, over
the memory of a later call.
Sits above `objects`, below what records and what replays.
Invariant: a template holds no tensor and no memory of the run that it was made from.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.engine import host
from weft.engine.cell import Cell
from weft.engine.jit.objects import PLAIN, children_of, is_leaf
from weft.engine.jit.tensors import bind_again, free_of
from weft.tensor import Tensor
from weft.uop.node import UOp

Template = tuple[Any, ...]


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


class TemplateMaker:
    """Makes templates of one run's objects."""

    def __init__(
        self,
        known: dict[int, Label],
        containers: dict[int, Label],
        cell_template: Callable[[Cell], Template],
        classify: Callable[[dict[str, int]], Template],
    ) -> None:
        self.known = known  # tensors that were there before, by id
        self.containers = containers  # and containers
        self.cell_template = cell_template
        self.classify = classify
        self.seen: dict[int, int] = {}
        self.kept: list[Any] = []  # keeps ids from being reused while they are compared
        self.tensors: list[Tensor] = []  # the new ones

    def make(self, value: Any) -> Template:
        """The template of an object."""
        if type(value) in PLAIN:
            return ("plain", type(value), repr(value) if type(value) is float else value)
        if isinstance(value, Tensor):
            return self.make_tensor(value)
        if isinstance(value, UOp):
            try:
                free, values = free_of(value)
            except KeyError:
                return ("same", value)
            return ("symbolic", free, self.classify(values))
        if id(value) in self.containers:
            return ("container", self.containers[id(value)])
        if id(value) in self.seen:
            return ("again", self.seen[id(value)])
        if host.is_numpy(value):
            return ("array", str(value.dtype), value.shape, value.tobytes())
        children = None if is_leaf(value) or callable(value) else children_of(value)
        if children is None:
            return ("same", value)
        number = self.seen[id(value)] = len(self.seen)
        self.kept.append(value)
        parts = tuple([(key, self.make(child)) for key, child in children.items()])
        return ("new", number, type(value), _Blank(value), parts)

    def make_tensor(self, tensor: Tensor) -> Template:
        """A tensor that was there, or a new one over a cell."""
        label = self.known.get(id(tensor))
        if label is not None:
            return ("known", label)
        return self.make_view(tensor)

    def make_view(self, tensor: Tensor) -> Template:
        """What a tensor is a view of."""
        if id(tensor) in self.seen:
            return ("again", self.seen[id(tensor)])
        number = self.seen[id(tensor)] = len(self.seen)
        self.kept.append(tensor)
        self.tensors.append(tensor)
        moves, values = free_of(tensor._moves)
        grad = None if tensor.grad is None else self.make(tensor.grad)
        place = self.cell_template(tensor._cell)
        return (
            "tensor",
            number,
            type(tensor),
            place,
            (moves, self.classify(values)),
            tensor.requires_grad,
            grad,
        )


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


class Instances:
    """Objects made from the templates of one run, for one later call."""

    def __init__(
        self,
        known: Callable[[Label], Tensor],
        container: Callable[[Label], Any],
        view: Callable[[type, Template, Any], Tensor],
        values: Callable[[Template], dict[str, int]],
    ) -> None:
        self.known = known
        self.container = container
        self.view = view
        self.values = values
        self.made: dict[int, Any] = {}

    def make(self, template: Template) -> Any:
        """The object."""
        kind = template[0]
        if kind == "tensor":
            return self.make_tensor(template)
        if kind == "known":
            return self.known(template[1])
        if kind == "plain":
            return float(template[2]) if template[1] is float else template[2]
        if kind == "same":
            return template[1]
        if kind == "container":
            return self.container(template[1])
        if kind == "again":
            return self.made[template[1]]
        if kind == "symbolic":
            return bind_again(template[1], self.values(template[2]))
        if kind == "array":
            return _array(*template[1:])
        _, number, made_of, blank, parts = template
        if issubclass(made_of, tuple):
            made = tuple.__new__(made_of, [self.make(child) for _, child in parts])
            self.made[number] = made
            return made
        made = self.made[number] = blank.start(made_of)
        blank.fill(made, [(key, self.make(child)) for key, child in parts])
        return made

    def make_tensor(self, template: Template) -> Tensor:
        """A new tensor."""
        _, number, kind, place, moves, requires_grad, grad = template
        if number in self.made:
            found: Tensor = self.made[number]
            return found
        free, values = moves
        tensor = self.view(kind, place, bind_again(free, self.values(values)) if values else free)
        tensor.requires_grad = requires_grad
        self.made[number] = tensor
        if grad is not None:
            tensor.grad = self.make(grad)
        return tensor


def _array(dtype: str, shape: tuple[int, ...], contents: bytes) -> Any:
    import numpy

    return numpy.frombuffer(contents, dtype=dtype).reshape(shape).copy()
