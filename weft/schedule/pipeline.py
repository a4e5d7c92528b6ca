"""The schedule: a tensor graph becomes an ordered list of kernels and the storages they use.

What comes in: `SINK(values...)` over canonical BUFFERs (negative numbers) with variables unbound.
What goes out: a `Schedule`. Sits between Tensor and codegen; its driver and cache are in
engine/schedule.py.
The one invariant: the passes depend on structure only, so equal graphs have equal schedules.
`SPEC=2` verifies the graph after each rewrite, and that every access of every kernel is inside its
memory.

    lay out -> prepare -> separate states -> survey -> decide -> build -> stage rows
    -> chain products -> stage panels -> limit -> merge -> order -> number parameters
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any

from weft.knobs import SPEC
from weft.machine import Machines, generic
from weft.schedule.build import Builder, Built
from weft.schedule.chain_products import chain_products, shared_rows
from weft.schedule.decide import Decider, Decisions
from weft.schedule.hazards import keep_apart, keep_state, separate_states
from weft.schedule.lay_out import lay_out
from weft.schedule.limit import Wide, cut_wide_kernels, split_wide_joins
from weft.schedule.merge import in_place_conflict, join_nests, merge_kernels
from weft.schedule.order import CycleError, all_dependencies, order_kernels, torn_state
from weft.schedule.order_writes import order_writes
from weft.schedule.parameters import Argument, number_parameters
from weft.schedule.parts import separate_numbers, shaped
from weft.schedule.place import is_whole_storage, storage_of
from weft.schedule.prepare import PrepareContext, prepare
from weft.schedule.shard import Spread, lower_shards, own_parts
from weft.schedule.stage_panels import stage_panels
from weft.schedule.stage_rows import stage_rows
from weft.schedule.survey import Survey, max_elements
from weft.uop.args import BufferArg
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.passes import Pass
from weft.uop.prove import verify_pass
from weft.uop.rewrite import graph_rewrite
from weft.uop.spec import kernel_spec, tensor_spec


@dataclass(frozen=True)
class ScheduleItem:
    """One step: a kernel over arguments, or (kernel None) a transfer from the second to the
    first."""

    kernel: UOp | None
    arguments: tuple[Argument, ...]
    device: Any
    origin: tuple[str, int] | None = None

    @property
    def ast(self) -> UOp | None:
        """The kernel, under the name that tinygrad's users know."""
        return self.kernel

    def __repr__(self) -> str:
        name = "copy" if self.kernel is None else self.kernel.arg.name
        where = f", from {self.origin[0]}:{self.origin[1]}" if self.origin else ""
        return f"<{name} on {self.device}, {len(self.arguments)} buffers{where}>"


@dataclass
class Schedule:
    """Steps in order; where each value asked for ends up; the storages made on the way."""

    items: list[ScheduleItem] = field(default_factory=list)
    # BUFFER of each value (None: no elements), or those of its parts
    results: list[Any] = field(default_factory=list)
    overwritten: list[UOp] = field(default_factory=list)  # BUFFERs that STOREs of the graph write
    tables: dict[UOp, bytes] = field(default_factory=dict)  # BUFFERs that come with contents
    executed: list[int] = field(default_factory=list)  # the numbers in the tags of these STOREs
    first_write: int = 0  # the first item that does one of them


@dataclass(frozen=True)
class Torn:
    """A state that is read by what has to come after the write that destroys it."""

    state: UOp


@dataclass(frozen=True)
class Crowded:
    """Values that cannot be unpacked panel by panel, as their kernels stage something else."""

    values: set[UOp]


def _prepare(sink: UOp, context: PrepareContext) -> UOp:
    plain = graph_rewrite(sink, prepare, ctx=context, name="prepare")
    pairs = zip(sink.src, plain.src, strict=True)
    values = [_at_home(before, _own_storage(before, after), context) for before, after in pairs]
    if context.spreads:
        values = own_parts(values, context.spreads, context.new_buffer)
    return separate_numbers(UOp.sink(*values), context.device)


# from tensor graph to tensor graph, before its values are decided about
GRAPH_PASSES = (
    Pass(
        "order writes",
        lambda sink, context: order_writes(sink, context.machines, context.new_buffer),
        "before prepare, which plans the sums and the storage that this makes",
        tensor_spec,
        False,
    ),
    Pass(
        "lay out",
        lambda sink, context: lay_out(sink, context.machines),
        "before prepare, which splits long sums: products are whole",
        tensor_spec,
        False,
    ),
    Pass("prepare", _prepare, "wishes and conveniences become plain graph", tensor_spec, False),
    Pass(
        "separate states",
        lambda sink, context: separate_states(sink),
        "what a write would destroy is kept first",
        tensor_spec,
        False,
    ),
)


def make_schedule(
    sink: UOp, next_number: int, device: Any, machines: Machines = generic
) -> Schedule:
    """All passes. Repeated only when an in-place write turns out to need a value kept apart, or a
    kernel to have more buffers than its device takes."""
    context = PrepareContext(next_number, device, machines)
    lowered = lower_shards(sink, context.new_buffer)
    if lowered is not None:
        sink, context.spreads = lowered
        schedule = _make_schedule(sink, context)
        schedule.results = _spread_results(schedule.results, context.spreads)
        return schedule
    return _make_schedule(sink, context)


@dataclass(frozen=True)
class SpreadResult:
    """The BUFFERs of the parts of a value, None for parts without elements."""

    parts: tuple[UOp | None, ...]
    spread: Spread


def _spread_results(results: list[Any], spreads: list[Spread | None]) -> list[Any]:
    found = iter(results)
    return [
        next(found)
        if spread is None
        else SpreadResult(tuple(islice(found, len(spread.devices))), spread)
        for spread in spreads
    ]


def _make_schedule(sink: UOp, context: PrepareContext) -> Schedule:
    placed = [node for node in sink.toposort() if node.op in (Ops.BUFFER, Ops.COPY)]
    context.is_mixed = len({node.device for node in placed}) > 1
    for step in GRAPH_PASSES:
        sink = step(sink, context)
    alone: set[UOp] = set()
    kept: set[UOp] = set()
    is_cut = True
    # each round keeps at least one value more apart
    for _ in range(2 * len(sink.toposort())):
        attempt = _attempt(sink, context, alone, kept, is_cut)
        if isinstance(attempt, Schedule):
            attempt.tables = context.tables
            return attempt
        if isinstance(attempt, Wide):
            narrow = split_wide_joins(sink, attempt.most)
            if narrow is sink and attempt.values <= kept:
                # nothing is left to cut: its renderer will refuse it
                is_cut = False
            elif narrow is sink:
                kept.update(attempt.values)
                alone.update(attempt.values)
            sink = narrow
            continue
        if isinstance(attempt, Crowded):
            kept.update(attempt.values)
            alone.update(attempt.values)
            continue
        if isinstance(attempt, Torn):
            sink = keep_state(sink, attempt.state)
            continue
        stores = {node for node in attempt if node.op is Ops.STORE}
        alone.update(node for node in attempt if node not in stores)
        sink = _keep_values(sink, stores) if stores else sink
    raise AssertionError("the writes of this graph cannot be ordered")


def _attempt(
    sink: UOp, context: PrepareContext, alone: set[UOp], kept: set[UOp], is_cut: bool
) -> Schedule | Wide | Torn | Crowded | list[UOp]:
    """A schedule, or the STOREs whose values have to be stored apart first, or values that have to
    be stored by kernels of their own, or a state of which a copy has to be read."""
    wanted = [_plain(value) for value in sink.src]
    order = sink.toposort()
    separate = {node for node in order if node.op in (Ops.CONTIGUOUS, Ops.COPY)}
    must_store = separate | kept | {v for v in wanted if not _is_state(v)}
    must_store = {v for v in must_store if 0 not in v.shape}
    machines = context.machines
    survey = Survey(sink, must_store, machines(context.device))
    survey.order = [n for n in survey.order if not _writes_nothing(n)]
    rows = shared_rows(survey, machines(context.device))
    must_store |= rows
    decider = Decider(survey, must_store, separate | alone | rows, context.device, machines)
    decider.wanted = frozenset(wanted)
    plan = decider.run()
    number = context.next_number
    homes: dict[UOp, UOp] = {}
    for node, draft in plan.stored.items():
        number -= 1
        arg = BufferArg(number, max_elements(node.shape), draft.device)
        homes[node] = UOp(Ops.BUFFER, node.dtype, (), arg)
    built = _build_all(plan, homes)
    kernels = stage_rows(built, homes, must_store, machines)
    kernels = chain_products(kernels, must_store, machines)
    kernels = stage_panels(kernels, homes, must_store, machines)
    if crowded := _crowded_panels(built, kernels):
        return crowded
    wide = cut_wide_kernels(kernels, plan, machines) if is_cut else None
    if wide is not None:
        return wide
    conflicts = [
        kernel.draft.root
        for kernel in kernels
        if kernel.draft.root.op is Ops.STORE and in_place_conflict(kernel.stores)
    ]
    if conflicts:
        return conflicts
    try:
        merged = join_nests(merge_kernels(kernels, machines), machines)
        ordered = order_kernels(merged, all_dependencies(merged))
    except CycleError as cycle:
        riders = [
            node
            for kernel in cycle.stuck
            for node in kernel.writes
            if node.op is not Ops.STORE and node is not kernel.draft.root and node not in alone
        ]
        if riders:
            return riders
        stuck = [k.draft.root for k in cycle.stuck if k.draft.root.op is Ops.STORE]
        loose = next((root for root in stuck if root.src[1].op is not Ops.CONTIGUOUS), None)
        if loose is not None:
            return [loose]
        state = torn_state(kernels, cycle.stuck)
        assert state is not None, "the writes of this graph cannot be ordered"
        return Torn(state)
    return _finish(wanted, ordered, homes)


def _crowded_panels(before: list[Built], after: list[Built]) -> Crowded | None:
    """The values of panels whose kernels became parts of others, that stage rows themselves."""
    left = {id(kernel.draft) for kernel in after}
    values = {value for k in before if id(k.draft) not in left for value in k.draft.panels}
    return Crowded(values) if values else None


def _keep_values(sink: UOp, stores: set[UOp]) -> UOp:
    """What these STOREs write is stored apart first. One may be inside another: sources first."""
    done: dict[UOp, UOp] = {}
    for node in sink.toposort():
        src = tuple([done[s] for s in node.src])
        if node in stores:
            src = (src[0], keep_apart(src[1]), *src[2:])
        done[node] = node if src == node.src else node.with_src(src)
    return done[sink]


def _own_storage(before: UOp, after: UOp) -> UOp:
    """A value that simplified to somebody's storage (t * 1) is copied: it must not share that."""
    if is_whole_storage(after) and not is_whole_storage(before):
        return keep_apart(after)
    return after


def _at_home(before: UOp, after: UOp, context: PrepareContext) -> UOp:
    """Numbers that shall be on another device than those without one are computed: stored there."""
    home = before.device
    if after.device is not None or home is None or home == context.device or 0 in after.shape:
        return after
    base = shaped(context.new_buffer(home, max_elements(after.shape), after.dtype), after.shape)
    return base.after(base.store(after))


def _plain(value: UOp) -> UOp:
    """A view that only reshapes is stored as what it reshapes."""
    node = value
    while node.op is Ops.RESHAPE and all(isinstance(s, int) for s in node.src[0].shape):
        node = node.src[0]
    return node


def _is_state(node: UOp) -> bool:
    return node.op in (Ops.BUFFER, Ops.AFTER)


def _writes_nothing(node: UOp) -> bool:
    return node.op is Ops.STORE and 0 in node.src[0].shape


def _build_all(plan: Decisions, homes: dict[UOp, UOp]) -> list[Built]:
    kernels = []
    for draft in sorted(plan.drafts, key=lambda d: d.position):
        if draft.root.op is not Ops.COPY:
            kernels.append(Builder(plan, homes, draft).run())
            continue
        built = Built(draft, [], writes=[draft.root])
        source = _plain(draft.root.src[0])
        if _is_state(source):
            built.reads[source] = None
        else:
            built.waits[source] = None
        kernels.append(built)
    return kernels


def _origin_of(root: UOp) -> tuple[str, int] | None:
    """The user's line that made what a kernel writes, or of what that is made from: writes and
    what rewrites put together have no line of their own."""
    near: dict[UOp, None] = {root: None}
    queue = [root]
    for node in queue:
        if node.origin is not None:
            return node.origin
        # what is written says more than where to
        sources = (*node.src[1:], *node.src[:1]) if node.op is Ops.STORE else node.src
        for source in sources:
            if source not in near:
                near[source] = None
                queue.append(source)
    return None


def _finish(wanted: list[UOp], ordered: list[Built], homes: dict[UOp, UOp]) -> Schedule:
    schedule = Schedule()
    for kernel in ordered:
        root, device = kernel.draft.root, kernel.draft.device
        if kernel.stores:
            ast, arguments = number_parameters(kernel.stores)
            if SPEC >= 2:
                verify_pass(ast, kernel_spec, "schedule", partial(number_parameters, kernel.stores))
            ast.origin = _origin_of(root)
            schedule.items.append(ScheduleItem(ast, arguments, device, ast.origin))
        else:
            source = _plain(root.src[0])
            memory = storage_of(source) if _is_state(source) else homes[source]
            pair = (
                Argument(homes[root], 0, homes[root].arg.size),
                Argument(memory, 0, memory.arg.size),
            )
            schedule.items.append(ScheduleItem(None, pair, device, _origin_of(root)))
    for value in wanted:
        if _is_state(value):
            schedule.results.append(storage_of(value))
        else:
            schedule.results.append(homes.get(value))
    written: dict[UOp, None] = {}
    for number, kernel in enumerate(ordered):
        for node in kernel.writes:
            if node.op is Ops.STORE:
                if not written:
                    schedule.first_write = number
                written.setdefault(storage_of(node.src[0]))
                if isinstance(node.tag, tuple):
                    schedule.executed.append(node.tag[1])
    schedule.overwritten = list(written)
    return schedule
