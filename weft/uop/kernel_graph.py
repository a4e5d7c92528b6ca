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


def plain_kernel(kernel: UOp) -> UOp:
    """A kernel in weft's form: LOADs and STOREs of elements of parameters by number.

    c[i].store(a[i] * 2).end(i)  ->  STORE(INDEX(c, i), LOAD(INDEX(a, i)) * 2, i)
    s = s[0].set(0); s[0].set(s.after(k)[0] + a[k], end=k)  ->  STORE(INDEX(s, 0), REDUCE(a[k], k))
    """
    if not isinstance(kernel, UOp) or kernel.op is not Ops.SINK:
        return kernel
    effects: list[UOp] = []
    pending = list(reversed(kernel.src))
    while pending:
        effect = pending.pop()
        if effect.op is Ops.SINK:
            pending.extend(reversed(effect.src))
        elif effect.op is Ops.AFTER or effect.op in GroupOp.Movement:
            waits = effect.src[1:] if effect.op is Ops.AFTER else effect.src[:1]
            pending.extend(reversed([u for u in waits if u.op is not Ops.RANGE]))
        else:
            effects.append(effect)
    return kernel.replace(src=tuple([_plain_store(effect) for effect in effects]))


def _plain_store(store: UOp) -> UOp:
    if store.op is not Ops.STORE or store.src[0].op is not Ops.INDEX:
        return store
    memory, index, *valid = _plain_place(store.src[0])
    value, folded = _stored_value(store)
    ranges = [axis for axis in store.src[2:] if axis not in folded]
    place = UOp(Ops.INDEX, memory.dtype, (memory, index, *valid))
    return store.replace(src=(place, value, *ranges))


def _stored_value(store: UOp) -> tuple[UOp, tuple[UOp, ...]]:
    """What a STORE leaves at its place, and those of its ranges that only add up to it."""
    memory, index, *_ = _plain_place(store.src[0])
    value = store.src[1]
    own = [
        u
        for u in value.toposort()
        if u.op is Ops.INDEX
        and _is_same_place(u, memory, index)
        and any(wait in store.src[2:] for wait in _waits(u.src[0]))
    ]
    if not own:
        return _plain_value(value), ()
    folded = tuple([axis for axis in store.src[2:] if axis in _waits(own[0].src[0])])
    op, term = _folded(value, own)
    before = [u for u in _waits(store.src[0].src[0]) if u.op is Ops.STORE]
    before += [u for u in _waits(own[0].src[0]) if u.op is Ops.STORE and u not in before]
    if len(before) != 1 or not _is_same_place(before[0].src[0], memory, index):
        raise ArgumentError(
            "a kernel that adds up in memory first sets where it begins: c = c[i].set(0), then "
            "c[i].set(c.after(k)[i] + a[k], end=k)"
        )
    start, _ = _stored_value(before[0])
    total = _plain_value(term).reduce(op, *folded)
    return start.cast(total.dtype).alu(op, total), folded


def _folded(value: UOp, own: list[UOp]) -> tuple[Ops, UOp]:
    """The op and the new part of `place = place op part`."""
    while value.op is Ops.LOAD:
        value = value.src[0]
    if value.op in (Ops.ADD, Ops.MUL, Ops.MAX):
        for mine, other in (value.src, value.src[::-1]):
            bare = mine.src[0] if mine.op is Ops.LOAD else mine
            if bare in own and not any(u in own for u in other.toposort()):
                return value.op, other
    raise ArgumentError(
        f"a kernel folds into memory with +, * or maximum, found {value.op.name}; use "
        ".reduce(k, arg=Ops.ADD)"
    )


def _plain_value(value: UOp) -> UOp:
    """A value whose reads are LOADs, and which computes what a kernel wrote for itself."""
    done: dict[UOp, UOp] = {}
    for node in value.toposort(gate=lambda u: u.op is not Ops.INDEX):
        if node.op is Ops.INDEX:
            done[node] = _read_place(node)
        elif node.op is Ops.LOAD and node.src[0].op is Ops.INDEX:
            done[node] = done[node.src[0]]
        else:
            src = tuple([done[s] for s in node.src])
            done[node] = node if src == node.src else node.with_src(src)
    return done[value]


def _read_place(place: UOp) -> UOp:
    memory, index, *valid = _plain_place(place)
    for wait in _waits(place.src[0]):
        if wait.op is Ops.STORE and wait.src[0].op is Ops.INDEX:
            if _is_same_place(wait.src[0], memory, index):
                return _stored_value(wait)[0]
            raise ArgumentError(
                "a kernel reads back only the element that it wrote; other kernels read the rest"
            )
    if memory.tag is not None:
        raise ArgumentError("a kernel's own memory is set before it is read: m = m[0].set(0)")
    return UOp(Ops.INDEX, memory.dtype, (memory, index, *valid)).load()


def _is_same_place(place: UOp, memory: UOp, index: UOp) -> bool:
    found, other, *_ = _plain_place(place)
    return found is memory and (other is index or other.simplify() is index.simplify())


def _waits(memory: UOp) -> list[UOp]:
    """What a memory waits for, the last first."""
    found: list[UOp] = []
    while memory.op is Ops.AFTER or memory.op in GroupOp.Movement:
        if memory.op is Ops.AFTER:
            found.extend(memory.src[1:])
        memory = memory.src[0]
    return found


def _plain_place(place: UOp) -> tuple[UOp, ...]:
    """The memory of an INDEX and the number of the element there, through views of it."""
    memory, index, *valid = place.src
    while memory.op is not Ops.PARAM:
        if memory.op is not Ops.AFTER:
            if memory.op not in GroupOp.Movement:
                raise ArgumentError(f"a kernel reads its parameters, found {memory.op.name}")
            index = _below(memory, index)
        memory = memory.src[0]
    # an index may itself be read from memory
    plain = _plain_value(index) if any(u.op is Ops.INDEX for u in index.toposort()) else index
    return memory, plain, *[_plain_value(u) for u in valid]


def _below(view: UOp, number: UOp) -> UOp:
    """The number of an element of a view, in what it is a view of."""
    if view.op is Ops.RESHAPE:
        return number
    below = view.src[0].shape
    parts: list[UOp] = []
    for size in reversed(view.shape):
        parts.append(number % size)
        number = number // size
    parts.reverse()
    arg = view.marg
    if view.op is Ops.PERMUTE:
        parts = [parts[arg.index(axis)] for axis in range(len(below))]
    elif view.op is Ops.SHRINK:
        parts = [part + start for part, (start, _) in zip(parts, arg, strict=True)]
    elif view.op is Ops.EXPAND:
        parts = [
            part.const_like(0) if same_one else part
            for part, same_one in zip(parts, [size == 1 for size in below], strict=True)
        ]
    elif view.op is Ops.FLIP:
        pairs = zip(parts, below, arg, strict=True)
        parts = [size - 1 - part if turned else part for part, size, turned in pairs]
    else:
        raise ArgumentError(f"a kernel reads views of its parameters, not through {view.op.name}")
    number = UOp.const(dtypes.weakint, 0)
    for part, size in zip(parts, below, strict=True):
        number = number * size + part
    return number.simplify()


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
