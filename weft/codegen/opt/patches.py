"""Patches: which tiles of a product run at a time.

In: how many tiles there are along rows and columns, and how large they are. Out: how many of them
along the rows follow each other in the order in which groups begin. Below `fragments.py`.
Invariant: tiles are only numbered in another order; the patch divides their number.

Groups begin in the order of their numbers, so those that run at a time are neighbours in it. A
patch of them that is as high as wide reads the fewest rows and columns, which are then in the cache
for all of them.
"""

from __future__ import annotations

from collections.abc import Sequence

from weft.codegen.opt.axes import size_of
from weft.helpers import prod
from weft.uop.node import UOp


def tiles_of(axes: Sequence[UOp], tile: int) -> int:
    """Tiles along axes that are flattened to one."""
    return -(-prod(size_of(axis) for axis in axes) // tile)


def patch_of(rows: tuple[int, int], columns: tuple[int, int], cores: int) -> int:
    """How many tiles along the rows run at a time, so that those of all cores read least; of both
    sides the number of tiles and the size of one."""

    def touched(count: int) -> int:
        across = min(columns[0], -(-cores // count))
        return min(rows[0], -(-cores // across)) * rows[1] + across * columns[1]

    divisors = [count for count in range(1, min(rows[0], cores) + 1) if rows[0] % count == 0]
    return min(divisors, key=lambda count: (touched(count), count))
