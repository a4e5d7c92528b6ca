"""Quantised weights in the order in which a product reads them.

In: the blocks of a matrix as a file has them, row after row. Out: a lazy Tensor of float32 over a
copy of the same bytes in another order. Used by `gguf`, above `dequantise`.
Invariant: the copy is a stored value as large as the blocks, made when it is first needed and read
from then on by every expression that holds the weight.

The bytes at one place of ROWS rows stand beside each other. So a vector of them is read with one
load, its lanes are outputs, and nothing has to be moved between lanes: scales are vectors too.
"""

from __future__ import annotations

from weft.nn.formats.dequantise import BlockFormat
from weft.tensor import Tensor

# lanes of float32 in the widest vectors there are; narrower ones take parts of them
ROWS = 16


def laid_out(blocks: Tensor, layout: BlockFormat, rows: int) -> Tensor:
    """The values (n, layout.count) of blocks (n, layout.nbytes) that make up so many rows."""
    per_row = blocks.shape[0] // rows
    if rows % ROWS:
        # rows that are left over would need kernels of their own
        return _inline(layout.dequantise(blocks))
    arranged = layout.arrange(blocks) if layout.arrange is not None else blocks
    dequantise = layout.dequantise_arranged or layout.dequantise
    grouped = arranged.reshape(rows // ROWS, ROWS, per_row, layout.nbytes)
    stored = grouped.permute(0, 2, 3, 1).contiguous()
    return _inline(dequantise(stored.permute(0, 3, 1, 2).reshape(blocks.shape)))


def _inline(values: Tensor) -> Tensor:
    """Unpacked by every kernel that reads them, never kept as float32."""
    values._cell.inline = True
    return values
