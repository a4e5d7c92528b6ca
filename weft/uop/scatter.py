"""Writes through run-time indices: the reverse of GATHER, as states of a storage.

In: values, tensors of indices, the axes they stand for. Out: a state, `AFTER(state, STORE(...))`,
which is the storage once the values were written.
Sits below gradients and the Tensor families, which both scatter; knows nothing of schedules.
Invariant: the work is that of the indices, plus filling the storage once. Writes happen in order:
of equal indices the last one wins, or all are combined. Negative indices wrap once, and what is
outside writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dtype import DType, dtypes
from weft.helpers import prod
from weft.uop.args import Unique
from weft.uop.layout import Layout
from weft.uop.node import UOp
from weft.uop.opset import Ops

Devices = str | tuple[str, ...]


def spread_layout(device: Any, *values: UOp) -> Layout | None:
    """How storage for values lies on its devices: as the first of them that is cut."""
    if type(device) is not tuple:
        return None
    for value in values:
        layout = value.layout
        if layout is not None and value.device == device:
            return layout if all([type(size) is int for size in layout.shape]) else None
    return None


def new_storage(
    device: Devices, shape: Sequence[Any], dtype: DType, layout: Layout | None = None
) -> UOp:
    """Storage of its own in a shape, not written yet; a symbolic shape gets what it can grow to."""
    most = prod(size if isinstance(size, int) else int(size.vmax) for size in shape)
    whole = UOp.new_buffer(device, most, dtype, layout)
    if all(isinstance(size, int) for size in shape):
        return whole._mop(Ops.RESHAPE, tuple(shape))
    return whole._mop(Ops.SHRINK, ((0, prod(shape)),))._mop(Ops.RESHAPE, tuple(shape))


def new_state(value: UOp, device: Devices, shape: Sequence[Any]) -> UOp:
    """Storage of its own, filled with a value of this shape or with one number."""
    whole = new_storage(device, shape, value.dtype, spread_layout(device, value))
    return whole.after(whole.store(value))


def put(
    state: UOp,
    indices: Sequence[UOp],
    axes: Sequence[int],
    values: UOp,
    combine: Ops | None = None,
    unique: bool = False,
) -> UOp:
    """The state after values were written at indices of its axes.

    The indices have one shape. The values have that shape, then the other axes of the state; or
    they are one number. `combine` (ADD, MUL or MAX) joins a value with what is there. `unique`:
    who made the indices knows that no place is named twice, so that writes need no order.
    """
    if combine is not None:
        indices = _every_round_reads(indices)
    place = UOp(Ops.GATHER, state.dtype, (state, *indices), tuple(axes))
    store = UOp(Ops.STORE, dtypes.void, (place, values), Unique(combine) if unique else combine)
    return state.after(store)


def _every_round_reads(indices: Sequence[UOp]) -> Sequence[UOp]:
    """The indices, one of them stored if some axis might not matter to any.

    What is there is read where the index is known. An index that is the same for a whole axis would
    be read once for all of it, and what was combined on the way would be lost.
    """
    shape = indices[0].shape
    varying = {axis for index in indices for axis in _varying_axes(index)}
    if all(axis in varying or is_one(size) for axis, size in enumerate(shape)):
        return indices
    first, *rest = indices
    if first.dtype in dtypes.weaks:
        first = first.cast(dtypes.int64)
    return (UOp(Ops.CONTIGUOUS, first.dtype, (first,)), *rest)


def _varying_axes(index: UOp) -> list[int]:
    """Axes along which an index surely is read, or counted, anew."""
    inner = index.src[0] if index.op is Ops.EXPAND else index
    base = inner
    while base.op is Ops.RESHAPE:
        base = base.src[0]
    if base.op not in _READ:
        return []
    return [axis for axis, size in enumerate(inner.shape) if not is_one(size)]


_READ = frozenset((Ops.BUFFER, Ops.AFTER, Ops.CONTIGUOUS, Ops.IOTA))


def is_one(size: Any) -> bool:
    """Whether a size is known to be 1."""
    return isinstance(size, int) and size == 1


def flat_index(indices: Sequence[UOp], sizes: Sequence[int]) -> UOp:
    """Indices of several axes as one of all their places in order; outside stays outside."""
    if len(indices) == 1:
        return indices[0]
    flat: UOp | None = None
    inside: UOp | None = None
    for index, size in zip(indices, sizes, strict=True):
        place = wrapped(index.cast(dtypes.int64), size)
        valid = place.ge(0) & place.lt(size)
        flat = place if flat is None else flat * size + place
        inside = valid if inside is None else inside & valid
    assert flat is not None and inside is not None
    return inside.where(flat, prod(sizes)).simplify()


def wrapped(index: UOp, size: Any) -> UOp:
    """Negative indices counted from the end."""
    return index.lt(0).where(index + size, index)
