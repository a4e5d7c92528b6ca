"""Read a kernel back as a tensor graph, so that a kernel somebody wrote can stand in a graph.

In: a kernel, `SINK(STORE(INDEX(PARAM, index), value, RANGE...) ...)`, and the values of its PARAMs.
Out: for each PARAM that is written its STOREs over the whole range of indices, as a graph has them.
Sits above the simplifier and knows nothing of schedules, which will make a kernel of it again: the
same one, or a better one together with what stands around it.
Invariant: a value has an axis for every RANGE of its STORE, of size 1 where it does not depend on
it. Loads read what was there before the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from weft.dtype import dtypes
from weft.errors import ArgumentError
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

_LEAVES = frozenset({Ops.CONST, Ops.VARIABLE, Ops.BIND})


def written_slots(kernel: UOp) -> list[int]:
    """The numbers of the PARAMs that a kernel writes, or an error that says why it is none."""
    if not isinstance(kernel, UOp) or kernel.op is not Ops.SINK or not kernel.src:
        found = kernel.op.name if isinstance(kernel, UOp) else type(kernel).__name__
        raise ArgumentError(f"a kernel is a SINK of STOREs, made with .sink(), found {found}")
    slots: list[int] = []
    for store in kernel.src:
        if store.op is not Ops.STORE or store.src[0].op is not Ops.INDEX:
            raise ArgumentError(
                "a kernel's SINK keeps STOREs to an INDEX, made with p.index(i).store(value, i), "
                f"found {store.op.name}"
            )
        memory = store.src[0].src[0]
        if memory.op is not Ops.PARAM:
            raise ArgumentError(f"a kernel writes to its parameters, found {memory.op.name}")
        open_axes = store.ranges
        if open_axes:
            names = ", ".join(str(axis.arg.number) for axis in open_axes)
            raise ArgumentError(
                f"a STORE ends the ranges it depends on: .store(value, *ranges); {names} stay open"
            )
        slots.append(memory.arg.slot)
    return list(dict.fromkeys(slots))


def run_kernel(
    kernel: UOp, values: Sequence[UOp], as_event: Callable[[UOp], UOp]
) -> dict[int, UOp]:
    """The flat states of the PARAMs that a kernel writes, after it ran over flat values.

    `as_event` tells a write from an equal one that was written down before.
    """
    states: dict[int, UOp] = {}
    for store in kernel.src:
        slot = store.src[0].src[0].arg.slot
        reader = _Reader(store, values)
        index, value = reader.write()
        state = states.get(slot, values[slot])
        place = UOp(Ops.GATHER, state.dtype, (state, index), (0,))
        write = UOp(Ops.STORE, dtypes.void, (place, value.cast(state.dtype)), store.arg)
        states[slot] = state.after(as_event(write))
    return states


class _Reader:
    """The values of one STORE as tensors over all its ranges."""

    def __init__(self, store: UOp, values: Sequence[UOp]) -> None:
        self.store = store
        self.values = values
        self.axes = [u for u in store.toposort() if u.op is Ops.RANGE]
        self.done: dict[UOp, UOp] = {}

    def write(self) -> tuple[UOp, UOp]:
        """The places and the values of the STORE, over its own ranges."""
        for node in self.store.toposort():
            if node.op not in (Ops.PARAM, Ops.INDEX, Ops.STORE):
                self.done[node] = self._read(node)
        place, value, *ranges = self.store.src
        # outermost first, as the STORE has them: that is the order of the writes
        shape = self._shape(ranges)
        order = [self.axes.index(axis) for axis in ranges]
        index = self._expanded(self._position(place), shape)
        written = self._expanded(self.done[value], shape)
        return self._arranged(index, order), self._arranged(written, order)

    def _arranged(self, value: UOp, order: list[int]) -> UOp:
        rest = [axis for axis in range(len(self.axes)) if axis not in order]
        moved = value.permute((*order, *rest))
        return moved.reshape(moved.shape[: len(order)])

    def _shape(self, ranges: Any) -> tuple[Any, ...]:
        return tuple([_size(axis) if axis in ranges else 1 for axis in self.axes])

    def _expanded(self, value: UOp, shape: tuple[Any, ...]) -> UOp:
        if not value.shape:
            value = value.reshape((1,) * len(shape))
        return value.expand(shape)

    def _read(self, node: UOp) -> UOp:
        if node.op in _LEAVES:
            return node
        if node.op is Ops.RANGE:
            count = _size(node)
            source = UOp(Ops.IOTA, dtypes.weakint, (), count)
            if not isinstance(count, int):
                source = UOp(Ops.IOTA, dtypes.weakint, (count,))
            return source.reshape(self._shape((node,)))
        shape = self._shape(node.ranges)
        if node.op is Ops.LOAD:
            place = node.src[0]
            if place.op is not Ops.INDEX or place.src[0].op is not Ops.PARAM:
                raise ArgumentError("a kernel loads from its parameters: p.index(i).load()")
            memory = self.values[place.src[0].arg.slot]
            index = self._expanded(self._position(place), shape)
            return UOp(Ops.GATHER, memory.dtype, (memory, index), (0,))
        if node.op is Ops.REDUCE:
            value, *ranges = node.src
            inner = self._shape({*value.ranges, *ranges})
            numbers = tuple(sorted(self.axes.index(axis) for axis in ranges))
            return self._expanded(self.done[value], inner)._reduce_axis(node.arg, numbers)
        if node.op in GroupOp.Elementwise:
            parts = [self.done[s] for s in node.src]
            parts = [self._expanded(p, shape) if p.shape else p for p in parts]
            return node.with_src(tuple(parts))
        raise ArgumentError(
            f"a kernel is made of RANGE, INDEX, LOAD, STORE, REDUCE and elementwise ops, found "
            f"{node.op.name}"
        )

    def _position(self, place: UOp) -> UOp:
        """The index of a place; outside of the memory where it is not valid."""
        index = self.done[place.src[1]]
        if len(place.src) == 2:
            return index
        valid = self.done[place.src[2]]
        shape = self._shape({*place.src[1].ranges, *place.src[2].ranges})
        outside = UOp.const(index.dtype, self.values[place.src[0].arg.slot].shape[0])
        inside = self._expanded(valid, shape) if valid.shape else valid
        return inside.where(self._expanded(index, shape), outside)


def _size(axis: UOp) -> Any:
    size = axis.src[0]
    return size.arg if size.op is Ops.CONST else size
