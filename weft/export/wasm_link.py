"""A linker for WebAssembly: one relocatable object of LLVM's becomes a module that runs.

In: the object, the functions to export, data with fixed addresses. Out: the bytes of the module.
Sits under `write_wasm`; written after the WebAssembly specification and the tool conventions for
linking (github.com/WebAssembly/tool-conventions).
Invariant: a module imports nothing but, where it is shared, its memory; an object that asks for
anything else is refused by name.

    memory:  [fixed data of the plan][data of the object][stack, growing down] ... a stack each
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from weft.errors import ExportError

PAGE = 1 << 16
MOST_PAGES = 1 << 16
_MAGIC = b"\0asm\1\0\0\0"
_TYPE, _IMPORT, _FUNCTION, _TABLE, _MEMORY, _GLOBAL, _EXPORT = 1, 2, 3, 4, 5, 6, 7
_CODE, _DATA, _DATA_COUNT = 10, 11, 12
# of relocations: how many bytes each patches, and whether it is signed
_FUNCTION_INDEX, _ADDRESS, _ADDRESS_SIGNED, _ADDRESS_WORD, _TYPE_INDEX, _GLOBAL_INDEX = (
    0,
    3,
    4,
    5,
    6,
    7,
)
_WITH_ADDEND = frozenset({3, 4, 5, 8, 9, 11, 14, 15, 16, 17, 22, 23})
_STACK_POINTER = "__stack_pointer"


def unsigned(number: int, width: int = 0) -> bytes:
    """LEB128, of at least so many bytes."""
    out = bytearray()
    while True:
        byte = number & 0x7F
        number >>= 7
        if number == 0 and len(out) + 1 >= width:
            return bytes([*out, byte])
        out.append(byte | 0x80)


def signed(number: int, width: int = 0) -> bytes:
    """Signed LEB128, of at least so many bytes."""
    out = bytearray()
    while True:
        byte = number & 0x7F
        number >>= 7
        is_done = (number == 0 and not byte & 0x40) or (number == -1 and byte & 0x40)
        if is_done and len(out) + 1 >= width:
            return bytes([*out, byte])
        out.append(byte | 0x80)


def vector(items: Sequence[bytes]) -> bytes:
    """A length and as many items."""
    return unsigned(len(items)) + b"".join(items)


def section(number: int, body: bytes) -> bytes:
    """A section of a module."""
    return bytes([number]) + unsigned(len(body)) + body


def text(name: str) -> bytes:
    """A name."""
    data = name.encode()
    return unsigned(len(data)) + data


class Reader:
    """Reads the pieces of a module."""

    def __init__(self, data: bytes, at: int = 0) -> None:
        self.data, self.at = data, at

    @property
    def is_done(self) -> bool:
        """Whether everything was read."""
        return self.at >= len(self.data)

    def byte(self) -> int:
        """One byte."""
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """LEB128."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value

    def signed(self) -> int:
        """Signed LEB128."""
        value = shift = 0
        while True:
            byte = self.byte()
            value |= (byte & 0x7F) << shift
            shift += 7
            if not byte & 0x80:
                return value - (1 << shift) if byte & 0x40 else value

    def take(self, count: int) -> bytes:
        """So many bytes."""
        self.at += count
        return self.data[self.at - count : self.at]

    def name(self) -> str:
        """A name."""
        return self.take(self.number()).decode()


def sections_of(module: bytes) -> Iterator[tuple[int, bytes]]:
    """(number, body) of a module's sections; custom ones are number 0."""
    if module[:8] != _MAGIC:
        raise ExportError("this is no WebAssembly module of version 1")
    reader = Reader(module, 8)
    while not reader.is_done:
        number = reader.byte()
        yield number, reader.take(reader.number())


def custom_section(module: bytes, wanted: str) -> bytes | None:
    """The contents of a custom section."""
    for number, body in sections_of(module):
        reader = Reader(body)
        if number == 0 and reader.name() == wanted:
            return body[reader.at :]
    return None


@dataclass
class _Symbol:
    kind: int
    name: str | None
    index: int = 0  # of a function or a global
    place: tuple[int, int] | None = None  # of data: segment and offset


@dataclass
class _Segment:
    alignment: int
    data: bytearray
    source: int  # where its bytes stand in the object's section
    address: int = 0


@dataclass
class _Object:
    sections: dict[int, bytes] = field(default_factory=dict)
    customs: dict[str, bytes] = field(default_factory=dict)
    imports: list[str] = field(default_factory=list)  # functions
    symbols: list[_Symbol] = field(default_factory=list)
    alignments: list[int] = field(default_factory=list)
    segments: list[_Segment] = field(default_factory=list)


def _read(data: bytes) -> _Object:
    found = _Object()
    for number, body in sections_of(data):
        if number:
            found.sections[number] = body
        else:
            reader = Reader(body)
            name = reader.name()
            found.customs[name] = body[reader.at :]
    _read_imports(found)
    _read_symbols(found)
    _read_segments(found)
    return found


def _read_imports(found: _Object) -> None:
    reader = Reader(found.sections.get(_IMPORT, b"\0"))
    for _ in range(reader.number()):
        reader.name()
        name, kind = reader.name(), reader.byte()
        if kind == 0:
            reader.number()
            found.imports.append(name)
        elif kind == 3:
            reader.take(2)
        else:
            if kind == 1:
                reader.byte()
            flags = reader.number()
            reader.number()
            if flags & 1:
                reader.number()


def _read_symbols(found: _Object) -> None:
    reader = Reader(found.customs["linking"])
    if reader.number() != 2:
        raise ExportError("LLVM writes objects for linkers of another version than 2")
    while not reader.is_done:
        kind = reader.byte()
        part = Reader(reader.take(reader.number()))
        if kind == 5:
            for _ in range(part.number()):
                part.name()
                found.alignments.append(part.number())
                part.number()
        elif kind == 8:
            for _ in range(part.number()):
                found.symbols.append(_read_symbol(part))


def _read_symbol(part: Reader) -> _Symbol:
    kind, flags = part.byte(), part.number()
    is_undefined, has_name = flags & 0x10, flags & 0x40
    if kind == 1:
        name = part.name()
        if is_undefined:
            return _Symbol(kind, name)
        segment, offset, _ = part.number(), part.number(), part.number()
        return _Symbol(kind, name, place=(segment, offset))
    if kind == 3:
        return _Symbol(kind, None, part.number())
    index = part.number()
    return _Symbol(kind, part.name() if not is_undefined or has_name else None, index)


def _read_segments(found: _Object) -> None:
    if _DATA not in found.sections:
        return
    reader = Reader(found.sections[_DATA])
    for number in range(reader.number()):
        if reader.number() != 0 or reader.byte() != 0x41:
            raise ExportError("LLVM writes data of a kind that is not linked here")
        reader.signed()
        reader.byte()
        size = reader.number()
        place = reader.at
        found.segments.append(
            _Segment(1 << found.alignments[number], bytearray(reader.take(size)), place)
        )


# ------------------------------------------------------------ linking
@dataclass(frozen=True)
class Layout:
    """Where things are in memory: the object's data begins at `start`, after what the plan has.
    With several `stacks` a module is for as many instances over one shared memory, which it
    imports: `init` fills that memory, and each instance moves `__stack_pointer` to its stack."""

    start: int
    stack: int = 1 << 20
    stacks: int = 1


def link(
    data: bytes,
    exports: Sequence[str],
    layout: Layout,
    fixed: Mapping[int, bytes],
    customs: Callable[[int], Mapping[str, bytes]],
) -> bytes:
    """The module: `fixed` is data by address, `customs` are sections to carry along, which may
    tell how many pages of memory there are."""
    found = _read(data)
    if found.imports:
        raise ExportError(
            f"the kernels call {', '.join(sorted(found.imports))}, which WebAssembly does not have"
        )
    at = layout.start
    for segment in found.segments:
        at = -(-at // segment.alignment) * segment.alignment
        segment.address = at
        at += len(segment.data)
    code = bytearray(found.sections[_CODE])
    _relocate(found, code)
    top = -(-at // 16) * 16 + layout.stack
    needed = top + (layout.stacks - 1) * layout.stack
    pages = -(-needed // PAGE)
    if pages > MOST_PAGES:
        raise ExportError(
            f"the model needs {needed} bytes, a module of WebAssembly has 4 GiB at most"
        )
    segments = [(address, bytes(part)) for address, part in sorted(fixed.items()) if part]
    segments += [(s.address, bytes(s.data)) for s in found.segments if any(s.data)]
    functions = {s.name: s.index for s in found.symbols if s.kind == 0 and s.name}
    named = [text(name) + b"\0" + unsigned(functions[name]) for name in exports]
    named.append(text("memory") + b"\2\0")
    types, kinds = found.sections[_TYPE], found.sections[_FUNCTION]
    is_shared = layout.stacks > 1
    if is_shared:
        types, number = _appended(types, b"\x60\0\0")
        kinds, function = _appended(kinds, unsigned(number))
        code = bytearray(_appended(bytes(code), _init_body(segments))[0])
        named += [text("init") + b"\0" + unsigned(function), text(_STACK_POINTER) + b"\3\0"]
        memory = section(_IMPORT, vector([_shared_memory(pages)]))
    else:
        memory = section(_MEMORY, vector([b"\0" + unsigned(pages)]))
    pointer = b"\x7f\1\x41" + signed(_as_signed(top)) + b"\x0b"
    parts = [
        _MAGIC,
        section(_TYPE, types),
        memory if is_shared else b"",
        section(_FUNCTION, kinds),
        b"" if is_shared else memory,
        section(_GLOBAL, vector([pointer])),
        section(_EXPORT, vector(named)),
        section(_DATA_COUNT, unsigned(len(segments))) if segments else b"",
        section(_CODE, bytes(code)),
        section(_DATA, vector([_segment(*part, is_shared) for part in segments]))
        if segments
        else b"",
        *[section(0, text(name) + body) for name, body in customs(pages).items()],
    ]
    return b"".join(parts)


def _shared_memory(pages: int) -> bytes:
    """The import of a memory that does not grow and that several threads have."""
    return text("env") + text("memory") + b"\2\3" + unsigned(pages) + unsigned(pages)


def _appended(items: bytes, item: bytes) -> tuple[bytes, int]:
    """A vector with one more item, and the number of that item."""
    reader = Reader(items)
    count = reader.number()
    return unsigned(count + 1) + items[reader.at :] + item, count


def _init_body(segments: Sequence[tuple[int, bytes]]) -> bytes:
    """The code of `init`: every instance has the data, one of them puts it into memory."""
    code = bytearray(b"\0")
    for number, (address, data) in enumerate(segments):
        # i32.const to, i32.const 0, i32.const bytes, memory.init
        code += b"\x41" + signed(_as_signed(address)) + b"\x41\0\x41" + signed(len(data))
        code += b"\xfc\x08" + unsigned(number) + b"\0"
    return unsigned(len(code) + 1) + bytes(code) + b"\x0b"


def _as_signed(address: int) -> int:
    """An address above 2 GiB is a negative number to i32.const."""
    return address - (1 << 32) if address >> 31 else address


def _segment(address: int, data: bytes, is_passive: bool) -> bytes:
    contents = unsigned(len(data)) + data
    if is_passive:
        return b"\1" + contents
    return b"\0\x41" + signed(_as_signed(address)) + b"\x0b" + contents


def _relocate(found: _Object, code: bytearray) -> None:
    for name, is_code in (("reloc.CODE", True), ("reloc.DATA", False)):
        if name not in found.customs:
            continue
        reader = Reader(found.customs[name])
        reader.number()
        for _ in range(reader.number()):
            kind, offset, index = reader.byte(), reader.number(), reader.number()
            addend = reader.signed() if kind in _WITH_ADDEND else 0
            patch = _patch(found, kind, index, addend)
            if is_code:
                code[offset : offset + len(patch)] = patch
            else:
                _put(found, offset, patch)


def _patch(found: _Object, kind: int, index: int, addend: int) -> bytes:
    """The bytes that a relocation writes."""
    if kind == _TYPE_INDEX:
        return unsigned(index, 5)
    symbol = found.symbols[index]
    if kind == _FUNCTION_INDEX:
        return unsigned(symbol.index, 5)
    if kind == _GLOBAL_INDEX and symbol.name in (None, _STACK_POINTER):
        return unsigned(0, 5)
    if kind in (_ADDRESS, _ADDRESS_SIGNED, _ADDRESS_WORD) and symbol.place is not None:
        segment, offset = symbol.place
        address = found.segments[segment].address + offset + addend
        if kind == _ADDRESS_WORD:
            return struct.pack("<I", address)
        return unsigned(address, 5) if kind == _ADDRESS else signed(address, 5)
    raise ExportError(f"LLVM asks for {symbol.name or 'something'} by a relocation of kind {kind}")


def _put(found: _Object, offset: int, patch: bytes) -> None:
    for segment in found.segments:
        place = offset - segment.source
        if 0 <= place < len(segment.data):
            segment.data[place : place + len(patch)] = patch
            return
