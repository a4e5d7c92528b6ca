"""Gradients of tensors: which nodes of a graph are which tensors, and what they get.

In: the root of a graph, and tensors, known here only by their `uop`, cell and moves. Out: for each
the UOp of its gradient.
Sits between `gradient.py`, which knows nodes only, and Tensor's `backward` and `gradient`.
Invariant: a tensor is found in a graph under the value that it had when the graph was built, also
if that value has been put into memory since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from weft.dtype import dtypes
from weft.engine import known
from weft.engine.operands import apply_moves, cast_value
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.gradient import Identity, compute_gradient, gradient_rules, is_differentiable
from weft.helpers import prod
from weft.uop.node import UOp
from weft.uop.opset import Ops


class TensorGraph:
    """The differentiable graph below a tensor: finds tensors in it."""

    def __init__(self, root: UOp) -> None:
        self.root = root
        self.nodes = root.toposort(gate=is_differentiable)
        # storage -> nodes that were realized into it since the graph was built
        self.homes: dict[UOp, list[UOp]] = {}
        for node in self.nodes:
            storage = known.storage_behind(node)
            if storage is not None:
                self.homes.setdefault(storage, []).append(node)

    def nodes_of(self, tensor: Any) -> list[UOp]:
        """The nodes that are this tensor, as it is now or was before it was realized."""
        if tensor._cell.pure:
            return []
        before = self.homes.get(tensor._cell.value, ())
        found = [tensor.uop, *[apply_moves(value, tensor._moves) for value in before]]
        return [node for node in dict.fromkeys(found) if node in self.nodes]

    def gradients(self, seed: UOp, targets: Iterable[list[UOp]]) -> list[UOp | None]:
        """The gradient of each target, given by its nodes; None for what gets nothing."""
        wanted = list(targets)
        found = compute_gradient(self.root, seed, {node for nodes in wanted for node in nodes})
        totals: list[UOp | None] = []
        for nodes in wanted:
            total: UOp | None = None
            for node in nodes:
                part = found.get(node)
                if part is not None:
                    total = part if total is None else total.alu(Ops.ADD, part)
            totals.append(total)
        return totals


def check_not_computed(what: str, tensor: Any) -> None:
    """A root must still know what it is computed from."""
    if tensor._cell.is_realized:
        raise ArgumentError(
            f"{what}() of a Tensor that is already computed, so that it no longer knows what from; "
            f"call {what}() first, and realize(), item() or numpy() after it"
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


def detached(node: UOp) -> UOp:
    """A value through which no gradient passes; a storage has nothing behind it anyway."""
    base = node
    while base.op in (Ops.RESHAPE, Ops.AFTER):
        base = base.src[0]
    if base.op not in gradient_rules or not dtypes.is_float(node.dtype):
        return node
    return UOp(Ops.DETACH, node.dtype, (node,))
