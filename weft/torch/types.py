"""What a tensor of PyTorch is in weft's terms: its dtype, its device, how it lies in memory.

In: tensors of PyTorch, real or fake. Out: dtypes, devices, `Layout`. Sits below `lower` and
`program`.
Invariant: memory is one flat piece, of which a tensor is a view; how it is strided is decided when
a graph is compiled, where it begins at each call.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch

from weft.device import Device
from weft.dtype import DType, dtypes
from weft.errors import UnsupportedError
from weft.torch.sizes import Sizes, expression_of, is_at_most, is_same

DTYPES: dict[torch.dtype, DType] = {
    torch.bool: dtypes.bool,
    torch.uint8: dtypes.uint8,
    torch.uint16: dtypes.uint16,
    torch.uint32: dtypes.uint32,
    torch.uint64: dtypes.uint64,
    torch.int8: dtypes.int8,
    torch.int16: dtypes.int16,
    torch.int32: dtypes.int32,
    torch.int64: dtypes.int64,
    torch.float16: dtypes.float16,
    torch.bfloat16: dtypes.bfloat16,
    torch.float32: dtypes.float32,
    torch.float64: dtypes.float64,
}
# PyTorch's kinds of devices, as DLPack numbers the memory that they have
_MEMORY = {"cpu": 1, "cuda": 2}


def dtype_of(dtype: torch.dtype) -> DType:
    """weft's name of a dtype."""
    found = DTYPES.get(dtype)
    if found is None:
        raise UnsupportedError(f"weft has no {dtype}")
    return found


def device_of(device: torch.device) -> str:
    """The device of weft whose memory that is."""
    kind = _MEMORY.get(device.type)
    found = None if kind is None else Device.with_memory((kind, device.index or 0))
    if found is None:
        raise UnsupportedError(f"weft shares no memory with {device}")
    return found.name


@dataclass(frozen=True)
class Layout:
    """How a tensor lies in memory. Sizes and strides are ints or expressions of free sizes.

    order: the axes, that with the greatest stride first. is_dense: elements fill their memory, each
    once. repeated: axes along which all elements are one; the others are dense, then, if
    `is_dense_apart`. nested: (axis, size, stride) of those axes that have both, in order, if each
    lies inside of one step of that before it.
    """

    sizes: tuple[Any, ...]
    strides: tuple[Any, ...]
    order: tuple[int, ...]
    is_dense: bool
    repeated: tuple[int, ...]
    is_dense_apart: bool
    nested: tuple[tuple[int, Any, Any], ...] | None

    @classmethod
    def of(cls, meta: Any, numbers: Sizes) -> Layout:
        """That of a fake tensor; `numbers` are values of the free sizes that it may have."""
        sizes = tuple([expression_of(size) for size in meta.shape])
        strides = tuple([expression_of(stride) for stride in meta.stride()])
        now = [numbers.evaluated(stride) for stride in strides]
        wide = [numbers.evaluated(size) for size in sizes]
        # of equal strides, those of one element come first: they can stand anywhere
        places = sorted(range(len(sizes)), key=lambda axis: (-now[axis], wide[axis] != 1, axis))
        order = tuple(places)
        repeated = tuple([a for a in order if now[a] == 0 and wide[a] != 1])
        apart = [axis for axis in order if axis not in repeated]
        real = [axis for axis in apart if wide[axis] != 1]
        nested = tuple([(axis, sizes[axis], strides[axis]) for axis in real])
        is_nested = all(
            is_at_most(inner[1] * inner[2], outer[2])
            for outer, inner in zip(nested, nested[1:], strict=False)
        )
        return cls(
            sizes,
            strides,
            order,
            _is_dense(sizes, strides, order, wide),
            repeated,
            _is_dense(sizes, strides, apart, wide),
            nested if is_nested else None,
        )


def _is_dense(sizes: Any, strides: Any, order: Any, now: list[int]) -> bool:
    expected: Any = 1
    for axis in reversed(order):
        if now[axis] == 1:
            continue
        if not is_same(strides[axis], expected):
            return False
        expected = expected * sizes[axis]
    return True
