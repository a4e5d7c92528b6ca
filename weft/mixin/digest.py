"""Hashes of the bytes of tensors: keccak and hash.

In: tensors of bytes. Out: digests as bytes, the same on every device as the standard's.
Sits above the engine, one of the Tensor families.
Invariant: rows are hashed side by side, the blocks of a row one after another. A round reads its
constant from memory, so that all rounds run the same kernels.
"""

from __future__ import annotations

from typing import Any, Self

from weft.dtype import dtypes, strong_dtype
from weft.errors import ArgumentError
from weft.helpers import ceildiv, prod
from weft.mixin.check import described, whole_numbers
from weft.mixin.decompose import DecomposeMixin
from weft.mixin.movement import is_int

# name -> bytes of a block, what is written behind the message, bytes of the digest
_KINDS: dict[str, tuple[int, int, int]] = {
    "sha3_224": (144, 0x06, 28),
    "sha3_256": (136, 0x06, 32),
    "sha3_384": (104, 0x06, 48),
    "sha3_512": (72, 0x06, 64),
    "shake_128": (168, 0x1F, 16),
    "shake_256": (136, 0x1F, 32),
}
_LANES = 25
_ROUNDS = 24
# what `hash` digests at once: chunks of one block side by side, then their digests as a message of
# their own
_CHUNK = 160
_DIGEST = 16


def _rotations() -> tuple[list[int], list[int]]:
    """For each lane after a round's step rho and pi: the lane it comes from, its rotation."""
    source, amount = [0] * _LANES, [0] * _LANES
    x, y = 1, 0
    for step in range(_ROUNDS):
        target_x, target_y = y, (2 * x + 3 * y) % 5
        source[target_x + 5 * target_y] = x + 5 * y
        amount[target_x + 5 * target_y] = (step + 1) * (step + 2) // 2 % 64
        x, y = target_x, target_y
    return source, amount


def _round_constants() -> list[int]:
    """From the bits of a linear feedback shift register, as the standard has it."""
    constants = []
    register = 1
    for _ in range(_ROUNDS):
        constant = 0
        for power in range(7):
            if register & 1:
                constant |= 1 << ((1 << power) - 1)
            register = (register << 1) ^ (0x171 if register & 0x80 else 0)
        constants.append(constant)
    return constants


class DigestMixin(DecomposeMixin):
    """Methods on bytes."""

    __slots__ = ()

    def keccak(self, cfg: str | tuple[int, int, int] = "sha3_256") -> Self:
        """The SHA-3 digest of the bytes of the last axis, as uint8.

        `cfg` is "sha3_224", "sha3_256", "sha3_384", "sha3_512", "shake_128", "shake_256", or the
        bytes of a block, the byte behind the message and the bytes of the digest.

        >>> bytes(Tensor(b"abc").keccak().tolist()).hex()[:16]
        '3a985da74fe225b2'
        """
        if isinstance(cfg, str) and cfg not in _KINDS:
            named = ", ".join(f'"{name}"' for name in _KINDS)
            raise ArgumentError(f"keccak has {named}, found {cfg!r}")
        if not isinstance(cfg, str) and (not isinstance(cfg, (tuple, list)) or len(cfg) != 3):
            raise ArgumentError(
                "keccak takes a name or three ints (block, suffix and digest), found "
                f"{described(cfg)}"
            )
        numbers = _KINDS[cfg] if isinstance(cfg, str) else whole_numbers("cfg", cfg)
        rate, suffix, size = numbers
        if not 0 < rate < 200 or rate % 8 or size < 1:
            raise ArgumentError(
                f"keccak takes blocks of a multiple of 8 bytes below 200, found {rate}, and a "
                f"digest of at least 1 byte, found {size}"
            )
        data = self._as_bytes()
        kept = data.shape[:-1]
        data = data.reshape((prod(kept), data.shape[-1]))
        blocks = data._padded_message(rate, suffix)
        state = self._constant_lanes(0).expand((data.shape[0], _LANES))
        tables = self._keccak_tables(data.device)
        for number in range(blocks.shape[1]):
            block = blocks._slice(1, number, number + 1).squeeze(1)
            state = (state ^ block).contiguous()._keccak_rounds(tables)
        parts = [state._lane_bytes(rate)]
        for _ in range(1, ceildiv(size, rate)):
            state = state._keccak_rounds(tables)
            parts.append(state._lane_bytes(rate))
        digest = parts[0].cat(*parts[1:], dim=1) if len(parts) > 1 else parts[0]
        return digest._slice(1, 0, size).reshape((*kept, size))

    def hash(self) -> Self:
        """16 bytes that are almost surely others for other values, shapes of one length excepted.

        >>> Tensor([1, 2, 3]).hash().shape
        (16,)
        """
        data = self._as_bytes().flatten()
        length = list(int(data.shape[0]).to_bytes(8, "little"))
        while data.shape[0] > _CHUNK:
            chunks = ceildiv(data.shape[0], _CHUNK)
            filled = data._pad_zeros([(0, chunks * _CHUNK - data.shape[0])])
            digests = filled.reshape((chunks, _CHUNK)).contiguous().keccak("shake_128")
            data = digests._slice(1, 0, _DIGEST).flatten().contiguous()
        # zeros that filled the last chunk are told from zeros of the data
        ending = type(self)(length, dtype=dtypes.uint8, device=data.device)
        return data.cat(ending).keccak("shake_128")._slice(0, 0, _DIGEST)

    # ------------------------------------------------------------ messages
    def _as_bytes(self) -> Self:
        if not all(is_int(size) for size in self.shape):
            raise ArgumentError(f"a digest is of known sizes, found {self.shape}")
        value = self.cast(strong_dtype(self.dtype))
        value = value.reshape((1,)) if value.ndim == 0 else value
        if value.dtype is dtypes.bool:
            return value.cast(dtypes.uint8)
        return value.bitcast(dtypes.uint8)

    def _padded_message(self, rate: int, suffix: int) -> Self:
        """Rows of bytes as (row, block, lane): the suffix behind the message, then zeros, then a
        last bit."""
        rows, length = self.shape
        blocks = length // rate + 1
        whole = self._pad_zeros([(0, 0), (0, blocks * rate - length)])
        places = self._iota(blocks * rate)
        ending = places.eq(length).where(suffix, 0) | places.eq(blocks * rate - 1).where(0x80, 0)
        whole = whole | ending.cast(dtypes.uint8)
        lanes = whole.reshape((rows, blocks, rate)).bitcast(dtypes.uint64)
        return lanes._pad_zeros([(0, 0), (0, 0), (0, _LANES - rate // 8)]).contiguous()

    def _lane_bytes(self, rate: int) -> Self:
        return self.bitcast(dtypes.uint8)._slice(1, 0, rate).contiguous()

    def _constant_lanes(self, value: int) -> Self:
        return self._iota(1).reshape((1, 1)).cast(dtypes.uint64) * 0 + value

    def _keccak_tables(self, device: Any) -> tuple[Self, Self, Self]:
        """Where lanes come from, how far they turn, and the constants of the rounds."""
        source, amount = _rotations()
        make = type(self)
        return (
            make(source, dtype=dtypes.int32, device=device),
            make(amount, dtype=dtypes.uint64, device=device),
            make(_round_constants(), dtype=dtypes.uint64, device=device),
        )

    # ------------------------------------------------------------ the permutation
    def _keccak_rounds(self, tables: tuple[Any, Any, Any]) -> Self:
        """24 rounds over (row, lane)."""
        source, amount, constants = tables
        rows = self.shape[0]
        state = self
        is_first = self._iota(_LANES).eq(0)
        for number in range(_ROUNDS):
            square = state.reshape((rows, 5, 5))
            columns = [square._slice(1, y, y + 1) for y in range(5)]
            parity = columns[0] ^ columns[1] ^ columns[2] ^ columns[3] ^ columns[4]
            change = parity.roll(1, 2) ^ parity.roll(-1, 2)._turned(1)
            mixed = (square ^ change).reshape((rows, _LANES)).contiguous()
            turned = mixed._take({1: source})._turned(amount)
            square = turned.reshape((rows, 5, 5))
            chosen = square ^ (square.roll(-1, 2).bitwise_not() & square.roll(-2, 2))
            constant = constants._slice(0, number, number + 1)
            flat = chosen.reshape((rows, _LANES))
            state = (flat ^ is_first.where(constant, constant._constant(0))).contiguous()
        return state

    def _turned(self, amount: Any) -> Self:
        """The bits of lanes rotated to the left; what is shifted by 64 is gone."""
        back = amount * -1 + 64 if isinstance(amount, DigestMixin) else 64 - amount
        return (self << amount) | (self >> back)
