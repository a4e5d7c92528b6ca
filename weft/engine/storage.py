"""The memory behind BUFFER nodes, and host data put into it.

In: BUFFER nodes; bytes of the host. Out: `buffer_of(node)`, the device memory a node stands for.
Sits between the graph, which only knows BUFFER nodes, and the device, which only knows Buffers.
Invariant: a BUFFER node has at most one Buffer, which lives exactly as long as the node.
"""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import Any

from weft.device import Buffer, Device
from weft.dtype import DType
from weft.errors import ArgumentError
from weft.helpers import prod
from weft.uop.compat import register_memory
from weft.uop.layout import Layout
from weft.uop.node import UOp
from weft.uop.opset import Ops


class Held:
    """What is kept with a BUFFER: its memory, its cells, and the expressions found in it."""

    __slots__ = (
        "buffer",
        "cells",
        "expressions",
        "is_lost",
        "is_part",
        "is_shared",
        "parts",
        "past",
        "whole",
    )

    def __init__(self) -> None:
        self.buffer: Buffer | None = None
        self.cells: list[weakref.ref[Any]] = []
        self.expressions: list[weakref.ref[UOp]] = []
        self.is_shared = False  # it stands for the memory of several cells
        self.is_part = False  # it stands for a part of the memory of another BUFFER
        self.is_lost = False  # it stands for what memory held before it was overwritten
        self.parts: tuple[UOp, ...] = ()  # of one on several devices, the BUFFER of each
        self.whole: weakref.ref[UOp] | None = None  # of a part, the BUFFER on several devices
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


def parts_of(node: UOp) -> tuple[UOp, ...]:
    """The BUFFERs, one on each device, of a BUFFER on several."""
    held = held_with(node)
    if not held.parts:
        layout = node.arg.layout
        sizes = [
            node.arg.size if layout is None else prod(layout.part_shape(i))
            for i in range(len(node.arg.device))
        ]
        parts = [
            UOp.new_buffer(device, size, node.dtype)
            for device, size in zip(node.arg.device, sizes, strict=True)
        ]
        _join(node, parts)
    return held.parts


def _join(whole: UOp, parts: Sequence[UOp]) -> None:
    held_with(whole).parts = tuple(parts)
    for part in parts:
        held_with(part).whole = weakref.ref(whole)


def storages_of(node: UOp) -> tuple[UOp, ...]:
    """The BUFFERs of single devices that a BUFFER is."""
    return (node,) if type(node.arg.device) is str else parts_of(node)


def whole_behind(node: UOp) -> UOp:
    """The BUFFER on several devices that a BUFFER is a part of, or the BUFFER itself."""
    held: Held | None = node.held
    found = None if held is None or held.whole is None else held.whole()
    return node if found is None else found


def whole_of(parts: Sequence[UOp], layout: Layout | None) -> UOp:
    """A new BUFFER on several devices of memory that there is on each."""
    size = parts[0].arg.size if layout is None else prod(layout.shape)
    devices = tuple([part.arg.device for part in parts])
    node = UOp.new_buffer(devices, size, parts[0].dtype, layout)
    _join(node, parts)
    return node


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
