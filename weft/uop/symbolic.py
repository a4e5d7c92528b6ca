"""Facade: the simplification rule sets, from the cheapest to all of them.

- `symbolic_simple`: constants, neutral elements, types (`rules/fold.py`).
- `symbolic`: and sums, divisions, comparisons (`algebra`, `divmod`, `compare`).
- `sym`: and the validity of indices, and axes of size 1: what a whole kernel is simplified with.
- `movement`: the tensor graph's movement ops.

Importing this registers `UOp.simplify`, which shapes use.
"""

from __future__ import annotations

from weft.dtype import dtypes
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp, register_simplifier
from weft.uop.opset import Ops
from weft.uop.render import render
from weft.uop.rules.divmod import divmod as division
from weft.uop.rules.fold import fold
from weft.uop.rules.movement import movement
from weft.uop.rules.simplify import clear_simplified, simplify, symbolic
from weft.uop.rules.validity import (
    simplify_index_under,
    simplify_valid,
    unit_ranges,
    validity,
)

__all__ = [
    "clear_simplified",
    "commutative",
    "div_and_mod_symbolic",
    "mop_cleanup",
    "movement",
    "parse_valid",
    "pm_move_where_on_load",
    "pm_simplify_valid",
    "render",
    "simplify",
    "simplify_index_under",
    "simplify_valid",
    "sym",
    "symbolic",
    "symbolic_simple",
    "unit_ranges",
    "uop_given_valid",
]

symbolic_simple: PatternMatcher = fold
sym: PatternMatcher = symbolic + validity + unit_ranges

register_simplifier(simplify)

# tinygrad's names. Operands need no rules to order them: the form of sums does.
commutative: PatternMatcher = PatternMatcher([])
div_and_mod_symbolic: PatternMatcher = division
mop_cleanup: PatternMatcher = movement
pm_simplify_valid: PatternMatcher = validity
pm_move_where_on_load: PatternMatcher = validity


def uop_given_valid(valid: UOp, uop: UOp, try_simplex: bool = True) -> UOp:
    """The expression, as plain as it can be where `valid` is true."""
    return simplify_index_under(valid, uop).simplify()


def parse_valid(v: UOp) -> tuple[UOp, bool, int] | None:
    """What a condition bounds, whether from above, and the last value that it allows.

    a < 3 -> (a, True, 2),  not a < 3 -> (a, False, 3),  3 < a -> (a, False, 4)
    """
    if v.op in (Ops.CMPEQ, Ops.CMPNE) and v.src[1].op is Ops.CONST:
        is_negation = v.src[1].arg is (v.op is Ops.CMPNE)
        inner = parse_valid(v.src[0]) if is_negation else None
        return (
            None if inner is None else (inner[0], not inner[1], inner[2] + (1 if inner[1] else -1))
        )
    if v.op is not Ops.CMPLT or not dtypes.is_int(v.src[0].dtype):
        return None
    left, right = v.src
    if right.op is Ops.CONST:
        return left, True, right.arg - 1
    return (right, False, left.arg + 1) if left.op is Ops.CONST else None
