"""Links relocatable objects, as LLVM's amdgcn target emits them, to one code object.

In: objects of one target. Out: a code object. Beside `codeobject`, on `elf` and `writer`.
Invariant: every relocation is either resolved here or left to the loader as one that only adds the
base; a symbol that nobody defines is an error that names it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.amd import codeobject, elf, msgpack
from weft.amd.elf import Export, Object, Part, Relocation, Section, Symbol
from weft.amd.writer import Writer
from weft.errors import DataError


@dataclass
class Merged:
    """An output section: the inputs' sections of its kind, one after the other."""

    name: str
    flags: int
    alignment: int = 1
    data: bytearray = field(default_factory=bytearray)

    def add(self, section: Section) -> int:
        """Where the section begins."""
        self.alignment = max(self.alignment, section.alignment)
        self.data += bytes(-len(self.data) % max(1, section.alignment))
        start = len(self.data)
        self.data += section.data if section.data else bytes(section.size)
        return start


def link(objects: bytes | Sequence[bytes]) -> bytes:
    """The code object of one or more relocatable objects."""
    if isinstance(objects, bytes):
        objects = [objects]
    inputs = [elf.read(each) for each in objects]
    if not inputs:
        raise DataError("there is nothing to link")
    for each in inputs:
        if each.type != elf.RELOCATABLE:
            raise DataError("the file is linked already: objects are relocatable")
        if each.flags & 0xFF != inputs[0].flags & 0xFF:
            raise DataError(f"objects for {each.target} and {inputs[0].target} do not link")
    return _Linker(inputs).link()


class _Linker:
    """Objects being linked."""

    def __init__(self, inputs: Sequence[Object]):
        self.inputs = inputs
        self.merged: dict[str, Merged] = {}
        self.places: dict[tuple[int, int], tuple[str, int]] = {}
        self.globals: dict[str, tuple[int, Symbol]] = {}
        self.indirect: dict[tuple[int, int], int] = {}

    def link(self) -> bytes:
        for number, each in enumerate(self.inputs):
            self._place(number, each)
            self._define(number, each)
        self._reserve_indirect()
        parts = [Part(".note", elf.NOTE, elf.ALLOCATED, self._note(), 4)]
        for merged in self.merged.values():
            parts.append(Part(merged.name, 1, merged.flags, bytes(merged.data), merged.alignment))
        first = self.inputs[0]
        self.writer = Writer(first.flags, first.abi or codeobject.ABI, parts, self._exports())
        left = self._count_absolute() + len(self.indirect)
        self.writer.reserve(left)
        remaining: list[tuple[int, int]] = []
        for number, each in enumerate(self.inputs):
            self._relocate(number, each, remaining)
        self._fill_indirect(remaining)
        for merged in self.merged.values():
            self.writer.parts[merged.name].data = bytes(merged.data)
        return self.writer.finish(remaining)

    def _place(self, number: int, each: Object) -> None:
        for index, section in enumerate(each.sections):
            if not section.flags & elf.ALLOCATED or section.type == elf.NOTE or not section.size:
                continue
            if section.size > 1 << 28:
                raise DataError(f"section {section.name} has {section.size} bytes")
            name = _output(section)
            kept = section.flags & (elf.ALLOCATED | elf.EXECUTABLE | elf.WRITABLE)
            merged = self.merged.setdefault(name, Merged(name, kept))
            self.places[number, index] = (name, merged.add(section))

    def _define(self, number: int, each: Object) -> None:
        for symbol in each.symbols:
            if not symbol.binding or not symbol.section or not symbol.name:
                continue
            if symbol.section < len(each.sections):
                size = each.sections[symbol.section].size
                if symbol.value > size or symbol.size > size:
                    raise DataError(f"the symbol {symbol.name} is outside its section")
            known = self.globals.get(symbol.name)
            if known is not None and known[1].binding == 1 and symbol.binding == 1:
                raise DataError(f"the symbol {symbol.name} is defined twice")
            if known is None or symbol.binding == 1:
                self.globals[symbol.name] = (number, symbol)

    def _exports(self) -> list[Export]:
        found = []
        for number, symbol in self.globals.values():
            if symbol.section >= 0xFF00 or (number, symbol.section) not in self.places:
                continue
            part, start = self.places[number, symbol.section]
            rest = (symbol.type, symbol.binding, symbol.visibility)
            found.append(Export(symbol.name, part, start + symbol.value, symbol.size, *rest))
        return found

    def _note(self) -> bytes:
        """The metadata of all inputs as one."""
        records, name = [], ""
        for each in self.inputs:
            for section in each.sections:
                if section.type == elf.NOTE and codeobject.METADATA in elf.notes(section):
                    content = elf.notes(section)[codeobject.METADATA]
                    if len(self.inputs) == 1:
                        return elf.note(*codeobject.METADATA, content)
                    metadata = msgpack.unpack(content)
                    if not isinstance(metadata, dict):
                        raise DataError("the metadata of an object is no map")
                    kernels = metadata.get("amdhsa.kernels", [])
                    records += kernels if isinstance(kernels, list) else []
                    name = str(metadata.get("amdhsa.target", name))
        return codeobject.metadata_of(name, records)

    def _symbol(self, number: int, index: int) -> tuple[int, Symbol]:
        symbols = self.inputs[number].symbols
        if index >= len(symbols):
            raise DataError(f"a relocation names symbol {index} of {len(symbols)}")
        symbol = symbols[index]
        if symbol.name in self.globals and symbol.binding:
            return self.globals[symbol.name]
        return number, symbol

    def _address(self, number: int, index: int) -> int:
        owner, symbol = self._symbol(number, index)
        if not symbol.section:
            if symbol.binding == 2:
                return 0
            raise DataError(f"no object defines the symbol {symbol.name or index}")
        if symbol.section == 0xFFF1:
            return symbol.value
        place = self.places.get((owner, symbol.section))
        if place is None:
            raise DataError(f"the symbol {symbol.name or index} is in no loaded section")
        return self.writer.address(place[0], place[1] + symbol.value)

    def _pending(self, number: int, each: Object) -> list[tuple[int, Relocation]]:
        found = []
        for index, relocations in each.relocations.items():
            if (number, index) in self.places:
                found += [(index, one) for one in relocations]
        return found

    def _kind(self, relocation: Relocation) -> str:
        kind = codeobject.PATTERNS.get(relocation.type)
        if kind is None:
            raise DataError(f"the linker knows no relocation of type {relocation.type}")
        return kind

    def _count_absolute(self) -> int:
        return sum(
            self._kind(one) == "q"
            for number, each in enumerate(self.inputs)
            for _, one in self._pending(number, each)
        )

    def _reserve_indirect(self) -> None:
        """A word of the global offset table for every symbol that is reached through it."""
        for number, each in enumerate(self.inputs):
            for _, one in self._pending(number, each):
                if self._kind(one).startswith("got"):
                    self.indirect.setdefault((number, one.symbol), len(self.indirect) * 8)
        if self.indirect:
            flags = elf.ALLOCATED | elf.WRITABLE
            table = Merged(".got", flags, 8, bytearray(8 * len(self.indirect)))
            self.merged[table.name] = table

    def _fill_indirect(self, remaining: list[tuple[int, int]]) -> None:
        for (number, index), place in self.indirect.items():
            remaining.append((self.writer.address(".got", place), self._address(number, index)))

    def _relocate(self, number: int, each: Object, remaining: list[tuple[int, int]]) -> None:
        for index, one in self._pending(number, each):
            name, start = self.places[number, index]
            place = start + one.offset
            here = self.writer.address(name, place)
            kind = self._kind(one)
            if kind.startswith("got"):
                there = self.writer.address(".got", self.indirect[number, one.symbol])
                kind = "relhi" if kind == "gothi" else "rel"
            else:
                there = self._address(number, one.symbol)
            value = there + one.addend
            if not -(1 << 62) < value < 1 << 62:
                raise DataError(f"a relocation in {name} leads to {value:#x}")
            width = 8 if kind in ("q", "relq") else 2 if kind == "rel16" else 4
            data = self.merged[name].data
            if place < 0 or place + width > len(data):
                raise DataError(f"a relocation at {place:#x} is outside {name}")
            if kind == "q":
                remaining.append((here, value))
            elif kind == "rel16":
                _store(data, place, (value - here - 4) // 4, 2)
            else:
                relative = value - here if kind.startswith("rel") else value
                _store(data, place, relative >> 32 if kind.endswith("hi") else relative, width)


def _store(data: bytearray, place: int, value: int, width: int) -> None:
    data[place : place + width] = (value & (1 << 8 * width) - 1).to_bytes(width, "little")


def _output(section: Section) -> str:
    """The output section that an input belongs to."""
    if section.flags & elf.EXECUTABLE:
        return ".text"
    return ".data" if section.flags & elf.WRITABLE else ".rodata"
