"""Facade: the simplification rule sets, from the cheapest to all of them.

- `symbolic_simple`: constants, neutral elements, types (`rules/fold.py`).
- `symbolic`: and sums, divisions, comparisons (`algebra`, `divmod`, `compare`).
- `sym`: and the validity of indices, and axes of size 1: what a whole kernel is simplified with.
- `movement`: the tensor graph's movement ops.

Importing this registers `UOp.simplify`, which shapes use.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp, register_simplifier
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.rules.algebra import algebra
from weft.uop.rules.compare import compare
from weft.uop.rules.divmod import divmod as division
from weft.uop.rules.fold import fold
from weft.uop.rules.movement import movement
from weft.uop.rules.validity import (
    simplify_index_under,
    simplify_valid,
    unit_ranges,
    validity,
)

__all__ = [
    "movement",
    "simplify",
    "simplify_index_under",
    "simplify_valid",
    "sym",
    "symbolic",
    "symbolic_simple",
    "unit_ranges",
]

symbolic_simple: PatternMatcher = fold
symbolic: PatternMatcher = fold + algebra + division + compare
sym: PatternMatcher = symbolic + validity + unit_ranges

# what a node becomes; None stands for itself, or the entry would keep its own key alive
_simplified: WeakKeyDictionary[UOp, UOp | None] = WeakKeyDictionary()


def simplify(node: UOp) -> UOp:
    """The expression by the rules of `symbolic`, remembered: shapes ask often."""
    if node.op in (Ops.CONST, Ops.VARIABLE, Ops.RANGE):
        return node
    if node in _simplified:
        found = _simplified[node]
        return node if found is None else found
    # an axis stays the object it is: other expressions of its kernel name it as well
    result = graph_rewrite(node, symbolic, name="simplify", gate=_enters)
    _simplified[node] = None if result is node else result
    return result


def _enters(node: UOp) -> bool:
    return node.op is not Ops.RANGE


register_simplifier(simplify)
