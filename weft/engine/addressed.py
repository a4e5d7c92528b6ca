"""A schedule over memory that somebody else owns: called with addresses, at the cost of a replay.

In: the values of a graph over BUFFERs that stand for foreign memory. Out: `Addressed`, which runs
their schedule again and again, with other addresses and other values of variables.
Sits on the schedule's driver, beside the JIT's launches; whoever compiles graphs of other libraries
calls it.
Invariant: it allocates nothing that comes out. Results are written where the caller says; what
lives only between kernels shares one arena, which is taken at the first run.
"""

from __future__ import annotations

import threading
from array import array
from collections.abc import Sequence
from typing import Any

from weft.device import Buffer, Device
from weft.dtype import dtypes
from weft.engine.host_calls import CallTable, with_kernels
from weft.engine.prepared import Step
from weft.engine.realize import arguments_of, launch, load_programs, table_of
from weft.engine.schedule import prepare_schedule
from weft.engine.storage import buffer_of
from weft.helpers import GlobalCounters, disable_gc
from weft.knobs import DEBUG
from weft.uop.node import UOp
from weft.uop.resolve import sym_infer


class Addressed:
    """A compiled graph. `words` takes the addresses of `inputs` and of `results`, and the values
    of variables, at the places that `input_words`, `result_words` and `value_words` name.

    `results` tells for each value where it comes out: a number of its own memory (an index into
    `result_words`), `None` if that is one of the inputs' (it was written in place, or is that input
    as it is) or nothing at all.
    """

    def __init__(self, values: Sequence[UOp], inputs: Sequence[UOp], device: str) -> None:
        self.device = device
        self.lock = threading.Lock()
        sink, _ = with_kernels(UOp.sink(*values), CallTable())
        with disable_gc():
            self.prepared, request, _ = prepare_schedule(sink, device)
        load_programs(self.prepared, None)
        self._values = dict(request.values)
        self._number_of = {node: number for number, node in enumerate(request.inputs)}
        self.words = array("q")
        self._word_of: dict[int, tuple[int, int]] = {}  # of a memory: its word, and an offset
        self._lay_out(inputs)
        self._arenas: dict[str, Buffer] = {}
        self._graph: Any = None
        self._is_alone = any(step.runner is None for step in self.prepared.steps)
        self._costs: tuple[int, int] | None = None

    # ------------------------------------------------------------ words
    def _new_word(self, value: int = 0) -> int:
        self.words.append(value)
        return len(self.words) - 1

    def _lay_out(self, inputs: Sequence[UOp]) -> None:
        prepared = self.prepared
        self.input_words: list[int | None] = []
        for node in inputs:
            number = self._number_of.get(node)
            word = None if number is None else self._new_word()
            self.input_words.append(word)
            if number is not None and word is not None:
                self._word_of[number] = (word, 0)
        # memory of weft's own, which has an address already: of constants, and of tables
        self._kept: list[Any] = []
        for node, number in self._number_of.items():
            if number not in self._word_of:
                buffer = buffer_of(node).ensure_allocated()
                self._kept.append((node, buffer))
                self._word_of[number] = (self._new_word(buffer.address), 0)
        self._arena_words = {device: self._new_word() for device in prepared.arenas}
        self.result_words: list[int] = []
        places: dict[int, int] = {}
        for number, memory in enumerate(prepared.made, prepared.inputs):
            if memory.contents is not None:
                table = table_of(memory)
                self._kept.append(table)
                self._word_of[number] = (self._new_word(table.address), 0)
            elif memory.offset is not None:
                self._word_of[number] = (self._arena_words[memory.device], memory.offset)
            else:
                word = self._new_word()
                self._word_of[number] = (word, 0)
                places[number] = len(self.result_words)
                self.result_words.append(word)
        self.results = [None if n is None else places.get(n) for n in prepared.results]
        # which memory a value is in where that is not new
        self.result_inputs = [
            None if n is None or n >= prepared.inputs else n for n in prepared.results
        ]
        self.result_sizes = [prepared.made[number - prepared.inputs].size for number in places]
        self.value_words = {name: self._new_word(v) for name, v in self._values.items()}

    def place_of_input(self, node: UOp) -> int | None:
        """The number that `result_inputs` knows an input by."""
        return self._number_of.get(node)

    # ------------------------------------------------------------ running
    def run(self) -> None:
        """All kernels, with the words as they are now. Whoever sets words holds `lock`."""
        if len(self._arenas) != len(self.prepared.arenas):
            self._take_arenas()
        if DEBUG >= 2 or self._is_alone:
            self._run_alone()
            return
        if self._graph is None:
            self._graph = self._record()
        if self.prepared.steps:
            self._graph.replay()
        self._count()

    def _take_arenas(self) -> None:
        for device, size in self.prepared.arenas.items():
            arena = self._arenas[device] = Buffer(device, size, dtypes.uint8).allocate()
            self.words[self._arena_words[device]] = arena.address

    def free(self) -> None:
        """Give the memory of intermediate values back; the next run takes some again."""
        self._arenas = {}

    def _record(self) -> Any:
        made = Device[self.device].graph
        if made is None:
            self._is_alone = True
            return _Alone(self)
        graph = made(self.words)
        for step in self.prepared.steps:
            assert step.runner is not None
            graph.record(step.runner.program, self._arguments(step), step.origin)
        return graph

    def _arguments(self, step: Step) -> list[tuple[int, int]]:
        found = []
        for number, offset, _ in step.arguments:
            word, start = self._word_of[number]
            found.append((word, start + offset * self._dtype(number).itemsize))
        assert step.runner is not None
        return found + [(self.value_words[name], 0) for name in step.runner.variables]

    def _dtype(self, number: int) -> Any:
        inputs = self.prepared.inputs
        if number >= inputs:
            return self.prepared.made[number - inputs].dtype
        return self._input_nodes[number].dtype

    @property
    def _input_nodes(self) -> list[UOp]:
        return list(self._number_of)

    def _run_alone(self) -> None:
        """One launch after another: to be watched, or where no graph holds them."""
        buffers: dict[int, Buffer] = {}
        for number, node in enumerate(self._input_nodes):
            address = self.words[self._word_of[number][0]]
            buffers[number] = Buffer.from_opaque(self.device, node.arg.size, node.dtype, address)
        for number, memory in enumerate(self.prepared.made, self.prepared.inputs):
            word, offset = self._word_of[number]
            address = self.words[word] + offset
            buffers[number] = Buffer.from_opaque(memory.device, memory.size, memory.dtype, address)
        values = {name: self.words[word] for name, word in self.value_words.items()}
        for step in self.prepared.steps:
            launch(step, arguments_of(step, buffers), values)

    def _count(self) -> None:
        """What a run is worth, in the counters."""
        if self._costs is None or self._values:
            values = {name: self.words[word] for name, word in self.value_words.items()}
            runners = [step.runner for step in self.prepared.steps if step.runner is not None]
            self._costs = (
                sum(sym_infer(runner.ops, values) for runner in runners),
                sum(sym_infer(runner.mem, values) for runner in runners),
            )
        GlobalCounters.kernel_count += len(self.prepared.steps)
        GlobalCounters.global_ops += self._costs[0]
        GlobalCounters.global_mem += self._costs[1]


class _Alone:
    """Stands for a graph where the device has none."""

    def __init__(self, program: Addressed) -> None:
        self.program = program

    def replay(self) -> None:
        """One launch after another."""
        self.program._run_alone()
