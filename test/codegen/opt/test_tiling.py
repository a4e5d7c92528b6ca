"""Tilings and the actions that say the same."""

from __future__ import annotations

import pytest

from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.tiling import Tiling


def test_a_tiling_is_an_action_and_back() -> None:
    wanted = Tiling(3, ((0,), (1,)), ((3, 1),), 2, 1, 4, 2, 1, 5)
    opt = wanted.opt((2,))
    assert opt.op is OptOps.TC and opt.axis == (2,)
    assert Tiling.from_opt(opt) == wanted


def test_numbers_that_make_no_sense_are_refused() -> None:
    with pytest.raises(OptError, match="needs a tiling"):
        Tiling.from_opt(Opt(OptOps.TC, (2,), (1, 2)))
    with pytest.raises(OptError, match="positive numbers"):
        Tiling.from_opt(Tiling(1, ((0,),), ((1,),), 1, 1, 0, 1, 1, 1).opt((2,)))
