"""Where things are: the storage behind a view, and the state of it that a STORE writes over.

What comes in: views, states and STOREs of a tensor graph. What goes out: BUFFERs and states.
Where it sits: under the scheduler's passes and realize.
The one invariant: a STORE's place is a chain of movement ops and GATHERs over one state.
"""

from __future__ import annotations

from weft.uop.args import DISTINCT, OVERLAPPING, Unique
from weft.uop.distinct import writes_apart
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

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


def order_of(store: UOp, made: UOp) -> str | None:
    """The tag of a kernel's STORE that was made for one of the graph: whether rounds may meet.

    A view names each element once, and so do indices that are known to be unique. Others may not,
    unless the index shows that it differs in every round.
    """
    if writes_apart(made):
        return None
    place = store.src[0]
    while place.op in GroupOp.Movement:
        place = place.src[0]
    if place.op is not Ops.GATHER or isinstance(store.arg, Unique):
        return DISTINCT
    # one number for all places
    return OVERLAPPING if made.src[1].op is Ops.CONST else IN_ORDER
