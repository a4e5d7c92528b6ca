"""The state of a captured graph: tensors and containers that names in the function lead to.

In: a Run, which says where it found them; the places as they are in another call. Out: what is
there now (`FoundState`), or nothing and the reason (`missed`).
Sits above the runs, under the captured graph.
Invariant: what is found is of the kind that was captured, and what was one object is one again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from weft.engine import realize as engine
from weft.engine.cell import Cell
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.objects import child_of
from weft.engine.jit.places import Place
from weft.engine.jit.templates import Label, Outside
from weft.engine.jit.tensors import Kind, describe
from weft.engine.jit.trace import Expectation, Run, Tie
from weft.engine.storage import whole_behind
from weft.tensor import Tensor
from weft.uop.node import UOp


@dataclass(frozen=True, slots=True)
class _Node:
    """A place on the way to the state."""

    parent: int  # the number of its container; -1: `key` is the number of a place
    key: Any
    expected: Expectation
    label: Label


@dataclass(slots=True)
class FoundState:
    """What is in the places of the state: the objects on the way, tensors, their storages."""

    objects: list[Any]
    tensors: dict[Label, Tensor]
    storages: dict[Label, UOp]


class CapturedState:
    """Which known tensors and containers a replay has to find, parents before children."""

    def __init__(self, run: Run, places: Sequence[Place]) -> None:
        self.run = run
        self.places = places
        self.missed = ""  # why the last replay could not be
        order = sorted(run.tree, key=len)
        numbers = {path: number for number, path in enumerate(order)}
        self._tree = [
            _Node(numbers.get(path[:-1], -1), path[-1], run.tree[path], Label("state", path))
            for path in order
        ]
        self._numbers = {Label("state", path): number for path, number in numbers.items()}
        self._ties = [(numbers[tie.path], numbers.get(tie.place, -1), tie) for tie in run.ties]
        roles = [role for execution in run.executions for role in execution.roles]
        outside = [whole_behind(role.node) for role in roles if isinstance(role, Outside)]
        self.outside = list(dict.fromkeys(outside))
        # what was found the last time: tensors, their cells, the values of those
        self._last: tuple[list[Tensor], list[Cell], list[UOp], dict[Label, UOp]] | None = None

    def forget(self) -> None:
        """Hold nothing of what was found."""
        self._last = None

    def container(self, label: Label, found: FoundState) -> Any:
        """The object of a label on the way to the state."""
        return found.objects[self._numbers[label]]

    def find(self, call: Arguments, places: Sequence[Place]) -> FoundState | None:
        """What is there, quickly if nothing changed; None if it does not fit."""
        self.places = places
        roots = [place.value() for place in places]
        found = self._look(roots)
        if found is None:
            return None
        if self._ties and not self._are_tied(call, roots, found.objects):
            self.missed = "what was one object under two names is not one in the next call"
            return None
        tensors = list(found.tensors.values())
        last = self._last
        pending = self._outside_pending()
        if last is not None and not pending:
            same = all(
                t is b and t._cell is c and c._value is v
                for t, b, c, v in zip(tensors, *last[:3], strict=True)
            )
            if same:
                found.storages = last[3]
                return found
        if not self._check(found, pending):
            return None
        cells = [tensor._cell for tensor in tensors]
        self._last = (tensors, cells, [cell._value for cell in cells], found.storages)
        return found

    def _look(self, roots: Sequence[Any]) -> FoundState | None:
        """What is in the places; None if something else is there."""
        objects: list[Any] = []
        tensors: dict[Label, Tensor] = {}
        try:
            for node in self._tree:
                is_root = node.parent < 0
                value = roots[node.key] if is_root else child_of(objects[node.parent], node.key)
                objects.append(value)
                kind, length, identity = node.expected
                if identity is not None:
                    if id(value) != identity:
                        return self._miss(node.label, "is another object in every call")
                elif kind is Tensor:
                    if not isinstance(value, Tensor) or (value.grad is not None) != length:
                        is_not = "is not the Tensor, or has not the .grad, that a call leaves there"
                        return self._miss(node.label, is_not)
                    tensors[node.label] = value
                elif type(value) is not kind or (length is not None and len(value) != length):
                    is_not = f"is not the {kind.__name__} of the length that a call leaves there"
                    return self._miss(node.label, is_not)
        except (LookupError, AttributeError):
            return self._miss(node.label, "is gone when it is called again")
        return FoundState(objects, tensors, {})

    def _miss(self, label: Label, why: str) -> Any:
        """Nothing is found: a place, as a user names it, is not as it was."""
        place, *path = label.path
        self.missed = "".join([str(self.places[place]), *[f".{key}" for key in path], " ", why])
        return None

    def _check(self, found: FoundState, pending: list[Cell]) -> bool:
        """Find the storage of each tensor, computed if need be; False if one is of another kind."""
        for tensor in found.tensors.values():
            cell = tensor._cell
            is_done = cell.pure or cell.inline or cell.is_realized
            if not is_done and cell.value.device is not None:
                pending.append(cell)
        if pending:
            engine.realize_apart(pending, Cell.live)
        for label, tensor in found.tensors.items():
            cell = tensor._cell
            expected = self.run.state.get(label)
            if expected is None:
                # it is one of the arguments, or only on the way to what is used
                continue
            if isinstance(expected, Kind):
                if Kind.of(tensor) != expected:
                    self._miss(label, "has another shape or dtype in every call")
                    return False
                continue
            if label not in self.run.groups:
                # not in memory when it was captured: it must be the very same constant
                if cell.pure is not expected[0] or cell.value is not expected[1]:
                    self._miss(label, "is another constant in every call")
                    return False
                continue
            self._miss(label, "has another shape, dtype or memory in every call")
            if cell.pure or not cell.is_realized:
                return False
            try:
                description = describe(tensor)
            except KeyError:
                return False
            if description.structure != expected or description.storage is None:
                return False
            found.storages[label] = description.storage
        return True

    def _are_tied(self, call: Arguments, roots: Sequence[Any], objects: list[Any]) -> bool:
        """Whether what was one object, reached in several ways, is one again."""
        try:
            for number, container, tie in self._ties:
                if _other_way(tie, container, call, roots, objects) is not objects[number]:
                    return False
        except (LookupError, AttributeError):
            return False
        return True

    def _outside_pending(self) -> list[Cell]:
        owners = [Cell.owner_of(node) for node in self.outside]
        return [o for o in owners if o is not None and not o.is_realized and not o.pure]


def _other_way(
    tie: Tie, container: int, call: Arguments, roots: Sequence[Any], objects: list[Any]
) -> Any:
    if tie.way == "argument":
        return call.tensors[tie.place]
    if tie.way == "container":
        return call.containers[tie.place]
    return roots[tie.key] if container < 0 else child_of(objects[container], tie.key)
