"""keccak against Python's hashlib; hash tells values apart."""

from __future__ import annotations

import hashlib

import numpy as np
import pytest

from weft import Tensor
from weft.errors import ArgumentError


def data(count: int) -> bytes:
    return bytes(np.random.default_rng(count).integers(0, 256, count).astype(np.uint8))


@pytest.mark.parametrize("kind", ["sha3_224", "sha3_256", "sha3_384", "sha3_512"])
def test_agrees_with_the_standard(kind: str) -> None:
    for count in (0, 3):
        found = Tensor(np.frombuffer(data(count), np.uint8)).keccak(kind)
        assert bytes(found.tolist()) == hashlib.new(kind, data(count)).digest()


@pytest.mark.parametrize("count", [135, 136, 137, 300])
def test_messages_of_several_blocks(count: int) -> None:
    found = Tensor(np.frombuffer(data(count), np.uint8)).keccak()
    assert bytes(found.tolist()) == hashlib.sha3_256(data(count)).digest()


def test_digests_of_several_blocks() -> None:
    found = Tensor(np.frombuffer(data(5), np.uint8)).keccak((168, 0x1F, 200))
    assert bytes(found.tolist()) == hashlib.shake_128(data(5)).digest(200)


def test_rows_are_hashed_side_by_side() -> None:
    rows = np.frombuffer(data(60), np.uint8).reshape(2, 3, 10)
    found = Tensor(rows).keccak().numpy()
    assert found.shape == (2, 3, 32)
    for place in np.ndindex(2, 3):
        assert found[place].tobytes() == hashlib.sha3_256(rows[place].tobytes()).digest()


def test_other_dtypes_are_their_bytes() -> None:
    array = np.arange(5, dtype=np.float32)
    assert bytes(Tensor(array).keccak().tolist()) == hashlib.sha3_256(array.tobytes()).digest()


def test_hash_tells_values_apart() -> None:
    array = np.arange(100, dtype=np.float32)
    other = array.copy()
    other[57] += 1
    found = [bytes(Tensor(a).hash().tolist()) for a in (array, array.copy(), other, array[:99])]
    assert found[0] == found[1] and len(set(found)) == 3 and len(found[0]) == 16
    zeros = [bytes(Tensor(np.zeros(n, np.uint8)).hash().tolist()) for n in (160, 161)]
    assert zeros[0] != zeros[1]


def test_errors() -> None:
    with pytest.raises(ArgumentError, match="sha3_256.*found 'md5'"):
        Tensor(b"abc").keccak("md5")
    with pytest.raises(ArgumentError, match="multiple of 8 bytes"):
        Tensor(b"abc").keccak((7, 6, 32))
