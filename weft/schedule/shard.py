"""Lower a graph over several devices to one graph for each of them, joined by transfers.

What comes in: SINK of values, some of them on tuples of devices. What goes out: SINK of their parts
and of the other values; every node is on one device.
Where it sits: the first pass of the schedule; a graph on single devices passes as it is.
The one invariant: each part lies as `uop/layout.py` says, and every value is what one device would
have computed, sums in another order.

Cost is the number of nodes times the number of devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from weft.dtype import DType, dtypes
from weft.schedule.all_reduce import all_reduce, filled, on_device
from weft.schedule.parts import (
    Parts,
    as_bits,
    boxed,
    buffer_parts,
    from_bits,
    joined,
    local,
    moved,
    pieces,
    pinned,
    reshaped,
    shaped,
    sliced,
)
from weft.schedule.place import storage_of
from weft.schedule.survey import max_elements
from weft.uop.args import ReduceArg
from weft.uop.layout import KEEP, Layout, Plan, follow, plan, unexpanded
from weft.uop.node import UOp
from weft.uop.opset import OPSET, GroupOp, Ops

NewBuffer = Callable[[Any, int, Any], UOp]


@dataclass(frozen=True)
class Spread:
    """A value of several devices: as many of the lowered graph's values are its parts."""

    devices: tuple[str, ...]
    dtype: DType
    layout: Layout | None


def lower_shards(sink: UOp, new_buffer: NewBuffer) -> tuple[UOp, list[Spread | None]] | None:
    """The graph for single devices, and which of its values are parts of one; None if it is one."""
    order = sink.toposort()
    if not any([n.op in (Ops.BUFFER, Ops.COPY) and type(n.device) is tuple for n in order]):
        return None
    lowering = _Lowering(new_buffer)
    for node in order:
        if node is not sink:
            lowering.lower(node)
    return lowering.finish(sink)


def own_parts(
    values: Sequence[UOp], spreads: Sequence[Spread | None], new_buffer: NewBuffer
) -> list[UOp]:
    """Values after they were simplified: each part in memory of its own, on its device.

    Memory that is the whole of one value is not a part of another, and a number is on no device.
    """
    found = list(values)
    starts = []
    start = 0
    for spread in spreads:
        starts.append(start)
        start += 1 if spread is None else len(spread.devices)
    seen: dict[UOp, Parts] = {
        found[start]: () for start, spread in zip(starts, spreads, strict=True) if spread is None
    }
    for start, spread in zip(starts, spreads, strict=True):
        if spread is None:
            continue
        whole = tuple(found[start : start + len(spread.devices)])
        for number, (part, device) in enumerate(zip(whole, spread.devices, strict=True), start):
            is_own = part.device is not None and seen.setdefault(part, whole) == whole
            if not is_own and 0 not in part.shape:
                home = new_buffer(device, max_elements(part.shape), part.dtype)
                base = shaped(home, part.shape)
                found[number] = base.after(base.store(part))
    return found


class _Lowering:
    """The parts of every node on several devices, and the nodes of single ones."""

    def __init__(self, new_buffer: NewBuffer) -> None:
        self.new_buffer = new_buffer
        self.parts: dict[UOp, Parts] = {}
        self.plain: dict[UOp, UOp] = {}
        self.effects: dict[UOp, tuple[UOp | None, ...]] = {}  # of STOREs, by part
        self.states: dict[UOp, None] = {}  # AFTERs that no other is built on
        self._gathered: dict[tuple[UOp, str], UOp] = {}

    def lower(self, node: UOp) -> None:
        """One node whose sources are lowered."""
        # effects on several devices may be kept together
        device = (node.src[0] if node.op in (Ops.AFTER, Ops.STORE) else node).device
        if type(device) is tuple:
            if node.op is Ops.STORE:
                self.effects[node] = self._store(node)
            else:
                self.parts[node] = self._lower(node)
                for part in self.parts[node]:
                    if part.origin is None:
                        part.origin = node.origin
        elif node.op is Ops.COPY and type(node.src[0].device) is tuple:
            self.plain[node] = self.gathered(node.src[0], node.arg)
        else:
            src: list[UOp] = []
            for source in node.src:
                if source in self.effects:
                    src.extend([part for part in self.effects[source] if part is not None])
                else:
                    src.append(self.plain[source])
            self.plain[node] = node if tuple(src) == node.src else node.with_src(tuple(src))

    def finish(self, sink: UOp) -> tuple[UOp, list[Spread | None]]:
        """The sink of all parts, and of each value how it is spread."""
        values: list[UOp] = []
        spreads: list[Spread | None] = []
        for value in sink.src:
            if value not in self.parts:
                values.append(self.plain[value])
                spreads.append(None)
                continue
            devices, layout = value.device, value.layout
            assert isinstance(devices, tuple)
            if layout is not None and not all([type(s) is int for s in layout.shape]):
                # its memory would be cut at places that are not known
                layout = None
            own = self.parts[value] if layout else self.source(value, None, devices)
            values.extend(own)
            spreads.append(Spread(devices, value.dtype, layout))
        # all parts of a write happen, also those that nobody reads
        states = [part for node in self.states for part in self.parts[node]]
        return UOp.sink(*values, *states), spreads

    # ------------------------------------------------------------ sources as they are wanted
    def source(self, node: UOp, want: Any, devices: tuple[str, ...]) -> Parts:
        """A source on each device, whole or as the part that a layout says."""
        if type(node.device) is not tuple:
            whole = self.plain[node]
            if want is None or want is KEEP:
                return (whole,) * len(devices)
            return tuple([sliced(whole, want, i) for i in range(len(devices))])
        found, has = self.parts[node], node.layout
        if want is KEEP or want == has:
            return found
        if has is None:
            return tuple([sliced(part, want, i) for i, part in enumerate(found)])
        if want is None:
            return tuple([self.gathered(node, device) for device in devices])
        return self._recut(node, has, want, devices)

    def gathered(self, node: UOp, device: str) -> UOp:
        """The whole of a value on one device."""
        found = self._gathered.get((node, device))
        if found is None:
            found = self._gathered[node, device] = self._gather(node, device)
        return found

    def _gather(self, node: UOp, device: str) -> UOp:
        base = unexpanded(node)
        if base is not node:
            # what is repeated moves once
            return self._rebased(node, base, self._whole_of(base, device), device)
        parts, layout, devices = self.parts[node], node.layout, node.device
        assert isinstance(devices, tuple)
        if layout is None:
            here = devices.index(device) if device in devices else 0
            return on_device(parts[here], device)
        found = [
            on_device(part, device)
            for i, part in enumerate(parts)
            if layout.bounds[i] < layout.bounds[i + 1]
        ]
        return reshaped(joined(found or [on_device(parts[0], device)], layout.axis), node.shape)

    def _whole_of(self, node: UOp, device: str) -> UOp:
        if node in self.parts:
            return self.gathered(node, device)
        return self.plain[node]

    def _slices(self, node: UOp, want: Layout, devices: tuple[str, ...]) -> Parts:
        """Parts of what every device gets as a whole."""
        return tuple([sliced(self.gathered(node, d), want, i) for i, d in enumerate(devices)])

    def _recut(self, node: UOp, has: Layout, want: Layout, devices: tuple[str, ...]) -> Parts:
        """From one cut to another: each device gets the pieces of its part."""
        if unexpanded(node) is not node:
            return self._slices(node, want, devices)
        parts = self.parts[node]
        if has.shape != want.shape:
            other = follow(has, want.shape)
            if other is None:
                return self._slices(node, want, devices)
            parts = tuple([reshaped(p, other.part_shape(i)) for i, p in enumerate(parts)])
            has = other
            if has == want:
                return parts
        if has.axis == want.axis:
            ranges = [want.part(i) for i in range(want.count)]
            return tuple(
                [
                    joined(pieces(parts, has, start, stop, device), has.axis)
                    for (start, stop), device in zip(ranges, devices, strict=True)
                ]
            )
        result = []
        for number, device in enumerate(devices):
            start, stop = want.part(number)
            found = [
                on_device(boxed(part, want.axis, start, stop), device)
                for i, part in enumerate(parts)
                if has.bounds[i] < has.bounds[i + 1]
            ]
            empty = boxed(parts[0], want.axis, start, stop)
            result.append(joined(found or [on_device(empty, device)], has.axis))
        return tuple(result)

    # ------------------------------------------------------------ one node
    def _lower(self, node: UOp) -> Parts:
        op = node.op
        devices = node.device
        assert isinstance(devices, tuple)
        if op is Ops.BUFFER:
            return buffer_parts(node)
        if op is Ops.COPY:
            return self._copy(node, devices)
        if op is Ops.AFTER:
            return self._after(node)
        how = plan(node)
        if op is Ops.FUNCTION:
            return self.parts[node.src[0]] if node.src[0] in self.parts else self._whole(node, how)
        if op is Ops.REDUCE_AXIS and how.sources[0] is KEEP:
            return self._reduce(node, devices)
        if op is Ops.CAT and how.sources[0] is KEEP:
            return self._cat(node, how, devices)
        if op is Ops.GATHER and how.sources[0] is KEEP:
            return self._gather_cut(node, devices)
        if op is Ops.RESHAPE:
            return self._reshape(node, how)
        if op is Ops.FLIP and how.sources[0] is not None and node.arg[how.sources[0].axis]:
            return self._flip(node, how, devices)
        return self._whole(node, how)

    def _whole(self, node: UOp, how: Plan) -> Parts:
        """The same op on every device, on what it has."""
        devices = node.device
        assert isinstance(devices, tuple)
        sources = [
            self.source(source, want, devices)
            for source, want in zip(node.src, how.sources, strict=True)
        ]
        layout = how.sources[0] if node.op in GroupOp.Movement else None
        result = []
        for number, src in enumerate(zip(*sources, strict=True)):
            if isinstance(layout, Layout):
                result.append(moved(node, src, layout, how.result, number))
            else:
                result.append(node.with_src(tuple(src)))
        return tuple(result)

    def _copy(self, node: UOp, devices: tuple[str, ...]) -> Parts:
        source, layout = node.src[0], node.layout
        if source.device is None:
            own = self.source(source, layout, devices)
            return tuple([pinned(part, d) for part, d in zip(own, devices, strict=True)])
        if type(source.device) is tuple:
            if source.device == devices:
                return self.source(source, layout, devices)
            if layout is None:
                return tuple([self.gathered(source, device) for device in devices])
            if source.layout is not None and len(devices) == len(source.device):
                near = self._recut(source, source.layout, layout, devices)
                return tuple([on_device(p, d) for p, d in zip(near, devices, strict=True)])
            return self._slices(source, layout, devices)
        whole = self.plain[source]
        if layout is None:
            return tuple([on_device(whole, device) for device in devices])
        return tuple([on_device(sliced(whole, layout, i), d) for i, d in enumerate(devices)])

    def _reshape(self, node: UOp, how: Plan) -> Parts:
        devices = node.device
        assert isinstance(devices, tuple)
        parts, layout = self.source(node.src[0], how.sources[0], devices), how.result
        sizes = tuple([self.plain[s] for s in node.src[1:]])
        if layout is None:
            return tuple([node.with_src((part, *sizes)) for part in parts])
        if layout == node.src[0].layout:
            return parts
        return tuple([reshaped(part, layout.part_shape(i)) for i, part in enumerate(parts)])

    def _flip(self, node: UOp, how: Plan, devices: tuple[str, ...]) -> Parts:
        """The last part becomes the first."""
        parts = self.source(node.src[0], how.sources[0], devices)
        flipped = [node.with_src((part,)) for part in parts]
        return tuple([on_device(p, d) for p, d in zip(reversed(flipped), devices, strict=True)])

    def _reduce(self, node: UOp, devices: tuple[str, ...]) -> Parts:
        """The parts are reduced where they are, then their results on every device."""
        source = node.src[0]
        # of half floats nothing is rounded before the end, as on one device
        is_narrow = dtypes.is_float(node.dtype) and node.dtype.itemsize < 4
        dtype = dtypes.float32 if is_narrow else node.dtype
        layout = source.layout
        assert layout is not None
        axes = node.arg.axes
        if layout.shape != source.shape:
            axes = tuple(range(len(layout.shape)))
        partial = []
        for number, part in enumerate(self.parts[source]):
            if layout.bounds[number] == layout.bounds[number + 1]:
                continue
            wide = part.cast(dtype)
            reduced = UOp(Ops.REDUCE_AXIS, dtype, (wide,), ReduceArg(node.arg.op, axes))
            partial.append((reshaped(reduced, node.shape), devices[number]))
        if not partial:
            row = OPSET[node.arg.op]
            start = dtype.min if node.arg.op is Ops.MAX else row.identity
            const = UOp.const(dtype, start)
            return tuple([pinned(filled(const, node.shape), d) for d in devices])
        return tuple([part.cast(node.dtype) for part in all_reduce(partial, node.arg.op, devices)])

    def _cat(self, node: UOp, how: Plan, devices: tuple[str, ...]) -> Parts:
        """Along the cut axis: each device gets the pieces of its part."""
        layout = how.result
        assert layout is not None
        result: list[list[UOp]] = [[] for _ in devices]
        start = 0
        for source in node.src:
            size = source.shape[node.arg]
            for number, device in enumerate(devices):
                low, high = layout.part(number)
                first, last = max(low, start) - start, min(high, start + size) - start
                if first < last:
                    result[number] += self._piece(source, node.arg, first, last, device)
            start += size
        empty = [boxed(p, node.arg, 0, 0) for p in self.source(node.src[0], None, devices)]
        return tuple([joined(p or [empty[i]], node.arg) for i, p in enumerate(result)])

    def _piece(self, source: UOp, axis: int, first: int, last: int, device: str) -> list[UOp]:
        """Elements of a source along an axis, on a device."""
        if type(source.device) is not tuple:
            return [boxed(self.plain[source], axis, first, last)]
        layout, places = source.layout, source.device
        if layout is None:
            return [boxed(self.parts[source][places.index(device)], axis, first, last)]
        if layout.shape == source.shape and layout.axis == axis:
            return pieces(self.parts[source], layout, first, last, device)
        return [boxed(self.gathered(source, device), axis, first, last)]

    def _gather_cut(self, node: UOp, devices: tuple[str, ...]) -> Parts:
        """Along the cut axis: each device looks up what it has, and the others' are added, bit by
        bit: all but one are zeros."""
        source = node.src[0]
        layout = source.layout
        assert layout is not None
        indices = [self.source(index, None, devices) for index in node.src[1:]]
        partial = []
        for number, part in enumerate(self.parts[source]):
            start, stop = layout.part(number)
            if start == stop:
                continue
            own = [index[number] for index in indices]
            place = node.arg.index(layout.axis)
            own[place] = local(own[place], layout, start, stop)
            found = UOp(Ops.GATHER, node.dtype, (part, *own), node.arg)
            partial.append((as_bits(found), devices[number]))
        if not partial:
            return tuple([pinned(filled(UOp.const(node.dtype, 0), node.shape), d) for d in devices])
        joined = all_reduce(partial, Ops.ADD, devices)
        return tuple([from_bits(part, node.dtype) for part in joined])

    # ------------------------------------------------------------ writes
    def _after(self, node: UOp) -> Parts:
        state, *effects = node.src
        self.states.pop(state.base, None)
        self.states[node] = None
        parts = list(self.parts[state])
        for effect in effects:
            if effect in self.effects:
                by_part: Sequence[UOp | None] = self.effects[effect]
            else:
                by_part = (self.plain[effect],) * len(parts)
            for number, store in enumerate(by_part):
                if store is not None:
                    parts[number] = parts[number].after(store)
        return tuple(parts)

    def _store(self, node: UOp) -> tuple[UOp | None, ...]:
        place, value, *rest = node.src
        if rest or place not in self.parts:
            raise AssertionError("a write to several devices has a place and a value")
        devices = place.device
        assert isinstance(devices, tuple)
        found = self._places(place, devices)
        if found is None:
            return self._store_apart(node)
        places, layout = found
        values = self.source(value, layout if value.shape else None, devices)
        return tuple(
            [
                None if target is None else node.with_src((target, written))
                for target, written in zip(places, values, strict=True)
            ]
        )

    def _places(
        self, place: UOp, devices: tuple[str, ...]
    ) -> tuple[list[UOp | None], Layout | None] | None:
        """The place of a write in each part, and how its values have to lie; None if one is not in
        memory of its own there."""
        if place.op is Ops.GATHER:
            return self._gather_places(place, devices)
        parts = self.parts[place]
        states = self.parts[_state_of(place)]
        for part, state in zip(parts, states, strict=True):
            if not _is_view_of(part, state):
                return None
        return [None if 0 in part.shape else part for part in parts], place.layout

    def _gather_places(
        self, place: UOp, devices: tuple[str, ...]
    ) -> tuple[list[UOp | None], Layout | None] | None:
        """Every device makes the writes to what it has, in their order."""
        base = place.src[0]
        found = None if base.op is Ops.GATHER else self._places(base, devices)
        layout = base.layout
        if found is None or (layout is not None and layout.shape != base.shape):
            return None
        indices = [self.source(index, None, devices) for index in place.src[1:]]
        is_along = layout is not None and layout.axis in place.arg
        result: list[UOp | None] = []
        for number, part in enumerate(found[0]):
            own = [index[number] for index in indices]
            if is_along:
                assert layout is not None
                axis = place.arg.index(layout.axis)
                own[axis] = local(own[axis], layout, *layout.part(number))
            is_there = part is not None and 0 not in own[0].shape
            result.append(place.with_src((part, *own)) if part is not None and is_there else None)
        if layout is None or is_along:
            return result, None
        kept = [axis for axis in range(len(base.shape)) if axis not in place.arg]
        axis = len(place.src[1].shape) + kept.index(layout.axis)
        return result, Layout(place.shape, axis, layout.bounds)

    def _store_apart(self, node: UOp) -> tuple[UOp | None, ...]:
        """A write through a view that the cut does not follow: made on the first device, from where
        every part gets what it has."""
        place, value = node.src
        state = _state_of(place)
        devices = state.device
        assert isinstance(devices, tuple)
        first = devices[0]
        whole = self.gathered(state, first)
        home = self.new_buffer(first, int(state.size), state.dtype)
        base = reshaped(home, state.shape)
        filled = base.after(base.store(whole))
        own = self.gathered(value, first) if value in self.parts else self.plain[value]
        target = self._rebased(place, state, filled, first)
        changed = base.after(node.with_src((target, own)).replace(tag=None))
        layout = state.layout
        result: list[UOp | None] = []
        for number, part in enumerate(self.parts[state]):
            piece = changed if layout is None else sliced(changed, layout, number)
            wanted = on_device(reshaped(piece, part.shape), devices[number])
            store = UOp(Ops.STORE, dtypes.void, (part, wanted), tag=node.tag)
            result.append(None if 0 in part.shape else store)
        return tuple(result)

    def _rebased(self, place: UOp, state: UOp, base: UOp, device: str) -> UOp:
        """A view of a state as the same view of another base."""
        chain = []
        while place is not state:
            chain.append(place)
            place = place.src[0]
        for node in reversed(chain):
            others = [self._whole_of(s, device) for s in node.src[1:]]
            base = node.with_src((base, *others))
        return base


# ------------------------------------------------------------ places of writes
def _state_of(place: UOp) -> UOp:
    while place.op in GroupOp.Movement or place.op is Ops.GATHER:
        place = place.src[0]
    return place


def _is_view_of(part: UOp, state: UOp) -> bool:
    """Whether a part of a place is a view of that part of the state."""
    storage = storage_of(state)
    while part.op in GroupOp.Movement or part.op is Ops.GATHER:
        part = part.src[0]
    return part.op in (Ops.BUFFER, Ops.AFTER) and storage_of(part) is storage
