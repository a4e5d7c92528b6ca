"""Keep values that must be stored before a storage they read is overwritten.

What comes in: a tensor graph. What goes out: the same graph, such values wrapped in CONTIGUOUS.
Where it sits: before decide. `y = t + 1; t.assign(t * 2); z = y + t` reads t before and after the
write; one kernel cannot do both, so y is stored first (PyTorch would have computed it right there).
The one invariant: no kernel both reads a state of a storage and depends on a later state of it.
"""

from __future__ import annotations

from weft.schedule.place import is_whole_storage, written_state
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops


def keep_apart(value: UOp) -> UOp:
    """The value in storage of its own, made by a kernel of its own."""
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,), tag="own")


def separate_states(sink: UOp) -> UOp:
    """Sets of writes are kept as bits of one int per node, so that the walk stays linear."""
    order = sink.toposort()
    writes = {node: 1 << i for i, node in enumerate(n for n in order if n.op is Ops.STORE)}
    if not writes:
        return sink
    overwritten: dict[UOp, int] = {}
    for node, bit in writes.items():
        state = written_state(node)
        overwritten[state] = overwritten.get(state, 0) | bit
    old: dict[UOp, int] = {}  # writes that destroy something this value still reads
    new: dict[UOp, int] = {}  # writes this value comes after
    done: dict[UOp, UOp] = {}
    for node in order:
        new_bits = 0
        for source in node.src:
            new_bits |= new[source]
        if node.op is Ops.AFTER:
            for effect in node.src[1:]:
                new_bits |= writes.get(effect, 0)
        old_bits = 0
        reads = _read(node)
        src = [done[s] for s in node.src]
        for i in reads:
            source = node.src[i]
            if old[source] & new_bits & ~new[source]:
                src[i] = keep_apart(src[i])
            else:
                old_bits |= old[source]
        if node.op in (Ops.AFTER, Ops.BUFFER):
            # a state reads nothing itself: whoever reads it is the reader
            old_bits = overwritten.get(node, 0)
        elif node.op in (Ops.CONTIGUOUS, Ops.COPY):
            old_bits = 0
        old[node], new[node] = old_bits, new_bits
        done[node] = node if tuple(src) == node.src else node.with_src(tuple(src))
    return done[sink]


def _read(node: UOp) -> range:
    """Which sources' values this node reads."""
    if node.op is Ops.STORE:
        return range(1, 2)
    if node.op in (Ops.AFTER, Ops.SINK):
        return range(0)
    return range(1) if node.op in GroupOp.Movement else range(len(node.src))


def keep_state(sink: UOp, state: UOp) -> UOp:
    """Everything that reads the values of a state reads a copy of it; what writes over it, or comes
    after such a write, is still about the state itself.

    Two values, each of an old state and of what comes after the write that destroys the other's,
    wait for each other, whatever else is stored.
    """
    as_place: dict[UOp, UOp] = {}
    as_value: dict[UOp, UOp] = {}
    for node in sink.toposort():
        if node.op is Ops.STORE:
            src = (as_place[node.src[0]], *[as_value[s] for s in node.src[1:]])
            as_place[node] = as_value[node] = _rebuilt(node, src)
            continue
        as_place[node] = _rebuilt(node, tuple([as_place[s] for s in node.src]))
        if node is state:
            as_value[node] = keep_apart(as_place[node])
        elif node.op in (Ops.AFTER, Ops.BUFFER):
            as_value[node] = as_place[node]
        else:
            as_value[node] = _rebuilt(node, tuple([as_value[s] for s in node.src]))
    # what is asked for is a state, or a value
    wanted = [(as_place if is_whole_storage(s) else as_value)[s] for s in sink.src]
    return _rebuilt(sink, tuple(wanted))


def _rebuilt(node: UOp, src: tuple[UOp, ...]) -> UOp:
    return node if src == node.src else node.with_src(src)
