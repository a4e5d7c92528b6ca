"""Tiles of operands: zero beyond the end, and along the neighbours in memory."""

from __future__ import annotations

import pytest

from weft.codegen.opt.axes import index_const
from weft.codegen.opt.chained_operands import Operands, Span, axis_of
from weft.dtype import dtypes
from weft.renderer.cuda import SM_90
from weft.uop.args import AxisType, ParamArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

ROW, TERM, KEY = [UOp.range(20, i, AxisType.LOOP) for i in range(3)]
LANE = UOp.range(32, 3, AxisType.WARP)


def staged(turned: bool) -> tuple[UOp, int, int]:
    """A tile of 16 rows and 32 terms of a matrix of 20 by 20."""
    memory = UOp(Ops.PARAM, dtypes.bfloat16, (), ParamArg(1, 400))
    index = TERM * 20 + ROW if turned else ROW * 20 + TERM
    start, total = index_const(0), index_const(20)
    sides = (Span((ROW,), start, 16, total), Span((TERM,), start, 32, total))
    return Operands(KEY, LANE, SM_90).stage(memory.index(index).load(), *sides, 2, 8)


@pytest.mark.parametrize("turned", [False, True])
def test_rows_of_memory_lie_along_its_neighbours_and_are_padded(turned: bool) -> None:
    stage, side_step, term_step = staged(turned)
    assert (side_step, term_step) == ((1, 16 + 8) if turned else (32 + 8, 1))
    assert stage.arg.depth == 2 and stage.arg.memory == "shared"


def test_what_is_beyond_the_end_is_not_read() -> None:
    stage, _, _ = staged(False)
    (place,) = [u for u in stage.toposort() if u.op is Ops.INDEX]
    assert len(place.src) == 3, "20 rows in tiles of 16, 20 terms in one of 32"


def test_a_part_of_one_round_is_a_number() -> None:
    assert axis_of(KEY, 0, 1, AxisType.LOOP) is index_const(0)
    assert axis_of(KEY, 0, 2, AxisType.LOOP).src[0] is index_const(2)
