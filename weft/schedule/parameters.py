"""Number a kernel's parameters, so that equal kernels over other storages are the same kernel.

What comes in: the STOREs of one kernel over BUFFERs. What goes out: its SINK over PARAMs, and the
storage behind each.
Where it sits: the last pass of the schedule.
The one invariant: the result depends on structure only. A constant offset into a storage belongs to
the argument, not to the kernel: x[0:32] and x[32:64] run the same program.
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.schedule.place import IN_ORDER
from weft.uop.args import KernelInfo
from weft.uop.node import UOp
from weft.uop.opset import Ops


@dataclass(frozen=True)
class Argument:
    """Elements [offset, offset + size) of a storage."""

    memory: UOp
    offset: int
    size: int


def number_parameters(stores: list[UOp]) -> tuple[UOp, tuple[Argument, ...]]:
    """PARAMs by first appearance, outputs first."""
    # what may be written twice is written one round after another
    in_order = any(store.tag == IN_ORDER for store in stores)
    stores = [store.rtag(None) if store.tag == IN_ORDER else store for store in stores]
    sink = UOp.sink(*stores)
    uses: dict[UOp, list[UOp]] = {store.src[0].src[0]: [] for store in stores}
    axes: list[UOp] = []
    loaded: set[UOp] = set()  # what is computed from values in memory
    reduces = False
    for node in sink.toposort():
        op = node.op
        if op is Ops.LOAD or not loaded.isdisjoint(node.src):
            loaded.add(node)
        if op is Ops.INDEX and node.src[0].op is Ops.BUFFER:
            uses.setdefault(node.src[0], []).append(node)
        elif op is Ops.RANGE:
            axes.append(node)
        elif op is Ops.REDUCE:
            reduces = True
    changes: dict[UOp, UOp] = {}
    arguments: list[Argument] = []
    for slot, (memory, indices) in enumerate(uses.items()):
        offset, size = _window(memory, indices, loaded)
        param = UOp.param(slot, memory.dtype, size)
        arguments.append(Argument(memory, offset, size))
        changes[memory] = param
        if offset:
            changes |= {
                node: UOp(Ops.INDEX, node.dtype, (param, (node.src[1] - offset).simplify()))
                for node in indices
                if node.src[1] not in loaded
            }
    info = KernelInfo(_name(axes, reduces), optimise=not in_order)
    return sink.substitute(changes).replace(arg=info), tuple(arguments)


def _window(memory: UOp, indices: list[UOp], loaded: set[UOp]) -> tuple[int, int]:
    """The part of the storage that is touched, where the indices say it without conditions."""
    size: int = memory.arg.size
    if any([len(node.src) > 2 or node.src[1] in loaded for node in indices]) or not indices:
        return 0, size
    low = min([int(node.src[1].vmin) for node in indices])
    high = max([int(node.src[1].vmax) for node in indices])
    # an offset keeps the vector alignment of small elements; others stay in the kernel
    if low <= 0 or high >= size:
        return 0, size
    return low, high + 1 - low


def _name(axes: list[UOp], reduces: bool) -> str:
    """r for kernels with a reduction, E for elementwise ones, then the sizes of the axes."""
    axes = sorted(axes, key=lambda axis: axis.arg.number)
    shown = axes[:8]
    sizes = "_".join(str(u.src[0].arg) if u.src[0].op is Ops.CONST else "n" for u in shown)
    if len(axes) > len(shown):
        sizes += f"_and_{len(axes) - len(shown)}"
    return f"{'r' if reduces else 'E'}_{sizes or '1'}"
