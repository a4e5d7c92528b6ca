"""Assign and views: storage identity, writes ordered against reads, as NumPy would have it."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from weft import GlobalCounters, Tensor, dtypes


def fresh(*values: float) -> Tensor:
    return Tensor(np.array(values, dtype=np.float32)).realize()


def test_assign_writes_in_place() -> None:
    t = fresh(1, 2, 3)
    before = t.uop.base
    t.assign(t * 2).realize()
    assert t.uop.base is before
    assert t.tolist() == [2, 4, 6]


def test_views_see_an_assign_and_assign_through_views() -> None:
    t = Tensor(np.arange(6, dtype=np.float32)).realize()
    view = t.reshape(2, 3)
    column = view[:, 1]
    t.assign(t + 10)
    assert column.tolist() == [11, 14]
    column.assign(Tensor([0.0, 0.0]))
    assert t.tolist() == [10, 0, 12, 13, 0, 15]
    assert view.tolist() == [[10, 0, 12], [13, 0, 15]]


def test_value_computed_before_an_assign_keeps_the_old_contents() -> None:
    t = fresh(1, 2, 3)
    y = t + 1
    t.assign(t * 10).realize()
    assert y.tolist() == [2, 3, 4]
    assert t.tolist() == [10, 20, 30]


def test_old_and_new_in_one_expression() -> None:
    t = fresh(1, 2, 3)
    y = t + 1
    t.assign(t * 10)
    z = y + t
    assert z.tolist() == [12, 23, 34]
    assert t.tolist() == [10, 20, 30]


def test_swap() -> None:
    a, b = fresh(1, 2), fresh(3, 4)
    old = a + 0
    a.assign(b)
    b.assign(old)
    Tensor.realize(a, b)
    assert a.tolist() == [3, 4]
    assert b.tolist() == [1, 2]


@pytest.mark.parametrize("shift", [1, -1])
def test_overlapping_slices(shift: int) -> None:
    n = np.arange(8, dtype=np.float32)
    t = Tensor(n.copy()).realize()
    if shift > 0:
        t[1:] = t[:-1]
        n[1:] = n[:-1].copy()
    else:
        t[:-1] = t[1:]
        n[:-1] = n[1:].copy()
    assert t.tolist() == n.tolist()


def test_reverse_in_place() -> None:
    t = fresh(1, 2, 3, 4)
    t.assign(t.flip(0)).realize()
    assert t.tolist() == [4, 3, 2, 1]


def test_normalise_in_place() -> None:
    t = fresh(1, 3)
    t.assign(t / t.sum()).realize()
    assert t.tolist() == [0.25, 0.75]


def test_many_assigns_in_a_row() -> None:
    t = fresh(0, 0)
    for i in range(10):
        t.assign(t + i)
    assert t.tolist() == [45, 45]


def test_zeros_have_an_identity() -> None:
    a, b = Tensor.zeros(3), Tensor.zeros(3)
    view = a[1:]
    view.assign(Tensor([5.0, 6.0]))
    assert a.tolist() == [0, 5, 6]
    assert b.tolist() == [0, 0, 0]


def test_assign_to_part_of_a_pending_value() -> None:
    x = fresh(1, 2, 3)
    y = x * 2
    z = x * 2
    y[0:1] = 100
    assert y.tolist() == [100, 4, 6]
    assert z.tolist() == [2, 4, 6]
    assert x.tolist() == [1, 2, 3]


def test_setitem_with_step_and_reversed() -> None:
    n = np.arange(10, dtype=np.float32)
    t = Tensor(n.copy()).realize()
    t[1::3] = -1
    n[1::3] = -1
    t[::-1][0:2] = Tensor([7.0, 8.0])
    n[::-1][0:2] = [7, 8]
    assert t.tolist() == n.tolist()


def test_in_place_operators() -> None:
    t = fresh(1, 2)
    view = t[0:1]
    t += 5
    t *= 2
    assert t.tolist() == [12, 14]
    assert view.tolist() == [12]


def test_expanded_view_cannot_be_assigned() -> None:
    with pytest.raises(Exception, match="expand"):
        fresh(1).expand(3).assign(Tensor([1.0, 2.0, 3.0]))


def test_pending_chain_survives_several_overwrites() -> None:
    t = fresh(1, 1)
    seen = []
    for _ in range(4):
        seen.append(t * 1)
        t.assign(t + 1).realize()
    assert [s.tolist() for s in seen] == [[1, 1], [2, 2], [3, 3], [4, 4]]


def test_memory_returns_when_tensors_die() -> None:
    gc.collect()
    before = GlobalCounters.mem_used
    t = Tensor(np.ones((64, 64), dtype=np.float32)).realize()
    y = (t @ t).relu().realize()
    assert GlobalCounters.mem_used >= before + 2 * 64 * 64 * 4
    del t, y
    gc.collect()
    assert GlobalCounters.mem_used == before


def test_write_that_happened_is_not_repeated_by_a_younger_graph() -> None:
    x = fresh(0, 0, 0)
    t = x * 1
    t[0:1] = 5
    before = t + 0
    t.realize()
    younger = before + before
    t[1:2] = 1
    assert t.tolist() == [5, 1, 0]
    assert younger.tolist() == [10, 0, 0]


@pytest.mark.parametrize("count", [2, 3])
def test_values_that_each_read_what_the_other_comes_after(count: int) -> None:
    """Each reads one storage as it was and the next as it became: together they form a circle."""
    numbers = [np.arange(4, dtype=np.float32) + 10 * i for i in range(count)]
    storages = [Tensor(n).realize() for n in numbers]
    targets = [Tensor.zeros(4).contiguous().realize() for _ in range(count)]
    before = [storage + 0.5 for storage in storages]
    for i, storage in enumerate(storages):
        storage.assign(storage * (i + 2))
    for i, target in enumerate(targets):
        target.assign(before[i] + storages[(i + 1) % count])
    # nobody else wants them, so they are computed where they are used
    del before
    Tensor.realize(*targets)
    after = [n * (i + 2) for i, n in enumerate(numbers)]
    for i, target in enumerate(targets):
        expected = numbers[i] + 0.5 + after[(i + 1) % count]
        np.testing.assert_array_equal(target.numpy(), expected)
        np.testing.assert_array_equal(storages[i].numpy(), after[i])


# ------------------------------------------------------------ data, which has no dtype of its own
def test_data_is_assigned_in_the_dtype_of_the_storage() -> None:
    x = Tensor([0, 1, 2, 3])
    x[1] = 1.5
    x[2:4] = [7, 8]
    assert x.tolist() == [0, 1, 7, 8] and x.dtype is dtypes.int32
    x[0:2] = np.array([5, 6])
    assert x.tolist() == [5, 6, 7, 8]
    y = Tensor.zeros(3).contiguous()
    y.assign(np.array([1.0, 2.0, 3.0]))
    assert y.tolist() == [1.0, 2.0, 3.0] and y.dtype is dtypes.float32
    y.assign([4, 5, 6])
    assert y.tolist() == [4.0, 5.0, 6.0]
    y[Tensor([True, False, True])] = [8, 9]
    assert y.tolist() == [8.0, 5.0, 9.0]


def test_memory_that_was_never_written_can_be_read() -> None:
    assert len(Tensor.empty(4).tolist()) == 4
    assert Tensor.empty(2, 3).numpy().shape == (2, 3)
