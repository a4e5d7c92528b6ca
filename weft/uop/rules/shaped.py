"""Small builders that rules share: a result that keeps the shape and dtype of what it replaces.

What comes in: the node a rule replaces, and a number or a value. What goes out: a node of its
shape.
Where it sits: below the rule files.
The one invariant: inside a kernel everything is a scalar, and then nothing is added.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

INTS = (*dtypes.ints, dtypes.weakint)
INTS_AND_BOOL = (*INTS, dtypes.bool)
FLOATS = (*dtypes.floats, dtypes.weakfloat)


def shaped_like(node: UOp, value: UOp) -> UOp:
    """`value`, repeated to the node's shape where it is a scalar that stands for all of it."""
    shape = node.shape
    if not shape or value.shape == shape:
        return value
    return value._mop(Ops.RESHAPE, (1,) * len(shape))._mop(Ops.EXPAND, shape)


def constant_like(node: UOp, number: Any) -> UOp:
    """A constant in place of the node."""
    return shaped_like(node, UOp.const(node.dtype, number))


def logical_not(condition: UOp) -> UOp:
    """The form of "not" that all rules agree on: `condition == False`."""
    false = UOp.const(condition.dtype, False)
    return UOp(Ops.CMPEQ, condition.dtype, (condition, false))


def conjunction(*conditions: UOp) -> UOp:
    """All of the conditions; there is at least one."""
    found = conditions[0]
    for condition in conditions[1:]:
        if condition is not found:
            found = UOp(Ops.AND, found.dtype, (found, condition))
    return found


def clauses(condition: UOp, op: Ops = Ops.AND) -> list[UOp]:
    """The parts of a chain of AND (or OR), each once, in order."""
    found: dict[UOp, None] = {}
    stack = [condition]
    while stack:
        part = stack.pop()
        if part.op is op:
            stack.extend(reversed(part.src))
        else:
            found[part] = None
    return list(found)


def is_number(node: UOp, number: int) -> bool:
    """Whether it is the constant `number`; a float zero must be the positive one."""
    return node.op is Ops.CONST and node is UOp.const(node.dtype, number)
