"""Thread traces of AMD's GPUs: streams of packets to packets with times, and to waves.

In: the bytes that a shader engine wrote (SQTT), of CDNA, RDNA 3 or RDNA 4. Out: `Packet`s in order
with the time of the shader's clock, and `Wave`s with their beginning, end and instructions.
Facts about the layouts are from AMD's rocprof-trace-decoder (MIT) and from recorded streams.
Invariant: nothing outside the bytes is read. A stream decodes to its end, but for a last packet
that was cut off, or there is a `DataError` that says where.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from weft.errors import DataError

# name, pattern of its low bits, their number, bits of the packet, first and last bit of the time
# that passed before it
Layout = tuple[str, int, int, int, int, int]
_RDNA: tuple[Layout, ...] = (
    ("nop", 0b0000, 4, 4, 0, 0),
    ("time", 0b1000, 4, 8, 4, 8),
    ("valu", 0b011, 3, 12, 3, 6),
    ("immediate", 0b1101, 4, 12, 4, 7),
    ("immediate mask", 0b00100, 5, 24, 5, 8),
    ("wave ready", 0b10100, 5, 24, 5, 8),
    ("wave start", 0b01100, 5, 32, 5, 7),
    ("wave end", 0b10101, 5, 20, 5, 8),
    ("alu executes", 0b1110, 4, 8, 6, 8),
    ("memory executes", 0b1111, 4, 8, 6, 8),
    ("register", 0b1001, 4, 64, 4, 7),
    ("state", 0b1110001, 7, 64, 7, 10),
    ("utilisation", 0b0110001, 7, 48, 7, 9),
    ("header", 0b0010001, 7, 64, 0, 0),
    ("wave states", 0b1010001, 7, 24, 7, 16),
)
_RDNA3: tuple[Layout, ...] = (
    *_RDNA,
    ("instruction", 0b010, 3, 20, 4, 7),
    ("timestamp", 0b0000001, 7, 48, 0, 0),
    ("event", 0b1100001, 7, 24, 7, 10),
    ("counters", 0b10110, 5, 28, 5, 8),
    ("wave start long", 0b11100, 5, 48, 5, 7),
    ("wave allocate", 0b00101, 5, 20, 5, 8),
    ("data", 0b0000110, 7, 52, 7, 10),
    ("data short", 0b1000110, 7, 28, 7, 10),
    ("program counter", 0b0100001, 7, 64, 8, 11),
)
_RDNA4: tuple[Layout, ...] = (
    *_RDNA,
    ("instruction", 0b010, 3, 20, 3, 6),
    ("timestamp", 0b0000001, 7, 64, 0, 0),
    ("wave start long", 0b11100, 5, 40, 5, 7),
    ("wave allocate", 0b00101, 5, 24, 5, 8),
    ("data", 0b0000110, 7, 56, 7, 10),
    ("data short", 0b1000110, 7, 32, 7, 10),
    ("lanes", 0b1100110, 7, 24, 7, 10),
    ("lanes of three", 0b010110, 6, 48, 6, 9),
    ("program counter", 0b0100001, 7, 72, 8, 11),
)
# CDNA's packets are multiples of 16 bits, named by four bits; the time before one is bit 4
_CDNA: tuple[tuple[str, int], ...] = (
    ("misc", 16), ("timestamp", 64), ("register", 64), ("wave start", 32), ("wave allocate", 32),
    ("register cs", 48), ("wave end", 16), ("event", 16), ("event cs", 16), ("event gfx", 16),
    ("instruction", 16), ("program counter", 64), ("data", 48), ("issue", 32), ("counters", 64),
    ("register cs private", 48),
)  # fmt: skip
LAYOUTS = {
    family: {layout[0]: layout for layout in layouts}
    for family, layouts in (("rdna3", _RDNA3), ("rdna4", _RDNA4))
}
CDNA_NUMBERS = {name: (number, size) for number, (name, size) in enumerate(_CDNA)}
_REALTIME_BIT = {"rdna3": 9, "rdna4": 7}
# bits of fields: name -> (first, number), by packet
FIELDS: dict[str, dict[str, dict[str, tuple[int, int]]]] = {
    "rdna3": {
        "wave start": {"sa": (7, 1), "simd": (8, 2), "wgp": (10, 3), "slot": (13, 5)},
        "wave end": {"sa": (8, 1), "simd": (9, 2), "wgp": (11, 3), "slot": (15, 5)},
        "instruction": {"slot": (8, 5), "operation": (13, 7)},
        "valu": {"slot": (7, 5)},
        "immediate": {"slot": (7, 5)},
        "register": {"address": (16, 16), "data": (32, 32)},
    },
    "rdna4": {
        "wave start": {"sa": (7, 1), "simd": (8, 2), "wgp": (10, 4), "slot": (15, 5)},
        "wave end": {"sa": (8, 1), "simd": (9, 2), "wgp": (11, 4), "slot": (15, 5)},
        "instruction": {"slot": (7, 5), "operation": (12, 8)},
        "valu": {"slot": (7, 5)},
        "immediate": {"slot": (7, 5)},
        "register": {"address": (16, 16), "data": (32, 32)},
    },
    "cdna": {
        "wave start": {"sa": (5, 1), "wgp": (6, 4), "slot": (10, 4), "simd": (14, 2)},
        "wave end": {"sa": (5, 1), "wgp": (6, 4), "slot": (10, 4), "simd": (14, 2)},
        "instruction": {"slot": (5, 4), "simd": (9, 2), "operation": (11, 5)},
        "register": {"address": (16, 16), "data": (32, 32)},
        "data": {"sa": (5, 1), "wgp": (6, 4), "slot": (10, 4), "simd": (14, 2), "data": (16, 32)},
    },
}
# numbers of operations, as recordings have them; branches say whether they were taken
OPERATIONS = {
    "rdna3": {
        "scalar": 0, "scalar memory": 1, "taken": 3, "not taken": 4, "memory load": 0x22,
        "memory store": 0x24, "shared load": 0x29, "shared store": 0x2B, "vector": 0, "other": 0,
    },
    "cdna": {
        "scalar memory": 0, "scalar": 1, "memory store": 4, "vector": 5, "shared load": 6,
        "shared store": 6, "taken": 12, "not taken": 13, "memory load": 14, "other": 15,
    },
}  # fmt: skip
OPERATIONS["rdna4"] = OPERATIONS["rdna3"]
_ISSUED = ("instruction", "valu", "immediate")


@dataclass(frozen=True)
class Packet:
    """One packet: where it begins in the stream (in bits), when, what, and its bits."""

    offset: int
    time: int
    name: str
    bits: int
    realtime: int | None = None

    def fields(self, family: str) -> dict[str, int]:
        """Its parts by name."""
        layout = FIELDS[family].get(self.name, {})
        return {name: self.bits >> first & (1 << n) - 1 for name, (first, n) in layout.items()}


@dataclass
class Wave:
    """A wave on its unit: when it began and ended, and what it issued when."""

    place: tuple[int, int, int, int]  # array, unit, SIMD, slot
    start: int
    end: int | None = None
    issued: list[tuple[int, str, int]] = field(default_factory=list)  # time, kind, operation


def family_of(arch: str) -> str:
    """The kind of stream that an architecture writes."""
    found = {"gfx9": "cdna", "gfx1": "rdna4" if arch.startswith("gfx12") else "rdna3"}.get(arch[:4])
    if found is None or arch.startswith("gfx10"):
        raise DataError(f"thread traces of {arch!r} are not known; those of gfx9, 11 and 12 are")
    return found


def packets(data: bytes, arch: str) -> Iterator[Packet]:
    """The packets of a stream."""
    family = family_of(arch)
    return _cdna_packets(data) if family == "cdna" else _rdna_packets(data, family)


def _tables(layouts: tuple[Layout, ...]) -> list[Layout | None]:
    found: list[Layout | None] = [None] * 128
    for layout in layouts:
        _, pattern, count, *_ = layout
        for rest in range(1 << (7 - count)):
            found[rest << count | pattern] = layout
    return found


_BY_LOW_BITS = {"rdna3": _tables(_RDNA3), "rdna4": _tables(_RDNA4)}


def _rdna_packets(data: bytes, family: str) -> Iterator[Packet]:
    table, realtime_bit = _BY_LOW_BITS[family], _REALTIME_BIT[family]
    total, at, time = 8 * len(data), 0, 0
    while at < total:
        low = at >> 3
        word = int.from_bytes(data[low : low + 10], "little") >> (at & 7)
        layout = table[word & 127]
        if layout is None:
            raise DataError(f"no packet begins with {word & 127:07b}, at bit {at} of a trace")
        name, _, _, size, first, last = layout
        if at + size > total:
            return  # the buffer ended in the middle of it
        bits = word & (1 << size) - 1
        realtime = None
        if name == "timestamp":
            if bits >> realtime_bit & 1:
                realtime = bits >> 12
            else:
                time += bits >> 12
        else:
            time += bits >> first & (1 << (last - first)) - 1
        yield Packet(at, time, name, bits, realtime)
        at += size


def _cdna_packets(data: bytes) -> Iterator[Packet]:
    total, at, time = 8 * len(data), 0, 0
    while at < total:
        word = int.from_bytes(data[at >> 3 : (at >> 3) + 8], "little")
        name, size = _CDNA[word & 15]
        if at + size > total:
            return
        bits = word & (1 << size) - 1
        realtime = bits >> 16 if name == "timestamp" else None
        time += bits >> 4 & (0xFF if name == "misc" else 1)
        yield Packet(at, time, name, bits, realtime)
        at += size


def waves(data: bytes, arch: str) -> list[Wave]:
    """The waves of a stream, in the order in which they began."""
    family = family_of(arch)
    found: list[Wave] = []
    open_waves: dict[tuple[int, int, int, int], Wave] = {}
    for packet in packets(data, arch):
        if packet.name in ("wave start", "wave end"):
            parts = packet.fields(family)
            place = (parts["sa"], parts["wgp"], parts["simd"], parts["slot"])
            if packet.name == "wave start":
                open_waves[place] = wave = Wave(place, packet.time)
                found.append(wave)
            elif place in open_waves:
                open_waves.pop(place).end = packet.time
        elif packet.name in _ISSUED:
            parts = packet.fields(family)
            # instructions are traced on one SIMD, so that a slot names a wave
            for place, wave in open_waves.items():
                if place[3] == parts["slot"] and parts.get("simd", place[2]) == place[2]:
                    wave.issued.append((packet.time, packet.name, parts.get("operation", 0)))
                    break
    return found


def follow(
    lines: Sequence[tuple[int, int, str, int]],
    entry: int,
    issued: Sequence[tuple[int, str, int]],
    arch: str,
) -> list[int]:
    """The offset of each instruction that a wave issued: packets do not say it, branches do.

    `lines` are offset, bytes, text and the target of a branch (or -1), `entry` is where the wave
    begins. The walk ends where the code does, or where an address is computed.
    """
    taken = OPERATIONS[family_of(arch)]["taken"]
    known = {offset: (size, text, target) for offset, size, text, target in lines}
    found: list[int] = []
    at = entry
    for _, _, operation in issued:
        if at not in known:
            break
        size, text, target = known[at]
        found.append(at)
        if text.startswith(("s_setpc", "s_swappc", "s_endpgm")):
            break
        at = target if target >= 0 and operation == taken else at + size
    return found
