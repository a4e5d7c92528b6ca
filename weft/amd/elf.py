"""ELF files of AMD's code objects: read with every bound checked, and written.

In: bytes of a relocatable object or of a code object. Out: an `Object` with its sections, symbols
and relocations; and from segments and symbols the bytes of a code object that loaders take.
`codeobject` stands on it. Invariant: a file from a stranger is data: whatever it says is checked
against its length before it is used, and what is wrong raises a `DataError`.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.amd.targets import CDNA, TARGETS, Target
from weft.errors import DataError

MACHINE, SYSTEM = 224, 64
RELOCATABLE, SHARED = 1, 3
ALLOCATED, EXECUTABLE, WRITABLE = 2, 4, 1
NO_BITS, RELOCATIONS, SYMBOLS, DYNAMIC_SYMBOLS, NOTE, STRINGS = 8, 4, 2, 11, 7, 3
PAGE = 4096
MOST_SECTIONS = 65536
MOST_IMAGE = 1 << 32

_HEADER = "<16sHHIQQQIHHHHHH"
_SECTION = "<IIQQQQIIQQ"
_SEGMENT = "<IIQQQQQQ"
_SYMBOL = "<IBBHQQ"
_RELOCATION = "<QQq"


@dataclass(frozen=True)
class Section:
    """A section; `data` is empty for one that holds zeros."""

    name: str
    type: int
    flags: int
    address: int
    size: int
    link: int
    info: int
    alignment: int
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Symbol:
    """A symbol; `section` is 0 where it is defined elsewhere."""

    name: str
    value: int
    size: int
    section: int
    type: int
    binding: int
    visibility: int


@dataclass(frozen=True)
class Relocation:
    """A place in a section that depends on where a symbol ends up."""

    offset: int
    type: int
    symbol: int
    addend: int


@dataclass(frozen=True)
class Segment:
    """What is loaded: bytes of the file at an address, zeros up to `memory_size`."""

    address: int
    memory_size: int
    flags: int
    data: bytes = field(repr=False)


@dataclass(frozen=True)
class Object:
    """An ELF file of AMD's."""

    type: int
    abi: int
    flags: int
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    segments: tuple[Segment, ...]
    relocations: dict[int, tuple[Relocation, ...]]

    @property
    def target(self) -> Target:
        """The GPU that it is for."""
        number = self.flags & 0xFF
        for each in TARGETS.values():
            if each.machine == number:
                return each
        known = ", ".join(TARGETS)
        raise DataError(f"the code object is for the unknown GPU {number:#x}; known are {known}")


def _take(data: bytes, offset: int, size: int, what: str) -> bytes:
    """A part of the file, or an error that names it."""
    if offset > len(data) or size > len(data) - offset:
        raise DataError(
            f"{what} at {offset} with {size} bytes is outside the file of {len(data)} bytes"
        )
    return data[offset : offset + size]


def _string(table: bytes, offset: int, what: str) -> str:
    """A name in a table of strings."""
    end = table.find(b"\0", offset) if offset < len(table) else -1
    if end < 0:
        raise DataError(f"the name of {what} is outside its table of strings")
    try:
        return table[offset:end].decode()
    except UnicodeDecodeError:
        raise DataError(f"the name of {what} is not UTF-8") from None


def read(data: bytes) -> Object:
    """The object in a file."""
    head = struct.unpack(_HEADER, _take(data, 0, 64, "the header"))
    ident, kind, machine, _, _, segment_at, section_at, flags = head[:8]
    _, segment_size, segment_count, section_size, section_count, names = head[8:]
    if ident[:7] != b"\x7fELF\x02\x01\x01":
        raise DataError("the file is no 64-bit little-endian ELF file")
    if machine != MACHINE or ident[7] != SYSTEM:
        raise DataError(
            f"the ELF file is for machine {machine} and system {ident[7]}; AMD's code objects "
            f"have {MACHINE} and {SYSTEM}"
        )
    if kind not in (RELOCATABLE, SHARED):
        raise DataError(f"the ELF file is of type {kind}; objects have 1 and code objects 3")
    if section_count and section_size != 64:
        raise DataError(f"the sections' headers have {section_size} bytes; 64 are expected")
    if segment_count and segment_size != 56:
        raise DataError(f"the segments' headers have {segment_size} bytes; 56 are expected")
    sections = _read_sections(data, section_at, section_count, names)
    symbols = _read_symbols(sections)
    segments = _read_segments(data, segment_at, segment_count)
    return Object(kind, ident[8], flags, sections, symbols, segments, _read_relocations(sections))


def _read_sections(data: bytes, at: int, count: int, names: int) -> tuple[Section, ...]:
    raw = [
        struct.unpack(_SECTION, _take(data, at + 64 * i, 64, f"the header of section {i}"))
        for i in range(count)
    ]
    if count and names >= count:
        raise DataError(f"the sections' names are in section {names} of {count}")
    table = b""
    if count:
        table = _take(data, raw[names][4], raw[names][5], "the sections' names")
    found = []
    for number, entry in enumerate(raw):
        name, kind, flags, address, offset, size, link, info, alignment, _ = entry
        has_data = kind not in (0, NO_BITS)
        content = _take(data, offset, size, f"section {number}") if has_data else b""
        shown = _string(table, name, f"section {number}") if number else ""
        if alignment & (alignment - 1) or alignment > 1 << 20:
            raise DataError(f"section {number} is aligned to {alignment}, no power of two")
        found.append(Section(shown, kind, flags, address, size, link, info, alignment, content))
    return tuple(found)


def _read_symbols(sections: Sequence[Section]) -> tuple[Symbol, ...]:
    table = next((each for each in sections if each.type == SYMBOLS), None)
    table = table or next((each for each in sections if each.type == DYNAMIC_SYMBOLS), None)
    if table is None:
        return ()
    if table.link >= len(sections):
        raise DataError(f"the symbols' names are in section {table.link} of {len(sections)}")
    names = sections[table.link].data
    found = []
    for number in range(len(table.data) // 24):
        name, info, other, section, value, size = struct.unpack_from(
            _SYMBOL, table.data, 24 * number
        )
        shown = _string(names, name, f"symbol {number}") if name else ""
        if section >= len(sections) and section < 0xFF00:
            raise DataError(f"symbol {shown!r} is in section {section} of {len(sections)}")
        found.append(Symbol(shown, value, size, section, info & 15, info >> 4, other & 3))
    return tuple(found)


def _read_segments(data: bytes, at: int, count: int) -> tuple[Segment, ...]:
    found = []
    for number in range(count):
        entry = _take(data, at + 56 * number, 56, f"the header of segment {number}")
        kind, flags, offset, address, _, size, memory, _ = struct.unpack(_SEGMENT, entry)
        if kind != 1:
            continue
        content = _take(data, offset, size, f"segment {number}")
        if memory < size or address + memory > MOST_IMAGE:
            raise DataError(
                f"segment {number} has {size} bytes for {memory} of memory at {address:#x}"
            )
        found.append(Segment(address, memory, flags, content))
    return tuple(found)


def _read_relocations(sections: Sequence[Section]) -> dict[int, tuple[Relocation, ...]]:
    """By the section that they change; 0 for those of a loaded image."""
    found: dict[int, tuple[Relocation, ...]] = {}
    for section in sections:
        if section.type != RELOCATIONS:
            continue
        entries = [
            struct.unpack_from(_RELOCATION, section.data, 24 * i)
            for i in range(len(section.data) // 24)
        ]
        if section.info >= len(sections):
            raise DataError(f"relocations are for section {section.info} of {len(sections)}")
        made = tuple(
            Relocation(offset, info & 0xFFFFFFFF, info >> 32, addend)
            for offset, info, addend in entries
        )
        found[section.info] = found.get(section.info, ()) + made
    return found


def notes(section: Section) -> dict[tuple[str, int], bytes]:
    """The entries of a section of notes: (owner, type) -> content."""
    found = {}
    data, at = section.data, 0
    while at + 12 <= len(data):
        name_size, size, kind = struct.unpack_from("<III", data, at)
        owner = _take(data, at + 12, name_size, "the owner of a note")
        start = at + 12 + (name_size + 3) // 4 * 4
        content = _take(data, start, size, "a note")
        found[owner.rstrip(b"\0").decode("utf-8", "replace"), kind] = content
        at = start + (size + 3) // 4 * 4
    return found


def note(owner: str, kind: int, content: bytes) -> bytes:
    """One entry of a section of notes."""
    name = owner.encode() + b"\0"
    head = struct.pack("<III", len(name), len(content), kind)
    return head + name + bytes(-len(name) % 4) + content + bytes(-len(content) % 4)


def machine_flags(gpu: Target) -> int:
    """The header's flags: the GPU, and that both settings of its memory features will do."""
    return gpu.machine | (0x500 if gpu.family == CDNA else 0)


def aligned(value: int, alignment: int) -> int:
    """The next multiple."""
    return (value + alignment - 1) // alignment * alignment


@dataclass
class Part:
    """A section of the file that is being written; `symbols_of` links to its table of strings."""

    name: str
    type: int
    flags: int
    data: bytes
    alignment: int
    link: str = ""
    info: int = 0
    entry: int = 0
    address: int = 0
    offset: int = 0


@dataclass(frozen=True)
class Export:
    """A symbol to write: its place is relative to a part."""

    name: str
    part: str
    value: int
    size: int
    type: int
    binding: int = 1
    visibility: int = 0


def hash_table(names: Sequence[str]) -> bytes:
    """The SysV hash table of a symbol table's names, the empty first one included."""
    buckets = [0] * max(1, len(names) // 2)
    chains = [0] * len(names)
    for number, name in enumerate(names):
        if number:
            place = _hash(name) % len(buckets)
            chains[number], buckets[place] = buckets[place], number
    counts = struct.pack("<II", len(buckets), len(chains))
    return counts + struct.pack(f"<{len(buckets) + len(chains)}I", *buckets, *chains)


def _hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def string_table(names: Sequence[str]) -> tuple[bytes, dict[str, int]]:
    """Names after one another, and where each is."""
    data, places = b"\0", {"": 0}
    parts = [data]
    size = 1
    for name in names:
        if name not in places:
            places[name] = size
            parts.append(name.encode() + b"\0")
            size += len(parts[-1])
    return b"".join(parts), places
