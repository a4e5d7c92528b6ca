"""Fold: one new node made as plain as its sources allow, while a pass is building it.

In: a node whose sources are already plain. Out: the same value, folded. Sits below expand, which
copies a node once per combination of written-out axes and puts constants in place of them: a
whole simplification of the copies would cost many times what these single steps do.
Invariant: a node tagged "raw" has C semantics and is folded by those, never by the op table's.
"""

from __future__ import annotations

from weft.knobs import TRACK_MATCH_STATS
from weft.uop import evaluate
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.symbolic import symbolic

# a chain of rules on one node is short; this only stops a pair of rules that undo each other
_STEPS = 16


def fold_node(node: UOp) -> UOp:
    """The node after the rules that apply at its root: `x * 1` is `x`, `2 * 3` is `6`."""
    if node.tag == "raw":
        return _fold_raw(node)
    rewrite = _rewrite_counted if TRACK_MATCH_STATS.value else symbolic.rewrite
    for _ in range(_STEPS):
        folded = rewrite(node)
        if folded is None:
            return node
        node = folded
    return node


def _rewrite_counted(node: UOp) -> UOp | None:
    """What the first rule that matches gives; for the table of TRACK_MATCH_STATS."""
    found: UOp | None = symbolic.rewrite_watched(node, None, None)
    return found


def _fold_raw(node: UOp) -> UOp:
    """C's division and shifts of constants; a division by 1 is the dividend."""
    if any([s.op is not Ops.CONST for s in node.src]):
        is_one = len(node.src) == 2 and node.src[1].op is Ops.CONST and node.src[1].arg == 1
        return node.src[0] if node.op is Ops.IDIV and is_one else node
    values = [s.arg for s in node.src]
    if node.op is Ops.IDIV:
        quotient = abs(values[0]) // abs(values[1])
        same_sign = (values[0] < 0) == (values[1] < 0)
        return UOp.const(node.dtype, quotient if same_sign else -quotient)
    if node.op is Ops.MOD:
        remainder = abs(values[0]) % abs(values[1])
        return UOp.const(node.dtype, -remainder if values[0] < 0 else remainder)
    found = evaluate.evaluate(node.op, node.dtype, *values, src_dtypes=[s.dtype for s in node.src])
    return UOp.const(node.dtype, found)
