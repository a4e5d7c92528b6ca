"""One replay: the templates of a run made into objects, over the memory of another call.

In: a call, its state, the new memory of its launches. Out: what the function would have returned,
and its changes to what was there before.
Sits above the templates, under the captured graph.
Invariant: all new objects are made before anything is changed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.engine import realize as engine
from weft.engine.cell import Cell
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.launches import Fresh, Launches
from weft.engine.jit.objects import remove_child, set_child
from weft.engine.jit.places import Place
from weft.engine.jit.state import CapturedState, FoundState
from weft.engine.jit.templates import (
    Again,
    Array,
    CellOf,
    ConstantCell,
    Fill,
    Input,
    Known,
    Label,
    Made,
    Move,
    New,
    Outside,
    OutsideCell,
    Own,
    Plain,
    Rebind,
    Remove,
    Role,
    Same,
    SetChild,
    Source,
    Sources,
    Spread,
    StoredCell,
    Symbolic,
    Template,
    View,
)
from weft.engine.jit.tensors import bind_again
from weft.engine.storage import parts_of, whole_of
from weft.tensor import Tensor
from weft.uop.node import UOp

# how a result is made of the new memory of a replay
Maker = Callable[[Fresh, dict[int, Cell]], Any]


class Replay:
    """What the labels and sources of a run are in another call."""

    def __init__(self, call: Arguments, places: Sequence[Place], numbers: list[int]) -> None:
        self.call = call
        self.places = places
        self.numbers = numbers  # what is computed with numbers that change
        self.draws: list[tuple[int, int]] = []
        self.known: dict[Label, Tensor] = {}
        self.storages: dict[Label, UOp] = {}
        self._made: dict[int, Any] = {}
        self._new_cells: dict[int, Cell] = {}

    def take_state(self, state: CapturedState, found: FoundState, used: Sequence[Label]) -> None:
        """The state that was found, and the arguments that are used."""
        self._state, self._found = state, found
        self.known = dict(found.tensors)
        self.storages = dict(found.storages)
        for label in used:
            index = label.path[0]
            self.known[label] = self.call.tensors[index]
            storage = self.call.descriptions[index].storage
            if storage is not None:
                self.storages[label] = storage

    # ------------------------------------------------------------ numbers
    def value(self, source: Source) -> int:
        """The value of a variable."""
        if source.kind == "argument":
            return self.call.variables[source.name]
        if source.kind == "draw":
            return self.draws[source.value][source.other]
        if source.kind == "number":
            return self.numbers[source.value]
        number: int = source.value
        return number

    def _bind(self, free: Any, sources: Sources) -> Any:
        if not sources:
            return free
        return bind_again(free, {source.name: self.value(source) for source in sources})

    # ------------------------------------------------------------ what comes out
    def finish(
        self, launches: Launches, fresh: Fresh, result: Template, effects: Sequence[Template]
    ) -> Any:
        """The result, and the changes to what was there before."""
        self._launches, self._fresh = launches, fresh
        self._cells = {label: tensor._cell for label, tensor in self.known.items()}
        made = self.make(result)
        values = [
            self.make(effect.value) if isinstance(effect, (SetChild, Fill, Rebind)) else None
            for effect in effects
        ]
        for effect, value in zip(effects, values, strict=True):
            self._apply(effect, value)
        return made

    def make(self, template: Template) -> Any:
        """The object of a template."""
        if isinstance(template, View):
            return self._view(template)
        if isinstance(template, (Plain, Same)):
            return template.value
        if isinstance(template, Known):
            return self.container(template.label)
        if isinstance(template, Again):
            return self._made[template.number]
        if isinstance(template, Symbolic):
            return self._bind(template.free, template.sources)
        if isinstance(template, Array):
            import numpy

            flat = numpy.frombuffer(template.contents, dtype=template.dtype)
            return flat.reshape(template.shape).copy()
        assert isinstance(template, New)
        number, kind = template.number, template.kind
        if issubclass(kind, tuple):
            children = [self.make(child) for _, child in template.children]
            made = self._made[number] = tuple.__new__(kind, children)
            return made
        made = self._made[number] = template.blank.start(kind)
        template.blank.fill(made, [(key, self.make(child)) for key, child in template.children])
        return made

    def _view(self, template: View) -> Tensor:
        moves = self._bind(template.moves, template.sources)
        cell = template.cell
        if isinstance(cell, CellOf) and cell.label.kind == "argument":
            window = self.call.windows.get(cell.label.path[0])
            if window is not None:
                moves = (*window.first, *moves)
        tensor = self._made[template.number] = template.kind._view_of(self._cell(cell), moves)
        tensor.requires_grad = template.requires_grad
        if template.grad is not None:
            tensor.grad = self.make(template.grad)
        return tensor

    def _cell(self, template: Template) -> Cell:
        if isinstance(template, CellOf):
            return self._cells[template.label]
        if isinstance(template, OutsideCell):
            return template.cell
        assert isinstance(template, (ConstantCell, StoredCell))
        found = self._new_cells.get(template.number)
        if found is None:
            is_pure = isinstance(template, ConstantCell) and template.is_pure
            found = self._new_cells[template.number] = Cell(self._value_of(template), is_pure)
        return found

    def _value_of(self, template: Template) -> UOp:
        if isinstance(template, ConstantCell):
            value: UOp = self._bind(template.value.value, template.sources)
            return value
        assert isinstance(template, StoredCell)
        shape = self._bind(template.shape, template.sources)
        return engine.shaped(self._node(template.role), shape)

    def _node(self, role: Role) -> UOp:
        if isinstance(role, Outside):
            return role.node
        if isinstance(role, Input):
            storage = self.storages[role.label]
            return storage if role.part is None else parts_of(storage)[role.part]
        if isinstance(role, Spread):
            return whole_of([self._node(part) for part in role.roles], role.layout)
        return self._fresh[self._launches.places[self._launches.place_of(role)].word][0]

    def container(self, label: Label) -> Any:
        """The tensor or container of a label."""
        if label.kind == "container":
            return self.call.containers[label.path[0]]
        if label in self.known:
            return self.known[label]
        return self._state.container(label, self._found)

    def _apply(self, effect: Template, value: Any) -> None:
        """Let a change happen."""
        if isinstance(effect, Move):
            cell = effect.cell if isinstance(effect.cell, Cell) else self._cells[effect.cell]
            cell.overwrite(self._value_of(effect.value))
            return
        assert isinstance(effect, (SetChild, Fill, Remove, Rebind))
        if isinstance(effect, Rebind):
            self.known[effect.label]._become(value._cell, value._moves)
            return
        key = None if isinstance(effect, Fill) else effect.key
        if effect.label.kind == "root":
            container, key, _ = self.places[effect.label.path[0]].find()
        else:
            container = self.container(effect.label)
        if isinstance(effect, Fill):
            container.clear()
            container.extend(value)
        elif isinstance(effect, SetChild):
            set_child(container, key, value)
        elif isinstance(container, Tensor):
            container.grad = None
        else:
            remove_child(container, key)


def simple_maker(template: Template, words: Callable[[Role], int]) -> Maker | None:
    """How a result is made that is new tensors in lists and tuples, and plain values; None for
    others. As `Replay`, without what it does not need."""
    if isinstance(template, Plain):
        value = template.value
        return lambda fresh, cells: value
    if isinstance(template, New) and template.kind in (list, tuple):
        makers = [simple_maker(child, words) for _, child in template.children]
        known = [maker for maker in makers if maker is not None]
        kind: Any = template.kind
        if len(known) < len(makers):
            return None
        return lambda fresh, cells: kind([maker(fresh, cells) for maker in known])
    if isinstance(template, View) and isinstance(template.cell, StoredCell):
        return _tensor_maker(template, template.cell, words)
    return None


def _tensor_maker(view: View, stored: StoredCell, words: Callable[[Role], int]) -> Maker | None:
    role = stored.role
    is_new = isinstance(role, Made) or (isinstance(role, Own) and role.contents is None)
    if view.sources or stored.sources or view.grad is not None or not is_new:
        return None
    number, shape, word = stored.number, stored.shape, words(stored.role)
    kind, moves, requires_grad = view.kind, view.moves, view.requires_grad

    def make(fresh: Fresh, cells: dict[int, Cell]) -> Tensor:
        cell = cells.get(number)
        if cell is None:
            node = fresh[word][0]
            cell = cells[number] = Cell.of_new(engine.shaped(node, shape), node)
        tensor = kind._view_of(cell, moves)
        tensor.requires_grad = requires_grad
        return tensor

    return make
