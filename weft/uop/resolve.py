"""Deciding symbolic values: a truth that may depend on variables, an expression with the variables given.

What comes in: numbers or expressions (`sint`). What goes out: Python bools and ints.
Where it sits: beside the rewriter; shapes, the scheduler and the launcher of kernels ask here.
The one invariant: an answer is exact; what bounds leave open takes the default the caller chose.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import ArgumentError
from weft.uop import evaluate
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops


def resolve(x: bool | UOp, default: bool = True) -> bool:
    """The truth of `x`, or `default` where it depends on the value of a variable."""
    if isinstance(x, bool):
        return x
    if not isinstance(x, UOp):
        raise ArgumentError(f"resolve takes a bool or a symbolic bool, found {x!r}")
    simple = x.simplify()
    low, high = bool(simple.vmin), bool(simple.vmax)
    return low if low == high else default


def sym_infer(expr: Any, var_vals: Mapping[Any, int]) -> int:
    """The value of an expression, given its variables by node or by name."""
    if not isinstance(expr, UOp):
        return int(expr)
    values: dict[UOp, Any] = {}
    for node in expr.toposort(gate=lambda u: u.op is not Ops.BIND):
        values[node] = _value(node, values, var_vals)
    return int(values[expr])


def _value(node: UOp, values: Mapping[UOp, Any], var_vals: Mapping[Any, int]) -> Any:
    if node.op is Ops.CONST:
        return node.arg
    if node.op is Ops.BIND:
        return node.src[1].arg
    if node.op is Ops.VARIABLE:
        found = var_vals.get(node)
        if found is None:
            found = var_vals.get(node.arg.name)
        if found is None:
            raise ArgumentError(f"the variable {node.arg.name} has no value; bind it first")
        return found
    if node.op in GroupOp.Elementwise:
        return evaluate.evaluate_node(node, [values[s] for s in node.src])
    raise ArgumentError(f"{node.op.name} cannot be part of a symbolic integer")
