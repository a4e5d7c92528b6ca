"""How a kernel's waves begin: what its descriptor asks for, in the emulator's terms.

In: a descriptor of `weft.amd.descriptor`. Out: a `Start`. Between the code object, which
`weft.amd.codeobject` reads, and the emulator.
Invariant: a field of a descriptor that the emulator does not honour is refused, not ignored.
"""

from __future__ import annotations

from weft.amd.descriptor import USER_REGISTERS, Descriptor
from weft.errors import DataError
from weft.runtime.amd import state
from weft.runtime.amd.emulator import Start

_TTMP = 108


def lanes_of(descriptor: Descriptor, arch: str) -> int:
    """Lanes of a wave."""
    return 64 if arch.startswith("gfx9") else descriptor.wave


def mode_of(descriptor: Descriptor) -> int:
    """Of floats: four bits of rounding, four of denormals."""
    return descriptor.rsrc1 >> 12 & 0xFF


def start_of(descriptor: Descriptor, arch: str, kernarg: int, packet: int, entry: int) -> Start:
    """How a wave begins: registers that the launch fills, and where groups are numbered."""
    if descriptor.kernarg_preload:
        raise DataError(
            f"a descriptor preloads arguments ({descriptor.kernarg_preload:#x}); "
            "the emulator gives a pointer to them only"
        )
    given = {
        "kernarg_pointer": kernarg,
        "dispatch_pointer": packet,
        "private_segment_size": descriptor.private_segment_size,
    }
    values: list[int] = []
    for name, bit, count in USER_REGISTERS:
        if descriptor.properties >> bit & 1:
            values += [given.get(name, 0) >> 32 * i & 0xFFFFFFFF for i in range(count)]
    count = descriptor.user_register_count
    if len(values) > count:
        raise DataError(f"a descriptor fills {len(values)} of {count} user registers")
    places = [state.BIN, state.BIN + 4, state.BIN + 8]
    packed = 0
    if arch.startswith("gfx12"):
        places[0], packed = 4 * (_TTMP + 9), 4 * (_TTMP + 7)
    else:
        at = count
        for axis, is_given in enumerate(descriptor.workgroup_ids):
            if is_given:
                places[axis] = 4 * at
                at += 1
    return Start(
        tuple(values), places[0], places[1], places[2], packed_yz=packed,
        scratch_bytes=descriptor.private_segment_size,
        shared_bytes=descriptor.group_segment_size, mode=mode_of(descriptor), entry=entry,
    )  # fmt: skip
