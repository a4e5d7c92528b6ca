"""What a graph asks of the values of its variables: that slices are inside their axes.

What comes in: a graph over free variables. What goes out: the conditions that the variables' bounds
leave open, to be asked of their values before each run.
Where it sits: under the schedule, which keeps them with what it prepared; the JIT asks them too.
The one invariant: a graph whose conditions hold touches no element outside its storages. What
bounds prove costs nothing at run time.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from weft.errors import IndexingError
from weft.schedule.index import as_index
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.resolve import sym_infer


@dataclass(frozen=True)
class Condition:
    """The elements from `start` to `stop` of an axis of `size` are inside it."""

    start: Any
    stop: Any
    size: Any
    origin: tuple[str, int] | None

    @property
    def variables(self) -> list[UOp]:
        """What it depends on."""
        parts = [part for part in (self.start, self.stop, self.size) if isinstance(part, UOp)]
        return list(dict.fromkeys(v for part in parts for v in part.variables()))

    @property
    def claims(self) -> tuple[UOp, ...]:
        """What it says, as nodes."""
        start, stop, size = (as_index(part) for part in (self.start, self.stop, self.size))
        return (start >= 0, stop >= start, size >= stop)

    def holds(self, values: Mapping[Any, int]) -> bool:
        """Whether it does, given the variables by name."""
        start, stop, size = (sym_infer(p, values) for p in (self.start, self.stop, self.size))
        return 0 <= start <= stop <= size

    def check(self, values: Mapping[Any, int]) -> None:
        """An error that names the values if it does not hold."""
        if self.holds(values):
            return
        start, stop, size = (sym_infer(p, values) for p in (self.start, self.stop, self.size))
        given = ", ".join(f"{v.arg.name} = {values[v.arg.name]}" for v in self.variables)
        where = f" ({self.origin[0]}:{self.origin[1]})" if self.origin else ""
        raise IndexingError(
            f"a slice from {start} to {stop} of an axis of {size} elements, with {given}{where}; a "
            "slice with symbolic bounds has to be inside its axis"
        )


def conditions_of(sink: UOp) -> tuple[Condition, ...]:
    """Those that are open, each once."""
    found: dict[tuple[Any, ...], Condition] = {}
    for node in sink.toposort():
        for start, stop, size in _slices(node):
            if not _is_proven(start, stop, size):
                condition = Condition(start, stop, size, node.origin)
                found.setdefault((start, stop, size), condition)
    return tuple(found.values())


def narrow(sink: UOp, conditions: tuple[Condition, ...], values: Mapping[str, int]) -> UOp:
    """The graph over variables that only have the values for which the conditions hold.

    x[i : i + 4] of 16 elements, i in 0..40  ->  the same, i in 0..12

    `values` are some for which they do. Of a condition on two variables neither knows the other's.
    """
    changes: dict[UOp, UOp] = {}
    for condition in conditions:
        variables = condition.variables
        if len(variables) != 1:
            continue
        variable = variables[0]
        now = changes.get(variable, variable)
        start = values[variable.arg.name]
        low = _last(condition, variable, start, now.arg.lo)
        high = _last(condition, variable, start, now.arg.hi)
        new = UOp.variable(variable.arg.name, low, high, variable.dtype)
        parts = (condition.start, condition.stop, condition.size)
        moved = [p.substitute({variable: new}) if isinstance(p, UOp) else p for p in parts]
        if _is_proven(*moved):
            changes[variable] = new
    return sink.substitute(changes)


def _last(condition: Condition, variable: UOp, start: int, end: int) -> int:
    """The value furthest from start towards end for which it holds, if those follow each other."""
    if condition.holds({variable: end}):
        return end
    good, bad = start, end
    while abs(bad - good) > 1:
        middle = (good + bad) // 2
        if condition.holds({variable: middle}):
            good = middle
        else:
            bad = middle
    return good


def check_bound(node: UOp) -> None:
    """The same of one node whose variables have their values already: said where it is written."""
    for parts in _slices(node):
        values: dict[str, int] = {}
        free: list[Any] = []
        for part in parts:
            if isinstance(part, UOp):
                part, bound = part.unbind_all()
                values.update({variable.arg.name: value for variable, value in bound.items()})
            free.append(part)
        condition = Condition(free[0], free[1], free[2], None)
        if all(variable.arg.name in values for variable in condition.variables):
            condition.check(values)


def _slices(node: UOp) -> Iterator[tuple[Any, Any, Any]]:
    """(start, stop, size) for every axis that is cut at, or made to, a size known at run time."""
    if node.op is Ops.SHRINK:
        for (start, stop), size in zip(node.marg, node.src[0].shape, strict=True):
            if isinstance(start, UOp) or isinstance(stop, UOp) or isinstance(size, UOp):
                yield start, stop, size
    elif node.op in (Ops.EXPAND, Ops.IOTA, Ops.PAD) and len(node.src) > (node.op is not Ops.IOTA):
        # a size below 0 is none
        for size in node.shape:
            if isinstance(size, UOp):
                yield 0, size, size


def _is_proven(start: Any, stop: Any, size: Any) -> bool:
    return all(_least(gap) >= 0 for gap in (start, stop - start, size - stop))


def _least(value: Any) -> Any:
    return value.simplify().vmin if isinstance(value, UOp) else value
