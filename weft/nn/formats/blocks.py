"""What a block format of GGUF is, and how fields of its bytes become numbers.

In: a Tensor of uint8, one row per block. Out: a lazy Tensor, one row per block.
Below `codebooks` and `dequantise`, which say what each format makes of the fields.
Invariant: an expression reads the raw bytes and nothing else.

All numbers of a block are little-endian.
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


def half(blocks: Tensor, start: int) -> Tensor:
    """The float16 at a byte of each block, as float32, shape (blocks, 1)."""
    return joined(blocks, start, dtypes.uint16).bitcast(dtypes.float16).cast(dtypes.float32)


def joined(blocks: Tensor, start: int, dtype: DType) -> Tensor:
    """The number that the bytes from `start` on make up, shape (blocks, 1)."""
    parts = [blocks[:, i : i + 1].cast(dtype) for i in range(start, start + dtype.itemsize)]
    number = parts[0]
    for place, part in enumerate(parts[1:], 1):
        number = number | (part << (8 * place))
    return number


def signed(values: Tensor) -> Tensor:
    return values.bitcast(dtypes.int8).cast(dtypes.float32)


def fields(values: Tensor, bits: int, count: int) -> Tensor:
    """Fields of each byte, lowest first: (..., n) -> (..., count, n)."""
    shifts = (Tensor.arange(count, dtype=dtypes.uint8) * bits).reshape(count, 1)
    return (values.unsqueeze(-2) >> shifts) & ((1 << bits) - 1)


def nibbles(values: Tensor) -> Tensor:
    """The low halves of all bytes, then the high halves: (n, b) -> (n, 2 * b)."""
    return fields(values, 4, 2).reshape(values.shape[0], 2 * values.shape[1])


def fifth_bits(blocks: Tensor, start: int) -> Tensor:
    """One bit for each of 32 values, out of a word of 32 bits, at the place of 16."""
    word = joined(blocks, start, dtypes.uint32).unsqueeze(-1)
    # as many values in a row as share their bytes with others, see nibbles
    places = Tensor.arange(32, dtype=dtypes.uint32).reshape(2, 16)
    return sixteen_if(word, places).reshape(blocks.shape[0], 32)


def sixteen_if(values: Tensor, places: Tensor) -> Tensor:
    """16 where the bit at a place is set, else 0."""
    is_set = (values & (places.const_like(1) << places)) != 0
    return is_set.where(Tensor(16, dtype=dtypes.uint8), 0)


def centred(values: Tensor, middle: int, scale: Tensor) -> Tensor:
    """(values - middle) * scale, as one product and sum each; of so few bits both are exact."""
    return values.cast(dtypes.float32) * scale + scale * -float(middle)
