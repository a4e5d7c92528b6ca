"""Deciding symbolic values: a truth that may depend on variables, an expression given them.

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
from weft.uop.opset import Ops


def resolve(x: bool | UOp, default: bool = True) -> bool:
    """The truth of `x`, or `default` where it depends on the value of a variable."""
    if isinstance(x, bool):
        return x
    if not isinstance(x, UOp):
        raise ArgumentError(f"resolve takes a bool or a symbolic bool, found {x!r}")
    if x.dtype.kind != "bool":
        raise ArgumentError(f"resolve takes a symbolic bool, found {x.text()} of {x.dtype}")
    simple = x.simplify()
    low, high = bool(simple.vmin), bool(simple.vmax)
    return low if low == high else default


def sym_infer(expr: Any, var_vals: Mapping[Any, int]) -> int:
    """The value of an expression, given its variables by node or by name."""
    if not isinstance(expr, UOp):
        return int(expr)
    if expr.op is Ops.CONST:
        return int(expr.arg)
    values: dict[UOp, int] = {}
    for variable in expr.variables():
        value = var_vals.get(variable)
        if value is None:
            value = var_vals.get(variable.arg.name)
        if value is not None:
            values[variable] = value
    return int(evaluate.evaluate_uop(expr, values))
