"""The memory behind BUFFER nodes, and host data put into it.

In: BUFFER nodes; bytes of the host. Out: `buffer_of(node)`, the device memory a node stands for.
Sits between the graph, which only knows BUFFER nodes, and the device, which only knows Buffers.
Invariant: a BUFFER node has at most one Buffer, which lives exactly as long as the node.
"""

from __future__ import annotations

import weakref
from typing import Any

from weft.device import Buffer, Device
from weft.dtype import DType
from weft.errors import ArgumentError
from weft.uop.compat import register_memory
from weft.uop.node import UOp
from weft.uop.opset import Ops


class Held:
    """What is kept with a BUFFER: its memory, its cells, and the expressions found in it."""

    __slots__ = ("buffer", "cells", "expressions", "is_lost", "is_part", "is_shared", "past")

    def __init__(self) -> None:
        self.buffer: Buffer | None = None
        self.cells: list[weakref.ref[Any]] = []
        self.expressions: list[weakref.ref[UOp]] = []
        self.is_shared = False  # it stands for the memory of several cells
        self.is_part = False  # it stands for a part of the memory of another BUFFER
        self.is_lost = False  # it stands for what memory held before it was overwritten
        self.past: Any = None  # what its contents were computed from, see history.py


def held_with(node: UOp) -> Held:
    """What is kept with a BUFFER."""
    found: Held | None = node.held
    if found is None:
        found = node.held = Held()
    return found


def memory_of(node: UOp) -> Buffer | None:
    """The Buffer of a BUFFER node, if it has one already."""
    return None if node.held is None else node.held.buffer


def buffer_of(node: UOp) -> Buffer:
    """The Buffer of a BUFFER node; made on first use, its memory only when it is needed."""
    if node.op is not Ops.BUFFER:
        raise ArgumentError(f"only a BUFFER has memory, not {node.op.name}")
    held = held_with(node)
    if held.buffer is None:
        if not isinstance(node.arg.device, str):
            raise ArgumentError(
                f"a buffer over the devices {node.arg.device} has one memory on each of them"
            )
        held.buffer = Buffer(node.arg.device, node.arg.size, node.dtype)
    return held.buffer


def node_of(buffer: Buffer) -> UOp:
    """A new BUFFER node for memory that exists already."""
    node = UOp.new_buffer(buffer.device, buffer.size, buffer.dtype)
    held_with(node).buffer = buffer
    return node


def shaped(storage: UOp, shape: tuple[Any, ...]) -> UOp:
    """A whole storage in a shape; of a symbolic one, the part that it takes."""
    if len(shape) == 1 and shape[0] == storage.arg.size:
        return storage
    if all([type(s) is int for s in shape]):
        return UOp(Ops.RESHAPE, storage.dtype, (storage,), shape)
    size: Any = 1
    for part in shape:
        size = size * part
    return storage._mop(Ops.SHRINK, ((0, size),))._mop(Ops.RESHAPE, shape)


def store_bytes(data: bytes | bytearray | memoryview, dtype: DType, device: str | None) -> UOp:
    """A BUFFER node that holds a copy of the bytes."""
    size = memoryview(data).nbytes // dtype.itemsize
    buffer = Buffer(Device.canonicalize(device), size, dtype).ensure_allocated()
    buffer.copyin(data)
    return node_of(buffer)


register_memory(buffer_of)
