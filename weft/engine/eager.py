"""Eager: values that are known by their form, computed in one step.

In: cells that wait, known by their forms and storages. Out: the same cells, in memory.
Sits on top of `forms`, beside realize, which does the same for any graph.
Invariant: it does what realize would: the schedule comes from there and is looked up by form. Where
more is to be decided than which memory is read (values that wait for each other, pending writes,
recordings, checks), it answers False and realize decides.
"""

from __future__ import annotations

import sys
import weakref
from typing import Any

from weft.device import Buffer, Device
from weft.engine import history, record, schedule
from weft.engine import realize as engine
from weft.engine.cell import Cell
from weft.engine.forms import Form, state_now
from weft.engine.prepared import Prepared, Request
from weft.engine.schedule import prepare_schedule
from weft.engine.spare import ALONE
from weft.engine.storage import Held, buffer_of, shaped
from weft.helpers import GlobalCounters
from weft.uop.node import UOp

# results up to this size are kept for the next one, if nobody holds them any more
_MOST_BYTES = 1 << 12
_MOST_KEPT = 2
# so many kinds of them
_MOST_KINDS = 64


def realize_form(cell: Cell) -> bool:
    """Compute a cell that is known by its form; False if it has to be done with its graph."""
    state = state_now()
    if not state.is_on or record.listeners or _is_entangled(cell):
        return False
    formed = cell.formed
    if not formed:
        return False
    form, leaves = formed
    launch = form.launches.get(state)
    if launch is None or launch.generation != schedule.generation:
        launch = form.launches[state] = make_launch(form)
    if not launch.is_known:
        return False
    with engine._lock:
        if cell._node is not None:
            return cell.is_realized
        place, view = launch.run(leaves)
        place.held.cells = [weakref.ref(cell)]
        cell._node = view
        cell.formed = None
        cell.sources = ()
        Cell.lazy.remove(cell)
        if cell._seen_by:
            cell._take_back()
        if form.slopes:
            history.note_form(place, form, leaves)
    return True


def _is_entangled(cell: Cell) -> bool:
    """Whether others that live hold its value in theirs, or theirs are held in its own."""
    for source in cell.sources:
        if source() is not None:
            return True
    for user in cell.users:
        if user() is not None:
            return True
    return False


class Launch:
    """The prepared schedule of a form: which programs run over which storages."""

    __slots__ = (
        "_kept",
        "_mem",
        "_memory",
        "_ops",
        "_order",
        "_origin",
        "_shape",
        "_single",
        "_submit",
        "generation",
        "prepared",
    )
    is_known = True

    def __init__(self, form: Form, prepared: Prepared, order: list[int]) -> None:
        self.generation = schedule.generation
        self.prepared = prepared
        # the number of the storage that each input of the schedule is
        self._order = order
        self._shape = form.shape
        self._submit = Device[str(form.device)].queue.submit
        self._origin = prepared.steps[0].origin
        number = prepared.results[0]
        assert number is not None
        self._memory = prepared.made[number - prepared.inputs]
        self._ops = sum([int(step.runner.ops) for step in prepared.steps if step.runner])
        self._mem = sum([int(step.runner.mem) for step in prepared.steps if step.runner])
        memory = self._memory
        self._kept = _spares_of(memory.device, memory.size, memory.dtype, form.shape)
        self._single = None
        if len(prepared.steps) == 1 and len(prepared.made) == 1:
            self._single = self._whole_arguments()

    def _whole_arguments(self) -> tuple[Any, list[int]] | None:
        """Of one kernel over whole memories: its program, and the memory of each argument, counted
        as the form counts them; -1 is the result."""
        prepared = self.prepared
        step = prepared.steps[0]
        numbers = []
        for number, offset, size in step.arguments:
            if offset:
                return None
            if number >= prepared.inputs:
                if size != self._memory.size:
                    return None
                numbers.append(-1)
            else:
                numbers.append(self._order[number])
        assert step.runner is not None
        return step.runner.program, numbers

    def _take(self) -> tuple[UOp, Buffer, UOp]:
        """Memory for the result: that of an earlier one if all that was made of it is gone."""
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
        memory = self._memory
        buffer = Buffer(memory.device, memory.size, memory.dtype).allocate()
        place = UOp.new_buffer(memory.device, memory.size, memory.dtype)
        held = place.held = Held()
        held.buffer = buffer
        view = shaped(place, self._shape)
        if ALONE is not None and view is not place and buffer.nbytes <= _MOST_BYTES:
            self._kept.append([place, buffer, view])
            del self._kept[:-_MOST_KEPT]
        return place, buffer, view

    def run(self, leaves: tuple[UOp, ...]) -> tuple[UOp, UOp]:
        """The BUFFER of the result, and a view of it in the form's shape."""
        single = self._single
        if single is None:
            request = Request((), [leaves[number] for number in self._order])
            found = engine.execute(self.prepared, request)[0]
            assert found is not None
            return found, shaped(found, self._shape)
        place, buffer, view = self._take()
        program, numbers = single
        buffers = []
        for number in numbers:
            if number < 0:
                buffers.append(buffer)
            else:
                leaf = leaves[number]
                held = leaf.held
                buffers.append(buffer_of(leaf) if held is None or not held.buffer else held.buffer)
        self._submit(program, buffers, (), False, self._origin)
        GlobalCounters.kernel_count += 1
        GlobalCounters.global_ops += self._ops
        GlobalCounters.global_mem += self._mem
        return place, view


class NoLaunch:
    """Stands for a form whose schedule is not one of kernels over memory alone."""

    __slots__ = ("generation",)
    is_known = False

    def __init__(self) -> None:
        self.generation = schedule.generation


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


def make_launch(form: Form) -> Launch | NoLaunch:
    """The schedule of a form, as it can be launched."""
    prepared = _prepared_for(form)
    return NoLaunch() if prepared is None else Launch(form, *prepared)


def _prepared_for(form: Form) -> tuple[Prepared, list[int]] | None:
    sink = UOp.sink(form.value)
    device = str(form.device)
    prepared, request, _ = prepare_schedule(sink, device)
    if request.values or prepared.conditions or prepared.overwritten or not prepared.steps:
        return None
    number = prepared.results[0]
    if number is None or number < prepared.inputs or not Device[device].executes:
        return None
    if prepared.made[number - prepared.inputs].contents is not None:
        return None
    engine.load_programs(prepared, None)
    if any([step.is_transfer or step.runner is None for step in prepared.steps]):
        return None
    if any([step.runner.variables for step in prepared.steps if step.runner]):
        return None
    numbers = {hole: i for i, hole in enumerate(form.holes)}
    order = [numbers[node] for node in request.inputs]
    return prepared, order
