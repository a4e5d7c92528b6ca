"""Launches: the prepared schedule of values over numbered storages, run without looking again.

In: a schedule whose inputs are storages. Out: `Launch`, which runs it over the storages of a call
and gives the memory of the results.
Sits above realize, whose schedules it runs, under `eager`, which knows what the values mean.
Invariant: it runs what `execute` would; all that can fail comes before the first launch.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Sequence
from typing import Any

from weft.contracts import Graph
from weft.device import Buffer, Device
from weft.dtype import dtypes
from weft.engine import realize as engine
from weft.engine import schedule
from weft.engine.forms import forgotten_with_calls
from weft.engine.interrupts import NOTHING, Writing
from weft.engine.prepared import Memory, Prepared
from weft.engine.spare import ALONE
from weft.engine.storage import Held, buffer_of, shaped
from weft.helpers import GlobalCounters
from weft.uop.node import UOp

# results up to this size are kept for the next one, if nobody holds them any more
_MOST_BYTES = 1 << 12
_MOST_KEPT = 2
# so many kinds of them
_MOST_KINDS = 64

# memory of earlier results by kind, as [place, buffer, view]; those that were made first go first
_spares: dict[tuple[Any, ...], list[list[Any]]] = {}


def _spares_of(*kind: Any) -> list[list[Any]]:
    found = _spares.get(kind)
    if found is None:
        while len(_spares) >= _MOST_KINDS:
            _spares.pop(next(iter(_spares))).clear()
        found = _spares[kind] = []
    return found


def free_spares() -> None:
    """Keep no memory of earlier results."""
    for kept in _spares.values():
        kept.clear()


forgotten_with_calls(free_spares)


class _Result:
    """A value that a launch puts into new memory."""

    __slots__ = ("_device", "_dtype", "_kept", "_shape", "_size")

    def __init__(self, memory: Memory, shape: tuple[int, ...]) -> None:
        self._device, self._size, self._dtype = memory.device, memory.size, memory.dtype
        self._shape = shape
        self._kept = _spares_of(memory.device, memory.size, memory.dtype, shape)

    def take(self) -> tuple[UOp, Buffer, UOp]:
        """A BUFFER, its memory, and a view of it in the value's shape: those of an earlier result
        if all that was made of it is gone."""
        for entry in self._kept:
            if (
                sys.getrefcount(entry[2]) == ALONE
                and sys.getrefcount(entry[0]) == ALONE + 1
                and sys.getrefcount(entry[1]) == ALONE + 1
                and entry[1]._opaque is not None
            ):
                place, buffer, view = entry
                held = place.held
                held.cells, held.expressions = [], []
                held.is_shared = held.is_part = False
                held.past = None
                return place, buffer, view
        buffer = Buffer(self._device, self._size, self._dtype).allocate()
        place = UOp.new_buffer(self._device, self._size, self._dtype)
        held = place.held = Held()
        held.buffer = buffer
        view = shaped(place, self._shape)
        if ALONE is not None and view is not place and buffer.nbytes <= _MOST_BYTES:
            self._kept.append([place, buffer, view])
            del self._kept[:-_MOST_KEPT]
        return place, buffer, view


class Launch:
    """A schedule of kernels over storages. `order` is the number of the storage that each of its
    inputs is; `shapes` are those of its results, None for a storage that is written."""

    __slots__ = (
        "_graph",
        "_inner",
        "_mem",
        "_one",
        "_ops",
        "_order",
        "_parts",
        "_results",
        "_submit",
        "_words",
        "generation",
        "prepared",
    )
    is_known = True

    def __init__(
        self,
        prepared: Prepared,
        order: list[int],
        shapes: Sequence[tuple[int, ...] | None],
        inputs: Sequence[UOp],
    ) -> None:
        self.generation = schedule.generation
        self.prepared = prepared
        self._order = order
        first = prepared.inputs
        self._results: dict[int, _Result] = {}
        for number, shape in zip(prepared.results, shapes, strict=True):
            if shape is not None:
                assert number is not None
                self._results[number] = _Result(prepared.made[number - first], shape)
        made = enumerate(prepared.made, first)
        self._inner = [(number, memory) for number, memory in made if number not in self._results]
        runners = [step.runner for step in prepared.steps if step.runner is not None]
        self._ops = sum([int(runner.ops) for runner in runners])
        self._mem = sum([int(runner.mem) for runner in runners])
        self._submit = Device[prepared.steps[0].device].queue.submit
        self._one = self._whole_arguments() if len(prepared.steps) == 1 else None
        self._graph: Graph | None = None
        self._words: array[int] = array("q", [0])
        self._parts: list[Any] = []
        if self._one is None:
            self._plan(inputs)

    # ------------------------------------------------------------ one kernel over whole memories
    def _whole_arguments(self) -> tuple[Any, list[int], int] | None:
        """Of one kernel with at most one result, over whole memories: its program, the storage that
        each argument is (-1: the result), and the number of the result (-1: none)."""
        prepared = self.prepared
        if len(prepared.made) != len(self._results) or len(prepared.made) > 1:
            return None
        step = prepared.steps[0]
        numbers = []
        for number, offset, size in step.arguments:
            made = number - prepared.inputs
            if offset or (made >= 0 and size != prepared.made[made].size):
                return None
            numbers.append(-1 if made >= 0 else self._order[number])
        assert step.runner is not None
        return step.runner.program, numbers, next(iter(self._results), -1)

    def _run_one(self, storages: Sequence[UOp], writing: Writing) -> dict[int, tuple[UOp, UOp]]:
        assert self._one is not None
        program, numbers, number = self._one
        made: dict[int, tuple[UOp, UOp]] = {}
        fresh: Any = None
        if number >= 0:
            place, fresh, view = self._results[number].take()
            made[number] = (place, view)
        buffers = []
        for place_number in numbers:
            if place_number < 0:
                buffers.append(fresh)
                continue
            storage = storages[place_number]
            held = storage.held
            buffers.append(buffer_of(storage) if held is None or not held.buffer else held.buffer)
        writing.begin()
        self._submit(program, buffers, (), False, self.prepared.steps[0].origin)
        return made

    # ------------------------------------------------------------ several
    def _plan(self, inputs: Sequence[UOp]) -> None:
        """What each step takes: (memory, byte, elements, dtype), memories counted as the schedule
        does; as one graph where the device replays graphs over the host's memory."""
        prepared = self.prepared
        memories = [(node.arg.size, node.dtype) for node in inputs]
        memories += [(memory.size, memory.dtype) for memory in prepared.made]
        for step in prepared.steps:
            assert step.runner is not None
            arguments = []
            for number, offset, size in step.arguments:
                whole, dtype = memories[number]
                is_whole = offset == 0 and size == whole
                arguments.append((number, offset * dtype.itemsize, size, dtype, is_whole))
            self._parts.append((step.runner.program, arguments, step.origin))
        device = Device[prepared.steps[0].device]
        if device.graph is None or not device.is_host or len(prepared.steps) < 2:
            return
        self._words = array("q", [0] * len(memories))
        self._graph = device.graph(self._words)
        for program, arguments, _ in self._parts:
            self._graph.record(program, [(number, byte) for number, byte, *_ in arguments])

    def _replay(
        self, graph: Graph, storages: Sequence[UOp], writing: Writing
    ) -> dict[int, tuple[UOp, UOp]]:
        """All steps in one native call: memory is known by its address."""
        prepared, words = self.prepared, self._words
        for place, number in enumerate(self._order):
            words[place] = buffer_of(storages[number]).address
        made: dict[int, tuple[UOp, UOp]] = {}
        for number, result in self._results.items():
            storage, buffer, view = result.take()
            made[number] = (storage, view)
            words[number] = buffer.address
        arenas = {
            device: Buffer(device, size, dtypes.uint8).allocate()
            for device, size in prepared.arenas.items()
        }
        # kept until all is done
        own = []
        for number, memory in self._inner:
            if memory.offset is not None:
                words[number] = arenas[memory.device].address + memory.offset
            else:
                own.append(self._own_memory(memory))
                words[number] = own[-1].address
        writing.watch(lambda: graph.begun > prepared.first_write)
        graph.replay()
        return made

    def _own_memory(self, memory: Memory) -> Buffer:
        if memory.contents is not None:
            return engine.table_of(memory)
        return Buffer(memory.device, memory.size, memory.dtype).allocate()

    def _run_all(self, storages: Sequence[UOp], writing: Writing) -> dict[int, tuple[UOp, UOp]]:
        if self._graph is not None:
            return self._replay(self._graph, storages, writing)
        prepared = self.prepared
        found = dict(enumerate([buffer_of(storages[number]) for number in self._order]))
        made: dict[int, tuple[UOp, UOp]] = {}
        for number, result in self._results.items():
            storage, found[number], view = result.take()
            made[number] = (storage, view)
        arenas = {
            device: Buffer(device, size, dtypes.uint8).allocate()
            for device, size in prepared.arenas.items()
        }
        for number, memory in self._inner:
            if memory.offset is None:
                found[number] = self._own_memory(memory)
            else:
                arena = arenas[memory.device]
                found[number] = arena.view(memory.size, memory.dtype, memory.offset)
        for step, (program, arguments, origin) in enumerate(self._parts):
            if step == prepared.first_write:
                writing.begin()
            taken = [
                found[number] if is_whole else found[number].view(size, dtype, byte)
                for number, byte, size, dtype, is_whole in arguments
            ]
            self._submit(program, taken, (), False, origin)
        return made

    def run(self, storages: Sequence[UOp], writing: Writing = NOTHING) -> list[tuple[UOp, UOp]]:
        """The BUFFER of each new value, and a view of it in its shape."""
        run = self._run_all if self._one is None else self._run_one
        made = run(storages, writing)
        GlobalCounters.kernel_count += len(self.prepared.steps)
        GlobalCounters.global_ops += self._ops
        GlobalCounters.global_mem += self._mem
        return [made[number] for number in self._results]


class NoLaunch:
    """Stands for values whose schedule is not one of kernels over memory alone."""

    __slots__ = ("generation",)
    is_known = False

    def __init__(self) -> None:
        self.generation = schedule.generation


def make_launch(
    values: Sequence[UOp], is_write: Sequence[bool], holes: Sequence[UOp], device: str
) -> Launch | NoLaunch:
    """The schedule of values over storages, for which there are holes."""
    prepared, request, _ = schedule.prepare_schedule(UOp.sink(*values), device)
    if request.values or prepared.conditions or not prepared.steps or not Device[device].executes:
        return NoLaunch()
    if len(prepared.executed) != sum(is_write):
        return NoLaunch()
    results = [n for n, writes in zip(prepared.results, is_write, strict=True) if not writes]
    if len(set(results)) != len(results):
        # two values that are one memory may have gradients of their own
        return NoLaunch()
    for number in results:
        if number is None or number < prepared.inputs:
            return NoLaunch()
        if prepared.made[number - prepared.inputs].contents is not None:
            return NoLaunch()
    engine.load_programs(prepared, None)
    for step in prepared.steps:
        if step.runner is None or step.runner.variables or step.device != device:
            return NoLaunch()
    numbers = {hole: number for number, hole in enumerate(holes)}
    order = [numbers[node] for node in request.inputs]
    shapes = [None if w else v.shape for v, w in zip(values, is_write, strict=True)]
    return Launch(prepared, order, shapes, request.inputs)
