"""Fuse products: the steps of sums take in products without rounding them first.

In: a linear program. Out: the same program where a step of a sum (an ADD tagged SUMMING) of a
product is one MULACC, if the target has that as an instruction. Sits after linearize, where a
register and what it takes in are known. Any other ADD and MUL round where they stand, so that a
value is the same number in every kernel that computes it; a sum has no such number, since its order
is the optimiser's choice.
Invariant: a product that something else reads as well stays where it is.

    ADD(LOAD(ACC), MUL(x, y))  ->  MULACC(x, y, LOAD(ACC))
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import SUMMING, Ops


def fuse_products(uops: Sequence[UOp], target: Target) -> list[UOp]:
    """The program with fused steps, and without the products that nobody reads any more."""
    done: dict[UOp, UOp] = {}
    for uop in uops:
        src = tuple([done.get(s, s) for s in uop.src])
        new = uop if src == uop.src else uop.with_src(src)
        if new.op is Ops.ADD and new.src[1].op is Ops.WMMA:
            # the instruction adds to the sum that it is given
            new = new.src[1].with_src((*new.src[1].src[:2], new.src[0]))
        elif new.op is Ops.ADD and new.tag == SUMMING:
            new = _fused(new) if target.has_fma else new.rtag(None)
        if new is not uop:
            done[uop] = new
    if not done:
        return list(uops)
    program = [done.get(uop, uop) for uop in uops]
    read = {source for uop in program for source in uop.src}
    placed = [uop for uop in program if uop.op not in (Ops.MUL, Ops.WMMA) or uop in read]
    return list(dict.fromkeys(placed))


def _fused(step: UOp) -> UOp:
    """ADD(z, MUL(x, y)) or ADD(MUL(x, y), z) -> MULACC(x, y, z); else the plain ADD."""
    for product, other in (step.src[::-1], step.src):
        if product.op is Ops.MUL:
            return UOp(Ops.MULACC, step.dtype, (*product.src, other))
    return step.rtag(None)
