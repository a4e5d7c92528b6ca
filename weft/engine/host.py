"""Host data into the graph: numbers, lists, bytes, arrays and files become UOps.

In: Python objects. Out: a UOp for each, constants for bare numbers, BUFFERs for data.
Sits between storage and Tensor, which calls `from_host` for what it is given.
Invariant: a bare number takes no memory and no dtype of its own; data takes both.
"""

from __future__ import annotations

import struct
from typing import Any

from weft.device import Device
from weft.dtype import (
    DType,
    bits_of,
    dtypes,
    from_numpy_dtype,
    strong_dtype,
    to_numpy_dtype,
    weak_dtype,
)
from weft.engine.storage import store_bytes
from weft.errors import DataError, DTypeError
from weft.helpers import prod
from weft.uop.node import UOp
from weft.uop.opset import Ops

Devices = str | tuple[str, ...] | None


def is_numpy(value: Any) -> bool:
    """Whether it is a NumPy array or scalar, asked without importing NumPy."""
    return type(value).__module__ == "numpy" and hasattr(value, "dtype")


def number(value: bool | int | float, device: Devices, dtype: DType | None) -> UOp:
    """A bare number: a constant without memory; with a device it is pinned there."""
    node = UOp.const(weak_dtype(value) if dtype is None else dtype, value)
    return node if device is None else pin(node, device)


def pin(node: UOp, device: Devices) -> UOp:
    """The value on a device (of something computed from numbers alone: computed there)."""
    return UOp(Ops.COPY, node.dtype, (node,), Device.canonicalize(device))  # type: ignore[arg-type]


def storage_dtype(node: UOp) -> DType:
    """The dtype in which a value is stored: a weak int that does not fit becomes int64."""
    if node.dtype is dtypes.weakint and node.base.op is Ops.CONST:
        return dtypes.from_py(node.base.arg)
    return strong_dtype(node.dtype)


def from_host(data: Any, device: Devices, dtype: DType | None) -> UOp:
    """Data of the host as stored memory on the device."""
    place = Device.canonicalize(device)  # type: ignore[arg-type]
    if not isinstance(place, str):
        # the whole goes to the first device; whoever asked for several shards it from there
        place = place[0]
    if data is None:
        return _stored(b"", (0,), dtype or dtypes.default_float, place)
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
        f"cannot make a Tensor from a {type(data).__name__}; it takes None, a number, bytes, "
        "nested lists of numbers, a NumPy array, a Path, a Variable, a UOp or a Tensor"
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
    array = numpy.ascontiguousarray(data, dtype=data.dtype.newbyteorder("=")).reshape(data.shape)
    chosen = found if dtype is None else strong_dtype(dtype)
    if chosen is not found:
        array, found = _convert_numpy(array, found, chosen)
    raw = array.reshape(-1).view(numpy.uint8) if array.size else array.reshape(-1)
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
