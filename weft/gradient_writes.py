"""The gradient of writes: what a storage holds after STOREs, told apart element by element.

In: the gradient of a state (AFTER) or of a write (STORE), and the node. Out: a gradient for each
source. Sits under `gradient`, above the rules of movement, by which views are undone.
Invariant: each element's gradient goes to whoever wrote it last.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import dtypes
from weft.errors import ArgumentError
from weft.gradient_rules import VIEW_RULES, Gradients, filled, iota
from weft.helpers import prod
from weft.uop.args import combines_with
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.scatter import new_state


def store_gradient(gradient: UOp, node: UOp) -> Gradients:
    """AFTER gave it the gradient of what was written; what was there before gets nothing."""
    return (None, gradient, *[None] * (len(node.src) - 2))


def after_gradient(gradient: UOp, node: UOp) -> Gradients:
    """A storage after writes: written elements' gradients go to the values, the rest to before.

    AFTER(state, STORE(view(state), value)): the value gets view(gradient), and the state gets the
    gradient with zeros at the elements of the view. What a STORE adds leaves the state its own.
    """
    state, *effects = node.src
    parts: list[UOp | None] = [None] * len(effects)
    rest: UOp | None = gradient
    # the last write is what the storage shows
    for number in reversed(range(len(effects))):
        store = effects[number]
        if rest is None or store.op is not Ops.STORE:
            continue
        base, state_views, place_views = _views_of_one(state, store.src[0])
        if base is None:
            continue
        below = _pull_back(rest, state_views)
        parts[number] = _apply_views(below, place_views)
        combine = combines_with(store.arg)
        if combine is Ops.ADD:
            continue
        if combine is not None:
            raise ArgumentError(
                f"the gradient of a write that combines with {combine.name} is not known, only "
                "with ADD or nothing; detach() the result"
            )
        if all(view.op in _WHOLE for view in (*place_views, *state_views)):
            rest = None
            continue
        if any(view.op is Ops.GATHER for view in place_views):
            lasting = _is_lasting(store.src[0].shape, base, place_views)
            parts[number] = lasting.where(parts[number], 0.0)
        ones = filled(1.0, gradient.dtype, store.src[0].shape)
        written = _pull_back(ones, place_views).ne(0.0)
        rest = _apply_views(written.where(0.0, below), state_views)
    return (rest, *parts)


def _is_lasting(shape: tuple[Any, ...], base: UOp, place_views: list[UOp]) -> UOp:
    """Which values of a write through indices are not overwritten by it again.

    Their numbers are written the same way, and then read: it is those that read their own.
    """
    count = prod(shape)
    if base.device is None or not isinstance(count, int):
        raise ArgumentError(
            "the gradient of an assignment through indices needs a device and known sizes, found "
            f"{base.device} and shape {shape}"
        )
    numbers = iota(count, dtypes.int32)._mop(Ops.RESHAPE, shape) + 1
    state = new_state(UOp.const(dtypes.int32, 0), base.device, base.shape)
    written = state.after(_apply_views(state, place_views).store(numbers))
    return _apply_views(written, place_views).eq(numbers)


# views of all elements of their source
_WHOLE = frozenset((Ops.RESHAPE, Ops.PERMUTE, Ops.FLIP))


def _views_of_one(state: UOp, place: UOp) -> tuple[UOp | None, list[UOp], list[UOp]]:
    """What the state and the written place are both views of, and the views; None: nothing."""
    place_views = _views(place)
    for number, view in enumerate(place_views):
        if view is state:
            return state, [], place_views[number + 1 :]
    base = place_views[0].src[0] if place_views else place
    if base is state:
        return state, [], place_views
    state_views = _views(state)
    state_base = state_views[0].src[0] if state_views else state
    if base is state_base:
        return base, state_views, place_views
    if _storage(base) is _storage(state_base):
        raise ArgumentError(
            "the gradient of an assignment through a bitcast, or to an older state of the tensor, "
            "is not known; assign to the tensor itself, or detach() it"
        )
    return None, [], []


def _views(node: UOp) -> list[UOp]:
    """The movement ops and GATHERs on top of something, the innermost first."""
    chain = []
    while node.op in GroupOp.Movement or node.op is Ops.GATHER:
        chain.append(node)
        node = node.src[0]
    return chain[::-1]


def _storage(node: UOp) -> UOp:
    while node.op in GroupOp.Movement or node.op in (Ops.GATHER, Ops.AFTER, Ops.BITCAST):
        node = node.src[0]
    return node


def _apply_views(value: UOp, views: list[UOp]) -> UOp:
    for view in views:
        value = UOp(view.op, value.dtype, (value, *view.src[1:]), view.arg)
    return value


def _pull_back(gradient: UOp, views: list[UOp]) -> UOp:
    """Values of a view at their places in what it is a view of, zeros elsewhere."""
    for view in reversed(views):
        back = VIEW_RULES[view.op](gradient, view)[0]
        assert back is not None
        gradient = back
    return gradient
