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

from dataclasses import replace

from weft.budgets import BLOCK_OPS, CHOICES
from weft.codegen.opt.actions import apply_legal, apply_opt, can_merge, uses_of_axes
from weft.codegen.opt.axes import closed_axes, size_of
from weft.codegen.opt.choices import choice_opts
from weft.codegen.opt.chosen import chosen_kernel
from weft.codegen.opt.cost import WORTHWHILE, Choice, Proposal, cheapest, restart_cost, traffic_cost
from weft.codegen.opt.gpu import optimise_groups
from weft.codegen.opt.interleave import propose_interleave, split_divided
from weft.codegen.opt.keep import COSTLY
from weft.codegen.opt.operands import is_staged, slot_of, with_operands
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.outline import Outline
from weft.codegen.opt.reduction import Plan, plan_reduction
from weft.codegen.opt.rows import rows_of_stream
from weft.codegen.opt.share import can_share, thread_opts, useful_cores
from weft.codegen.opt.streams import propose_sweep
from weft.codegen.opt.strides import Strides
from weft.codegen.opt.survey import Body, Item, Nest, extent, nests_of, volume
from weft.codegen.opt.tile import (
    LEAST_REUSE,
    PACKED_REUSE,
    Tile,
    best_tile,
    lanes_of,
    overlaps,
    panel_bytes,
    plain_tile,
)
from weft.codegen.opt.transpose import propose_transpose
from weft.codegen.opt.windows import fitting_tile
from weft.helpers import prod
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops


def optimise(ast: UOp, target: Target) -> UOp:
    """The kernel, optimised for the target. One without vectors is there to be plain."""
    if (chosen := chosen_kernel(ast, target)) is not None:
        return chosen
    if target.has_local:
        return optimise_groups(merged := merge_axes(ast), nests(merged), target)
    if not target.vector_bytes or _scatters(ast):
        return ast
    parts = nests(ast)
    threads = target.has_threads and target.cores > 1 and can_share(parts)
    stores: list[UOp] = []
    applied: list[object] = list(ast.arg.applied)
    for part in parts:
        # each by itself: the time must not grow with the square of their number
        nest = ast.replace(src=tuple(part), arg=replace(ast.arg, applied=()))
        outline = Outline(merge_axes(split_divided(nest, target)))
        nest = apply_legal(outline, choice_opts(outline.order), target).kernel()
        if any([target.op_cost(u.op) >= COSTLY for u in outline.order]):
            nest = keep_rows(nest, target)
        nest = _optimise_nest(nest, target, threads)
        stores.extend(nest.src)
        applied.extend(nest.arg.applied)
    return ast.replace(src=tuple(stores), arg=replace(ast.arg, applied=tuple(applied)))


def _scatters(ast: UOp) -> bool:
    """Whether it writes to places that memory says: lanes cannot be stored together."""
    return any([u.op is Ops.LOAD for store in ast.src for u in store.src[0].toposort()])


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
        if size >= target.half_line and size * reduce.dtype.itemsize <= target.l2 // 2:
            ast = _try(ast, Opt(OptOps.KEEP, axes[0].arg.number), target)
    return ast


def _try(ast: UOp, opt: Opt, target: Target) -> UOp:
    """A refused action leaves the kernel as it is."""
    try:
        return apply_opt(ast, opt, target)
    except OptError:
        return ast


def _optimise_nest(ast: UOp, target: Target, threads: bool) -> UOp:
    work = staging = traffic = 0.0
    opts: list[Opt] = []
    for nest in nests_of(list(ast.src), target):
        nest, tiles = _with_tiles(nest, target)
        cost = nest.rounds * _total(tiles)
        work += cost
        staging += cost if nest.is_fill else 0.0
        traffic += traffic_cost(nest, target)
        opts += cheapest(_proposals(nest, tiles, target)).opts
    outline = apply_legal(Outline(ast), opts, target)
    cores = useful_cores(max(work, traffic), target) if threads else 1
    if cores > 1:
        staging = staging or _packing(outline, work)
        refill = staging / max(work - staging, 1.0)
        outline = apply_legal(outline, thread_opts(outline, target, cores, refill), target)
    return outline.kernel()


def _proposals(nest: Nest, tiles: dict[Body, Tile], target: Target) -> list[Proposal]:
    """What the planners propose for a nest."""
    others = (
        propose_sweep(nest, tiles, target),
        propose_transpose(nest, target),
        propose_interleave(nest, target),
    )
    found = [proposal for proposal in others if proposal is not None]
    waits = sum(restart_cost(body, tile.choice, target) for body, tile in tiles.items())
    return [*found, Proposal(tile_opts(nest, tiles, target), _total(tiles) + waits)]


def _packing(outline: Outline, work: float) -> float:
    """Instructions of what was staged by actions: copies of operands, or all sums of a sweep."""
    stages = [node for node in outline.order if node.op is Ops.STAGE]
    if any([stage.arg.sweep for stage in stages]):
        return work
    elements = sum([volume(closed_axes(stage)) * volume(stage.ranges) for stage in stages])
    # read, exchanged and written: about a cycle each (128x3072x768 in 1 and in 8 parts a panel)
    return float(elements)


# ------------------------------------------------------------ lanes and copies
def _with_tiles(nest: Nest, target: Target) -> tuple[Nest, dict[Body, Tile]]:
    """The nest and its tiles; with an operand that is computed panel by panel, if it can be."""
    tiles = choose_tiles(nest, target)
    panelled = with_operands(nest)
    if panelled is None:
        return nest, tiles
    others = choose_tiles(panelled, target)
    is_cheaper = _total(others) < _total(tiles)
    return (panelled, others) if is_cheaper and is_staged(panelled, others) else (nest, tiles)


def _total(tiles: dict[Body, Tile]) -> float:
    return sum(tile.cost for tile in tiles.values())


def choose_tiles(nest: Nest, target: Target) -> dict[Body, Tile]:
    """For every body its lanes and copies: the output axis in lanes, if any, serves all bodies."""
    options: list[UOp | None] = [None]
    options += [axis for axis in nest.outputs if _gives_lanes(nest, axis)]
    for operand in [item for body in nest.bodies for item in body.items if item.parts]:
        options = [axis for axis in options if axis in operand.ranges] or options
    best: dict[Body, Tile] = {}
    least = float("inf")
    for vector in options:
        tiles = {body: _body_tile(nest, body, vector, target) for body in nest.bodies}
        cost = _total(tiles)
        if cost < least:
            best, least = tiles, cost
    return best


def _gives_lanes(nest: Nest, axis: UOp) -> bool:
    if not _fills_vectors(axis, nest.target) or axis in nest.pinned:
        return False
    if axis.arg.kind is not AxisType.LOOP:
        return False
    for body in nest.bodies:
        for item in body.items:
            if item.steps is None:
                continue
            if item.steps.get(axis) == 1 or (item.parts and axis in item.ranges):
                return True
            # an operand that is read often may be packed along the axis
            if body.is_reduction and axis in item.ranges and not item.masked:
                if volume([a for a in body.around if a not in item.ranges]) >= LEAST_REUSE:
                    return True
    return False


def _fills_vectors(axis: UOp, target: Target) -> bool:
    """Whether an axis is long enough for lanes: those of a vector that is mostly empty take longer
    to compile than they save."""
    return extent(axis) ** 2 >= target.vector_lanes


def _body_tile(nest: Nest, body: Body, vector: UOp | None, target: Target) -> Tile:
    items = [item for other in nest.bodies for item in other.items]
    if vector is not None and vector in body.axes:
        lanes = lanes_of(vector, items, target, exact=nest.must_divide)
        if body.is_reduction:
            return best_tile(body, vector, lanes, target)
        return plain_tile(body, vector, lanes, target)
    if body is nest.bodies[-1]:
        return plain_tile(body, None, 1, target)
    tiles = [best_tile(body, None, 1, target)]
    for axis in body.own:
        if not _fills_vectors(axis, target) or _is_shared(nest, body, axis):
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
            lanes = _store_lanes(nest, vector, lanes, target)
            along = _store_copies(stores, vector, lanes, target)
        elif main.is_reduction and not _has_reuse(main):
            along = _stream_copies(main, vector, lanes, target)
        is_whole = nest.must_divide or vector in stores.aligned
        while along > 1 and (
            extent(vector) % (along * lanes) if is_whole else extent(vector) < along * lanes
        ):
            along //= 2
        _add_lanes(plan, vector, lanes, along, OptOps.UPCAST)
        copies[vector] = along
    for axis in nest.outputs:
        if axis is not vector and copies.get(axis, 1) > 1:
            _add_copies(plan, main, tiles[main].choice, axis, copies[axis], target)
    if len(nest.bodies) == 1 and vector is not None:
        _plan_neighbours(plan, stores, vector)
    for body in nest.bodies[:-1]:
        from_outside = vector is not None and vector in body.axes
        sums = prod(copies.get(axis, 1) for axis in body.around) if from_outside else 0
        plan_reduction(plan, body, tiles[body].choice, sums, target)
    if main.is_reduction and vector is not None and vector in main.axes:
        _plan_stages(plan, nest, main, tiles[main].choice, vector, target)
    return plan.opts


def _heaviest(nest: Nest, tiles: dict[Body, Tile]) -> Body:
    return max(nest.bodies, key=lambda body: (tiles[body].cost, body.is_reduction))


def _plan_order(plan: Plan, nest: Nest, body: Body, choice: Choice, target: Target) -> None:
    """The output axis whose loop should be outermost: what does not depend on it is read again.

    Of a batch, the same question inside of a sample.
    """
    axes = [axis for axis in body.around if any([axis not in item.ranges for item in body.loads])]
    for around in (frozenset[UOp](), frozenset(axes[:1])):
        inside = [axis for axis in axes if axis not in around]
        if len(inside) < 2:
            return
        traffic = {axis: _traffic(body, axis, around, choice, target) for axis in inside}
        outermost = min(inside, key=lambda axis: traffic[axis])
        if traffic[outermost] < WORTHWHILE * traffic[inside[0]]:
            plan.opts.append(Opt(OptOps.SWAP, outermost.arg.number, inside[0].arg.number))
            return
        if axes[0] is choice.vector or axes[0] in choice.copies:
            return


def _traffic(
    body: Body, axis: UOp, around: frozenset[UOp], choice: Choice, target: Target
) -> float:
    """Bytes that are read, but for the axes around, if the loop of an axis is outermost."""
    lanes = choice.lanes if axis is choice.vector else 1
    rounds = extent(axis) / (choice.copies.get(axis, 1) * lanes)
    total = 0.0
    for item in body.loads:
        size = volume(item.ranges - around) * item.dtype.itemsize
        # what stays in the second cache costs little to read again
        near = 1 + rounds * target.l2_cycles / target.far_miss
        again = rounds if size > target.l2 // 2 else near
        total += size * (1 if axis in item.ranges else again)
    return total


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


def _add_copies(
    plan: Plan, body: Body, choice: Choice, axis: UOp, copies: int, target: Target
) -> None:
    """Copies of an output axis: neighbours, or as far apart as each is a stream of its own."""
    number = axis.arg.number
    rows = rows_of_stream(body, choice.vector, axis, copies, target) if body.is_reduction else 1
    if rows == 1:
        plan.add(OptOps.UPCAST, number, copies)
        return
    plan.add(OptOps.SPLIT, number, copies * rows)
    plan.add(OptOps.SPLIT, (*number, 1), rows)
    plan.add(OptOps.UPCAST, (*number, 1, 0), 0)


def _store_lanes(nest: Nest, vector: UOp, lanes: int, target: Target) -> int:
    """Half of them where little is done to what comes from behind the caches, or goes there: as in
    a sum, memory is faster with two halves of a line than with a whole one."""
    if nest.is_fill or any([vector in body.axes for body in nest.bodies[:-1]]):
        return lanes
    items = [item for item in nest.bodies[-1].items if vector in item.ranges]
    placed = [(item, item.steps) for item in items if item.steps is not None]
    if (
        2 * sum(item.weight for item in items) <= target.balance * target.streams
        and any([item.nbytes > target.l2 for item, _ in placed])
        and all([steps.get(vector) == 1 and vector not in item.masked for item, steps in placed])
        and all([lanes * item.dtype.itemsize >= target.line_bytes for item, _ in placed])
    ):
        return lanes // 2
    return lanes


def _store_copies(stores: Body, vector: UOp, lanes: int, target: Target) -> int:
    """Several vectors at once hide latencies, as long as a core has all of them in flight, and the
    nest takes longer than a launch: code that is as short gains nothing by them."""
    items = [item for item in stores.items if vector in item.ranges]
    written = volume([axis for axis in stores.axes if axis.arg.kind is AxisType.UPCAST])
    weight = sum(item.weight for item in items) * written
    copies = target.sum_latency
    if volume(stores.axes) * weight <= target.launch_cycles * lanes:
        return 1
    while copies > 1 and (copies * weight > target.in_flight or extent(vector) < copies * lanes):
        copies //= 2
    return copies


def _stream_copies(body: Body, vector: UOp, lanes: int, target: Target) -> int:
    """Column sums: long pieces of each row, but rounds enough for all cores."""
    copies = target.vector_registers // 2
    others = volume([axis for axis in body.around if axis is not vector])
    while copies > 1 and (
        copies * lanes > extent(vector)
        or copies * len(body.closers) > target.vector_registers // 2
        or others * extent(vector) // (copies * lanes) < 2 * target.cores
        or copies * body.weight() > BLOCK_OPS
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
        if not item.is_store() or apart is None or not 1 < apart <= CHOICES:
            continue
        inside = [axis for axis in stores.own if 0 < (steps.get(axis) or 0) < apart]
        inside = [axis for axis in inside if axis.src[0].op is Ops.CONST]
        if volume(inside) != apart or any([a.arg.kind is not AxisType.LOOP for a in inside]):
            continue
        for axis in inside:
            plan.add(OptOps.UPCAST, axis.arg.number, 0)
        return


def _plan_stages(
    plan: Plan, nest: Nest, body: Body, choice: Choice, vector: UOp, target: Target
) -> None:
    """Operands in another order than the lanes, or of large panels, are packed."""
    number = vector.arg.number
    along = choice.copies.get(vector, 1)
    lanes: list[tuple[int, ...]] = [(*number, 1)]
    if along > 1:
        lanes = [(*number, 1, 0), (*number, 1, 1)]
    room = target.scratch_bytes
    for item in body.items:
        node = item.node
        if node is None or vector not in item.ranges:
            continue
        own = [axis for axis in body.own if axis in item.ranges]
        names = tuple([axis.arg.number for axis in own] + lanes)
        if item.parts:
            plan.opts.append(Opt(OptOps.STAGE, slot_of(node, nest, body), names))
            # blocks and fields mattered where it was computed; a panel is read from front to back
            pairs = [(own[0].arg.number, axis.arg.number) for axis in own[1:]]
            plan.opts += [Opt(OptOps.MERGE, first, other) for first, other in pairs]
            continue
        if node.op is not Ops.LOAD:
            continue
        size = panel_bytes(own, along * choice.lanes, item)
        if not own or size > room or node.src[0].src[0].op is not Ops.PARAM:
            continue
        if node not in choice.staged and not _wants_packing(body, item, size, target):
            continue
        room -= size
        plan.opts.append(Opt(OptOps.STAGE, node.src[0].src[0].arg.slot, names))


def _wants_packing(body: Body, item: Item, size: int, target: Target) -> bool:
    """A panel that is read again and again and does not stay in L1, where its lines alias."""
    reuse = body.reuse(item)
    if overlaps(body, item):
        return False
    return size > 2 * target.l1 and reuse >= PACKED_REUSE and not item.masked


__all__ = ["merge_axes", "nests", "optimise", "size_of"]
