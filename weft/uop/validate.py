"""Facade: expressions as terms of z3, under the names that tinygrad's users know.

What comes in: a solver of z3 and expressions. What goes out: their terms; what is known of their
variables is added to the solver. Sits above `solver.py`, which does it.
"""

from __future__ import annotations

from typing import Any

from weft.uop.node import UOp
from weft.uop.solver import Encoder, z3

__all__ = ["uops_to_z3", "validate_index_with_z3"]


def uops_to_z3(solver: Any, *uops: UOp) -> list[Any]:
    """The term of each expression; bounds of variables and axes become facts of the solver."""
    encoder = Encoder()
    terms = [encoder.encode(uop)[0] for uop in uops]
    for facts in encoder.facts.values():
        solver.add(*facts)
    return terms


def validate_index_with_z3(size: int, idx: UOp, gate: UOp) -> bool:
    """Whether an index is inside of so many elements wherever its condition holds."""
    solver = z3().Solver()
    term, condition = uops_to_z3(solver, idx, gate)
    solver.add(condition)
    return bool(solver.check(z3().Or(term < 0, term >= size)) == z3().unsat)
