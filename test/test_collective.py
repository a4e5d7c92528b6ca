"""Collectives between devices of one process; between processes: test/runtime/test_ops_mpi.py."""

from __future__ import annotations

import numpy as np
import pytest

from weft.collective import InProcess
from weft.device import Buffer
from weft.dtype import dtypes
from weft.engine.add_up import add_up
from weft.errors import ArgumentError

COUNT = 3


def memories(data: np.ndarray) -> list[Buffer]:
    """A row on each device."""
    return [
        Buffer(f"CPU:{i + 1}", len(row), dtypes.float32, initial_value=row.tobytes())
        for i, row in enumerate(data)
    ]


def numbers(size: int) -> np.ndarray:
    return np.random.default_rng(size).standard_normal((COUNT, size)).astype(np.float32)


@pytest.mark.parametrize("size", [0, 2, 7, 1000])
def test_an_all_reduce_adds_in_the_order_of_the_places(size: int) -> None:
    data = numbers(size)
    values = memories(data)
    InProcess(COUNT).all_reduce(values, add_up)
    expected = (data[0] + data[1]) + data[2]
    for value in values:
        assert np.array_equal(value.numpy(), expected)


def test_a_reduce_scatter_leaves_the_other_pieces() -> None:
    data = numbers(6)
    values = memories(data)
    InProcess(COUNT).reduce_scatter(values, add_up)
    expected = data.copy()
    for i in range(COUNT):
        expected[i, 2 * i : 2 * i + 2] = data[:, 2 * i : 2 * i + 2].sum(0)
    for value, row in zip(values, expected, strict=True):
        np.testing.assert_allclose(value.numpy(), row, rtol=1e-6)


def test_all_to_all_all_gather_and_one_message() -> None:
    group = InProcess(COUNT)
    data = numbers(6)
    sources, targets = memories(data), memories(np.zeros_like(data))
    group.all_to_all(targets, sources)
    expected = data.reshape(COUNT, COUNT, 2).transpose(1, 0, 2).reshape(COUNT, 6)
    assert np.array_equal([target.numpy() for target in targets], expected)
    wide = memories(np.zeros((COUNT, 18), np.float32))
    group.all_gather(wide, sources)
    for value in wide:
        assert np.array_equal(value.numpy(), data.reshape(-1))
    group.send(sources[2], targets[0], 2, 0)
    assert np.array_equal(targets[0].numpy(), data[2])
    group.barrier()


def test_a_message_that_does_not_fit_is_refused() -> None:
    first, second = memories(numbers(4))[0], memories(numbers(5))[1]
    with pytest.raises(ArgumentError, match="16 bytes from place 0 to 20 bytes of place 1"):
        InProcess(COUNT).send(first, second, 0, 1)
