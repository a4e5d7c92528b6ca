"""The image of a code object: its sections as they lie in memory, relocated.

In: an ELF file, relocatable (as LLVM emits it) or linked. Out: `Image`. Under `emulated.py`.
Invariant: nothing outside the file is read, and every relocation is applied or refused.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from weft.errors import DataError

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_RELOCATION = struct.Struct("<QQq")
_SYMTAB, _RELA, _NOBITS, _DYNSYM = 2, 4, 8, 11
_ALLOCATED = 2
_RELOCATABLE = 1
_AMDGPU = 224
# relocations: bytes, whether relative to their place, and the bits that they take
_KINDS = {
    1: (4, False, 0), 2: (4, False, 32), 3: (8, False, 0), 4: (4, True, 0), 5: (8, True, 0),
    6: (4, False, 0), 10: (4, True, 0), 11: (4, True, 32), 13: (8, False, 0),
}  # fmt: skip
_LARGEST = 1 << 28


@dataclass(frozen=True)
class Image:
    """Contents without relocations, and what has to be done at an address."""

    contents: bytes
    relocations: tuple[tuple[int, int, int], ...]  # place, kind, offset of the target
    descriptors: dict[str, int]  # kernel -> offset
    text: tuple[int, int]  # offset and bytes of the code

    def at(self, base: int) -> bytes:
        """The contents as they are when they lie at an address."""
        found = bytearray(self.contents)
        for place, kind, goal in self.relocations:
            size, is_relative, shift = _KINDS[kind]
            value = goal - place if is_relative else base + goal
            mask = (1 << 8 * size) - 1
            found[place : place + size] = (value >> shift & mask).to_bytes(size, "little")
        return bytes(found)


def load_image(data: bytes) -> Image:
    """The image of a code object, or DataError."""
    try:
        return _Reader(data).image()
    except (struct.error, KeyError, IndexError, ValueError, OverflowError, MemoryError) as error:
        raise DataError(f"a code object of {len(data)} bytes is damaged: {error}") from None


class _Reader:
    def __init__(self, data: bytes) -> None:
        self.data = data
        if not data.startswith(b"\x7fELF\x02\x01"):
            raise DataError("a code object is a 64-bit ELF file; this is none")
        header = _HEADER.unpack_from(data)
        if header[2] != _AMDGPU:
            raise DataError(f"a code object is for machine {_AMDGPU}, found {header[2]}")
        self.is_relocatable = header[1] == _RELOCATABLE
        offset, size, count = header[6], header[11], header[12]
        if size != _SECTION.size:
            raise DataError(f"section headers have {_SECTION.size} bytes, found {size}")
        self.sections = [_SECTION.unpack_from(data, offset + i * size) for i in range(count)]

    def bytes_of(self, section: tuple[int, ...]) -> bytes:
        if section[1] == _NOBITS:
            if section[5] > _LARGEST:
                raise DataError(f"a section of {section[5]} bytes is too large")
            return bytes(section[5])
        found = self.data[section[4] : section[4] + section[5]]
        if len(found) != section[5]:
            raise DataError("a section ends beyond the file")
        return found

    def text_at(self, section: tuple[int, ...], offset: int) -> str:
        strings = self.bytes_of(section)
        return strings[offset : strings.index(b"\0", offset)].decode()

    def image(self) -> Image:
        places, contents = self._place()
        symbols: dict[int, list[tuple[str, int]]] = {}
        descriptors: dict[str, int] = {}
        for number, section in enumerate(self.sections):
            if section[1] not in (_SYMTAB, _DYNSYM):
                continue
            symbols[number] = found = []
            table = self.bytes_of(section)
            for position in range(0, len(table) - _SYMBOL.size + 1, _SYMBOL.size):
                name, _, _, home, value, _ = _SYMBOL.unpack_from(table, position)
                text = self.text_at(self.sections[section[6]], name) if name else ""
                base = places.get(home)
                at = -1 if base is None else base + value
                if base is not None and not self.is_relocatable:
                    at = base + value - self.sections[home][3]
                found.append((text, at))
                if text.endswith(".kd") and 0 <= at <= len(contents) - 64:
                    descriptors[text[:-3]] = at
        code = [n for n, s in enumerate(self.sections) if n in places and s[2] & 4]
        if len(code) != 1:
            raise DataError(f"a code object has one section of code, found {len(code)}")
        start = places[code[0]]
        relocations = self._relocations(places, symbols, len(contents))
        return Image(contents, relocations, descriptors, (start, self.sections[code[0]][5]))

    def _place(self) -> tuple[dict[int, int], bytes]:
        """Offsets of the sections that are loaded, one after another, and their contents."""
        places: dict[int, int] = {}
        found = bytearray()
        for number, section in enumerate(self.sections):
            if not section[2] & _ALLOCATED or not section[5]:
                continue
            if not self.is_relocatable:
                # a linked file says where: the distances between its sections are fixed
                at = section[3]
            else:
                align = max(1, min(section[8], 4096))
                at = -(-len(found) // align) * align
            if at < len(found) and not self.is_relocatable or at > _LARGEST:
                raise DataError("sections of a code object overlap or are far apart")
            found += bytes(at - len(found))
            places[number] = at
            found += self.bytes_of(section)
        return places, bytes(found)

    def _relocations(
        self, places: dict[int, int], symbols: dict[int, list[tuple[str, int]]], size: int
    ) -> tuple[tuple[int, int, int], ...]:
        found: list[tuple[int, int, int]] = []
        for section in self.sections:
            if section[1] != _RELA or not section[5]:
                continue
            base = places.get(section[7]) if self.is_relocatable else 0
            if base is None:
                continue
            table = self.bytes_of(section)
            for position in range(0, len(table) - _RELOCATION.size + 1, _RELOCATION.size):
                offset, info, addend = _RELOCATION.unpack_from(table, position)
                kind = info & 0xFFFFFFFF
                if kind not in _KINDS:
                    raise DataError(f"a code object has a relocation of kind {kind}")
                goal = addend
                if info >> 32:
                    text, at = symbols[section[6]][info >> 32]
                    if at < 0:
                        raise DataError(f"a code object needs {text}, which it does not have")
                    goal += at
                place = base + offset
                if not 0 <= place <= size - _KINDS[kind][0]:
                    raise DataError("a relocation is outside its section")
                found.append((place, kind, goal))
        return tuple(found)
