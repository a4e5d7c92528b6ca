"""One recorded run of a function: it runs as ever, and what it did is written down.

In: a function, its arguments, the names it reads. Out: its result, and a `Run`: which schedules ran
over which memory, which random numbers were drawn, what came out and what was changed.
Sits above the templates; graphs are made from Runs, and two Runs can be compared.
Invariant: after a run the world is as if the function had simply been called, only that everything
it left pending is computed.

While it runs, the memory of its arguments and of the state it can reach has stand-ins (BUFFER
nodes of their own over the same memory), so that what is read through a known tensor can be told
from what is read by other means.
"""

from __future__ import annotations

import gc
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.device import Device
from weft.dtype import dtypes
from weft.engine import history, host, record
from weft.engine import realize as engine
from weft.engine.cell import Cell
from weft.engine.interrupts import is_lost, lose
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.guards import Guards
from weft.engine.jit.note_state import StateNotes
from weft.engine.jit.objects import (
    Reachable,
    children_of,
    holds_tensor,
    is_fixed,
)
from weft.engine.jit.observe import Observed
from weft.engine.jit.parameters import PREFIX, Number, NumberBook, UsedAsMore
from weft.engine.jit.places import state_roots
from weft.engine.jit.templates import (
    CellOf,
    ConstantCell,
    Fill,
    Input,
    Label,
    Made,
    Move,
    Outside,
    OutsideCell,
    Own,
    Rebind,
    Remove,
    Role,
    SetChild,
    Source,
    Sources,
    Spread,
    StoredCell,
    Template,
    TemplateMaker,
)
from weft.engine.jit.tensors import Kind, StandIn, describe, free_of
from weft.engine.jit.trace import Constant, Execution, Run
from weft.engine.prepared import Prepared, Request
from weft.engine.schedule import origins_of
from weft.engine.storage import buffer_of, memory_of, parts_of, storages_of
from weft.errors import JitError
from weft.schedule.place import storage_of
from weft.tensor import Tensor
from weft.uop.node import UOp
from weft.uop.opset import Ops


class WindowConflict(Exception):
    """A part of a storage is an argument, and the storage itself is state."""


def run_recorded(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    arguments: Arguments,
    guards: Guards,
    is_strict: bool,
    observed: Observed,
    book: NumberBook | None = None,
) -> tuple[Any, Run]:
    """Call the function; `is_strict`: what cannot be replayed is an error."""
    recording = Recording(arguments, guards, is_strict, book)
    try:
        with record.recording(recording):
            with observed.watching():
                result = function(*args, **kwargs)
            recording.finish(result)
    except KeyboardInterrupt:
        # what was interrupted is not begun again: writes that wait do not happen
        raise
    except BaseException:
        recording.abandon()
        raise
    finally:
        recording.restore()
    return result, recording.run


class Recording:
    """Listens while a function runs."""

    def __init__(
        self,
        arguments: Arguments,
        guards: Guards,
        is_strict: bool,
        book: NumberBook | None,
    ) -> None:
        self.book = book
        self.arguments = arguments
        self.places = guards.places
        self.read = guards.tensors()  # ids of tensors that it can read
        self.is_strict = is_strict
        self.run = Run(dict(arguments.variables))
        self.random_slots: list[Any] = []
        self.pasts: list[history.Past] = []
        self.draws: list[tuple[int, tuple[int, int]]] = []
        self.walk = Reachable(state_roots(self.places))
        self._realize_state()
        self._refuse_window_conflicts()
        # known tensors: those of the arguments, then those of the state
        self.known: dict[int, Label] = {}
        self.tensors: list[tuple[Label, Tensor]] = []
        self.kinds: dict[Label, Kind] = {}  # of those that it can read
        for index, tensor in enumerate(arguments.tensors):
            self._add_known(Label("argument", (index,)), tensor)
        for found in self.walk.found:
            self._add_known(Label("state", found.label), found.tensor)
        self.before: dict[Label, tuple[Cell, tuple[Any, ...]]] = {}
        self.stand_ins: dict[int, StandIn] = {}  # by id of the stand-in's cell
        self.by_node: dict[UOp, tuple[StandIn, Label]] = {}
        self.by_part: dict[UOp, Input] = {}  # of stand-ins on several devices
        self.groups: dict[Label, Label] = {}
        self.descriptions: dict[Label, tuple[Any, ...]] = {}
        self._stand_in()
        self.children = self._snapshot()
        self.cells_before: weakref.WeakKeyDictionary[Cell, tuple[int, UOp]]
        self.cells_before = weakref.WeakKeyDictionary(
            {cell: (cell.version, cell.value) for cell in Cell.live}
        )
        self.marker = UOp.new_buffer(Device.DEFAULT, 0, dtypes.uint8).arg.number
        self.made: weakref.WeakKeyDictionary[UOp, Role] = weakref.WeakKeyDictionary()
        self.outside: dict[int, UOp] = {}  # by id of the memory
        self.written: set[int] = set()  # ids of memory
        self.memory: list[Any] = []  # keeps these ids
        self.new_cells: dict[int, int] = {}
        self.kept: list[Any] = []
        self.fresh = 0

    # ------------------------------------------------------------ before
    def _realize_state(self) -> None:
        """What the function closes over and is on a device is computed before, like arguments."""
        pending = [f.tensor._cell for f in self.walk.found]
        pending = [c for c in pending if not (c.pure or c.inline or c.is_realized)]
        pending = [c for c in dict.fromkeys(pending) if c.value.device is not None]
        engine.realize_apart(pending, Cell.live)

    def _refuse_window_conflicts(self) -> None:
        windows = {self.arguments.tensors[i]._cell.storage for i in self.arguments.windows}
        if windows and any(f.tensor._cell.storage in windows for f in self.walk.found):
            raise WindowConflict

    def _add_known(self, label: Label, tensor: Tensor) -> None:
        if id(tensor) not in self.known:
            self.known[id(tensor)] = label
            self.tensors.append((label, tensor))
            if id(tensor) in self.read:
                self.kinds[label] = Kind.of(tensor)

    def _stand_in(self) -> None:
        """Known tensors read and write stand-ins of their memory."""
        by_cell: dict[int, StandIn] = {}
        first: dict[UOp, Label] = {}
        self.of_cell: dict[int, Label] = {}  # by id of an original cell
        swapped: list[tuple[Tensor, StandIn]] = []
        for label, tensor in self.tensors:
            cell = tensor._cell
            self.before[label] = (cell, tensor._moves)
            self.of_cell.setdefault(id(cell), label)
            window = None
            if label.kind == "argument":
                window = self.arguments.windows.get(label.path[0])
            if cell.pure or not cell.is_realized or host.is_storage(cell.value.device):
                self.descriptions[label] = (cell.pure, cell.value)
                continue
            try:
                self.descriptions[label] = describe(tensor, window).structure
            except KeyError:
                self.descriptions[label] = ("odd", id(tensor))
            stand_in = by_cell.get(id(cell))
            if stand_in is None:
                stand_in = by_cell[id(cell)] = StandIn(cell, window)
                self.stand_ins[id(stand_in.cell)] = stand_in
            group = first.setdefault(stand_in.storage, label)
            self.groups[label] = group
            self.by_node[stand_in.node] = (stand_in, group)
            if type(stand_in.node.arg.device) is tuple:
                for number, part in enumerate(parts_of(stand_in.node)):
                    self.by_part[part] = Input(group, number)
            swapped.append((tensor, stand_in))
        for tensor, stand_in in swapped:
            tensor._cell = stand_in.cell
            tensor._uop = None
            if stand_in.window is not None:
                tensor._moves = stand_in.window.rest

    def _snapshot(self) -> list[tuple[Label, Any, dict[Any, Any]]]:
        """Containers that can change, and what they hold."""
        found: list[tuple[Label, Any]] = [
            (Label("container", (i,)), c) for i, c in enumerate(self.arguments.containers)
        ]
        for container in self.walk.containers:
            if not isinstance(container, Tensor):
                found.append((Label("state", self.walk.labels[id(container)]), container))
        self.containers = {id(c): label for label, c in reversed(found)}
        found += self.tensors
        for number, container, key, _ in state_roots(self.places):
            if container is not None and id(container) not in self.containers:
                found.append((Label("root", (number,)), _Place(container, key)))
        return [(label, c, _children(c)) for label, c in found if not is_fixed(c)]

    # ------------------------------------------------------------ while it runs
    def before_realize(self, sink: UOp) -> None:
        """Pending tensors from outside that read what will be overwritten are computed first."""
        written = {storage_of(u.src[0]) for u in sink.toposort() if u.op is Ops.STORE}
        if not written:
            return
        written |= {self.by_node[node][0].storage for node in written if node in self.by_node}
        readers = [c for c in self.cells_before if not c.is_realized and not c.pure]
        readers = [
            cell
            for cell in readers
            if id(cell) not in self.stand_ins
            and self.cells_before[cell][0] == cell.version
            and not written.isdisjoint(cell.value.toposort())
        ]
        if readers:
            with record.recording(None):
                engine.realize_cells(readers, Cell.live)

    def before_execute(self, prepared: Prepared, request: Request) -> None:
        """Note which memory a schedule will run over."""
        roles = tuple([self.role_of(node) for node in request.inputs])
        self._refuse_aliases([request.inputs[n] for n in prepared.overwritten], request.inputs)
        given = {request.names[name]: value for name, value in request.values.items()}
        known_as = {original: name for name, original in request.names.items()}
        sources = {known_as[source.name]: source for source in self.classify(given)}
        facts = tuple([(n.dtype, n.arg.size, n.arg.device) for n in request.inputs])
        self.run.executions.append(
            Execution(prepared, request.key, roles, facts, sources, origins_of(request))
        )

    def after_execute(self, nodes: dict[int, UOp]) -> None:
        """Note which memory came out."""
        number = len(self.run.executions) - 1
        count = self.run.executions[-1].prepared.inputs
        for position, node in nodes.items():
            if position >= count:
                self.made[node] = Made(number, position)

    def drew(self, slot: int, words: int, key: tuple[int, int]) -> None:
        """Random numbers."""
        self.draws.append((slot, key))
        self.run.events.append(("draw", words))

    def seeded(self, seed: int) -> None:
        """A seed."""
        self.run.events.append(("seed", seed))

    def refuse(self, what: str) -> None:
        """A first run may still do so; a capture cannot."""
        self.run.has_read = True
        if self.is_strict:
            error = JitError(
                f"a jitted function {what} while it is captured; a replay runs no Python and could "
                "not do it again. Return the Tensor and read it outside, or call without TinyJit"
            )
            error.what = what
            raise error

    def role_of(self, node: UOp) -> Role:
        """What a memory is to this run."""
        stand_in = self.by_node.get(node)
        if stand_in is not None:
            return Input(stand_in[1])
        if type(node.arg.device) is tuple:
            roles = [self.role_of(part) for part in parts_of(node)]
            return Spread(tuple(roles), node.arg.layout)  # type: ignore[arg-type]
        part = self.by_part.get(node)
        if part is not None:
            return part
        found = self.made.get(node)
        if found is not None:
            return found
        if node.arg.number > self.marker:
            memory = memory_of(node)
            self.fresh += 1
            has_data = memory is not None and memory.is_allocated()
            contents = memory.as_memoryview().tobytes() if memory and has_data else None
            facts = (node.dtype, node.arg.size, node.arg.device)
            role = self.made[node] = Own(self.fresh, *facts, contents)
            return role
        return Outside(node)

    def _refuse_aliases(self, overwritten: list[UOp], touched: list[UOp]) -> None:
        """Memory that is reached as an input and from outside, and written: unordered."""
        for node in touched:
            memory = buffer_of(node).base
            self.memory.append(memory)
            if isinstance(self.role_of(node), Outside):
                self.outside[id(memory)] = node
        self.written |= {id(buffer_of(node).base) for node in overwritten}
        nodes = [part for node in self.by_node for part in storages_of(node)]
        inputs = {id(buffer_of(node).base) for node in nodes}
        if self.written & inputs & self.outside.keys():
            raise JitError(
                "a jitted function writes to a Tensor that it also reaches in a way the JIT does "
                "not see; pass it as one argument, or name it in the function"
            )

    def classify(self, values: dict[str, int]) -> Sources:
        """For each variable where its value comes from."""
        result = []
        for name in sorted(values):
            value = values[name]
            if name.startswith("rngj"):
                result.append(Source(name, "draw", *self._draw_of(name, values)))
            elif name.startswith(PREFIX):
                result.append(Source(name, "number", int(name.removeprefix(PREFIX))))
            else:
                result.append(Source(name, "given", value, self.run.variables.get(name)))
        return tuple(result)

    def _draw_of(self, name: str, values: dict[str, int]) -> tuple[int, int]:
        slot, _, part = name.removeprefix("rngj").partition("_")
        parts = ("key0", "key1")
        found = tuple(values.get(f"rngj{slot}_{p}") for p in parts)
        for number in range(len(self.draws) - 1, -1, -1):
            other, drawn = self.draws[number]
            same = all(f is None or f == d for f, d in zip(found, drawn, strict=True))
            if other == int(slot) and same:
                return number, parts.index(part)
        raise AssertionError(f"no draw gave {name} its value")

    # ------------------------------------------------------------ after
    def finish(self, result: Any) -> None:
        """Compute what is pending, and write down what came out."""
        changed = self._changed_children()
        wanted = [t._cell for t in _tensors_in([result, *[change.child for change in changed]])]
        wanted += [tensor._cell for _, tensor in self.tensors]
        wanted += [s.cell for s in self.stand_ins.values()]
        wanted = [c for c in wanted if not (self._is_constant(c) or self._stays_inline(c))]
        # state that was numbers alone goes to memory when it changes: from then on it is replayed
        wanted += self._overwritten_cells()
        engine.realize_cells(wanted, Cell.live)
        maker = TemplateMaker(self.known, self.containers, self.cell_template, self.classify)
        self.run.result = maker.make(result)
        self.run.effects += [_effect(change, maker) for change in changed]
        for label, tensor in self.tensors:
            self._note_tensor(label, tensor, maker)
        for cell in self._overwritten_cells():
            if id(cell) in self.stand_ins or id(cell) in self.of_cell:
                continue
            if self._has_moved(cell):
                self.run.effects.append(Move(cell, self._new_cell(cell)))
        if self.book is not None:
            self.run.numbers = self.book.written()
            if any(isinstance(tensor, Number) for tensor in maker.tensors):
                raise UsedAsMore(
                    "a number that changes from call to call comes out of the function"
                )
        self._note_leaks()
        notes = StateNotes(self.run, self.walk, self.arguments, self.places)
        notes.note(self.groups, self.kinds, self.descriptions)
        self._hand_over(maker.tensors)

    def _changed_children(self) -> list[_Change]:
        """Places that hold another tensor, or something else with tensors in it, than before."""
        changed: list[_Change] = []
        for label, container, before in self.children:
            after = _children(container)
            keys = [k for k in after if k not in before or after[k] is not before[k]]
            gone = [k for k in before if k not in after]
            keys = [k for k in keys if holds_tensor(after[k]) or holds_tensor(before.get(k))]
            gone = [k for k in gone if holds_tensor(before[k])]
            if not keys and not gone:
                continue
            if isinstance(container, (list, deque)):
                changed.append(_Change(Fill, label, None, list(after.values())))
                continue
            changed += [_Change(SetChild, label, key, after[key]) for key in keys]
            changed += [_Change(Remove, label, key, None) for key in gone]
        return changed

    def _overwritten_cells(self) -> list[Cell]:
        """Cells from before that were assigned to."""
        return [c for c, (version, _) in list(self.cells_before.items()) if c.version != version]

    def _is_constant(self, cell: Cell) -> bool:
        """Made of numbers alone, and not of random ones: it can be written down as it is."""
        if cell.pure or cell.value.device is not None:
            return cell.pure
        return all(u.op not in (Ops.BIND, Ops.BUFFER) for u in cell.value.toposort())

    def _stays_inline(self, cell: Cell) -> bool:
        return cell.inline and cell in self.cells_before

    def cell_template(self, cell: Cell) -> Template:
        """What a new tensor is a view of: a known tensor's storage, or a new one."""
        stand_in = self.stand_ins.get(id(cell))
        label = self.of_cell.get(id(cell) if stand_in is None else id(stand_in.original))
        return self._new_cell(cell) if label is None else CellOf(label)

    def _new_cell(self, cell: Cell) -> Template:
        if cell in self.cells_before and cell.version == self.cells_before[cell][0]:
            return OutsideCell(cell)
        number = self.new_cells.setdefault(id(cell), len(self.new_cells))
        self.kept.append(cell)
        storage = cell.storage
        if storage is None or not cell.is_realized:
            free, values = free_of(cell.value)
            return ConstantCell(number, Constant(free), self.classify(values), cell.pure)
        shape, values = free_of(cell.value.shape)
        rebuilt = engine.shaped(storage, cell.value.shape)
        if rebuilt is not cell.value:
            self.run.leaks = "a result is an unusual part of a storage"
        return StoredCell(number, self.role_of(storage), shape, self.classify(values))

    def _note_tensor(self, label: Label, tensor: Tensor, maker: TemplateMaker) -> None:
        """A known tensor that was made another name of something, or whose storage moved."""
        original, moves = self.before[label]
        stand_in = self.stand_ins.get(id(tensor._cell))
        is_same = tensor._cell is original if stand_in is None else stand_in.original is original
        window = self.arguments.windows.get(label.path[0]) if label.kind == "argument" else None
        if not is_same or tensor._moves != (moves if window is None else window.rest):
            self.run.effects.append(Rebind(label, maker.make_view(tensor)))
            return
        if stand_in is not None:
            if stand_in.cell.storage is not stand_in.node:
                self.run.effects.append(Move(label, self._new_cell(stand_in.cell)))
        elif original in self.cells_before and self._has_moved(original):
            self.run.effects.append(Move(label, self._new_cell(original)))

    def _has_moved(self, cell: Cell) -> bool:
        """Whether a cell from before holds another value now, and not in the memory it had."""
        version, value = self.cells_before[cell]
        if version == cell.version:
            return False
        # numbers alone are in no memory
        return cell.storage is None or cell.storage is not _storage(value)

    def _note_leaks(self) -> None:
        """Tensors that outlive the run in a place that nobody looks at."""
        leaked = self._unaccounted()
        if leaked:
            del leaked
            gc.collect()
            leaked = self._unaccounted()
        if not leaked:
            return
        self.run.leaks = "it keeps a Tensor in a place that the JIT does not see"
        engine.realize_cells([c for c in leaked if not self._is_constant(c)], Cell.live)
        self._hand_over_cells(leaked)

    def _unaccounted(self) -> list[Cell]:
        return [
            cell
            for cell in list(Cell.live)
            if cell not in self.cells_before
            and (self.book is None or cell not in self.book.cells)
            and id(cell) not in self.new_cells
            and id(cell) not in self.stand_ins
        ]

    # ------------------------------------------------------------ putting things back
    def _hand_over(self, tensors: list[Tensor]) -> None:
        """New tensors are views of the real storages, not of their stand-ins."""
        for tensor in tensors:
            stand_in = self.stand_ins.get(id(tensor._cell))
            if stand_in is not None:
                tensor._cell = stand_in.original
                if stand_in.window is not None:
                    tensor._moves = (*stand_in.window.first, *tensor._moves)
                tensor._uop = None
        self._hand_over_cells([cell for cell in self.kept if isinstance(cell, Cell)])

    def _hand_over_cells(self, cells: Sequence[Cell]) -> None:
        for cell in cells:
            if id(cell) in self.stand_ins:
                continue
            cell.value = self._original_of(cell.value)

    def _original_of(self, value: UOp) -> UOp:
        """A value in the memory of a stand-in, as one in the storage that it stands for."""
        storage = _storage(value)
        if storage is None or storage not in self.by_node:
            return value
        return self.by_node[storage][0].original_of(value)

    def abandon(self) -> None:
        """After an error: writes that were written down happen, as they would have."""
        pending = [s.cell for s in self.stand_ins.values() if not s.cell.is_realized]
        try:
            with record.recording(None):
                engine.realize_apart(pending, Cell.live)
        except Exception:  # noqa: BLE001
            # the first error is the one to report
            pass

    def restore(self) -> None:
        """Known tensors get their own memory back, with what was written to it.

        What a jitted function gives is a leaf from the first call on, as it is when it is replayed.
        """
        for past in self.pasts:
            past.end()
        written = [s.original.storage for s in self.stand_ins.values() if s.cell.version]
        history.overwrite([storage for storage in written if storage is not None])
        for stand_in in self.stand_ins.values():
            original, cell = stand_in.original, stand_in.cell
            if is_lost(stand_in.node):
                lose([stand_in.storage])
            elif cell.version:
                is_elsewhere = cell.is_realized or self._is_constant(cell)
                if is_elsewhere and cell.storage is not stand_in.node:
                    original.overwrite(self._original_of(cell.value))
                else:
                    original.version += cell.version
        for label, tensor in self.tensors:
            current = self.stand_ins.get(id(tensor._cell))
            if current is not None:
                original, moves = self.before[label]
                if current.original is original:
                    tensor._cell, tensor._moves = original, moves
                else:
                    first = () if current.window is None else current.window.first
                    tensor._cell, tensor._moves = current.original, (*first, *tensor._moves)
                tensor._uop = None


@dataclass(frozen=True)
class _Change:
    """A place that holds something else than before the run."""

    kind: type[SetChild] | type[Fill] | type[Remove]
    label: Label
    key: Any
    child: Any


def _effect(change: _Change, maker: TemplateMaker) -> Template:
    if change.kind is Remove:
        return Remove(change.label, change.key)
    value = maker.make(change.child)
    if change.kind is Fill:
        return Fill(change.label, value)
    return SetChild(change.label, change.key, value)


@dataclass(frozen=True)
class _Place:
    """One place in a container that is otherwise not looked at."""

    container: Any
    key: Any


def _children(container: Any) -> dict[Any, Any]:
    if not isinstance(container, _Place):
        return dict(children_of(container) or {})
    found = children_of(container.container) or {}
    return {container.key: found[container.key]} if container.key in found else {}


def _storage(value: UOp) -> UOp | None:
    node = value
    while node.op in (Ops.RESHAPE, Ops.SHRINK, Ops.AFTER):
        node = node.src[0]
    return node if node.op is Ops.BUFFER else None


def _tensors_in(values: list[Any]) -> list[Tensor]:
    walk = Reachable([(i, None, None, value) for i, value in enumerate(values)])
    return [found.tensor for found in walk.found]
