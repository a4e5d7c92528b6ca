"""place.py: the storage behind a view, and the state that a STORE writes over."""

from __future__ import annotations

from weft import Tensor
from weft.dtype import dtypes
from weft.schedule.place import is_whole_storage, storage_of, written_state
from weft.uop.node import UOp
from weft.uop.opset import Ops


def test_a_view_of_a_state_leads_to_its_storage() -> None:
    storage = UOp.new_buffer("CPU", 24, dtypes.float32)
    state = storage.after(storage.store(UOp.const(dtypes.float32, 1.0).expand((24,))))
    view = state.reshape((4, 6)).permute((1, 0)).shrink(((0, 2), (0, 2)))
    assert storage_of(view) is storage


def test_a_store_through_a_view_changes_the_state_below() -> None:
    storage = UOp.new_buffer("CPU", 24, dtypes.float32)
    first = storage.after(storage.store(UOp.const(dtypes.float32, 1.0).expand((24,))))
    place = first.reshape((4, 6)).shrink(((1, 2), (0, 6)))
    store = place.store(UOp.const(dtypes.float32, 2.0).expand((1, 6)))
    assert written_state(store) is first


def test_only_reshapes_show_a_storage_whole() -> None:
    storage = UOp.new_buffer("CPU", 24, dtypes.float32)
    assert is_whole_storage(storage.reshape((4, 6)))
    assert not is_whole_storage(storage.reshape((4, 6)).permute((1, 0)))


def test_writes_through_indices_that_may_repeat_run_in_order() -> None:
    x = Tensor.zeros(8).contiguous().realize()
    x[Tensor([1, 1, 3])] = Tensor([1.0, 2.0, 3.0])
    assert x.tolist() == [0.0, 2.0, 0.0, 3.0, 0.0, 0.0, 0.0, 0.0]
    (item,) = [i for i in (x.assign(x + 1)).schedule()]
    assert all(node.op is not Ops.GATHER for node in item.kernel.toposort())
