"""A captured graph: the launches of a run, over memory that is found anew at each call.

In: a Run. Out: `CapturedGraph`, whose `replay` does for another call what the run did for its own,
without running any of its Python.
Sits above the runs; the JIT keeps one graph for each kind of call.
Invariant: results are new memory at every replay, so nothing a caller holds ever changes but what
the function itself writes to. Intermediate values share one planned memory that is reused.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.device import Buffer
from weft.engine import history
from weft.engine import realize as engine
from weft.engine.cell import Cell, now
from weft.engine.interrupts import Writing, is_lost, writing_in_place
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.launches import Fresh, Launches, no_value
from weft.engine.jit.objects import child_of, remove_child, set_child
from weft.engine.jit.parameters import evaluate
from weft.engine.jit.places import Place
from weft.engine.jit.templates import Instances, Label, Source, Template
from weft.engine.jit.tensors import Kind, bind_again, describe
from weft.engine.jit.trace import Role, Run, labels_in
from weft.engine.known import forget, forget_readers
from weft.engine.linear import Call, Linear, Program
from weft.engine.storage import buffer_of
from weft.mixin.rand import RandMixin
from weft.tensor import Tensor
from weft.uop.node import UOp
from weft.uop.opset import Ops

# what a replay gives if the state is not as it was: then the function has to run again
MISS: Any = type("Miss", (), {"__repr__": lambda self: "MISS"})()


class CapturedGraph:
    """What a jitted function does, ready to be done again."""

    def __init__(
        self, run: Run, places: Sequence[Place], varied: frozenset[str], prune: bool = False
    ) -> None:
        self.run = run
        self.places = places
        self.varied = varied  # variables that are known to be used as such, not as numbers
        self._cells = _new_cells(run)
        escaping = [template[2] for template in self._cells.values() if template[0] == "stored"]
        self.launches = Launches(run, escaping, prune)
        self._numbers_now: list[int] = []
        self._checked: Any = None
        self.missed = ""  # why the last replay could not be
        self._watched: Any = None
        self._settle_state()
        self.is_plain = self._depends_on_arguments_only()
        self._conditions = [
            (condition, {v.arg.name: named[v.arg.name] for v in condition.variables})
            for execution in run.executions
            for named in [dict(zip(execution.names, execution.values, strict=True))]
            for condition in execution.prepared.conditions
        ]

    def __repr__(self) -> str:
        return f"<CapturedGraph of {len(self)} kernels>"

    def __len__(self) -> int:
        return len(self.launches.steps) - len(self.launches.once)

    @property
    def arena_bytes(self) -> int:
        """The memory of intermediate values."""
        return self.launches.arena_bytes

    @property
    def spare_bytes(self) -> int:
        """The memory of earlier results that waits for the next one."""
        return self.launches.spare_bytes

    def free(self) -> None:
        """Give back the memory of intermediate values and of earlier results that nobody holds;
        the next replay takes some again."""
        self.launches.free()
        self._checked = None

    @property
    def linear(self) -> Linear:
        """The kernels in order, to look at."""
        calls = []
        for position, step in enumerate(self.launches.steps):
            if position in self.launches.once:
                continue
            memory = tuple([self.launches.places[number] for number, _, _ in step.arguments])
            calls.append(Call((Program(step.runner), *memory), step.device))
        return Linear(tuple(calls))

    def free_intermediates(self) -> None:
        """As tinygrad calls `free`."""
        self.free()

    # ------------------------------------------------------------ the state it reads and writes
    def _settle_state(self) -> None:
        """Which known tensors and containers a replay has to find, parents before children."""
        run = self.run
        used = labels_in([e.roles for e in run.executions], run.result, run.effects)
        used |= set(run.groups.values())
        self._arguments_used = [label for label in used if label.kind == "argument"]
        order = sorted(run.tree, key=len)
        numbers = {path: number for number, path in enumerate(order)}
        self._tree = [
            (
                numbers[path[:-1]] if len(path) > 1 else -1,
                path[-1],
                *run.tree[path],
                Label("state", path),
            )
            for path in order
        ]
        self._tree_numbers = {Label("state", path): number for path, number in numbers.items()}
        self._ties = [
            (numbers[path], way, numbers.get(place, -1) if way == "child" else place, key)
            for path, way, place, key in run.ties
        ]
        launches = self.launches
        places = [launches.places[number] for number in launches.written]
        # the caller's storages that a replay writes to
        self._written_labels = [place.label for place in places if place.label is not None]
        self._written_outside = [
            role[1]
            for role, number in launches.numbers.items()
            if number in launches.written and role[0] == "outside"
        ]
        outside = [role[1] for e in run.executions for role in e.roles if role[0] == "outside"]
        self._outside = list(dict.fromkeys(outside))

    def _depends_on_arguments_only(self) -> bool:
        """The usual case: only arguments go in, and only new memory comes out."""
        run = self.run
        launches = self.launches
        is_alone = not (run.tree or run.ties or run.events or run.effects or launches.written)
        is_alone = is_alone and not (run.variables or run.numbers or launches.once)
        self._fresh_words: dict[int, int] = {}
        for number, template in self._cells.items():
            is_alone = is_alone and template[0] == "stored" and not template[4]
            if is_alone and template[2][0] == "made":
                place = launches.places[launches.numbers[template[2]]]
                self._fresh_words[number] = place.word
        is_alone = is_alone and len(self._fresh_words) == len(self._cells)
        return is_alone and not self._outside and _is_simple(run.result)

    def _find_state(self, roots: Sequence[Any]) -> tuple[list[Any], dict[Label, Tensor]] | None:
        """What is in the places of the state; None if something else is there."""
        found: list[Any] = []
        tensors: dict[Label, Tensor] = {}
        try:
            for parent, key, kind, length, identity, label in self._tree:
                value = roots[key] if parent < 0 else child_of(found[parent], key)
                found.append(value)
                if identity is not None:
                    if id(value) != identity:
                        self.missed = f"{self._place(label)} is another object in every call"
                        return None
                elif kind is Tensor:
                    if not isinstance(value, Tensor) or (value.grad is not None) != length:
                        self.missed = (
                            f"{self._place(label)} is not the Tensor, or has not the .grad, that a "
                            "call leaves there"
                        )
                        return None
                    tensors[label] = value
                elif type(value) is not kind or (length is not None and len(value) != length):
                    self.missed = (
                        f"{self._place(label)} is not the {kind.__name__} of the length that a "
                        "call leaves there"
                    )
                    return None
        except (LookupError, AttributeError):
            self.missed = f"{self._place(label)} is gone when it is called again"
            return None
        return found, tensors

    def _place(self, label: Label) -> str:
        """A place in the state, as a user names it."""
        place, *path = label.path
        return "".join([str(self.places[place]), *[f".{key}" for key in path]])

    def _check_state(self, tensors: dict[Label, Tensor]) -> dict[Label, UOp] | None:
        """The storage of each state tensor, computed if need be; None if one is of another kind."""
        pending = [
            cell
            for cell in [t._cell for t in tensors.values()]
            if not (cell.pure or cell.inline or cell.is_realized) and cell.value.device is not None
        ]
        for node in self._outside:
            owner = Cell.owner_of(node)
            if owner is not None and not owner.is_realized and not owner.pure:
                pending.append(owner)
        if pending:
            engine.realize_apart(pending, Cell.live)
        nodes: dict[Label, UOp] = {}
        for label, tensor in tensors.items():
            cell = tensor._cell
            expected = self.run.state.get(label)
            if expected is None:
                # it is one of the arguments, or only on the way to what is used
                continue
            if isinstance(expected, Kind):
                if Kind.of(tensor) != expected:
                    self.missed = f"{self._place(label)} has another shape or dtype in every call"
                    return None
                continue
            if label not in self.run.groups:
                # not in memory when it was captured: it must be the very same constant
                if cell.pure is not expected[0] or cell.value is not expected[1]:
                    self.missed = f"{self._place(label)} is another constant in every call"
                    return None
                continue
            self.missed = f"{self._place(label)} has another shape, dtype or memory in every call"
            if cell.pure or not cell.is_realized:
                return None
            try:
                found = describe(tensor)
            except KeyError:
                return None
            if found.structure != expected or found.storage is None:
                return None
            nodes[label] = found.storage
        return nodes

    def _state(self, call: Arguments, roots: Sequence[Any]) -> Any:
        """(objects, tensors, storages), quickly if nothing changed; None if it does not fit."""
        state = self._find_state(roots)
        if state is None:
            return None
        objects, tensors = state
        if self._ties and not self._are_tied(call, roots, objects):
            self.missed = "what was one object under two names is not one in the next call"
            return None
        checked = self._checked
        if checked is not None and not self._outside_pending():
            before, cells, values, nodes = checked
            same = all(
                t is b and t._cell is c and c._value is v
                for t, b, c, v in zip(tensors.values(), before, cells, values, strict=True)
            )
            if same:
                return objects, tensors, nodes
        nodes = self._check_state(tensors)
        if nodes is None:
            return None
        found = list(tensors.values())
        cells = [t._cell for t in found]
        self._checked = (found, cells, [c._value for c in cells], nodes)
        return objects, tensors, nodes

    def _are_tied(self, call: Arguments, roots: Sequence[Any], objects: list[Any]) -> bool:
        """Whether what was one object, reached in several ways, is one again."""
        try:
            for number, kind, place, key in self._ties:
                if kind == "argument":
                    other = call.tensors[place]
                elif kind == "container":
                    other = call.containers[place]
                else:
                    other = roots[key] if place < 0 else child_of(objects[place], key)
                if other is not objects[number]:
                    return False
        except (LookupError, AttributeError):
            return False
        return True

    def _outside_pending(self) -> bool:
        for node in self._outside:
            owner = Cell.owner_of(node)
            if owner is not None and not owner.is_realized and not owner.pure:
                return True
        return False

    # ------------------------------------------------------------ replaying
    def replay(
        self, call: Arguments, places: Sequence[Place], given: dict[int, Any] | None = None
    ) -> Any:
        """Do it again for another call; MISS if the state is not as it was.

        `places` lead to the state, as they do in this call; `given` are the numbers that kernels
        take.
        """
        if self.is_plain:
            fresh = self.launches.launch(self._buffers(call, {}), no_value, False)
            return _instance(self.run.result, fresh, self._fresh_words, {})
        for name, value in call.variables.items():
            if value != self.run.variables.get(name) and name not in self.varied:
                self.missed = f"the value of the variable {name} is also used as a number"
                return MISS
        for condition, sources in self._conditions:
            bound = {name: self._value(source, call, []) for name, source in sources.items()}
            if not condition.holds(bound):
                # running the function says what is wrong
                self.missed = "the values of its variables are none that it was captured for"
                return MISS
        if self.run.numbers:
            values = evaluate(self.run.numbers, given or {})
            if values is None:
                self.missed = "what it computes with the numbers it is given is not a number"
                return MISS
            self._numbers_now = values
        self.places = places
        state = self._state(call, [place.value() for place in places])
        if state is None:
            return MISS
        self._objects, tensors, nodes = state
        known: dict[Label, Tensor] = dict(tensors)
        storages: dict[Label, UOp] = dict(nodes)
        for label in self._arguments_used:
            index = label.path[0]
            known[label] = call.tensors[index]
            storage = call.descriptions[index].storage
            if storage is not None:
                storages[label] = storage
        if self._tree and not self._groups_agree(storages):
            self.missed = "tensors that share their memory in one call do not in the next"
            return MISS
        if not self._are_apart(call, known, storages):
            self.missed = "an argument is also something that it reaches by another name"
            return MISS
        written = [storages[label] for label in self._written_labels]
        written += self._written_outside
        if any([is_lost(node) for node in self._outside]):
            # running the function says so
            self.missed = "memory that it takes was lost when Ctrl-C came"
            return MISS
        if any(Cell.is_shared(node) for node in written):
            # since it was captured somebody else got the same memory: writing moves away from it
            self.missed = "memory that it writes to is another Tensor's as well"
            return MISS
        if written:
            self._compute_readers(written)
        with writing_in_place(written) as writing:
            return self._do(call, known, storages, written, writing)

    def replay_over(self, memory: Sequence[Buffer]) -> Any:
        """As `replay`, of a plain graph, for arguments that are all of these memories."""
        launches = self.launches
        fresh = launches.prepare_whole(memory)
        if fresh is None:
            fresh = launches.launch_plain(memory)
            return _instance(self.run.result, fresh, self._fresh_words, {})
        whole = launches.whole
        assert whole is not None
        if not launches.is_large:
            result = _instance(self.run.result, fresh, self._fresh_words, {})
            launches.count()
            whole.replay()
            return result
        # The last replay left nothing in the caches of what a result is made of. Other cores can
        # begin with the kernels while this one waits for that.
        whole.begin()
        try:
            launches.count()
            return _instance(self.run.result, fresh, self._fresh_words, {})
        finally:
            whole.finish()

    def _do(
        self,
        call: Arguments,
        known: dict[Label, Tensor],
        storages: dict[Label, UOp],
        written: list[UOp],
        writing: Writing,
    ) -> Any:
        """Launch, and let everybody know what has changed."""
        draws = self._draw()

        def value_of(source: Source) -> int:
            return self._value(source, call, draws)

        with_once = bool(self.launches.once) and self._has_changed(storages)
        try:
            buffers = self._buffers(call, storages)
            fresh = self.launches.launch(buffers, value_of, with_once, writing)
        except BaseException:
            # the kept steps may have been interrupted: they run again
            self._watched = None
            raise
        writing.end()
        history.overwrite(written)
        forget_readers(set(written))
        for node in written:
            forget(node)
            owner = Cell.owner_of(node)
            if owner is not None:
                owner.version += 1
                owner.born = now()
        result = self._come_out(call, known, storages, fresh, draws)
        self._objects = []
        return result

    def _are_apart(
        self, call: Arguments, known: dict[Label, Tensor], storages: dict[Label, UOp]
    ) -> bool:
        """What the graph takes for different things is not one thing in this call."""
        if self._outside and not set(self._outside).isdisjoint(storages.values()):
            return False
        labels = {e[1] for e in self.run.effects if e[0] in ("set", "fill", "remove")}
        places = [self._container(label, call, known) for label in labels if label.kind != "root"]
        return len({id(place) for place in places}) == len(places)

    def _groups_agree(self, storages: dict[Label, UOp]) -> bool:
        """Tensors that shared a storage do so again, and others do not."""
        owners: dict[UOp, Label] = {}
        for label, group in self.run.groups.items():
            node = storages.get(label)
            if node is None or owners.setdefault(node, group) != group:
                return False
        return len(owners) == len(set(self.run.groups.values()))

    def _has_changed(self, storages: dict[Label, UOp]) -> bool:
        """Whether state that is only read is not what it was when the kept steps ran."""
        nodes = [node for label, node in storages.items() if label.kind == "state"]
        nodes += self._outside
        owners = [(node, Cell.owner_of(node)) for node in nodes]
        now = [(node, None if owner is None else owner.version) for node, owner in owners]
        before, self._watched = self._watched, now
        return before != now

    def _compute_readers(self, written: list[UOp]) -> None:
        """Pending tensors that read what will be overwritten are computed before."""
        nodes = set(written)
        pending = [
            cell
            for cell in list(Cell.live)
            if cell._value.op is not Ops.BUFFER and not cell.pure and not cell.is_realized
        ]
        readers = [c for c in pending if not nodes.isdisjoint(c.value.toposort())]
        if readers:
            engine.realize_cells(readers, Cell.live)

    def _draw(self) -> list[tuple[int, int]]:
        """Random numbers as the function would have drawn them."""
        draws = []
        for kind, number in self.run.events:
            if kind == "draw":
                draws.append(RandMixin._random.advance(number))
            else:
                RandMixin._random.reset(number)
        return draws

    def _value(self, source: Source, call: Arguments, draws: list[tuple[int, int]]) -> int:
        if source.kind == "argument":
            return call.variables[source.name]
        if source.kind == "draw":
            return draws[source.value][source.other]
        if source.kind == "number":
            return self._numbers_now[source.value]
        number: int = source.value
        return number

    def _buffers(self, call: Arguments, storages: dict[Label, UOp]) -> list[Buffer]:
        """The memory of this call's arguments and state."""
        found = []
        for place in self.launches.inputs:
            label = place.label
            assert label is not None
            index = label.path[0]
            is_argument = label.kind == "argument"
            storage = call.descriptions[index].storage if is_argument else storages[label]
            assert storage is not None
            buffer = buffer_of(storage)
            if is_argument and index in call.windows:
                window = call.windows[index]
                start = window.start * place.dtype.itemsize
                buffer = buffer.view(window.size, place.dtype, start)
            found.append(buffer)
        return found

    # ------------------------------------------------------------ what comes out
    def _come_out(
        self,
        call: Arguments,
        known: dict[Label, Tensor],
        storages: dict[Label, UOp],
        fresh: Fresh,
        draws: list[tuple[int, int]],
    ) -> Any:
        """The result, and the changes to what was there before."""
        cells_of = {label: tensor._cell for label, tensor in known.items()}
        made: dict[int, Cell] = {}

        def values(template: Template) -> dict[str, int]:
            return {source.name: self._value(source, call, draws) for source in template}

        def cell(template: Template) -> Cell:
            if template[0] == "of":
                return cells_of[template[1]]
            if template[0] == "outside cell":
                outside: Cell = template[1]
                return outside
            number = template[1]
            if number not in made:
                made[number] = Cell(value_of(template), template[0] == "constant" and template[4])
            return made[number]

        def value_of(template: Template) -> UOp:
            if template[0] == "constant":
                return bind_again(template[2].value, values(template[3]))
            _, _, role, shape, sources = template
            node = self._node_of(role, storages, fresh)
            return engine.shaped(node, bind_again(shape, values(sources)) if sources else shape)

        def view(kind: type, place: Template, moves: Any) -> Tensor:
            if place[0] == "of" and place[1].kind == "argument":
                window = call.windows.get(place[1].path[0])
                if window is not None:
                    moves = (*window.first, *moves)
            result: Tensor = kind._view_of(cell(place), moves)  # type: ignore[attr-defined]
            return result

        def container(label: Label) -> Any:
            return self._container(label, call, known)

        instances = Instances(known.__getitem__, container, view, values)
        result = instances.make(self.run.result)
        # all of it is made before anything is changed
        effects = [
            (e, instances.make(e[3]) if e[0] in ("set", "fill", "rebind") else None)
            for e in self.run.effects
        ]
        for effect, value in effects:
            kind = effect[0]
            if kind == "move cell":
                effect[1].overwrite(value_of(effect[2]))
            elif kind == "move":
                cells_of[effect[1]].overwrite(value_of(effect[3]))
            elif kind == "rebind":
                assert isinstance(value, Tensor)
                tensor = known[effect[1]]
                tensor._cell, tensor._moves, tensor._uop = value._cell, value._moves, None
            else:
                self._apply(kind, effect[1], effect[2], value, call, known)
        return result

    def _node_of(self, role: Role, storages: dict[Label, UOp], fresh: Fresh) -> UOp:
        if role[0] == "outside":
            outside: UOp = role[1]
            return outside
        if role[0] == "input":
            return storages[role[1]]
        return fresh[self.launches.places[self.launches.place_of(role)].word][0]

    def _container(self, label: Label, call: Arguments, known: dict[Label, Tensor]) -> Any:
        if label.kind == "container":
            return call.containers[label.path[0]]
        if label in known:
            return known[label]
        return self._objects[self._tree_numbers[label]]

    def _apply(
        self,
        kind: str,
        label: Label,
        key: Any,
        value: Any,
        call: Arguments,
        known: dict[Label, Tensor],
    ) -> None:
        """A change in a container."""
        if label.kind == "root":
            place, key, _ = self.places[label.path[0]].find()
        else:
            place = self._container(label, call, known)
        if kind == "fill":
            place.clear()
            place.extend(value)
        elif kind == "set":
            set_child(place, key, value)
        elif isinstance(place, Tensor):
            place.grad = None
        else:
            remove_child(place, key)


def _new_cells(run: Run) -> dict[int, Template]:
    """The templates of new cells, by number."""
    found: dict[int, Template] = {}
    pending: list[Any] = [run.result, *run.effects]
    while pending:
        part = pending.pop()
        if not isinstance(part, tuple):
            continue
        if len(part) == 5 and part[0] == "stored" and isinstance(part[1], int):
            found[part[1]] = part
        elif len(part) == 5 and part[0] == "constant" and isinstance(part[1], int):
            found[part[1]] = part
        else:
            pending.extend(part)
    return found


def _is_simple(template: Template) -> bool:
    """Whether a result is new tensors in lists and tuples, and plain values."""
    if template[0] == "plain":
        return True
    if template[0] == "tensor":
        _, _, _, place, (_, values), _, grad = template
        return place[0] == "stored" and not values and grad is None
    if template[0] == "new" and template[2] in (list, tuple):
        return all(_is_simple(part) for _, part in template[4])
    return False


def _instance(
    template: Template,
    fresh: Fresh,
    words: dict[int, int],
    cells: dict[int, Cell],
) -> Any:
    """The result of a simple template: as `Instances`, without what it does not need."""
    if template[0] == "tensor":
        _, _, kind, (_, number, _, shape, _), (moves, _), requires_grad, _ = template
        cell = cells.get(number)
        if cell is None:
            node = fresh[words[number]][0]
            cell = cells[number] = Cell.of_new(engine.shaped(node, shape), node)
        tensor = kind._view_of(cell, moves)
        tensor.requires_grad = requires_grad
        return tensor
    if template[0] == "plain":
        return float(template[2]) if template[1] is float else template[2]
    return template[2]([_instance(child, fresh, words, cells) for _, child in template[4]])
