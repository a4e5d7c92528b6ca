"""Cells: who holds a memory, and who may write to it in place."""

from __future__ import annotations

import gc

from weft import Tensor
from weft.engine.cell import Cell
from weft.helpers import GlobalCounters


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


# ------------------------------------------------------------ what a tensor keeps alive
COUNT = 1 << 16
BYTES = 4 * COUNT


def ones() -> Tensor:
    return Tensor.ones(COUNT).contiguous().realize()


def used() -> int:
    gc.collect()
    return GlobalCounters.mem_used


def test_a_computed_tensor_lets_go_of_what_it_was_computed_from() -> None:
    before = used()
    a = ones()
    b = a * 2
    assert b.shape == (COUNT,)
    b.realize()
    del a
    assert used() - before == BYTES


def test_a_view_lets_go_of_what_its_storage_was_computed_from() -> None:
    before = used()
    a = ones()
    b = a * 2
    views = [b.reshape(256, -1), b.reshape(256, -1).T, b[3:], b]
    assert [view.shape for view in views] == [(256, 256), (256, 256), (COUNT - 3,), (COUNT,)]
    b.realize()
    del a
    assert used() - before == BYTES
    assert [view.sum().item() for view in views] == [2.0 * COUNT] * 2 + [2.0 * COUNT - 6, 2 * COUNT]


def test_an_assigned_tensor_lets_go_of_the_gradient() -> None:
    before = used()
    weight = ones()
    turned = weight.reshape(256, 256).T
    for _ in range(3):
        gradient = ones()
        weight.assign(weight - gradient * 0.5)
        assert weight.shape == (COUNT,) and turned.shape == (256, 256)
        weight.realize()
        del gradient
    assert used() - before == BYTES
    assert turned[3, 4].item() == -0.5


def test_a_replaced_tensor_lets_go_of_its_memory() -> None:
    before = used()
    weight = ones()
    assert weight.shape == (COUNT,)
    weight.replace(ones() + 1).realize()
    assert used() - before == BYTES


def test_views_that_ended_are_not_remembered() -> None:
    a = ones()
    for _ in range(1000):
        assert a.reshape(256, 256).shape == (256, 256)
    assert len(a._cell._seen_by) < 100
