"""MessagePack, as much of it as the metadata of code objects uses.

In: maps, lists, strings, integers, booleans, floats, nothing. Out: bytes, and back. Stands alone.
Invariant: damaged bytes raise a `DataError`; nothing outside them is read, and no length that they
name is believed before it is checked against what is there.
"""

from __future__ import annotations

import struct
from typing import Any

from weft.errors import ArgumentError, DataError

MOST_LEVELS = 32

_INTEGERS = {0xCC: ">B", 0xCD: ">H", 0xCE: ">I", 0xCF: ">Q"}
_INTEGERS |= {0xD0: ">b", 0xD1: ">h", 0xD2: ">i", 0xD3: ">q", 0xCA: ">f", 0xCB: ">d"}
_STRINGS = {0xD9: ">B", 0xDA: ">H", 0xDB: ">I", 0xC4: ">B", 0xC5: ">H", 0xC6: ">I"}
_LISTS = {0xDC: ">H", 0xDD: ">I"}
_MAPS = {0xDE: ">H", 0xDF: ">I"}


def pack(value: Any) -> bytes:
    """The bytes of a value; maps are sorted by key, so that equal ones have equal bytes."""
    if value is None:
        return b"\xc0"
    if isinstance(value, bool):
        return b"\xc3" if value else b"\xc2"
    if isinstance(value, int):
        return _pack_integer(value)
    if isinstance(value, float):
        return b"\xcb" + struct.pack(">d", value)
    if isinstance(value, str):
        data = value.encode()
        return _head(len(data), 0xA0, 32, {1: 0xD9, 2: 0xDA, 4: 0xDB}) + data
    if isinstance(value, (list, tuple)):
        return _head(len(value), 0x90, 16, {2: 0xDC, 4: 0xDD}) + b"".join(map(pack, value))
    if isinstance(value, dict):
        head = _head(len(value), 0x80, 16, {2: 0xDE, 4: 0xDF})
        return head + b"".join(pack(key) + pack(value[key]) for key in sorted(value))
    raise ArgumentError(f"metadata cannot hold {type(value).__name__}")


def _pack_integer(value: int) -> bytes:
    if 0 <= value < 128:
        return bytes([value])
    if -32 <= value < 0:
        return struct.pack(">b", value)
    codes = (0xCC, 0xCD, 0xCE, 0xCF) if value >= 0 else (0xD0, 0xD1, 0xD2, 0xD3)
    for code in codes:
        try:
            return bytes([code]) + struct.pack(_INTEGERS[code], value)
        except struct.error:
            continue
    raise ArgumentError(f"metadata cannot hold the integer {value}: 64 bits are the most")


def _head(length: int, short: int, limit: int, codes: dict[int, int]) -> bytes:
    if length < limit:
        return bytes([short | length])
    for width, code in codes.items():
        if length < 1 << 8 * width:
            return bytes([code]) + length.to_bytes(width, "big")
    raise ArgumentError(f"metadata cannot hold {length} elements")


def unpack(data: bytes) -> Any:
    """The value in bytes that hold one; zeros may follow it."""
    return _Reader(data).value(0)


class _Reader:
    """Reads values one after the other."""

    def __init__(self, data: bytes):
        self.data = data
        self.place = 0

    def take(self, count: int) -> bytes:
        if count > len(self.data) - self.place:
            raise DataError(
                f"metadata ends at byte {len(self.data)}, in a value of {count} bytes at "
                f"{self.place}"
            )
        self.place += count
        return self.data[self.place - count : self.place]

    def number(self, code: str) -> Any:
        return struct.unpack(code, self.take(struct.calcsize(code)))[0]

    def value(self, level: int) -> Any:
        if level > MOST_LEVELS:
            raise DataError(f"metadata is nested more than {MOST_LEVELS} deep")
        code = self.take(1)[0]
        if code < 0x80 or code >= 0xE0:
            return code if code < 0x80 else code - 256
        if code in (0xC0, 0xC2, 0xC3):
            return {0xC0: None, 0xC2: False, 0xC3: True}[code]
        if code in _INTEGERS:
            return self.number(_INTEGERS[code])
        if 0xA0 <= code < 0xC0 or code in _STRINGS:
            length = code & 31 if code < 0xC0 else self.number(_STRINGS[code])
            return self.text(length)
        if 0x90 <= code < 0xA0 or code in _LISTS:
            length = code & 15 if code < 0xA0 else self.number(_LISTS[code])
            self.check(length)
            return [self.value(level + 1) for _ in range(length)]
        if code < 0x90 or code in _MAPS:
            length = code & 15 if code < 0x90 else self.number(_MAPS[code])
            self.check(2 * length)
            return self.mapping(length, level)
        raise DataError(f"metadata has a value of the unknown kind {code:#x}")

    def check(self, count: int) -> None:
        if count > len(self.data) - self.place:
            raise DataError(f"metadata names {count} elements in {len(self.data)} bytes")

    def text(self, length: int) -> str:
        try:
            return self.take(length).decode()
        except UnicodeDecodeError:
            raise DataError("metadata has a string that is not UTF-8") from None

    def mapping(self, length: int, level: int) -> dict[Any, Any]:
        found = {}
        for _ in range(length):
            key = self.value(level + 1)
            if isinstance(key, (list, dict)):
                raise DataError("metadata has a map with a key that is a collection")
            found[key] = self.value(level + 1)
        return found
