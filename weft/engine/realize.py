"""Realize: run what is pending, so that values are in memory.

What comes in: cells whose values are wanted. What goes out: the same cells, their values now
storage.
Where it sits: the top of the engine, under Tensor.
The one invariant: after an error nothing half-done is visible: values that failed stay pending, and
storage that is written in place is written by all of a schedule or (an error before the first
launch) by none of it.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from typing import Any

from weft.device import Buffer, Device
from weft.dtype import dtypes
from weft.engine import history, record
from weft.engine.cell import Cell
from weft.engine.check import Checks, active_checks, with_index_checks
from weft.engine.forms import refuse_while_tracing
from weft.engine.holders import holders_text as holders_text
from weft.engine.host import is_same_storage, is_storage, is_stored_view
from weft.engine.host_calls import CallTable, Pairs, compute_calls, may_run, with_kernels
from weft.engine.interrupts import NOTHING, Writing, writing_in_place
from weft.engine.known import forget, forget_readers, remember, stored_along, with_known
from weft.engine.linear import compile_linear as compile_linear
from weft.engine.linear import run_linear as run_linear
from weft.engine.prepared import SpreadMemory
from weft.engine.programs import make_runners, runner_for
from weft.engine.ranks import ABSENT, agree, transfer
from weft.engine.report import memory_text, say_launch, say_loaded, say_scheduled
from weft.engine.schedule import (
    Memory,
    Prepared,
    Request,
    Step,
    assuming_conditions,
    default_device,
    machine_of,
    prepare_schedule,
)
from weft.engine.storage import buffer_of, shaped, whole_of
from weft.errors import ArgumentError, OutOfMemory, SpecError
from weft.helpers import GlobalCounters, disable_gc
from weft.knobs import DEBUG
from weft.schedule.pipeline import ScheduleItem, make_schedule
from weft.schedule.place import storage_of, written_state
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.resolve import sym_infer

_tables: dict[tuple[Any, ...], Buffer] = {}
_lock = threading.RLock()


def realize_cells(cells: Iterable[Cell], live: Iterable[Cell] = ()) -> None:
    """Compute the cells' values; pending readers of storage that gets overwritten are computed
    along."""
    refuse_while_tracing()
    with _lock, record.unobserved():
        wanted = [cell for cell in dict.fromkeys(cells) if not cell.is_realized and not cell.pure]
        if not wanted:
            return
        calls = CallTable()
        sink, order, stages = _graph_of(wanted, live, calls)
        recorder = record.active()
        if recorder is not None:
            recorder.before_realize(sink)
        # readers that come along may bring further writes, which have readers of their own
        while along := _pending_readers(order, wanted, live):
            wanted += along
            sink, order, stages = _graph_of(wanted, live, calls)
        kinds = {u.op for u in order}
        if kinds & {Ops.CONTIGUOUS, Ops.HOST} and (kept := stored_along(sink, wanted, live)):
            wanted += kept
            sink, order, stages = _graph_of(wanted, live, calls)
        values = [cell.value for cell in wanted]
        device = _working_device(values)
        started = time.perf_counter()
        checks = active_checks()
        with disable_gc():
            whole = sink if checks is None else with_index_checks(sink, checks)
            prepared, request, hit = prepare_schedule(whole, device)
        if DEBUG >= 1:
            say_scheduled(len(prepared.steps), hit, time.perf_counter() - started)
        twins = _states_before(stages) if prepared.overwritten else {}
        load_programs(prepared, checks)
        # an interrupt between a write and the note that it happened would write twice
        changed = request.storages(prepared.overwritten)
        with writing_in_place(changed) as writing:
            results = execute(prepared, request, checks, writing)
            writing.end()
            if checks is not None:
                checks.finish(results[len(wanted) :], request.values)
                del results[len(wanted) :]
                if not prepared.overwritten:
                    # what is wrong stays pending; what was written in place cannot
                    checks.report()
            lost = history.overwrite(changed)
            for storage in changed:
                forget(storage)
            states = _remember_states(sink, {request.writes[i] for i in prepared.executed}, twins)
            overwritten = set(changed)
            apart = _gradients_apart(wanted, values, results, overwritten)
            for cell, value, node, result in zip(wanted, values, sink.src, results, strict=True):
                if cell not in apart:
                    _settle(cell, value, node, result)
            history.note(
                [*states, *[(c.value, v) for c, v in zip(wanted, values, strict=True)]], lost
            )
            forget_readers(overwritten)
        if checks is not None:
            checks.report()
        if apart:
            realize_cells(apart, live)


def realize_apart(cells: Iterable[Cell], live: Iterable[Cell] = ()) -> None:
    """The same; one after another where a variable would have two values in one computation."""
    wanted = list(dict.fromkeys(cells))
    try:
        realize_cells(wanted, live)
    except ArgumentError:
        if len(wanted) < 2:
            raise
        for cell in wanted:
            realize_cells([cell], live)


def schedule_cells(cells: Iterable[Cell]) -> list[ScheduleItem]:
    """The steps that realizing the cells would take, without running them."""
    with _lock:
        wanted = [cell for cell in dict.fromkeys(cells) if not cell.is_realized and not cell.pure]
        if not wanted:
            return []
        values = [cell.value for cell in wanted]
        sink, _ = with_kernels(with_known(wanted), CallTable())
        free, _ = sink.unbind_all()
        return make_schedule(free, -1 << 40, _working_device(values), machine_of).items


def _working_device(values: list[UOp]) -> str:
    """Where numbers are computed; never on a device that only stores."""
    return default_device([value for value in values if not is_storage(value.device)])


def realize_readers(storage: str, live: Iterable[Cell]) -> None:
    """Compute what is pending on the contents of a storage device, before they are overwritten."""
    recorder = record.active()
    if recorder is not None:
        recorder.refuse(f"writes to {storage}")
    with _lock:
        pending = [c for c in live if not c.is_realized and not c.pure]
        if not pending:
            return
        values = with_known(pending)
        reads: set[UOp] = set()
        for node in values.toposort():
            if node.op is Ops.BUFFER and is_same_storage(node.arg.device, storage):
                reads.add(node)
            elif any(s in reads for s in node.src):
                reads.add(node)
        # a view of the storage itself is no reader: it shall see the change
        realize_cells(
            [
                cell
                for cell, value in zip(pending, values.src, strict=True)
                if value in reads and not is_stored_view(value)
            ],
            live,
        )


def _graph_of(
    wanted: list[Cell], live: Iterable[Cell], calls: CallTable
) -> tuple[UOp, dict[UOp, None], list[Pairs]]:
    """SINK of the cells' values, as it can be scheduled; its nodes in order before kernels took the
    place of calls, as other pending graphs hold them; and the stages in which it came about, each
    as pairs of nodes before and after it.

    What the host computes is computed now.
    """
    sink = with_known(wanted)
    order = sink.toposort()
    kinds = {u.op for u in order}
    has_calls = Ops.HOST in kinds
    # Pending readers of what a write destroys have to be computed before it, and they may need the
    # very call: one schedule can put all of that in order, two cannot.
    if has_calls and Ops.STORE not in kinds and may_run():
        compute_calls(wanted, calls, lambda cells: realize_cells(cells, live), launch)
        sink = with_known(wanted)
        order = sink.toposort()
    stages = [list(zip([cell.value for cell in wanted], sink.src, strict=True))]
    if has_calls:
        before = sink
        sink, pairs = with_kernels(sink, calls)
        stages.append([*zip(before.src, sink.src, strict=True), *pairs])
    return sink, order, stages


# ------------------------------------------------------------ what is known already
def _settle(cell: Cell, value: UOp, node: UOp, result: UOp | None) -> None:
    """The cell's value is in memory; remember that for graphs that hold the expression."""
    if result is None:
        result = UOp.new_buffer(default_device([value]), 0, value.dtype)
    stored = shaped(result, value.shape)
    for expression in (value, node):
        if expression.op not in (Ops.CONST, Ops.BUFFER) and expression is not stored:
            remember(expression, stored, result, is_state=expression.op is Ops.AFTER)
    if cell.value is value:
        cell.value = stored


def _gradients_apart(
    wanted: list[Cell], values: list[UOp], results: list[UOp | None], overwritten: set[UOp]
) -> list[Cell]:
    """Cells that would get the memory of another, with the same numbers but other gradients: they
    are computed for themselves.

    x * x and x.detach() * x    one kernel, and one memory
    """
    if len(set(results)) == len(results):
        return []
    first: dict[UOp, UOp] = {}
    apart = []
    for cell, value, result in zip(wanted, values, results, strict=True):
        if result is None or first.setdefault(result, value) is value:
            continue
        if dtypes.is_float(value.dtype) and value.op is not Ops.AFTER:
            order = UOp.sink(value, first[result]).toposort()
            has_rule = any([node.op in (Ops.DETACH, Ops.FUNCTION) for node in order])
            if has_rule and overwritten.isdisjoint(value.toposort()):
                apart.append(cell)
    return apart


def _states_before(stages: list[Pairs]) -> dict[UOp, list[UOp]]:
    """For each state in a graph, the states it was before known values and kernels were put in,
    the one that was written down last.

    Other pending graphs hold those: what has happened to one has happened to all of them.
    """
    found: dict[UOp, list[UOp]] = {}
    for pairs in stages:
        for after, states in _changed_states(pairs).items():
            earlier = [state for middle in states for state in found.get(middle, ())]
            found[after] = [*states, *earlier]
    return found


def _changed_states(pending: Pairs) -> dict[UOp, list[UOp]]:
    """For each state below nodes of a graph as it is now, what it was in the graph before."""
    found: dict[UOp, list[UOp]] = {}
    seen: set[tuple[UOp, UOp]] = set()
    while pending:
        pair = pending.pop()
        before, after = pair
        if before is after or before.op is not after.op or pair in seen:
            continue
        seen.add(pair)
        if before.op is Ops.AFTER:
            found.setdefault(after, []).append(before)
        if len(before.src) == len(after.src):
            pending.extend(zip(before.src, after.src, strict=True))
    return found


def _remember_states(
    sink: UOp, executed: set[UOp], twins: dict[UOp, list[UOp]]
) -> list[tuple[UOp, UOp]]:
    """These writes have happened: the last state of each storage is the storage itself. Each of
    them, and the state."""
    found: list[tuple[UOp, UOp]] = []
    if not executed:
        return found
    order = sink.toposort()
    passed = {written_state(u) for u in order if u in executed}
    for node in order:
        if node.op is Ops.AFTER and node not in passed and executed.issuperset(node.src[1:]):
            storage = storage_of(node)
            states = (node, *twins.get(node, ()))
            stored = shaped(storage, node.shape)
            for state in states:
                remember(state, stored, storage, is_state=True)
            # further writes start from the storage, as do graphs in which it is looked for
            for cell in Cell.holders_of(storage):
                if cell.value in states:
                    cell.value = stored
            # as it was written down: with what is pending inside
            found.append((storage, states[-1]))
    return found


# ------------------------------------------------------------ writes and their pending readers
def _pending_readers(order: Iterable[UOp], wanted: list[Cell], live: Iterable[Cell]) -> list[Cell]:
    """Cells, not asked for, whose pending values read a state that this realize destroys."""
    running = {u for u in order if u.op is Ops.STORE}
    if not running:
        return []
    destroyed = {written_state(u) for u in running}
    chosen = set(wanted)
    pending = [c for c in live if c not in chosen and not c.is_realized and not c.pure]
    if not pending:
        return []
    # in the order in which they were written down: equal programs then have equal schedules
    pending.sort(key=lambda cell: cell.born)
    values = with_known(pending)
    reads: set[UOp] = set()
    for node in values.toposort():
        if node.op is Ops.SINK or node in running:
            continue
        if node.op is Ops.AFTER:
            # a state is not a reader of the state before it, but waits for what that waits for
            if node.src[0].base in reads or any(s in reads for s in node.src[1:]):
                reads.add(node)
        elif any(s in reads or s in destroyed for s in node.src):
            reads.add(node)
    readers = []
    for cell, value in zip(pending, values.src, strict=True):
        if value in reads:
            readers.append(cell)
        elif value is not cell.value and not destroyed.isdisjoint(cell.value.toposort()):
            # it reads what was kept of the state, for good: soon the expression means a new value
            cell.value = value
    return readers


# ------------------------------------------------------------ running
def load_programs(prepared: Prepared, checks: Checks | None) -> None:
    """Every kernel of the schedule, compiled and loaded; only checks still need to see them."""
    if any([step.runner is None and not step.is_transfer for step in prepared.steps]):
        # two threads may come by one schedule
        with _lock:
            _load_programs(prepared, checks)


def _load_programs(prepared: Prepared, checks: Checks | None) -> None:
    waiting = [step for step in prepared.steps if step.runner is None and not step.is_transfer]
    if not waiting:
        return
    started = time.perf_counter()
    for step in waiting:
        if not Device[step.device].is_here:
            step.runner = ABSENT
    with assuming_conditions(prepared.conditions):
        make_runners(
            (step.kernel, step.device)
            for step in waiting
            if step.kernel is not None and step.runner is None
        )
    if DEBUG >= 1:
        say_loaded(len(waiting), time.perf_counter() - started)
    for step in waiting:
        if step.runner is not None:
            continue
        assert step.kernel is not None
        step.runner = runner_for(step.kernel, step.device)
        if checks is None:
            step.kernel = None


def execute(
    prepared: Prepared,
    request: Request,
    checks: Checks | None = None,
    writing: Writing = NOTHING,
) -> list[UOp | None]:
    """Run the steps; the BUFFER of each result. Everything that can fail comes before the first
    launch."""
    load_programs(prepared, checks)
    if prepared.is_spread:
        agree(prepared, [step.device for step in prepared.steps])
    recorder = record.active()
    if recorder is not None:
        recorder.before_execute(prepared, request)
    nodes: dict[int, UOp] = dict(enumerate(request.inputs))
    try:
        buffers = _take_memory(prepared, nodes)
    except OutOfMemory as error:
        raise OutOfMemory(
            f"{error}; {memory_text(prepared.steps, prepared.inputs, prepared.made)}"
        ) from None
    launches = [(step, arguments_of(step, buffers)) for step in prepared.steps]
    for number, (step, arguments) in enumerate(launches):
        if number == prepared.first_write:
            writing.begin()
        if checks is None:
            launch(step, arguments, request.values)
        else:
            checks.run(step, arguments, request.values, launch)
    if recorder is not None:
        recorder.after_execute(nodes)
    return _results(prepared, request, nodes)


def _results(prepared: Prepared, request: Request, nodes: dict[int, UOp]) -> list[UOp | None]:
    """The BUFFER of each result; those of parts become one."""
    found: list[UOp | None] = []
    wholes: dict[tuple[Any, ...], UOp] = {}
    for result in prepared.results:
        if not isinstance(result, SpreadMemory):
            found.append(None if result is None else nodes[result])
            continue
        first, spread = result.numbers[0], result.spread
        if first in request.wholes:
            found.append(request.wholes[first])
            continue
        whole = wholes.get(result.numbers)
        if whole is None:
            parts = [
                UOp.new_buffer(device, 0, spread.dtype) if number is None else nodes[number]
                for number, device in zip(result.numbers, spread.devices, strict=True)
            ]
            whole = wholes[result.numbers] = whole_of(parts, spread.layout)
            whole.origin = parts[0].origin
        found.append(whole)
    return found


def _take_memory(prepared: Prepared, nodes: dict[int, UOp]) -> dict[int, Buffer]:
    """Memory for everything the steps read and write; `nodes` gets the BUFFERs of results."""
    writers = {step.arguments[0][0]: step.origin for step in prepared.steps if step.arguments}
    arenas = {
        device: Buffer(device, size, dtypes.uint8).ensure_allocated()
        for device, size in prepared.arenas.items()
    }
    buffers: dict[int, Buffer] = {i: buffer_of(n).ensure_allocated() for i, n in nodes.items()}
    for number, memory in enumerate(prepared.made, prepared.inputs):
        if memory.contents is not None:
            buffers[number] = table_of(memory)
        elif memory.offset is not None:
            buffers[number] = arenas[memory.device].view(memory.size, memory.dtype, memory.offset)
        else:
            nodes[number] = UOp.new_buffer(memory.device, memory.size, memory.dtype)
            nodes[number].origin = writers.get(number)
            buffers[number] = buffer_of(nodes[number]).ensure_allocated()
    return buffers


def table_of(memory: Memory) -> Buffer:
    """A table of constants: one per device and contents, kept."""
    key = (memory.device, memory.dtype, memory.contents)
    found = _tables.get(key)
    if found is None:
        assert memory.contents is not None
        found = Buffer(memory.device, memory.size, memory.dtype).ensure_allocated()
        found.copyin(memory.contents)
        if len(_tables) >= 256:
            _tables.pop(next(iter(_tables)))
        _tables[key] = found
    return found


def arguments_of(step: Step, buffers: dict[int, Buffer]) -> list[Buffer]:
    """The parts of the memories that a step takes."""
    result = []
    for number, offset, size in step.arguments:
        buffer = buffers[number]
        if offset or size != buffer.size:
            buffer = buffer.view(size, buffer.dtype, offset * buffer.dtype.itemsize)
        result.append(buffer)
    return result


def launch(step: Step, arguments: list[Buffer], values: dict[str, int]) -> None:
    """Run one step and count it."""
    if step.runner is None:
        target, source = arguments
        started = time.perf_counter()
        transfer([(target, source)])
        if DEBUG >= 2:
            Device[step.device].synchronize()
        _account("copy", step, 0, target.nbytes, time.perf_counter() - started)
        return
    runner = step.runner
    try:
        seconds = runner(arguments, values, DEBUG >= 2, step.origin)
    except SpecError as error:
        raise _at_line(error, step) from None
    _account(
        runner.name, step, sym_infer(runner.ops, values), sym_infer(runner.mem, values), seconds
    )


def _at_line(error: SpecError, step: Step) -> SpecError:
    """What a kernel did against the rules, with the line of the user that it computes."""
    if step.origin is None:
        return error
    path, line = step.origin
    return type(error)(f"{error}\nthe kernel computes line {line} of {path}")


def _account(name: str, step: Step, ops: int, mem: int, seconds: float | None) -> None:
    GlobalCounters.kernel_count += 1
    GlobalCounters.global_ops += ops
    GlobalCounters.global_mem += mem
    if seconds is None or DEBUG < 2:
        return
    GlobalCounters.time_sum_s += seconds
    say_launch(name, step.runner is None, step.device, step.origin, ops, mem, seconds)


def synchronize_all(devices: Iterable[str]) -> None:
    """Wait until the devices have done what was submitted."""
    for device in devices:
        Device[device].synchronize()
