"""GGUF: the files of llama.cpp, with quantised weights.

In: a path, Tensor or bytes. Out: the file's values by name, and its tensors by name.
Sits on `source` and `dequantise`. Invariant: no count, length or offset of the header is used
before it was compared with the bytes that are left.
"""

from __future__ import annotations

import struct
from typing import Any

from weft.dtype import dtypes
from weft.errors import DataError
from weft.helpers import prod, round_up
from weft.nn.formats.dequantise import FORMATS, BlockFormat, PlainFormat
from weft.nn.formats.relayout import laid_out
from weft.nn.formats.source import (
    ByteSource,
    Readable,
    checked_shape,
    computable,
    open_source,
    refuse_overlaps,
)
from weft.tensor import Tensor

_MAGIC = b"GGUF"
_VERSIONS = (2, 3)
_DEFAULT_ALIGNMENT = 32
_MOST_AXES = 8
_LONGEST_NAME = 1 << 16
_DEEPEST_ARRAY = 8
_STRING, _ARRAY, _BOOL = 8, 9, 7
_NUMBERS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "B",
    10: "Q",
    11: "q",
    12: "d",
}
# the least that one entry takes: a key and a value; a name, a number of axes, a type, an offset
_LEAST_VALUE = 8 + 4 + 1
_LEAST_TENSOR = 8 + 4 + 4 + 8


def gguf_load(fn: Readable) -> tuple[dict[str, Any], dict[str, Tensor]]:
    r"""The values and the tensors of a GGUF file.

    A quantised tensor is a lazy float32 expression over its blocks, which stay as small as they are
    in the file: when it is first used, they are read (from disk for a path) and put into the order
    that products like, and that copy is kept for as long as the tensor lives. A model that takes
    them with `load_state_dict(model, tensors, realize=False)` keeps them that small. Others (F32,
    F16, BF16, ints) keep their dtype, and are read when they are first used too.

    >>> import struct
    >>> name = struct.pack("<Q", 1) + b"w"
    >>> header = b"GGUF" + struct.pack("<IQQ", 3, 1, 0) + name + struct.pack("<IQIQ", 1, 2, 0, 0)
    >>> values, tensors = gguf_load(header.ljust(64, b"\0") + struct.pack("<2f", 1, 2))
    >>> tensors["w"].tolist()
    [1.0, 2.0]
    """
    with open_source(fn) as source:
        reader = _Reader(source)
        if source.size < 4 or reader.take(4) != _MAGIC:
            raise DataError(f"{source.name} is no GGUF file: it does not start with GGUF")
        version = reader.number("I")
        if version not in _VERSIONS:
            raise DataError(
                f"{source.name} has GGUF version {version}; {_VERSIONS} are read, little-endian"
            )
        tensor_count = reader.count(_LEAST_TENSOR, "tensors")
        value_count = reader.count(_LEAST_VALUE, "values")
        values = _read_values(reader, value_count)
        infos = [_read_info(reader) for _ in range(tensor_count)]
        return values, _tensors(source, reader.position, values, infos)


class _Reader:
    """Numbers and text, one after another."""

    def __init__(self, source: ByteSource) -> None:
        self.source = source
        self.position = 0
        self._block = b""
        self._block_start = 0

    def take(self, length: int) -> bytes:
        """The next bytes. Small ones come out of a block, for there are many."""
        first = self.position - self._block_start
        if first + length > len(self._block):
            self.source.check(self.position, length, "the header")
            wanted = min(self.source.size - self.position, max(length, 1 << 16))
            self._block = self.source.read(self.position, wanted)
            self._block_start, first = self.position, 0
        self.position += length
        return self._block[first : first + length]

    def number(self, kind: str) -> Any:
        return struct.unpack("<" + kind, self.take(struct.calcsize("<" + kind)))[0]

    def count(self, least: int, what: str) -> int:
        """A number of things that take at least so many bytes each."""
        count: int = self.number("Q")
        left = self.source.size - self.position
        if count * least > left:
            raise DataError(
                f"{self.source.name} claims {count} {what}, which {left} bytes cannot hold; it is "
                "cut short or damaged"
            )
        return count

    def text(self, longest: int | None = None) -> str:
        length = self.count(1, "letters")
        if longest is not None and length > longest:
            raise DataError(f"{self.source.name}: a name has {length} letters; it is damaged")
        # the vocabulary of a model may hold halves of letters
        return self.take(length).decode("utf-8", "replace")

    def value(self, kind: int, depth: int = 0) -> Any:
        if kind == _STRING:
            return self.text()
        if kind == _BOOL:
            return self.number("B") != 0
        if kind == _ARRAY:
            return self.array(depth)
        if kind not in _NUMBERS:
            raise DataError(f"{self.source.name}: a value has the unknown type {kind}")
        return self.number(_NUMBERS[kind])

    def array(self, depth: int) -> list[Any]:
        if depth >= _DEEPEST_ARRAY:
            raise DataError(f"{self.source.name}: arrays are nested too deep; it is damaged")
        kind: int = self.number("I")
        if kind in _NUMBERS:
            size = struct.calcsize("<" + _NUMBERS[kind])
            count = self.count(size, "numbers")
            numbers = struct.unpack(f"<{count}{_NUMBERS[kind]}", self.take(count * size))
            return [number != 0 for number in numbers] if kind == _BOOL else list(numbers)
        if kind not in (_STRING, _ARRAY):
            raise DataError(f"{self.source.name}: an array has the unknown type {kind}")
        count = self.count(8 if kind == _STRING else 12, "values")
        return [self.value(kind, depth + 1) for _ in range(count)]


def _read_values(reader: _Reader, count: int) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for _ in range(count):
        key = reader.text(_LONGEST_NAME)
        if key in values:
            raise DataError(f"{reader.source.name}: the value {key[:80]!r} is there twice")
        values[key] = reader.value(reader.number("I"))
    return values


class _Info:
    """A row of the table of tensors; offsets count from the start of the data."""

    def __init__(self, name: str, shape: tuple[int, ...], kind: int, offset: int) -> None:
        self.name = name
        self.shape = shape
        self.kind = kind
        self.offset = offset


def _read_info(reader: _Reader) -> _Info:
    name = reader.text(_LONGEST_NAME)
    where = f"{reader.source.name}: tensor {name[:80]!r}"
    axes = reader.number("I")
    if axes > _MOST_AXES:
        raise DataError(f"{where} has {axes} axes; at most {_MOST_AXES} are read")
    sizes = struct.unpack(f"<{axes}Q", reader.take(8 * axes))
    # the file counts axes from the fastest
    shape = checked_shape(sizes[::-1], where)
    kind, offset = reader.number("I"), reader.number("Q")
    return _Info(name, shape, kind, offset)


def _tensors(
    source: ByteSource, end: int, values: dict[str, Any], infos: list[_Info]
) -> dict[str, Tensor]:
    alignment = values.get("general.alignment", _DEFAULT_ALIGNMENT)
    if type(alignment) is not int or not 1 <= alignment <= 1 << 20:
        raise DataError(f"{source.name}: the alignment is {alignment!r}, which is none")
    start = round_up(end, alignment)
    tensors: dict[str, Tensor] = {}
    ranges = []
    for info in infos:
        if info.name in tensors:
            raise DataError(f"{source.name}: the tensor {info.name[:80]!r} is there twice")
        if info.offset % alignment:
            raise DataError(
                f"{source.name}: tensor {info.name[:80]!r} is at {info.offset}, which is no "
                f"multiple of {alignment}"
            )
        tensors[info.name], size = _tensor(source, start + info.offset, info)
        ranges.append((info.offset, info.offset + size, info.name))
    refuse_overlaps(ranges, source.name)
    return tensors


def _tensor(source: ByteSource, start: int, info: _Info) -> tuple[Tensor, int]:
    """A tensor and how many bytes it takes."""
    what = f"tensor {info.name[:80]!r}"
    layout = FORMATS.get(info.kind)
    if layout is None:
        known = " ".join(known.name for known in FORMATS.values())
        raise DataError(f"{source.name}: {what} has the type {info.kind}; read are {known}")
    if isinstance(layout, PlainFormat):
        size = prod(info.shape) * layout.dtype.itemsize
        data = source.view(start, dtypes.uint8, (size,), what)
        if size == 0:
            return Tensor.empty(*info.shape, dtype=layout.dtype), 0
        # read when first used and then kept, like blocks: a model computes with all formats
        stored = computable(data).bitcast(layout.dtype).contiguous()
        return stored.reshape(info.shape), size
    return _quantised(source, start, info, layout, what)


def _quantised(
    source: ByteSource, start: int, info: _Info, layout: BlockFormat, what: str
) -> tuple[Tensor, int]:
    row = info.shape[-1] if info.shape else 1
    if row % layout.count:
        raise DataError(
            f"{source.name}: {what} has rows of {row} values; {layout.name} has them in blocks of "
            f"{layout.count}"
        )
    count = prod(info.shape) // layout.count
    blocks = source.view(start, dtypes.uint8, (count, layout.nbytes), what)
    if count == 0:
        return Tensor.empty(*info.shape, dtype=dtypes.float32), 0
    rows = prod(info.shape[:-1])
    values = laid_out(computable(blocks), layout, rows)
    return values.reshape(info.shape), count * layout.nbytes
