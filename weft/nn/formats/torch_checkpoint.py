"""PyTorch checkpoints: the zip format of today and the older ("legacy") one.

In: a path, Tensor or bytes of a `.pt`, `.pth` or `.bin`. Out: what was saved, its tensors lazy.
Sits on `pickled` (the structure), `archives` (the zip) and `source` (the numbers).
Invariant: only tensors and plain data are ever built, other objects are replaced by their plain
data (`standins`); every number of the file that says where a tensor is (storage, offset, size,
stride) is checked against the bytes that are there.
"""

from __future__ import annotations

import struct
import warnings
from collections.abc import Sequence
from typing import Any

from weft.dtype import DType, dtypes
from weft.errors import DataError, WeftError
from weft.nn.formats.archives import Members, is_zip, zip_members
from weft.nn.formats.pickled import Named, PickleReader, Standin, call_builder, refusal
from weft.nn.formats.source import (
    ByteSource,
    Readable,
    checked_shape,
    checked_sizes,
    open_source,
)
from weft.nn.formats.standins import StandinNames, array_value
from weft.nn.formats.torch_storage import Pending, Storage, StoragePart, pending_tensor
from weft.tensor import Tensor

_LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
_LEGACY_VERSION = 1001
_LONGEST_PICKLE = 1 << 30

_STORAGES: dict[str, DType] = {
    "BoolStorage": dtypes.bool,
    "ByteStorage": dtypes.uint8,
    "CharStorage": dtypes.int8,
    "ShortStorage": dtypes.int16,
    "IntStorage": dtypes.int32,
    "LongStorage": dtypes.int64,
    "HalfStorage": dtypes.float16,
    "BFloat16Storage": dtypes.bfloat16,
    "FloatStorage": dtypes.float32,
    "DoubleStorage": dtypes.float64,
    "UntypedStorage": dtypes.uint8,
}
_TYPES: dict[str, DType] = {
    **{name: dtype for name, dtype in dtypes.fields().items() if dtype in dtypes.all},
    "float": dtypes.float32,
    "double": dtypes.float64,
    "half": dtypes.float16,
    "short": dtypes.int16,
    "int": dtypes.int32,
    "long": dtypes.int64,
    "float8_e4m3fn": dtypes.fp8e4m3,
    "float8_e5m2": dtypes.fp8e5m2,
    "float8_e4m3fnuz": dtypes.fp8e4m3fnuz,
    "float8_e5m2fnuz": dtypes.fp8e5m2fnuz,
}


# ------------------------------------------------------------ what users call
def torch_load(fn: Readable) -> Any:
    """What `torch.save` saved: tensors in plain containers, without PyTorch and without its risks.

    Tensors stay on disk until their values are needed. Other objects that a checkpoint holds
    beside them, such as an `argparse.Namespace`, are replaced by plain data (a dict of the
    attributes, the value of an enum, the text of a path), and a warning names them. Whole models
    and functions are refused; nothing of a file is ever run.

    >>> import io, pickle, zipfile
    >>> file = io.BytesIO()
    >>> with zipfile.ZipFile(file, "w") as archive:
    ...     archive.writestr("x/data.pkl", pickle.dumps({"epoch": 3}))
    >>> torch_load(file.getvalue())
    {'epoch': 3}
    """
    with open_source(fn) as source:
        names = StandinNames(_names(source.name), source.name)
        try:
            load = _load_zip if is_zip(source) else _load_legacy
            value = load(source, names)
        except DataError:
            raise
        except WeftError as error:
            raise DataError(f"{source.name} is damaged: {error}") from error
    warning = names.warning()
    if warning is not None:
        warnings.warn(warning, stacklevel=2)
    return value


# ------------------------------------------------------------ the zip format
def _load_zip(source: ByteSource, names: StandinNames) -> Any:
    members = zip_members(source)
    pickles = [name for name in members if name == "data.pkl" or name.endswith("/data.pkl")]
    if len(pickles) != 1:
        raise DataError(
            f"{source.name} is a zip archive, but no PyTorch checkpoint: it has {len(pickles)} "
            "members named data.pkl, not one"
        )
    folder = pickles[0].removesuffix("data.pkl")
    if folder + "constants.pkl" in members:
        raise DataError(f"{source.name} is a TorchScript program; save its state_dict() instead")
    order = members.get(folder + "byteorder")
    if order is not None and order.read(0, min(order.size, 16)) != b"little":
        raise DataError(f"{source.name} was saved on a big-endian machine, which is not read")
    storages: dict[str, Storage] = {}

    def find_storage(identity: Any) -> Storage:
        dtype, key, count, _ = _parse_identity(identity, source.name)
        found = _zip_storage(members, folder, key, dtype, count, source.name)
        known = storages.setdefault(key, found)
        if known.dtype is not dtype or known.count != count:
            raise DataError(f"{source.name}: storage {key[:40]!r} is described in two ways")
        return known

    reader = PickleReader(_pickle_bytes(members[pickles[0]]), names, find_storage, source.name)
    return _finish(reader.load(), names)


def _zip_storage(
    members: Members, folder: str, key: str, dtype: DType, count: int, where: str
) -> Storage:
    member = members.get(f"{folder}data/{key}")
    if member is None:
        raise DataError(f"{where} has no bytes for storage {key[:40]!r}; it is cut short")
    member.check(0, count * dtype.itemsize, f"storage {key[:40]}")
    return Storage(key, dtype, count, member)


def _pickle_bytes(source: ByteSource) -> bytes:
    if source.size > _LONGEST_PICKLE:
        raise DataError(f"{source.name} has a structure of {source.size} bytes; 1 GiB is read")
    return source.read(0, source.size)


def _parse_identity(identity: Any, where: str) -> tuple[DType, str, int, Any]:
    """The dtype, key, element count and view of a storage as the pickle names it."""
    if not isinstance(identity, tuple) or len(identity) not in (5, 6) or identity[0] != "storage":
        raise DataError(f"{where}: a persistent id names no storage")
    _, dtype, key, _, count = identity[:5]
    if not isinstance(dtype, DType) or not isinstance(key, str):
        raise DataError(f"{where}: a storage has no type or no key")
    checked_sizes([count], f"{where}: storage {key[:40]!r}")
    return dtype, key, count, identity[5] if len(identity) == 6 else None


# ------------------------------------------------------------ the legacy format
def _load_legacy(source: ByteSource, names: StandinNames) -> Any:
    """Pickles of magic number, version, machine, the structure, the keys; then the storages."""
    storages: dict[str, Storage] = {}

    def find_storage(identity: Any) -> Any:
        # the class of a model, with the text of its program, which is not looked at
        if isinstance(identity, tuple) and len(identity) == 4 and identity[0] == "module":
            return identity[1]
        dtype, key, count, view = _parse_identity(identity, source.name)
        known = storages.setdefault(key, Storage(key, dtype, count))
        if known.dtype is not dtype or known.count != count:
            raise DataError(f"{source.name}: storage {key[:40]!r} is described in two ways")
        return known if view is None else _part_of(known, view, source.name)

    # the structure is a small part at the front, but nothing says how long it is
    reader = _LegacyReader(source, names, find_storage)
    if reader.load_plain(int) != _LEGACY_MAGIC:
        raise DataError(f"{source.name} is no PyTorch checkpoint: it starts with another number")
    version = reader.load_plain(int)
    if version != _LEGACY_VERSION:
        raise DataError(f"{source.name} has version {version}; {_LEGACY_VERSION} is read")
    machine = reader.load_plain(dict)
    if machine.get("little_endian") is not True:
        raise DataError(f"{source.name} was saved on a big-endian machine, which is not read")
    value = reader.load()
    keys = reader.load_plain(list)
    _place_storages(source, reader.position, keys, storages)
    return _finish(value, names)


class _LegacyReader(PickleReader):
    """Reads pickles at the front of a file, taking in more of it as the pickles go on."""

    def __init__(self, source: ByteSource, names: StandinNames, persistent: Any) -> None:
        super().__init__(b"", names, persistent, source.name)
        self.source = source

    def _take(self, length: int) -> bytes:
        missing = self.position + length - len(self.data)
        if missing > 0:
            self._take_in(missing)
        return super()._take(length)

    def _take_in(self, missing: int) -> None:
        """At least as much again: linear in all, and never more than the file has."""
        known = len(self.data)
        left = min(self.source.size, _LONGEST_PICKLE) - known
        if missing <= left:
            self.data += self.source.read(known, min(left, max(missing, known, 1 << 16)))

    def _line_bytes(self) -> bytes:
        while self.data.find(b"\n", self.position) < 0 and len(self.data) < self.source.size:
            before = len(self.data)
            self._take_in(1)
            if len(self.data) == before:
                break
        return super()._line_bytes()

    def load_plain(self, kind: type) -> Any:
        """The next pickle, which must hold a value of that kind."""
        value = self.load()
        if not isinstance(value, kind):
            raise DataError(
                f"{self.where} is no PyTorch checkpoint: {kind.__name__} is expected at its start, "
                f"found {type(value).__name__}"
            )
        return value


def _part_of(whole: Storage, view: Any, where: str) -> Storage:
    """A view of a storage, as very old files have them: (key, offset, count)."""
    if not isinstance(view, tuple) or len(view) != 3 or not isinstance(view[0], str):
        raise DataError(f"{where}: a view of a storage is damaged")
    offset, count = checked_sizes(list(view[1:]), where)
    if offset + count > whole.count:
        raise DataError(f"{where}: a view of a storage leads out of it")
    return StoragePart(f"{whole.key}/{view[0]}", whole.dtype, count, None, 0, whole, offset)


def _place_storages(
    source: ByteSource, position: int, keys: list[Any], storages: dict[str, Storage]
) -> None:
    """Finds the bytes of each storage: a count, then the elements, in the order of the keys."""
    for key in keys:
        storage = storages.get(key) if isinstance(key, str) else None
        if storage is None or storage.source is not None:
            raise DataError(f"{source.name}: the list of storages does not match the structure")
        count = struct.unpack("<q", source.read(position, 8, "the size of a storage"))[0]
        if count != storage.count:
            raise DataError(
                f"{source.name}: storage {storage.key[:40]!r} has {count} elements where the "
                f"structure says {storage.count}"
            )
        storage.source, storage.start = source, position + 8
        position += 8 + count * storage.dtype.itemsize
        source.check(position, 0, f"storage {storage.key[:40]}")
    for storage in storages.values():
        if storage.source is None:
            raise DataError(f"{source.name} has no bytes for storage {storage.key[:40]!r}")


def _finish(value: Any, names: StandinNames) -> Any:
    """The value with its tensors in place, now that the bytes of all storages are known.

    Objects become the plain data they stand for. dicts and lists are filled in place, so one that
    holds itself still does; a tuple is made anew once its parts are done.
    """
    where = names.where
    order, plain = _reachable(value, names)
    replaced: dict[int, Any] = {}
    made: dict[int, Tensor] = {}

    def done(item: Any) -> Any:
        item = plain.get(id(item), item)
        if isinstance(item, Pending):
            if id(item) not in made:
                made[id(item)] = item.tensor(where)
            return made[id(item)]
        if isinstance(item, Named) and item.is_standin:
            names.note(item.name)
            return item.name
        if isinstance(item, (Storage, Named)):
            raise DataError(f"{where}: a storage or a type stands where a value should be")
        return replaced.get(id(item), item)

    for item in _tuples_inside_out(order, plain):
        replaced[id(item)] = tuple([done(part) for part in item])
    for item in order:
        if isinstance(item, dict):
            for key in item:
                item[key] = done(item[key])
        elif isinstance(item, list):
            item[:] = [done(part) for part in item]
    return done(value)


def _reachable(value: Any, names: StandinNames) -> tuple[list[Any], dict[int, Any]]:
    """The dicts, lists and tuples inside a value, and by id what each object is replaced by."""
    order: list[Any] = []
    plain: dict[int, Any] = {}
    seen: dict[int, Any] = {}
    stack: list[Any] = [value]
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen[id(item)] = item
        if isinstance(item, Standin):
            item = _resolve(item, names, plain, seen)
            if id(item) in seen:
                continue
            seen[id(item)] = item
        if isinstance(item, (dict, list, tuple)):
            order.append(item)
            stack.extend(item.values() if isinstance(item, dict) else item)
    return order, plain


def _tuples_inside_out(order: Sequence[Any], plain: dict[int, Any]) -> list[tuple[Any, ...]]:
    """The tuples, parts before wholes."""
    tuples = [item for item in order if isinstance(item, tuple)]
    finished: list[tuple[Any, ...]] = []
    state: dict[int, int] = {}
    for first in tuples:
        stack: list[tuple[Any, bool]] = [(first, False)]
        while stack:
            item, after = stack.pop()
            if after:
                finished.append(item)
            elif id(item) not in state:
                state[id(item)] = 1
                stack.append((item, True))
                parts = [plain.get(id(part), part) for part in item]
                stack.extend((part, False) for part in parts if isinstance(part, tuple))
    return finished


def _resolve(
    standin: Standin, names: StandinNames, plain: dict[int, Any], seen: dict[int, Any]
) -> Any:
    """What stands for an object, which may be made of another one alone; noted for both."""
    item: Any = standin
    chain: list[Standin] = []
    while isinstance(item, Standin) and id(item) not in plain:
        chain.append(item)
        item = _plain_value(item, names)
    item = plain.get(id(item), item)
    for link in chain:
        seen[id(link)] = link
        plain[id(link)] = item
    return item


def _plain_value(standin: Standin, names: StandinNames) -> Any:
    """What an object is replaced by. A module of PyTorch is refused: it is no use in parts."""
    attributes = standin.state if isinstance(standin.state, dict) else {}
    if "_parameters" in attributes and "_modules" in attributes:
        raise refusal(names.where, standin.name)
    names.note(standin.name)
    array = array_value(standin, Tensor)
    return standin.plain() if array is None else array


# ------------------------------------------------------------ the names a checkpoint may use
def _names(where: str) -> dict[str, Named]:
    """Everything that a checkpoint may refer to, each with a builder that checks its arguments."""
    found: dict[str, Named] = {}

    def allow(names: str, value: Any = None, build: Any = None) -> None:
        for name in names.split():
            found[name] = Named(name, value, build)

    for name, dtype in _STORAGES.items():
        allow(f"torch.{name} torch.storage.{name} torch.cuda.{name}", dtype)
    for name, dtype in _TYPES.items():
        allow(f"torch.{name}", dtype)
    rebuild = "torch._utils._rebuild_"
    allow(f"{rebuild}tensor {rebuild}tensor_v2", build=lambda a: pending_tensor(a, where))
    allow(f"{rebuild}tensor_v3", build=lambda a: pending_tensor(a, where, _dtype(a[6], where)))
    allow(f"{rebuild}parameter {rebuild}parameter_with_state", build=lambda a: _inner(a[0], where))
    allow("torch._tensor._rebuild_from_type_v2", build=lambda a: _from_type(a, where))
    allow("torch.nn.parameter.Parameter torch.Tensor torch._tensor.Tensor", build=_refuse)
    allow("torch.Size", build=lambda a: checked_shape(a[0], where))
    allow("torch.device", build=lambda a: ":".join(str(part) for part in _plain(a[:2], where)))
    allow("collections.OrderedDict collections.Counter", build=lambda a: _dict(a, where))
    allow("builtins.dict __builtin__.dict", build=lambda a: _dict(a, where))
    allow("collections.defaultdict", build=lambda a: _dict(a[1:], where))
    allow("builtins.list __builtin__.list", build=lambda a: list(_sequence(a, where)))
    allow("builtins.tuple __builtin__.tuple", build=lambda a: tuple(_sequence(a, where)))
    allow("builtins.set __builtin__.set", build=lambda a: set(_plain(_sequence(a, where), where)))
    allow(
        "builtins.frozenset __builtin__.frozenset",
        build=lambda a: frozenset(_plain(_sequence(a, where), where)),
    )
    allow("builtins.bytearray __builtin__.bytearray", build=_bytes)
    # protocol 2 spells empty bytes as a call
    allow("builtins.bytes __builtin__.bytes", build=_bytes)
    allow("builtins.complex __builtin__.complex", build=lambda a: complex(*_floats(a)))
    allow("_codecs.encode", build=lambda a: _encoded(a, where))
    return found


def _refuse(arguments: tuple[Any, ...]) -> Any:
    raise DataError("a tensor is built in a way that is not known; save model.state_dict()")


def _dtype(value: Any, where: str) -> DType:
    if not isinstance(value, DType):
        raise DataError(f"{where}: a tensor has no dtype")
    return value


def _inner(value: Any, where: str) -> Pending:
    if not isinstance(value, Pending):
        raise DataError(f"{where}: a parameter has no tensor")
    return value


def _from_type(arguments: tuple[Any, ...], where: str) -> Any:
    """A tensor of a subclass: (builder, subclass, its arguments, state). Only the tensor stays."""
    builder, inner = arguments[0], arguments[2]
    if not isinstance(builder, Named) or "_rebuild_" not in builder.name or "_from" in builder.name:
        raise DataError(f"{where}: a tensor of a subclass is built in a way that is not known")
    if not isinstance(inner, tuple):
        raise DataError(f"{where}: a tensor of a subclass is damaged")
    return call_builder(builder, inner, where)


def _sequence(arguments: tuple[Any, ...], where: str) -> Sequence[Any]:
    if not arguments:
        return ()
    if len(arguments) != 1 or not isinstance(arguments[0], (list, tuple)):
        raise DataError(f"{where}: a container is built of something that is no list")
    return arguments[0]


def _plain(items: Sequence[Any], where: str) -> Sequence[Any]:
    if not all(isinstance(item, (str, int, float, bytes, type(None))) for item in items):
        raise DataError(f"{where}: a set holds more than numbers and text")
    return items


def _dict(arguments: tuple[Any, ...], where: str) -> dict[Any, Any]:
    if arguments and isinstance(arguments[0], dict):
        return dict(arguments[0])
    pairs = _sequence(arguments, where)
    _plain([pair[0] for pair in pairs], where)
    return {pair[0]: pair[1] for pair in pairs}


def _bytes(arguments: tuple[Any, ...]) -> bytes:
    if not arguments:
        return b""
    if len(arguments) != 1 or not isinstance(arguments[0], bytes):
        raise DataError("bytes are built of something that is none")
    return arguments[0]


def _floats(arguments: tuple[Any, ...]) -> list[float]:
    if not all(isinstance(part, (int, float)) for part in arguments) or len(arguments) > 2:
        raise DataError("a complex number is built of something that is no number")
    return [float(part) for part in arguments]


def _encoded(arguments: tuple[Any, ...], where: str) -> bytes:
    """How protocol 2 spells bytes: text with one letter per byte."""
    text, encoding = arguments
    if not isinstance(text, str) or encoding not in ("latin1", "latin-1"):
        raise DataError(f"{where}: bytes are spelled in an unknown way")
    return text.encode("latin1")
