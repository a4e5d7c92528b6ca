"""Chosen: who picks the actions of a kernel, if not the heuristic.

In: a kernel that is ready to be optimised, and its target. Out: the kernel after actions that
somebody else picked, or None: the heuristic shall. Sits under the heuristic, which asks here first.
Invariant: whoever picks uses actions only, so a choice costs time and never a wrong result.

`BEAM=n` picks by searching. The search runs kernels, so it is part of the engine, far below in the
order of rooms; it is loaded by name and only when the knob asks for it.
"""

from __future__ import annotations

import contextvars
import importlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from weft.knobs import BEAM
from weft.machine import Target
from weft.uop.node import UOp

Chooser = Callable[[UOp, Target], UOp | None]

_chooser: contextvars.ContextVar[Chooser | None] = contextvars.ContextVar(
    "weft.chooser", default=None
)


@contextmanager
def choosing(chooser: Chooser) -> Iterator[None]:
    """Inside of the block, in this thread, `chooser` picks for every kernel."""
    token = _chooser.set(chooser)
    try:
        yield
    finally:
        _chooser.reset(token)


def leave_to_heuristic(ast: UOp, target: Target) -> None:
    """The chooser that picks nothing, whatever the knobs say."""


def chosen_kernel(ast: UOp, target: Target) -> UOp | None:
    """The kernel after the actions that were picked for it; None: the heuristic picks."""
    chooser = _chooser.get()
    if chooser is not None:
        return chooser(ast, target)
    if BEAM < 1:
        return None
    found: UOp | None = importlib.import_module("weft.engine.search").searched(ast, target)
    return found
