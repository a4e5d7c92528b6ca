"""What is in memory already: expressions whose values were stored after graphs had used them.

What comes in: expressions and the storage that holds their values. What goes out: graphs that
read that storage instead of computing again. Where it sits: beside realize, which remembers here
and asks here.
The one invariant: an entry is true for as long as neither its storage nor what it was computed
from is overwritten. It serves graphs that hold the expression; an expression that is written down
anew is computed anew (see `Known`).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from weft.engine.cell import Cell, Known, now
from weft.engine.host import storage_viewed
from weft.engine.live import LiveSet
from weft.engine.schedule import default_device
from weft.engine.storage import held_with
from weft.uop.node import UOp
from weft.uop.opset import Ops

_known: LiveSet[UOp] = LiveSet()
# what these hold is in memory without being stored once more
_STORED = (Ops.BUFFER, Ops.AFTER, Ops.COPY, Ops.CONTIGUOUS)


def _entry(expression: UOp) -> Known | None:
    held = expression.held
    return held if type(held) is Known else None


def remember(expression: UOp, view: UOp, storage: UOp, is_state: bool = False) -> None:
    """`expression` is found in `view` of `storage`."""
    if _entry(expression) is None:
        _known.add(expression)
    expression.held = Known(view, now(), is_state)
    held_with(storage).expressions.append(weakref.ref(expression))


def storage_behind(expression: UOp) -> UOp | None:
    """Where the value of an expression was stored, if it was and still is."""
    entry = _entry(expression)
    return None if entry is None else entry.storage


def forget(storage: UOp) -> None:
    """The storage was overwritten."""
    held = held_with(storage)
    found, held.expressions = held.expressions, []
    for reference in found:
        expression = reference()
        if expression is not None:
            _forget(expression)


def _forget(expression: UOp) -> None:
    if _entry(expression) is not None:
        expression.held = None
        _known.remove(expression)


def forget_readers(storages: set[UOp]) -> None:
    """What was computed from the contents that these storages had: the same expressions now mean
    other values. States are events of their own and stay."""
    if not storages:
        return
    values = [e for e in _known if (entry := _entry(e)) and not entry.is_state]
    if not values:
        return
    reads = set(storages)
    for node in UOp.sink(*values).toposort():
        if any(source in reads for source in node.src):
            reads.add(node)
    for expression in values:
        if expression in reads:
            _forget(expression)


def with_known(cells: Sequence[Cell]) -> UOp:
    """SINK of the cells' values, what is known replaced by storage."""
    sink = UOp.sink(*[cell.value for cell in cells])
    if not _known:
        return sink
    places = {_place_of(cell.value) for cell in cells}
    order = sink.toposort(gate=lambda u: not _is_near(u, places))
    found = {u: u.held for u in order if _is_near(u, places)}
    if not found:
        return sink
    if _serves_all(order, found.values(), cells):
        values = sink.substitute({u: entry.storage for u, entry in found.items()}).src
    else:
        values = tuple([_older_than(cell, cell.value, places) for cell in cells])
    return UOp.sink(*[_apart(cell, value) for cell, value in zip(cells, values, strict=True)])


def _apart(cell: Cell, value: UOp) -> UOp:
    """A value that is found in memory which somebody is about to write: a copy of what is there.

    a, b = x + 1, x + 1;  a.realize();  a += 1    b is where a is until a is written
    """
    storage = None if value is cell.value else storage_viewed(value)
    if storage is None or storage is cell.storage:
        return value
    if all(holder.is_realized for holder in Cell.holders_of(storage)):
        return value
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,))


def _serves_all(order: Iterable[UOp], found: Iterable[Known], cells: Sequence[Cell]) -> bool:
    """Whether each of the cells may use each of these entries."""
    # A write that several of them wait for has to stay one write: it must not be computed from what
    # is known for some and anew for others.
    if any(node.op is Ops.STORE for node in order):
        return True
    return max(cell.born for cell in cells) < min(entry.since for entry in found)


def _is_near(node: UOp, places: set[Any]) -> bool:
    """Whether its value is known, where it is wanted: what has no device is computed beside what
    uses it, and memory of another device is of no help there."""
    if type(node.held) is not Known:
        return False
    return node.device is not None or places == {node.held.storage.device}


def _place_of(value: UOp) -> Any:
    """Where a value is computed."""
    return value.device if type(value.device) is tuple else default_device([value])


def _older_than(cell: Cell, value: UOp, places: set[Any]) -> UOp:
    """The same for one cell, with the entries that are younger than it."""

    def is_known(node: UOp) -> bool:
        return _is_near(node, places) and node.held.since > cell.born

    order = value.toposort(gate=lambda u: not is_known(u))
    return value.substitute({u: u.held.storage for u in order if is_known(u)})


def known_to(wanted: Sequence[Cell]) -> tuple[Callable[[UOp], bool], int]:
    """Which nodes all of these cells find in memory; and the moment after which they were found."""
    places = {_place_of(cell.value) for cell in wanted}
    values = UOp.sink(*[cell.value for cell in wanted])
    order = values.toposort(gate=lambda u: not _is_near(u, places))
    found = [u.held for u in order if _is_near(u, places)]
    is_served = not found or _serves_all(order, found, wanted)
    limit = 0 if is_served else max(cell.born for cell in wanted)

    def is_known(node: UOp) -> bool:
        return _is_near(node, places) and node.held.since > limit

    return is_known, limit


def stored_along(sink: UOp, wanted: Sequence[Cell], live: Iterable[Cell]) -> list[Cell]:
    """For each CONTIGUOUS or HOST that computing `SINK(wanted values)` stores on its way, and that
    other pending graphs hold: a cell, to be computed along.

    Its memory is then kept instead of given to the next kernel. The tensors themselves stay what
    they are: their graphs lead to their gradients.
    """
    if not any([node.op is Ops.CONTIGUOUS for node in sink.toposort()]):
        return []
    values = dict.fromkeys(cell.value for cell in wanted)
    youngest = max(cell.born for cell in wanted)
    is_known, _ = known_to(wanted)
    order = UOp.sink(*values).toposort(gate=lambda u: not is_known(u))
    made = {u for u in order if u not in values and not is_known(u) and _is_stored_newly(u)}
    if not made:
        return []
    chosen = set(wanted)
    pending = [c for c in live if c not in chosen and not c.is_realized and not c.pure]
    if not pending:
        return []
    # what is below one of them is not needed once that is there
    others = UOp.sink(*[cell.value for cell in pending])
    held = others.toposort(gate=lambda u: u not in made and not is_known(u))
    along = [Cell(node) for node in order if node in made and node in held]
    for cell in along:
        cell.born = youngest
    return along


def _is_stored_newly(node: UOp) -> bool:
    """Whether it is a CONTIGUOUS of something that is in no memory yet, or a HOST that is not."""
    if node.op is Ops.HOST:
        return True
    if node.op is not Ops.CONTIGUOUS:
        return False
    source = node.src[0]
    while source.op in (Ops.RESHAPE, Ops.DETACH) and _entry(source) is None:
        source = source.src[0]
    return source.op not in _STORED and _entry(source) is None
