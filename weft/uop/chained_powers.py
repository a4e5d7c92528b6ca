"""Powers of chained products: fewer operations for what is computed of every row and key.

In: values of a chain over placeholders for products and maxima of rows. Out: the same values within
rounding, in the form that takes the fewest operations of an element. Under `chained.py`.
Invariant: only what is made of a sum that nobody else sees is rounded elsewhere, and never across
a number of a narrow type: a score that was rounded to bfloat16 stays that number. What a mask takes
out counts for nothing, whatever it was.

    x / 8                                -> x * 0.125
    x*a + where(masked, -inf, 0)         -> where(masked, -inf, x) * a
    max(x*a), 2**((x*a - max(x*a))*c)    -> max(x), 2**(x*(a*c) - max(x)*(a*c)), one fused operation
"""

from __future__ import annotations

import math

from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops


def multiplied(root: UOp, products: set[UOp]) -> UOp:
    """With divisions of wide scores by numbers as multiplications."""
    done: dict[UOp, UOp] = {}
    wide = _wide_of(root, products)
    for node in root.toposort():
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else node.with_src(src)
        if node.op is Ops.FDIV and node.src[0] in wide and _is_number(node.src[1]):
            reciprocal = UOp.const(node.dtype, 1.0 / node.src[1].arg)
            new = UOp(Ops.MUL, node.dtype, (src[0], reciprocal))
        done[node] = new
    return done[root]


def _wide_of(root: UOp, products: set[UOp]) -> set[UOp]:
    """What is made of products, and of nothing that was rounded to a narrow type since."""
    found: set[UOp] = set()
    for node in root.toposort():
        if node in products:
            found.add(node)
        elif node.dtype is dtypes.float32 and any([s in found for s in node.src]):
            found.add(node)
    return found


def _is_number(node: UOp) -> bool:
    return node.op is Ops.CONST and 0 < abs(node.arg) < math.inf


def _is_positive(node: UOp) -> bool:
    return node.op is Ops.CONST and 0 < node.arg < math.inf


def is_minus_infinity(node: UOp) -> bool:
    """The number that masks a score."""
    return node.op is Ops.CONST and node.arg == -math.inf


def scaled(value: UOp) -> tuple[UOp, float]:
    """y and a, of which the value is y*a, with a above zero."""
    if value.dtype is not dtypes.float32:
        return value, 1.0
    if value.op is Ops.MUL and _is_positive(value.src[1]):
        inner, scale = scaled(value.src[0])
        return inner, scale * value.src[1].arg
    if value.op is Ops.ADD:
        for other, mask in (value.src, value.src[::-1]):
            masked = _mask_of(mask)
            if masked is not None:
                inner, scale = scaled(other)
                return _masked(masked, inner, mask), scale
    if value.op is Ops.WHERE and any([is_minus_infinity(s) for s in value.src[1:]]):
        place = 1 if is_minus_infinity(value.src[2]) else 2
        inner, scale = scaled(value.src[place])
        src = list(value.src)
        src[place] = inner
        return value.with_src(tuple(src)), scale
    return value, 1.0


def _mask_of(node: UOp) -> bool | None:
    """Of where(condition, -inf, 0), whether it masks where the condition holds."""
    if node.op is not Ops.WHERE:
        return None
    for place in (1, 2):
        other = node.src[3 - place]
        if is_minus_infinity(node.src[place]) and other.op is Ops.CONST and other.arg == 0:
            return place == 1
    return None


def _masked(where_true: bool, value: UOp, mask: UOp) -> UOp:
    sides = (mask.src[1], value) if where_true else (value, mask.src[2])
    return mask.with_src((mask.src[0], *sides))


def fused(root: UOp, products: set[UOp], maximum: tuple[UOp, UOp, float] | None) -> UOp:
    """With powers of differences of scores and numbers of rows as one operation each.

    `maximum`: a placeholder, what it was the maximum of, and what that is scaled by now.
    """
    done: dict[UOp, UOp] = {}
    scores: set[UOp] = set()  # what is made of products
    for node in root.toposort():
        if node in products or any([s in scores for s in node.src]):
            scores.add(node)
        if maximum is not None and node is maximum[0]:
            scale = maximum[2]
            done[node] = node if scale == 1 else node * UOp.const(node.dtype, scale)
            continue
        new = _fused_power(node, scores, maximum)
        if new is None:
            src = tuple([done[s] for s in node.src])
            new = node if src == node.src else node.with_src(src)
        done[node] = new
    return done[root]


def _fused_power(node: UOp, scores: set[UOp], maximum: tuple[UOp, UOp, float] | None) -> UOp | None:
    """2**((x - r)*c), r the same for a row -> 2**(y*(a*c) - r*c), where x is y*a."""
    if node.op is not Ops.EXP2 or node.src[0] not in scores:
        return None
    difference, scale = node.src[0], 1.0
    if difference.op is Ops.MUL and _is_positive(difference.src[1]):
        difference, scale = difference.src[0], difference.src[1].arg
    if difference.op is not Ops.ADD:
        return None
    for value, other in (difference.src, difference.src[::-1]):
        if value not in scores or other in scores or other.op is not Ops.NEG:
            continue
        of_row = other.src[0]
        inner, factor = scaled(value)
        whole = UOp.const(node.dtype, factor * scale)
        if maximum is not None and of_row is maximum[0]:
            if value is not maximum[1]:
                return None
            start = of_row * whole
        elif maximum is not None and maximum[0] in of_row.toposort():
            return None
        else:
            start = of_row * UOp.const(node.dtype, scale)
        src = (inner, whole, UOp(Ops.NEG, node.dtype, (start,)))
        return node.with_src((UOp(Ops.MULADD, node.dtype, src),))
    return None
