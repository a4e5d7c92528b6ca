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
from weft.uop.node import UOp


class Entry(NamedTuple):
    """Where a value is, and since when."""

    storage: UOp
    since: float


_values: weakref.WeakKeyDictionary[UOp, Entry] = weakref.WeakKeyDictionary()
_kept_in: weakref.WeakKeyDictionary[UOp, weakref.WeakSet[UOp]] = weakref.WeakKeyDictionary()


def remember(expression: UOp, view: UOp, storage: UOp, always: bool = False) -> None:
    """`expression` is found in `view` of `storage`; `always`: for newer graphs as well."""
    _values[expression] = Entry(view, float("inf") if always else now())
    _kept_in.setdefault(storage, weakref.WeakSet()).add(expression)


def storage_behind(expression: UOp) -> UOp | None:
    """Where the value of an expression was stored, if it was and still is."""
    entry = _values.get(expression)
    return None if entry is None else entry.storage


def forget(storage: UOp) -> None:
    """The storage was overwritten."""
    for expression in list(_kept_in.pop(storage, ())):
        _values.pop(expression, None)


def forget_readers(storages: set[UOp]) -> None:
    """What was computed from the contents that these storages had: the same expressions now mean
    other values. States are events of their own and stay."""
    values = [e for e, entry in _values.items() if entry.since != float("inf")]
    if not values or not storages:
        return
    reads = set(storages)
    for node in UOp.sink(*values).toposort():
        if any(source in reads for source in node.src):
            reads.add(node)
    for expression in values:
        if expression in reads:
            _values.pop(expression, None)


def with_known(cells: Sequence[Cell]) -> UOp:
    """SINK of the cells' values, what is known replaced by storage."""
    sink = UOp.sink(*[cell.value for cell in cells])
    if not _values:
        return sink
    found = {u: _values[u] for u in sink.toposort(gate=lambda u: u not in _values) if u in _values}
    if not found:
        return sink
    oldest = min(entry.since for entry in found.values())
    if all(cell.born < oldest for cell in cells):
        return sink.substitute({u: entry.storage for u, entry in found.items()})
    return UOp.sink(*[_older_than(cell, cell.value) for cell in cells])


def _older_than(cell: Cell, value: UOp) -> UOp:
    """The same for one cell, with the entries that are younger than it."""

    def is_known(node: UOp) -> bool:
        entry = _values.get(node)
        return entry is not None and entry.since > cell.born

    order = value.toposort(gate=lambda u: not is_known(u))
    return value.substitute({u: _values[u].storage for u in order if is_known(u)})
