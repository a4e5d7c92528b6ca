"""An ONNX file as a model: graphs, nodes, attributes, initialisers.

In: a path, bytes or a Tensor. Out: a `Model` of plain dataclasses; initialisers are `StoredTensor`s
that read their values when asked. Sits on `protobuf`; `run` gives the nodes their meaning.
Invariant: nothing in a file is executed, no size is believed before the bytes were counted, and
data that lies outside of the file lies inside of the model's folder, links followed.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy

from weft.dtype import DType, dtypes, from_numpy_dtype, to_numpy_dtype
from weft.errors import DataError, MissingFileError, UnsupportedError
from weft.graphs.protobuf import Message, Span, read_message, unpack_varints
from weft.graphs.schema import SCHEMA
from weft.graphs.types import NARROW, OnnxDataType, OnnxValue, data_type
from weft.helpers import prod
from weft.nn.formats.source import (
    ByteSource,
    FileSource,
    Readable,
    checked_shape,
    computable,
    open_source,
)
from weft.tensor import Tensor

# tensors of fewer bytes are read at once, larger ones when their values are needed
_SMALL = 1 << 12
# elements that a sparse tensor may have when all are written out
_MOST_DENSE = 1 << 27
# graphs inside of graphs: each is an If, Loop, Scan or SequenceMap inside of another
_DEEPEST = 50
Array = numpy.ndarray[Any, Any]
_BITS_DTYPE = {1: numpy.uint8, 2: numpy.uint16, 4: numpy.uint32, 8: numpy.uint64}


@dataclass
class StoredTensor:
    """A constant of the file: its type and shape, and where its bytes are."""

    name: str
    kind: OnnxDataType
    shape: tuple[int, ...]
    # elements as unsigned ints of their size (of less than a byte: as bytes), or strings
    inline: Array | None = None
    # or the same on disk, one axis
    stored: Tensor | None = None

    @property
    def count(self) -> int:
        """How many elements it has."""
        return prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of its elements in the file."""
        return (self.count * self.kind.bits + 7) // 8

    def numpy(self) -> Array:
        """The values as an array, for types that NumPy has (or holds in a wider one)."""
        if self.kind is OnnxDataType.STRING:
            assert self.inline is not None
            return self.inline.reshape(self.shape)
        dtype = self.kind.to_dtype()
        if _numpy_type(dtype) is None:
            array: Array = self.tensor().cast(dtypes.float32).numpy()
            return array
        bits = self._bits()
        if self.kind in NARROW:
            return _widened(bits, self.kind, self.count).reshape(self.shape)
        if dtype is dtypes.bool:
            return (bits != 0).reshape(self.shape)
        return bits.view(_numpy_type(dtype)).reshape(self.shape)

    def tensor(self) -> Tensor:
        """The values as a Tensor, read from disk when they are needed."""
        dtype = self.kind.to_dtype()
        if self.count == 0:
            return Tensor.empty(*self.shape, dtype=dtype)
        if self.kind in NARROW or dtype is dtypes.bool:
            return Tensor(self.numpy(), dtype=dtype)
        if self.stored is not None:
            return computable(self.stored).bitcast(dtype).reshape(self.shape)
        bits = self._bits()
        if _numpy_type(dtype) is None:
            return Tensor(bits).bitcast(dtype).reshape(self.shape)
        return Tensor(self.numpy(), dtype=dtype)

    def _bits(self) -> Array:
        if self.inline is not None:
            return self.inline
        assert self.stored is not None
        found: Array = computable(self.stored).numpy()
        return found

    def place(self, source: ByteSource, start: int) -> StoredTensor:
        """The same with its bytes in a file: few are read now, more when they are needed."""
        size = 1 if self.kind in NARROW else self.kind.to_dtype().itemsize
        if self.nbytes <= _SMALL:
            raw = source.read(start, self.nbytes, self.name)
            self.inline = numpy.frombuffer(raw, dtype=_BITS_DTYPE[size])
        else:
            unsigned = from_numpy_dtype(_BITS_DTYPE[size])
            self.stored = source.view(start, unsigned, (self.nbytes // size,), self.name)
        return self


@dataclass
class Node:
    """One operator applied to values by name. `""` is an input or output that is left out."""

    op_type: str
    domain: str
    name: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: dict[str, Any]
    number: int = 0
    overload: str = ""
    # versions of the operators by domain, where they are not the model's: inside of a function
    opsets: dict[str, int] | None = None

    def __str__(self) -> str:
        name = f" {self.name!r}" if self.name else ""
        domain = f"{self.domain}." if self.domain not in ("", "ai.onnx") else ""
        return f"node {self.number}{name} ({domain}{self.op_type})"


@dataclass(frozen=True)
class Reference:
    """An attribute that stands for one of the function that its node is in."""

    name: str


@dataclass
class Graph:
    """Nodes in order, constants by name, and what goes in and out."""

    name: str
    nodes: list[Node] = field(default_factory=list)
    constants: dict[str, StoredTensor] = field(default_factory=dict)
    inputs: dict[str, OnnxValue] = field(default_factory=dict)
    outputs: dict[str, OnnxValue] = field(default_factory=dict)


@dataclass
class Function:
    """An operator that the model itself defines."""

    name: str
    domain: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: tuple[str, ...]
    defaults: dict[str, Any]
    nodes: list[Node]
    opsets: dict[str, int]
    overload: str = ""


@dataclass
class Model:
    """A whole file."""

    graph: Graph
    opsets: dict[str, int]
    functions: dict[tuple[str, str, str], Function]
    producer: str = ""
    ir_version: int = 0
    metadata: dict[str, str] = field(default_factory=dict)


def load_model(data: Readable, data_root: str | os.PathLike[str] | None = None) -> Model:
    """The model in a file. Its external data lies in `data_root`, or else in the file's folder."""
    folder = None
    if isinstance(data, (str, os.PathLike)):
        folder = Path(os.path.realpath(os.path.dirname(os.fspath(data)) or "."))
    root = folder if data_root is None else Path(os.path.realpath(data_root))
    with open_source(data) as source:
        builder = _Builder(source, folder or root, root)
        try:
            return builder.model()
        finally:
            for file in builder.files.values():
                file.close()


class OnnxPBParser:
    """Reads an ONNX file into nested dictionaries, named as the fields of the format.

    >>> OnnxPBParser(b"").parse()
    {}
    """

    def __init__(self, model_path: Readable) -> None:
        self._source = open_source(model_path)

    def parse(self) -> dict[str, Any]:
        """The message of the whole file."""
        return read_message(self._source, "model", SCHEMA)


class _Builder:
    """Messages to dataclasses."""

    def __init__(self, source: ByteSource, folder: Path | None, root: Path | None) -> None:
        self.source = source
        self.folder = folder
        self.root = root
        self.files: dict[Path, FileSource] = {}

    def model(self) -> Model:
        message = read_message(self.source, "model", SCHEMA)
        if "graph" not in message:
            raise DataError(f"{self.source.name} is no ONNX model: it has no graph")
        functions = {}
        for one in message.many("functions"):
            found = self.function(one)
            functions[(found.domain, found.name, found.overload)] = found
        return Model(
            self.graph(message["graph"], 0),
            _opsets(message.many("opset_import")),
            functions,
            f"{message.get('producer_name', '')} {message.get('producer_version', '')}".strip(),
            message.get("ir_version", 0),
            {e.get("key", ""): e.get("value", "") for e in message.many("metadata_props")},
        )

    def function(self, message: Message) -> Function:
        defaults = {a.get("name", ""): a for a in message.many("attribute_proto")}
        return Function(
            message.get("name", ""),
            message.get("domain", ""),
            tuple(message.many("input")),
            tuple(message.many("output")),
            (*message.many("attribute"), *defaults),
            {name: self.attribute(value, 0) for name, value in defaults.items()},
            [self.node(one, i, 0) for i, one in enumerate(message.many("node"))],
            _opsets(message.many("opset_import")),
            message.get("overload", ""),
        )

    def graph(self, message: Message, depth: int) -> Graph:
        if depth > _DEEPEST:
            raise DataError(f"{self.source.name}: more than {_DEEPEST} graphs inside of each other")
        graph = Graph(message.get("name", ""))
        for one in message.many("initializer"):
            stored = self.tensor(one)
            graph.constants[stored.name] = stored
        for one in message.many("sparse_initializer"):
            stored = self.sparse(one)
            graph.constants[stored.name] = stored
        for one in message.many("input"):
            graph.inputs[one.get("name", "")] = self.value(one.get("type"))
        for one in message.many("output"):
            graph.outputs[one.get("name", "")] = self.value(one.get("type"))
        graph.nodes = [self.node(one, i, depth) for i, one in enumerate(message.many("node"))]
        return graph

    def node(self, message: Message, number: int, depth: int) -> Node:
        attributes = {
            one.get("name", ""): self.attribute(one, depth) for one in message.many("attribute")
        }
        return Node(
            message.get("op_type", ""),
            message.get("domain", ""),
            message.get("name", ""),
            tuple(message.many("input")),
            tuple(message.many("output")),
            attributes,
            number,
            message.get("overload", ""),
        )

    def attribute(self, message: Message, depth: int) -> Any:
        """The value of an attribute as Python has it; graphs and tensors as ours."""
        if message.get("ref_attr_name"):
            return Reference(message["ref_attr_name"])
        kind = message.get("type", 0)
        present = [name for name, number in _ATTRIBUTE_FIELDS.items() if name in message]
        name = next((n for n, number in _ATTRIBUTE_FIELDS.items() if number == kind), "")
        if not name and kind == 0 and len(present) == 1:
            # files of the first versions do not say it
            name = present[0]
        if not name:
            raise DataError(
                f"{self.source.name}: the attribute {message.get('name', '')!r} has the type "
                f"{kind} and the fields {present}; no operator has such an attribute"
            )
        found = message.get(name, _ATTRIBUTE_ZERO.get(name))
        if name == "s":
            return found.decode("utf-8", "replace")
        if name == "strings":
            return [text.decode("utf-8", "replace") for text in found]
        if name in ("i", "f", "ints", "floats"):
            return found
        if found is None:
            raise DataError(
                f"{self.source.name}: the attribute {message.get('name', '')!r} is empty"
            )
        if name == "t":
            return self.tensor(found)
        if name == "tensors":
            return [self.tensor(one) for one in found]
        if name == "g":
            return self.graph(found, depth + 1)
        if name == "graphs":
            return [self.graph(one, depth + 1) for one in found]
        if name == "sparse_tensor":
            return self.sparse(found)
        return self.value(found)

    def value(self, message: Message | None) -> OnnxValue:
        """What a type says of a value."""
        is_optional = is_sequence = False
        for _ in range(4):
            if message is not None and "optional_type" in message:
                is_optional, message = True, message["optional_type"].get("elem_type")
            elif message is not None and "sequence_type" in message:
                is_sequence, message = True, message["sequence_type"].get("elem_type")
        inner = None if message is None else message.get("tensor_type")
        if inner is None:
            return OnnxValue(None, None, is_optional, is_sequence)
        kind = data_type(inner.get("elem_type", 0), self.source.name)
        known = kind not in _NO_DTYPE
        return OnnxValue(
            _dims(inner.get("shape")),
            kind.to_dtype() if known else None,
            is_optional,
            is_sequence,
            kind,
        )

    # ------------------------------------------------------------ tensors
    def tensor(self, message: Message) -> StoredTensor:
        name = message.get("name", "")
        where = f"{self.source.name}: the tensor {name!r}"
        kind = data_type(message.get("data_type", 0), where)
        shape = checked_shape(message.many("dims"), where)
        if kind is OnnxDataType.STRING:
            texts = message.many("string_data")
            if len(texts) != prod(shape):
                raise DataError(f"{where} of shape {shape} has {len(texts)} strings")
            inline = numpy.empty(len(texts), dtype=object)
            inline[:] = [text.decode("utf-8", "replace") for text in texts]
            return StoredTensor(name, kind, shape, inline)
        if kind in _NO_DTYPE:
            raise UnsupportedError(f"{where} is of {kind.name}, which weft has no dtype for")
        if message.get("data_location", 0) == 1:
            return self.external(message, StoredTensor(name, kind, shape))
        stored = StoredTensor(name, kind, shape)
        if "raw_data" in message:
            span: Span = message["raw_data"]
            if span.length != stored.nbytes:
                raise DataError(
                    f"{where} of {kind.name} and shape {shape} takes {stored.nbytes} bytes, found "
                    f"{span.length}"
                )
            return stored.place(self.source, span.start)
        stored.inline = self.numbers(message, stored, where)
        return stored

    def numbers(self, message: Message, stored: StoredTensor, where: str) -> Any:
        """The elements out of a list of numbers, as unsigned ints of their size."""
        name = _NUMBERS_FIELD.get(stored.kind, "int32_data")
        size = 1 if stored.kind in NARROW else stored.kind.to_dtype().itemsize
        most = stored.nbytes if stored.kind in NARROW else stored.count
        parts = []
        for part in message.many(name):
            if not isinstance(part, Span):
                parts.append(numpy.array([part]))
                continue
            raw = self.source.read(part.start, part.length, stored.name)
            if name in ("float_data", "double_data"):
                width = 4 if name == "float_data" else 8
                parts.append(numpy.frombuffer(raw[: len(raw) // width * width], dtype=f"<f{width}"))
            else:
                # of 64 bits, for signed and unsigned ones alike
                unpacked = unpack_varints(raw, where)
                parts.append(numpy.array(unpacked, dtype=numpy.int64))
        found = numpy.concatenate(parts) if parts else numpy.zeros(0, dtype=numpy.int64)
        if len(found) != most:
            raise DataError(
                f"{where} of {stored.kind.name} and shape {stored.shape} has {len(found)} numbers "
                f"in {name}, not {most}"
            )
        if name in ("float_data", "double_data"):
            real = "<f4" if name == "float_data" else "<f8"
            return found.astype(real).view(_BITS_DTYPE[size])
        return found.astype(numpy.int64).view(numpy.uint64).astype(_BITS_DTYPE[size])

    def external(self, message: Message, stored: StoredTensor) -> StoredTensor:
        """A tensor whose bytes are in a file beside the model."""
        where = f"{self.source.name}: the tensor {stored.name!r}"
        entries = {e.get("key", ""): e.get("value", "") for e in message.many("external_data")}
        source = self.file(entries.get("location", ""), where)
        start = _offset(entries.get("offset", "0"), f"{where}: the offset")
        length = _offset(entries.get("length", str(stored.nbytes)), f"{where}: the length")
        if length != stored.nbytes:
            raise DataError(
                f"{where} of {stored.kind.name} and shape {stored.shape} takes {stored.nbytes} "
                f"bytes, found {length} in {entries.get('location')}"
            )
        source.check(start, length, f"the tensor {stored.name!r}")
        return stored.place(source, start)

    def file(self, location: str, where: str) -> FileSource:
        """A file of the model's folder: by a relative path, that stays inside when links are
        followed. It is opened once for all tensors."""
        if self.folder is None or self.root is None:
            raise DataError(
                f"{where} lies in {location!r}, beside the model; give the model as a path, or say "
                "where with data_root"
            )
        if not location or "\0" in location or os.path.isabs(location):
            raise DataError(f"{where} lies in {location!r}; a path inside of its folder would do")
        path = Path(os.path.realpath(self.folder / location))
        if not path.is_relative_to(self.root):
            raise DataError(
                f"{where} lies in {location!r}, outside of {self.root}: a model may only read what "
                "is in its own folder (data_root allows another one)"
            )
        if path not in self.files:
            try:
                mode = os.stat(path).st_mode
            except (OSError, ValueError) as error:
                raise MissingFileError(f"{where} lies in {path}: {error}") from error
            if not stat.S_ISREG(mode):
                raise DataError(f"{where} lies in {path}, which is no file")
            self.files[path] = FileSource(path)
        return self.files[path]

    def sparse(self, message: Message) -> StoredTensor:
        """A sparse tensor with its zeros written out."""
        if "values" not in message or "indices" not in message:
            raise DataError(f"{self.source.name}: a sparse tensor lacks its values or indices")
        values, indices = self.tensor(message["values"]), self.tensor(message["indices"])
        where = f"{self.source.name}: the sparse tensor {values.name!r}"
        shape = checked_shape(message.many("dims"), where)
        if prod(shape) > _MOST_DENSE or values.kind in NARROW:
            raise UnsupportedError(f"{where} of {values.kind.name} and shape {shape} is too large")
        places = indices.numpy().astype(numpy.int64)
        bits = values._bits()
        if places.ndim == 2 and places.shape[1] == len(shape):
            places = places @ numpy.array([prod(shape[i + 1 :]) for i in range(len(shape))])
        if places.shape != bits.shape or (
            places.size and not 0 <= numpy.min(places) <= numpy.max(places) < prod(shape)
        ):
            raise DataError(f"{where} of shape {shape} has indices that are not in it")
        dense = numpy.zeros(prod(shape), dtype=bits.dtype)
        dense[places] = bits
        return StoredTensor(values.name, values.kind, shape, dense)


_ONLY_BITS = (dtypes.bfloat16, *dtypes.fp8s)
_NO_DTYPE = (
    OnnxDataType.UNDEFINED,
    OnnxDataType.STRING,
    OnnxDataType.COMPLEX64,
    OnnxDataType.COMPLEX128,
)
_ATTRIBUTE_FIELDS = {
    "f": 1,
    "i": 2,
    "s": 3,
    "t": 4,
    "g": 5,
    "floats": 6,
    "ints": 7,
    "strings": 8,
    "tensors": 9,
    "graphs": 10,
    "sparse_tensor": 11,
    "tp": 13,
}
_ATTRIBUTE_ZERO = {"f": 0.0, "i": 0, "s": b"", "floats": [], "ints": [], "strings": []}
_NUMBERS_FIELD = {
    OnnxDataType.FLOAT: "float_data",
    OnnxDataType.DOUBLE: "double_data",
    OnnxDataType.INT64: "int64_data",
    OnnxDataType.UINT64: "uint64_data",
    OnnxDataType.UINT32: "uint64_data",
}


def _numpy_type(dtype: DType) -> Any:
    """NumPy's own type of the same values; None for those it has only bits of."""
    return None if dtype in _ONLY_BITS else to_numpy_dtype(dtype)


def _offset(text: str, where: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 19:
        raise DataError(f"{where} is {text!r:.40}, which is no number of bytes")
    return int(text)


def _opsets(messages: Sequence[Message]) -> dict[str, int]:
    return {
        ("" if m.get("domain", "") == "ai.onnx" else m.get("domain", "")): m.get("version", 0)
        for m in messages
    }


def _dims(message: Message | None) -> tuple[int | str, ...] | None:
    """Sizes, or names of free ones; a size without either is free and has no name."""
    if message is None:
        return None
    return tuple(
        one["dim_value"] if one.get("dim_value", -1) >= 0 else one.get("dim_param", "")
        for one in message.many("dim")
    )


def _widened(packed: Any, kind: OnnxDataType, count: int) -> Array:
    """Elements of less than a byte, the first in the lowest bits, as numbers."""
    if kind is OnnxDataType.FLOAT8E8M0:
        exponents = packed.astype(numpy.int32)
        powers = numpy.ldexp(numpy.float32(1), exponents - 127).astype(numpy.float32)
        return numpy.where(exponents == 255, numpy.float32("nan"), powers)
    bits = kind.bits
    shifts = numpy.arange(0, 8, bits, dtype=numpy.uint8)
    codes = ((packed[:, None] >> shifts) & ((1 << bits) - 1)).reshape(-1)[:count]
    if kind is OnnxDataType.FLOAT4E2M1:
        return FLOAT4_VALUES[codes]
    if kind in (OnnxDataType.INT4, OnnxDataType.INT2):
        half = 1 << (bits - 1)
        return ((codes ^ half).astype(numpy.int16) - half).astype(numpy.int8)
    return codes.astype(numpy.uint8)


FLOAT4_VALUES = numpy.array(
    [0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=numpy.float32
)
