"""Code objects in memory: what is loaded where, and how a kernel's waves begin.

In: an ELF file of machine code. Out: its image, and for each kernel what its descriptor says.
Between `weft.amd.elf`, which reads the file, and the emulator.
Invariant: a field of a descriptor that the emulator does not honour is refused, not ignored.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from weft.errors import DataError
from weft.runtime.amd import state
from weft.runtime.amd.emulator import Start

_TTMP = 108
# registers that a launch fills, in order: the bit that asks for them, how many
_USER = ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1))
_DISPATCH, _KERNARG, _PRIVATE_SIZE = 1, 3, 6
_WAVE32 = 10


@dataclass(frozen=True)
class Descriptor:
    """The 64 bytes that say how a kernel is launched."""

    group_bytes: int
    private_bytes: int
    kernarg_bytes: int
    entry: int  # from the descriptor to the first instruction
    resources: tuple[int, int, int]
    properties: int
    preload: int

    @staticmethod
    def read(data: bytes) -> Descriptor:
        if len(data) < 64:
            raise DataError(f"a kernel descriptor has 64 bytes, found {len(data)}")
        group, private, kernarg = struct.unpack_from("<III", data, 0)
        (entry,) = struct.unpack_from("<q", data, 16)
        third, first, second, properties, preload = struct.unpack_from("<IIIHH", data, 44)
        resources = (first, second, third)
        return Descriptor(group, private, kernarg, entry, resources, properties, preload)

    def lanes(self, arch: str) -> int:
        """Lanes of a wave."""
        return 64 if arch.startswith("gfx9") or not self.properties >> _WAVE32 & 1 else 32

    def start(self, arch: str, kernarg: int, packet: int, entry: int) -> Start:
        """How a wave begins: registers that the launch fills, and where groups are numbered."""
        values: list[int] = []
        for bit, count in _USER:
            if not self.properties >> bit & 1:
                continue
            address = {_KERNARG: kernarg, _DISPATCH: packet}.get(bit, 0)
            if bit == _PRIVATE_SIZE:
                address = self.private_bytes
            values += [address >> 32 * i & 0xFFFFFFFF for i in range(count)]
        count = self.resources[1] >> 1 & 31
        if len(values) > count:
            raise DataError(f"a descriptor fills {len(values)} of {count} user registers")
        places = [state.BIN, state.BIN + 4, state.BIN + 8]
        packed = 0
        if arch.startswith("gfx12"):
            places[0], packed = 4 * (_TTMP + 9), 4 * (_TTMP + 7)
        else:
            at = count
            for axis in range(3):
                if self.resources[1] >> (7 + axis) & 1:
                    places[axis] = 4 * at
                    at += 1
        return Start(
            tuple(values), places[0], places[1], places[2], packed_yz=packed,
            scratch_bytes=self.private_bytes, shared_bytes=self.group_bytes,
            mode=self.mode, entry=entry,
        )  # fmt: skip

    @property
    def mode(self) -> int:
        """Of floats: four bits of rounding, four of denormals."""
        return self.resources[0] >> 12 & 0xFF

    @property
    def preloaded(self) -> tuple[int, int]:
        """(first word, words) of the arguments that registers hold from the beginning."""
        return self.preload >> 7, self.preload & 0x7F
