"""The 64 bytes that say how a kernel starts: registers, memory, float modes, what it is given.

In: a kernel's needs. Out: AMDHSA's kernel descriptor, and back. Stands on `targets`; code objects
and the dispatcher use it. Invariant: `unpack(pack(d)) == d` for every field that a target has.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from weft.amd.targets import CDNA, RDNA4, Target, target
from weft.errors import ArgumentError, DataError

SIZE = 64
_FORMAT = "<III4xq20xIIIHH4x"

# what a wave is given in scalar registers, in order: bit of the properties, number of registers
USER_REGISTERS = (
    ("private_segment_buffer", 0, 4),
    ("dispatch_pointer", 1, 2),
    ("queue_pointer", 2, 2),
    ("kernarg_pointer", 3, 2),
    ("dispatch_identity", 4, 2),
    ("flat_scratch", 5, 2),
    ("private_segment_size", 6, 1),
)


@dataclass(frozen=True)
class Descriptor:
    """How a kernel starts. Sizes are bytes; `entry` is the distance from here to its code."""

    group_segment_size: int = 0
    private_segment_size: int = 0
    kernarg_size: int = 0
    entry: int = 0
    rsrc1: int = 0
    rsrc2: int = 0
    rsrc3: int = 0
    properties: int = 0
    kernarg_preload: int = 0

    @property
    def wave(self) -> int:
        """Lanes a wave; what it says only counts from RDNA on."""
        return 32 if self.properties >> 10 & 1 else 64

    @property
    def user_registers(self) -> dict[str, tuple[int, int]]:
        """What the first scalar registers hold: name -> (register, how many)."""
        found = {}
        register = 0
        for name, bit, count in USER_REGISTERS:
            if self.properties >> bit & 1:
                found[name] = (register, count)
                register += count
        return found

    @property
    def user_register_count(self) -> int:
        """Scalar registers that are set before the workgroup's place comes."""
        return self.rsrc2 >> 1 & 31

    @property
    def workgroup_ids(self) -> tuple[bool, bool, bool]:
        """Which of the workgroup's coordinates are given."""
        return bool(self.rsrc2 >> 7 & 1), bool(self.rsrc2 >> 8 & 1), bool(self.rsrc2 >> 9 & 1)

    @property
    def workitem_ids(self) -> int:
        """Coordinates of the work-item that are given: 1, 2 or 3."""
        return min(3, (self.rsrc2 >> 11 & 3) + 1)

    @property
    def uses_scratch(self) -> bool:
        """Whether private memory is set up."""
        return bool(self.rsrc2 & 1)

    @property
    def round_mode(self) -> tuple[int, int]:
        """Rounding of 32-bit floats, and of 16- and 64-bit floats."""
        return self.rsrc1 >> 12 & 3, self.rsrc1 >> 14 & 3

    @property
    def denormal_mode(self) -> tuple[int, int]:
        """Denormals of 32-bit floats, and of 16- and 64-bit floats; 3 keeps them."""
        return self.rsrc1 >> 16 & 3, self.rsrc1 >> 18 & 3

    def vgprs(self, gpu: str | Target) -> int:
        """Vector registers a lane that are asked for."""
        return ((self.rsrc1 & 63) + 1) * vgpr_granule(target(gpu), self.wave)

    def accumulation_offset(self) -> int:
        """The first vector register that is an accumulation register (gfx90a and later)."""
        return ((self.rsrc3 & 63) + 1) * 4

    def pack(self) -> bytes:
        """The 64 bytes."""
        sizes = (self.group_segment_size, self.private_segment_size, self.kernarg_size)
        words = (self.rsrc3, self.rsrc1, self.rsrc2, self.properties, self.kernarg_preload)
        return struct.pack(_FORMAT, *sizes, self.entry, *words)


def unpack(data: bytes) -> Descriptor:
    """The descriptor in 64 bytes."""
    if len(data) < SIZE:
        raise DataError(f"a kernel descriptor has {SIZE} bytes; there are {len(data)}")
    group, private, kernarg, entry, rsrc3, rsrc1, rsrc2, properties, preload = struct.unpack(
        _FORMAT, data[:SIZE]
    )
    return Descriptor(group, private, kernarg, entry, rsrc1, rsrc2, rsrc3, properties, preload)


def vgpr_granule(gpu: Target, wave: int) -> int:
    """Vector registers are counted in steps of this many."""
    return 8 if gpu.family == CDNA or wave == 32 else 4


def describe(
    gpu: str | Target,
    *,
    vgprs: int,
    sgprs: int = 0,
    agprs: int = 0,
    kernarg_size: int = 0,
    group_segment_size: int = 0,
    private_segment_size: int = 0,
    workgroup_ids: tuple[bool, bool, bool] = (True, True, True),
    workitem_ids: int = 1,
    dispatch_pointer: bool = False,
    wave: int | None = None,
) -> Descriptor:
    """The descriptor of a kernel that is given a pointer to its arguments.

    The pointer is in s[0:1] (after the dispatch's, where that is asked for), then come the
    coordinates of the workgroup. Denormals are kept and floats round to the nearest.
    """
    found = target(gpu)
    wave = wave or found.wave
    is_cdna = found.family == CDNA
    if wave not in (32, 64) or (is_cdna and wave == 32):
        raise ArgumentError(f"{found} has no waves of {wave} lanes")
    most = 512 if is_cdna else 256
    offset = (max(vgprs, 1) + 3) // 4 * 4
    total = offset + agprs if agprs else vgprs
    if not 0 <= total <= most:
        raise ArgumentError(f"{found}: {total} vector registers are asked for; {most} are the most")
    granule = vgpr_granule(found, wave)
    rsrc1 = (max(total, 1) + granule - 1) // granule - 1 | 3 << 16 | 3 << 18
    if is_cdna:
        rsrc1 |= ((max(sgprs, 1) + 15) // 16 * 2 - 1) << 6
    if found.family != RDNA4:
        rsrc1 |= 1 << 21 | 1 << 23
    if not is_cdna:
        rsrc1 |= 1 << 29 | 1 << 30
    users = 2 + 2 * dispatch_pointer
    rsrc2 = users << 1 | (workitem_ids - 1) << 11 | bool(private_segment_size)
    for number, given in enumerate(workgroup_ids):
        rsrc2 |= given << (7 + number)
    rsrc3 = offset // 4 - 1 if is_cdna else 0
    properties = 1 << 3 | dispatch_pointer << 1 | (wave == 32) << 10
    return Descriptor(
        group_segment_size, private_segment_size, kernarg_size, 0, rsrc1, rsrc2, rsrc3, properties
    )
