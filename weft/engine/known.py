"""What is in memory already: expressions whose values were realized after graphs had used them.

What comes in: expressions and the storage that holds their values. What goes out: graphs that
read that storage instead of computing again. Where it sits: beside realize, which remembers here
and asks here.
The one invariant: an entry is true for as long as its storage is not overwritten. It serves
graphs that are older than it; a graph that is written down anew is computed anew, so that timing
a loop measures work and not memory of it.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import NamedTuple

from weft.engine.cell import Cell, now
from weft.engine.live import LiveSet
from weft.engine.schedule import default_device
from weft.engine.storage import held_with
from weft.uop.node import UOp
from weft.uop.opset import Ops


class Entry(NamedTuple):
    """Where a value is, and since when; kept with the node of the expression."""

    storage: UOp
    since: float


_known: LiveSet[UOp] = LiveSet()


def _entry(expression: UOp) -> Entry | None:
    held = expression.held
    return held if type(held) is Entry else None


def remember(expression: UOp, view: UOp, storage: UOp, always: bool = False) -> None:
    """`expression` is found in `view` of `storage`; `always`: for newer graphs as well."""
    if _entry(expression) is None:
        _known.add(expression)
    expression.held = Entry(view, float("inf") if always else now())
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
    values = [e for e in _known if (entry := _entry(e)) and entry.since != float("inf")]
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
    places = {default_device([cell.value]) for cell in cells}
    order = sink.toposort(gate=lambda u: not _is_near(u, places))
    found = {u: u.held for u in order if _is_near(u, places)}
    if not found:
        return sink
    oldest = min(entry.since for entry in found.values())
    # A write that several of them wait for has to stay one write: it must not be computed from what
    # is known for some and anew for others.
    has_writes = any(node.op is Ops.STORE for node in order)
    if has_writes or all(cell.born < oldest for cell in cells):
        return sink.substitute({u: entry.storage for u, entry in found.items()})
    return UOp.sink(*[_older_than(cell, cell.value, places) for cell in cells])


def _is_near(node: UOp, places: set[str]) -> bool:
    """Whether its value is known, where it is wanted: what has no device is computed beside what
    uses it, and memory of another device is of no help there."""
    if type(node.held) is not Entry:
        return False
    return node.device is not None or places == {node.held.storage.device}


def _older_than(cell: Cell, value: UOp, places: set[str]) -> UOp:
    """The same for one cell, with the entries that are younger than it."""

    def is_known(node: UOp) -> bool:
        return _is_near(node, places) and node.held.since > cell.born

    order = value.toposort(gate=lambda u: not is_known(u))
    return value.substitute({u: u.held.storage for u in order if is_known(u)})
