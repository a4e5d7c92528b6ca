"""Targets and wave widths that LLVM's vectors leave out print as llvm-mc prints them."""

from __future__ import annotations

import pytest

from test.amd.differential import compare
from test.optional import need_program
from weft.amd.targets import TARGETS


@pytest.mark.parametrize(("name", "wave"), [("gfx1151", 64), ("gfx1201", 32)])
def test_random_instructions_print_alike(name: str, wave: int) -> None:
    """A share of `python -m test.amd.differential`."""
    need_program("llvm-mc-22")
    counts, wrong = compare(TARGETS[name], wave, count=1, seed=17)
    # images whose dimension their operation does not have, registers that forms do not reach
    assert counts["different"] <= 0.012 * counts["alike"], wrong[:5]
    assert counts["alike"] > 2500
