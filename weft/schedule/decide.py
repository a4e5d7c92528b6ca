"""Decide, for every value of the graph, whether it is computed inside its consumers or stored.

What comes in: a tensor graph (sources first) and the values that must be stored. What goes out: a
`Decisions`: the kernels (drafts), each with its outputs, and for every reduction inside a kernel
the ranges it runs over.
Where it sits: the heart of the schedule. The graph is walked once, consumers before sources; each
consumer says which elements of its sources it needs (a `Demand`), and a value that has heard from
all its consumers is decided.
The one invariant: a kernel reads only what kernels of smaller position store, so the kernel graph
has no cycle.

The choice weighs memory traffic against repeated work:
- one consumer, or all consumers want the same element: inline;
- a reduction is inlined only where it is computed once per output element of its own (softmax,
  layernorm: its value depends on outer ranges only), where enough rows remain to keep all cores
  busy;
- a reduction with reuse (matmul, convolution) takes only elementwise consumers over exactly its own
  elements;
- a value wanted by several kernels, or at several places, is recomputed if that is cheap and reads
  no more memory, otherwise stored; if one of its consumers computes it over all its elements
  anyway, it becomes a second output there;
- a kernel that has reached its budget of ops or buffers takes nothing more.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from weft.budgets import KERNEL_BUFFERS, KERNEL_OPS, PANEL
from weft.dtype import dtypes
from weft.helpers import prod
from weft.knobs import ALLOW_TF32
from weft.machine import Machines, Target
from weft.schedule.draft import Demand, Draft, volume
from weft.schedule.index import ZERO, Index, Views, as_index, both
from weft.schedule.place import storage_of
from weft.schedule.survey import Survey
from weft.schedule.unpack import Unpacking, unpacking
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# uses in one kernel, each written down: of all of a value, and of a part of it each
MOST_USES, MOST_PARTS = 4, 16
# reads of an element by a reduction with reuse from which on it is padded in memory
PADDED_USES = 64
# ... if the reads are some elements apart
STEPPED_USES = 1.5


Slot = tuple[UOp, UOp]  # stands for (the place a run-time index names, whether it is inside)


@dataclass
class Decisions:
    """The decisions."""

    drafts: list[Draft] = field(default_factory=list)
    stored: dict[UOp, Draft] = field(default_factory=dict)  # value -> the kernel that computes it
    reduce_ranges: dict[tuple[Any, ...], Index] = field(default_factory=dict)
    # the index of a GATHER, and when it is read -> its number
    slot_numbers: dict[tuple[UOp, UOp | None], int] = field(default_factory=dict)
    choices: set[UOp] = field(default_factory=set)  # CATs whose computed pieces are written out
    views: Views = field(default_factory=Views)

    def gather_slots(self, node: UOp, index: Index, valid: UOp | None = None) -> list[Slot]:
        """For each index of a GATHER, nodes that stand for its value until it is built itself.

        They depend on the right ranges and are known to be inside the gathered axis; no rule looks
        into them. They are numbered as they appear: what was scheduled before changes nothing.
        An index read under another condition has another number: it is 0 where that fails.
        """
        places, valid = gather_indices(node, index, valid)
        slots = []
        for axis, source in zip(node.arg, node.src[1:], strict=True):
            number = self.slot_numbers.setdefault((source, valid), len(self.slot_numbers))
            size = as_index(node.src[0].shape[axis])
            place = UOp(Ops.SPECIAL, dtypes.weakint, (size, *places), ("place", number, axis))
            inside = UOp(Ops.SPECIAL, dtypes.bool, (as_index(2), *places), ("inside", number, size))
            slots.append((place, inside))
        return slots


LEAVES = frozenset({Ops.BUFFER, Ops.AFTER, Ops.CONST, Ops.VARIABLE, Ops.BIND, Ops.IOTA})


class Decider:
    """One walk over a graph; the state of the decisions."""

    def __init__(
        self,
        survey: Survey,
        must_store: set[UOp],
        separate: set[UOp],
        device: Any,
        machines: Machines,
    ) -> None:
        self.survey = survey
        self.must_store = must_store
        self.separate = separate  # values that must not ride along in a consumer's kernel
        self.device = device
        self.wanted: frozenset[UOp] = frozenset()  # values that are asked for
        self.machines = machines
        self.plan = Decisions(choices=survey.choices)
        self.demands: dict[UOp, list[Demand]] = {}

    def run(self) -> Decisions:
        """Consumers first."""
        for node in reversed(self.survey.order):
            if node.op is Ops.STORE:
                self._open_store(node)
            elif node in self.must_store:
                self._store(node)
            elif node in self.demands:
                self._decide(node)
        return self.plan

    # ------------------------------------------------------------ outcomes
    def _new_draft(self, root: UOp) -> Draft:
        draft = Draft(root, self.survey.position[root], self._device_of(root))
        self.plan.drafts.append(draft)
        return draft

    def _target(self, draft: Draft) -> Target:
        return self.machines(draft.device)

    def _device_of(self, root: UOp) -> Any:
        if root.device is not None:
            return root.device
        # numbers alone are computed where they are read, if nobody else wants them
        demands = () if root in self.wanted else self.demands.get(root, ())
        return demands[0].draft.device if demands else self.device

    def _open_store(self, node: UOp) -> None:
        """A write into storage is a kernel over the written elements."""
        place, value = node.src[0], node.src[1]
        draft = self._new_draft(node)
        tiles = self.survey.tiles.get(value) if value.shape == place.shape else None
        draft.open(place.shape, tiles)
        draft.outputs.append((node, draft.index))
        draft.buffers.add(storage_of(place))
        self._ask_places(place, draft)
        shape_index = draft.index if value.shape else ()
        self._ask(value, Demand(draft, shape_index, None, frozenset(draft.ranges)))

    def _ask_places(self, place: UOp, draft: Draft) -> None:
        """A STORE through a GATHER needs the run-time indices that say where to write."""
        index = draft.index
        while place.op in GroupOp.Movement or place.op is Ops.GATHER:
            if place.op is Ops.GATHER:
                demand = Demand(draft, index, None, frozenset(draft.ranges))
                for source in place.src[1:]:
                    self._ask(source, self._derived(demand, *gather_indices(place, index, None)))
                index = gather_source_index(place, index, self.plan.gather_slots(place, index))
            else:
                index, _ = self.plan.views.source(place, index)
            place = place.src[0]

    def _store(self, node: UOp) -> None:
        """The value gets a kernel and storage of its own, or becomes a further output of a
        consumer."""
        host = self._host(node)
        if host is not None:
            draft, index = host
            draft.outputs.append((node, index))
            self.plan.stored[node] = draft
            demand = Demand(draft, index, None, frozenset(draft.ranges))
            self._inline(node, [demand])
            return
        draft = self._new_draft(node)
        self.plan.stored[node] = draft
        draft.open(node.shape, self.survey.tiles.get(node))
        draft.outputs.append((node, draft.index))
        if node.op is Ops.COPY:
            # a transfer, not a computation: its source is stored where it is
            return
        self._inline(node, [Demand(draft, draft.index, None, frozenset(draft.ranges))])

    def _host(self, node: UOp) -> tuple[Draft, Index] | None:
        """A consumer that computes every element of `node` anyway, and that all other consumers
        may wait for."""
        demands = self.demands.get(node, ())
        if not demands or node in self.separate or node.op in GroupOp.Movement:
            return None
        if node not in self.must_store and len({id(d.draft) for d in demands}) == 1:
            # stored because its one consumer cannot take it
            return None
        first = min(demands, key=lambda d: d.draft.position)
        draft = first.draft
        if draft.root.op in (Ops.STORE, Ops.COPY) or draft.device != self._device_of(node):
            return None
        if draft.count >= KERNEL_OPS or any(
            d.key != first.key for d in demands if d.draft is draft
        ):
            return None
        axes = [axis for axis in first.index if axis is not ZERO]
        covers = (
            first.valid is None
            # position 0 of a longer axis is one of its elements, not all of them
            and all(
                axis is not ZERO or (isinstance(size, int) and size == 1)
                for axis, size in zip(first.index, node.shape, strict=True)
            )
            and first.loops == frozenset(draft.ranges)
            and len(axes) == len(draft.ranges)
            and frozenset(axes) == first.loops
            # a loop over the first elements of an axis is not one over all of them
            and all(
                axis is ZERO or axis.src[0] is as_index(size)
                for axis, size in zip(first.index, node.shape, strict=True)
            )
        )
        if node.op is Ops.REDUCE_AXIS and not self._may_inline_reduction(node, [first]):
            return None
        return (draft, first.index) if covers else None

    def _inline(self, node: UOp, demands: list[Demand]) -> None:
        """The value is computed where it is used: pass the demands on to its sources."""
        for demand in demands:
            demand.draft.count += 1
            self._pass_on(node, demand)

    def _pass_on(self, node: UOp, demand: Demand) -> None:
        op = node.op
        if op in GroupOp.Movement:
            index, guard = self.plan.views.source(node, demand.index)
            self._ask(
                node.src[0], self._derived(demand, index, self.plan.views.both(demand.valid, guard))
            )
        elif op is Ops.REDUCE_AXIS:
            self._enter_reduction(node, demand)
        elif op is Ops.CAT:
            self._pass_on_cat(node, demand)
        elif op is Ops.GATHER:
            self._pass_on_gather(node, demand)
        else:
            demand = demand.below(op)
            for source in node.src:
                self._ask(source, demand if source.shape else self._derived(demand, (), None))

    def _derived(self, demand: Demand, index: Index, valid: UOp | None) -> Demand:
        return demand.at(index, valid)

    def _pass_on_cat(self, node: UOp, demand: Demand) -> None:
        demand = demand.below(Ops.CAT)
        if is_choice(node, demand.index, self.plan.choices):
            demand.draft.written.add(demand.index[node.arg])
        for source, position, inside in cat_pieces(node, demand.index, self.plan.choices):
            index = (*demand.index[: node.arg], position, *demand.index[node.arg + 1 :])
            self._ask(
                source, self._derived(demand, index, self.plan.views.both(demand.valid, inside))
            )

    def _pass_on_gather(self, node: UOp, demand: Demand) -> None:
        """The indices are wanted as they are; the source at places that stand for what they will
        hold."""
        demand = demand.below(Ops.GATHER)
        for source in node.src[1:]:
            wanted = gather_indices(node, demand.index, demand.valid)
            self._ask(source, self._derived(demand, *wanted))
        slots = self.plan.gather_slots(node, demand.index, demand.valid)
        index = gather_source_index(node, demand.index, slots)
        found = slots[0][1]
        for _, inside in slots[1:]:
            found = found & inside
        self._ask(
            node.src[0], self._derived(demand, index, self.plan.views.both(demand.valid, found))
        )

    def _enter_reduction(self, node: UOp, demand: Demand) -> None:
        source = node.src[0]
        axes = node.arg.axes
        draft = demand.draft
        fresh = draft.new_index(tuple(source.shape[axis] for axis in axes), AxisType.REDUCE)
        index = list(demand.index)
        for axis, position in zip(axes, fresh, strict=True):
            index[axis] = position
        self.plan.reduce_ranges[(node, *demand.key)] = fresh
        depends = demand.depends
        outer = depends if depends <= frozenset(draft.ranges) else demand.loops
        loops = outer | frozenset(axis for axis in fresh if axis is not ZERO)
        heavy = node in self.survey.heavy
        if heavy:
            draft.heavy = True
        draft.reductions.append(depends)
        inside, summed = demand.inside or heavy, node.arg.op is Ops.ADD
        asked = Demand(draft, tuple(index), demand.valid, loops, inside, summed=summed)
        self._ask(source, asked)

    def _ask(self, node: UOp, demand: Demand) -> None:
        if node.op in (Ops.BUFFER, Ops.AFTER):
            demand.draft.buffers.add(storage_of(node))
            return
        if node.op in LEAVES:
            return
        self.demands.setdefault(node, []).append(demand)

    # ------------------------------------------------------------ the choice
    def _decide(self, node: UOp) -> None:
        unique: dict[tuple[Any, ...], Demand] = {d.key: d for d in self.demands[node]}
        demands = list(unique.values())
        if self._may_inline(node, demands):
            how = self._unpacking(node, demands)
            if how is Unpacking.IN_PANELS:
                demands[0].draft.panels.append(node)
            if how is not None:
                demands = [replace(demand, unpacked=True) for demand in demands]
            self._inline(node, demands)
        else:
            self._store(node)

    def _may_inline(self, node: UOp, demands: list[Demand]) -> bool:
        if node.op is Ops.COPY:
            return False
        if (
            any(d.draft.device != self._device_of(node) for d in demands)
            and node.device is not None
        ):
            return False
        if self.survey.constant[node]:
            return True
        for demand in demands:
            draft = demand.draft
            if draft.count >= KERNEL_OPS or len(draft.buffers) >= KERNEL_BUFFERS:
                return False
        if node.op is Ops.REDUCE_AXIS:
            return self._may_inline_reduction(node, demands)
        if node.op is Ops.CAST and self._is_staged(node, demands):
            # what a fragment holds is stored as that
            return True
        if node.op in GroupOp.Movement:
            # a view costs nothing by itself: whatever is below decides
            return node.op is not Ops.PAD or not self._is_worth_padding(node, demands)
        if node in self.survey.padded and self._is_read_apart(node, demands):
            return self._is_staged(node, demands)
        return self._unpacking(node, demands) is not None or self._may_repeat(node, demands)

    def _unpacking(self, node: UOp, demands: list[Demand]) -> Unpacking | None:
        """How a product computes its operand out of less memory than that would take, if it
        does."""
        if not all(demand.inside for demand in demands):
            return None
        is_part = node.op in GroupOp.Elementwise or node.op is Ops.GATHER
        if is_part and all(demand.unpacked for demand in demands):
            # of an operand that is unpacked already: signs and codes out of one word
            return Unpacking.IN_TILE
        if len(demands) != 1 or node.op not in GroupOp.Elementwise:
            return None
        demand = demands[0]
        if demand.summed:
            # the terms themselves are no operand
            return None
        uses = self._evaluations(node, demand) // max(1, self.survey.elements[node])
        return unpacking(self.survey, node, demand, uses, self._target(demand.draft))

    def _is_worth_padding(self, node: UOp, demands: list[Demand]) -> bool:
        """Whether reductions with reuse read every element so often that zeros in memory cost less
        than asking, each time, whether there is an element."""
        if self._is_staged(node, demands):
            return False
        if self._is_read_apart(node, demands):
            return True
        if not all(d.inside for d in demands):
            return False
        uses = sum(volume(d.loops) for d in demands)
        if uses < PADDED_USES * self.survey.elements[node]:
            return False
        return all(self.plan.views.source(node, d.index)[1] is not None for d in demands)

    def _is_staged(self, node: UOp, demands: list[Demand]) -> bool:
        """Whether products of fragments read it: they stage tiles of their operands, and ask once
        for each tile whether there is an element."""
        if not all(d.inside and not d.summed for d in demands):
            return False
        held = [
            {f.a_dtype for f in self._target(d.draft).fragments if f.exact or ALLOW_TF32}
            for d in demands
        ]
        source = node
        while source.op in GroupOp.Movement or source.op is Ops.CAST:
            source = source.src[0]
            if all([source.dtype in some for some in held]):
                return True
        return False

    def _is_read_apart(self, node: UOp, demands: list[Demand]) -> bool:
        """Whether windows with steps read what has holes: lanes that stand apart in memory and may
        be missing are read one by one, unless the zeros are there."""
        # in a reduction, with steps along the rows
        stepped = [
            d
            for d in demands
            if node.shape and not d.loops <= frozenset(d.draft.ranges) and _has_steps(d.index[-1])
        ]
        uses = sum(volume(d.loops) for d in stepped)
        return bool(stepped) and uses >= STEPPED_USES * self.survey.elements[node]

    def _may_inline_reduction(self, node: UOp, demands: list[Demand]) -> bool:
        if len(demands) != 1:
            return False
        demand = demands[0]
        draft = demand.draft
        outer = frozenset(draft.ranges)
        depends = demand.depends
        heavy = node in self.survey.heavy
        own = prod(int(s) if isinstance(s, int) else int(s.vmax) for s in node.shape)
        evaluations = volume(depends) if depends <= outer else volume(demand.loops)
        if evaluations > own or demand.inside:
            return False
        if any(not (a <= depends or depends <= a) for a in draft.reductions):
            return False
        if heavy:
            # its tile is made for loops over its own axes, not for digits of others
            whole = all(not _has_digits(position) for position in demand.index)
            return not draft.reductions and depends == outer and whole
        if draft.heavy:
            return False
        points = self.survey.elements[node.src[0]]
        target = self._target(draft)
        if points <= 2 * target.launch_elements or depends == outer:
            return True
        if _tears_rows(draft.ranges, depends, target.half_line):
            return False
        # a panel of rows: with fewer, a launch more costs less than idle cores, on any machine
        return volume(depends & outer) >= PANEL

    def _evaluations(self, node: UOp, demand: Demand) -> int:
        """How often one use computes the value: hoisting takes it out of loops it does not depend
        on."""
        depends, ranges = demand.depends, demand.draft.ranges
        if demand.loops <= frozenset(ranges):
            if self.survey.reduces[node]:
                # the axes a reduction depends on are put outermost
                return volume(depends)
            innermost = max((ranges.index(axis) for axis in depends), default=-1)
            written = demand.draft.written - depends
            return volume(tuple([a for a in ranges[: innermost + 1] if a not in written]))
        if depends <= frozenset(ranges):
            return volume(depends)
        # the axes of a reduction are inside of those around it, in their order
        loops = sorted(demand.loops, key=lambda axis: axis.arg.number)
        innermost = max((loops.index(axis) for axis in depends if axis in loops), default=-1)
        return volume(tuple(loops[: innermost + 1]))

    def _may_repeat(self, node: UOp, demands: list[Demand]) -> bool:
        survey = self.survey
        cost, elements = survey.cost[node], survey.elements[node]
        work = sum(self._evaluations(node, d) for d in demands)
        # twice is no more than storing and reading it
        is_repeated = work > 2 * elements
        if is_repeated and any(d.inside for d in demands) and survey.own_cost(node) > 0:
            # each element would be computed once per use in the tile: keep only what memory
            # traffic pays for
            if survey.read_bytes[node] * 2 > elements * node.dtype.itemsize:
                return False
        kernels = len({id(d.draft) for d in demands})
        own, reads = elements * node.dtype.itemsize, survey.read_bytes[node]
        # its line is fetched, written, and read again; what is narrow is packed and unpacked too
        stored = 3 * max(own, 4 * elements) * self._target(demands[0].draft).balance
        if kernels == 1:
            # several uses may each be of a part of it
            repeats = max(1, work // max(1, elements))
            if len(demands) == 1 and repeats <= 2:
                return True
            most = MOST_USES if repeats > 1 else MOST_PARTS
            return cost * (repeats - 1) * elements <= stored and len(demands) <= most
        # a reduction below is then stored for all of them
        is_less = reads * kernels <= reads + own + own * kernels
        return is_less and cost * work / kernels <= stored / 4


def _tears_rows(ranges: tuple[UOp, ...], first: frozenset[UOp], least: int) -> bool:
    """Whether loops with these axes outermost would leave no row to be written in one go.

    y[i, r, j, s] with sums of (i, j): what is left inside are r and s, of which s is short.
    """
    last = max((place for place, axis in enumerate(ranges) if axis in first), default=-1)
    is_in_order = all([axis in first for axis in ranges[: last + 1]])
    return not is_in_order and volume(ranges[last + 1 :]) < least


def _has_steps(position: UOp) -> bool:
    """Whether it moves by more than one element when some range moves by one."""
    return any(
        node.op is Ops.MUL and node.src[0].op is Ops.RANGE and node.src[1].op is Ops.CONST
        for node in position.toposort()
    )


def _has_digits(position: UOp) -> bool:
    return any(node.op in (Ops.IDIV, Ops.MOD) for node in position.toposort())


def gather_indices(node: UOp, index: Index, valid: UOp | None) -> tuple[Index, UOp | None]:
    """Which element of every index tensor is wanted, and when: a single one is always there."""
    count = len(node.src[1].shape)
    return index[:count], valid if count else None


def gather_source_index(node: UOp, index: Index, slots: list[Slot]) -> Index:
    """The gathered source's element: run-time places on the gathered axes, the rest as asked."""
    rest = iter(index[len(node.src[1].shape) :])
    named = {axis: slot[0] for axis, slot in zip(node.arg, slots, strict=True)}
    return tuple(
        named[axis] if axis in named else next(rest) for axis in range(len(node.src[0].shape))
    )


def is_choice(node: UOp, index: Index, choices: set[UOp]) -> bool:
    """Whether a range of its own chooses between the computed pieces of a CAT."""
    position = index[node.arg]
    return node in choices and position.op is Ops.RANGE and position.arg.kind is AxisType.LOOP


def cat_pieces(node: UOp, index: Index, choices: set[UOp]) -> list[tuple[UOp, UOp, UOp | None]]:
    """CAT: for each source, the position inside it and the condition that the element is there.

    Pieces that are written out side by side share what they have in common: none has a condition.
    """
    if is_choice(node, index, choices):
        return [(source, ZERO, None) for source in node.src]
    position = index[node.arg]
    start: Any = 0
    pieces: list[tuple[UOp, UOp, UOp | None]] = []
    for source in node.src:
        size = source.shape[node.arg]
        if isinstance(size, int) and size == 0:
            continue
        stop = start + size
        inside: UOp | None = None
        if not (isinstance(start, int) and start <= position.vmin):
            inside = position >= start
        if not (isinstance(stop, int) and position.vmax < stop):
            inside = both(inside, position < stop)
        inner = position if isinstance(start, int) and start == 0 else (position - start).simplify()
        pieces.append((source, inner, inside))
        start = stop
    return pieces
