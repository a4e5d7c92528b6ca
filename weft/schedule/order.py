"""Order the kernels: after what they read is written, before what they read is overwritten.

What comes in: built kernels. What goes out: the same kernels in an order that keeps every
dependency, and their levels.
Where it sits: after build and merge.
The one invariant: a kernel never runs before the writer of what it reads, nor after the destroyer
of it.
"""

from __future__ import annotations

from collections import deque

from weft.schedule.build import Built
from weft.uop.node import UOp
from weft.uop.opset import Ops


class CycleError(Exception):
    """Kernels wait for each other: one of the stored values has to be kept apart first."""

    def __init__(self, stuck: list[Built]) -> None:
        super().__init__("kernels wait for each other")
        self.stuck = stuck


def writers(kernels: list[Built]) -> dict[UOp, Built]:
    """Which kernel makes a stored value or does a STORE."""
    return {node: kernel for kernel in kernels for node in kernel.writes}


def data_dependencies(kernels: list[Built]) -> dict[Built, set[Built]]:
    """For each kernel, those whose results it reads (or writes over)."""
    made_by = writers(kernels)
    result: dict[Built, set[Built]] = {}
    for kernel in kernels:
        needs = {made_by[node] for node in kernel.waits}
        for state in (*kernel.reads, *kernel.overwrites):
            if state.op is Ops.AFTER:
                needs |= {made_by[effect] for effect in state.src[1:]}
        needs.discard(kernel)
        result[kernel] = needs
    return result


def data_levels(kernels: list[Built]) -> dict[Built, int]:
    """The length of the longest chain of kernels before each one; equal levels do not read each
    other."""
    needs = data_dependencies(kernels)
    levels: dict[Built, int] = {}
    for kernel in order_kernels(kernels, needs):
        levels[kernel] = 1 + max((levels[n] for n in needs[kernel]), default=-1)
    return levels


def all_dependencies(kernels: list[Built]) -> dict[Built, set[Built]]:
    """Data dependencies, and readers before the write that destroys what they read."""
    needs = data_dependencies(kernels)
    readers: dict[UOp, list[Built]] = {}
    for kernel in kernels:
        for state in kernel.reads:
            readers.setdefault(state, []).append(kernel)
    for kernel in kernels:
        for state in kernel.overwrites:
            needs[kernel] |= {reader for reader in readers.get(state, ()) if reader is not kernel}
    return needs


def torn_state(kernels: list[Built], stuck: list[Built]) -> UOp | None:
    """A state that a kernel of a circle reads beside others, and a STORE of the circle writes over;
    None if there is none."""
    needs = all_dependencies(kernels)
    core = set(stuck)
    followers = {kernel: 0 for kernel in core}
    for kernel in core:
        for other in needs[kernel] & core:
            followers[other] += 1
    # nobody in the circle waits for what only comes after it
    loose = [kernel for kernel in stuck if not followers[kernel]]
    while loose:
        kernel = loose.pop()
        core.discard(kernel)
        for other in needs[kernel] & core:
            followers[other] -= 1
            if not followers[other]:
                loose.append(other)
    overwritten = {state for kernel in stuck if kernel in core for state in kernel.overwrites}
    for kernel in stuck:
        # a copy of a state alone is what keeping it would make
        if kernel in core and kernel.draft.root.op is not Ops.STORE and len(kernel.reads) > 1:
            for state in kernel.reads:
                if state in overwritten:
                    return state
    return None


def order_kernels(kernels: list[Built], needs: dict[Built, set[Built]]) -> list[Built]:
    """A topological order that keeps to the order of the graph where it is free."""
    waiting = {kernel: len(needs[kernel]) for kernel in kernels}
    followers: dict[Built, list[Built]] = {}
    for kernel in kernels:
        for other in needs[kernel]:
            followers.setdefault(other, []).append(kernel)
    ready = deque(kernel for kernel in kernels if waiting[kernel] == 0)
    result: list[Built] = []
    while ready:
        kernel = ready.popleft()
        result.append(kernel)
        for follower in followers.get(kernel, ()):
            waiting[follower] -= 1
            if waiting[follower] == 0:
                ready.append(follower)
    if len(result) < len(kernels):
        raise CycleError([kernel for kernel in kernels if waiting[kernel] > 0])
    return result
