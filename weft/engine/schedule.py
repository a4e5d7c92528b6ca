"""From values to a schedule that can run: canonical form, cache, storage.

What comes in: the UOps of values to compute. What goes out: a `Prepared` schedule: steps whose
arguments are numbered memories, and the memories' descriptions.
Where it sits: driver of weft/schedule; its results are executed by realize.py.
The one invariant: the cache keys on structure. Bound variables are stripped to their names, draws
of random numbers and buffers to their positions, so another step, another position of a KV cache,
another parameter of the same shape is a hit.
"""

from __future__ import annotations

import re
import threading
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any

from weft.device import Device
from weft.engine import kept_schedules
from weft.engine.conditions import Condition, conditions_of, narrow
from weft.engine.memory import plan_memory
from weft.engine.prepared import Memory, Prepared, Request, SpreadMemory, Step
from weft.engine.programs import clear_programs, code_knobs, too_many_programs
from weft.engine.report import say_schedule
from weft.engine.storage import parts_of
from weft.errors import ArgumentError
from weft.gradient import Identity
from weft.knobs import (
    CHECK_NAN,
    DEBUG,
    NO_MEMORY_PLANNER,
    RING,
    SCACHE,
    SPEC,
    SPLIT_REDUCEOP,
    VALIDATE,
)
from weft.machine import Target, weakest
from weft.schedule.pipeline import Schedule, SpreadResult, make_schedule
from weft.uop.args import BufferArg, VariableArg
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.prove import assuming
from weft.uop.spec import tensor_spec, type_verify

_CACHE_LIMIT = 4096


_prepared: dict[tuple[Any, ...], Prepared] = {}
_lock = threading.RLock()
# how often all schedules were forgotten
generation = 0


def _is_not_bound(node: UOp) -> bool:
    """What is behind a bound variable is its value, which no schedule depends on."""
    return node.op is not Ops.BIND


def describe(sink: UOp, device: str) -> Request:
    """The structure of a graph as plain tuples, its buffers by position, its variables by name."""
    numbers: dict[UOp, int] = {}
    request = Request((), sink=sink)
    rows: list[tuple[Any, ...]] = []
    draws: dict[str, int] = {}
    for node in sink.toposort(gate=_is_not_bound):
        numbers[node] = len(rows)
        if node.op is Ops.BUFFER:
            arg = node.arg
            number = len(request.inputs)
            if type(arg.device) is str:
                rows.append((node.op, node.dtype, number, arg.size, arg.device))
                request.inputs.append(node)
            else:
                # how all-reduces are made is part of what is cached
                how = (arg.device, arg.layout, RING.value)
                rows.append((node.op, node.dtype, number, arg.size, how))
                request.wholes[number] = node
                request.inputs.extend(parts_of(node))
        elif node.op is Ops.BIND:
            variable, value = node.unbind()
            arg = _known_as(variable.arg, draws)
            request.names[arg.name] = variable.arg.name
            request.variables[node] = variable if arg is variable.arg else variable.replace(arg=arg)
            if request.values.setdefault(arg.name, value) != value:
                raise ArgumentError(
                    f"the variable {variable.arg.name} is bound to {value} and to "
                    f"{request.values[arg.name]} in one computation"
                )
            rows.append((Ops.VARIABLE, node.dtype, (), arg, None))
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


def origins_of(request: Request) -> tuple[tuple[str, int] | None, ...]:
    """The user's line of each row of a request's key."""
    assert request.sink is not None, "a described request has its graph"
    return tuple([node.origin for node in request.sink.toposort(gate=_is_not_bound)])


# the words of the key of a draw of random numbers: a slot that was free, and which of them
_DRAW = re.compile(r"(rngj?\d+)_(\w+)")


def _known_as(variable: VariableArg, draws: dict[str, int]) -> VariableArg:
    """A variable as kernels know it: draws are counted as they appear, whatever slot they took.

    rng3_key0, rng0_key0 -> rng0_key0, rng1_key0
    """
    found = _DRAW.fullmatch(variable.name)
    if found is None:
        return variable
    number = draws.setdefault(found[1], len(draws))
    return VariableArg(f"rng{number}_{found[2]}", variable.lo, variable.hi)


def prepare_schedule(sink: UOp, device: str) -> tuple[Prepared, Request, bool]:
    """The schedule of `SINK(values)`, from a cache where its structure is known; whether it was."""
    if too_many_programs():
        clear_schedules()
        clear_programs()
    request = describe(sink, device)
    if SPEC >= 1:
        type_verify(sink, tensor_spec, pass_name="tensor graph")
    if SCACHE.value:
        found = _prepared.get(request.key)
        if found is not None:
            _check(found, request)
            return found, request, True
    with _lock:
        kept_key = kept_schedules.key_of(request, device)
        order = () if kept_key is None else sink.toposort(gate=_is_not_bound)
        origins = [node.origin for node in order]
        kept = kept_schedules.load(kept_key, request, origins)
        if kept is not None:
            prepared = kept
            _check(prepared, request)
        else:
            prepared = _schedule(sink, request, device)
            kept_schedules.keep(kept_key, prepared, origins)
        if SCACHE.value:
            if len(_prepared) >= _CACHE_LIMIT:
                for key in list(_prepared)[: _CACHE_LIMIT // 4]:
                    _prepared.pop(key, None)
            _prepared[request.key] = prepared
    return prepared, request, kept is not None


def _check(prepared: Prepared, request: Request) -> None:
    """An error if the values of a request are none that the schedule is for."""
    for condition in prepared.conditions:
        condition.check(request.values)


def _schedule(sink: UOp, request: Request, device: str) -> Prepared:
    """A graph that no cache has."""
    canonical = _canonical(sink, request)
    # asked before the scheduler sees it: what is outside its axis has no schedule
    conditions = conditions_of(canonical) if request.values else ()
    for condition in conditions:
        condition.check(request.values)
    canonical = narrow(canonical, conditions, request.values)
    first = -len(request.inputs) - 1
    with assuming_conditions(conditions):
        schedule = make_schedule(canonical, first, device, machine_of)
    prepared = _prepare(schedule, len(request.inputs))
    prepared.conditions = conditions
    prepared.is_spread = len({step.device for step in prepared.steps}) > 1
    if prepared.is_spread:
        _check_places(schedule)
    return prepared


def _check_places(schedule: Schedule) -> None:
    """Only transfers touch the memory of two devices."""
    for item in schedule.items:
        places = {argument.memory.arg.device for argument in item.arguments}
        if item.kernel is not None and places != {item.device}:
            raise AssertionError(f"{item} is over the memory of {places}")


def assuming_conditions(conditions: tuple[Condition, ...]) -> AbstractContextManager[None]:
    """What is proven of kernels inside, is proven where these hold: they are asked before a run."""
    if SPEC < 2 or not conditions:
        return nullcontext()
    return assuming(tuple([claim for condition in conditions for claim in condition.claims]))


def machine_of(device: Any) -> Target:
    """What the schedule may know of a device; of several, what holds for each of them.

    A device has one machine for as long as the process lives, so its name in a key stands for it.
    """
    if isinstance(device, str):
        found: Target = Device[device].renderer.target
        return found
    return weakest([Device[name].renderer.target for name in device])


def _canonical(sink: UOp, request: Request) -> UOp:
    """Buffers by position, variables free, and every write tagged with its number."""
    done: dict[UOp, UOp] = {}
    for i, node in enumerate(request.inputs):
        arg = BufferArg(-1 - i, node.arg.size, node.arg.device)
        done[node] = UOp(Ops.BUFFER, node.dtype, (), arg)
    for i, node in request.wholes.items():
        done[node] = UOp(Ops.BUFFER, node.dtype, (), replace(node.arg, number=-1 - i))
    numbers = {node: i for i, node in enumerate(request.writes)}
    for node in sink.toposort():
        if node.op is Ops.BIND:
            done[node] = request.variables[node]
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
    results: list[Any] = []
    kept: set[int] = set()
    for found in schedule.results:
        parts = found.parts if isinstance(found, SpreadResult) else (found,)
        places = tuple([None if memory is None else number_of(memory) for memory in parts])
        kept.update([number for number in places if number is not None])
        is_spread = isinstance(found, SpreadResult)
        results.append(SpreadMemory(places, found.spread) if is_spread else places[0])
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
        say_schedule(schedule.items)
    return Prepared(
        inputs,
        memories,
        steps,
        results,
        overwritten,
        list(dict.fromkeys(schedule.executed)),
        arenas,
        first_write=schedule.first_write,
    )


def clear_schedules() -> None:
    """Forget every schedule."""
    global generation
    with _lock:
        generation += 1
        _prepared.clear()


def default_device(values: list[UOp]) -> str:
    """Where values without a device are computed: beside the others, else on the default device."""
    for value in values:
        device = value.device
        if isinstance(device, str):
            return device
        if device is not None:
            return device[0]
    return str(Device.canonicalize(None))
