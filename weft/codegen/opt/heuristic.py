"""Heuristic: which actions make a kernel fast on a target, with no flags and in a few milliseconds.

In: a kernel AST and the target's facts. Out: the kernel with its axes split, typed and staged;
the actions are recorded in its KernelInfo. Sits above actions and cost model; codegen's pipeline
calls `optimise`.
Invariant: everything is done by actions, each legal by itself, so a poor choice costs time and
never a wrong result.

A kernel is a few nests, a nest a few bodies (its reductions, its stores). For each body the lanes
come from the axis that makes its accesses neighbours in memory, the copies in registers from the
tile search, threads from the outermost axes that all bodies share.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from weft.codegen.opt.actions import apply_legal, apply_opt, can_merge, uses_of_axes
from weft.codegen.opt.axes import closed_axes, size_of
from weft.codegen.opt.choices import MOST_CHOICES, choice_opts
from weft.codegen.opt.chosen import chosen_kernel
from weft.codegen.opt.gpu import optimise_groups
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.outline import Outline
from weft.codegen.opt.stage import SCRATCH_BYTES
from weft.codegen.opt.streams import sweep_opts
from weft.codegen.opt.strides import Strides
from weft.codegen.opt.survey import (
    WEIGHTS,
    Body,
    Choice,
    Item,
    Nest,
    extent,
    nests_of,
    volume,
)
from weft.codegen.opt.tile import (
    EXPANDED_OPS,
    LATENCY,
    LEAST_REUSE,
    MOST_SUMS,
    PACKED_REUSE,
    Tile,
    best_tile,
    lanes_of,
    overlaps,
    panel_bytes,
    plain_tile,
)
from weft.codegen.opt.turn import turn_opts
from weft.codegen.opt.windows import WINDOW_OPS, WRITTEN_OUT, fitting_tile, is_window
from weft.dtype import dtypes
from weft.helpers import prod
from weft.renderer.base import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

# instructions below which waking another core costs more than it saves
PARALLEL_WORK = 1 << 13
# outermost rounds per core that even out a slow one
ROUNDS_PER_CORE = 4
# operations up to which a short reduction is written out
WRITTEN_OPS = 600
# terms that one accumulator takes in before they are added to a second level
BLOCK = 512
# a panel larger than this is packed even if its rows are read in order: its lines alias in cache
PACK_BYTES = 64 << 10
# elements in a row that a transposition reads and writes at a time
TURN_READ, TURN_WRITE = 128, 16
# elements of a row from which on it is kept: vectors of some lanes fill it
LEAST_ROW = 8
COSTLY_OPS = frozenset(op for op, weight in WEIGHTS.items() if weight >= 8)
# instructions of a body that only adds up what it reads; and what memory gives at a time
STREAMED, LINE_BYTES = 2, 64
# of a store body: the heavier, the fewer copies
LIGHT, HEAVY = 24, 80


@dataclass
class Plan:
    """What is decided for one nest: the actions, in order."""

    opts: list[Opt] = field(default_factory=list)

    def add(self, op: OptOps, axis: tuple[int, ...], arg: int | None = None) -> None:
        self.opts.append(Opt(op, axis, arg))


def optimise(ast: UOp, target: Target) -> UOp:
    """The kernel, optimised for the target. One without vectors is there to be plain."""
    if (chosen := chosen_kernel(ast, target)) is not None:
        return chosen
    if target.has_local:
        return optimise_groups(merged := merge_axes(ast), nests(merged), target)
    if not target.vector_bytes:
        return ast
    parts = nests(ast)
    threads = target.has_threads and target.cores > 1 and can_share(parts)
    stores: list[UOp] = []
    applied: list[object] = list(ast.arg.applied)
    for part in parts:
        # each by itself: the time must not grow with the square of their number
        nest = ast.replace(src=tuple(part), arg=replace(ast.arg, applied=()))
        outline = Outline(merge_axes(nest))
        nest = apply_legal(outline, choice_opts(outline.order), target).kernel()
        if any([u.op in COSTLY_OPS for u in outline.order]):
            nest = keep_rows(nest, target)
        nest = _optimise_nest(nest, target, threads)
        stores.extend(nest.src)
        applied.extend(nest.arg.applied)
    return ast.replace(src=tuple(stores), arg=replace(ast.arg, applied=tuple(applied)))


def can_share(parts: list[list[UOp]]) -> bool:
    """Whether cores may run at different places of the kernel.

    Then nobody reads what another part writes, or in a nest another element than it writes itself.
    """
    writers: dict[UOp, tuple[int, UOp]] = {}
    for number, part in enumerate(parts):
        for store in part:
            memory, index = store.src[0].src[:2]
            if writers.setdefault(memory, (number, index)) != (number, index):
                return False
    for number, part in enumerate(parts):
        for node in UOp.sink(*part).toposort():
            if node.op is Ops.LOAD and node.src[0].src[0] in writers:
                if writers[node.src[0].src[0]] != (number, node.src[0].src[1]):
                    return False
    return True


def nests(ast: UOp) -> list[list[UOp]]:
    """Stores that share axes, together."""
    found: list[list[UOp]] = []
    for store in ast.src:
        axes = set(closed_axes(store))
        for nest in found:
            if not axes.isdisjoint(closed_axes(nest[0])):
                nest.append(store)
                break
        else:
            found.append([store])
    return found


def merge_axes(ast: UOp) -> UOp:
    """Every two neighbouring axes that are always used as one, made one."""
    strides = Strides()
    while True:
        uses = uses_of_axes(ast)
        closers = [u for u in uses if u.op in (Ops.STORE, Ops.REDUCE)]
        pair = next(
            (
                (a, b)
                for closer in closers
                for a, b in zip(closed_axes(closer), closed_axes(closer)[1:], strict=False)
                if can_merge(uses, a, b, strides)
            ),
            None,
        )
        if pair is None:
            return ast
        ast = apply_opt(ast, Opt(OptOps.MERGE, pair[0].arg.number, pair[1].arg.number))


def keep_rows(ast: UOp, target: Target) -> UOp:
    """Rows of costly values that a reduction and the outputs share, such as a softmax's."""
    for reduce in [u for u in ast.toposort() if u.op is Ops.REDUCE]:
        axes = closed_axes(reduce)
        if len(axes) != 1 or axes[0].src[0].op is not Ops.CONST:
            continue
        size = size_of(axes[0])
        if size >= LEAST_ROW and size * reduce.dtype.itemsize <= target.l2 // 4:
            ast = _try(ast, Opt(OptOps.KEEP, axes[0].arg.number), target)
    return ast


def _try(ast: UOp, opt: Opt, target: Target) -> UOp:
    """A refused action leaves the kernel as it is."""
    try:
        return apply_opt(ast, opt, target)
    except OptError:
        return ast


def _optimise_nest(ast: UOp, target: Target, threads: bool) -> UOp:
    work = 0.0
    opts: list[Opt] = []
    for nest in nests_of(list(ast.src), target.vector_bytes // 4):
        tiles = choose_tiles(nest, target)
        work += nest.rounds * sum(tile.cost for tile in tiles.values())
        moved = sweep_opts(nest, tiles, target) or turn_opts(nest, target)
        opts += moved or tile_opts(nest, tiles, target)
    outline = apply_legal(Outline(ast), opts, target)
    if threads and work >= PARALLEL_WORK:
        outline = apply_legal(outline, thread_opts(outline, target), target)
    return outline.kernel()


# ------------------------------------------------------------ lanes and copies
def choose_tiles(nest: Nest, target: Target) -> dict[Body, Tile]:
    """For every body its lanes and copies: the output axis in lanes, if any, serves all bodies."""
    options: list[UOp | None] = [None]
    options += [axis for axis in nest.outputs if _gives_lanes(nest, axis)]
    best: dict[Body, Tile] = {}
    least = float("inf")
    for vector in options:
        tiles = {body: _body_tile(nest, body, vector, target) for body in nest.bodies}
        cost = sum(tile.cost for tile in tiles.values())
        if cost < least:
            best, least = tiles, cost
    return best


def _gives_lanes(nest: Nest, axis: UOp) -> bool:
    if extent(axis) < 4 or axis in nest.pinned or axis.arg.kind is not AxisType.LOOP:
        return False
    for body in nest.bodies:
        for item in body.items:
            if item.steps is None:
                continue
            if item.steps.get(axis) == 1:
                return True
            # an operand that is read often may be packed along the axis
            if body.is_reduction and axis in item.ranges and not item.masked:
                if volume([a for a in body.around if a not in item.ranges]) >= LEAST_REUSE:
                    return True
    return False


def _body_tile(nest: Nest, body: Body, vector: UOp | None, target: Target) -> Tile:
    items = [item for other in nest.bodies for item in other.items]
    if vector is not None and vector in body.axes:
        lanes = lanes_of(vector, items, target, exact=nest.must_divide)
        if body.is_reduction:
            return best_tile(body, vector, lanes, target)
        return plain_tile(body, vector, lanes)
    if body is nest.bodies[-1]:
        return plain_tile(body, None, 1)
    tiles = [best_tile(body, None, 1, target)]
    for axis in body.own:
        if extent(axis) < 4 or _is_shared(nest, body, axis):
            continue
        tiles.append(best_tile(body, axis, lanes_of(axis, items, target), target))
    return min(tiles, key=lambda tile: tile.cost)


def _is_shared(nest: Nest, body: Body, axis: UOp) -> bool:
    """Whether a reduction inside of this one runs once per round of the axis."""
    return any(
        [
            other is not body and axis in closer.src[0].ranges
            for other in nest.bodies
            if other.is_reduction
            for closer in other.closers
        ]
    )


# ------------------------------------------------------------ from choices to actions
def tile_opts(nest: Nest, tiles: dict[Body, Tile], target: Target) -> list[Opt]:
    """The actions that make the chosen tiles."""
    plan = Plan()
    main = _heaviest(nest, tiles)
    stores = nest.bodies[-1]
    vector = tiles[stores].choice.vector
    tiles = {**tiles, main: fitting_tile(main, tiles[main])}
    copies = dict(tiles[main].choice.copies) if main.is_reduction else {}
    if main.is_reduction and not nest.is_fill and not nest.stages:
        _plan_order(plan, nest, main, tiles[main].choice, target)
    if vector is not None:
        lanes = tiles[stores].choice.lanes
        along = copies.pop(vector, 1)
        if vector not in main.axes or not main.is_reduction:
            along = _store_copies(stores, vector, lanes)
        elif main.is_reduction and not _has_reuse(main):
            along = _stream_copies(main, vector, lanes, target)
        while along > 1 and (
            extent(vector) % (along * lanes) if nest.must_divide else extent(vector) < along * lanes
        ):
            along //= 2
        _add_lanes(plan, vector, lanes, along, OptOps.UPCAST)
        copies[vector] = along
    for axis in nest.outputs:
        if axis is not vector and copies.get(axis, 1) > 1:
            plan.add(OptOps.UPCAST, axis.arg.number, copies[axis])
    if len(nest.bodies) == 1:
        if vector is None:
            _plan_turn(plan, stores, target)
        else:
            _plan_neighbours(plan, stores, vector)
    for body in nest.bodies[:-1]:
        from_outside = vector is not None and vector in body.axes
        sums = prod(copies.get(axis, 1) for axis in body.around) if from_outside else 0
        _plan_reduction(plan, body, tiles[body].choice, sums, target)
    if main.is_reduction and vector is not None and vector in main.axes:
        _plan_stages(plan, main, tiles[main].choice, vector)
    return plan.opts


def _heaviest(nest: Nest, tiles: dict[Body, Tile]) -> Body:
    return max(nest.bodies, key=lambda body: (tiles[body].cost, body.is_reduction))


def _plan_order(plan: Plan, nest: Nest, body: Body, choice: Choice, target: Target) -> None:
    """The output axis whose loop should be outermost: what does not depend on it is read again."""
    loads = [item for item in body.items if item.node is not None and item.node.op is Ops.LOAD]
    axes = [axis for axis in body.around if any([axis not in item.ranges for item in loads])]
    if len(axes) < 2:
        return
    traffic: dict[UOp, float] = {}
    for axis in axes:
        lanes = choice.lanes if axis is choice.vector else 1
        rounds = extent(axis) / (choice.copies.get(axis, 1) * lanes)
        traffic[axis] = 0.0
        for item in loads:
            size = volume(item.ranges) * item.dtype.itemsize
            # what stays in the second cache costs little to read again
            again = rounds if size > target.l2 // 2 else 1 + rounds / 16
            traffic[axis] += size * (1 if axis in item.ranges else again)
    outermost = min(axes, key=lambda axis: traffic[axis])
    if outermost is not axes[0] and traffic[outermost] < 0.9 * traffic[axes[0]]:
        plan.opts.append(Opt(OptOps.SWAP, outermost.arg.number, axes[0].arg.number))


def _has_reuse(body: Body) -> bool:
    return any(
        [
            item.steps is not None and axis not in item.ranges
            for item in body.items
            for axis in body.around
        ]
    )


def _add_lanes(plan: Plan, axis: UOp, lanes: int, copies: int, kind: OptOps) -> None:
    """lanes*copies of an output axis as `copies` vectors."""
    number = axis.arg.number
    if copies > 1:
        plan.add(kind, number, copies * lanes)
        number = (*number, 1)
    plan.add(OptOps.VECTOR, number, lanes)


def _store_copies(stores: Body, vector: UOp, lanes: int) -> int:
    """Several vectors at once hide latencies, as long as they fit and rounds are left to share."""
    items = [item for item in stores.items if vector in item.ranges]
    weight = sum(item.weight for item in items)
    copies = 4 if weight <= LIGHT else 2 if weight <= HEAVY else 1
    while copies > 1 and extent(vector) < copies * lanes:
        copies //= 2
    return copies


def _stream_copies(body: Body, vector: UOp, lanes: int, target: Target) -> int:
    """Column sums: long pieces of each row, but rounds enough for all cores."""
    copies = 16
    others = volume([axis for axis in body.around if axis is not vector])
    while copies > 1 and (
        copies * lanes > extent(vector)
        or copies * len(body.closers) > target.vector_registers // 2
        or others * extent(vector) // (copies * lanes) < 2 * target.cores
        or copies * body.weight() > 400
    ):
        copies //= 2
    return copies


def _plan_neighbours(plan: Plan, stores: Body, vector: UOp) -> None:
    """Short axes whose elements lie between the lanes: with copies of all, whole rows are written.

    STORE(p[t*2 + r], x[t, r], t, r: 2), lanes along t -> r: 2 UPCAST
    """
    for item in stores.items:
        steps = item.steps or {}
        apart = steps.get(vector)
        if not item.is_store() or apart is None or not 1 < apart <= MOST_CHOICES:
            continue
        inside = [axis for axis in stores.own if 0 < (steps.get(axis) or 0) < apart]
        inside = [axis for axis in inside if axis.src[0].op is Ops.CONST]
        if volume(inside) != apart or any([a.arg.kind is not AxisType.LOOP for a in inside]):
            continue
        for axis in inside:
            plan.add(OptOps.UPCAST, axis.arg.number, 0)
        return


def _plan_turn(plan: Plan, stores: Body, target: Target) -> None:
    """A transposition runs in small blocks: long pieces read, whole lines written."""
    for item in stores.items:
        steps = item.steps or {}
        inner = [axis for axis, step in steps.items() if step == 1]
        if item.is_store() or not inner:
            continue
        for other in stores.items:
            outer = [axis for axis, step in (other.steps or {}).items() if step == 1]
            if not other.is_store() or not outer or outer[0] is inner[0]:
                continue
            pair = (inner[0], outer[0])
            if any([axis.src[0].op is not Ops.CONST or extent(axis) < 32 for axis in pair]):
                continue
            width = TURN_READ
            while width > TURN_WRITE and extent(inner[0]) < 2 * target.cores * width:
                width //= 2
            plan.add(OptOps.SPLIT, inner[0].arg.number, width)
            plan.add(OptOps.SPLIT, outer[0].arg.number, TURN_WRITE)
            first, second = [axis.arg.number for axis in sorted(pair, key=stores.own.index)]
            plan.opts.append(Opt(OptOps.SWAP, (*first, 1), (*second, 0)))
            if stores.weight() <= LIGHT:
                plan.add(OptOps.UPCAST, (*outer[0].arg.number, 1), 0)
            return


def _plan_reduction(plan: Plan, body: Body, choice: Choice, sums: int, target: Target) -> None:
    """Lanes, written-out parts and blocks of the reduce axes of one body.

    `sums`: where an output axis gives the lanes, how many vectors of sums there are; else 0.
    """
    fixed = [axis for axis in body.own if axis.src[0].op is Ops.CONST]
    outer_copies = prod(n for axis, n in choice.copies.items() if axis not in body.own)
    terms = volume(body.own)
    if len(fixed) == len(body.own) and terms <= WRITTEN_OUT:
        if terms * outer_copies * body.weight() <= (WINDOW_OPS if is_window(body) else WRITTEN_OPS):
            for axis in body.own:
                plan.add(OptOps.UNROLL, axis.arg.number, 0)
            return
    loops = [(axis.arg.number, extent(axis)) for axis in body.own]
    if sums:
        for axis in body.fields:
            plan.add(OptOps.UNROLL, axis.arg.number, 0)
        loops = [(axis.arg.number, extent(axis)) for axis in body.own if axis not in body.fields]
        number, rounds = loops[-1]
        unroll = LATENCY // (sums * volume(body.fields))
        if unroll > 1 and rounds >= 4 * unroll:
            plan.add(OptOps.UNROLL, number, unroll)
            loops[-1] = ((*number, 0), rounds // unroll)
    elif choice.vector is not None:
        axis, lanes = choice.vector, choice.lanes
        is_stream = outer_copies == 1 and _is_stream(body, choice, target)
        if is_stream:
            # memory feeds two loads of half a line better than one of a whole line
            lanes //= 2
        place = body.own.index(axis)
        plan.add(OptOps.VECTOR, axis.arg.number, lanes)
        loops[place] = ((*axis.arg.number, 0), extent(axis) // lanes)
        unroll = LATENCY
        if not is_stream:
            unroll = _unroll_count(body, choice, loops[place][1], outer_copies, target)
        if unroll > 1:
            number, rounds = loops[place]
            plan.add(OptOps.UNROLL, number, unroll)
            loops[place] = ((*number, 0), rounds // unroll)
        if axis.src[0].op is Ops.CONST and 1 < extent(axis) % lanes:
            # the rest in one vector as well, some of its lanes empty
            plan.add(OptOps.PADTO, (*axis.arg.number, 2), lanes)
            plan.add(OptOps.VECTOR, (*axis.arg.number, 2), 0)
        _write_out_short(plan, body, axis, unroll * outer_copies * len(body.closers))
    rounded = body.closers[0].dtype in dtypes.floats and body.closers[0].arg is Ops.ADD
    if rounded and outer_copies <= 4:
        _plan_blocks(plan, [loop for loop in loops if loop[1] > 1])


def _write_out_short(plan: Plan, body: Body, vector: UOp, sums: int) -> None:
    """The shortest inner axes beside the lanes: what depends on the axes around is computed once
    for all of their steps, and what depends on them alone (a shift) becomes a number."""
    copies = 1
    for axis in reversed(body.own):
        if axis is vector:
            continue
        copies *= extent(axis)
        if axis.src[0].op is not Ops.CONST or copies * sums > MOST_SUMS:
            return
        if copies * body.weight() > EXPANDED_OPS:
            return
        plan.add(OptOps.UNROLL, axis.arg.number, 0)


def _plan_blocks(plan: Plan, loops: list[tuple[tuple[int, ...], int]]) -> None:
    """Two levels of sums, if one would have so many terms that their errors pile up."""
    if prod(size for _, size in loops) <= 4 * BLOCK:
        return
    inner = 1
    for number, size in reversed(loops):
        if inner * size >= BLOCK:
            plan.add(OptOps.BLOCK, number, min(size, max(2, BLOCK // inner)))
            return
        inner *= size


def _unroll_count(
    body: Body, choice: Choice, rounds: int, outer_copies: int, target: Target
) -> int:
    """Enough accumulators to hide the latency of a sum."""
    weight = body.weight()
    wanted = 4 if weight <= 12 else 2 if weight <= 60 else 1
    if wanted * outer_copies > 2 and _reads_far(body, choice, target):
        # memory takes longer than two sums; and each load that steps less far is guessed sooner
        wanted = 2 if outer_copies == 1 else 1
    wanted = max(choice.copies.get(choice.vector, 1) if choice.vector is not None else 1, wanted)
    while wanted > 1 and (wanted > rounds or wanted * outer_copies * len(body.closers) > MOST_SUMS):
        wanted //= 2
    return max(wanted, 1)


def _is_stream(body: Body, choice: Choice, target: Target) -> bool:
    """Whether it is little more than reading lines one after another, from behind the caches."""
    if body.weight() > STREAMED or choice.lanes * body.closers[0].dtype.itemsize < LINE_BYTES:
        return False
    return extent(body.own[-1]) >= LATENCY * choice.lanes and _reads_far(body, choice, target)


def _reads_far(body: Body, choice: Choice, target: Target) -> bool:
    """Whether what runs along the lanes comes from behind the second cache."""
    return any(
        [
            choice.vector in item.ranges
            and volume(item.ranges) * item.dtype.itemsize > target.l2
            and item.steps is not None
            for item in body.items
        ]
    )


def _plan_stages(plan: Plan, body: Body, choice: Choice, vector: UOp) -> None:
    """Operands in another order than the lanes, or of large panels, are packed."""
    number = vector.arg.number
    along = choice.copies.get(vector, 1)
    lanes: list[tuple[int, ...]] = [(*number, 1)]
    if along > 1:
        lanes = [(*number, 1, 0), (*number, 1, 1)]
    room = SCRATCH_BYTES
    for item in body.items:
        node = item.node
        if node is None or node.op is not Ops.LOAD or vector not in item.ranges:
            continue
        own = [axis for axis in body.own if axis in item.ranges]
        size = panel_bytes(own, along * choice.lanes, item)
        if not own or size > room or node.src[0].src[0].op is not Ops.PARAM:
            continue
        if node not in choice.staged and not _wants_packing(body, item, size):
            continue
        room -= size
        names = tuple([axis.arg.number for axis in own] + lanes)
        plan.opts.append(Opt(OptOps.STAGE, node.src[0].src[0].arg.slot, names))


def _wants_packing(body: Body, item: Item, size: int) -> bool:
    """A panel that is read again and again and does not stay in the first cache."""
    reuse = body.reuse(item)
    if overlaps(body, item):
        return False
    return size > PACK_BYTES and reuse >= PACKED_REUSE and not item.masked


# ------------------------------------------------------------ threads
def share_outputs(ast: UOp, target: Target) -> UOp:
    """The kernel with its outermost loops shared by the cores."""
    outline = Outline(ast)
    return apply_legal(outline, thread_opts(outline, target), target).kernel()


def thread_opts(outline: Outline, target: Target) -> list[Opt]:
    """What shares the outermost loops on which everything in the nest depends."""
    main = max(outline.ast.src, key=lambda store: volume(outline.ended(store)))
    loops = [
        axis
        for axis in outline.ended(main)
        if axis.arg.kind is AxisType.LOOP and axis.src[0].op is Ops.CONST and extent(axis) > 1
    ]
    outputs = set(outline.ended(main))
    needs = [axes for axes in outline.needs(main) if axes <= outputs]
    shared = [axis for axis in loops if all([axis in axes for axes in needs])]
    chosen: list[UOp] = []
    for axis in shared:
        # nothing is computed again for a round more, and a core that is late has fewer to do
        if volume(chosen) >= ROUNDS_PER_CORE * target.cores:
            break
        chosen.append(axis)
    names = [axis.arg.number for axis in chosen]
    opts: list[Opt] = []
    for axis in loops:
        # what does not depend on such an axis is staged once per round of it: few rounds, then
        rounds = ROUNDS_PER_CORE * target.cores
        if axis in shared or _is_even(chosen, target) or volume(chosen) >= rounds:
            continue
        if volume([*chosen, axis]) <= 2 * rounds:
            chosen.append(axis)
            names.append(axis.arg.number)
            continue
        parts = min(-(-rounds // volume(chosen)), extent(axis) // 2)
        opts.append(Opt(OptOps.SPLIT, axis.arg.number, -(-extent(axis) // parts)))
        names.append((*axis.arg.number, 0))
        break
    if names:
        opts.append(Opt(OptOps.THREAD, names[0], tuple(names[1:]) or None))
    return opts


def _is_even(axes: list[UOp], target: Target) -> bool:
    """Whether the rounds of these axes keep all cores busy to the end."""
    rounds = volume(axes)
    if rounds < target.cores:
        return False
    if rounds >= ROUNDS_PER_CORE * target.cores:
        return True
    return rounds % target.cores == 0


__all__ = ["merge_axes", "nests", "optimise", "size_of"]
