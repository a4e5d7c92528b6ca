"""States of a storage after writes through indices, as nodes."""

from __future__ import annotations

from weft import Tensor, Variable, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.scatter import flat_index, new_state, new_storage, put


def values(*numbers: float) -> UOp:
    return Tensor(list(numbers)).uop


def indices(*numbers: int) -> UOp:
    return Tensor(list(numbers), dtype=dtypes.int32).realize().uop


def test_a_state_is_its_storage_after_a_write() -> None:
    state = new_state(UOp.const(dtypes.float32, 3.0), "CPU", (2, 2))
    assert state.op is Ops.AFTER and state.shape == (2, 2) and state.device == "CPU"
    assert Tensor(state).tolist() == [[3.0, 3.0], [3.0, 3.0]]


def test_put_writes_in_order_or_combines() -> None:
    for combine, wanted in ((None, 7.0), (Ops.ADD, 10.0), (Ops.MUL, 21.0 * 0), (Ops.MAX, 7.0)):
        zeros = new_state(UOp.const(dtypes.float32, 0.0), "CPU", (3,))
        after = put(zeros, (indices(1, 1),), (0,), values(3.0, 7.0), combine)
        assert Tensor(after).tolist() == [0.0, wanted, 0.0]


def test_several_axes_and_the_rest_of_them() -> None:
    zeros = new_state(UOp.const(dtypes.float32, 0.0), "CPU", (2, 3, 2))
    after = put(zeros, (indices(0, 1), indices(2, -1)), (0, 1), UOp.const(dtypes.float32, 1.0))
    assert Tensor(after).sum((0, 2)).tolist() == [0.0, 0.0, 4.0]


def test_an_index_that_an_axis_does_not_change_is_stored() -> None:
    zeros = new_state(UOp.const(dtypes.float32, 0.0), "CPU", (3,))
    one = indices(1).expand((4,))
    after = put(zeros, (one,), (0,), UOp.const(dtypes.float32, 1.0), Ops.ADD)
    place = after.src[1].src[0]
    assert place.src[1].op is Ops.CONTIGUOUS
    assert Tensor(after).tolist() == [0.0, 4.0, 0.0]
    plain = put(zeros, (indices(1, 2),), (0,), UOp.const(dtypes.float32, 1.0), Ops.ADD)
    assert plain.src[1].src[0].src[1].op is not Ops.CONTIGUOUS


def test_symbolic_shapes_get_storage_for_the_most_they_can_be() -> None:
    count = Variable("count", 1, 10)
    storage = new_storage("CPU", (count, 2), dtypes.float32)
    assert storage.shape == (count, 2) and storage.base.arg.size == 20


def test_flat_index_wraps_and_keeps_outside_outside() -> None:
    flat = flat_index((indices(0, 1, -1, 2), indices(0, -1, 1, 0)), (2, 3))
    assert Tensor(flat).tolist() == [0, 5, 4, 6]
