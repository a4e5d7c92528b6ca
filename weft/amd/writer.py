"""Writes a code object: sections placed at addresses, symbols, the dynamic table, headers.

In: the loaded sections, symbols, and relocations that remain for the loader. Out: the bytes of an
ELF shared object as AMD's loaders take it. Stands on `elf`; `codeobject` builds and links with it.
Invariant: a section's place in the file is its address, so that an image is the file itself.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from weft.amd import elf
from weft.amd.elf import Export, Part

_HEADERS = 9
_RELATIVE64 = 13


class Writer:
    """One code object being written: place the parts first, then ask for addresses."""

    def __init__(self, flags: int, abi: int, parts: Sequence[Part], symbols: Sequence[Export]):
        self.flags, self.abi = flags, abi
        self.symbols = list(symbols)
        shared = [each for each in self.symbols if each.binding and each.visibility in (0, 3)]
        self.shared = shared
        names = [each.name for each in shared]
        self.strings, self.string_places = elf.string_table(names)
        read_only = [each for each in parts if not each.flags & (elf.EXECUTABLE | elf.WRITABLE)]
        code = [each for each in parts if each.flags & elf.EXECUTABLE]
        data = [each for each in parts if each.flags & elf.WRITABLE]
        held = elf.ALLOCATED
        count = len(shared) + 1
        tables = [
            Part(".dynsym", elf.DYNAMIC_SYMBOLS, held, bytes(24 * count), 8, ".dynstr", 1, 24),
            Part(".hash", 5, held, elf.hash_table(["", *names]), 4, ".dynsym", 0, 4),
            Part(".dynstr", elf.STRINGS, held, self.strings, 1),
        ]
        notes = [each for each in read_only if each.type == elf.NOTE]
        rest = [each for each in read_only if each.type != elf.NOTE]
        self.relative = Part(".rela.dyn", elf.RELOCATIONS, held, b"", 8, ".dynsym", 0, 24)
        flags_of_dynamic = held | elf.WRITABLE
        self.dynamic = Part(".dynamic", 6, flags_of_dynamic, bytes(16 * 9), 8, ".dynstr", 0, 16)
        self.groups = [[*notes, *tables, self.relative, *rest], code, [*data, self.dynamic]]
        self.parts = {each.name: each for group in self.groups for each in group}

    def reserve(self, loader_relocations: int) -> None:
        """Make room for what the loader has left to do, and place everything."""
        self.relative.data = bytes(24 * loader_relocations)
        if not loader_relocations:
            self.groups[0] = [each for each in self.groups[0] if each is not self.relative]
            self.parts.pop(self.relative.name, None)
        at = 64 + 56 * _HEADERS
        for number, group in enumerate(self.groups):
            if number and group:
                at = elf.aligned(at, elf.PAGE)
            for part in group:
                at = elf.aligned(at, max(1, part.alignment))
                part.address = part.offset = at
                at += len(part.data)
        self.end = at

    def address(self, part: str, value: int = 0) -> int:
        """Where a place in a part is."""
        return self.parts[part].address + value

    def finish(self, loader_relocations: Sequence[tuple[int, int]] = ()) -> bytes:
        """The file; relocations are (place, value relative to the base)."""
        self.relative.data = b"".join(
            struct.pack("<QQq", place, _RELATIVE64, value) for place, value in loader_relocations
        )
        self.parts[".dynsym"].data = self._symbol_table(self.shared, self.string_places)
        self._write_dynamic()
        strings, places = elf.string_table([each.name for each in self.symbols])
        ordered = sorted(self.symbols, key=lambda each: each.binding != 0)
        first_global = 1 + sum(each.binding == 0 for each in ordered)
        table = self._symbol_table(ordered, places)
        kinds = (elf.SYMBOLS, elf.STRINGS)
        extra = [
            Part(".symtab", kinds[0], 0, table, 8, ".strtab", first_global, 24),
            Part(".shstrtab", kinds[1], 0, b"", 1),
            Part(".strtab", kinds[1], 0, strings, 1),
        ]
        everything = [each for group in self.groups for each in group] + extra
        extra[1].data, section_names = elf.string_table([each.name for each in everything])
        out = bytearray(self.end)
        for part in extra:
            out += bytes(-len(out) % part.alignment)
            part.offset = len(out)
            out += part.data
        for group in self.groups:
            for part in group:
                out[part.offset : part.offset + len(part.data)] = part.data
        out += bytes(-len(out) % 8)
        headers = self._section_headers(everything, section_names)
        segments = self._segments()
        out[64 : 64 + 56 * len(segments)] = b"".join(struct.pack("<IIQQQQQQ", *s) for s in segments)
        names_at = 1 + everything.index(extra[1])
        ident = b"\x7fELF\x02\x01\x01" + bytes([elf.SYSTEM, self.abi]) + bytes(7)
        counts = (64, 56, len(segments), 64, len(everything) + 1, names_at)
        out[:64] = struct.pack(
            *("<16sHHIQQQIHHHHHH", ident, elf.SHARED, elf.MACHINE, 1, 0, 64),
            *(len(out), self.flags, *counts),
        )
        return bytes(out + headers)

    def _symbol_table(self, symbols: Sequence[Export], places: dict[str, int]) -> bytes:
        numbers = {name: i + 1 for i, name in enumerate(self._section_order())}
        entries = [bytes(24)]
        for each in symbols:
            info = each.binding << 4 | each.type
            place = self.address(each.part, each.value)
            entry = (places[each.name], info, each.visibility, numbers[each.part], place, each.size)
            entries.append(struct.pack("<IBBHQQ", *entry))
        return b"".join(entries)

    def _section_order(self) -> list[str]:
        return [each.name for group in self.groups for each in group]

    def _write_dynamic(self) -> None:
        words = [(6, self.address(".dynsym")), (11, 24), (5, self.address(".dynstr"))]
        words += [(10, len(self.strings)), (4, self.address(".hash"))]
        if self.relative.data:
            words += [(7, self.relative.address), (8, len(self.relative.data)), (9, 24)]
        words.append((0, 0))
        table = b"".join(struct.pack("<QQ", *each) for each in words)
        self.dynamic.data = table + bytes(len(self.dynamic.data) - len(table))

    def _section_headers(self, parts: Sequence[Part], names: dict[str, int]) -> bytes:
        numbers = {each.name: i + 1 for i, each in enumerate(parts)}
        headers = [bytes(64)]
        for each in parts:
            link = numbers[each.link] if each.link else 0
            place = (each.address, each.offset, len(each.data))
            rest = (link, each.info, each.alignment, each.entry)
            headers.append(
                struct.pack("<IIQQQQIIQQ", names[each.name], each.type, each.flags, *place, *rest)
            )
        return b"".join(headers)

    def _segments(self) -> list[tuple[int, ...]]:
        """The program headers: what is loaded, the dynamic table, the notes, an unusable stack."""
        read_only, code, data = self.groups
        ends: Callable[[Sequence[Part]], int] = lambda parts: (  # noqa: E731
            parts[-1].address + len(parts[-1].data)
        )
        size = 56 * _HEADERS
        found: list[tuple[int, ...]] = [(6, 4, 64, 64, 64, size, size, 8)]
        total = ends(read_only)
        found.append((1, 4, 0, 0, 0, total, total, elf.PAGE))
        for parts, flags in ((code, 5), (data, 6)):
            if parts:
                start = parts[0].address
                length = ends(parts) - start
                found.append((1, flags, start, start, start, length, length, elf.PAGE))
        start, length = self.dynamic.address, len(self.dynamic.data)
        found.append((2, 6, start, start, start, length, length, 8))
        for part in read_only:
            if part.type == elf.NOTE:
                place = (part.address,) * 3
                found.append((4, 4, *place, len(part.data), len(part.data), 4))
                break
        found.append((0x6474E551, 6, 0, 0, 0, 0, 0, 0))
        # headers that are not needed are of no type
        return found + [(0,) * 8] * (_HEADERS - len(found))
