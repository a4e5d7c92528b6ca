"""The block formats of GGUF whose values are looked up: IQ kinds, MXFP4, NVFP4.

In: a Tensor of uint8, one row per block. Out: a lazy Tensor of float32, one row per block.
Above `blocks`, used by `dequantise`. Invariant: an expression reads the raw bytes and a table that
all tensors of a device share; neither is ever stored unpacked.

Codes of two bits (IQ1, IQ2) or three (IQ3) are kept eight or four in a word of a codebook, and a
block names words. The codebooks are ggml's, see `weft/nn/data/README.md`.
"""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np

from weft.dtype import dtypes
from weft.nn.formats.blocks import fields, half, joined, nibbles, signed
from weft.tensor import Tensor

_GRIDS = Path(__file__).parent.parent / "data" / "gguf_grids.bin"
# words of each codebook, in the order of the file
_WORDS = {"IQ2_XXS": 256, "IQ2_XS": 512, "IQ2_S": 1024, "IQ3_XXS": 256, "IQ3_S": 512, "IQ1": 2048}

# IQ4: sixteen levels, closer together around zero
_LEVELS = (-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113)


@functools.cache
def _codebook(name: str, device: str) -> Tensor:
    start = sum(list(_WORDS.values())[: list(_WORDS).index(name)])
    words = np.fromfile(_GRIDS, "<u2", _WORDS[name], offset=2 * start)
    return Tensor(words, device=device).realize()


def _codes(name: str, index: Tensor, bits: int) -> Tensor:
    """The codes of the words that `index` (...) names: (..., 16 // bits), int32."""
    device = index.device
    word = _codebook(name, device if isinstance(device, str) else "")[index.cast(dtypes.int32)]
    places = Tensor.arange(8 if bits == 2 else 4, dtype=dtypes.int32) * bits
    return (word.cast(dtypes.int32).unsqueeze(-1) >> places) & ((1 << bits) - 1)


def _two_bit_levels(codes: Tensor) -> Tensor:
    """IQ2: 0, 1, 2 -> 8, 25, 43."""
    return (codes * 17 + 8 + (codes >> 1)).cast(dtypes.float32)


def _three_bit_levels(codes: Tensor) -> Tensor:
    """IQ3_XXS: 0 .. 6 -> 4, 12 .. 52; 7 -> 62."""
    return (codes * 8 + 4 + (codes == 7).where(2, 0)).cast(dtypes.float32)


def _negated(values: Tensor, signs: Tensor) -> Tensor:
    """values (..., 8) negated where a bit of `signs` (...) is set."""
    places = Tensor.arange(8, dtype=dtypes.int32)
    bits = (signs.cast(dtypes.int32).unsqueeze(-1) >> places) & 1
    return (bits != 0).where(-values, values)


def _with_parity(signs: Tensor) -> Tensor:
    """Seven signs and the eighth that makes the number of negative values even."""
    folded = signs ^ (signs >> 4)
    folded = folded ^ (folded >> 2)
    folded = (folded ^ (folded >> 1)) & 1
    return signs | (folded << 7)


def _words(blocks: Tensor, start: int, count: int, width: int) -> Tensor:
    """`count` numbers of `width` bytes each: (n, count), int32."""
    parts = blocks[:, start : start + count * width].reshape(blocks.shape[0], count, width)
    number = parts[:, :, 0].cast(dtypes.int32)
    for place in range(1, width):
        number = number | (parts[:, :, place].cast(dtypes.int32) << (8 * place))
    return number


def _signs_and_scale(words: Tensor) -> tuple[Tensor, Tensor]:
    """Of words (n, 8): four signs of seven bits each (n, 8, 4), and 0.5 + the scale above them."""
    places = Tensor.arange(4, dtype=dtypes.int32) * 7
    signs = _with_parity((words.unsqueeze(-1) >> places) & 127)
    return signs, ((words >> 28) & 15).cast(dtypes.float32) + 0.5


def iq2_xxs(blocks: Tensor) -> Tensor:
    """For 32 values: four places in the codebook, then a word of signs and the scale."""
    count = blocks.shape[0]
    words = _words(blocks, 2, 16, 4).reshape(count, 8, 2)
    places = Tensor.arange(4, dtype=dtypes.int32) * 8
    index = (words[:, :, :1] >> places) & 255
    signs, scale = _signs_and_scale(words[:, :, 1])
    part = (half(blocks, 0) * scale * 0.25).reshape(count, 8, 1, 1)
    values = _negated(_two_bit_levels(_codes("IQ2_XXS", index, 2)), signs)
    return (part * values).reshape(count, 256)


def _nibble_scales(scales: Tensor) -> Tensor:
    """The halves of each byte (n, b), low ones first: (n, 2 * b), int32."""
    pairs = fields(scales.unsqueeze(-1), 4, 2)
    return pairs.reshape(scales.shape[0], 2 * scales.shape[1]).cast(dtypes.int32)


def _scaled_sixteens(blocks: Tensor, start: int, values: Tensor) -> Tensor:
    """values (n, 32, 8) with a scale of four bits for each sixteen."""
    count = blocks.shape[0]
    scales = _nibble_scales(blocks[:, start : start + 8]).cast(dtypes.float32) + 0.5
    parts = (half(blocks, 0) * scales * 0.25).reshape(count, 16, 1)
    return (parts * values.reshape(count, 16, 16)).reshape(count, 256)


def iq2_xs(blocks: Tensor) -> Tensor:
    """For 8 values: nine bits of a place in the codebook, seven of signs."""
    words = _words(blocks, 2, 32, 2)
    values = _two_bit_levels(_codes("IQ2_XS", words & 511, 2))
    return _scaled_sixteens(blocks, 66, _negated(values, _with_parity(words >> 9)))


def _high_bits(blocks: Tensor, start: int, count: int, bits: int) -> Tensor:
    """Fields of each of `count` bytes, as the bits above the eighth: (n, count * 8 // bits)."""
    parts = fields(blocks[:, start : start + count].unsqueeze(-1), bits, 8 // bits)
    return parts.reshape(blocks.shape[0], count * 8 // bits).cast(dtypes.int32) << 8


def iq2_s(blocks: Tensor) -> Tensor:
    """For 8 values: a byte of the place in the codebook, a byte of signs, two more bits."""
    index = blocks[:, 2:34].cast(dtypes.int32) + _high_bits(blocks, 66, 8, 2)
    values = _negated(_two_bit_levels(_codes("IQ2_S", index, 2)), blocks[:, 34:66])
    return _scaled_sixteens(blocks, 74, values)


def iq3_xxs(blocks: Tensor) -> Tensor:
    """For 4 values: a byte of the place in the codebook; for 32 a word of signs and the scale."""
    count = blocks.shape[0]
    signs, scale = _signs_and_scale(_words(blocks, 66, 8, 4))
    part = (half(blocks, 0) * scale * 0.5).reshape(count, 8, 1, 1)
    levels = _three_bit_levels(_codes("IQ3_XXS", blocks[:, 2:66], 3))
    return (part * _negated(levels.reshape(count, 8, 4, 8), signs)).reshape(count, 256)


def iq3_s(blocks: Tensor) -> Tensor:
    """For 4 values: a byte of the place in the codebook and one more bit; a sign for each."""
    count = blocks.shape[0]
    index = blocks[:, 2:66].cast(dtypes.int32) + _high_bits(blocks, 66, 8, 1)
    levels = (_codes("IQ3_S", index, 3) * 2 + 1).cast(dtypes.float32)
    scales = (_nibble_scales(blocks[:, 106:110]) * 2 + 1).cast(dtypes.float32)
    part = (half(blocks, 0) * scales).reshape(count, 8, 1, 1)
    values = _negated(levels.reshape(count, 32, 8), blocks[:, 74:106])
    return (part * values.reshape(count, 8, 4, 8)).reshape(count, 256)


def _offset_levels(index: Tensor, is_below: Tensor) -> Tensor:
    """IQ1: -1, 0 or 1, an eighth below or above."""
    delta = (is_below != 0).where(Tensor(-0.125, dtype=dtypes.float32), 0.125)
    return (_codes("IQ1", index, 2) - 1).cast(dtypes.float32) + delta.unsqueeze(-1)


def iq1_s(blocks: Tensor) -> Tensor:
    """For 32 values: four places in the codebook; a word of their high bits, offset and scale."""
    count = blocks.shape[0]
    words = _words(blocks, 34, 8, 2).unsqueeze(-1)
    high = (words >> (Tensor.arange(4, dtype=dtypes.int32) * 3)) & 7
    index = blocks[:, 2:34].reshape(count, 8, 4).cast(dtypes.int32) + (high << 8)
    scale = (((words >> 12) & 7) * 2 + 1).cast(dtypes.float32)
    part = (half(blocks, 0).unsqueeze(-1) * scale).unsqueeze(-1)
    return (part * _offset_levels(index, (words >> 15) & 1)).reshape(count, 256)


def iq1_m(blocks: Tensor) -> Tensor:
    """As IQ1_S, with an offset for each 8 values and a scale for each 16.

    The scale of all is the high halves of the four words of scales, put together.
    """
    count = blocks.shape[0]
    words = _words(blocks, 48, 4, 2)
    tops = [(blocks[:, i : i + 1] & 0xF0).cast(dtypes.uint16) for i in (49, 51, 53, 55)]
    bits = (tops[0] >> 4) | tops[1] | (tops[2] << 4) | (tops[3] << 8)
    whole = bits.bitcast(dtypes.float16).cast(dtypes.float32)
    three = (words.unsqueeze(-1) >> (Tensor.arange(4, dtype=dtypes.int32) * 3)) & 7
    scale = (three * 2 + 1).cast(dtypes.float32).reshape(count, 16, 1, 1)
    high = fields(blocks[:, 32:48].unsqueeze(-1), 4, 2).reshape(count, 32).cast(dtypes.int32)
    index = blocks[:, 0:32].cast(dtypes.int32) + ((high & 7) << 8)
    values = _offset_levels(index, high >> 3).reshape(count, 16, 2, 8)
    return (whole.reshape(count, 1, 1, 1) * scale * values).reshape(count, 256)


def _level(codes: Tensor) -> Tensor:
    """The level of IQ4 that a code of four bits names: out of two words, without a load."""
    low, high = (
        int.from_bytes(np.array(_LEVELS[i : i + 8], np.int8).tobytes(), "little") for i in (0, 8)
    )
    wide = codes.cast(dtypes.uint64)
    word = (wide < 8).where(Tensor(low, dtype=dtypes.uint64), Tensor(high, dtype=dtypes.uint64))
    return signed(((word >> ((wide & 7) << 3)) & 255).cast(dtypes.uint8))


def iq4_nl(blocks: Tensor) -> Tensor:
    return half(blocks, 0) * _level(nibbles(blocks[:, 2:]))


def iq4_xs(blocks: Tensor) -> Tensor:
    """Eight parts of 32 with scales of six bits: four of them in one place, two in another."""
    count = blocks.shape[0]
    low = _nibble_scales(blocks[:, 4:8])
    places = Tensor.arange(8, dtype=dtypes.int32) * 2
    high = (_words(blocks, 2, 1, 2) >> places) & 3
    scale = ((low | (high << 4)) - 32).cast(dtypes.float32)
    part = (half(blocks, 0) * scale).reshape(count, 8, 1)
    codes = fields(blocks[:, 8:136].reshape(count, 8, 16), 4, 2).reshape(count, 8, 32)
    return (part * _level(codes)).reshape(count, 256)


def _float4(codes: Tensor) -> Tensor:
    """Twice the number of four bits (a sign, two of exponent, one of fraction): 0 to 12."""
    magnitude = codes & 7
    scaled = ((magnitude & 1) | 2) << ((magnitude.maximum(2) >> 1) - 1)
    value = (magnitude < 4).where(magnitude, scaled).cast(dtypes.int8)
    return (codes >= 8).where(-value, value).cast(dtypes.float32)


def mxfp4(blocks: Tensor) -> Tensor:
    """32 numbers of four bits times a power of two; half of it, as levels are doubled."""
    exponent = joined(blocks, 0, dtypes.uint8).cast(dtypes.uint32)
    # the two smallest are below float32's normal numbers
    small = Tensor(0x00200000, dtype=dtypes.uint32) << exponent.minimum(1)
    bits = (exponent < 2).where(small, (exponent.maximum(1) - 1) << 23)
    return bits.bitcast(dtypes.float32) * _float4(nibbles(blocks[:, 1:]))


def nvfp4(blocks: Tensor) -> Tensor:
    """Four parts of 16 numbers of four bits, each times an fp8e4m3 without a sign."""
    count = blocks.shape[0]
    codes = blocks[:, 0:4]
    bits = (codes & 127).cast(dtypes.uint32)
    normal = ((bits << 20) + (120 << 23)).bitcast(dtypes.float32)
    small = (bits & 7).cast(dtypes.float32) * 2.0**-9
    scale = (bits < 8).where(small, normal) * 0.5
    part = (codes == 127).where(0.0, scale).reshape(count, 4, 1)
    values = fields(blocks[:, 4:].reshape(count, 4, 8), 4, 2).reshape(count, 4, 16)
    return (part * _float4(values)).reshape(count, 64)
