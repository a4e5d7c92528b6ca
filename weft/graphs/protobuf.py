"""Protocol buffers, read by a table of fields: no generated code, nothing executed.

In: a `ByteSource` and the name of a message. Out: nested `Message`s, whose large fields stay where
they are, as `Span`s. Sits on `nn.formats.source`; `model` gives the messages their meaning.
Invariant: what is made is bounded by the bytes that were read: a length is compared with the bytes
that are there before anything is done with it, and messages inside of messages wait in a list,
so no depth of nesting is a recursion.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from weft.errors import DataError
from weft.nn.formats.source import ByteSource

# bytes that are looked at in one piece; a large field is skipped, not read
_BLOCK = 1 << 16
# a tag and a length take at most this
_LONGEST_HEAD = 20
_SHIFTS = tuple(range(0, 70, 7))
# messages inside of messages; what people write has fewer than 20
_DEEPEST = 200
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
# numbers of one packed field that are read into Python's memory
_MOST_NUMBERS = 1 << 24


@dataclass(frozen=True)
class Span:
    """Bytes of the source that were not read."""

    start: int
    length: int


@dataclass(frozen=True)
class Field:
    """One field: its name, what it holds, and whether there may be several.

    `kind` is int, float, text, bytes, span (left in the source), ints, floats (both also packed),
    numbers (packed numbers, left in the source), or the name of a message.
    """

    name: str
    kind: str
    repeated: bool = False


class Message(dict[str, Any]):
    """The fields of one message by name; a field that is not there is absent, or an empty list."""

    __slots__ = ("kind",)

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def many(self, name: str) -> list[Any]:
        """A repeated field."""
        found: list[Any] = self.get(name, [])
        return found


Schema = dict[str, dict[int, Field]]


def read_message(source: ByteSource, kind: str, schema: Schema) -> Message:
    """The whole source as one message."""
    root = Message(kind)
    pending = [(root, 0, source.size, 0)]
    while pending:
        message, start, stop, depth = pending.pop()
        fields = schema[message.kind]
        for number, wire, value in _fields(source, start, stop, message.kind):
            field = fields.get(number)
            if field is None:
                continue
            if field.kind in schema:
                if wire != _BYTES or depth >= _DEEPEST:
                    raise _wrong(source, message, field, wire)
                inner = Message(field.kind)
                pending.append((inner, value.start, value.start + value.length, depth + 1))
                _store(message, field, inner)
            else:
                _decode(source, message, field, wire, value)
    return root


def _store(message: Message, field: Field, value: Any) -> None:
    if field.repeated:
        message.setdefault(field.name, []).append(value)
    else:
        message[field.name] = value


def _wrong(source: ByteSource, message: Message, field: Field, wire: int) -> DataError:
    return DataError(
        f"{source.name}: the field {field.name!r} of a {message.kind} should hold {field.kind}, "
        f"found wire type {wire}, or messages nested more than {_DEEPEST} deep; the file is damaged"
    )


def _decode(source: ByteSource, message: Message, field: Field, wire: int, value: Any) -> None:
    kind = field.kind
    if wire == _BYTES:
        if kind in ("ints", "floats"):
            message.setdefault(field.name, []).extend(_packed(source, message, field, value))
        elif kind == "numbers":
            message.setdefault(field.name, []).append(value)
        elif kind == "span":
            _store(message, field, value)
        elif kind in ("text", "bytes"):
            raw = source.read(value.start, value.length, field.name)
            _store(message, field, raw if kind == "bytes" else raw.decode("utf-8", "replace"))
        else:
            raise _wrong(source, message, field, wire)
    elif wire == _VARINT and kind in ("int", "ints", "numbers"):
        number = signed(value)
        message.setdefault(field.name, []).append(number) if kind != "int" else _store(
            message, field, number
        )
    elif wire == _FIXED32 and kind in ("float", "floats", "numbers"):
        real = struct.unpack("<f", value)[0]
        message.setdefault(field.name, []).append(real) if kind != "float" else _store(
            message, field, real
        )
    elif wire == _FIXED64 and kind == "numbers":
        message.setdefault(field.name, []).append(struct.unpack("<d", value)[0])
    else:
        raise _wrong(source, message, field, wire)


def _packed(source: ByteSource, message: Message, field: Field, span: Span) -> list[Any]:
    raw = source.read(span.start, span.length, field.name)
    if field.kind == "floats":
        if len(raw) % 4:
            raise _wrong(source, message, field, _BYTES)
        return list(struct.unpack(f"<{len(raw) // 4}f", raw))
    return unpack_varints(raw, source.name)


def unpack_varints(raw: bytes, name: str) -> list[int]:
    """Packed whole numbers, each as a signed one of 64 bits."""
    if len(raw) > 10 * _MOST_NUMBERS:
        raise DataError(f"{name}: {len(raw)} bytes of packed numbers in one field are too many")
    numbers: list[int] = []
    total = shift = 0
    for byte in raw:
        total |= (byte & 0x7F) << shift
        if byte < 0x80:
            numbers.append(signed(total & 0xFFFFFFFFFFFFFFFF))
            total = shift = 0
        elif (shift := shift + 7) > 63:
            raise DataError(f"{name}: a packed number has more than 10 bytes; it is damaged")
    if shift:
        raise DataError(f"{name}: packed numbers end in the middle of one; the file is damaged")
    return numbers


def signed(value: int) -> int:
    """The 64 bits of a varint as a signed number."""
    return value - (1 << 64) if value >> 63 else value


def _fields(source: ByteSource, start: int, stop: int, kind: str) -> Iterator[tuple[int, int, Any]]:
    """(number, wire type, value) of each field: an int, 4 or 8 bytes, or a Span."""
    position, base, block = start, start, b""

    def varint(offset: int) -> tuple[int, int]:
        total = 0
        for shift in _SHIFTS:
            if offset >= len(block):
                break
            byte = block[offset]
            offset += 1
            total |= (byte & 0x7F) << shift
            if byte < 0x80:
                return total & 0xFFFFFFFFFFFFFFFF, offset
        raise DataError(
            f"{source.name}: a number at byte {position} of a {kind} does not end; the file is cut "
            "short or damaged"
        )

    while position < stop:
        if position - base + _LONGEST_HEAD > len(block) and base + len(block) < stop:
            base, block = position, source.read(position, min(_BLOCK, stop - position), kind)
        tag, offset = varint(position - base)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, offset = varint(offset)
            position = base + offset
            yield number, wire, value
        elif wire == _BYTES:
            length, offset = varint(offset)
            position = base + offset
            if length > stop - position:
                raise DataError(
                    f"{source.name}: field {number} of a {kind} claims {length} bytes at byte "
                    f"{position}, where {stop - position} are left; the file is cut short or "
                    "damaged"
                )
            yield number, wire, Span(position, length)
            position += length
        elif wire in (_FIXED32, _FIXED64):
            length = 4 if wire == _FIXED32 else 8
            if base + offset + length > stop:
                raise DataError(f"{source.name}: a {kind} ends in the middle of field {number}")
            yield number, wire, block[offset : offset + length]
            position = base + offset + length
        else:
            raise DataError(
                f"{source.name}: wire type {wire} at byte {position} of a {kind}; an ONNX model "
                "has none, so this is no model, or it is damaged"
            )
