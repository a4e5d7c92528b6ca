"""The block formats of GGUF, as expressions that turn blocks of bytes into float32.

In: a Tensor of uint8, one row per block. Out: a lazy Tensor of float32, one row per block.
Used by `gguf`. Invariant: an expression reads the raw bytes and nothing else, so the weights stay
in memory as small as they are in the file and are unpacked inside the kernels that use them.

All numbers of a block are little-endian. A block of 32 (Q*_0, Q*_1) has one scale; a block of 256
(Q*_K) has a scale for all and small ones for parts of it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from weft.dtype import DType, dtypes
from weft.tensor import Tensor


@dataclass(frozen=True)
class BlockFormat:
    """How many values a block holds, in how many bytes, and what they mean."""

    name: str
    count: int
    nbytes: int
    dequantise: Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class PlainFormat:
    """Values that are stored as they are."""

    name: str
    dtype: DType


def _half(blocks: Tensor, start: int) -> Tensor:
    """The float16 at a byte of each block, as float32, shape (blocks, 1)."""
    low = blocks[:, start : start + 1].cast(dtypes.uint16)
    high = blocks[:, start + 1 : start + 2].cast(dtypes.uint16)
    return (low | (high << 8)).bitcast(dtypes.float16).cast(dtypes.float32)


def _signed(values: Tensor) -> Tensor:
    return values.bitcast(dtypes.int8).cast(dtypes.float32)


def _fields(values: Tensor, bits: int, count: int) -> Tensor:
    """Fields of each byte, lowest first: (..., n) -> (..., count, n)."""
    shifts = (Tensor.arange(count, dtype=dtypes.uint8) * bits).reshape(count, 1)
    return (values.unsqueeze(-2) >> shifts) & ((1 << bits) - 1)


def _nibbles(values: Tensor) -> Tensor:
    """The low halves of all bytes, then the high halves: (n, b) -> (n, 2 * b)."""
    return _fields(values, 4, 2).reshape(values.shape[0], 2 * values.shape[1])


def _fifth_bits(blocks: Tensor, start: int) -> Tensor:
    """One bit for each of 32 values, out of four bytes, at the place of 16."""
    # value v has bit v % 8 of byte v // 8: the fields come byte by byte, lowest bit first
    bits = _fields(blocks[:, start : start + 4].unsqueeze(-1), 1, 8)
    return bits.reshape(blocks.shape[0], 32) << 4


def _q4_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * (_nibbles(blocks[:, 2:]).cast(dtypes.float32) - 8.0)


def _q4_1(blocks: Tensor) -> Tensor:
    values = _nibbles(blocks[:, 4:]).cast(dtypes.float32)
    return _half(blocks, 0) * values + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    values = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _half(blocks, 0) * (values.cast(dtypes.float32) - 16.0)


def _q5_1(blocks: Tensor) -> Tensor:
    values = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return _half(blocks, 0) * values.cast(dtypes.float32) + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _signed(blocks[:, 2:])


def _scales_and_minima(packed: Tensor) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of 6 bits each, packed in 12 bytes: two of shape (n, 8, 1).

    Bytes 0-3 hold scales 0-3, bytes 4-7 minima 0-3; the two high bits of these are the high bits
    of 4-7, whose low bits are the halves of bytes 8-11.
    """
    first, second, third = packed[:, 0:4], packed[:, 4:8], packed[:, 8:12]
    scales = (first & 63).cat((third & 15) | ((first >> 6) << 4), dim=1)
    minima = (second & 63).cat((third >> 4) | ((second >> 6) << 4), dim=1)
    float32 = dtypes.float32
    return scales.cast(float32).unsqueeze(-1), minima.cast(float32).unsqueeze(-1)


def _scaled_parts(blocks: Tensor, values: Tensor) -> Tensor:
    """values (n, 8, 32) with the scales and minima at the front of a Q4_K or Q5_K block."""
    scales, minima = _scales_and_minima(blocks[:, 4:16])
    scale = _half(blocks, 0).unsqueeze(-1) * scales
    minimum = _half(blocks, 2).unsqueeze(-1) * minima
    return (scale * values.cast(dtypes.float32) - minimum).reshape(blocks.shape[0], 256)


def _q4_k(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    # 32 bytes hold 64 values: the low halves come first, then the high ones
    values = _fields(blocks[:, 16:144].reshape(count, 4, 32), 4, 2)
    return _scaled_parts(blocks, values.reshape(count, 8, 32))


def _q5_k(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    low = _fields(blocks[:, 48:176].reshape(count, 4, 32), 4, 2).reshape(count, 8, 32)
    high = _fields(blocks[:, 16:48], 1, 8)
    return _scaled_parts(blocks, low | (high << 4))


def _q6_k(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    # two halves of 128 values; in each, low bits from 64 bytes and high bits from 32
    low = _fields(blocks[:, 0:128].reshape(count, 2, 64), 4, 2).reshape(count, 2, 4, 32)
    high = _fields(blocks[:, 128:192].reshape(count, 2, 32), 2, 4)
    values = (low | (high << 4)).cast(dtypes.float32) - 32.0
    scales = _signed(blocks[:, 192:208]).unsqueeze(-1)
    scale = _half(blocks, 208).unsqueeze(-1) * scales
    return (scale * values.reshape(count, 16, 16)).reshape(count, 256)


# by the number that a GGUF file names them with
FORMATS: dict[int, BlockFormat | PlainFormat] = {
    0: PlainFormat("F32", dtypes.float32),
    1: PlainFormat("F16", dtypes.float16),
    2: BlockFormat("Q4_0", 32, 18, _q4_0),
    3: BlockFormat("Q4_1", 32, 20, _q4_1),
    6: BlockFormat("Q5_0", 32, 22, _q5_0),
    7: BlockFormat("Q5_1", 32, 24, _q5_1),
    8: BlockFormat("Q8_0", 32, 34, _q8_0),
    12: BlockFormat("Q4_K", 256, 144, _q4_k),
    13: BlockFormat("Q5_K", 256, 176, _q5_k),
    14: BlockFormat("Q6_K", 256, 210, _q6_k),
    24: PlainFormat("I8", dtypes.int8),
    25: PlainFormat("I16", dtypes.int16),
    26: PlainFormat("I32", dtypes.int32),
    27: PlainFormat("I64", dtypes.int64),
    28: PlainFormat("F64", dtypes.float64),
    30: PlainFormat("BF16", dtypes.bfloat16),
}
