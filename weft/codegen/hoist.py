"""Hoist sums: the terms of an index are added from the outermost loop inwards, constants last.

In: a kernel and its `LoopTree`. Out: the same kernel; in every index sum the part that changes
least often comes first. Sits between place and linearize, because only here the depth of a term is
known.
Invariant: machine integers wrap, so any order gives the same sum. Written this way the partial
sums of outer terms run in outer loops, copies of one index share all but their constant, and that
one fits into the address.

    (k*2 + 1)*N + j  ->  (j + k*2*N) + N, where j is the outer and k the inner loop
"""

from __future__ import annotations

from typing import NamedTuple

from weft.codegen.place import LoopTree
from weft.uop.node import UOp
from weft.uop.opset import Ops

# a sum of sums that share parts has exponentially many terms; real indices have a dozen
_MOST_TERMS = 64


def hoist_sums(sink: UOp, nest: LoopTree) -> UOp:
    """The kernel with its index sums in the order of the loops."""
    done: dict[UOp, UOp] = {}
    ordered: dict[UOp, Sum] = {}
    for node in nest.order:
        src = tuple([done[s] for s in node.src])
        if node.op is Ops.INDEX and src[1].dtype.count == 1 and src[1].op in (Ops.ADD, Ops.MUL):
            src = (src[0], _order_sum(src[1], nest, ordered), *src[2:])
        done[node] = node if src == node.src else node.with_src(src)
    return done[sink]


class Sum(NamedTuple):
    """The terms of an index, those of outer loops first (None: none), and its constant."""

    terms: UOp | None
    constant: int


def _order_sum(total: UOp, nest: LoopTree, ordered: dict[UOp, Sum]) -> UOp:
    """An index in order; `ordered` has what several share: copies differ by their constant."""
    terms, constant = total, 0
    if total.op is Ops.ADD and total.src[1].op is Ops.CONST:
        terms, constant = total.src[0], total.src[1].arg
    found = ordered.get(terms)
    if found is None:
        found = ordered[terms] = _order_terms(terms, nest)
    constant += found.constant
    if found.terms is None:
        return UOp.const(total.dtype, constant)
    if not constant:
        return found.terms
    return UOp(Ops.ADD, total.dtype, (found.terms, UOp.const(total.dtype, constant)))


def _order_terms(total: UOp, nest: LoopTree) -> Sum:
    terms = _flatten(total)
    if terms is None:
        return Sum(total, 0)
    dtype = total.dtype
    result: UOp | None = None
    constant = terms.pop(None, 0)
    for term in sorted([t for t in terms if t is not None], key=lambda t: nest.loop_of(t).depth):
        if terms[term]:
            part = term
            if terms[term] != 1:
                part = UOp(Ops.MUL, dtype, (term, UOp.const(dtype, terms[term])))
            result = part if result is None else UOp(Ops.ADD, dtype, (result, part))
    return Sum(result, constant)


def _flatten(total: UOp) -> dict[UOp | None, int] | None:
    """Each term with its factor, the constant under None; None if there are too many terms."""
    terms: dict[UOp | None, int] = {}
    stack = [(total, 1)]
    steps = 0
    while stack:
        node, factor = stack.pop()
        steps += 1
        if steps > _MOST_TERMS:
            return None
        if node.op is Ops.ADD:
            stack += [(node.src[1], factor), (node.src[0], factor)]
        elif node.op is Ops.MUL and node.src[1].op is Ops.CONST:
            stack.append((node.src[0], factor * node.src[1].arg))
        elif node.op is Ops.CONST:
            terms[None] = terms.get(None, 0) + factor * node.arg
        else:
            terms[node] = terms.get(node, 0) + factor
    return terms
