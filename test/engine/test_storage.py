"""storage.py: the memory behind BUFFER nodes comes when it is needed, and goes with them."""

from __future__ import annotations

import gc
import weakref

import pytest

from weft import Variable, dtypes
from weft.engine.storage import buffer_of, memory_of, node_of, shaped, store_bytes
from weft.errors import ArgumentError
from weft.uop.node import UOp


def test_a_buffer_is_made_at_its_first_use_and_once() -> None:
    node = UOp.new_buffer("CPU", 4, dtypes.float32)
    assert memory_of(node) is None
    buffer = buffer_of(node)
    assert buffer_of(node) is buffer and not buffer.is_allocated()


def test_bytes_are_copied() -> None:
    data = bytearray(b"\x01\x00\x02\x00")
    node = store_bytes(data, dtypes.int16, "CPU")
    data[0] = 9
    buffer = buffer_of(node)
    assert bytes(buffer.as_memoryview()) == b"\x01\x00\x02\x00" and node.arg.size == 2


def test_memory_goes_with_its_node() -> None:
    node = store_bytes(b"\x00" * 8, dtypes.float32, "CPU")
    memory = weakref.ref(buffer_of(node))
    del node
    gc.collect()
    assert memory() is None


def test_two_nodes_may_stand_for_one_memory() -> None:
    first = store_bytes(b"\x00" * 8, dtypes.float32, "CPU")
    second = node_of(buffer_of(first))
    assert second is not first and buffer_of(second) is buffer_of(first)


def test_only_buffers_of_one_device_have_memory() -> None:
    with pytest.raises(ArgumentError, match="only a BUFFER has memory, not CONST"):
        buffer_of(UOp.const(dtypes.int32, 1))
    with pytest.raises(ArgumentError, match="one memory on each"):
        buffer_of(UOp.new_buffer(("CPU", "CPU:1"), 4, dtypes.float32))


def test_a_symbolic_shape_takes_a_part() -> None:
    size = Variable("n", 1, 8)
    storage = UOp.new_buffer("CPU", 16, dtypes.float32)
    assert shaped(storage, (16,)) is storage and shaped(storage, (4, 4)).shape == (4, 4)
    assert shaped(storage, (size, 2)).shape == (size, 2)
