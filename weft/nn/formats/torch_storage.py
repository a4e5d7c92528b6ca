"""Tensors of a PyTorch checkpoint: a storage, an offset, sizes and strides.

In: storages and the numbers that say which of their elements a tensor has. Out: lazy tensors.
Sits on `source` (the numbers), under `torch_checkpoint` (the structure).
Invariant: every number of the file that says where a tensor is, is checked against the bytes that
are there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from weft.dtype import DType, dtypes
from weft.errors import DataError
from weft.helpers import prod
from weft.nn.formats.source import ByteSource, checked_shape, checked_sizes, computable
from weft.tensor import Tensor

_MOST_AXES = 64


@dataclass
class Storage:
    """A storage of the checkpoint: `count` elements of `dtype`, from byte `start` of `source`.

    In the legacy format the bytes come after the structure, so `source` is set later.
    """

    key: str
    dtype: DType
    count: int
    source: ByteSource | None = None
    start: int = 0


@dataclass
class Pending:
    """A tensor of the legacy format, whose storage has not been reached yet."""

    storage: Storage
    dtype: DType
    offset: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def tensor(self, where: str) -> Tensor:
        """The tensor, now that all storages are known."""
        return _strided(self, where)


@dataclass
class StoragePart(Storage):
    """A range of another storage."""

    whole: Storage | None = None
    offset: int = 0


def pending_tensor(arguments: tuple[Any, ...], where: str, dtype: DType | None = None) -> Pending:
    """_rebuild_tensor*: (storage, offset, size, stride, ...)."""
    storage, offset, shape, strides = arguments[:4]
    if not isinstance(storage, Storage):
        raise DataError(f"{where}: a tensor has no storage")
    sizes = checked_shape(shape, f"{where}: a tensor")
    steps = checked_sizes(strides, f"{where}: the strides of a tensor")
    (first,) = checked_sizes([offset], f"{where}: the offset of a tensor")
    if len(sizes) != len(steps) or len(sizes) > _MOST_AXES:
        raise DataError(f"{where}: a tensor has {len(sizes)} sizes and {len(steps)} strides")
    chosen = storage.dtype if dtype is None else dtype
    pending = Pending(storage, chosen, first, sizes, steps)
    room = storage.count * storage.dtype.itemsize // chosen.itemsize
    if 0 not in sizes and first + _span(pending) > room:
        raise DataError(
            f"{where}: a tensor of shape {sizes} with strides {steps} at {first} leads out of its "
            f"storage of {room} elements"
        )
    return pending


def _span(pending: Pending) -> int:
    """How many elements of the storage lie between the first and the last that it uses."""
    steps = zip(pending.shape, pending.strides, strict=True)
    return 1 + sum((size - 1) * stride for size, stride in steps)


def _strided(pending: Pending, where: str) -> Tensor:
    storage, shape, offset = pending.storage, pending.shape, pending.offset
    itemsize = pending.dtype.itemsize
    if 0 in shape:
        return Tensor.empty(*shape, dtype=pending.dtype)
    start = offset * itemsize
    if isinstance(storage, StoragePart) and storage.whole is not None:
        start += storage.offset * storage.dtype.itemsize
        storage = storage.whole
    if storage.source is None:
        raise DataError(f"{where} has no bytes for storage {storage.key[:40]!r}")
    start += storage.start
    if _is_contiguous(shape, pending.strides):
        return storage.source.view(start, pending.dtype, shape)
    window = computable(storage.source.view(start, pending.dtype, (_span(pending),)))
    return _as_strided(window, shape, pending.strides)


def _is_contiguous(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    step = 1
    for size, stride in zip(reversed(shape), reversed(strides), strict=True):
        if size != 1 and stride != step:
            return False
        step *= size
    return True


def _as_strided(window: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    """The elements of a flat window that strides pick. Permuted and expanded ones stay views.

    Axes are taken from the largest stride down. As long as each stride holds all smaller axes,
    padding, reshape and shrink say it; what overlaps (an unfolded tensor) is gathered.
    """
    moving = [axis for axis in range(len(shape)) if shape[axis] > 1 and strides[axis] > 0]
    moving.sort(key=lambda axis: -strides[axis])
    inner = 1
    nested = True
    for axis in reversed(moving):
        nested = nested and strides[axis] >= inner
        inner = strides[axis] * shape[axis]
    if not nested:
        return _gathered(window, shape, strides)
    length = math.prod(window.shape)
    sizes: list[int] = []
    for axis in moving:
        # a row per step of this axis; the last may be cut short, so it is filled up
        rows, stride = shape[axis], strides[axis]
        window = window.reshape((*sizes, length))
        if rows * stride > length:
            window = window.pad(((0, 0),) * len(sizes) + ((0, rows * stride - length),))
        window = window.shrink((*[(0, size) for size in sizes], (0, rows * stride)))
        sizes.append(rows)
        length = stride
        window = window.reshape((*sizes, length))
    window = window.shrink((*[(0, size) for size in sizes], (0, 1))).reshape(tuple(sizes))
    order = sorted(range(len(moving)), key=lambda position: moving[position])
    window = window.permute(tuple(order)) if len(order) > 1 else window
    kept = set(moving)
    window = window.reshape(tuple(shape[a] if a in kept else 1 for a in range(len(shape))))
    return window.expand(shape)


def _gathered(window: Tensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> Tensor:
    index = Tensor.zeros(*shape, dtype=dtypes.int64)
    for axis, (size, stride) in enumerate(zip(shape, strides, strict=True)):
        along = [1] * len(shape)
        along[axis] = size
        index = index + (Tensor.arange(size, dtype=dtypes.int64) * stride).reshape(tuple(along))
    return window[index.reshape(prod(shape))].reshape(shape)
