"""tar and zip archives: their members by name, as lazy Tensors, and unpacked into a folder.

In: a path, Tensor or bytes. Out: name -> `ByteSource` of each plain file in it.
Sits on `source`; the PyTorch reader uses it too. Invariant: a member's name stays inside the
folder it is unpacked into (no absolute path, no `..`; links are left out), and a member's bytes are
its own.
"""

from __future__ import annotations

import functools
import importlib
import os
import struct
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from weft.dtype import dtypes
from weft.errors import DataError
from weft.nn.formats.atomic import atomic_file
from weft.nn.formats.source import (
    ByteSource,
    MemorySource,
    PartSource,
    Readable,
    open_source,
    refuse_overlaps,
)
from weft.tensor import Tensor

Members = dict[str, ByteSource]

_CHUNK = 1 << 20


# ------------------------------------------------------------ what users call
def tar_extract(
    source: Readable, folder: str | os.PathLike[str] | None = None
) -> dict[str, Tensor]:
    """The files of a tar archive (gzip too) as Tensors of bytes; with `folder`, unpacked there.

    >>> import io, tarfile
    >>> file = io.BytesIO()
    >>> with tarfile.open(fileobj=file, mode="w") as tar:
    ...     entry = tarfile.TarInfo("a.txt")
    ...     entry.size = 4
    ...     tar.addfile(entry, io.BytesIO(b"weft"))
    >>> bytes(tar_extract(file.getvalue())["a.txt"].data())
    b'weft'
    """
    return _extract(source, folder, tar_members, "tarfile.ReadError")


def zip_extract(
    source: Readable, folder: str | os.PathLike[str] | None = None
) -> dict[str, Tensor]:
    """The files of a zip archive as Tensors of bytes; with `folder`, unpacked there.

    >>> import io, zipfile
    >>> file = io.BytesIO()
    >>> with zipfile.ZipFile(file, "w") as archive:
    ...     archive.writestr("a.txt", b"weft")
    >>> bytes(zip_extract(file.getvalue())["a.txt"].data())
    b'weft'
    """
    return _extract(source, folder, zip_members, "zipfile.BadZipFile")


def _extract(
    source: Readable,
    folder: str | os.PathLike[str] | None,
    members: Callable[[ByteSource], Members],
    kind: str,
) -> dict[str, Tensor]:
    with open_source(source) as opened:
        try:
            found = members(opened)
        except DataError as error:
            raise _damage(kind)(str(error)) from error
        if folder is None:
            return {n: part.view(0, dtypes.uint8, (part.size,)) for n, part in found.items()}
        return {n: Tensor(_unpack(part, Path(folder), n)) for n, part in found.items()}


@functools.cache
def _damage(kind: str) -> type[DataError]:
    """The error for a damaged archive, which is also the one of Python's own module for it."""
    module, name = kind.split(".")
    # loaded when it is needed: few programs read archives, fewer damaged ones
    return type(name, (DataError, getattr(importlib.import_module(module), name)), {})


def _unpack(part: ByteSource, folder: Path, name: str) -> Path:
    """Writes one member. Links that are in the folder already must not lead out of it either."""
    root = Path(os.path.realpath(folder))
    target = root / name
    real = Path(os.path.realpath(target))
    if root not in real.parents:
        raise DataError(f"{part.name} would be written to {real}, outside {root}")
    try:
        real.parent.mkdir(parents=True, exist_ok=True)
        with atomic_file(real, durable=False) as file:
            for start in range(0, part.size, _CHUNK):
                file.write(part.read(start, min(_CHUNK, part.size - start)))
    except OSError as error:
        raise DataError(f"{part.name} cannot be written to {real}: {error.strerror}") from error
    return real


def safe_name(name: str, archive: str) -> str:
    """The name of a member in one spelling, or an error if it leads out of its folder.

    >>> safe_name("./a//b.txt", "x.tar")
    'a/b.txt'
    """
    parts = [part for part in name.replace("\\", "/").split("/") if part not in ("", ".")]
    absolute = name[:1] in ("/", "\\") or name[1:2] == ":"
    if absolute or ".." in parts or not parts or "\0" in name:
        raise DataError(
            f"{archive} has a member named {name[:80]!r}, which leads out of its folder; it is not "
            "unpacked"
        )
    return "/".join(parts)


def _add(members: Members, name: str, part: ByteSource, archive: str) -> None:
    if name in members:
        raise DataError(f"{archive} has two members named {name[:80]!r}; it is damaged")
    members[name] = part


# ------------------------------------------------------------ zip
_END = struct.Struct("<4s4H2LH")
_END_64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR_64 = struct.Struct("<4sLQL")
_ENTRY = struct.Struct("<4s6H3L5H2L")
_LOCAL = struct.Struct("<4s5H3L2H")
_LONGEST_COMMENT = 0xFFFF
_STORED, _DEFLATED = 0, 8
_ENCRYPTED = 1
_UTF8 = 1 << 11
# deflate cannot pack tighter: two bits for at most 258 bytes
_TIGHTEST = 1032
_LINK = 0o120000
_KIND = 0o170000


@dataclass(frozen=True)
class _Entry:
    """A row of a zip's directory."""

    name: str
    flags: int
    method: int
    checksum: int
    packed: int
    size: int
    header: int
    mode: int


def is_zip(source: ByteSource) -> bool:
    """Whether the bytes start like a zip archive (also an empty one)."""
    return source.size >= 4 and source.read(0, 4) in (b"PK\x03\x04", b"PK\x05\x06")


def zip_members(source: ByteSource) -> Members:
    """The plain files of a zip archive. Stored ones stay where they are, deflated ones unpack."""
    members: Members = {}
    ranges = []
    for entry in _zip_directory(source):
        if entry.name.endswith("/") or entry.mode & _KIND == _LINK:
            continue
        name = safe_name(entry.name, source.name)
        what = f"{source.name}: {name[:80]}"
        start = _zip_data(source, entry, what)
        ranges.append((entry.header, start + entry.packed, name))
        part: ByteSource = PartSource(source, start, entry.packed, what)
        if entry.method == _DEFLATED:
            part = MemorySource(_inflate(part, entry), what)
        _add(members, name, part, source.name)
    refuse_overlaps(ranges, source.name)
    return members


def _zip_directory(source: ByteSource) -> list[_Entry]:
    """The rows of the central directory, which is found from the end of the file."""
    count, size, start = _zip_end(source)
    if count * _ENTRY.size > size:
        raise DataError(f"{source.name}: {count} entries do not fit a directory of {size} bytes")
    directory = source.read(start, size, "the directory of the zip")
    entries = []
    position = 0
    for _ in range(count):
        if directory[position : position + 4] != b"PK\x01\x02":
            raise DataError(f"{source.name}: the directory of the zip is damaged")
        if position + _ENTRY.size > size:
            raise DataError(f"{source.name}: the directory of the zip is cut short")
        row = _ENTRY.unpack_from(directory, position)
        name_end = position + _ENTRY.size + row[10]
        end = name_end + row[11] + row[12]
        if end > size:
            raise DataError(f"{source.name}: the directory of the zip is cut short")
        name = directory[position + _ENTRY.size : name_end]
        extra = directory[name_end : name_end + row[11]]
        entries.append(_zip_entry(row, name, extra, source.name))
        position = end
    return entries


def _zip_end(source: ByteSource) -> tuple[int, int, int]:
    """How many entries the directory has, its size, and where it starts."""
    tail_start = max(0, source.size - _END.size - _LONGEST_COMMENT)
    tail = source.read(tail_start, source.size - tail_start)
    found = tail.rfind(b"PK\x05\x06")
    if found < 0 or found + _END.size > len(tail):
        raise DataError(f"{source.name} is no zip archive, or is cut short: it has no end record")
    _, disk, _, _, count, size, start, _ = _END.unpack_from(tail, found)
    locator = tail_start + found - _LOCATOR_64.size
    if 0xFFFF in (disk, count) or 0xFFFFFFFF in (size, start):
        if locator >= 0 and source.read(locator, 4) == b"PK\x06\x07":
            _, _, end, _ = _LOCATOR_64.unpack(source.read(locator, _LOCATOR_64.size))
            row = _END_64.unpack(source.read(end, _END_64.size, "the end record of the zip"))
            if row[0] != b"PK\x06\x06":
                raise DataError(f"{source.name}: the end record of the zip is damaged")
            disk, count, size, start = row[4], row[7], row[8], row[9]
    if disk != 0:
        raise DataError(f"{source.name} is one part of a zip in several files; join them first")
    source.check(start, size, "the directory of the zip")
    return count, size, start


def _zip_entry(row: tuple[int, ...], name: bytes, extra: bytes, archive: str) -> _Entry:
    flags, method, checksum, packed, size = row[3], row[4], row[7], row[8], row[9]
    header = row[16]
    wide = _zip64_values(extra)
    values = []
    for value in (size, packed, header):
        if value == 0xFFFFFFFF and wide:
            value = wide.pop(0)
        values.append(value)
    try:
        text = name.decode("utf-8" if flags & _UTF8 else "cp437")
    except UnicodeDecodeError:
        raise DataError(f"{archive}: the name of a member is no text") from None
    # the upper half of the attributes is a Unix mode where the maker was Unix
    mode = row[15] >> 16 if row[1] >> 8 == 3 else 0
    return _Entry(text, flags, method, checksum, values[1], values[0], values[2], mode)


def _zip64_values(extra: bytes) -> list[int]:
    position = 0
    while position + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, position)
        body = extra[position + 4 : position + 4 + length]
        if kind == 1:
            return list(struct.unpack(f"<{len(body) // 8}Q", body[: len(body) // 8 * 8]))
        position += 4 + length
    return []


def _zip_data(source: ByteSource, entry: _Entry, what: str) -> int:
    """Where the bytes of a member start; its two descriptions must agree."""
    if entry.flags & _ENCRYPTED:
        raise DataError(f"{what} is encrypted; decrypt the archive first")
    if entry.method not in (_STORED, _DEFLATED):
        raise DataError(f"{what} is packed by method {entry.method}; stored and deflated are read")
    local = _LOCAL.unpack(source.read(entry.header, _LOCAL.size, what))
    if local[0] != b"PK\x03\x04":
        raise DataError(f"{what} does not start where the directory says; the archive is damaged")
    start = entry.header + _LOCAL.size + local[9] + local[10]
    source.check(start, entry.packed, what)
    if entry.method == _STORED and entry.size != entry.packed:
        raise DataError(f"{what} is stored in {entry.packed} bytes but claims to be {entry.size}")
    if entry.size > entry.packed * _TIGHTEST + _TIGHTEST:
        raise DataError(f"{what} claims {entry.size} bytes, which {entry.packed} cannot hold")
    return start


def _inflate(part: ByteSource, entry: _Entry) -> bytearray:
    """Unpacked in pieces: memory grows with what is really there, not with what is claimed."""
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    data = bytearray()
    try:
        for start in range(0, part.size, _CHUNK):
            pending = part.read(start, min(_CHUNK, part.size - start))
            while pending and len(data) <= entry.size:
                data += unpacker.decompress(pending, min(_CHUNK, entry.size + 1 - len(data)) or 1)
                pending = unpacker.unconsumed_tail
    except zlib.error as error:
        raise DataError(f"{part.name} does not unpack: {error}") from None
    if len(data) != entry.size or zlib.crc32(data) != entry.checksum:
        raise DataError(f"{part.name} is damaged: its size or checksum is not what it should be")
    return data


# ------------------------------------------------------------ tar
_RECORD = 512
_GZIP = b"\x1f\x8b"
_PLAIN = (b"0", b"\0", b"7")
# links, which may lead anywhere, and devices
_LEFT_OUT = (b"1", b"2", b"3", b"4", b"6")
_FOLDER, _LONG_NAME, _LONG_LINK, _PAX, _PAX_GLOBAL = b"5", b"L", b"K", b"x", b"g"
_LONGEST_HEADER = 1 << 20


def tar_members(source: ByteSource) -> Members:
    """The plain files of a tar archive, each where it is; a gzipped one is unpacked first."""
    if source.size >= 2 and source.read(0, 2) == _GZIP:
        source = MemorySource(_gunzip(source), source.name)
    members: Members = {}
    position = 0
    name: str | None = None
    size: int | None = None
    while position + _RECORD <= source.size:
        record = source.read(position, _RECORD)
        if record.count(0) == _RECORD:
            break
        header_size = _tar_number(record[124:136], source.name)
        _check_record(record, source.name)
        kind = record[156:157]
        length = header_size if size is None or kind not in _PLAIN else size
        start = position + _RECORD
        source.check(start, length, "a member of the tar")
        position = start + -(-length // _RECORD) * _RECORD
        if kind in (_LONG_NAME, _PAX):
            found = _tar_extension(source, start, length, kind)
            name, size = found[0] or name, size if found[1] is None else found[1]
            continue
        if kind not in (_LONG_LINK, _PAX_GLOBAL):
            _tar_member(
                source, members, kind, name or _tar_name(record, source.name), start, length
            )
            name, size = None, None
    if position == 0 and source.size < _RECORD:
        raise DataError(f"{source.name} is no tar archive: it has {source.size} bytes")
    return members


def _tar_member(
    source: ByteSource, members: Members, kind: bytes, name: str, start: int, length: int
) -> None:
    if kind == _FOLDER or kind in _LEFT_OUT or (kind in _PLAIN and name.endswith("/")):
        return
    checked = safe_name(name, source.name)
    what = f"{source.name}: {checked[:80]}"
    if kind not in _PLAIN:
        raise DataError(f"{what} is no plain file (kind {kind!r}); only those are unpacked")
    _add(members, checked, PartSource(source, start, length, what), source.name)


def _check_record(record: bytes, archive: str) -> None:
    """The checksum of a header, with the checksum's own field taken as spaces."""
    found = _tar_number(record[148:156], archive)
    if found != sum(record) - sum(record[148:156]) + 8 * ord(" "):
        raise DataError(f"{archive} is no tar archive, or a header in it is damaged")


def _tar_number(field: bytes, archive: str) -> int:
    """Octal digits, or GNU's binary form for what needs more."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0")[0].strip() or b"0"
    if digits.strip(b"01234567"):
        raise DataError(f"{archive} is no tar archive, or a header in it is damaged")
    return int(digits, 8)


def _tar_name(record: bytes, archive: str) -> str:
    name = _text(record[:100].split(b"\0")[0], archive)
    prefix = _text(record[345:500].split(b"\0")[0], archive)
    return f"{prefix}/{name}" if prefix and record[257:263] == b"ustar\0" else name


def _text(data: bytes, archive: str) -> str:
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(f"{archive}: the name of a member is no text") from None


def _tar_extension(
    source: ByteSource, start: int, length: int, kind: bytes
) -> tuple[str | None, int | None]:
    """Name and size of the next member, where an extension header gives them."""
    if length > _LONGEST_HEADER:
        raise DataError(f"{source.name}: an extension header of {length} bytes is no header")
    data = source.read(start, length)
    if kind == _LONG_NAME:
        return _text(data.split(b"\0")[0], source.name), None
    name: str | None = None
    size: int | None = None
    for key, value in _pax_records(data, source.name):
        if key.startswith(b"GNU.sparse"):
            raise DataError(f"{source.name} has a sparse file in it; only plain ones are unpacked")
        if key == b"path":
            name = _text(value, source.name)
        if key == b"size":
            if not value.isdigit() or len(value) > 18:
                raise DataError(f"{source.name}: a pax header is damaged")
            size = int(value)
    return name, size


def _pax_records(data: bytes, archive: str) -> Iterator[tuple[bytes, bytes]]:
    """Key and value of each line "length key=value", where the length counts all of the line."""
    position = 0
    while position < len(data):
        space = data.find(b" ", position, position + 8)
        digits = data[position : max(space, 0)]
        end = position + int(digits) if digits.isdigit() else -1
        # beyond the space, so that every round gets further
        if not position < space < end <= len(data):
            raise DataError(f"{archive}: a pax header is damaged")
        key, _, value = data[space + 1 : end].rstrip(b"\n").partition(b"=")
        yield key, value
        position = end


def _gunzip(source: ByteSource) -> bytearray:
    """All members of a gzip file, in pieces."""
    data = bytearray()
    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
    try:
        for start in range(0, source.size, _CHUNK):
            pending = source.read(start, min(_CHUNK, source.size - start))
            while pending:
                if unpacker.eof:
                    if not pending.strip(b"\0"):
                        break
                    unpacker = zlib.decompressobj(zlib.MAX_WBITS | 16)
                data += unpacker.decompress(pending, _CHUNK)
                pending = unpacker.unconsumed_tail or unpacker.unused_data
    except zlib.error as error:
        raise DataError(f"{source.name} does not unpack: {error}") from None
    if not unpacker.eof:
        raise DataError(f"{source.name} is cut short: its gzip data does not end")
    return data
