"""operands.py: operands are brought to one dtype and one shape, constants stay constants."""

from __future__ import annotations

from weft import Tensor, dtypes
from weft.engine.operands import apply_moves, broadcast, cast_value, promote, user_line
from weft.uop.node import UOp
from weft.uop.opset import Ops


def test_numbers_take_the_dtype_of_data() -> None:
    half = Tensor([1.0, 2.0], dtype=dtypes.float16)
    assert promote([half, 3]) == (dtypes.float16, False)
    assert promote([Tensor([1, 2]), 0.5]) == (dtypes.default_float, False)


def test_constants_alone_stay_weak() -> None:
    assert promote([Tensor(1), 2.5]) == (dtypes.weakfloat, True)


def test_scalars_are_not_expanded() -> None:
    wide, number = broadcast([Tensor.empty(2, 3), 4], dtypes.float32)
    assert wide.shape == (2, 3) and number.op is Ops.CONST and number.shape == ()


def test_the_condition_of_where_keeps_its_dtype() -> None:
    mask = Tensor([[True], [False]])
    nodes = broadcast([mask, Tensor.empty(2, 3), 0], dtypes.float32, dtypes.bool)
    assert [node.dtype for node in nodes] == [dtypes.bool, dtypes.float32, dtypes.float32]
    assert nodes[0].shape == (2, 3)


def test_a_moved_constant_is_cast_inside() -> None:
    moved = UOp.const(dtypes.weakint, 3).reshape((1,)).expand((4,))
    cast = cast_value(moved, dtypes.float16)
    assert cast.base.op is Ops.CONST and cast.base.dtype is dtypes.float16
    assert not any(node.op is Ops.CAST for node in cast.toposort())


def test_detach_is_a_matter_of_reading() -> None:
    value = Tensor.empty(2, 3).uop
    moves = [(Ops.PERMUTE, (1, 0)), (Ops.DETACH, None)]
    assert apply_moves(value, moves).op is Ops.DETACH
    assert apply_moves(value, moves, writing=True).op is Ops.PERMUTE


def test_the_users_line_is_outside_of_the_package() -> None:
    node = (Tensor([1.0]) + 1).uop
    assert node.origin is not None and node.origin[0] == __file__
    found = user_line()
    assert found is None or "weft/engine" not in found[0]
