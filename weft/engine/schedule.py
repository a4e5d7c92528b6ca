"""From values to a schedule that can run: canonical form, cache, storage.

What comes in: the UOps of values to compute. What goes out: a `Prepared` schedule: steps whose
arguments are numbered
memories, and the memories' descriptions.
Where it sits: driver of weft/schedule; its results are executed by realize.py.
The one invariant: the cache keys on structure. Bound variables are stripped to their names and
buffers to their
positions, so another step, another position of a KV cache, another parameter of the same shape is
a hit.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import Any

from weft.device import Device
from weft.dtype import DType
from weft.engine.memory import plan_memory
from weft.engine.programs import Runner, clear_programs, code_knobs, too_many_programs
from weft.errors import ArgumentError
from weft.gradient import Identity
from weft.knobs import (
    CHECK_NAN,
    DEBUG,
    NO_MEMORY_PLANNER,
    SCACHE,
    SPEC,
    SPLIT_REDUCEOP,
    VALIDATE,
)
from weft.schedule.pipeline import Schedule, make_schedule
from weft.uop.args import BufferArg
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.spec import tensor_spec, type_verify

_CACHE_LIMIT = 4096


@dataclass(frozen=True)
class Memory:
    """A storage of a prepared schedule that is not an input."""

    size: int
    dtype: DType
    device: str
    offset: int | None  # inside its device's arena; None: storage of its own
    contents: bytes | None = None  # of a table of constants


@dataclass
class Step:
    """One launch (or a transfer, if there is no kernel): arguments are (memory, first element,
    elements)."""

    arguments: tuple[tuple[int, int, int], ...]
    device: str
    kernel: UOp | None  # dropped once `runner` is made
    is_transfer: bool
    origin: tuple[str, int] | None
    runner: Runner | None = None


@dataclass
class Prepared:
    """Steps over memories: numbers below `inputs` are the caller's buffers, the others are in
    `made`."""

    inputs: int
    made: list[Memory]
    steps: list[Step]
    results: list[int | None]
    overwritten: list[int]  # inputs that are written
    executed: list[int]  # which of the request's writes happen (what nobody reads is dropped)
    arenas: dict[Any, int]


@dataclass
class Request:
    """Values in canonical form."""

    key: tuple[Any, ...]
    inputs: list[UOp] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)
    writes: list[UOp] = field(default_factory=list)  # the STOREs, in order


_prepared: dict[tuple[Any, ...], Prepared] = {}
_lock = threading.RLock()


def describe(sink: UOp, device: str) -> Request:
    """The structure of a graph as plain tuples, its buffers by position, its variables by name."""
    numbers: dict[UOp, int] = {}
    request = Request(())
    rows: list[tuple[Any, ...]] = []
    for node in sink.toposort(gate=lambda u: u.op is not Ops.BIND):
        numbers[node] = len(rows)
        if node.op is Ops.BUFFER:
            arg = node.arg
            rows.append((node.op, node.dtype, len(request.inputs), arg.size, arg.device))
            request.inputs.append(node)
        elif node.op is Ops.BIND:
            variable, value = node.unbind()
            if request.values.setdefault(variable.arg.name, value) != value:
                raise ArgumentError(
                    f"the variable {variable.arg.name} is bound to {value} and to "
                    f"{request.values[variable.arg.name]} in one computation"
                )
            rows.append((Ops.VARIABLE, node.dtype, (), variable.arg, None))
        else:
            if node.op is Ops.STORE:
                request.writes.append(node)
            src = tuple([numbers[s] for s in node.src])
            # which constant it is matters to gradients, not to schedules
            tag = None if isinstance(node.tag, Identity) else node.tag
            rows.append((node.op, node.dtype, src, node.arg, tag))
    # a prepared schedule holds programs; one that is to be checked also keeps its kernels
    watched = (CHECK_NAN.value, VALIDATE.value)
    knobs = (SPLIT_REDUCEOP.value, NO_MEMORY_PLANNER.value, watched, code_knobs())
    request.key = (device, knobs, *rows)
    return request


def prepare_schedule(sink: UOp, device: str) -> tuple[Prepared, Request, bool]:
    """The schedule of `SINK(values)`, from the cache where its structure is known."""
    if too_many_programs():
        clear_schedules()
        clear_programs()
    request = describe(sink, device)
    if SPEC >= 1:
        type_verify(sink, tensor_spec, pass_name="tensor graph")
    if SCACHE.value:
        found = _prepared.get(request.key)
        if found is not None:
            return found, request, True
    with _lock:
        schedule = make_schedule(_canonical(sink, request), -len(request.inputs) - 1, device)
        prepared = _prepare(schedule, len(request.inputs))
        if SCACHE.value:
            if len(_prepared) >= _CACHE_LIMIT:
                for key in list(_prepared)[: _CACHE_LIMIT // 4]:
                    _prepared.pop(key, None)
            _prepared[request.key] = prepared
    return prepared, request, False


def _canonical(sink: UOp, request: Request) -> UOp:
    """Buffers by position, variables free, and every write tagged with its number."""
    done: dict[UOp, UOp] = {}
    for i, node in enumerate(request.inputs):
        arg = BufferArg(-1 - i, node.arg.size, node.arg.device)
        done[node] = UOp(Ops.BUFFER, node.dtype, (), arg)
    numbers = {node: i for i, node in enumerate(request.writes)}
    for node in sink.toposort():
        if node.op is Ops.BIND:
            done[node] = node.src[0]
        elif node not in done:
            src = tuple([done[s] for s in node.src])
            new = node if src == node.src else node.with_src(src)
            done[node] = new.rtag(("write", numbers[node])) if node.op is Ops.STORE else new
    return done[sink]


def _prepare(schedule: Schedule, inputs: int) -> Prepared:
    numbers: dict[UOp, int] = {}
    made: list[UOp] = []

    def number_of(memory: UOp) -> int:
        if -inputs <= memory.arg.number <= -1:
            return -1 - int(memory.arg.number)
        if memory not in numbers:
            numbers[memory] = inputs + len(made)
            made.append(memory)
        return numbers[memory]

    steps = [
        Step(
            tuple((number_of(a.memory), a.offset, a.size) for a in item.arguments),
            item.device,
            item.kernel,
            item.kernel is None,
            item.origin,
        )
        for item in schedule.items
    ]
    results = [None if memory is None else number_of(memory) for memory in schedule.results]
    kept = {number for number in results if number is not None}
    sizes = {
        number: (memory.arg.device, memory.arg.size * memory.dtype.itemsize)
        for memory, number in numbers.items()
        if number not in kept and memory not in schedule.tables and not NO_MEMORY_PLANNER.value
    }
    offsets, arenas = plan_memory([[a[0] for a in step.arguments] for step in steps], sizes)
    memories = [
        Memory(m.arg.size, m.dtype, m.arg.device, offsets.get(number), schedule.tables.get(m))
        for m, number in numbers.items()
    ]
    overwritten = [number_of(m) for m in schedule.overwritten if -inputs <= m.arg.number <= -1]
    if DEBUG >= 3:
        _show(schedule)
    return Prepared(inputs, memories, steps, results, overwritten, schedule.executed, arenas)


def _show(schedule: Schedule) -> None:
    print(f"schedule of {len(schedule.items)} steps")
    for i, item in enumerate(schedule.items):
        name = "copy" if item.kernel is None else item.kernel.arg.name
        where = f"  {item.origin[0]}:{item.origin[1]}" if item.origin else ""
        print(f"  {i:4d} {name:<30} {len(item.arguments):3d} buffers on {item.device}{where}")


def clear_schedules() -> None:
    """Forget every schedule."""
    with _lock:
        _prepared.clear()


def default_device(values: list[UOp]) -> str:
    """Where values without a device are computed: beside the others, else on the default device."""
    for value in values:
        if isinstance(value.device, str):
            return value.device
    return str(Device.canonicalize(None))
