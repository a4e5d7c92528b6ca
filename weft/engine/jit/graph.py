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
from weft.engine.jit.launches import Launches, no_value
from weft.engine.jit.parameters import evaluate
from weft.engine.jit.places import Place
from weft.engine.jit.replay import Maker, Replay, simple_maker
from weft.engine.jit.state import CapturedState
from weft.engine.jit.templates import Fill, Label, Outside, Remove, Role, SetChild, StoredCell
from weft.engine.jit.trace import Run, labels_in, parts_in
from weft.engine.known import forget, forget_readers
from weft.engine.linear import Call, Linear, Program
from weft.engine.storage import buffer_of, parts_of, whole_behind
from weft.mixin.rand import RandMixin
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
        self.varied = varied  # variables that are known to be used as such, not as numbers
        stored = [p for p in parts_in(run.result, run.effects) if isinstance(p, StoredCell)]
        self.launches = Launches(run, [cell.role for cell in stored], prune)
        self.state = CapturedState(run, places)
        self.missed = ""  # why the last replay could not be
        self._watched: Any = None
        used = labels_in([e.roles for e in run.executions], run.result, run.effects)
        used |= set(run.groups.values())
        self._arguments_used = [label for label in used if label.kind == "argument"]
        # the caller's storages that a replay writes to
        written = [self.launches.places[number] for number in self.launches.written]
        labels = [place.label for place in written if place.label is not None]
        self._written_labels = list(dict.fromkeys(labels))
        outside = [
            whole_behind(role.node)
            for role, number in self.launches.numbers.items()
            if number in self.launches.written and isinstance(role, Outside)
        ]
        self._written_outside = list(dict.fromkeys(outside))
        # places that are changed, which must not be one and the same
        changed = {e.label for e in run.effects if isinstance(e, (SetChild, Fill, Remove))}
        self._changed = [label for label in changed if label.kind != "root"]
        self._maker = self._maker_of_arguments_only()
        self._conditions = [
            (condition, {v.arg.name: e.sources[v.arg.name] for v in condition.variables})
            for e in run.executions
            for condition in e.prepared.conditions
        ]

    def __repr__(self) -> str:
        return f"<CapturedGraph of {len(self)} kernels>"

    def __len__(self) -> int:
        return len(self.launches.steps) - len(self.launches.once)

    @property
    def is_plain(self) -> bool:
        """The usual case: only arguments go in, and only new memory comes out."""
        return self._maker is not None

    def _maker_of_arguments_only(self) -> Maker | None:
        run, launches = self.run, self.launches
        has_state = run.tree or run.ties or run.events or run.effects or self.state.outside
        # what it writes through indices may be memory that each replay makes anew
        written = [launches.places[number] for number in launches.written]
        writes_others = any([place.kind not in ("fresh", "arena") for place in written])
        if has_state or run.variables or run.numbers or writes_others or launches.once:
            return None

        def word_of(role: Role) -> int:
            return launches.places[launches.place_of(role)].word

        return simple_maker(run.result, word_of)

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
        self.state.forget()

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

    # ------------------------------------------------------------ replaying
    def replay(
        self, call: Arguments, places: Sequence[Place], given: dict[int, Any] | None = None
    ) -> Any:
        """Do it again for another call; MISS if the state is not as it was.

        `places` lead to the state, as they do in this call; `given` are the numbers that kernels
        take.
        """
        if self._maker is not None:
            return self._maker(self.launches.launch(self._buffers(call, {}), no_value, False), {})
        run = self.run
        for name, value in call.variables.items():
            if value != run.variables.get(name) and name not in self.varied:
                return self._miss(f"the value of the variable {name} is also used as a number")
        numbers = evaluate(run.numbers, given or {}) if run.numbers else []
        if numbers is None:
            return self._miss("what it computes with the numbers it is given is not a number")
        again = Replay(call, places, numbers)
        for condition, sources in self._conditions:
            if not condition.holds({name: again.value(s) for name, s in sources.items()}):
                # running the function says what is wrong
                return self._miss("the values of its variables are none that it was captured for")
        found = self.state.find(call, places)
        if found is None:
            return self._miss(self.state.missed)
        again.take_state(self.state, found, self._arguments_used)
        storages = again.storages
        if run.tree and not self._groups_agree(storages):
            return self._miss("tensors that share their memory in one call do not in the next")
        if not self._are_apart(again):
            return self._miss("an argument is also something that it reaches by another name")
        written = [storages[label] for label in self._written_labels]
        written += self._written_outside
        if any([is_lost(node) for node in self.state.outside]):
            # running the function says so
            return self._miss("memory that it takes was lost when Ctrl-C came")
        if any(Cell.is_shared(node) for node in written):
            # since it was captured somebody else got the same memory: writing moves away from it
            return self._miss("memory that it writes to is another Tensor's as well")
        if written:
            self._compute_readers(written)
        with writing_in_place(written) as writing:
            return self._do(again, written, writing)

    def _miss(self, reason: str) -> Any:
        self.missed = reason
        return MISS

    def replay_over(self, memory: Sequence[Buffer]) -> Any:
        """As `replay`, of a plain graph, for arguments that are all of these memories."""
        launches, maker = self.launches, self._maker
        assert maker is not None
        fresh = launches.prepare_whole(memory)
        if fresh is None:
            return maker(launches.launch_plain(memory), {})
        whole = launches.whole
        assert whole is not None
        if not launches.is_large:
            result = maker(fresh, {})
            launches.count()
            whole.replay()
            return result
        # The last replay left nothing in the caches of what a result is made of. Other cores can
        # begin with the kernels while this one waits for that.
        whole.begin()
        try:
            launches.count()
            return maker(fresh, {})
        finally:
            whole.finish()

    def _do(self, again: Replay, written: list[UOp], writing: Writing) -> Any:
        """Launch, and let everybody know what has changed."""
        again.draws = self._draw()
        storages = again.storages
        with_once = bool(self.launches.once) and self._has_changed(again)
        try:
            buffers = self._buffers(again.call, storages)
            fresh = self.launches.launch(buffers, again.value, with_once, writing)
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
        return again.finish(self.launches, fresh, self.run.result, self.run.effects)

    def _are_apart(self, again: Replay) -> bool:
        """What the graph takes for different things is not one thing in this call."""
        outside = self.state.outside
        if outside and not set(outside).isdisjoint(again.storages.values()):
            return False
        return len({id(again.container(label)) for label in self._changed}) == len(self._changed)

    def _groups_agree(self, storages: dict[Label, UOp]) -> bool:
        """Tensors that shared a storage do so again, and others do not."""
        owners: dict[UOp, Label] = {}
        for label, group in self.run.groups.items():
            node = storages.get(label)
            if node is None or owners.setdefault(node, group) != group:
                return False
        return len(owners) == len(set(self.run.groups.values()))

    def _has_changed(self, again: Replay) -> bool:
        """Whether state that is only read is not what it was when the kept steps ran."""
        nodes = [node for label, node in again.storages.items() if label.kind == "state"]
        nodes += self.state.outside
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
            buffer = buffer_of(storage if place.part is None else parts_of(storage)[place.part])
            if is_argument and index in call.windows:
                window = call.windows[index]
                start = window.start * place.dtype.itemsize
                buffer = buffer.view(window.size, place.dtype, start)
            found.append(buffer)
        return found
