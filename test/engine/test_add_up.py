"""Sums of memories, by weft's kernels."""

from __future__ import annotations

import numpy as np
import pytest

from weft.device import Buffer
from weft.dtype import dtypes
from weft.engine.add_up import add_up


@pytest.mark.parametrize("place", range(4))
def test_every_place_gets_the_same_bits(place: int) -> None:
    data = np.random.default_rng(0).standard_normal((4, 999)).astype(np.float32)
    parts = [Buffer("CPU", 999, dtypes.float32, initial_value=row.tobytes()) for row in data]
    add_up(parts, place)
    expected = ((data[0] + data[1]) + data[2]) + data[3]
    assert np.array_equal(parts[place].numpy(), expected)
    others = [i for i in range(4) if i != place]
    assert all([np.array_equal(parts[i].numpy(), data[i]) for i in others])


def test_integers_and_nothing() -> None:
    parts = [Buffer("CPU", 3, dtypes.int64, initial_value=bytes(24)) for _ in range(2)]
    add_up(parts, 0)
    assert parts[0].numpy().tolist() == [0, 0, 0]
    empty = [Buffer("CPU", 0, dtypes.int64).allocate() for _ in range(2)]
    add_up(empty, 0)
