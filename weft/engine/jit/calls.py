"""Calls of jitted functions: one call taken apart, what is known of its kind, the knobs around it.

In: arguments and guards of a call. Out: `JitCall` with its key, `CallKind` for each key, the knobs.
Sits above `arguments`, `guards` and `graph`, below `tinyjit`, which decides what to do with a call.
Invariant: two calls with one key do the same, as far as guards, knobs and arguments can tell.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from weft.engine.check import active_checks
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.graph import CapturedGraph
from weft.engine.jit.guards import Guards
from weft.engine.jit.objects import set_child
from weft.engine.jit.parameters import NumberBook
from weft.engine.jit.places import Place
from weft.engine.jit.trace import Run
from weft.engine.programs import code_knobs
from weft.errors import JitError
from weft.gradient import NO_GRAD
from weft.knobs import (
    DEBUG,
    DEFAULT_FLOAT,
    DEFAULT_INT,
    JIT,
    JIT_CHECK,
    SPLIT_REDUCEOP,
    TRAINING,
    WINO,
    ContextVar,
    entered,
)


class CallKind:
    """One kind of call: the last run of it, and the graph that was made of it."""

    __slots__ = (
        "differed",
        "graph",
        "is_hopeless",
        "is_ready",
        "is_trial",
        "kept",
        "last",
        "last_given",
        "varied",
    )

    def __init__(self, kept: list[Any]) -> None:
        self.kept = kept  # objects that the key knows by their id
        self.last: Run | None = None
        self.last_given: dict[int, Any] = {}
        self.graph: CapturedGraph | None = None
        self.is_ready = False
        self.is_hopeless = False
        self.is_trial = False  # its next replay is compared with plain execution
        self.differed = 0
        self.varied: frozenset[str] = frozenset()


class JitCall:
    """One call taken apart. `numbers` are the numbers as a key knows them, `raw` as they are."""

    __slots__ = ("arguments", "given", "guards", "key", "numbers", "raw", "shape")

    def __init__(self, arguments: Arguments, guards: Guards, shape: tuple[Any, ...]) -> None:
        self.arguments = arguments
        self.guards = guards
        self.shape = shape  # all of the key but the numbers
        self.numbers = arguments.numbers
        self.raw = arguments.raw
        if guards.raw:
            self.numbers = [*self.numbers, *guards.numbers]
            self.raw = [*self.raw, *guards.raw]
        self.given: dict[int, Any] = {}
        self.key: Any = None

    @property
    def kept(self) -> list[Any]:
        """Objects that the key knows by their id."""
        return [*self.arguments.kept, *self.guards.kept]

    @property
    def places(self) -> list[tuple[Any, Any]]:
        """Where each number stands: (container, key)."""
        named = [place.find()[:2] for place in self.guards.number_places]
        return [*self.arguments.places, *named]

    def owner(self, position: int) -> Place | None:
        """The place outside of the arguments that a number was found in."""
        position -= len(self.arguments.raw)
        return None if position < 0 else self.guards.number_places[position]

    def make_key(self, parameters: frozenset[int] | None) -> None:
        """Numbers that are parameters of kernels are not part of the key."""
        numbers = self.numbers
        if parameters is not None:
            self.given = {p: self.raw[p] for p in parameters}
            numbers = [type(self.raw[p]) if p in parameters else n for p, n in enumerate(numbers)]
        self.key = (self.shape, tuple(numbers))


# what changes the graph of everything; others change the code, see `code_knobs`
_KNOBS = (TRAINING, NO_GRAD, WINO, SPLIT_REDUCEOP, DEFAULT_FLOAT, DEFAULT_INT)


class JitKnobs(NamedTuple):
    """How a call is to be done: not jitted, checked, step by step; and the part of its key that
    knobs give."""

    turns: int
    entered: object
    is_off: bool
    is_checked: bool
    is_stepwise: bool
    key: tuple[Any, ...]


_last_knobs: JitKnobs | None = None


def knobs_now() -> JitKnobs:
    """The knobs now; asked anew only if one was turned since the last time."""
    global _last_knobs
    last = _last_knobs
    if last is not None and last.turns == ContextVar.turns and last.entered is entered.get():
        return last
    # looked at first: a knob that another thread turns meanwhile is asked for again
    turns, inside = ContextVar.turns, entered.get()
    is_off = not JIT or active_checks() is not None
    key = (code_knobs(), *[knob.value for knob in _KNOBS])
    last = JitKnobs(turns, inside, is_off, bool(JIT_CHECK), DEBUG >= 2 or JIT >= 2, key)
    _last_knobs = last
    return last


@contextmanager
def numbers_replaced(call: JitCall, book: NumberBook) -> Iterator[tuple[Any, ...]]:
    """The arguments with stand-ins for the numbers that are parameters; in names' places too."""
    values = list(call.arguments.values)
    changed = []
    try:
        places = call.places
        for position, value in call.given.items():
            container, key = places[position]
            number = book.given(position, value)
            if container is call.arguments.values:
                values[key] = number
            elif isinstance(container, (tuple, types.ModuleType)) or container is None:
                raise JitError("a number in a place where nothing can stand for it")
            else:
                changed.append((container, key, value))
                set_child(container, key, number)
        yield tuple(values)
    finally:
        for container, key, value in changed:
            set_child(container, key, value)
