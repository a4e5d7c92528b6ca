"""The launches of a run over numbered memory: planned once, launched at every replay.

In: a Run, and which of its memory outlives a replay. Out: `Launches`, which runs all steps over the
buffers of a call and gives back the new memory.
Sits under the captured graph, which knows what the memory means.
Invariant: memory that outlives a replay is new at every replay; everything else is either the
caller's, or planned once and reused.

All that changes between replays is in `words`: addresses and values of variables. A device that can
replay a whole graph takes the words and does the rest in one native call.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any

from weft.contracts import Graph
from weft.device import Buffer, Device
from weft.dtype import dtypes
from weft.engine import realize as engine
from weft.engine.interrupts import NOTHING, Writing
from weft.engine.jit.templates import Input, Label, Made, Outside, Own, Role, Source, Spread
from weft.engine.jit.trace import Run
from weft.engine.memory import ALIGNMENT, plan_memory
from weft.engine.prepared import Memory, Step
from weft.engine.spare import Spares
from weft.engine.storage import buffer_of
from weft.helpers import GlobalCounters, round_up
from weft.knobs import DEBUG, JIT, NO_MEMORY_PLANNER
from weft.uop.node import UOp
from weft.uop.resolve import sym_infer

# memory that kernels touch from which on they leave nothing else in the caches
LARGE_BYTES = 32 << 20
# the new memory of a replay, by the word of its place
Fresh = dict[int, tuple[UOp, Buffer]]


class MemoryPlace:
    """One memory.

    kind: "input" (the caller's), "fixed" (its own buffer), "fresh" (new at every replay), "arena"
    (part of the planned memory), "copied" (its own buffer, filled with `contents` at every replay).
    """

    __slots__ = (
        "buffer",
        "contents",
        "device",
        "dtype",
        "has_address",
        "kind",
        "label",
        "offset",
        "part",
        "size",
        "spares",
        "word",
    )

    def __init__(self, dtype: Any, size: int, device: str) -> None:
        self.spares = Spares(device, size, dtype)
        self.dtype = dtype
        self.size = size
        self.device = device
        self.has_address = Device[device].has_address
        self.kind = "arena"
        self.label: Label | None = None
        self.part: int | None = None  # of an input on several devices
        self.buffer: Buffer | None = None
        self.contents: bytes | None = None
        self.offset = 0
        self.word = 0


class Launches:
    """The steps of all executions of a run."""

    def __init__(self, run: Run, escaping: Sequence[Role], prune: bool) -> None:
        self.places: list[MemoryPlace] = []
        self.steps: list[Step] = []
        self.sources: list[dict[str, Source]] = []  # of each step's variables
        self.numbers: dict[Role, int] = {}
        self.written: dict[int, None] = {}
        self._first_write: int | None = None  # the first step that writes to the caller's memory
        self._number_memory(run)
        self._escape(escaping)
        # steps that depend on nothing but state that is only read: done again when that changes
        self.once = self._find_once() if prune else []
        self._plan()
        self._lay_out_words()
        self._segments: list[Any] | None = None
        # the graph that is all there is to do, if there is one
        self.whole: Graph | None = None
        self.is_large = False
        self._arenas: dict[str, Buffer] = {}

    @property
    def arena_bytes(self) -> int:
        """The memory of intermediate values."""
        return sum(self.arena_sizes.values())

    @property
    def spare_bytes(self) -> int:
        """The memory of earlier results that waits for the next one."""
        return sum(place.spares.nbytes for place in self._fresh)

    def free(self) -> None:
        """Give back the memory of intermediate values and of earlier results that nobody holds;
        the next replay takes some again."""
        self._arenas = {}
        for place in self._fresh:
            place.spares.free()

    # ------------------------------------------------------------ memory
    def _place(self, role: Role, dtype: Any, size: int, device: str) -> MemoryPlace:
        number = self.numbers.get(role)
        if number is None:
            number = self.numbers[role] = len(self.places)
            self.places.append(MemoryPlace(dtype, size, device))
        return self.places[number]

    def place_of(self, role: Role, facts: tuple[Any, int, str] | None = None) -> int:
        """The number of a memory; `facts` of an input are those of its first use."""
        if isinstance(role, Outside):
            node = role.node
            place = self._place(role, node.dtype, node.arg.size, node.arg.device)
            place.kind = "fixed"
            place.buffer = buffer_of(node)
        elif isinstance(role, Own):
            place = self._place(role, role.dtype, role.size, role.device)
            place.contents = role.contents
        elif isinstance(role, Input) and facts is not None:
            place = self._place(role, *facts)
            place.kind, place.label, place.part = "input", role.label, role.part
        return self.numbers[role]

    def _number_memory(self, run: Run) -> None:
        """All executions' memories in one numbering."""
        for number, execution in enumerate(run.executions):
            prepared = execution.prepared
            local: dict[int, int] = {}
            for position, role in enumerate(execution.roles):
                local[position] = self.place_of(role, execution.facts[position])
            for position, memory in enumerate(prepared.made, prepared.inputs):
                local[position] = self._made(number, position, memory)
            for position in prepared.overwritten:
                self.written.setdefault(local[position])
            if prepared.overwritten and self._first_write is None:
                self._first_write = len(self.steps) + prepared.first_write
            for step in prepared.steps:
                arguments = tuple((local[m], offset, size) for m, offset, size in step.arguments)
                self.steps.append(
                    Step(arguments, step.device, None, step.is_transfer, step.origin, step.runner)
                )
                needed = () if step.runner is None else step.runner.variables
                self.sources.append({name: execution.sources[name] for name in needed})

    def _made(self, execution: int, position: int, memory: Memory) -> int:
        role = Made(execution, position)
        place = self._place(role, memory.dtype, memory.size, memory.device)
        if memory.contents is not None:
            place.kind = "fixed"
            place.buffer = engine.table_of(memory)
        return self.numbers[role]

    def _escape(self, escaping: Sequence[Role]) -> None:
        """Memory that outlives a replay is new each time; so is data that gets overwritten."""
        for whole in escaping:
            for role in whole.roles if isinstance(whole, Spread) else (whole,):
                if isinstance(role, (Made, Own)):
                    self.places[self.place_of(role)].kind = "fresh"
        for number, place in enumerate(self.places):
            if place.contents is not None and place.kind == "arena":
                place.kind = "copied" if number in self.written else "fixed"
                place.buffer = Buffer(place.device, place.size, place.dtype)
                place.buffer.copyin(place.contents)

    def _find_once(self) -> list[int]:
        """Steps whose results are the same at every replay, as long as the state is."""
        changing = set(self.written)
        for number, place in enumerate(self.places):
            is_argument = place.label is not None and place.label.kind == "argument"
            if is_argument or place.kind in ("fresh", "copied"):
                changing.add(number)
        once = []
        for position, step in enumerate(self.steps):
            touched = [number for number, _, _ in step.arguments]
            varies = any(source.kind != "fixed" for source in self.sources[position].values())
            if not varies and changing.isdisjoint(touched):
                once.append(position)
                continue
            # whatever it writes changes; what the caller holds is only read, or known as written
            changing.update(n for n in touched if self.places[n].kind == "arena")
        kept = {number for position in once for number, _, _ in self.steps[position].arguments}
        for number in kept:
            place = self.places[number]
            if place.kind == "arena":
                place.kind = "fixed"
                place.buffer = Buffer(place.device, place.size, place.dtype).allocate()
        return once

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
                place = self.places[number]
                place.offset = self.arena_sizes.get(place.device, 0)
                room = round_up(max(1, nbytes), ALIGNMENT)
                self.arena_sizes[place.device] = place.offset + room
            return
        offsets, arenas = plan_memory(touched, sizes)
        self.arena_sizes = {str(device): size for device, size in arenas.items()}
        for number, offset in offsets.items():
            self.places[number].offset = offset

    def _lay_out_words(self) -> None:
        """A word for each memory, for each arena, and for each variable's value."""
        self.words = array("q")
        self._arena_words = {device: self._new_word() for device in self.arena_sizes}
        kinds: dict[str, list[MemoryPlace]] = {"input": [], "fresh": [], "copied": [], "fixed": []}
        for place in self.places:
            if place.kind == "arena":
                place.word = self._arena_words.get(place.device, 0)
            else:
                place.word = self._new_word()
                kinds[place.kind].append(place)
        self.inputs, self._fresh, self._copied = kinds["input"], kinds["fresh"], kinds["copied"]
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

    # ------------------------------------------------------------ launching
    def _build_segments(self) -> list[Any]:
        """Neighbouring launches that one graph of a device can hold, and the others one by one."""
        segments: list[Any] = []
        # of each graph, how many launches come before the first one that writes in place
        self._unwritten: list[int] = []
        first_write = len(self.steps) if self._first_write is None else self._first_write
        kind: Any = None
        skipped = set(self.once)
        for position, step in enumerate(self.steps):
            if position in skipped:
                continue
            wanted = None if step.runner is None else Device[step.device].graph
            if wanted is None:
                segments.append(position)
                self._unwritten.append(0)
            else:
                if wanted is not kind:
                    segments.append(wanted(self.words))
                    self._unwritten.append(0)
                self._unwritten[-1] += position < first_write
                assert step.runner is not None
                words = self._word_arguments(position)
                segments[-1].record(step.runner.program, words, step.origin)
            kind = wanted
        for place in self.places:
            if place.kind in ("fixed", "copied") and place.has_address:
                assert place.buffer is not None
                self.words[place.word] = place.buffer.ensure_allocated().address
        self._find_costs(segments)
        self._input_words = [
            (place.word, place.label.path[0]) for place in self.inputs if place.label
        ]
        if (
            len(segments) == 1
            and not isinstance(segments[0], int)
            and not (self._copied or self._changing or self.once)
            and all([place.has_address for place in self.inputs])
            and all([place.contents is None for place in self._fresh])
        ):
            self.whole = segments[0]
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

    def launch(
        self,
        inputs: Sequence[Buffer],
        value_of: Callable[[Source], int],
        with_once: bool,
        writing: Writing = NOTHING,
    ) -> Fresh:
        """Run the steps over the inputs' buffers; the new memory."""
        if self._segments is None:
            self._segments = self._build_segments()
        words = self.words
        for device, size in self.arena_sizes.items():
            if device not in self._arenas:
                arena = Buffer(device, size, dtypes.uint8).allocate()
                self._arenas[device] = arena
                if Device[device].has_address:
                    words[self._arena_words[device]] = arena.address
        used: dict[int, Buffer] = {}
        for place, buffer in zip(self.inputs, inputs, strict=True):
            used[place.word] = buffer
            if place.has_address:
                words[place.word] = buffer.address
        fresh: Fresh = {}
        for place in self._fresh:
            node, buffer = place.spares.take()
            if place.contents is not None:
                buffer.copyin(place.contents)
            fresh[place.word] = (node, buffer)
            used[place.word] = buffer
            words[place.word] = buffer._address
        for place in self._copied:
            assert place.buffer is not None and place.contents is not None
            place.buffer.copyin(place.contents)
        for source, word in self._changing:
            words[word] = value_of(source)
        if with_once:
            for position in self.once:
                self._launch_one(position, used)
        if DEBUG >= 2 or JIT >= 2:
            skipped = set(self.once)
            for position in range(len(self.steps)):
                if position not in skipped:
                    self._say_begun(position, writing)
                    self._launch_one(position, used)
            return fresh
        for segment, unwritten in zip(self._segments, self._unwritten, strict=True):
            if isinstance(segment, int):
                self._say_begun(segment, writing)
                self._launch_one(segment, used)
            else:
                writing.watch(partial(_has_begun, segment, unwritten))
                segment.replay()
        self.count()
        return fresh

    def _say_begun(self, position: int, writing: Writing) -> None:
        if self._first_write is not None and position >= self._first_write:
            writing.begin()

    def prepare_whole(self, memory: Sequence[Buffer]) -> Fresh | None:
        """All of `launch` but a replay of `whole` and the counting, given the memory of all
        arguments and without a look at what has not changed since; None where that is not enough,
        which a `launch` mends.
        """
        if self.whole is None or len(self._arenas) != len(self.arena_sizes):
            return None
        words = self.words
        for word, argument in self._input_words:
            buffer = memory[argument]
            words[word] = buffer._address or buffer.address
        fresh: Fresh = {}
        for place in self._fresh:
            found = fresh[place.word] = place.spares.take()
            words[place.word] = found[1]._address
        return fresh

    def launch_plain(self, memory: Sequence[Buffer]) -> Fresh:
        """As `launch`, of a graph without variables, given the memory of all arguments."""
        inputs = [memory[place.label.path[0]] for place in self.inputs if place.label]
        return self.launch(inputs, no_value, False)

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
        engine.launch(step, engine.arguments_of(step, memories), self._values(position))

    def _values(self, position: int) -> dict[str, int]:
        return {
            name: self.words[self._value_words[source]]
            for name, source in self.sources[position].items()
        }

    # ------------------------------------------------------------ counting
    def _find_costs(self, segments: list[Any]) -> None:
        """What the steps inside graphs cost; those that stand alone count themselves."""
        alone = {segment for segment in segments if isinstance(segment, int)} | set(self.once)
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
        self.is_large = mem >= LARGE_BYTES
        words = {self._value_words[s] for i in self._symbolic for s in self.sources[i].values()}
        self._symbolic_words = sorted(words)

    def count(self) -> None:
        """What a replay is worth."""
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

    def _count_symbolic(self) -> tuple[int, int]:
        ops = mem = 0
        for position in self._symbolic:
            runner = self.steps[position].runner
            assert runner is not None
            values = self._values(position)
            ops += sym_infer(runner.ops, values)
            mem += sym_infer(runner.mem, values)
        return ops, mem


def _has_begun(graph: Graph, unwritten: int) -> bool:
    """Whether a graph has come to the launch after these."""
    return graph.begun > unwritten


def no_value(source: Source) -> int:
    """Of a graph without variables."""
    raise AssertionError(f"{source} has no value in a graph without variables")
