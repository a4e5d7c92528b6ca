"""Gradients: the table of rules, and the reverse sweep that applies them.

In: a tensor graph, the gradient of its root, the nodes whose gradients are wanted. Out: a tensor
graph for each of them. Sits between the IR and the scheduler, which sees nothing but more graph.
Invariant: a gradient has the shape and dtype of its node. Rules only build UOps, so the gradient of
a gradient needs nothing more.

A rule gets the gradient of a node and the node, and gives a gradient for each source. None says
that nothing flows there, which is an exact zero. An operand that was a scalar gets the sum of what
its rule gives; that is the sweep's work.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import dataclass

from weft.dtype import dtypes
from weft.gradient_rules import VALUE_RULES, VIEW_RULES, Gradients, Rule, shaped_like, zeros_like
from weft.gradient_rules import of_nothing as of_nothing
from weft.gradient_writes import after_gradient, store_gradient
from weft.knobs import ContextVar
from weft.uop.node import UOp
from weft.uop.opset import Ops

NO_GRAD = ContextVar("NO_GRAD", 0, "1: no gradient passes through what is computed from here on")


# ------------------------------------------------------------ identity
@dataclass(frozen=True)
class Identity:
    """The tag of a leaf that must not be confused with an equal one: two `zeros(3)` are one UOp,
    but two parameters. It means nothing to the value, and a schedule need not know it."""

    number: int


_numbers = itertools.count()


def with_identity(node: UOp) -> UOp:
    """The same value as a node that no other call gives."""
    return node._mop(Ops.RESHAPE, node.shape).rtag(Identity(next(_numbers)))


def as_event(store: UOp) -> UOp:
    """A write as a node that no other call gives: what is written down twice happens twice."""
    return store.rtag(Identity(next(_numbers)))


def as_twin(node: UOp) -> UOp:
    """The same expression as a node that no other call gives."""
    return node.rtag(Identity(next(_numbers)))


# ------------------------------------------------------------ the sweep
def compute_gradient(root: UOp, root_gradient: UOp, targets: Collection[UOp]) -> dict[UOp, UOp]:
    """The gradient of each target that the root depends on; targets that are missing have none.

    The work is linear in the graph, and only nodes between a target and the root are visited.
    """
    wanted = targets if isinstance(targets, (set, frozenset, dict)) else set(targets)
    path = nodes_between(wanted, root)
    found: dict[UOp, UOp] = {}
    if root not in path:
        return found
    pending = {root: shaped_like(root_gradient.cast(root.dtype), root.shape)}
    for node in reversed(path):
        # popped: a gradient lives only until it is passed on
        gradient = pending.pop(node, None)
        if gradient is None:
            continue
        if node in wanted:
            found[node] = gradient
        if not any(source in path for source in node.src):
            continue
        if 0 in gradient.shape:
            # sums over no elements
            parts: Gradients = tuple([zeros_like(source) for source in node.src])
        else:
            parts = gradient_rules[node.op](gradient, node)
        for source, part in zip(node.src, parts, strict=True):
            if part is None or source not in path:
                continue
            part = _fitted(part, source)
            if part.origin is None:
                # a kernel of the backward pass names the line whose gradient it computes
                part.origin = node.origin
            before = pending.get(source)
            if before is not None:
                line = part.origin
                part = before.alu(Ops.ADD, part)
                part.origin = part.origin or line
            pending[source] = part
    return found


def nodes_between(targets: Collection[UOp], root: UOp) -> dict[UOp, None]:
    """The nodes through which a gradient flows from the root to some target, sources first."""
    path: dict[UOp, None] = {}
    for node in root.toposort(gate=is_differentiable):
        if not _has_gradient(node):
            continue
        if node in targets or (
            is_differentiable(node) and any(source in path for source in node.src)
        ):
            path[node] = None
    return path


def is_differentiable(node: UOp) -> bool:
    """Whether a gradient may flow from this node to a source of it."""
    return node.op in gradient_rules and _has_gradient(node)


def _has_gradient(node: UOp) -> bool:
    # a STORE has no value, but what it writes has a gradient
    return dtypes.is_float(node.dtype) or node.op is Ops.STORE


def _fitted(gradient: UOp, source: UOp) -> UOp:
    """In the source's shape: a scalar was repeated for each element, so their gradients add up."""
    if source.op is Ops.STORE or gradient.shape == source.shape:
        return gradient
    if not source.shape:
        return gradient.sum()
    # the same symbolic sizes, computed in another way
    return gradient._mop(Ops.RESHAPE, source.shape)


# ------------------------------------------------------------ the table
gradient_rules: dict[Ops, Rule] = {
    **VALUE_RULES,
    **VIEW_RULES,
    Ops.STORE: store_gradient,
    Ops.AFTER: after_gradient,
}

# every other op must stand here: a new op without a rule is a decision, not an accident
NOT_DIFFERENTIABLE: frozenset[Ops] = frozenset(
    {
        # leaves: there is nothing below them
        *(Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.BUFFER, Ops.PARAM, Ops.IOTA),
        # says so itself
        Ops.DETACH,
        # of what a function of the host gives, a FUNCTION around it knows the gradient
        Ops.HOST,
        # the result is an int or a bool, or the bits are no number
        *(Ops.CMPLT, Ops.CMPNE, Ops.CMPEQ, Ops.AND, Ops.OR, Ops.XOR, Ops.SHL, Ops.SHR),
        *(Ops.IDIV, Ops.MOD, Ops.THREEFRY, Ops.BITCAST),
        # kernels and programs are made after gradients are taken
        *(Ops.RANGE, Ops.SPECIAL, Ops.INDEX, Ops.LOAD, Ops.REDUCE, Ops.STAGE, Ops.LOCAL),
        *(Ops.ACC, Ops.ACC_SET, Ops.END, Ops.IF, Ops.ENDIF, Ops.BARRIER),
        *(Ops.FETCH, Ops.COMMIT, Ops.WAIT, Ops.SETTLE, Ops.RUNNING, Ops.RESCALED, Ops.SHUFFLE),
        *(Ops.VECTORIZE, Ops.GEP, Ops.WMMA, Ops.SCAN, Ops.RANK, Ops.MOVE, Ops.SINK, Ops.NOOP),
    }
)
