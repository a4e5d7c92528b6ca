"""Facade: the simplification rule sets, from the cheapest to all of them.

- `symbolic_simple`: constants, neutral elements, types (`rules/fold.py`).
- `symbolic`: and sums, divisions, comparisons (`algebra`, `divmod`, `compare`).
- `sym`: and the validity of indices, and axes of size 1: what a whole kernel is simplified with.
- `movement`: the tensor graph's movement ops.

Importing this registers `UOp.simplify`, which shapes use.
"""

from __future__ import annotations

from weft.uop.matcher import PatternMatcher
from weft.uop.node import register_simplifier
from weft.uop.render import render
from weft.uop.rules.fold import fold
from weft.uop.rules.movement import movement
from weft.uop.rules.simplify import clear_simplified, simplify, symbolic
from weft.uop.rules.validity import (
    simplify_index_under,
    simplify_valid,
    unit_ranges,
    validity,
)

__all__ = [
    "clear_simplified",
    "commutative",
    "movement",
    "render",
    "simplify",
    "simplify_index_under",
    "simplify_valid",
    "sym",
    "symbolic",
    "symbolic_simple",
    "unit_ranges",
]

symbolic_simple: PatternMatcher = fold
sym: PatternMatcher = symbolic + validity + unit_ranges

register_simplifier(simplify)

# tinygrad's name of the rules that order operands: here the sums' own form does
commutative: PatternMatcher = PatternMatcher([])
