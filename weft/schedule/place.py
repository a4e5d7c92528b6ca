"""Where things are: the storage behind a view, and the state of it that a STORE writes over.

What comes in: views, states and STOREs of a tensor graph. What goes out: BUFFERs and states.
Where it sits: under the scheduler's passes and realize.
The one invariant: a STORE's place is a chain of movement ops and GATHERs over one state.
"""

from __future__ import annotations

from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.rules.polynomial import polynomial

# the tag of a kernel's STORE whose rounds may write to one element: they run one after another
IN_ORDER = "in order"


def storage_of(node: UOp) -> UOp:
    """The BUFFER behind a view or a later state of it."""
    while node.op is not Ops.BUFFER:
        node = node.src[0]
    return node


def written_state(store: UOp) -> UOp:
    """The state (BUFFER or AFTER) that a STORE changes."""
    node = store.src[0]
    while node.op in GroupOp.Movement or node.op is Ops.GATHER:
        node = node.src[0]
    return node


def is_whole_storage(node: UOp) -> bool:
    """A storage seen whole and in order: reshapes of a BUFFER or of a state of one."""
    while node.op is Ops.RESHAPE:
        node = node.src[0]
    return node.op in (Ops.BUFFER, Ops.AFTER)


def may_repeat(place: UOp, store: UOp) -> bool:
    """Whether rounds of a kernel's STORE may write to one element.

    A view names each element once. Through a GATHER they may, unless the index is seen to differ
    in every round: a sum of axes, each with a step beyond what the smaller ones reach.
    """
    while place.op in GroupOp.Movement:
        place = place.src[0]
    if place.op is not Ops.GATHER:
        return False
    _, index, *valid = store.src[0].src
    if any(u.op is Ops.LOAD for part in (index, *valid) for u in part.toposort()):
        return True
    steps: dict[UOp, int] = {}
    for term, step in polynomial(index.simplify()).items():
        if len(term) > 1 or (term and term[0] not in store.src[2:]):
            return True
        if term:
            steps[term[0]] = abs(step)
    reach = 0
    for axis in sorted(store.src[2:], key=lambda axis: steps.get(axis, 0)):
        if steps.get(axis, 0) <= reach and axis.vmax > 0:
            return True
        reach += steps.get(axis, 0) * int(axis.vmax)
    return False
