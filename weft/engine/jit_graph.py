"""A captured graph: the launches of a run, over memory that is found anew at each call.

In: a Run. Out: `CapturedGraph`, whose `replay` does for another call what the run did for its own,
without running any of its Python.
Sits above the runs; the JIT keeps one graph for each kind of call.
Invariant: results are new memory at every replay, so nothing a caller holds ever changes but what
the function itself writes to. Intermediate values share one planned memory that is reused.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any

from weft.device import Buffer, Device
from weft.dtype import dtypes
from weft.engine import realize as engine
from weft.engine.cell import Cell, now
from weft.engine.jit_arguments import Arguments
from weft.engine.jit_names import Chain
from weft.engine.jit_objects import child_of, remove_child, set_child
from weft.engine.jit_run import Role, Run, labels_in
from weft.engine.jit_templates import Instances, Label, Source, Template
from weft.engine.jit_tensors import bind_again, describe
from weft.engine.known import forget
from weft.engine.memory import ALIGNMENT, plan_memory
from weft.engine.schedule import Memory, Step
from weft.engine.storage import buffer_of, buffers
from weft.helpers import GlobalCounters, round_up
from weft.knobs import DEBUG, JIT, NO_MEMORY_PLANNER
from weft.mixin.rand import RandMixin
from weft.tensor import Tensor
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.resolve import sym_infer

# what a replay gives if the state is not as it was: then the function has to run again
MISS: Any = type("Miss", (), {"__repr__": lambda self: "MISS"})()


class _Place:
    """One memory of the graph. kind: "input", "fixed", "fresh", "arena", "copied"."""

    __slots__ = (
        "buffer",
        "contents",
        "device",
        "dtype",
        "is_host",
        "kind",
        "label",
        "offset",
        "size",
        "word",
    )

    def __init__(self, dtype: Any, size: int, device: str) -> None:
        self.dtype = dtype
        self.size = size
        self.device = device
        self.is_host = Device[device].is_host
        self.kind = "arena"
        self.label: Label | None = None
        self.buffer: Buffer | None = None
        self.contents: bytes | None = None
        self.offset = 0
        self.word = 0


class CapturedGraph:
    """What a jitted function does, ready to be done again."""

    def __init__(self, run: Run, chains: Sequence[Chain], varied: frozenset[str]) -> None:
        self.run = run
        self.chains = chains
        self.varied = varied  # variables that are known to be used as such, not as numbers
        self.variables = run.variables
        self.places: list[_Place] = []
        self.steps: list[Step] = []
        self.sources: list[dict[str, Source]] = []  # of each step's variables
        self._numbers: dict[Any, int] = {}
        self._written: dict[int, None] = {}
        self._number_memory()
        self._escape()
        self._plan()
        self._lay_out_words()
        self._segments: list[Any] | None = None
        self._arenas: dict[str, Buffer] = {}
        self._checked: Any = None
        self._settle_state()
        self._is_plain = self._depends_on_arguments_only()

    def __repr__(self) -> str:
        return f"<CapturedGraph of {len(self.steps)} kernels>"

    def __len__(self) -> int:
        return len(self.steps)

    @property
    def arena_bytes(self) -> int:
        """The memory of intermediate values."""
        return sum(self.arena_sizes.values())

    def free(self) -> None:
        """Give back the memory of intermediate values; the next replay takes it again."""
        self._arenas = {}

    # ------------------------------------------------------------ building
    def _place(self, key: Any, dtype: Any, size: int, device: str) -> _Place:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self.places)
            self.places.append(_Place(dtype, size, device))
        return self.places[number]

    def _place_of(self, role: Role, facts: tuple[Any, int, str] | None) -> int:
        """The number of a memory; `facts` of an input are those of its first use."""
        kind = role[0]
        if kind == "outside":
            node = role[1]
            place = self._place(role, node.dtype, node.arg.size, node.arg.device)
            place.kind = "fixed"
            place.buffer = buffer_of(node)
        elif kind in ("data", "scratch"):
            place = self._place(role[:2], *role[2:5])
            if kind == "data":
                place.contents = role[5]
        elif kind == "input":
            assert facts is not None
            place = self._place(role, *facts)
            place.kind, place.label = "input", role[1]
        return self._numbers[role[:2] if kind in ("data", "scratch") else role]

    def _number_memory(self) -> None:
        """All executions' memories in one numbering."""
        for number, (prepared, _, roles, facts, values) in enumerate(self.run.executions):
            local: dict[int, int] = {}
            for position, role in enumerate(roles):
                local[position] = self._place_of(role, facts[position])
            for position, memory in enumerate(prepared.made, prepared.inputs):
                local[position] = self._made(number, position, memory)
            for position in prepared.overwritten:
                self._written.setdefault(local[position])
            named = {source.name: source for source in values}
            for step in prepared.steps:
                arguments = tuple((local[m], offset, size) for m, offset, size in step.arguments)
                self.steps.append(
                    Step(arguments, step.device, None, step.is_transfer, step.origin, step.runner)
                )
                needed = () if step.runner is None else step.runner.variables
                self.sources.append({name: named[name] for name in needed})

    def _made(self, execution: int, position: int, memory: Memory) -> int:
        key = ("made", execution, position)
        place = self._place(key, memory.dtype, memory.size, memory.device)
        if memory.contents is not None:
            place.kind = "fixed"
            place.buffer = engine.table_of(memory)
        return self._numbers[key]

    def _escape(self) -> None:
        """Memory that outlives a replay is new each time; so is data that gets overwritten."""
        self._cells = _new_cells(self.run)
        for template in self._cells.values():
            if template[0] == "stored":
                role = template[2]
                if role[0] in ("made", "data", "scratch"):
                    self.places[self._place_of(role, None)].kind = "fresh"
        for number, place in enumerate(self.places):
            if place.contents is not None and place.kind == "arena":
                place.kind = "copied" if number in self._written else "fixed"
                place.buffer = Buffer(place.device, place.size, place.dtype)
                place.buffer.copyin(place.contents)

    def _plan(self) -> None:
        """Intermediate values that do not live at the same time share memory."""
        sizes: dict[int, tuple[Hashable, int]] = {
            number: (place.device, place.size * place.dtype.itemsize)
            for number, place in enumerate(self.places)
            if place.kind == "arena"
        }
        touched = [[number for number, _, _ in step.arguments] for step in self.steps]
        self.arena_sizes: dict[str, int] = {}
        if NO_MEMORY_PLANNER.value:
            for number, (_, nbytes) in sizes.items():
                device = self.places[number].device
                self.places[number].offset = self.arena_sizes.get(device, 0)
                room = round_up(max(1, nbytes), ALIGNMENT)
                self.arena_sizes[device] = self.places[number].offset + room
            return
        offsets, arenas = plan_memory(touched, sizes)
        self.arena_sizes = {str(device): size for device, size in arenas.items()}
        for number, offset in offsets.items():
            self.places[number].offset = offset

    def _lay_out_words(self) -> None:
        """A word for each memory, for each arena, and for each variable's value."""
        self.words: list[int] = []
        self._arena_words: dict[str, int] = {}
        for device in self.arena_sizes:
            self._arena_words[device] = self._new_word()
        self._inputs: list[_Place] = []
        self._fresh: list[_Place] = []
        self._copied: list[_Place] = []
        for place in self.places:
            if place.kind == "arena":
                place.word = self._arena_words.get(place.device, 0)
                continue
            place.word = self._new_word()
            if place.kind == "input":
                self._inputs.append(place)
            elif place.kind == "fresh":
                self._fresh.append(place)
            elif place.kind == "copied":
                self._copied.append(place)
        self._value_words: dict[Source, int] = {}
        for sources in self.sources:
            for source in sources.values():
                if source not in self._value_words:
                    self._value_words[source] = self._new_word()
                    if source.kind == "fixed":
                        self.words[-1] = source.value

        self._changing = [(s, w) for s, w in self._value_words.items() if s.kind != "fixed"]

    def _new_word(self) -> int:
        self.words.append(0)
        return len(self.words) - 1

    def _build_segments(self) -> list[Any]:
        """Neighbouring launches that one graph of a device can hold, and the others one by one."""
        segments: list[Any] = []
        kind: Any = None
        for position, step in enumerate(self.steps):
            wanted = None if step.runner is None else Device[step.device].graph
            if wanted is None:
                segments.append(position)
            else:
                if wanted is not kind:
                    segments.append(wanted(len(self.words)))
                assert step.runner is not None
                segments[-1].record(step.runner.program, self._word_arguments(position))
            kind = wanted
        for place in self.places:
            if place.kind in ("fixed", "copied") and place.is_host:
                assert place.buffer is not None
                self.words[place.word] = place.buffer.ensure_allocated().address
        return segments

    def _word_arguments(self, position: int) -> list[tuple[int, int]]:
        step = self.steps[position]
        result = []
        for number, offset, _ in step.arguments:
            place = self.places[number]
            result.append((place.word, place.offset + offset * place.dtype.itemsize))
        assert step.runner is not None
        sources = self.sources[position]
        return result + [(self._value_words[sources[n]], 0) for n in step.runner.variables]

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
                *_checks(run.tree[path]),
                Label("state", path),
            )
            for path in order
        ]
        self._ties = [
            (numbers[path], way[0], numbers.get(way[1], -1) if len(way) > 2 else way[1], way[-1])
            for path, way in run.ties
        ]
        outside = [role[1] for e in run.executions for role in e.roles if role[0] == "outside"]
        self._outside = list(dict.fromkeys(outside))

    def _depends_on_arguments_only(self) -> bool:
        """The usual case: only arguments go in, and only new memory comes out."""
        run = self.run
        is_alone = not (run.tree or run.events or run.effects or run.variables or self._written)
        self._fresh_words: dict[int, int] = {}
        for number, template in self._cells.items():
            is_alone = is_alone and template[0] == "stored" and not template[4]
            if is_alone and template[2][0] == "made":
                self._fresh_words[number] = self.places[self._numbers[template[2]]].word
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
                        return None
                elif kind is Tensor:
                    if not isinstance(value, Tensor) or (value.grad is not None) != length:
                        return None
                    tensors[label] = value
                elif type(value) is not kind or (length is not None and len(value) != length):
                    return None
        except (LookupError, AttributeError):
            return None
        return found, tensors

    def _check_state(self, tensors: dict[Label, Tensor]) -> dict[Label, UOp] | None:
        """The storage of each state tensor, computed if need be; None if one is of another kind."""
        pending = [
            t._cell
            for t in tensors.values()
            if not t._cell.pure and not t._cell.is_realized and t._cell.value.device is not None
        ]
        for node in self._outside:
            owner = Cell.owner_of(node)
            if owner is not None and not owner.is_realized and not owner.pure:
                pending.append(owner)
        if pending:
            engine.realize_cells(pending, Cell.live)
        nodes: dict[Label, UOp] = {}
        for label, tensor in tensors.items():
            cell = tensor._cell
            expected = self.run.state.get(label)
            if expected is None:
                # it is one of the arguments, or only on the way to what is used
                continue
            if label not in self.run.groups:
                # not in memory when it was captured: it must be the very same constant
                if cell.pure is not expected[0] or cell.value is not expected[1]:
                    return None
                continue
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
    def replay(self, call: Arguments, roots: Sequence[Any]) -> Any:
        """Do it again for another call; MISS if the state is not as it was.

        `roots` are the values that the names in the function have now.
        """
        if self._is_plain:
            fresh = self._launch(call, {}, [])
            return _instance(self.run.result, fresh, self._fresh_words, {})
        for name, value in call.variables.items():
            if value != self.variables.get(name) and name not in self.varied:
                return MISS
        state = self._state(call, roots)
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
            return MISS
        written = self._written_nodes(storages)
        if written:
            self._compute_readers(written)
        draws = self._draw()
        fresh = self._launch(call, storages, draws)
        for node in written:
            forget(node)
            owner = Cell.owner_of(node)
            if owner is not None:
                owner.version += 1
                owner.born = now()
        return self._come_out(call, known, storages, fresh, draws)

    def _groups_agree(self, storages: dict[Label, UOp]) -> bool:
        """Tensors that shared a storage do so again, and others do not."""
        owners: dict[UOp, Label] = {}
        for label, group in self.run.groups.items():
            node = storages.get(label)
            if node is None or owners.setdefault(node, group) != group:
                return False
        return len(owners) == len(set(self.run.groups.values()))

    def _written_nodes(self, storages: dict[Label, UOp]) -> list[UOp]:
        found = []
        for number in self._written:
            place = self.places[number]
            if place.kind == "input":
                assert place.label is not None
                found.append(storages[place.label])
        for role, number in self._numbers.items():
            if number in self._written and role[0] == "outside":
                found.append(role[1])
        return found

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

    def _draw(self) -> list[tuple[int, int, int]]:
        """Random numbers as the function would have drawn them."""
        draws = []
        for kind, number in self.run.events:
            if kind == "draw":
                draws.append(RandMixin._random.advance(number))
            else:
                RandMixin._random.reset(number)
        return draws

    def _value(self, source: Source, call: Arguments, draws: list[tuple[int, int, int]]) -> int:
        if source.kind == "argument":
            return call.variables[source.name]
        if source.kind == "draw":
            return draws[source.value][source.other]
        number: int = source.value
        return number

    def _launch(
        self, call: Arguments, storages: dict[Label, UOp], draws: list[tuple[int, int, int]]
    ) -> dict[int, tuple[UOp, Buffer]]:
        """Run the steps; the new memory, by the place's word."""
        if self._segments is None:
            self._segments = self._build_segments()
        words = self.words
        for device, size in self.arena_sizes.items():
            arena = self._arenas.get(device)
            if arena is None:
                arena = Buffer(device, size, dtypes.uint8).ensure_allocated()
                self._arenas[device] = arena
                if Device[device].is_host:
                    words[self._arena_words[device]] = arena.address
        used: dict[int, Buffer] = {}
        for place in self._inputs:
            label = place.label
            assert label is not None
            index = label.path[0]
            is_argument = label.kind == "argument"
            storage = call.descriptions[index].storage if is_argument else storages[label]
            assert storage is not None
            buffer = buffers[storage]
            if is_argument and index in call.windows:
                window = call.windows[index]
                start = window.start * place.dtype.itemsize
                buffer = buffer.view(window.size, place.dtype, start)
            used[place.word] = buffer
            if place.is_host:
                words[place.word] = buffer.address
        fresh: dict[int, tuple[UOp, Buffer]] = {}
        for place in self._fresh:
            node = UOp.new_buffer(place.device, place.size, place.dtype)
            buffer = buffers[node] = Buffer(place.device, place.size, place.dtype).allocate()
            if place.contents is not None:
                buffer.copyin(place.contents)
            fresh[place.word] = (node, buffer)
            used[place.word] = buffer
            words[place.word] = buffer._address
        for place in self._copied:
            assert place.buffer is not None and place.contents is not None
            place.buffer.copyin(place.contents)
        for source, word in self._changing:
            words[word] = self._value(source, call, draws)
        if DEBUG >= 2 or JIT >= 2:
            for position in range(len(self.steps)):
                self._launch_one(position, used)
            return fresh
        for segment in self._segments:
            if isinstance(segment, int):
                self._launch_one(segment, used)
            else:
                segment.replay(words)
        self._count()
        return fresh

    def _launch_one(self, position: int, used: dict[int, Buffer]) -> None:
        """One step on its own."""
        step = self.steps[position]
        memories: dict[int, Buffer] = {}
        for number, _, _ in step.arguments:
            place = self.places[number]
            if place.kind == "arena":
                arena = self._arenas[place.device]
                memories[number] = arena.view(place.size, place.dtype, place.offset)
            else:
                memories[number] = used[place.word] if place.buffer is None else place.buffer
        values = {
            name: self.words[self._value_words[source]]
            for name, source in self.sources[position].items()
        }
        engine.launch(step, engine.arguments_of(step, memories), values)

    def _count(self) -> None:
        """The counters, for the steps that ran inside graphs."""
        assert self._segments is not None
        if not hasattr(self, "_costs"):
            self._find_costs()
        GlobalCounters.kernel_count += self._kernels
        ops, mem = self._costs
        if self._symbolic:
            key = tuple([self.words[w] for w in self._symbolic_words])
            more = self._symbolic_costs.get(key)
            if more is None:
                if len(self._symbolic_costs) > 1000:
                    self._symbolic_costs.clear()
                more = self._symbolic_costs[key] = self._count_symbolic()
            ops, mem = ops + more[0], mem + more[1]
        GlobalCounters.global_ops += ops
        GlobalCounters.global_mem += mem

    def _find_costs(self) -> None:
        assert self._segments is not None
        alone = {segment for segment in self._segments if isinstance(segment, int)}
        inside = [i for i in range(len(self.steps)) if i not in alone]
        self._kernels = len(inside)
        self._symbolic: list[int] = []
        self._symbolic_costs: dict[tuple[int, ...], tuple[int, int]] = {}
        ops = mem = 0
        for position in inside:
            runner = self.steps[position].runner
            assert runner is not None
            if isinstance(runner.ops, int) and isinstance(runner.mem, int):
                ops += runner.ops
                mem += runner.mem
            else:
                self._symbolic.append(position)
        self._costs = (ops, mem)
        words = {self._value_words[s] for i in self._symbolic for s in self.sources[i].values()}
        self._symbolic_words = sorted(words)

    def _count_symbolic(self) -> tuple[int, int]:
        ops = mem = 0
        for position in self._symbolic:
            runner = self.steps[position].runner
            assert runner is not None
            values = {
                name: self.words[self._value_words[source]]
                for name, source in self.sources[position].items()
            }
            ops += sym_infer(runner.ops, values)
            mem += sym_infer(runner.mem, values)
        return ops, mem

    # ------------------------------------------------------------ what comes out
    def _come_out(
        self,
        call: Arguments,
        known: dict[Label, Tensor],
        storages: dict[Label, UOp],
        fresh: dict[int, tuple[UOp, Buffer]],
        draws: list[tuple[int, int, int]],
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
                tensor._cell, tensor._moves, tensor._source = value._cell, value._moves, None
            else:
                self._apply(kind, effect[1], effect[2], value, call, known)
        return result

    def _node_of(
        self, role: Role, storages: dict[Label, UOp], fresh: dict[int, tuple[UOp, Buffer]]
    ) -> UOp:
        if role[0] == "outside":
            outside: UOp = role[1]
            return outside
        if role[0] == "input":
            return storages[role[1]]
        return fresh[self.places[self._place_of(role, None)].word][0]

    def _container(self, label: Label, call: Arguments, known: dict[Label, Tensor]) -> Any:
        if label.kind == "container":
            return call.containers[label.path[0]]
        if label in known:
            return known[label]
        return next(o for o, row in zip(self._objects, self._tree, strict=True) if row[-1] == label)

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
            place, key, _ = self.chains[label.path[0]].find()
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


def _checks(expected: tuple[Any, ...]) -> tuple[Any, int | None, int | None]:
    """(type, length or whether it has a gradient, id): what a place has to hold."""
    if expected[0] == "tensor":
        return Tensor, int(expected[1]), None
    if expected[0] == "object":
        return None, None, expected[1]
    return expected[1], expected[2] if len(expected) > 2 else None, None


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
    fresh: dict[int, tuple[UOp, Buffer]],
    words: dict[int, int],
    cells: dict[int, Cell],
) -> Any:
    """The result of a simple template: as `Instances`, without what it does not need."""
    if template[0] == "tensor":
        _, _, kind, (_, number, _, shape, _), (moves, _), requires_grad, _ = template
        cell = cells.get(number)
        if cell is None:
            node = fresh[words[number]][0]
            is_flat = len(shape) == 1 and shape[0] == node.arg.size
            cell = cells[number] = Cell(node if is_flat else engine.shaped(node, shape))
        tensor = kind._view_of(cell, moves)
        tensor.requires_grad = requires_grad
        return tensor
    if template[0] == "plain":
        return float(template[2]) if template[1] is float else template[2]
    return template[2]([_instance(child, fresh, words, cells) for _, child in template[4]])
