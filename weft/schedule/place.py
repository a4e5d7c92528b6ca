"""Where things are: the storage behind a view, and the state of it that a STORE writes over.

What comes in: views, states and STOREs of a tensor graph. What goes out: BUFFERs and states.
Where it sits: under the scheduler's passes and realize.
The one invariant: a STORE's place is a chain of movement ops and GATHERs over one state.
"""

from __future__ import annotations

from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops


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
