"""fold: one node at a time, by the op table or, where tagged raw, by C's rules."""

from __future__ import annotations

from weft.codegen.fold import fold_node
from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

INT = dtypes.int32


def raw(op: Ops, x: int, y: int) -> UOp:
    src = (UOp.const(INT, x), UOp.const(INT, y))
    return fold_node(UOp(op, INT, src, None, "raw"))


def test_constants_and_neutral_elements() -> None:
    x = UOp.variable("x", 0, 9, INT)
    assert fold_node(x * 1) is x
    assert fold_node(UOp.const(INT, 2) * 3).arg == 6
    assert fold_node(UOp.const(INT, -7) // 2).arg == -4


def test_raw_division_truncates_as_in_c() -> None:
    assert raw(Ops.IDIV, -7, 2).arg == -3
    assert raw(Ops.MOD, -7, 2).arg == -1
    assert raw(Ops.IDIV, 7, -2).arg == -3
    assert raw(Ops.MOD, 7, -2).arg == 1
    assert raw(Ops.SHR, -8, 1).arg == -4
    assert raw(Ops.SHL, 3, 2).arg == 12


def test_raw_nodes_keep_their_tag_unless_they_fold() -> None:
    x = UOp.variable("x", 0, 9, INT)
    node = UOp(Ops.IDIV, INT, (x, UOp.const(INT, 3)), None, "raw")
    assert fold_node(node) is node
    assert fold_node(UOp(Ops.IDIV, INT, (x, UOp.const(INT, 1)), None, "raw")) is x
