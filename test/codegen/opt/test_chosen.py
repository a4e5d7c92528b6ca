"""Chosen: whoever is named picks for every kernel of a thread, and nobody else."""

from __future__ import annotations

from weft.codegen.opt.chosen import choosing, chosen_kernel, leave_to_heuristic
from weft.knobs import Context
from weft.machine import Target
from weft.uop.node import UOp

AST, TARGET = UOp.sink(), Target()


def test_without_a_chooser_the_heuristic_picks() -> None:
    with Context(BEAM=0):
        assert chosen_kernel(AST, TARGET) is None


def test_the_innermost_chooser_picks_until_its_block_ends() -> None:
    asked: list[str] = []

    def outer(ast: UOp, target: Target) -> UOp:
        asked.append("outer")
        return ast

    with choosing(outer):
        assert chosen_kernel(AST, TARGET) is AST
        with choosing(leave_to_heuristic):
            assert chosen_kernel(AST, TARGET) is None
        assert chosen_kernel(AST, TARGET) is AST
    with Context(BEAM=0):
        assert chosen_kernel(AST, TARGET) is None
    assert asked == ["outer", "outer"]
