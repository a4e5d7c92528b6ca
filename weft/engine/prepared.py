"""Prepared: what the engine keeps of a graph that was scheduled, and what it asks a schedule for.

What comes in: nothing. What goes out: `Request` (a graph by its structure), `Prepared` (steps over
numbered memories). Where it sits: under everything that makes, keeps, runs or replays schedules.
The one invariant: neither holds a value. Another graph of the same structure has the same steps.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from weft.dtype import DType
from weft.engine.conditions import Condition
from weft.engine.programs import Runner
from weft.schedule.shard import Spread
from weft.uop.node import UOp


@dataclass(frozen=True)
class Memory:
    """A storage of a prepared schedule that is not an input."""

    size: int
    dtype: DType
    device: str
    offset: int | None  # inside its device's arena; None: storage of its own
    contents: bytes | None = None  # of a table of constants


@dataclass(frozen=True)
class SpreadMemory:
    """A result on several devices: the memories of its parts, None for those without elements."""

    numbers: tuple[int | None, ...]
    spread: Spread


@dataclass
class Step:
    """One launch (or a transfer, if there is no kernel): arguments are (memory, first element,
    elements)."""

    arguments: tuple[tuple[int, int, int], ...]
    device: str
    kernel: UOp | None  # dropped once `runner` is made
    is_transfer: bool
    origin: tuple[str, int] | None
    runner: Runner | None = None


@dataclass
class Prepared:
    """Steps over memories: numbers below `inputs` are the caller's buffers, the others are in
    `made`."""

    inputs: int
    made: list[Memory]
    steps: list[Step]
    results: list[Any]  # numbers of memories, None for no elements, or SpreadMemory
    overwritten: list[int]  # inputs that are written
    executed: list[int]  # which of the request's writes happen (what nobody reads is dropped)
    arenas: dict[Any, int]
    conditions: tuple[Condition, ...] = ()  # on the values of variables
    first_write: int = 0  # the first step that writes one of `overwritten`
    is_spread: bool = False  # over several devices
    digest: bytes | None = None  # what ranks compare, once they have


@dataclass
class Request:
    """Values in canonical form."""

    key: tuple[Any, ...]
    inputs: list[UOp] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)  # by the names that kernels know
    names: dict[str, str] = field(default_factory=dict)  # of those, what the graph calls them
    variables: dict[UOp, UOp] = field(default_factory=dict)  # BIND -> the free variable
    writes: list[UOp] = field(default_factory=list)  # the STOREs, in order
    sink: UOp | None = None  # the graph itself, for who asks which lines it came from
    # storages on several devices, by the input that their first part is
    wholes: dict[int, UOp] = field(default_factory=dict)

    def storages(self, numbers: Iterable[int]) -> list[UOp]:
        """The storages that these inputs are, or are parts of."""
        if not self.wholes:
            return [self.inputs[number] for number in numbers]
        owners = {
            first + i: whole
            for first, whole in self.wholes.items()
            for i in range(len(whole.arg.device))
        }
        found = [owners.get(number, self.inputs[number]) for number in numbers]
        return list(dict.fromkeys(found))
