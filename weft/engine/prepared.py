"""Prepared: what the engine keeps of a graph that was scheduled, and what it asks a schedule for.

What comes in: nothing. What goes out: `Request` (a graph by its structure), `Prepared` (steps over
numbered memories). Where it sits: under everything that makes, keeps, runs or replays schedules.
The one invariant: neither holds a value. Another graph of the same structure has the same steps.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft.dtype import DType
from weft.engine.conditions import Condition
from weft.engine.programs import Runner
from weft.uop.node import UOp


@dataclass(frozen=True)
class Memory:
    """A storage of a prepared schedule that is not an input."""

    size: int
    dtype: DType
    device: str
    offset: int | None  # inside its device's arena; None: storage of its own
    contents: bytes | None = None  # of a table of constants


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
    results: list[int | None]
    overwritten: list[int]  # inputs that are written
    executed: list[int]  # which of the request's writes happen (what nobody reads is dropped)
    arenas: dict[Any, int]
    conditions: tuple[Condition, ...] = ()  # on the values of variables
    first_write: int = 0  # the first step that writes one of `overwritten`


@dataclass
class Request:
    """Values in canonical form."""

    key: tuple[Any, ...]
    inputs: list[UOp] = field(default_factory=list)
    values: dict[str, int] = field(default_factory=dict)  # by the names that kernels know
    names: dict[str, str] = field(default_factory=dict)  # of those, what the graph calls them
    variables: dict[UOp, UOp] = field(default_factory=dict)  # BIND -> the free variable
    writes: list[UOp] = field(default_factory=list)  # the STOREs, in order
