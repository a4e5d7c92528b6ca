"""The block formats of GGUF, as expressions that turn blocks of bytes into float32.

In: a Tensor of uint8, one row per block. Out: a lazy Tensor of float32, one row per block.
Used by `gguf`. Invariant: an expression reads the raw bytes and nothing else, so the weights stay
in memory as small as they are in the file and are unpacked inside the kernels that use them.

All numbers of a block are little-endian. A block of 32 (Q*_0, Q*_1) has one scale; a block of 256
(Q*_K) has a scale for all and small ones for parts of it.
"""

from __future__ import annotations

from weft.dtype import dtypes
from weft.nn.formats import codebooks
from weft.nn.formats.blocks import (
    BlockFormat,
    PlainFormat,
    centred,
    fields,
    fifth_bits,
    half,
    joined,
    nibbles,
    signed,
    sixteen_if,
)
from weft.tensor import Tensor

__all__ = ["FORMATS", "BlockFormat", "PlainFormat"]


def _q4_0(blocks: Tensor) -> Tensor:
    return centred(nibbles(blocks[:, 2:]), 8, half(blocks, 0))


def _q4_1(blocks: Tensor) -> Tensor:
    values = nibbles(blocks[:, 4:]).cast(dtypes.float32)
    return half(blocks, 0) * values + half(blocks, 2)


def _q5_0(blocks: Tensor) -> Tensor:
    values = nibbles(blocks[:, 6:]) | fifth_bits(blocks, 2)
    return centred(values, 16, half(blocks, 0))


def _q5_1(blocks: Tensor) -> Tensor:
    values = nibbles(blocks[:, 8:]) | fifth_bits(blocks, 4)
    return half(blocks, 0) * values.cast(dtypes.float32) + half(blocks, 2)


def _q8_0(blocks: Tensor) -> Tensor:
    return half(blocks, 0) * signed(blocks[:, 2:])


def _scales_and_minima(blocks: Tensor, start: int) -> tuple[Tensor, Tensor]:
    """Eight scales and eight minima of 6 bits each, packed in 12 bytes: two of shape (n, 8, 1).

    Bytes 0-3 hold scales 0-3, bytes 4-7 minima 0-3; the two high bits of these are the high bits
    of 4-7, whose low bits are the halves of bytes 8-11. Four at a time are unpacked in one word.
    """
    first, second, third = (joined(blocks, start + i, dtypes.uint32) for i in (0, 4, 8))
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
    scale = half(blocks, 0).unsqueeze(-1) * scales
    minimum = half(blocks, 2).unsqueeze(-1) * minima
    return (scale * values.cast(dtypes.float32) - minimum).reshape(blocks.shape[0], 256)


def _q4_k(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    # 32 bytes hold 64 values: the low halves come first, then the high ones
    values = fields(blocks[:, 16:144].reshape(count, 4, 32), 4, 2)
    return _scaled_parts(blocks, values.reshape(count, 8, 32))


def _q5_k(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    low = fields(blocks[:, 48:176].reshape(count, 4, 32), 4, 2).reshape(count, 8, 32)
    places = Tensor.arange(8, dtype=dtypes.uint8).reshape(8, 1)
    return _scaled_parts(blocks, low | sixteen_if(blocks[:, 16:48].unsqueeze(-2), places))


def _q6_k(blocks: Tensor) -> Tensor:
    count = blocks.shape[0]
    # two halves of 128 values; in each, low bits from 64 bytes and high bits from 32
    low = blocks[:, 0:128].reshape(count, 2, 2, 32)
    high = blocks[:, 128:192].reshape(count, 2, 32)
    return _six_bits(low, high, blocks[:, 192:208], half(blocks, 208))


def _six_bits(low: Tensor, high: Tensor, scales: Tensor, scale: Tensor) -> Tensor:
    """Low bits (n, 2, 2, 32), two values a byte; high bits (n, 2, 32), four values a byte."""
    count = low.shape[0]
    halves = fields(low.reshape(count, 2, 64), 4, 2).reshape(count, 2, 4, 32)
    # the difference is between -32 and 31, as the bits of a signed byte
    values = signed((halves | (fields(high, 2, 4) << 4)) - 32)
    parts = scale.unsqueeze(-1) * signed(scales).unsqueeze(-1)
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
    return _six_bits(bits[:, :, :2], bits[:, :, 2], blocks[:, 2:18], half(blocks, 0))


def _two_bits(packed: Tensor) -> Tensor:
    """64 bytes of four values each, 32 bytes at a time: (n, 64) -> (n, 16, 16)."""
    count = packed.shape[0]
    return fields(packed.reshape(count, 2, 32), 2, 4).reshape(count, 16, 16)


def _q2_k(blocks: Tensor) -> Tensor:
    """Sixteen parts of 16, each with a scale and a minimum of four bits."""
    count = blocks.shape[0]
    scales = blocks[:, 0:16].reshape(count, 16, 1)
    scale = half(blocks, 80).unsqueeze(-1) * (scales & 15).cast(dtypes.float32)
    minimum = half(blocks, 82).unsqueeze(-1) * (scales >> 4).cast(dtypes.float32)
    values = _two_bits(blocks[:, 16:80]).cast(dtypes.float32)
    return (scale * values - minimum).reshape(count, 256)


def _q3_k(blocks: Tensor) -> Tensor:
    """Two bits of a value in one place, the third in another; sixteen scales of six bits.

    The low halves of bytes 0-7 of the scales hold the low bits of scales 0-7, the high halves those
    of 8-15; bytes 8-11 the high bits, four scales at a time.
    """
    count = blocks.shape[0]
    low = fields(blocks[:, 96:104], 4, 2).reshape(count, 16)
    high = fields(blocks[:, 104:108], 2, 4).reshape(count, 16)
    scale = signed((low | (high << 4)) - 32).unsqueeze(-1)
    places = Tensor.arange(8, dtype=dtypes.uint8).reshape(8, 1)
    third = (blocks[:, 0:32].unsqueeze(-2) >> places) & 1
    bits = _two_bits(blocks[:, 32:96]) | (third.reshape(count, 16, 16) << 2)
    # between -4 and 3, as the bits of a signed byte
    return (half(blocks, 108).unsqueeze(-1) * scale * signed(bits - 4)).reshape(count, 256)


def _q8_k(blocks: Tensor) -> Tensor:
    return joined(blocks, 0, dtypes.uint32).bitcast(dtypes.float32) * signed(blocks[:, 4:260])


def _ternary_digits(packed: Tensor, digits: int) -> Tensor:
    """The first digits of fractions in base 3, in bytes: (n, b) -> (n, digits * b), 0 to 2.

    Multiplying by 3 moves a digit into what is above the byte.
    """
    powers = Tensor([3**i for i in range(digits)], dtype=dtypes.uint8).reshape(digits, 1)
    moved = (packed.unsqueeze(-2) * powers).cast(dtypes.uint16)
    return ((moved * 3) >> 8).cast(dtypes.uint8).reshape(packed.shape[0], digits * packed.shape[1])


def _tq1_0(blocks: Tensor) -> Tensor:
    """Values -1, 0 and 1, five in a byte; the last 16 four in a byte."""
    parts = ((blocks[:, 0:32], 5), (blocks[:, 32:48], 5), (blocks[:, 48:52], 4))
    digits = Tensor.cat(*[_ternary_digits(part, count) for part, count in parts], dim=1)
    return half(blocks, 52) * signed(digits - 1)


def _tq2_0(blocks: Tensor) -> Tensor:
    values = _two_bits(blocks[:, 0:64]).reshape(blocks.shape[0], 256)
    return half(blocks, 64) * signed(values - 1)


# by the number that a GGUF file names them with
FORMATS: dict[int, BlockFormat | PlainFormat] = {
    0: PlainFormat("F32", dtypes.float32),
    1: PlainFormat("F16", dtypes.float16),
    2: BlockFormat("Q4_0", 32, 18, _q4_0),
    3: BlockFormat("Q4_1", 32, 20, _q4_1),
    6: BlockFormat("Q5_0", 32, 22, _q5_0),
    7: BlockFormat("Q5_1", 32, 24, _q5_1),
    8: BlockFormat("Q8_0", 32, 34, _q8_0),
    10: BlockFormat("Q2_K", 256, 84, _q2_k),
    11: BlockFormat("Q3_K", 256, 110, _q3_k),
    12: BlockFormat("Q4_K", 256, 144, _q4_k),
    13: BlockFormat("Q5_K", 256, 176, _q5_k),
    14: BlockFormat("Q6_K", 256, 210, _q6_k, _arrange_q6_k, _arranged_q6_k),
    15: BlockFormat("Q8_K", 256, 292, _q8_k),
    16: BlockFormat("IQ2_XXS", 256, 66, codebooks.iq2_xxs),
    17: BlockFormat("IQ2_XS", 256, 74, codebooks.iq2_xs),
    18: BlockFormat("IQ3_XXS", 256, 98, codebooks.iq3_xxs),
    19: BlockFormat("IQ1_S", 256, 50, codebooks.iq1_s),
    20: BlockFormat("IQ4_NL", 32, 18, codebooks.iq4_nl),
    21: BlockFormat("IQ3_S", 256, 110, codebooks.iq3_s),
    22: BlockFormat("IQ2_S", 256, 82, codebooks.iq2_s),
    23: BlockFormat("IQ4_XS", 256, 136, codebooks.iq4_xs),
    24: PlainFormat("I8", dtypes.int8),
    25: PlainFormat("I16", dtypes.int16),
    26: PlainFormat("I32", dtypes.int32),
    27: PlainFormat("I64", dtypes.int64),
    28: PlainFormat("F64", dtypes.float64),
    29: BlockFormat("IQ1_M", 256, 56, codebooks.iq1_m),
    30: PlainFormat("BF16", dtypes.bfloat16),
    34: BlockFormat("TQ1_0", 256, 54, _tq1_0),
    35: BlockFormat("TQ2_0", 256, 66, _tq2_0),
    39: BlockFormat("MXFP4", 32, 17, codebooks.mxfp4),
    40: BlockFormat("NVFP4", 64, 36, codebooks.nvfp4),
}
