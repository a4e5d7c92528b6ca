"""safetensors: a JSON header, then the tensors' bytes.

In: a path, Tensor or bytes; a dict of Tensors to save. Out: lazy Tensors; a file.
Sits on `source` and `atomic`. Invariant: a header is believed only where it agrees with the
file: every byte of the data belongs to exactly one tensor of that size.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import IO, Any

from weft.dtype import DType, dtypes
from weft.engine.host import storage_dtype
from weft.errors import ArgumentError, DataError
from weft.helpers import prod
from weft.nn.formats.atomic import atomic_file
from weft.nn.formats.source import (
    ByteSource,
    Readable,
    checked_shape,
    checked_sizes,
    computable,
    open_source,
    refuse_overlaps,
)
from weft.tensor import Tensor

NAMES: dict[DType, str] = {
    dtypes.bool: "BOOL",
    dtypes.int8: "I8",
    dtypes.uint8: "U8",
    dtypes.int16: "I16",
    dtypes.uint16: "U16",
    dtypes.int32: "I32",
    dtypes.uint32: "U32",
    dtypes.int64: "I64",
    dtypes.uint64: "U64",
    dtypes.float16: "F16",
    dtypes.bfloat16: "BF16",
    dtypes.float32: "F32",
    dtypes.float64: "F64",
    dtypes.fp8e4m3: "F8_E4M3",
    dtypes.fp8e5m2: "F8_E5M2",
    dtypes.fp8e4m3fnuz: "F8_E4M3FNUZ",
    dtypes.fp8e5m2fnuz: "F8_E5M2FNUZ",
}
_DTYPES = {name: dtype for dtype, name in NAMES.items()}
_METADATA = "__metadata__"
_PREFIX = 8
# what the reference implementation accepts; a longer header would be a lie or an attack
_LONGEST_HEADER = 100_000_000
_WRITE_CHUNK = 1 << 24


# ------------------------------------------------------------ reading
def safe_load_metadata(fn: Readable) -> tuple[Tensor, int, dict[str, Any]]:
    """All bytes of a safetensors file, where the data starts in them, and the header's entries.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> safe_save({"a": Tensor([1, 2])}, path, metadata={"made by": "weft"})
    >>> safe_load_metadata(path)[2]["__metadata__"]
    {'made by': 'weft'}
    """
    with open_source(fn) as source:
        header, start = _read_header(source)
        return source.view(0, dtypes.uint8, (source.size,)), start, header


def safe_load(fn: Readable) -> dict[str, Tensor]:
    """The tensors of a safetensors file, on disk until their values are needed.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> safe_save({"a": Tensor([1, 2])}, path)
    >>> safe_load(path)["a"].tolist()
    [1, 2]
    """
    with open_source(fn) as source:
        header, start = _read_header(source)
        tensors = {}
        for name, entry in header.items():
            if name != _METADATA:
                dtype = _DTYPES[entry["dtype"]]
                where = start + entry["data_offsets"][0]
                tensors[name] = source.view(where, dtype, entry["shape"], name)
        return tensors


def _read_header(source: ByteSource) -> tuple[dict[str, Any], int]:
    if source.size < _PREFIX:
        raise DataError(f"{source.name} is no safetensors file: it has only {source.size} bytes")
    length = int.from_bytes(source.read(0, _PREFIX), "little")
    if not 2 <= length <= min(_LONGEST_HEADER, source.size - _PREFIX):
        raise DataError(
            f"{source.name} is no safetensors file, or is damaged: it claims a header of {length} "
            f"bytes and has {source.size - _PREFIX} bytes in all after the length (a header has at "
            f"most {_LONGEST_HEADER})"
        )
    header = _parse_json(source.read(_PREFIX, length), source.name)
    start = _PREFIX + length
    ranges = []
    for name, entry in header.items():
        if name == _METADATA:
            _check_metadata(entry, source.name)
        else:
            ranges.append((*_check_entry(name, entry, source.name), name))
    refuse_overlaps(ranges, source.name)
    _refuse_gaps(ranges, source.size - start, source.name)
    return header, start


def _parse_json(text: bytes, where: str) -> dict[str, Any]:
    try:
        if text[:1] != b"{":
            raise ValueError("it does not start with {")
        header = json.loads(text.decode("utf-8"), object_pairs_hook=_without_doubles)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: the header is no JSON object: {error}") from None
    if not isinstance(header, dict):
        raise DataError(f"{where}: the header is no JSON object")
    return header


def _without_doubles(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise ValueError(f"{key[:80]!r} is there twice")
        found[key] = value
    return found


def _check_metadata(entry: Any, where: str) -> None:
    plain = isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values())
    if not plain:
        raise DataError(f"{where}: {_METADATA} must map names to text")


def _check_entry(name: str, entry: Any, where: str) -> tuple[int, int]:
    """The range of bytes of a tensor, which must be as large as its dtype and shape say."""
    where = f"{where}: tensor {name[:80]!r}"
    if not isinstance(entry, dict) or not {"dtype", "shape", "data_offsets"} <= entry.keys():
        raise DataError(f"{where} needs dtype, shape and data_offsets")
    found = entry["dtype"]
    dtype = _DTYPES.get(found) if isinstance(found, str) else None
    if dtype is None:
        raise DataError(f"{where} has dtype {str(found)[:40]!r}; known are {' '.join(_DTYPES)}")
    shape = checked_shape(entry["shape"], where)
    offsets = checked_sizes(entry["data_offsets"], f"{where}: data_offsets")
    if len(offsets) != 2 or offsets[1] - offsets[0] != prod(shape) * dtype.itemsize:
        raise DataError(
            f"{where} of shape {shape} and {dtype} takes {prod(shape) * dtype.itemsize} bytes, but "
            f"its data_offsets are {offsets}"
        )
    return offsets[0], offsets[1]


def _refuse_gaps(ranges: list[tuple[int, int, str]], size: int, where: str) -> None:
    """Without overlaps, the sizes add up to the last end exactly if there is no gap."""
    last = max((stop for _, stop, _ in ranges), default=0)
    if last != size:
        raise DataError(
            f"{where}: the header tells of {last} bytes of data, but there are {size}; the file is "
            "cut short or damaged"
        )
    if sum(stop - start for start, stop, _ in ranges) != size:
        raise DataError(f"{where}: some bytes of the data belong to no tensor; it is damaged")


# ------------------------------------------------------------ writing
def safe_save(
    tensors: Mapping[str, Tensor],
    fn: str | os.PathLike[str],
    metadata: Mapping[str, str] | None = None,
) -> None:
    """Saves tensors by name. The file appears whole: until then an older one stays as it was.

    >>> import tempfile, pathlib
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "x.safetensors"
    >>> safe_save({"weight": Tensor([[1.0, 2.0]])}, path)
    >>> safe_load(path)["weight"].numpy()
    array([[1., 2.]], dtype=float32)
    """
    values = {name: _storable(name, tensor) for name, tensor in tensors.items()}
    # the widest first: then each starts at a multiple of its size, wherever it is mapped to
    order = sorted(values, key=lambda name: (-values[name].dtype.itemsize, name))
    offsets, position = {}, 0
    for name in order:
        size = prod(values[name].shape) * values[name].dtype.itemsize
        offsets[name] = [position, position + size]
        position += size
    # together, so that what they share is computed once; what is on disk is copied piece by piece
    computed = [value for value in values.values() if computable(value) is value]
    if computed:
        Tensor.realize(*computed)
    with atomic_file(fn) as file:
        file.write(header(values, offsets, metadata))
        for name in order:
            _write_tensor(file, values[name])


def _storable(name: str, tensor: Tensor) -> Tensor:
    if not isinstance(name, str) or name == _METADATA:
        raise ArgumentError(f"a tensor cannot be saved under the name {name!r}; take other text")
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{name} is a {type(tensor).__name__}; safe_save takes Tensors")
    dtype = storage_dtype(tensor.uop)
    if dtype not in NAMES:
        raise ArgumentError(f"{name} is of {dtype}, which safetensors cannot hold; cast it")
    if not all(isinstance(size, int) for size in tensor.shape):
        raise ArgumentError(
            f"{name} has the symbolic shape {tensor.shape}; shrink it to a fixed one"
        )
    return tensor.cast(dtype)


def header(
    values: Mapping[str, Any],
    offsets: Mapping[str, list[int]],
    metadata: Mapping[str, str] | None,
) -> bytes:
    """The start of a file: what has a dtype and a shape, by name, and where its bytes are."""
    entries: dict[str, Any] = {}
    if metadata is not None:
        entries[_METADATA] = dict(metadata)
        for key, text in entries[_METADATA].items():
            if not isinstance(key, str) or not isinstance(text, str):
                raise ArgumentError(f"metadata maps text to text, found {key!r}: {text!r}")
    for name, value in values.items():
        entries[name] = {
            "dtype": NAMES[value.dtype],
            "shape": list(value.shape),
            "data_offsets": offsets[name],
        }
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=False).encode("utf-8")
    text += b" " * (-len(text) % _PREFIX)
    if len(text) > _LONGEST_HEADER:
        raise ArgumentError(f"a header of {len(text)} bytes; readers take {_LONGEST_HEADER}")
    return len(text).to_bytes(_PREFIX, "little") + text


def _write_tensor(file: IO[bytes], value: Tensor) -> None:
    """One tensor at a time, so that a state on disk is copied without being in memory whole."""
    if prod(value.shape) == 0:
        return
    contents = computable(value)._buffer().as_memoryview(allow_zero_copy=True)
    contents = contents[: prod(value.shape) * value.dtype.itemsize]
    for start in range(0, contents.nbytes, _WRITE_CHUNK):
        file.write(contents[start : start + _WRITE_CHUNK])
