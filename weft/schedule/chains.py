"""Chains of kernels that become one: what the passes that make them have in common.

What comes in: built kernels and indices of their accesses. What goes out: who reads what alone, an
index as a plain sum, and the kernels with chains replaced.
Where it sits: above order, below stage_rows and stage_panels.
The one invariant: kernels that come out do not wait for each other.
"""

from __future__ import annotations

from collections.abc import Callable

from weft.schedule.build import Built
from weft.schedule.order import CycleError, all_dependencies, order_kernels, writers
from weft.uop.node import UOp
from weft.uop.opset import Ops

Steps = dict[UOp, int]


def sole_sources(
    kernels: list[Built], kept: set[UOp]
) -> Callable[[Built], list[tuple[UOp, Built]]]:
    """For a kernel: the values that exist for it alone, each with the kernel that makes it."""
    readers: dict[UOp, int] = {}
    for kernel in kernels:
        for value in kernel.waits:
            readers[value] = readers.get(value, 0) + 1
    made_by = writers(kernels)

    def sources(kernel: Built) -> list[tuple[UOp, Built]]:
        return [
            (value, made_by[value])
            for value in kernel.waits
            if value not in kept
            and readers[value] == 1
            and made_by[value].writes == [value]
            and made_by[value].draft.device == kernel.draft.device
        ]

    return sources


def replace_chains(
    kernels: list[Built], fused: dict[Built, Built], gone: set[Built]
) -> list[Built]:
    """With each last kernel of a chain as what it became, and without those that are `gone` into
    it; the kernels as they were if they would wait for each other then."""
    if not fused:
        return kernels
    result = [fused.get(kernel, kernel) for kernel in kernels if kernel not in gone]
    try:
        order_kernels(result, all_dependencies(result))
    except CycleError:
        return kernels
    return result


def linear_index(index: UOp) -> tuple[Steps, int] | None:
    """A plain sum of axes times constants: the step of each axis, and the constant; None for
    anything else."""
    steps: Steps = {}
    constant = 0
    stack = [(index, 1)]
    while stack:
        node, factor = stack.pop()
        if node.op is Ops.ADD:
            stack += [(s, factor) for s in node.src]
        elif node.op is Ops.MUL and node.src[1].op is Ops.CONST:
            stack.append((node.src[0], factor * node.src[1].arg))
        elif node.op is Ops.RANGE and node not in steps:
            steps[node] = factor
        elif node.op is Ops.CONST:
            constant += factor * node.arg
        else:
            return None
    return steps, constant


def loads_of(value: UOp, memory: UOp) -> list[UOp]:
    """The reads of a memory that a value is made of."""
    return [u for u in value.toposort() if u.op is Ops.LOAD and u.src[0].src[0] is memory]
