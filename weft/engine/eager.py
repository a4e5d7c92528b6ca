"""Eager: values and writes that are known by their forms, computed in one step.

In: cells that wait, known by their forms and storages. Out: the same cells, in memory.
Sits on top of `forms` and `launch`, beside realize, which does the same for any graph.
Invariant: it does what realize would: the schedule comes from there and is looked up by form. Where
more is to be decided than which memory is read and written (values that wait for each other, other
pending writes, recordings, checks), it answers False and realize decides.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from weft.engine import history, record, schedule
from weft.engine import realize as engine
from weft.engine.cell import Cell
from weft.engine.forms import (
    WriteForm,
    forgotten_with_calls,
    form_of,
    is_on,
    sources_of,
    state_now,
)
from weft.engine.interrupts import writing_in_place
from weft.engine.known import forget, forget_readers
from weft.engine.launch import Launch, NoLaunch, make_launch
from weft.engine.operands import user_line
from weft.errors import OutOfMemory
from weft.uop.node import UOp

# launches of several values together
_MOST_LAUNCHES = 1 << 10
# and whether they may be repeated: they read nothing that they write
_launches: dict[tuple[Any, ...], tuple[Launch | NoLaunch, bool]] = {}

forgotten_with_calls(_launches.clear)


# ------------------------------------------------------------ one value
def realize_form(cell: Cell) -> bool:
    """Compute a cell that is known by its form; False if it has to be done with its graph."""
    state = state_now()
    if not state.is_on or record.listeners or _is_entangled(cell):
        return False
    formed = cell.formed
    if not formed:
        return False
    form, storages = formed
    with engine._lock:
        launch = form.launches.get(state)
        if launch is None or launch.generation != schedule.generation:
            launch = make_launch([form.value], [False], form.holes, str(form.device))
            form.launches[state] = launch
        if not launch.is_known:
            return False
        if cell._node is not None:
            return cell.is_realized
        try:
            ((place, view),) = launch.run(storages)
        except OutOfMemory:
            # said by realize, which knows more
            return False
        _settle(cell, place, view)
        if form.slopes:
            history.note_form(place, form, storages, form.slopes)
    return True


def _settle(cell: Cell, place: UOp, view: UOp) -> None:
    place.held.cells = [weakref.ref(cell)]
    view.origin = cell.origin
    cell._node = view
    cell.formed = None
    cell.sources = ()
    Cell.lazy.remove(cell)
    if cell._seen_by:
        cell._take_back()


def _is_entangled(cell: Cell) -> bool:
    """Whether others that live hold its value in theirs, or theirs are held in its own."""
    for source in cell.sources:
        if source() is not None:
            return True
    for user in cell.users:
        if user() is not None:
            return True
    return False


# ------------------------------------------------------------ writes
def assign_form(tensor: Any, x: Any) -> bool:
    """Let a tensor's storage wait for the value of another; False if graphs have to say how."""
    if not is_on(state_now()) or type(x) is not type(tensor) or tensor._moves:
        return False
    cell, other = tensor._cell, x._cell
    if cell._node is None or cell.pure:
        return False
    formed = cell.formed or form_of(cell)
    theirs = other.formed or (other._node is not None and form_of(other))
    if not formed or not theirs:
        return False
    place, (storage,) = formed
    form, read = theirs
    if x._moves:
        form = form.moved(x._moves)
    if form.shape != place.shape or form.dtype is not place.dtype or form.device != place.device:
        return False
    if Cell.is_shared(storage) or storage.held.is_part:
        return False
    is_trained = (cell.is_asked or tensor.grad is not None) and storage.held.past is None
    if not is_trained and storage in [read[number] for number in form.slopes]:
        return False
    storages = tuple(dict.fromkeys((storage, *read)))
    numbers = {one: number for number, one in enumerate(storages)}
    picked = tuple([numbers[one] for one in read])
    key = ("assign", form, picked, is_trained)
    write = place.calls.get(key)
    if write is None:
        write = place.calls[key] = WriteForm(place, form, picked, is_trained)
    sources = sources_of(other) if other._node is None else ()
    cell.write_form((write, storages), sources, user_line())
    return True


def realize_write(cell: Cell) -> bool:
    """Let the write happen that a cell waits for."""
    state = state_now()
    if not state.is_on or record.listeners:
        return False
    with engine._lock:
        if not cell.write:
            return cell.is_realized
        form, storages = cell.write
        storage = storages[0]
        is_alone = form.is_repeatable and len(Cell.writing) == 1 and not _is_entangled(cell)
        if not is_alone or _readers({cell: None}, {storage: cell}) != []:
            return realize_forms([cell])
        launch = form.launches.get(state)
        if launch is None or launch.generation != schedule.generation:
            launch = form.launches[state] = _make_launch([cell.write], storages)
        if not launch.is_known:
            return False
        launch.run(storages)
        _settle_all([cell], [cell.write], [], {storage: cell})
    return True


# ------------------------------------------------------------ several values and writes
def realize_forms(cells: Iterable[Cell]) -> bool:
    """The same for several cells, some of which may be storages that are written."""
    state = state_now()
    if not state.is_on or record.listeners:
        return False
    with engine._lock:
        wanted = {cell: None for cell in cells if not cell.pure and not cell.is_realized}
        known: list[tuple[Any, tuple[UOp, ...]]] = []
        written: dict[UOp, Cell] = {}
        for cell in wanted:
            formed = cell.formed or cell.write
            if cell._node is not None or not formed:
                return False
            known.append(formed)
            if cell.write:
                written[formed[1][0]] = cell
        if written:
            readers = _readers(wanted, written)
            if readers is None:
                return False
            for cell in readers:
                wanted[cell] = None
                known.append(cell.formed)
        if not known:
            return True
        if not _is_closed(wanted, known, written):
            return False
        numbers: dict[UOp, int] = {}
        pattern = [
            numbers.setdefault(storage, len(numbers))
            for _, storages in known
            for storage in storages
        ]
        key = (state, *[form for form, _ in known], *pattern)
        found = _launches.get(key)
        if found is None or found[0].generation != schedule.generation:
            if len(_launches) >= _MOST_LAUNCHES:
                _launches.clear()
            reads = {storage for form, own in known for storage in _read(form, own)}
            found = (_make_launch(known, tuple(numbers)), reads.isdisjoint(written))
            _launches[key] = found
        launch, is_repeatable = found
        if not isinstance(launch, Launch):
            return False
        try:
            with writing_in_place([] if is_repeatable else list(written)) as writing:
                made = launch.run(tuple(numbers), writing)
                writing.end()
                _settle_all(list(wanted), known, made, written)
        except OutOfMemory:
            return False
    return True


def _read(form: Any, storages: tuple[UOp, ...]) -> Iterable[UOp]:
    if type(form) is not WriteForm:
        return storages
    return [storages[number] for number in form.picked]


def _make_launch(known: list[Any], storages: tuple[UOp, ...]) -> Launch | NoLaunch:
    holes = [UOp.new_buffer(s.arg.device, s.arg.size, s.dtype) for s in storages]
    standing = dict(zip(storages, holes, strict=True))
    values = [form.fill([standing[storage] for storage in own]) for form, own in known]
    is_write = [type(form) is WriteForm for form, _ in known]
    devices = {value.device for value in values}
    device = devices.pop()
    if devices or not isinstance(device, str):
        return NoLaunch()
    return make_launch(values, is_write, holes, device)


def _readers(wanted: dict[Cell, None], written: dict[UOp, Cell]) -> list[Cell] | None:
    """Other cells whose values read what is written, oldest first; None if only graphs can tell.

    Cells that wait for something else entirely, be it a value or a write, are of no concern.
    """
    found = []
    for waiting in (Cell.lazy, Cell.writing):
        for cell in waiting:
            if cell.pure or cell in wanted or cell.reads.isdisjoint(written):
                continue
            if cell._node is not None or not cell.formed:
                return None
            found.append(cell)
    return sorted(found, key=lambda cell: cell.born)


def _is_closed(wanted: dict[Cell, None], known: list[Any], written: dict[UOp, Cell]) -> bool:
    """Whether nobody else has to know that these are in memory, nor they of each other."""
    for cell, (form, storages) in zip(wanted, known, strict=True):
        related = [found for r in (*cell.sources, *cell.users) if (found := r()) is not None]
        for other in related:
            if other not in wanted:
                return False
        slopes = form.slopes
        if not slopes:
            continue
        is_lost = any([storages[number] in written for number in slopes])
        if type(form) is WriteForm and is_lost:
            return False
        if related and not is_lost:
            # gradients find them by their graphs
            return False
    return True


def _settle_all(
    cells: list[Cell], known: list[Any], made: list[tuple[UOp, UOp]], written: dict[UOp, Cell]
) -> None:
    """The values are in memory, and the writes have happened."""
    if written:
        history.overwrite_forms(written)
        for storage in written:
            if storage.held.expressions:
                forget(storage)
    fresh = iter(made)
    places = []
    for cell, (form, storages) in zip(cells, known, strict=True):
        if type(form) is WriteForm:
            place = storages[0]
            cell.written()
        else:
            place, view = next(fresh)
            _settle(cell, place, view)
        places.append(place)
    seen: dict[UOp, history.Leaf] = {}
    for place, (form, storages) in zip(places, known, strict=True):
        slopes = form.slopes
        if not slopes:
            continue
        is_lost = any([storages[number] in written for number in slopes])
        if type(form) is WriteForm:
            read = tuple([storages[number] for number in form.picked])
            history.note_form(place, form.source, read, form.source.slopes, is_lost, seen)
        else:
            history.note_form(place, form, storages, slopes, is_lost, seen)
    if written:
        forget_readers(set(written))
