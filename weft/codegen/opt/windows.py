"""Windows: short sums over neighbours, as of a depthwise convolution or a pool, side by side.

In: the survey of a body and the tile chosen for it. Out: whether its terms should all be written
out, and a tile small enough for that. Sits between the tile search and the heuristic.
Invariant: only how many copies there are changes, never what they are copies of.

Nine terms of a 3x3 window in a loop read nine times what windows beside each other share. Written
out, an element is read once for all windows of the tile that it is in.
"""

from __future__ import annotations

import math
from dataclasses import replace

from weft.budgets import KERNEL_OPS, UNROLLED_TERMS
from weft.codegen.opt.survey import Body, Item, extent, volume
from weft.codegen.opt.tile import Tile, overlaps
from weft.helpers import prod
from weft.uop.opset import Ops


def is_window(body: Body) -> bool:
    """Whether it is a short sum over windows that overlap: they share what they read if all of them
    stand side by side."""
    if any([axis.src[0].op is not Ops.CONST for axis in body.own]):
        return False
    short = body.is_reduction and volume(body.own) <= UNROLLED_TERMS
    return short and any([_are_shared(body, item) for item in body.items])


def _are_shared(body: Body, item: Item) -> bool:
    """Whether windows beside each other may have elements in common.

    x[i + r], r: 3 do; rows of w[i*16 + r], r: 16 do not, each ends where the next one begins.
    """
    if not overlaps(body, item):
        return False
    steps = item.steps or {}
    inside, outside = [[steps.get(a, 0) for a in axes] for axes in (body.own, body.around)]
    if None in inside or None in outside:
        return True
    reach = sum([abs(steps.get(axis) or 0) * (extent(axis) - 1) for axis in body.own])
    return any([0 < abs(step or 0) <= reach for step in outside])


def fitting_tile(body: Body, tile: Tile) -> Tile:
    """Fewer copies, where otherwise the windows could not be written out."""
    copies = dict(tile.choice.copies)
    room = KERNEL_OPS / (volume(body.own) * body.weight()) if is_window(body) else math.inf
    while prod(copies.values()) > room:
        axis = max(
            [a for a in copies if a is not tile.choice.vector], key=copies.__getitem__, default=None
        )
        if axis is None or copies[axis] == 1:
            break
        copies[axis] = next(n for n in range(copies[axis] // 2, 0, -1) if extent(axis) % n == 0)
    return replace(tile, choice=replace(tile.choice, copies=copies))
