"""Host data into the graph: numbers, lists, bytes, arrays and files become UOps.

In: Python objects. Out: a UOp for each, constants for bare numbers, BUFFERs for data.
Sits between storage and Tensor, which calls `from_host` for what it is given.
Invariant: a bare number takes no memory and no dtype of its own; data takes both.
"""

from __future__ import annotations

import functools
import os
import pathlib
import stat
import struct
from dataclasses import dataclass
from typing import Any

from weft.device import Buffer, Device
from weft.dtype import (
    DType,
    bits_of,
    dtypes,
    from_numpy_dtype,
    strong_dtype,
    to_numpy_dtype,
    weak_dtype,
)
from weft.engine.storage import buffer_of, node_of, store_bytes
from weft.errors import DataError, DeviceError, DTypeError, MissingFileError
from weft.helpers import prod
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

Devices = str | tuple[str, ...] | None

# the kind of device that a path opens
FILE_DEVICE = "DISK"


def is_numpy(value: Any) -> bool:
    """Whether it is a NumPy array or scalar, asked without importing NumPy."""
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def number(value: bool | int | float, device: Devices, dtype: DType | None) -> UOp:
    """A bare number: a constant without memory; with a device it is pinned there."""
    if dtype is None and type(value) is int and not dtypes.int64.min <= value <= dtypes.int64.max:
        # as a number of no dtype it would not be itself
        dtype = dtypes.from_py(value)
    node = UOp.const(weak_dtype(value) if dtype is None else dtype, value)
    return node if device is None else pin(node, device)


def pin(node: UOp, device: Devices) -> UOp:
    """The value on a device (of something computed from numbers alone: computed there)."""
    place = Device.canonicalize(device)
    if is_storage(node.device):
        if type(place) is tuple:
            return UOp(Ops.COPY, node.dtype, (_fetched(node, place[0]),), place)
        return _fetched(node, place)
    if is_storage(place) and node.device is None and node.dtype not in dtypes.weaks:
        # nothing is computed on a storage: the numbers are computed elsewhere and written there
        home = UOp.new_buffer(Device.DEFAULT, prod(node.shape), node.dtype)
        base = home if home.shape == node.shape else home._mop(Ops.RESHAPE, node.shape)
        node = base.after(base.store(node))
    return UOp(Ops.COPY, node.dtype, (node,), place)


def storage_dtype(node: UOp) -> DType:
    """The dtype in which a value is stored: a weak int that does not fit becomes int64."""
    if node.dtype is dtypes.weakint and node.base.op is Ops.CONST:
        return dtypes.from_py(node.base.arg)
    return strong_dtype(node.dtype)


def from_host(data: Any, device: Devices, dtype: DType | None) -> UOp:
    """Data of the host as stored memory on the device."""
    place = Device.canonicalize(device)
    if not isinstance(place, str):
        # the whole goes to the first device; whoever asked for several shards it from there
        place = place[0]
    if is_storage(place):
        # building an expression writes no file; realizing it does
        return pin(from_host(data, Device.DEFAULT, dtype), place)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return _from_bytes(data, dtype, place)
    if is_numpy(data):
        return _from_numpy(data, dtype, place)
    if isinstance(data, (list, tuple)):
        shape = list_shape(data)
        flat = _flatten(data, len(shape))
        _check_numbers(flat, data, len(shape))
        chosen = dtypes.from_py(flat) if dtype is None else dtype
        return _stored(pack(flat, strong_dtype(chosen)), shape, strong_dtype(chosen), place)
    raise DataError(
        f"cannot make a Tensor from a {type(data).__name__}; it takes a number, bytes, "
        "nested lists of numbers, an array, a Path, a Variable, a UOp or a Tensor"
    )


def _stored(data: Any, shape: tuple[int, ...], dtype: DType, device: str) -> UOp:
    buffer = store_bytes(data, dtype, device)
    return buffer if shape == buffer.shape else buffer._mop(Ops.RESHAPE, shape)


def _from_bytes(data: bytes | bytearray | memoryview, dtype: DType | None, device: str) -> UOp:
    chosen = dtype or dtypes.uint8
    view = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
    if view.nbytes % chosen.itemsize:
        raise DataError(
            f"{view.nbytes} bytes are no whole number of {chosen}, which have {chosen.itemsize}"
        )
    return _stored(view, (view.nbytes // chosen.itemsize,), chosen, device)


def _from_numpy(data: Any, dtype: DType | None, device: str) -> UOp:
    import numpy

    found = from_numpy_dtype(data.dtype)
    native = data.dtype if data.dtype.isnative else data.dtype.newbyteorder("=")
    array = numpy.ascontiguousarray(data, dtype=native).reshape(data.shape)
    chosen = found if dtype is None else strong_dtype(dtype)
    if chosen is not found:
        array, found = _convert_numpy(array, found, chosen)
    raw: Any = array.reshape(-1).view(numpy.uint8) if array.size else array.reshape(-1)
    return _stored(memoryview(raw) if array.size else b"", tuple(data.shape), found, device)


def _convert_numpy(array: Any, found: DType, chosen: DType) -> tuple[Any, DType]:
    """The array in another dtype, by the rules of CAST."""
    import numpy

    native = chosen.kind == "float" and chosen.itemsize >= 2 and chosen is not dtypes.bfloat16
    widening = found.kind in ("int", "uint", "bool") and chosen.kind in ("int", "uint")
    if (native and found is not dtypes.bfloat16 and found not in dtypes.fp8s) or widening:
        with numpy.errstate(over="ignore"):
            return array.astype(to_numpy_dtype(chosen)), chosen
    if chosen is dtypes.bool and found is not dtypes.bfloat16 and found not in dtypes.fp8s:
        return array != 0, chosen
    flat = array.reshape(-1).tolist()
    packed = numpy.frombuffer(pack(flat, chosen), dtype=to_numpy_dtype(chosen))
    return packed.reshape(array.shape), chosen


def list_shape(data: Any) -> tuple[int, ...]:
    """The shape of nested lists; an error that names the first position that does not fit."""
    shape: list[int] = []
    level: list[tuple[str, Any]] = [("data", data)]
    while level and isinstance(level[0][1], (list, tuple)):
        length = len(level[0][1])
        following: list[tuple[str, Any]] = []
        parts: list[tuple[str, Any]] = []
        for where, part in level:
            if not isinstance(part, (list, tuple)):
                raise DataError(
                    f"the data is ragged: {level[0][0]} is a list of {length}, but {where} is "
                    f"{part!r}; lists beside each other must have equal lengths"
                )
            if len(part) != length:
                raise DataError(
                    f"the data is ragged: {level[0][0]} has length {length}, but {where} has "
                    f"length {len(part)}; lists beside each other must have equal lengths"
                )
            parts.append((where, part))
        # positions are only spelled out for lists: numbers are many
        if any(isinstance(item, (list, tuple)) for _, part in parts for item in part):
            following = [
                (f"{where}[{i}]", item) for where, part in parts for i, item in enumerate(part)
            ]
        shape.append(length)
        level = following
    return tuple(shape)


def _flatten(data: Any, depth: int) -> list[Any]:
    flat = list(data)
    for _ in range(depth - 1):
        flat = [item for part in flat for item in part]
    return flat


def _check_numbers(flat: list[Any], data: Any, depth: int) -> None:
    for position, item in enumerate(flat):
        if isinstance(item, (bool, int, float)):
            continue
        if is_numpy(item) and item.shape == ():
            flat[position] = item.item()
            continue
        raise DataError(
            f"element {position} of the data is {item!r}, a {type(item).__name__}; "
            "only bools, ints and floats can be there"
        )


def pack(values: list[Any], dtype: DType) -> bytes:
    """The bytes of numbers in a dtype: floats round, ints wrap."""
    if dtype in (dtypes.float32, dtypes.float64):
        try:
            return struct.pack(f"{len(values)}{dtype.fmt}", *values)
        except (OverflowError, struct.error):
            pass  # beyond the greatest float: it becomes infinite below
    constants = [dtype.const(value) for value in values]
    if dtype.fmt is not None:
        try:
            return struct.pack(f"{len(values)}{dtype.fmt}", *constants)
        except (OverflowError, struct.error) as error:
            raise DTypeError(f"the data does not fit {dtype}: {error}") from None
    return b"".join(bits_of(value, dtype).to_bytes(dtype.itemsize, "little") for value in constants)


def unpack(data: Any, dtype: DType) -> list[Any]:
    """The numbers in the bytes of a dtype that the `struct` module knows."""
    view = memoryview(data)
    return list(struct.unpack(f"{view.nbytes // dtype.itemsize}{dtype.fmt}", view))


def nest(flat: list[Any], shape: tuple[int, ...]) -> Any:
    """A flat list as nested lists of a shape; of shape () the number itself."""
    if not shape:
        return flat[0]
    if prod(shape) == 0:
        level: Any = []
        for size in reversed(shape[: shape.index(0)]):
            level = [list(level) for _ in range(size)]
        return level
    for size in reversed(shape[1:]):
        flat = [flat[i : i + size] for i in range(0, len(flat), size)]
    return flat


# ------------------------------------------------------------ storages: devices that only store
_SEEN_THROUGH = frozenset((Ops.DETACH, Ops.CONTIGUOUS, Ops.CONTIGUOUS_BACKWARD))
_STORABLE = GroupOp.Movement | _SEEN_THROUGH | {Ops.BITCAST, Ops.BUFFER, Ops.COPY}


@functools.lru_cache(maxsize=4096)
def is_storage(device: Devices) -> bool:
    """Whether a device only stores. Its name ends in a path; others are not opened to be asked."""
    if not isinstance(device, str):
        return False
    unit = device.partition(":")[2]
    return unit != "" and not unit.isdigit() and getattr(Device[device], "is_storage", False)


def is_same_storage(left: Devices, right: Devices) -> bool:
    """Whether two names mean one storage: their paths may be spelled differently."""
    if left == right or not (is_storage(left) and is_storage(right)):
        return left == right
    paths = [os.path.realpath(str(name).partition(":")[2]) for name in (left, right)]
    return paths[0] == paths[1]


def refuse_computing(node: UOp) -> None:
    """An error for an op whose result would have to be computed on a storage."""
    if node.op in _STORABLE:
        return
    for source in node.src:
        if is_storage(source.device):
            raise DeviceError(
                f"{node.op.name} on {source.device}, which only stores and computes nothing; move "
                f'the Tensor first: x.to("{Device.DEFAULT}")'
            )


def from_file(path: pathlib.Path, dtype: DType | None) -> UOp:
    """A file as stored memory that is read when, and as far as, it is moved elsewhere."""
    chosen = dtypes.uint8 if dtype is None else strong_dtype(dtype)
    try:
        where = path.resolve()
        found = os.stat(where)
    except (OSError, RuntimeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        kind = MissingFileError if isinstance(error, FileNotFoundError) else DataError
        raise kind(f"cannot make a Tensor from the file {path}: {reason}") from None
    if not stat.S_ISREG(found.st_mode):
        what = "a directory" if stat.S_ISDIR(found.st_mode) else "no regular file"
        raise DataError(f"cannot make a Tensor from {path}: it is {what}; name a file")
    if found.st_size % chosen.itemsize:
        raise DataError(
            f"the {found.st_size} bytes of {path} are no whole number of {chosen}, which have "
            f"{chosen.itemsize}; give another dtype, or take a slice and bitcast that"
        )
    device = Device.canonicalize(f"{FILE_DEVICE}:{where}")
    return node_of(Buffer(device, found.st_size // chosen.itemsize, chosen).ensure_allocated())


@dataclass(frozen=True)
class Strided:
    """Where the elements of a view are: `offset` plus index times stride, summed over the axes."""

    shape: tuple[int, ...]
    strides: tuple[int, ...]
    offset: int

    @property
    def in_order(self) -> bool:
        """Whether the elements follow each other without gaps."""
        return 0 in self.shape or all(
            size == 1 or stride == expected
            for size, stride, expected in zip(
                self.shape, self.strides, row_major(self.shape), strict=True
            )
        )

    @property
    def window(self) -> tuple[int, int]:
        """The smallest range of the storage that holds all elements."""
        if 0 in self.shape:
            return 0, 0
        reach = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        first = self.offset + sum(r for r in reach if r < 0)
        return first, self.offset + sum(r for r in reach if r > 0) + 1

    def move(self, node: UOp) -> Strided | None:
        """This seen through a movement op; None if that has no strides of its own."""
        shape, strides, arg = self.shape, self.strides, node.arg
        if len(node.src) > 1:
            # symbolic
            return None
        if node.op is Ops.RESHAPE:
            return self._reshape(arg)
        if node.op is Ops.PERMUTE:
            return Strided(
                tuple(shape[axis] for axis in arg),
                tuple(strides[axis] for axis in arg),
                self.offset,
            )
        if node.op is Ops.EXPAND:
            kept = zip(shape, strides, arg, strict=True)
            return Strided(arg, tuple(0 if n != m else s for n, s, m in kept), self.offset)
        if node.op is Ops.SHRINK:
            start = sum(begin * s for (begin, _), s in zip(arg, strides, strict=True))
            return Strided(node.shape, strides, self.offset + start)
        if node.op is Ops.FLIP:
            axes = list(zip(shape, strides, arg, strict=True))
            start = sum((n - 1) * s for n, s, flipped in axes if flipped)
            turned = tuple(-s if flipped else s for _, s, flipped in axes)
            return Strided(shape, turned, self.offset + start)
        if node.op is Ops.STRIDE:
            wider = tuple(s * step for s, step in zip(strides, arg, strict=True))
            return Strided(node.shape, wider, self.offset)
        return None

    def _reshape(self, shape: tuple[int, ...]) -> Strided | None:
        """What is in order takes any shape, other views only lose or gain axes of size 1."""
        if self.in_order:
            return Strided(shape, row_major(shape), self.offset)
        kept = [(n, s) for n, s in zip(self.shape, self.strides, strict=True) if n != 1]
        if [n for n, _ in kept] != [n for n in shape if n != 1]:
            return None
        following = iter(kept)
        strides = tuple(0 if n == 1 else next(following)[1] for n in shape)
        return Strided(shape, strides, self.offset)


def row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    """
    >>> row_major((2, 3, 4))
    (12, 4, 1)
    """
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


def _view_chain(node: UOp) -> tuple[UOp, list[UOp]]:
    """What a view is of, and its steps from there on."""
    steps: list[UOp] = []
    while node.op in GroupOp.Movement or node.op in _SEEN_THROUGH or node.op is Ops.BITCAST:
        steps.append(node)
        node = node.src[0]
    return node, steps[::-1]


def _follow(storage: UOp, steps: list[UOp]) -> tuple[Strided, list[UOp]]:
    """Where a view is in its storage, as far as strides can say it, and the steps that are left."""
    view = Strided(storage.shape, row_major(storage.shape), 0)
    for done, node in enumerate(steps):
        if node.op in _SEEN_THROUGH:
            continue
        moved = view.move(node) if node.op in GroupOp.Movement else None
        if moved is None:
            return view, steps[done:]
        view = moved
    return view, []


def is_stored_view(node: UOp) -> bool:
    """Whether it is a view of memory, with nothing to compute or transfer in between."""
    return storage_viewed(node) is not None


def storage_viewed(node: UOp) -> UOp | None:
    """The memory that it is a view of, if it is one."""
    found = _view_chain(node)[0]
    return found if found.op is Ops.BUFFER else None


def stored_part(node: UOp) -> Buffer | None:
    """The memory of a view, if that is a part of its storage in order."""
    storage, steps = _view_chain(node)
    if storage.op is not Ops.BUFFER:
        return None
    view, left = _follow(storage, steps)
    return None if left or not view.in_order else _part(storage, *view.window)


def _part(storage: UOp, start: int, stop: int) -> Buffer:
    buffer = buffer_of(storage).ensure_allocated()
    return buffer.view(stop - start, storage.dtype, start * storage.dtype.itemsize)


def stored_bits(node: UOp, dtype: DType) -> UOp | None:
    """The bits of a stored view as another dtype, still as memory, where the view is in order."""
    shape = node.bitcast(dtype).shape
    part = stored_part(node)
    if part is None:
        return None
    stored = node_of(part.base.view(prod(shape), dtype, part.offset))
    return stored if stored.shape == shape else stored._mop(Ops.RESHAPE, shape)


def _fetched(node: UOp, place: Any) -> UOp:
    """A value of a storage elsewhere: only the smallest range that holds the view is transferred.

    The memory gets a node of its own each time: storages are written without a trace in the graph,
    so an equal transfer later may give other values.
    """
    storage, steps = _view_chain(node)
    if storage.op is not Ops.BUFFER:
        # not written there yet: it comes from where it is
        source = storage.src[0] if storage.op is Ops.COPY else storage
        return _apply(UOp(Ops.COPY, source.dtype, (source,), place), steps)
    view, left = _follow(storage, steps)
    start, stop = view.window
    moved = UOp(Ops.COPY, storage.dtype, (node_of(_part(storage, start, stop)),), place)
    if view.in_order:
        shaped = moved if moved.shape == view.shape else moved._mop(Ops.RESHAPE, view.shape)
        return _apply(shaped, left)
    # The view is made there, of what would be the whole storage; the rest of it is never looked at.
    total = storage.arg.size
    if (start, stop) != (0, total):
        moved = moved._mop(Ops.PAD, ((start, total - stop),))
    return _apply(moved, steps)


def _apply(value: UOp, steps: list[UOp]) -> UOp:
    for node in steps:
        value = UOp(node.op, node.dtype, (value, *node.src[1:]), node.arg)
    return value


def fill(target: Buffer, one: bytes) -> None:
    """Every element of the memory the same, without a second copy of it all."""
    count = max(1, min(target.size, (1 << 24) // len(one)))
    pattern = memoryview(one * count)
    for start in range(0, target.size, count):
        size = min(count, target.size - start)
        part = target.view(size, target.dtype, start * len(one))
        part.copyin(pattern[: size * len(one)])
