"""What a step finds of the texts so far, and what it leaves: keys and values in pages, states.

In: where the tokens of a step stand. Out: all keys and values of their texts, the new ones among
them. Between `config` and `attention`. Invariant: what pads a step is written to page 0 and slot 0,
which belong to no text.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.dtype import DType
from weft.tensor import Tensor
from weft.uop.node import UOp

# tokens of a page of the cache
PAGE = 32


@dataclass(frozen=True)
class Places:
    """Where the tokens of a step stand in their texts, and where the cache has these texts.

    A text's keys and values lie in pages, in any order; `table` lists them. Page 0 belongs to no
    text: what pads a step is written there.
    """

    positions: Tensor  # (batch, length): in their texts
    rows: Tensor  # (batch, length): of the cache, where their keys and values are written
    table: Tensor  # (batch, pages at most)
    pages: int | UOp  # so many pages of each text are read
    slots: Tensor | None = None  # (batch,): where the state of each text is

    @property
    def count(self) -> int | UOp:
        """Keys that are read."""
        return self.pages * PAGE

    @property
    def is_text(self) -> Tensor:
        """Whether each token belongs to a text, or pads the step: (batch, length)."""
        return self.rows >= PAGE

    @property
    def counts(self) -> Tensor:
        """How many tokens of each text there are: (batch,)."""
        return self.is_text.sum(1)

    def seen(self, window: int = 0, chunk: int = 0) -> Tensor:
        """Which keys each token sees: (batch, length, count). Those up to itself, of a window that
        ends with it, or of its own chunk, where the text is cut into such."""
        columns, here = self.columns, self.positions.unsqueeze(-1)
        found = columns <= here
        if window:
            found = found & (columns > here - window)
        if chunk:
            found = found & (columns // chunk == here // chunk)
        return found

    @property
    def columns(self) -> Tensor:
        """The positions of the keys that are read: (1, 1, count)."""
        most = self.table.shape[1] * PAGE
        columns = Tensor.arange(most).reshape(1, 1, most)
        return columns.shrink(((0, 1), (0, 1), (0, self.count)))


class Cache:
    """Keys and values of the texts so far, of one layer: rows of pages.

    Where values are a part of the keys (`value_width` is 0) they are not kept twice.
    """

    def __init__(
        self, heads: int, key_width: int, value_width: int, pages: int, dtype: DType
    ) -> None:
        self.memories = [
            Tensor.zeros(heads, pages * PAGE, width, dtype=dtype).contiguous().realize()
            for width in (key_width, value_width)
            if width
        ]

    def extended(self, new: Sequence[Tensor], places: Places) -> list[Tensor]:
        """All keys and values (batch, heads, count, width); the new ones are written first."""
        rows = places.rows.reshape(-1)
        for memory, part in zip(self.memories, new, strict=True):
            heads, _, width = memory.shape
            flat = part.transpose(0, 1).reshape(heads, rows.shape[0], width)
            memory[:, rows] = flat.cast(memory.dtype)
        Tensor.realize(*self.memories)
        return [self._read(memory, places) for memory in self.memories]

    @staticmethod
    def _read(memory: Tensor, places: Places) -> Tensor:
        heads, rows, width = memory.shape
        batch = places.table.shape[0]
        pages = memory.reshape(heads, rows // PAGE, PAGE, width)
        found = pages[:, places.table[:, : places.pages]].transpose(0, 1)
        return found.reshape(batch, heads, places.count, width)
