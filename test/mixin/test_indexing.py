"""Indexing against NumPy: reading and writing, basic and with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check, random
from test.optional import optional
from weft import Tensor, Variable, dtypes
from weft.errors import DTypeError, IndexingError

torch = optional("torch")

DATA = np.arange(60, dtype=np.int32).reshape(3, 4, 5)

BASIC: list[Any] = [
    0,
    -1,
    (1, 2),
    (1, 2, -3),
    slice(1, 3),
    slice(None, None, 2),
    slice(None, None, -1),
    slice(2, None, -2),
    slice(5, 1),
    slice(0, 0),
    (slice(None), 1),
    (Ellipsis, 2),
    (0, Ellipsis),
    (slice(1, None), Ellipsis, slice(None, None, -2)),
    (None, 0),
    (slice(None), None, slice(1, 3)),
    (Ellipsis, None),
    (slice(-2, None), slice(None, -1), slice(1, -1, 2)),
]


@pytest.mark.parametrize("index", BASIC, ids=str)
def test_basic_read(index: Any) -> None:
    check(Tensor(DATA)[index], DATA[index])
    check((Tensor(DATA) * 2)[index], (DATA * 2)[index])


@pytest.mark.parametrize("index", BASIC, ids=str)
def test_basic_write(index: Any) -> None:
    for start in (Tensor(DATA), Tensor(DATA) + 0, Tensor(DATA).realize()):
        wanted = DATA.copy()
        wanted[index] = -1
        start[index] = -1
        check(start, wanted)


def test_write_of_a_tensor_through_a_view() -> None:
    tensor = Tensor(DATA).realize()
    part = tensor[1].T
    tensor[1, :, 2:4] = Tensor(np.full((4, 2), 9, np.int32))
    wanted = DATA.copy()
    wanted[1, :, 2:4] = 9
    check(tensor, wanted)
    check(part, wanted[1].T)


ADVANCED: list[Any] = [
    [0, 2],
    ([0, 2], [1, 3]),
    (slice(None), [1, 0, 1]),
    ([[0], [2]], [[1, 2, 3]]),
    (0, [1, 3], slice(1, 4)),
    ([0, 1], slice(None), [2, 3]),
    (slice(None), [-1, 0]),
    (np.array([1]), Ellipsis, np.array([2, 3])),
]


@pytest.mark.parametrize("index", ADVANCED, ids=str)
def test_tensor_indices_read(index: Any) -> None:
    # an int beside lists is an advanced index in NumPy; here it is a view, as in PyTorch
    wanted = torch.tensor(DATA)[index].numpy()
    check(Tensor(DATA)[index], wanted)


@pytest.mark.parametrize("index", [[0, 2], (slice(None), [1, 0]), ([0, 2], [1, 3])], ids=str)
def test_tensor_indices_write(index: Any) -> None:
    tensor, wanted = Tensor(DATA).realize(), DATA.copy()
    tensor[index] = -7
    wanted[index] = -7
    check(tensor, wanted)


def test_write_last_one_wins() -> None:
    tensor = Tensor.zeros(3, dtype=dtypes.int32)
    tensor[Tensor([1, 1, 0])] = Tensor([5, 6, 7])
    assert tensor.tolist() == [7, 6, 0]


def test_a_slice_between_bound_positions_has_a_known_size() -> None:
    position = Variable("position", 0, 50).bind(7)
    tensor = Tensor(DATA.reshape(12, 5)).realize()
    for index, wanted in [
        (slice(position, position + 1), slice(7, 8)),
        (slice(position - 2, position + 3, 2), slice(5, 10, 2)),
    ]:
        part = tensor[index]
        assert part.shape == DATA.reshape(12, 5)[wanted].shape
        check(part, DATA.reshape(12, 5)[wanted])
    row = tensor[position : position + 1, 1:4]
    assert row.stack(row * 2).shape == (2, 1, 3)
    tensor[position : position + 1] = -1
    check(tensor[7], np.full(5, -1))


def test_masks() -> None:
    tensor = Tensor(DATA).realize()
    check(tensor[tensor > 40], DATA[DATA > 40])
    tensor[tensor > 40] = 0
    wanted = DATA.copy()
    wanted[wanted > 40] = 0
    check(tensor, wanted)
    check(Tensor(DATA).masked_fill(Tensor(DATA) > 5, 1), np.where(DATA > 5, 1, DATA))
    check(Tensor(DATA).masked_select(Tensor(DATA) > 50), DATA[DATA > 50])
    check(Tensor([0, 1, 0, 2]).nonzero(), np.argwhere([0, 1, 0, 2]))
    assert Tensor([0, 1, 1]).nonzero(size=4, fill_value=-1).tolist() == [[1], [2], [-1], [-1]]


def test_out_of_range_reads_zero() -> None:
    assert Tensor([1, 2, 3])[Tensor([5, -4, -1])].tolist() == [0, 0, 3]


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_gather(axis: int) -> None:
    data = random(3, 4, 5)
    index = np.random.default_rng(0).integers(0, 3, (2, 3, 4)).astype(np.int32)
    wanted = torch.tensor(data).gather(axis, torch.tensor(index).long())
    check(Tensor(data).gather(axis, Tensor(index)), wanted.numpy())


@pytest.mark.parametrize("reduce", [None, "sum", "prod", "mean", "amax", "amin"])
def test_scatter(reduce: str | None) -> None:
    data, source = random(3, 5), random(2, 4, seed=1)
    index = np.array([[0, 2, 1, 4], [3, 3, 0, 1]], dtype=np.int32)
    theirs = torch.tensor(data, dtype=torch.float64)
    places, values = torch.tensor(index).long(), torch.tensor(source, dtype=torch.float64)
    if reduce is None:
        index[1, 1] = 2
        places = torch.tensor(index).long()
        check(
            Tensor(data).scatter(1, Tensor(index), Tensor(source)),
            theirs.scatter(1, places, values).numpy(),
        )
        return
    for include in (True, False):
        wanted = theirs.scatter_reduce(1, places, values, reduce, include_self=include)
        found = Tensor(data).scatter_reduce(
            1, Tensor(index), Tensor(source), reduce, include_self=include
        )
        check(found, wanted.numpy())


def test_wrong_indices() -> None:
    tensor = Tensor(DATA)
    for index, text in [
        (3, "index 3 is outside axis 0"),
        ((0, 0, 0, 0), "too many indices"),
        ((Ellipsis, Ellipsis), "at most one"),
        (1.5, "is no index"),
        ("a", "is no index"),
        (slice(None, None, 0), "not 0"),
    ]:
        with pytest.raises(IndexingError, match=text):
            tensor[index]
    with pytest.raises(IndexingError, match="does not fit"):
        tensor[Tensor([True, False])]
    with pytest.raises(DTypeError, match="ints as index"):
        tensor.gather(0, Tensor([[[1.0]]]))


def test_rows_beside_other_parts_of_the_same_rows() -> None:
    """One index, read under several conditions in one kernel: each part has its own."""
    table, rows = DATA.reshape(15, 4), np.array([3, 14, 1])
    found = Tensor(table)[Tensor(rows)]
    halves = Tensor.cat(found[:, 2:], -found[:, :2], dim=1)
    check(halves, np.concatenate([table[rows][:, 2:], -table[rows][:, :2]], axis=1))
    padded = found.pad(((0, 0), (2, 0))) + found.pad(((0, 0), (0, 2)))
    wanted = np.pad(table[rows], ((0, 0), (2, 0))) + np.pad(table[rows], ((0, 0), (0, 2)))
    check(padded, wanted)


def test_one_row_stacked_and_written_after() -> None:
    row = (Tensor(np.int32(-2)).realize() ^ -3) % 4
    found = Tensor(DATA)[:, row]
    stacked = found.stack(found, found, dim=1)
    found[:, :] = 1
    Tensor.realize(row, found, stacked)
    check(stacked, np.stack([DATA[:, 3]] * 3, axis=1))


# ------------------------------------------------------------ lists of indices
def test_a_list_of_more_than_numbers_is_one_index_for_each_axis() -> None:
    data = np.arange(24).reshape(2, 3, 4)
    x = Tensor(data)
    for index in (
        [[0, 1], [2, 0]],
        [[0, 1], [2]],
        [slice(0, 1), 1],
        [[0, 1], slice(None), [3, 2]],
        [..., 0],
        [None, 1],
        [[[0, 1], [1, 0]]],
    ):
        expected = data[tuple(index)]
        assert x[index].shape == expected.shape
        np.testing.assert_array_equal(x[index].numpy(), expected)
    assert x[[1, Tensor(2)]].tolist() == data[1, 2].tolist()
    assert x[[Tensor([0, 1]), Tensor([1, 2])]].tolist() == data[[0, 1], [1, 2]].tolist()
    np.testing.assert_array_equal(x[[1, 0]].numpy(), data[[1, 0]])
    x[[0, slice(1, 3)]] = 7
    data[0, 1:3] = 7
    np.testing.assert_array_equal(x.numpy(), data)
