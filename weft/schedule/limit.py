"""Limit buffers: a device may take only so many in one kernel (WebGPU 8, Metal 31).

What comes in: built kernels, and how many buffers each device takes. What goes out: values that are
to be stored by kernels of their own, so that the next attempt has no kernel that is too wide.
Where it sits: after build. A kernel is seldom too wide, so it is cut then, not avoided before.
The one invariant: what is named is stored by the next attempt, so that attempts come to an end;
what cannot be cut is left as it is, and the renderer refuses it by name.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from weft.machine import Machines
from weft.schedule.build import Built
from weft.schedule.decide import Decisions
from weft.schedule.draft import Draft
from weft.schedule.place import storage_of
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops


def is_wide(machines: Machines, *kernels: Built) -> bool:
    """Whether the kernels, as one, would have more buffers than their device takes."""
    most = machines(kernels[0].draft.device).max_buffers
    read = {storage_of(s) for kernel in kernels for s in (*kernel.reads, *kernel.overwrites)}
    others = {node for kernel in kernels for node in (*kernel.waits, *kernel.writes)}
    count = len(read) + sum(node.op is not Ops.STORE for node in others)
    # run-time sizes may need a place among the buffers
    return count > most - 2 and count + _variables(*kernels) > most


def _variables(*kernels: Built) -> int:
    return len(UOp.sink(*[store for kernel in kernels for store in kernel.stores]).variables())


@dataclass(frozen=True)
class Wide:
    """Kernels have too many buffers: what to store apart, and how many are allowed."""

    values: set[UOp]
    most: int


def cut_wide_kernels(kernels: list[Built], plan: Decisions, machines: Machines) -> Wide | None:
    """Values to store apart, so that no kernel is too wide; None if there is no such kernel."""
    wide = [kernel for kernel in kernels if kernel.stores and is_wide(machines, kernel)]
    if not wide:
        return None
    values: set[UOp] = set()
    for kernel in wide:
        most = machines(kernel.draft.device).max_buffers
        values.update(_cut(kernel.draft, plan, most - _variables(kernel)))
    return Wide(values, min(machines(kernel.draft.device).max_buffers for kernel in wide))


def _cut(draft: Draft, plan: Decisions, most: int) -> Iterable[UOp]:
    """One value after another, each the widest that a kernel of its own can hold."""
    outputs = [node for node, _ in draft.outputs]
    if len(outputs) > 1:
        # outputs beside the first are riders: they can go alone
        return [node for node in outputs if node is not draft.root]
    inside, leaves = _inside(draft, plan)
    chosen: list[UOp] = []
    while True:
        reads = _reads(inside, leaves | set(chosen))
        if len(reads[draft.root]) < most:
            # with what it writes
            return chosen
        fitting = [
            node
            for node in inside
            if node not in leaves
            and node is not draft.root
            and _may_be_stored(node)
            and 1 < len(reads[node]) < most
        ]
        if not fitting:
            return chosen
        chosen.append(max(fitting, key=lambda node: len(reads[node])))


def _inside(draft: Draft, plan: Decisions) -> tuple[list[UOp], set[UOp]]:
    """What a kernel computes, sources first, and which of these it reads from memory."""

    def is_read(node: UOp) -> bool:
        home = plan.stored.get(node)
        return node.op in (Ops.BUFFER, Ops.AFTER) or (home is not None and home is not draft)

    inside = list(draft.root.toposort(gate=lambda node: not is_read(node)))
    return inside, {node for node in inside if is_read(node)}


def _reads(inside: list[UOp], stored: set[UOp]) -> dict[UOp, frozenset[UOp]]:
    """The buffers that each value needs."""
    reads: dict[UOp, frozenset[UOp]] = {}
    for node in inside:
        if node in stored:
            is_state = node.op in (Ops.BUFFER, Ops.AFTER)
            reads[node] = frozenset({storage_of(node) if is_state else node})
        else:
            reads[node] = frozenset().union(*[reads[s] for s in node.src])
    return reads


def _may_be_stored(node: UOp) -> bool:
    """Whether a value can have storage of its own: views are stored as what they show."""
    if node.op in GroupOp.Movement or node.op in (Ops.STORE, Ops.AFTER, Ops.BUFFER):
        return False
    return node.op in GroupOp.Elementwise or node.op in (Ops.REDUCE_AXIS, Ops.CAT, Ops.GATHER)


def split_wide_joins(sink: UOp, most: int) -> UOp:
    """CAT of more parts than a kernel takes buffers -> a CAT of CATs, which can be stored apart."""
    # what it writes and perhaps a variable have places, too
    width = max(2, most - 2)
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else node.with_src(src)
        while new.op is Ops.CAT and len(new.src) > width:
            groups = [new.src[at : at + width] for at in range(0, len(new.src), width)]
            parts = [g[0] if len(g) == 1 else new.with_src(g) for g in groups]
            new = new.with_src(tuple(parts))
        done[node] = new
    return done[sink]
