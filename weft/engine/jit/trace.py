"""What a run did, written down: comparable with another run, and enough to do it again.

In: the notes that a recording takes. Out: `Run`; `merge_runs`, which tells whether two runs did the
same and, if so, where the values of their variables come from.
Sits between the templates and the recording.
Invariant: a Run holds no memory of its arguments, and no tensor but by its place in the state.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from weft.engine.jit.templates import Label, Plain, Role, Source, Template
from weft.engine.prepared import Prepared
from weft.engine.schedule import describe as describe_graph
from weft.tensor import Tensor
from weft.uop.node import UOp


@dataclass(frozen=True)
class Execution:
    """A schedule that ran: over which memory, with which values of variables."""

    prepared: Prepared
    key: tuple[Any, ...]
    roles: tuple[Role, ...]
    facts: tuple[tuple[Any, int, str], ...]  # dtype, size, device of each
    sources: dict[str, Source]  # where the values of variables come from, as kernels call them
    origins: tuple[tuple[str, int] | None, ...] = ()  # the lines of the rows of `key`


class Expectation(NamedTuple):
    """What has to be in a place for the rest of a path to mean the same."""

    kind: Any  # the type of a Tensor or a container; None: this very object
    length: int | None  # of a sequence; of a Tensor, whether it has a gradient
    identity: int | None

    @classmethod
    def of(cls, value: Any) -> Expectation:
        """That of what is there."""
        if isinstance(value, Tensor):
            return cls(Tensor, int(value.grad is not None), None)
        if isinstance(value, (list, tuple, deque)):
            return cls(type(value), len(value), None)
        if isinstance(value, dict):
            return cls(type(value), None, None)
        return cls(None, None, id(value))


class Tie(NamedTuple):
    """A way to what is also at a path: both have to lead to one object.

    way: "argument" or "container" (`place` is its number), "child" (`place` is the path of its
    container, `key` its key there; without a path, the number of a root).
    """

    path: tuple[Any, ...]
    way: str
    place: Any
    key: Any = None


NOTHING = Plain(type(None), None)


@dataclass
class Run:
    """What one run did. Two runs that are equal but for `variables` do the same."""

    variables: dict[str, int]
    executions: list[Execution] = field(default_factory=list)
    events: list[tuple[str, int]] = field(default_factory=list)
    result: Template = NOTHING
    effects: list[Template] = field(default_factory=list)
    # state that it used: what is on the way to it, and what the tensors are like
    tree: dict[tuple[Any, ...], Expectation] = field(default_factory=dict)
    state: dict[Label, tuple[Any, ...]] = field(default_factory=dict)
    ties: list[Tie] = field(default_factory=list)
    kept: list[Any] = field(default_factory=list)  # objects known by their id
    groups: dict[Label, Label] = field(default_factory=dict)  # tensors of one storage: the first
    numbers: tuple[Any, ...] = ()  # what is computed with numbers that change
    leaks: str | None = None  # why this run cannot be replayed
    has_read: bool = False


class Constant:
    """The value of a constant. Equal ones may be different nodes: each has an identity."""

    __slots__ = ("key", "value")

    def __init__(self, value: UOp) -> None:
        self.value = value
        self.key = describe_graph(UOp.sink(value), "").key

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Constant) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


def parts_in(*templates: Any) -> Iterator[Any]:
    """Templates, and everything that they are made of."""
    pending: list[Any] = list(templates)
    while pending:
        part = pending.pop()
        yield part
        if isinstance(part, (list, tuple)):
            pending.extend(part)
        elif isinstance(part, Template):
            pending.extend(part.parts())


def labels_in(*templates: Any) -> set[Label]:
    """The labels of known tensors and containers that templates name."""
    return {part for part in parts_in(*templates) if isinstance(part, Label)}


class Mismatch(Exception):
    """Two runs did different things."""


def merge_runs(first: Run, second: Run) -> Run:
    """The second run, its variables told apart: those that follow the arguments, and constants.

    Raises Mismatch unless both did the same.
    """
    same = (
        [e.key for e in first.executions] == [e.key for e in second.executions]
        and [e.roles for e in first.executions] == [e.roles for e in second.executions]
        and first.events == second.events
        and first.numbers == second.numbers
        and first.tree == second.tree
        and first.ties == second.ties
        and first.state == second.state
        and first.groups == second.groups
    )
    if not same:
        raise Mismatch
    executions = []
    for before, execution in zip(first.executions, second.executions, strict=True):
        merged = _merge(tuple(before.sources.values()), tuple(execution.sources.values()))
        sources = dict(zip(execution.sources, merged, strict=True))
        executions.append(replace(execution, sources=sources))
    result = _merge(first.result, second.result)
    effects = list(_merge(tuple(first.effects), tuple(second.effects)))
    return replace(second, executions=executions, result=result, effects=effects)


def _merge(first: Any, second: Any) -> Any:
    if isinstance(first, Source) and isinstance(second, Source):
        return _merge_sources(first, second)
    if type(first) is not type(second):
        raise Mismatch
    if isinstance(first, tuple):
        if len(first) != len(second):
            raise Mismatch
        return tuple([_merge(a, b) for a, b in zip(first, second, strict=True)])
    if isinstance(first, Template):
        return type(first)(*map(_merge, first.parts(), second.parts()))
    if not (first is second or first == second):
        raise Mismatch
    return second


def _merge_sources(first: Source, second: Source) -> Source:
    if first.kind != "given" or second.kind != "given":
        if first != second:
            raise Mismatch
        return second
    if first.name != second.name:
        raise Mismatch
    if first.value == first.other and second.value == second.other:
        return Source(second.name, "argument")
    if first.value != second.value:
        raise Mismatch
    return Source(second.name, "fixed", second.value)
