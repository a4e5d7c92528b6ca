"""Settle products: what products that go on by themselves compute is there before it is used.

In: a linear program. Out: the same program with a SETTLE of all such products before the first use
of one: of its value, or of the register that it was added to. Sits after fuse_products, where
products and the registers of their sums are in place.
Invariant: between a WMMA that reads shared memory by itself and a use of what it computes stands a
SETTLE, but for another WMMA that adds to it and for keeping it in its register. A loop that settles
nothing by itself keeps only what is settled.

    WMMA(a, b, LOAD(ACC)); ACC_SET; END; LOAD(ACC)  ->  WMMA; ACC_SET; END; SETTLE(0); LOAD(ACC)
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops


def settle_products(uops: Sequence[UOp]) -> list[UOp]:
    """The program in which products are waited for."""
    products = {uop for uop in uops if _goes_on(uop)}
    if not products:
        return list(uops)
    sums = {uop.src[0] for uop in uops if uop.op is Ops.ACC_SET and uop.src[1] in products}
    placed: list[UOp] = []
    going_on: dict[UOp, None] = {}  # products, and registers that they were added to
    loops: list[bool] = []  # whether those that are open settle products
    for place, uop in enumerate(uops):
        if uop.op is Ops.RANGE:
            loops.append(_settles(uops, place))
        elif uop.op is Ops.END:
            loops.pop()
        is_kept = uop.op is Ops.ACC_SET and uop.src[1] in going_on
        if going_on and (_uses(uop, products, sums) or (is_kept and not any(loops))):
            placed.append(UOp(Ops.SETTLE, dtypes.void, tuple(going_on), (0, len(placed))))
            going_on = {}
        placed.append(uop)
        if uop in products:
            going_on.pop(uop.src[2], None)
            going_on[uop] = None
        elif uop.op is Ops.ACC_SET and uop.src[1] in going_on:
            del going_on[uop.src[1]]
            going_on[uop.src[0]] = None
    return placed


def _goes_on(uop: UOp) -> bool:
    return uop.op is Ops.WMMA and bool(uop.arg.in_shared)


def _settles(uops: Sequence[UOp], start: int) -> bool:
    for uop in uops[start + 1 :]:
        if uop.op is Ops.SETTLE:
            return True
        if uop.op is Ops.END and uop.src[0] is uops[start]:
            return False
    return False


def _uses(uop: UOp, products: set[UOp], sums: set[UOp]) -> bool:
    if uop.op is Ops.LOAD and uop.src[0] in sums:
        return uop.src[1].op is Ops.END
    if uop.op is Ops.ACC_SET or uop in products:
        return False
    return any([source in products for source in uop.src])
