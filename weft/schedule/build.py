"""Build each kernel's expression from the decisions.

What comes in: the plan of `decide`. What goes out: for every draft a kernel over BUFFERs,
`SINK(STORE(INDEX, value, RANGE...) ...)`, and which states of which storages it reads.
Where it sits: after decide, before order. Parameters are numbered later, when it is clear which
kernels merge.
The one invariant: the same (value, element, condition) inside a kernel is built once.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from weft.dtype import dtypes
from weft.schedule.decide import Decisions, Slot, cat_pieces, gather_indices, gather_source_index
from weft.schedule.draft import Draft
from weft.schedule.index import ZERO, Index, needed_guard
from weft.schedule.place import order_of, storage_of
from weft.uop.args import Unordered, combines_with
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

Wanted = tuple[UOp, Index, UOp | None]


@dataclass(eq=False)
class Built:
    """A kernel before its parameters are numbered."""

    draft: Draft
    stores: list[UOp]
    reads: dict[UOp, None] = field(default_factory=dict)  # states it loads from: BUFFER or AFTER
    overwrites: dict[UOp, None] = field(default_factory=dict)  # states it writes over
    waits: dict[UOp, None] = field(default_factory=dict)  # stored values it reads
    writes: list[UOp] = field(default_factory=list)  # its outputs: stored values and STOREs


class Builder:
    """Builds the expressions of one draft."""

    def __init__(self, plan: Decisions, homes: dict[UOp, UOp], draft: Draft) -> None:
        self.plan = plan
        self.views = plan.views
        self.homes = homes  # stored value -> its BUFFER
        self.draft = draft
        self.done: dict[Wanted, UOp] = {}
        self.slots: dict[UOp, UOp] = {}
        self.built = Built(draft, [])

    def run(self) -> Built:
        """All outputs of the draft."""
        draft = self.draft
        for node, index in draft.outputs:
            self.built.writes.append(node)
            if node.op is Ops.STORE:
                place, value = node.src[0], node.src[1]
                target = self._place(place, index)
                result = self._value((value, index if value.shape else (), None))
                combine = combines_with(node.arg)
                if combine is not None and not isinstance(node.arg, Unordered):
                    result = target.load().alu(combine, result.cast(target.dtype))
            else:
                target = self.homes[node].index(self.views.flatten(index, node.shape))
                result = self._value((node, index, None))
            if self.slots:
                result, target = self._resolve_slots(result), self._resolve_slots(target)
            result = result.cast(target.dtype)
            store = target.store(result, *draft.ranges)
            if node.op is Ops.STORE:
                if isinstance(node.arg, Unordered):
                    store = store.replace(arg=node.arg)
                store = store.rtag(order_of(node, store))
            self.built.stores.append(store)
        return self.built

    def _place(self, place: UOp, index: Index) -> UOp:
        """Where a STORE writes: the element of the storage behind its view."""
        node = place
        valid: UOp | None = None
        while node.op in GroupOp.Movement or node.op is Ops.GATHER:
            if node.op is Ops.GATHER:
                slots = self.plan.gather_slots(node, index)
                needs = self._gather_needs(node, index, None)[:-1]
                found = self._fill_slots(node, slots, [self._value(wanted) for wanted in needs])
                valid = self.views.both(valid, found)
                index = gather_source_index(node, index, slots)
            else:
                index, guard = self.views.source(node, index)
                assert guard is None, "a PAD cannot be written through"
            node = node.src[0]
        self.built.overwrites.setdefault(node, None)
        return storage_of(node).index(index[0], valid)

    def _resolve_slots(self, value: UOp) -> UOp:
        """Put the real run-time indices where `gather_slots` left stand-ins (they may nest)."""
        for _ in range(1 + len(self.slots)):
            found = {u: self.slots[u] for u in value.toposort() if u in self.slots}
            if not found:
                return value
            value = value.substitute(found)
        raise AssertionError("run-time indices nest too deeply")

    # ------------------------------------------------------------ values
    def _value(self, root: Wanted) -> UOp:
        stack: list[tuple[Wanted, list[Wanted] | None]] = [(root, None)]
        done = self.done
        while stack:
            wanted, needs = stack.pop()
            if wanted in done:
                continue
            if needs is None:
                needs = self._needs(wanted)
                missing = [n for n in needs if n not in done]
                if missing:
                    stack.append((wanted, needs))
                    stack.extend((n, None) for n in reversed(missing))
                    continue
            done[wanted] = self._make(wanted, [done[n] for n in needs])
        return done[root]

    def _is_stored(self, node: UOp) -> bool:
        """Read from memory here? A value that this very kernel stores is at hand."""
        home = self.plan.stored.get(node)
        return home is not None and home is not self.draft

    def _needs(self, wanted: Wanted) -> list[Wanted]:
        node, index, valid = wanted
        op = node.op
        if op in (Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.IOTA, Ops.BUFFER, Ops.AFTER):
            return []
        if self._is_stored(node):
            return []
        if op in GroupOp.Movement:
            inner, guard = self.views.source(node, index)
            return [(node.src[0], inner, self.views.both(valid, guard))]
        if op is Ops.REDUCE_AXIS:
            ranges = self.plan.reduce_ranges[(node, id(self.draft), index, valid)]
            inner_index = list(index)
            for axis, position in zip(node.arg.axes, ranges, strict=True):
                inner_index[axis] = position
            return [(node.src[0], tuple(inner_index), valid)]
        if op is Ops.CAT:
            return [
                (s, (*index[: node.arg], p, *index[node.arg + 1 :]), self.views.both(valid, inside))
                for s, p, inside in cat_pieces(node, index, self.plan.choices)
            ]
        if op is Ops.GATHER:
            return self._gather_needs(node, index, valid)
        return [(s, index, valid) if s.shape else (s, (), None) for s in node.src]

    def _gather_needs(self, node: UOp, index: Index, valid: UOp | None) -> list[Wanted]:
        slots = self.plan.gather_slots(node, index, valid)
        found = slots[0][1]
        for _, inside in slots[1:]:
            found = found & inside
        inner = gather_source_index(node, index, slots)
        indices: list[Wanted] = [(s, *gather_indices(node, index, valid)) for s in node.src[1:]]
        return [*indices, (node.src[0], inner, self.views.both(valid, found))]

    def _make(self, wanted: Wanted, values: list[UOp]) -> UOp:
        node, index, valid = wanted
        op = node.op
        if op in (Ops.CONST, Ops.VARIABLE):
            return node
        if op is Ops.BIND:
            return node.src[0]
        if op is Ops.IOTA:
            return index[0].cast(node.dtype)
        if op in (Ops.BUFFER, Ops.AFTER):
            return self._load_state(node, index, valid)
        if self._is_stored(node):
            self.built.waits.setdefault(node, None)
            return self._load(self.homes[node], self.views.flatten(index, node.shape), valid)
        if op is Ops.PAD:
            _, guard = self.views.source(node, index)
            return values[0] if guard is None else guard.where(values[0], 0)
        if op in GroupOp.Movement or op in (Ops.CONTIGUOUS, Ops.DETACH, Ops.CONTIGUOUS_BACKWARD):
            return values[0]
        if op is Ops.REDUCE_AXIS:
            ranges = self.plan.reduce_ranges[(node, id(self.draft), index, valid)]
            axes = [axis for axis in ranges if axis is not ZERO]
            return values[0].reduce(node.arg.op, *axes) if axes else values[0]
        if op is Ops.CAT:
            return self._choose_piece(node, index, values)
        if op is Ops.GATHER:
            return self._gather(wanted, values)
        return node.with_src(tuple(values))

    def _load_state(self, node: UOp, index: Index, valid: UOp | None) -> UOp:
        self.built.reads.setdefault(node, None)
        return self._load(storage_of(node), index[0], valid)

    def _load(self, memory: UOp, index: UOp, valid: UOp | None) -> UOp:
        return memory.index(index, needed_guard(index, valid, memory.arg.size)).load()

    def _choose_piece(self, node: UOp, index: Index, values: list[UOp]) -> UOp:
        """Which piece the element is in; what is in none of the earlier ones is in the last."""
        position = index[node.arg]
        stop: Any = 0
        stops: list[Any] = []
        for source, _, _ in cat_pieces(node, index, self.plan.choices):
            stop = stop + source.shape[node.arg]
            stops.append(stop)
        # a balanced tree of choices, not a chain
        level = list(zip(values, stops, strict=True))
        while len(level) > 1:
            paired = [
                ((position < left[1]).where(left[0], right[0]), right[1])
                for left, right in zip(level[0::2], level[1::2], strict=False)
            ]
            level = paired if len(level) % 2 == 0 else [*paired, level[-1]]
        return level[0][0]

    def _gather(self, wanted: Wanted, values: list[UOp]) -> UOp:
        """Negative indices wrap once; what is outside reads 0."""
        found = self._fill_slots(wanted[0], self.plan.gather_slots(*wanted), values[:-1])
        return found.where(values[-1], 0)

    def _fill_slots(self, node: UOp, slots: list[Slot], values: list[UOp]) -> UOp:
        """Remember what the stand-ins stand for; the condition that all indices are inside."""
        found: UOp | None = None
        for (place, inside), value, axis in zip(slots, values, node.arg, strict=True):
            size = node.src[0].shape[axis]
            position = _as_position(value)
            wrapped = position
            if position.vmin < 0:
                wrapped = (position < 0).where(position + size, position)
            ok = (wrapped >= 0) & (wrapped < size) if position.vmin < 0 else wrapped < size
            self.slots[place], self.slots[inside] = wrapped, ok
            found = ok if found is None else found & ok
        assert found is not None
        return found


def _as_position(value: UOp) -> UOp:
    """A run-time index as one of an axis: what no machine int holds is outside, not negative."""
    most = dtypes.int64.max
    fits = value.vmax <= most
    return (value if fits else value.minimum(value.const_like(most))).cast(dtypes.weakint)
