"""LLVM's instructions, with the text that llvm-mc prints for each.

In: `data/mc-vectors.txt.xz`. Out: `Vector`s, all of them or every n-th. Used by the tests of this
folder and by `python -m test.amd.vectors`.
"""

from __future__ import annotations

import functools
import lzma
from pathlib import Path
from typing import NamedTuple

DATA = Path(__file__).resolve().parent / "data" / "mc-vectors.txt.xz"


class Vector(NamedTuple):
    """One instruction: the target, its bytes, and LLVM's text."""

    target: str
    data: bytes
    text: str


@functools.cache
def lines() -> tuple[str, ...]:
    """The file's lines without the comment."""
    with lzma.open(DATA, "rt", encoding="utf-8") as file:
        return tuple(line.rstrip("\n") for line in file if not line.startswith("#"))


def vectors(every: int = 1, first: int = 0) -> list[Vector]:
    """Every n-th vector, from the `first` on."""
    found = []
    for line in lines()[first::every]:
        target, data, text = line.split("\t")
        found.append(Vector(target, bytes.fromhex(data), text))
    return found
