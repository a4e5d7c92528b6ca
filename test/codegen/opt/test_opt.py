"""Opt: an action as a value."""

from __future__ import annotations

import pytest

from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.errors import WeftError


def test_equal_actions_are_equal_values() -> None:
    opt = Opt(OptOps.SPLIT, (0, 1), 8)
    assert opt == Opt(OptOps.SPLIT, (0, 1), 8) and hash(opt) == hash(Opt(OptOps.SPLIT, (0, 1), 8))
    assert opt != Opt(OptOps.UPCAST, (0, 1), 8)
    with pytest.raises(AttributeError):
        opt.arg = 4  # type: ignore[misc]


def test_an_action_reads_as_the_call_that_makes_it() -> None:
    opt = Opt(OptOps.STAGE, 2, ((3,), (1, 0)))
    assert repr(opt) == "Opt(op=OptOps.STAGE, axis=2, arg=((3,), (1, 0)))"
    assert eval(repr(opt)) == opt


def test_a_refusal_is_a_value_error_of_weft() -> None:
    assert issubclass(OptError, WeftError) and issubclass(OptError, ValueError)
