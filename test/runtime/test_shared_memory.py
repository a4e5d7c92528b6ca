"""Memory that other processes of a machine read."""

from __future__ import annotations

import ctypes
import os
import sys

import pytest

from weft.runtime.shared_memory import SharedMemory, Window

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="needs memfd_create")


def test_a_window_shows_the_same_bytes() -> None:
    memory = SharedMemory()
    block = memory.take(1000)
    ctypes.memmove(block.address, b"weft", 4)
    offset = memory.offset_of(block.address)
    assert offset >= 0 and memory.offset_of(memory.base - 1) == -1
    window = Window(os.getpid(), memory.file, memory.length)
    assert ctypes.string_at(window.base + offset, 4) == b"weft"
    ctypes.memmove(window.base + offset, b"back", 4)
    assert ctypes.string_at(block.address, 4) == b"back"


def test_ranges_come_back_and_are_joined() -> None:
    memory = SharedMemory()
    blocks = [memory.take(3 << 20) for _ in range(4)]
    places = [memory.offset_of(block.address) for block in blocks]
    assert len(set(places)) == 4
    while blocks:
        memory.give(blocks.pop())
    memory.release()
    assert memory._gaps == [(0, memory.length)]
    assert memory.offset_of(memory.take(12 << 20).address) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="files in memory count their pages on Linux")
def test_pages_go_back_to_the_system() -> None:
    memory = SharedMemory()
    block = memory.take(8 << 20)
    ctypes.memset(block.address, 1, 8 << 20)
    assert os.fstat(memory.file).st_blocks * 512 >= 8 << 20
    memory.give(block)
    del block
    memory.release()
    assert os.fstat(memory.file).st_blocks == 0
