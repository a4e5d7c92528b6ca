"""Gradients of scans: each is a few scans of the same length.

In: the gradient of every prefix, the scanned tensor. Out: the gradient of each element.
Sits below the methods of `stats.py`, which name these rules.
Invariant: nothing is stored that is larger than what was scanned. Prefixes see many elements each;
the gradient of the way they are computed would store one number for each pair.
"""

from __future__ import annotations

import math
from typing import Any

Gradients = tuple[Any, ...]


def product_gradient(gradient: Any, node: Any, static: tuple[Any, ...]) -> Gradients:
    """cumprod: with y the products, x[j] gets the sum of gradient[i] * y[i] / x[j] over i >= j.

    The first zero gets that of the products in which it is left out. One behind it gets 0, for all
    its products hold the first; what that 0 is a function of, `_pair_gradient` knows.
    """
    kind, axis = static
    x, products, outer = (kind._from_uop(each) for each in (node.src[1], node, gradient))
    is_zero = x.eq(0)
    zeros = is_zero.cast("int32").cumsum(axis)
    is_first = is_zero & zeros.eq(1)
    without = is_first.where(1, x).cumprod(axis)
    of_first = zeros.ge(1).where(outer * without, 0).sum(axis, keepdim=True)
    of_others = outer.zeros_like()._with_rule("two zeros", (x, outer), _pair_gradient, static)
    shares = _from_behind(outer * products, axis) / is_zero.where(1, x)
    return (is_first.where(of_first, is_zero.where(of_others, shares)).uop,)


def _pair_gradient(gradient: Any, node: Any, static: tuple[Any, ...]) -> Gradients:
    """What the second zero gets, which is the first zero times the products without both.

    It is 0, but a function of the first. (Of three zeros the third derivative is left out.)
    """
    kind, axis = static
    x, outer, inner = (kind._from_uop(each) for each in (*node.src[1:], gradient))
    is_zero = x.eq(0)
    zeros = is_zero.cast("int32").cumsum(axis)
    is_first, is_second = is_zero & zeros.eq(1), is_zero & zeros.eq(2)
    without = (is_first | is_second).where(1, x).cumprod(axis)
    of_both = zeros.ge(2).where(outer * without, 0).sum(axis, keepdim=True)
    asked = is_second.where(inner, 0).sum(axis, keepdim=True)
    return is_first.where(asked * of_both, 0).uop, None


def greatest_gradient(gradient: Any, node: Any, static: tuple[Any, ...]) -> Gradients:
    """cummax: an element gets the gradients of the prefixes whose greatest it is."""
    kind, axis = static
    places, outer = kind._from_uop(node.src[2]), kind._from_uop(gradient)
    nothing = outer.zeros_like()
    return nothing.scatter_reduce(axis, places, outer, "sum").uop, None


def log_sum_gradient(gradient: Any, node: Any, static: tuple[Any, ...]) -> Gradients:
    """logcumsumexp: x[j] gets the sum of gradient[i] * exp(x[j] - y[i]) over i >= j.

    Summed as logarithms, positive gradients apart from negative ones, for exp(-y) may overflow.
    """
    kind, axis = static
    x, sums, outer = (kind._from_uop(each) for each in (node.src[1], node, gradient))
    rising, falling = (_share(part, x, sums, axis) for part in (outer, -outer))
    return ((rising - falling).uop,)


def _share(part: Any, x: Any, sums: Any, axis: int) -> Any:
    """What x gets of the gradients that are positive."""
    counts = part.gt(0) & sums.ne(-math.inf)
    logarithms = counts.where(counts.where(part, 1).log() - counts.where(sums, 0), -math.inf)
    # stored: every prefix would compute the logarithms of all that it sees
    behind = logarithms.flip(axis).contiguous().logcumsumexp(axis).flip(axis)
    return (behind + x).exp()


def _from_behind(values: Any, axis: int) -> Any:
    """The sum of each element and those after it."""
    return values.flip(axis).cumsum(axis).flip(axis)
