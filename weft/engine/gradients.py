"""Gradients of tensors: which nodes of a graph are which tensors, and what they get.

In: the root of a graph, and tensors, known here only by their `uop`, cell and moves. Out: for each
the UOp of its gradient.
Sits between `gradient.py`, which knows nodes only, and Tensor's `backward` and `gradient`.
Invariant: a tensor is found in a graph under the value that it had when the graph was built, also
if that value has been put into memory since.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

from weft.dtype import dtypes
from weft.engine import known
from weft.engine.cell import Cell
from weft.engine.forms import Form, form_of, form_over, is_on, state_now
from weft.engine.history import Past, executed, past_of
from weft.engine.operands import apply_moves, cast_value, user_line
from weft.engine.unfold import Unfolded
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.gradient import NO_GRAD, Identity, compute_gradient, gradient_rules, is_differentiable
from weft.helpers import prod
from weft.uop.node import UOp
from weft.uop.opset import Ops


class TensorGraph:
    """The differentiable graph below a tensor, also behind what is in memory: finds tensors in
    it."""

    def __init__(self, root: UOp) -> None:
        self._unfolded = Unfolded(root)
        self._now = self._unfolded.now
        # storage -> nodes that were realized into it since the graph was built
        self._homes: dict[UOp, list[UOp]] = {}
        for node in self._now:
            storage = known.storage_behind(node)
            if storage is not None:
                self._homes.setdefault(storage, []).append(node)
        # what could not be differentiated although a gradient came there
        self.cuts: list[Past] = []

    def nodes_of(self, tensor: Any) -> list[UOp]:
        """The nodes that are this tensor, as it is now or was before it was realized."""
        cell = tensor._cell
        if cell.pure:
            return []
        before = list(self._homes.get(cell.value, ()))
        state = executed(cell.value)
        if state is not None:
            before.append(state)
        storage = cell.storage
        past = None if storage is None or not cell.is_realized else past_of(storage)
        if past is not None and past.expression in self._now:
            before.append(past.expression)
        found = [tensor.uop, *[apply_moves(value, tensor._moves) for value in before]]
        return list(dict.fromkeys([self._now[node] for node in found if node in self._now]))

    def gradients(self, seed: UOp, targets: Iterable[list[UOp]]) -> list[UOp | None]:
        """The gradient of each target, given by its nodes; None for what gets nothing."""
        wanted = list(targets)
        unfolded = self._unfolded
        nodes = {node for nodes in wanted for node in nodes}
        nodes.update([storage for storage, _ in unfolded.cuts])
        found = compute_gradient(unfolded.root, seed, nodes)
        self.cuts = [past for storage, past in unfolded.cuts if storage in found]
        totals: list[UOp | None] = []
        for parts in wanted:
            total: UOp | None = None
            for node in parts:
                part = found.get(node)
                if part is not None:
                    total = part if total is None else total.alu(Ops.ADD, part)
            totals.append(total)
        folded = iter(unfolded.folded([total for total in totals if total is not None]))
        return [None if total is None else next(folded) for total in totals]

    def check_cuts(self, what: str, tensors: Iterable[Any]) -> None:
        """An error if one of the tensors may be behind something that cannot be differentiated."""
        for past in self.cuts:
            if any(tensor._cell in past.targets for tensor in tensors):
                raise ArgumentError(
                    f"{what}() through a Tensor that is in memory and can no longer be "
                    f"differentiated: {past.reason}"
                )


def form_gradients(root: Any, live: Iterable[Any]) -> list[tuple[Any, Any]] | None:
    """What `backward` gives each of the live tensors whose gradients are asked for, if the root is
    known by its form and they are whole storages that it reads; else None.

    Equal calls have equal gradients, which are forms as well.
    """
    cell = root._cell
    formed = cell.formed
    state = state_now()
    if cell._node is not None or not formed or not is_on(state) or NO_GRAD:
        return None
    if any([(source := r()) is not None and source.is_asked for r in cell.sources]):
        return None
    form, storages = formed
    if root._moves:
        form = form.moved(root._moves)
    if not dtypes.is_float(form.dtype) or prod(form.shape) != 1:
        return None
    numbers = {storage: number for number, storage in enumerate(storages)}
    asked: list[Any] = []
    parts: list[Any] = []
    for tensor in live:
        number = numbers.get(tensor._cell.storage) if tensor._requires_grad else None
        if number is None:
            continue
        whole = tensor._cell.formed or (not tensor._cell.write and form_of(tensor._cell))
        if not whole or tensor._moves:
            return None
        asked.append(tensor)
        parts.append((whole[0], number))
    if not asked:
        return None
    for number in form.slopes:
        past = past_of(storages[number])
        if past is not None and (past.is_cut or past.is_asked_now({})):
            return None
    key = ("backward", state, *parts)
    found = form.calls.get(key)
    if found is None:
        found = form.calls[key] = _gradient_forms(form, parts)
    if not found:
        return None
    around = tuple([source for source in cell.sources if source() is not None])
    result = []
    for tensor, (slope, picked, holds_root) in zip(asked, found, strict=True):
        own = storages if picked is None else tuple([storages[number] for number in picked])
        sources = (weakref.ref(cell), *around) if holds_root else around
        new = Cell.of_form((slope, own), sources, user_line())
        result.append((tensor, type(root)._view_of(new, ())))
    return result


def _gradient_forms(form: Form, parts: list[tuple[Form, int]]) -> list[Any]:
    """The forms of the gradients with respect to some storages; [] if one of them has none."""
    order = form.value.toposort()
    targets = [whole.fill([form.holes[number]]) for whole, number in parts]
    if any([target not in order for target in targets]):
        return []
    seed = UOp.const(form.dtype, 1.0)
    found = TensorGraph(form.value).gradients(seed, [[target] for target in targets])
    result: list[Any] = []
    for slope in found:
        made = None if slope is None else form_over(slope, form.holes, form.depth + 1)
        if slope is None or made is None:
            return []
        result.append((*made, form.value in slope.toposort()))
    return result


def check_knows(what: str, tensor: Any) -> None:
    """A root must still know what it is computed from."""
    if tensor._cell.is_realized and past_of(tensor._cell.storage) is None:
        raise ArgumentError(
            f"{what}() of a Tensor that is in memory and was computed from nothing that can be "
            f"differentiated: no float Tensor that it depends on is left"
        )


def check_target(tensor: Any) -> None:
    """Only floats that have a place of their own in a graph have gradients."""
    if not dtypes.is_float(tensor.dtype):
        raise DTypeError(
            f"the gradient with respect to a Tensor of {tensor.dtype}: only floats have gradients; "
            "cast it before it is used: x.float()"
        )
    if tensor._cell.pure:
        raise ArgumentError(
            "the gradient with respect to a pure constant, which is a number and has no place of "
            "its own in a graph; make it one with requires_grad_() or Tensor([...])"
        )


def seed_of(what: str, root: Any, gradient: Any) -> UOp:
    """The gradient of the root itself: 1 of a single number, else what was given."""
    if not dtypes.is_float(root.dtype):
        raise DTypeError(
            f"{what}() of a Tensor of {root.dtype}: only floats have gradients; cast it first: "
            "x.float()"
        )
    if gradient is None:
        if prod(root.shape) != 1:
            raise ShapeError(
                f"{what}() of a Tensor of shape {root.shape} needs gradient=, a Tensor of that "
                "shape; of one number it needs none: reduce with sum() or mean() first"
            )
        return UOp.const(root.dtype, 1.0)
    seed = root._operand(gradient)
    if seed.shape and seed.shape != root.shape:
        raise ShapeError(
            f"{what}() of a Tensor of shape {root.shape} takes a gradient of that shape, found "
            f"{seed.shape}"
        )
    return cast_value(seed.uop, root.dtype)


def is_own_constant(value: UOp) -> bool:
    """Whether it is the value of a constructor, which is a parameter of its own."""
    while value.op is Ops.COPY:
        value = value.src[0]
    return isinstance(value.tag, Identity)


def is_leaf(state: UOp) -> bool:
    """Whether a storage, with the writes that it waits for, was computed from nothing."""
    while state.op in (Ops.RESHAPE, Ops.SHRINK, Ops.AFTER):
        writes = state.src[1:] if state.op is Ops.AFTER else ()
        if any([write.op is Ops.STORE and is_differentiable(write.src[1]) for write in writes]):
            return False
        state = state.src[0]
    return state.op is Ops.BUFFER and past_of(state) is None


def detached(node: UOp) -> UOp:
    """A value through which no gradient passes; a leaf has nothing behind it anyway."""
    base = node
    while base.op in (Ops.RESHAPE, Ops.AFTER):
        base = base.src[0]
    has_rule = base.op in gradient_rules or (base.op is Ops.BUFFER and not is_leaf(base))
    if not has_rule or not dtypes.is_float(node.dtype):
        return node
    return UOp(Ops.DETACH, node.dtype, (node,))
