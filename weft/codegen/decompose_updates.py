"""Decompose updates: the steps of reductions, in ops that the renderer has.

In: a linear program. Out: the same program where the op with which a register takes in one more
value is decomposed too. Sits after linearize, which makes these ops: a REDUCE names its op in its
arg, where no rewrite of the kernel sees it.
Invariant: what an update becomes stands where the update stood.

    MAX(LOAD(ACC), x)  ->  comparisons and selects of LOAD(ACC) and x
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.decompose.decompose import decompose_binary
from weft.renderer.base import Renderer
from weft.uop.node import UOp
from weft.uop.opset import Ops


def decompose_updates(uops: Sequence[UOp], renderer: Renderer) -> list[UOp]:
    """The program without updates that `renderer` lacks."""
    if renderer.is_native(Ops.MAX) or not any([u.op is Ops.MAX for u in uops]):
        return list(uops)
    placed: dict[UOp, None] = {}
    done: dict[UOp, UOp] = {}
    for uop in uops:
        src = tuple([done.get(s, s) for s in uop.src])
        new = uop if src == uop.src else uop.with_src(src)
        if new.op is Ops.MAX:
            better = decompose_binary(renderer, new)
            new = new if better is None else better
        done[uop] = new
        # operands are placed already; what is new stands here
        for node in new.toposort(gate=lambda u: u not in placed):
            placed.setdefault(node)
    return list(placed)
