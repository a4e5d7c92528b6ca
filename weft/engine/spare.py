"""Small memory that is used again as soon as nobody holds it: what replays give out and get back.

In: the kind of a memory. Out: a BUFFER node with its memory, new or one of the last ones given out,
if all that was made of it is gone.
Sits above `storage`, under the launches of captured graphs.
Invariant: what is given out is held by nobody else: neither node nor memory has a reference but
ours.

Taking memory and making its node cost more than a small kernel; looking at two counts does not.
"""

from __future__ import annotations

import sys
from typing import Any

from weft.device import Buffer
from weft.dtype import DType
from weft.engine.storage import node_of
from weft.uop.node import UOp

# bytes up to which memory is kept; larger memory is worth more to others than the time it takes
MOST_BYTES = 1 << 18
# outputs of a call may be held until after the next one
MOST_KEPT = 2


def _count_alone() -> int | None:
    """What Python counts for an object in a list and nowhere else; None if it does not count."""
    count = getattr(sys, "getrefcount", None)
    has_lock: Any = getattr(sys, "_is_gil_enabled", lambda: True)
    if count is None or not has_lock():
        return None
    entry = [object()]
    alone: int = count(entry[0])
    return alone


ALONE = _count_alone()


class Spares:
    """Memory of one kind: device, size and dtype."""

    __slots__ = ("_device", "_dtype", "_kept", "_size")

    def __init__(self, device: str, size: int, dtype: DType) -> None:
        self._device, self._size, self._dtype = device, size, dtype
        self._kept: list[list[Any]] = []  # [node, buffer]

    @property
    def nbytes(self) -> int:
        """Of those that are kept, given out or not."""
        return sum(buffer.nbytes for _, buffer in self._kept)

    def take(self) -> tuple[UOp, Buffer]:
        """A node and its memory."""
        for entry in self._kept:
            # the node holds the memory as well
            if (
                sys.getrefcount(entry[0]) == ALONE
                and sys.getrefcount(entry[1]) == ALONE + 1
                and entry[1]._opaque is not None
            ):
                node, buffer = entry
                held = node.held
                held.cells, held.expressions = [], []
                held.is_shared = held.is_part = False
                held.past = None
                return node, buffer
        buffer = Buffer(self._device, self._size, self._dtype).allocate()
        node = node_of(buffer)
        if ALONE is not None and buffer.nbytes <= MOST_BYTES:
            self._kept.append([node, buffer])
            del self._kept[:-MOST_KEPT]
        return node, buffer

    def free(self) -> None:
        """Keep nothing."""
        self._kept.clear()
