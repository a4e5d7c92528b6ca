"""Order by counting digits, on a machine that counts them in groups, and on one that does not."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor, dtypes
from weft.uop import ranks
from weft.uop.node import UOp

random = np.random.default_rng(2)


def storage(device: str) -> ranks.NewStorage:
    return lambda size, dtype: UOp.new_buffer(device, size, dtype)


@pytest.mark.parametrize("device", ["CPU", "PYTHON:sm_90"])
@pytest.mark.parametrize("bits", [5, 11, 40])
def test_places_in_order(device: str, bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranks, "BLOCK", 128)
    dtype = dtypes.uint64 if bits > 32 else dtypes.uint32
    keys = random.integers(0, 1 << bits, (2, 350)) & ~np.int64(3 << (bits - 3))
    given = Tensor(keys, device=device).cast(dtype).contiguous().realize()
    found = Tensor._from_uop(ranks.places_in_order(given.uop, bits, storage(device)))
    np.testing.assert_array_equal(found.numpy(), np.argsort(keys, 1, kind="stable"))


@pytest.mark.parametrize("count", [3, 300, 700])
def test_prefixes_of_rows(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("UNIT", 128), ("AT_ONCE", 256), ("SCANNED", 128)):
        monkeypatch.setattr(ranks, name, size)
    rows = random.integers(-9, 9, (3, count)).astype(np.int32)
    given = Tensor(rows, device="PYTHON:sm_90").realize()
    found = Tensor._from_uop(ranks.prefixes(given.uop))
    np.testing.assert_array_equal(found.numpy(), np.cumsum(rows, 1))


@pytest.mark.parametrize("count", [1000, 1024])
def test_blocks_in_order_first(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many keys the words of a block are moved before they are written."""
    for name, size in (("LONG", 1 << 10), ("LONG_BLOCK", 256), ("LEAST_BLOCKS", 3)):
        monkeypatch.setattr(ranks, name, size)
    assert ranks.block_size(2, count) == 256
    keys = random.integers(0, 1 << 11, (2, count))
    given = Tensor(keys, device="PYTHON:sm_90").cast(dtypes.uint32).contiguous().realize()
    found = ranks.places_in_order(given.uop, 11, storage("PYTHON:sm_90"))
    order = Tensor._from_uop(found).numpy()
    np.testing.assert_array_equal(order, np.argsort(keys, 1, kind="stable"))


def test_blocks() -> None:
    assert ranks.block_size(1, 1 << 12) == ranks.BLOCK
    assert ranks.block_size(1 << 12, 1 << 12) == ranks.BLOCK
    assert ranks.block_size(1, 1 << 24) == ranks.LONG_BLOCK
