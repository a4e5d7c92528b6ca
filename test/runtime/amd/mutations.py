"""Damaged code objects and instruction streams: `python -m test.runtime.amd.mutations [count]`.

Each is loaded and run over small buffers: it computes something, or there is an error. A crash ends
the process, and an access outside is found by the emulator, whose memory is surrounded by bytes
that must not change.
"""

from __future__ import annotations

import functools
import random
import struct
import sys

import numpy as np

from test.runtime.amd.kernels import ADD, Bench
from test.runtime.amd.test_emulator import REVERSED
from weft.amd import elf
from weft.amd.link import link
from weft.errors import WeftError
from weft.runtime.amd.aql import Dispatch
from weft.runtime.amdgcn import emit_object

_GUARD = 0x5A


@functools.cache
def objects(arch: str) -> tuple[bytes, ...]:
    """Objects as LLVM emits them, and linked to code objects."""
    sources = (ADD, REVERSED.replace("BASE", "63"))
    emitted = [emit_object(source, arch) for source in sources]
    return (*emitted, *[link(each) for each in emitted])


def linked(data: bytes) -> bytes:
    """A code object; one that was linked before it was damaged stays as it is."""
    return link(data) if elf.read(data).type == elf.RELOCATABLE else data


def mutated(chance: random.Random, data: bytes) -> bytes:
    """A few bytes changed anywhere, or in the code, or cut off."""
    found = bytearray(data)
    kind = chance.random()
    if kind < 0.05:
        return bytes(found[: chance.randrange(len(found))])
    start, size = 0, len(found)
    if kind < 0.8:
        start, size = code_of(data)
    for _ in range(chance.choice((1, 1, 2, 4, 16))):
        at = start + chance.randrange(size)
        if chance.random() < 0.5:
            found[at] = chance.getrandbits(8)
        else:
            found[at] ^= 1 << chance.randrange(8)
    return bytes(found)


def code_of(data: bytes) -> tuple[int, int]:
    """Where the machine code is in an object."""
    (offset,) = struct.unpack_from("<Q", data, 40)
    (count,) = struct.unpack_from("<H", data, 60)
    for number in range(count):
        section = struct.unpack_from("<IIQQQQIIQQ", data, offset + 64 * number)
        if section[2] & 4:
            return section[4], section[5]
    raise AssertionError("no code")


def mutate_and_run(chance: random.Random, arch: str) -> str:
    """What became of one damaged object."""
    bench = Bench(arch, budget=300)
    agent = bench.agent
    try:
        kernel = agent.load("k", linked(mutated(chance, chance.choice(objects(arch)))))
    except WeftError:
        return "refused"
    addresses = []
    around = []
    for _ in range(3):
        inner = 64 * 4
        address = agent.allocate(inner + 512)
        agent.copy_in(address, memoryview(bytes([_GUARD]) * (inner + 512)))
        # kernels may touch the middle only
        agent.allocations.forget(address)
        agent.allocations.register(address + 256, inner)
        addresses.append(address + 256)
        around.append(address)
    contents = struct.pack("<3Q", *addresses) + bytes(256)
    if kernel.kernarg_bytes > len(contents):
        return "refused"
    packet = Dispatch(
        (48, 1, 1), (96, 1, 1), kernel.handle, agent.arguments(contents), 0, kernel.group_bytes
    )
    if kernel.group_bytes > 1 << 20 or kernel.private_bytes > 1 << 16:
        return "refused"
    outcome = "ran"
    try:
        agent.submit(packet, "k")
    except WeftError:
        outcome = "stopped"
    for address in around:
        found = bytearray(256 * 3)
        agent.copy_out(memoryview(found), address)
        edges = np.frombuffer(found, np.uint8)
        assert (edges[:256] == _GUARD).all() and (edges[512:] == _GUARD).all()
    return outcome


def main(arguments: list[str]) -> int:
    count = int(arguments[0]) if arguments else 1000
    outcomes: dict[str, int] = {}
    chance = random.Random(int(arguments[1]) if len(arguments) > 1 else 1)
    for number in range(count):
        arch = ("gfx1100", "gfx1201", "gfx950")[number % 3]
        outcome = mutate_and_run(chance, arch)
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    print(f"{count} damaged objects: {outcomes}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
