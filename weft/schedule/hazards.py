"""Find values that must be stored before a storage they read is overwritten.

What comes in: a tensor graph in order, sources first. What goes out: a set of values to store in
kernels of their own.
Where it sits: before decide. `y = t + 1; t.assign(t * 2); z = y + t` reads t before and after the
write; one kernel
cannot do both, so y is stored first (PyTorch would have computed it right there).
The one invariant: no kernel both reads a state of a storage and depends on a later state of it.
"""

from __future__ import annotations

from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops


def find_hazards(order: list[UOp], stored: set[UOp]) -> set[UOp]:
    """Sets of writes are kept as bits of one int per node, so that the walk stays linear."""
    writes = {node: 1 << i for i, node in enumerate(n for n in order if n.op is Ops.STORE)}
    if not writes:
        return set()
    overwritten: dict[UOp, int] = {}
    for node, bit in writes.items():
        state = node.src[0].base
        overwritten[state] = overwritten.get(state, 0) | bit
    old: dict[UOp, int] = {}  # writes that destroy something this value still reads
    new: dict[UOp, int] = {}  # writes this value comes after
    forced: set[UOp] = set()
    for node in order:
        old_bits, new_bits = _own_bits(node, overwritten, writes)
        for source in node.src:
            new_bits |= new[source]
        for source in _read(node):
            destroyed = old[source] & new_bits & ~new[source]
            if destroyed:
                forced.add(source)
            elif source not in stored:
                old_bits |= old[source]
        # a state reads nothing itself: whoever reads it is the reader
        old[node] = overwritten.get(node, 0) if node.op in (Ops.AFTER, Ops.BUFFER) else old_bits
        new[node] = new_bits
    return forced


def _own_bits(node: UOp, overwritten: dict[UOp, int], writes: dict[UOp, int]) -> tuple[int, int]:
    new_bits = 0
    if node.op is Ops.AFTER:
        for effect in node.src[1:]:
            new_bits |= writes.get(effect, 0)
    return 0, new_bits


def _read(node: UOp) -> tuple[UOp, ...]:
    """The sources whose values this node reads."""
    if node.op is Ops.STORE:
        return node.src[1:2]
    if node.op in (Ops.AFTER, Ops.SINK):
        return ()
    return node.src[:1] if node.op in GroupOp.Movement else node.src
