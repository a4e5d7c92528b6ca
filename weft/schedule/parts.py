"""Pieces of values on several devices: cut, moved and joined.

What comes in: a part, and where it lies in the whole. What goes out: nodes on one device.
Where it sits: under `shard`, which says what is to be done with which part.
The one invariant: each function is about one device; where elements come from another one there is
a COPY.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dtype import dtypes
from weft.schedule.all_reduce import on_device
from weft.uop.args import BufferArg
from weft.uop.layout import Layout
from weft.uop.node import UOp
from weft.uop.opset import Ops

Parts = tuple[UOp, ...]


def buffer_parts(node: UOp) -> Parts:
    """The storage of each device behind one on several: the numbers follow each other."""
    number, layout = node.arg.number, node.arg.layout
    result = []
    for i, device in enumerate(node.arg.device):
        shape = (node.arg.size,) if layout is None else layout.part_shape(i)
        size = 1
        for each in shape:
            size *= each
        part = UOp(Ops.BUFFER, node.dtype, (), BufferArg(number - i, size, device))
        result.append(reshaped(part, shape))
    return tuple(result)


def boxed(value: UOp, axis: int, start: int, stop: int) -> UOp:
    """The elements from start to stop along an axis."""
    if start == 0 and _is(value.shape[axis], stop):
        return value
    box = tuple([(start, stop) if i == axis else (0, s) for i, s in enumerate(value.shape)])
    return value._mop(Ops.SHRINK, box)


def sliced(value: UOp, layout: Layout, number: int) -> UOp:
    """A part of a whole value; what has no shape of its own is the same everywhere."""
    if not value.shape and layout.shape:
        return value
    return boxed(reshaped(value, layout.shape), layout.axis, *layout.part(number))


def _is(size: Any, other: int) -> bool:
    return type(size) is int and size == other


def shaped(storage: UOp, shape: tuple[Any, ...]) -> UOp:
    """A whole storage in a shape; of a symbolic one, the part that it takes."""
    if all([type(size) is int for size in shape]):
        return reshaped(storage, shape)
    total: Any = 1
    for size in shape:
        total = total * size
    return storage._mop(Ops.SHRINK, ((0, total),))._mop(Ops.RESHAPE, shape)


def reshaped(value: UOp, shape: tuple[Any, ...]) -> UOp:
    return value if value.shape == shape else value._mop(Ops.RESHAPE, shape)


def joined(pieces: Sequence[UOp], axis: int) -> UOp:
    return pieces[0] if len(pieces) == 1 else UOp(Ops.CAT, pieces[0].dtype, tuple(pieces), axis)


def pieces(parts: Parts, has: Layout, start: int, stop: int, device: str) -> list[UOp]:
    """What several parts have of the elements from start to stop, on a device."""
    found = []
    for number, part in enumerate(parts):
        low, high = has.part(number)
        first, last = max(low, start), min(high, stop)
        if first < last:
            found.append(on_device(boxed(part, has.axis, first - low, last - low), device))
    return found or [on_device(boxed(parts[0], has.axis, 0, 0), device)]


def pinned(value: UOp, device: str) -> UOp:
    """What is computed from numbers alone, on a device."""
    return UOp(Ops.COPY, value.dtype, (value,), device)


def moved(node: UOp, src: Sequence[UOp], has: Layout, result: Layout | None, number: int) -> UOp:
    """A movement of one part."""
    axis, marg = has.axis, list(node.marg)
    start, stop = has.part(number)
    part = src[0]
    if node.op is Ops.PERMUTE or node.op is Ops.FLIP:
        return node.with_src((part,))
    assert result is not None
    low, high = result.part(number)
    if node.op is Ops.EXPAND:
        marg[axis] = stop - start
        return part._mop(Ops.EXPAND, tuple(marg))
    if node.op is Ops.PAD:
        before = marg[axis][0]
        marg[axis] = (start + before - low, high - stop - before)
        return part._mop(Ops.PAD, tuple(marg))
    if node.op is Ops.SHRINK:
        first = marg[axis][0] + low - start
        marg[axis] = (first, first + high - low) if low < high else (0, 0)
        return part._mop(Ops.SHRINK, tuple(marg))
    # STRIDE: the first element of a part that is a multiple of the step
    step = marg[axis]
    if low == high:
        part = boxed(part, axis, 0, 0)
        return part._mop(Ops.STRIDE, tuple(marg))
    return boxed(part, axis, low * step - start, stop - start)._mop(Ops.STRIDE, tuple(marg))


def local(index: UOp, layout: Layout, start: int, stop: int) -> UOp:
    """Indices of the whole as indices of a part; what is elsewhere is outside of it."""
    size = layout.bounds[-1]
    wide = index.cast(dtypes.int64)
    zero, whole = UOp.const(dtypes.int64, 0), UOp.const(dtypes.int64, size)
    from_start = wide.alu(Ops.CMPLT, zero).where(wide.alu(Ops.ADD, whole), wide)
    is_low = from_start.alu(Ops.CMPLT, UOp.const(dtypes.int64, start))
    outside = UOp.const(dtypes.int64, size)
    return is_low.where(outside, from_start.alu(Ops.ADD, UOp.const(dtypes.int64, -start)))


_BITS = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


def as_bits(value: UOp) -> UOp:
    """Values as ints of their size, whose sum with zeros is exact."""
    dtype = value.dtype
    if dtype is dtypes.bool:
        return value.cast(dtypes.uint8)
    return value if dtype.kind in ("int", "uint") else value.bitcast(_BITS[dtype.itemsize])


def from_bits(value: UOp, dtype: Any) -> UOp:
    return value.cast(dtype) if dtype is dtypes.bool else value.bitcast(dtype)


# ops that are worth storing also where they are of numbers alone
STORABLE = (Ops.REDUCE_AXIS, Ops.THREEFRY, Ops.GATHER, Ops.CONTIGUOUS)


def separate_numbers(sink: UOp, home: Any) -> UOp:
    """What is computed from numbers alone, and may be stored on the way, is separate for each
    device that reads it: no kernel reads another device's memory. Values that are nothing else are
    at `home`.

    A graph of one device stays as it is.
    """
    order = sink.toposort()
    places: dict[UOp, Any] = {}
    for node in order:
        first = node.src[0] if node.op in (Ops.STORE, Ops.AFTER) else node
        places[node] = None if node.op is Ops.SINK else first.device
    found = {place for place in places.values() if place is not None}
    if any([value.device is None for value in sink.src]):
        found.add(home)
    if len(found) < 2:
        return sink
    costly: set[UOp] = set()
    for node in order:
        if places[node] is None and (node.op in STORABLE or not costly.isdisjoint(node.src)):
            costly.add(node)
    if not costly:
        return sink
    twins: dict[tuple[UOp, Any], UOp] = {}
    done: dict[UOp, UOp] = {}
    for node in order:
        place = places[node]
        src = tuple(
            [_twin(s, place, costly, twins) if place and s in costly else done[s] for s in node.src]
        )
        done[node] = node if src == node.src else node.with_src(src)
    return done[sink]


def _twin(node: UOp, place: Any, costly: set[UOp], twins: dict[tuple[UOp, Any], UOp]) -> UOp:
    """Numbers for a device."""

    def is_new(part: UOp) -> bool:
        return part in costly and (part, place) not in twins

    for part in node.toposort(gate=is_new):
        if is_new(part):
            twin = part.with_src(tuple([twins.get((s, place), s) for s in part.src]))
            is_own = part.op in STORABLE and part.tag is None
            twins[part, place] = twin.rtag(("on", place)) if is_own else twin
    return twins[node, place]
