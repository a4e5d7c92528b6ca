"""Order writes: writes through indices that may be equal, as writes to places of their own.

What comes in: STOREs through run-time indices, which happen in order: the last one wins, or all are
combined. What goes out: the same STOREs with each place named once, so that they need no order.
Where it sits: before prepare, for devices that run the rounds of a kernel on many threads at once;
there one thread after another would be slower by their number.
The one invariant: what a place holds afterwards is what writing in order gives it, and the same in
every run; sums are added in another, fixed order, or exactly.

Where the device joins ints in memory without an order (`has_atomics`), `join_writes` says how most
writes are made of that. Else, and where that would take too much memory, they are sorted:

    STORE(GATHER(s, i), v)           with o the stable order of i, and k = i[o]:
    -> STORE(GATHER(s, where(k is the last of its equals, k, nowhere)), v[o], unique)
    STORE(GATHER(s, i), v, ADD)
    -> the same of the sums of v[o] over equal k, added to what is there
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from weft.dtype import dtypes
from weft.helpers import prod
from weft.machine import Machines, Target
from weft.schedule.join_writes import is_joined, joined_store
from weft.schedule.place import written_state
from weft.uop.args import Unique, Unordered
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.ranks import places_in_order
from weft.uop.scatter import wrapped
from weft.uop.segments import (
    COUNTED,
    NewStorage,
    iota,
    scanned_by_key,
    stable_order,
    stored,
    take,
)

# a buffer of a device: its device, elements, dtype
NewBuffer: TypeAlias = Callable[[Any, int, Any], UOp]


def order_writes(sink: UOp, machines: Machines, new_buffer: NewBuffer) -> UOp:
    """The graph with its STOREs through indices as they suit the devices they are on."""
    order = sink.toposort()
    if not any([_may_repeat(node) for node in order]):
        return sink
    done: dict[UOp, UOp] = {}
    for node in order:
        src = tuple([done[s] for s in node.src])
        new = node if src == node.src else node.with_src(src)
        if _may_repeat(new):
            device = written_state(new).device
            machine = machines(device)
            if machine.has_local:
                new = _without_order(new, machine, partial(new_buffer, device))
        done[node] = new
    return done[sink]


def _may_repeat(store: UOp) -> bool:
    """Whether data says where a STORE writes, of a number of elements that is known."""
    if store.op is not Ops.STORE or store.src[0].op is not Ops.GATHER:
        return False
    if isinstance(store.arg, (Unique, Unordered)):
        return False
    place = store.src[0]
    indices = place.src[1:]
    shapes = (place.src[0].shape, indices[0].shape)
    if not all([isinstance(size, int) and size > 0 for shape in shapes for size in shape]):
        return False
    if prod(indices[0].shape) == 1 or (store.arg is None and _is_one_number(store.src[1])):
        return False
    nodes = UOp.sink(*indices).toposort()
    return any([node.op in (Ops.BUFFER, Ops.AFTER) for node in nodes])


def _is_one_number(value: UOp) -> bool:
    while value.op in (Ops.RESHAPE, Ops.EXPAND):
        value = value.src[0]
    return value.op is Ops.CONST


def _without_order(store: UOp, machine: Target, new_storage: NewStorage) -> UOp:
    place, values = store.src[:2]
    target, *indices = place.src
    count = prod(indices[0].shape)
    sizes = [target.shape[axis] for axis in place.arg]
    kept = [axis for axis in range(len(target.shape)) if axis not in place.arg]
    rest = tuple([target.shape[axis] for axis in kept])
    places, width = prod(sizes), prod(rest)
    if places >= dtypes.int32.max:
        return store
    if machine.has_atomics and is_joined(store):
        return store.replace(arg=Unordered(store.arg))
    keys = _flat_keys(indices, sizes)._mop(Ops.RESHAPE, (count,))
    if not values.shape:
        values = values._mop(Ops.RESHAPE, (1,) * (1 + len(rest)))
        values = values._mop(Ops.EXPAND, (count, *rest))
    values = values.cast(target.dtype)._mop(Ops.RESHAPE, (count, width))
    front = target.permute((*place.arg, *kept))._mop(Ops.RESHAPE, (places, *rest))
    if machine.has_atomics:
        joined = joined_store(front, keys, values, store.arg, new_storage)
        if joined is not None:
            new = joined.replace(tag=store.tag)
            new.origin = store.origin
            return new
    keys = stored(keys)
    if machine.has_prefixes and count > COUNTED:
        row = keys._mop(Ops.RESHAPE, (1, count))
        order = places_in_order(row, max(1, places.bit_length()), new_storage)
        order = order._mop(Ops.RESHAPE, (count,))
    else:
        order = stable_order(keys, places, new_storage)
    keys = stored(take(keys, order))
    rows = take(values, order)
    if store.arg is not None:
        rows = scanned_by_key(keys, stored(rows), store.arg)
    following = take(keys, (iota(count) + 1).minimum(count - 1))
    is_last = following.ne(keys) | iota(count).eq(count - 1)
    # what is the last one of an index outside is outside as well
    lasting = is_last.where(keys, places)
    written = UOp(Ops.GATHER, target.dtype, (front, stored(lasting)), (0,))
    value = stored(rows)._mop(Ops.RESHAPE, (count, *rest))
    new = UOp(Ops.STORE, dtypes.void, (written, value), Unique(store.arg), store.tag)
    new.origin = store.origin
    return new


def _flat_keys(indices: list[UOp], sizes: list[int]) -> UOp:
    """The place that indices name among all of them, in int32; as many as there are: outside."""
    flat: UOp | None = None
    inside: UOp | None = None
    for index, size in zip(indices, sizes, strict=True):
        if index.dtype is dtypes.uint64:
            index = index.minimum(index.const_like(dtypes.int64.max))
        at = wrapped(index.cast(dtypes.int64), size)
        valid = at.ge(0) & at.lt(size)
        flat = at if flat is None else flat * size + at
        inside = valid if inside is None else inside & valid
    assert flat is not None and inside is not None
    return inside.where(flat, prod(sizes)).cast(dtypes.int32)
