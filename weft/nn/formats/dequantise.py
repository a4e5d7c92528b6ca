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
    """How many values a block holds, in how many bytes, and what they mean.

    `arrange` puts the bytes of each block in the order in which they are needed, where that is
    another one; `dequantise_arranged` reads them so.
    """

    name: str
    count: int
    nbytes: int
    dequantise: Callable[[Tensor], Tensor]
    arrange: Callable[[Tensor], Tensor] | None = None
    dequantise_arranged: Callable[[Tensor], Tensor] | None = None


@dataclass(frozen=True)
class PlainFormat:
    """Values that are stored as they are."""

    name: str
    dtype: DType


def _half(blocks: Tensor, start: int) -> Tensor:
    """The float16 at a byte of each block, as float32, shape (blocks, 1)."""
    return _joined(blocks, start, dtypes.uint16).bitcast(dtypes.float16).cast(dtypes.float32)


def _joined(blocks: Tensor, start: int, dtype: DType) -> Tensor:
    """The number that the bytes from `start` on make up, shape (blocks, 1)."""
    parts = [blocks[:, i : i + 1].cast(dtype) for i in range(start, start + dtype.itemsize)]
    number = parts[0]
    for place, part in enumerate(parts[1:], 1):
        number = number | (part << (8 * place))
    return number


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
    """One bit for each of 32 values, out of a word of 32 bits, at the place of 16."""
    word = _joined(blocks, start, dtypes.uint32).unsqueeze(-1)
    # as many values in a row as share their bytes with others, see _nibbles
    places = Tensor.arange(32, dtype=dtypes.uint32).reshape(2, 16)
    return _sixteen_if(word, places).reshape(blocks.shape[0], 32)


def _sixteen_if(values: Tensor, places: Tensor) -> Tensor:
    """16 where the bit at a place is set, else 0."""
    is_set = (values & (places.const_like(1) << places)) != 0
    return is_set.where(Tensor(16, dtype=dtypes.uint8), 0)


def _centred(values: Tensor, middle: int, scale: Tensor) -> Tensor:
    """(values - middle) * scale, as one product and sum each; of so few bits both are exact."""
    return values.cast(dtypes.float32) * scale + scale * -float(middle)


def _q4_0(blocks: Tensor) -> Tensor:
    return _centred(_nibbles(blocks[:, 2:]), 8, _half(blocks, 0))


def _q4_1(blocks: Tensor) -> Tensor:
    values = _nibbles(blocks[:, 4:]).cast(dtypes.float32)
    return _half(blocks, 0) * values + _half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    values = _nibbles(blocks[:, 6:]) | _fifth_bits(blocks, 2)
    return _centred(values, 16, _half(blocks, 0))


def _q5_1(blocks: Tensor) -> Tensor:
    values = _nibbles(blocks[:, 8:]) | _fifth_bits(blocks, 4)
    return _half(blocks, 0) * values.cast(dtypes.float32) + _half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return _half(blocks, 0) * _signed(blocks[:, 2:])


def _scales_and_minima(blocks: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of 6 bits each, packed in 12 bytes: two of shape (n, 8, 1).

    Bytes 0-3 hold scales 0-3, bytes 4-7 minima 0-3; the two high bits of these are the high bits
    of 4-7, whose low bits are the halves of bytes 8-11. Four at a time are unpacked in one word.
    """
    first, second, third = (_joined(blocks, start + i, dtypes.uint32) for i in (0, 4, 8))
    low, high, six = 0x0F0F0F0F, 0x30303030, 0x3F3F3F3F
    scales = (first & six, (third & low) | ((first >> 2) & high))
    minima = (second & six, ((third >> 4) & low) | ((second >> 2) & high))
    return _bytes_of(*scales), _bytes_of(*minima)


def _bytes_of(low: Tensor, high: Tensor) -> Tensor:
    """The bytes of two words, lowest first, as float32: (n, 1) each -> (n, 8, 1)."""
    number = Tensor.arange(8, dtype=dtypes.uint32)
    word = (number < 4).where(low, high)
    values = (word >> (number % 4 * 8)) & 255
    return values.cast(dtypes.float32).unsqueeze(-1)


def _scaled_parts(blocks: Tensor, values: Tensor) -> Tensor:
    """values (n, 8, 32) with the scales and minima at the front of a Q4_K or Q5_K block."""
    scales, minima = _scales_and_minima(blocks, 4)
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
    places = Tensor.arange(8, dtype=dtypes.uint8).reshape(8, 1)
    return _scaled_parts(blocks, low | _sixteen_if(blocks[:, 16:48].unsqueeze(-2), places))


def _q6_k(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    # two halves of 128 values; in each, low bits from 64 bytes and high bits from 32
    low = blocks[:, 0:128].reshape(count, 2, 2, 32)
    high = blocks[:, 128:192].reshape(count, 2, 32)
    return _six_bits(low, high, blocks[:, 192:208], _half(blocks, 208))


def _six_bits(low: Tensor, high: Tensor, scales: Tensor, scale: Tensor) -> Tensor:
    """Low bits (n, 2, 2, 32), two values a byte; high bits (n, 2, 32), four values a byte."""
    count = low.shape[0]
    halves = _fields(low.reshape(count, 2, 64), 4, 2).reshape(count, 2, 4, 32)
    # the difference is between -32 and 31, as the bits of a signed byte
    values = _signed((halves | (_fields(high, 2, 4) << 4)) - 32)
    parts = scale.unsqueeze(-1) * _signed(scales).unsqueeze(-1)
    return (parts * values.reshape(count, 16, 16)).reshape(count, 256)


def _arrange_q6_k(blocks: Tensor) -> Tensor:
    """The scales first, then the three bytes that four values are made of beside each other."""
    count = blocks.shape[0]
    low = blocks[:, 0:128].reshape(count, 2, 2, 32)
    high = blocks[:, 128:192].reshape(count, 2, 1, 32)
    bits = low.cat(high, dim=2).permute(0, 1, 3, 2).reshape(count, 192)
    return blocks[:, 208:210].cat(blocks[:, 192:208], bits, dim=1)


def _arranged_q6_k(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    bits = blocks[:, 18:].reshape(count, 2, 32, 3).permute(0, 1, 3, 2)
    return _six_bits(bits[:, :, :2], bits[:, :, 2], blocks[:, 2:18], _half(blocks, 0))


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
    14: BlockFormat("Q6_K", 256, 210, _q6_k, _arrange_q6_k, _arranged_q6_k),
    24: PlainFormat("I8", dtypes.int8),
    25: PlainFormat("I16", dtypes.int16),
    26: PlainFormat("I32", dtypes.int32),
    27: PlainFormat("I64", dtypes.int64),
    28: PlainFormat("F64", dtypes.float64),
    30: PlainFormat("BF16", dtypes.bfloat16),
}
