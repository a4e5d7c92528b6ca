"""The memory behind BUFFER nodes, and host data put into it.

In: BUFFER nodes; bytes of the host. Out: `buffer_of(node)`, the device memory a node stands for.
Sits between the graph, which only knows BUFFER nodes, and the device, which only knows Buffers.
Invariant: a BUFFER node has at most one Buffer, which lives exactly as long as the node.
"""

from __future__ import annotations

import weakref

from weft.device import Buffer, Device
from weft.dtype import DType
from weft.errors import ArgumentError
from weft.uop.node import UOp
from weft.uop.opset import Ops

buffers: weakref.WeakKeyDictionary[UOp, Buffer] = weakref.WeakKeyDictionary()


def buffer_of(node: UOp) -> Buffer:
    """The Buffer of a BUFFER node; made on first use, its memory only when it is needed."""
    if node.op is not Ops.BUFFER:
        raise ArgumentError(f"only a BUFFER has memory, not {node.op.name}")
    found = buffers.get(node)
    if found is None:
        if not isinstance(node.arg.device, str):
            raise ArgumentError(
                f"a buffer over the devices {node.arg.device} has one memory on each of them"
            )
        found = Buffer(node.arg.device, node.arg.size, node.dtype)
        buffers[node] = found
    return found


def node_of(buffer: Buffer) -> UOp:
    """A new BUFFER node for memory that exists already."""
    node = UOp.new_buffer(buffer.device, buffer.size, buffer.dtype)
    buffers[node] = buffer
    return node


def store_bytes(data: bytes | bytearray | memoryview, dtype: DType, device: str | None) -> UOp:
    """A BUFFER node that holds a copy of the bytes."""
    size = memoryview(data).nbytes // dtype.itemsize
    buffer = Buffer(Device.canonicalize(device), size, dtype).ensure_allocated()
    buffer.copyin(data)
    return node_of(buffer)
