"""Object files: which symbols they define, and which they need from outside.

In: the bytes of an ELF, Mach-O or COFF object, as LLVM makes them for a system. Out: its symbols.
Below the loader of the CPU's code, which refuses what needs something that the process lacks:
LLVM's own loader would end the process.
Invariant: bytes that are no object file, or a damaged one, are a CompileError, never a crash.
"""

from __future__ import annotations

import ctypes
import functools
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weft.errors import CompileError


@dataclass(frozen=True)
class ObjectSymbols:
    """Names that an object file defines, and names that it needs from outside."""

    defined: frozenset[str]
    needed: frozenset[str]


_ELF_MAGIC = b"\x7fELF\x02\x01"
_ELF_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_ELF_SECTION = struct.Struct("<IIQQQQIIQQ")
_ELF_SYMBOL = struct.Struct("<IBBHQQ")
_ELF_SYMBOL_TABLE = 2
# The loader makes this one up itself.
_ELF_OFFSET_TABLE = "_GLOBAL_OFFSET_TABLE_"
# macOS: 64 bits, little-endian
_MACHO_MAGIC = b"\xcf\xfa\xed\xfe"
_MACHO_HEADER_BYTES = 32
_MACHO_SYMBOLS = 2
_MACHO_SYMBOL = struct.Struct("<IBBHQ")
_MACHO_TYPE, _MACHO_EXTERNAL = 0x0E, 0x01
# Windows: the machine is all that tells
_COFF_MACHINES = (b"\x64\x86", b"\x64\xaa")
_COFF_HEADER = struct.Struct("<HHIIIHH")
_COFF_SYMBOL = struct.Struct("<8sIhHBB")
_COFF_EXTERNAL = 2


def object_symbols(code: bytes) -> ObjectSymbols:
    """The symbols of an object file."""
    try:
        if code.startswith(_ELF_MAGIC):
            found = _elf_symbols(code)
        elif code.startswith(_MACHO_MAGIC):
            found = _macho_symbols(code)
        elif code.startswith(_COFF_MACHINES):
            found = _coff_symbols(code)
        else:
            raise ValueError("it starts like no object file")
        pairs = list(found)
    except (struct.error, IndexError, ValueError) as error:
        raise CompileError(f"an object file of {len(code)} bytes is damaged: {error}") from None
    needed = {name for name, is_defined in pairs if not is_defined and name != _ELF_OFFSET_TABLE}
    return ObjectSymbols(frozenset([n for n, is_defined in pairs if is_defined]), frozenset(needed))


def _text(code: bytes, first: int) -> str:
    return code[first : code.index(b"\0", first)].decode()


def _elf_symbols(code: bytes) -> Iterator[tuple[str, bool]]:
    """Names, and whether they are defined."""
    header = _ELF_HEADER.unpack_from(code)
    section_offset, section_size, section_count = header[6], header[11], header[12]
    sections = [
        _ELF_SECTION.unpack_from(code, section_offset + index * section_size)
        for index in range(section_count)
    ]
    for section in sections:
        if section[1] != _ELF_SYMBOL_TABLE:
            continue
        start, length, strings = section[4], section[5], sections[section[6]][4]
        for position in range(start, start + length, _ELF_SYMBOL.size):
            name, _, _, home, _, _ = _ELF_SYMBOL.unpack_from(code, position)
            if name != 0:
                yield _text(code, strings + name), home != 0


def _macho_symbols(code: bytes) -> Iterator[tuple[str, bool]]:
    """As above. A name of C has an underscore more there, which is not part of it."""
    (count,) = struct.unpack_from("<I", code, 16)
    place = _MACHO_HEADER_BYTES
    for _ in range(count):
        command, size = struct.unpack_from("<II", code, place)
        if command == _MACHO_SYMBOLS:
            symbols, number, strings, _ = struct.unpack_from("<IIII", code, place + 8)
            for index in range(number):
                name, kind, _, _, _ = _MACHO_SYMBOL.unpack_from(
                    code, symbols + index * _MACHO_SYMBOL.size
                )
                if kind & _MACHO_EXTERNAL:
                    yield _text(code, strings + name).removeprefix("_"), bool(kind & _MACHO_TYPE)
        if size < 8:
            raise ValueError("a load command without a size")
        place += size


def _coff_symbols(code: bytes) -> Iterator[tuple[str, bool]]:
    """As above; a long name stands in the strings behind the symbols."""
    header = _COFF_HEADER.unpack_from(code)
    symbols, count = header[3], header[4]
    strings = symbols + count * _COFF_SYMBOL.size
    index = 0
    while index < count:
        place = symbols + index * _COFF_SYMBOL.size
        name, value, section, _, storage, more = _COFF_SYMBOL.unpack_from(code, place)
        if storage == _COFF_EXTERNAL:
            if name[:4] == b"\0\0\0\0":
                (offset,) = struct.unpack_from("<I", name, 4)
                text = _text(code, strings + offset)
            else:
                text = name.rstrip(b"\0").decode()
            # a size without a section is a common symbol, which is defined
            yield text, section != 0 or value != 0
        index += 1 + more


@functools.cache
def windows_symbols() -> dict[str, int]:
    """What code for Windows needs beside functions of C, and which no library of the process shows.

    `_fltused` says that a program uses floats: nobody reads it. `__chkstk` touches the pages of a
    large stack frame one by one, as Windows wants it; it is in the system's lowest library.
    """
    libraries: Any = ctypes.WinDLL("ntdll")  # type: ignore[attr-defined,unused-ignore]
    probe = ctypes.cast(libraries.__chkstk, ctypes.c_void_p).value
    return {"_fltused": ctypes.addressof(_float_mark), "__chkstk": int(probe or 0)}


_float_mark = ctypes.c_int(0x9875)
