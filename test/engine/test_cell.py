"""Cells: who holds a memory, and who may write to it in place."""

from __future__ import annotations

from weft import Tensor
from weft.engine.cell import Cell


def storage(tensor: Tensor) -> object:
    return tensor.realize()._cell.storage


def test_memory_is_shared_while_two_cells_hold_it() -> None:
    a = Tensor([1.0, 2.0]).realize()
    held = a._cell.storage
    assert held is not None and not Cell.is_shared(held)
    b = Tensor._from_uop(a.uop)
    assert Cell.is_shared(held) and Cell.owner_of(held) is a._cell
    assert a._cell.own_storage is None and b._cell.own_storage is None
    del b
    assert not Cell.is_shared(held) and a._cell.own_storage is held


def test_a_cell_that_outlives_the_first_holder_owns_the_memory() -> None:
    a = Tensor([1.0, 2.0]).realize()
    held = a._cell.storage
    assert held is not None
    b = Tensor._from_uop(a.uop)
    del a
    assert Cell.owner_of(held) is b._cell and b._cell.own_storage is held


def test_a_look_at_a_tensor_does_not_move_it_when_it_is_written() -> None:
    a = Tensor([1.0, 2.0]).realize()
    held = storage(a)
    assert Tensor._from_uop(a.uop).sum().item() == 3.0
    a += 1
    assert storage(a) is held and a.tolist() == [2.0, 3.0]


def test_of_two_holders_the_one_that_is_written_moves_away() -> None:
    a = Tensor([1.0, 2.0]).realize()
    held = storage(a)
    b = Tensor._from_uop(a.uop)
    pending = b * 10
    b += 1
    assert storage(b) is not held and storage(a) is held
    assert (a.tolist(), b.tolist(), pending.tolist()) == ([1.0, 2.0], [2.0, 3.0], [10.0, 20.0])
    a += 5
    assert storage(a) is held and (a.tolist(), b.tolist()) == ([6.0, 7.0], [2.0, 3.0])
