"""Expressions simplified and remembered: shapes and validities ask for the same ones often.

What comes in: an expression. What goes out: the same value by all arithmetic rules.
Where it sits: above fold, algebra, divmod and compare, below validity.
The one invariant: a RANGE stays the object it is: other expressions of its kernel name it too.
"""

from __future__ import annotations

from weakref import WeakKeyDictionary

from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.rewrite import graph_rewrite
from weft.uop.rules.algebra import algebra
from weft.uop.rules.compare import compare
from weft.uop.rules.divmod import divmod as division
from weft.uop.rules.fold import fold

symbolic: PatternMatcher = fold + algebra + division + compare

# what a node becomes; None stands for itself, or the entry would keep its own key alive
_simplified: WeakKeyDictionary[UOp, UOp | None] = WeakKeyDictionary()


def simplify(node: UOp) -> UOp:
    """The expression by the rules of `symbolic`."""
    if node.op in _LEAVES:
        return node
    if node in _simplified:
        found = _simplified[node]
        return node if found is None else found
    result = graph_rewrite(node, symbolic, name="simplify", gate=_enters)
    _simplified[node] = None if result is node else result
    if result is not node:
        _simplified[result] = None
    return result


_LEAVES = frozenset({Ops.CONST, Ops.VARIABLE, Ops.RANGE})


def _enters(node: UOp) -> bool:
    return node.op is not Ops.RANGE


def clear_simplified() -> None:
    """Forget what was simplified."""
    _simplified.clear()
