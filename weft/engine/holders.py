"""Whose tensors hold a device's memory, said by the user's lines: for an error out of memory.

In: a device's name. Out: text. Sits beside realize; allocators ask for it when they have no more.
Invariant: it allocates nothing on the device and computes nothing.
"""

from __future__ import annotations

from pathlib import PurePath

from weft.contracts import bytes_text, register_holders
from weft.engine.cell import Cell
from weft.engine.storage import memory_of

# lines that are named
_NAMED = 5


def holders_text(device: str) -> str:
    """The lines whose tensors hold most.

    held by tensors made at train.py:12: 3.00 GiB in 4, model.py:7: 1.00 GiB in 2
    """
    found: dict[str, tuple[int, int]] = {}
    seen: set[int] = set()
    for cell in list(Cell.live):
        storage = cell.storage
        memory = None if storage is None else memory_of(storage)
        if storage is None or memory is None or memory.device != device:
            continue
        base = memory.base
        if id(base) in seen or not base.is_allocated():
            continue
        seen.add(id(base))
        origin = storage.origin or cell.value.origin
        line = f"{PurePath(origin[0]).name}:{origin[1]}" if origin else "weft"
        nbytes, count = found.get(line, (0, 0))
        found[line] = (nbytes + base.nbytes, count + 1)
    largest = sorted(found.items(), key=lambda item: -item[1][0])[:_NAMED]
    named = [f"{line}: {bytes_text(nbytes)} in {count}" for line, (nbytes, count) in largest]
    return f"held by tensors made at {', '.join(named)}" if named else ""


register_holders(holders_text)
