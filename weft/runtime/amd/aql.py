"""Packets of AMD's queues (AQL), as HSA documents them.

In: a kernel's launch. Out: 64 bytes, and back. The hardware's queue and the emulator's read the
same ones.
Invariant: a packet's header is written last: until then its slot is not valid.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from weft.errors import DataError

PACKET_BYTES = 64
INVALID, KERNEL_DISPATCH, BARRIER_AND = 1, 2, 3
_SYSTEM_SCOPE = 2
# type, a barrier before it, and both fences of the system's scope
DISPATCH_HEADER = KERNEL_DISPATCH | 1 << 8 | _SYSTEM_SCOPE << 9 | _SYSTEM_SCOPE << 11
_BODY = struct.Struct("<HHHHHHIIIIIQQQQ")


@dataclass(frozen=True)
class Dispatch:
    """A launch: `grid` counts threads, not groups."""

    group: tuple[int, int, int]
    grid: tuple[int, int, int]
    kernel_object: int
    kernarg: int
    private_bytes: int = 0
    group_bytes: int = 0
    signal: int = 0

    def pack(self, header: int = DISPATCH_HEADER) -> bytes:
        dimensions = 3 if self.grid[2] > 1 else 2 if self.grid[1] > 1 else 1
        return _BODY.pack(
            header, dimensions, *self.group, 0, *self.grid, self.private_bytes, self.group_bytes,
            self.kernel_object, self.kernarg, 0, self.signal,
        )  # fmt: skip

    @staticmethod
    def unpack(packet: bytes) -> Dispatch:
        """The launch of a packet, or DataError where it is none."""
        if len(packet) != PACKET_BYTES:
            raise DataError(f"an AQL packet has {PACKET_BYTES} bytes, found {len(packet)}")
        fields = _BODY.unpack(packet)
        kind = fields[0] & 0xFF
        if kind != KERNEL_DISPATCH:
            raise DataError(f"an AQL packet of type {kind}; only kernel dispatches (2) are run")
        group, grid = fields[2:5], fields[6:9]
        if 0 in group or 0 in grid:
            raise DataError(f"an AQL packet launches groups of {group} over {grid} threads")
        private, shared, kernel, kernarg, _, signal = fields[9:]
        return Dispatch(group, grid, kernel, kernarg, private, shared, signal)
