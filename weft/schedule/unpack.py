"""Unpack: whether a product computes an operand out of less memory than that would take.

What comes in: the survey and one use of a value inside of a reduction with reuse. What goes out:
how the value is made there, if it is not stored: in the tile that has all rows at once, or panel by
panel, for all rows.
Where it sits: a part of decide.
The one invariant: a value is unpacked about once, or by a tile that uses it for many rows.

    sum(x[m, k] * f(bytes of w[n, k]), k)
    -> a few rows m: f in the tile;  more: for each panel p of 16 columns n
                     v = STAGE(f(bytes of w[p + i, k]), k, i);  sum(x[m, k] * v[k, i], k)

The panels themselves are made by codegen, which knows the lanes of the target.
"""

from __future__ import annotations

from enum import Enum, auto

from weft.budgets import PANEL
from weft.machine import Target
from weft.schedule.draft import Demand, size_of, volume
from weft.schedule.survey import Survey
from weft.uop.node import UOp
from weft.uop.opset import Ops

# rows of a product from which on it costs little to store what is unpacked
MOST_PANEL_USES = 1 << 12


class Unpacking(Enum):
    """How a product makes such an operand."""

    IN_TILE = auto()
    IN_PANELS = auto()


def unpacking(
    survey: Survey, node: UOp, demand: Demand, uses: int, target: Target
) -> Unpacking | None:
    """How the product makes the value out of less memory, each element for so many uses; None if
    it should be stored."""
    if survey.own_cost(node) == 0 or survey.reduces[node]:
        return None
    # numbers that are combined to more of them are another matter
    if not survey.is_unpacked(node):
        return None
    # as many rows as a tile has at once
    if uses <= PANEL:
        return Unpacking.IN_TILE
    if uses <= MOST_PANEL_USES and _fits_panels(node, demand, target):
        return Unpacking.IN_PANELS
    return None


def _fits_panels(node: UOp, demand: Demand, target: Target) -> bool:
    """Whether panels of neighbouring outputs, each over the whole reduction, have all of it."""
    if not demand.is_factor or demand.valid is not None:
        return False
    if any(axis.src[0].op is not Ops.CONST for axis in demand.loops):
        return False
    outputs, depends = frozenset(demand.draft.ranges), demand.depends
    column = demand.draft.ranges[-1]
    if column not in depends or size_of(column) < PANEL:
        return False
    if any(_cuts(position, outputs) for position in demand.index):
        return False
    panel = volume(depends - outputs) * PANEL * node.dtype.itemsize
    return panel <= target.row_room


def _cuts(position: UOp, outputs: frozenset[UOp]) -> bool:
    """Whether a column is a part of a block, whose elements are best made together."""
    return any(
        node.op in (Ops.IDIV, Ops.MOD) and not outputs.isdisjoint(node.ranges)
        for node in position.toposort()
    )
