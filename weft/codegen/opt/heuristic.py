"""Heuristic: which actions make a kernel fast on a target, with no flags and in a few milliseconds.

In: a kernel AST and the target's facts. Out: the kernel with its axes split, typed and staged; the actions are recorded
in its KernelInfo. Sits above actions and cost model; codegen's pipeline calls `optimise`.
Invariant: everything is done by actions, each legal by itself, so a poor choice costs time and never a wrong result.

A kernel is a few nests, a nest a few bodies (its reductions, its stores). For each body the lanes come from the axis
that makes its accesses neighbours in memory, the copies in registers from the tile search, threads from the outermost
axes that all bodies share.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.codegen.opt.actions import apply_opt, can_merge
from weft.codegen.opt.axes import closed_axes, size_of
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.stage import SCRATCH_BYTES
from weft.codegen.opt.strides import Strides
from weft.codegen.opt.survey import Body, Choice, Item, Nest, extent, volume
from weft.codegen.opt.tile import Tile, best_tile, lanes_of, panel_bytes, plain_tile
from weft.dtype import dtypes
from weft.helpers import prod
from weft.renderer.base import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

# scalar operations below which waking another core costs more than it saves
PARALLEL_WORK = 1 << 16
# outermost rounds per core that even out a slow one
ROUNDS_PER_CORE = 4
# a reduction of this few terms is written out
WRITTEN_OUT = 16
# terms that one accumulator takes in before they are added to a second level
BLOCK = 512
# a panel larger than this is packed even if its rows are read in order: its lines alias in cache
PACK_BYTES = 64 << 10
# of a store body: the heavier, the fewer copies
LIGHT, HEAVY = 24, 80


@dataclass
class Plan:
    """What is decided for one nest: the actions, in order."""

    opts: list[Opt] = field(default_factory=list)

    def add(self, op: OptOps, axis: tuple[int, ...], arg: int | None = None) -> None:
        self.opts.append(Opt(op, axis, arg))


def optimise(ast: UOp, target: Target) -> UOp:
    """The kernel, optimised for the target."""
    ast = merge_axes(ast)
    for stores in nests(ast):
        ast = _optimise_nest(ast, stores, target)
    return ast


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
        closers = [u for u in ast.toposort() if u.op in (Ops.STORE, Ops.REDUCE)]
        pair = next(
            (
                (a, b)
                for closer in closers
                for a, b in zip(closed_axes(closer), closed_axes(closer)[1:], strict=False)
                if can_merge(ast, a, b, strides)
            ),
            None,
        )
        if pair is None:
            return ast
        ast = apply_opt(ast, Opt(OptOps.MERGE, pair[0].arg.number, pair[1].arg.number))


def _try(ast: UOp, opt: Opt, target: Target) -> UOp:
    """A refused action leaves the kernel as it is."""
    try:
        return apply_opt(ast, opt, target)
    except OptError:
        return ast


def _optimise_nest(ast: UOp, stores: list[UOp], target: Target) -> UOp:
    roots = {axis.arg.number[0] for store in stores for axis in closed_axes(store)}
    nest = Nest(stores, target.vector_bytes // 4)
    tiles = choose_tiles(nest, target)
    work = sum(plain_tile(body, None, 1).cost for body in nest.bodies)
    for opt in tile_opts(nest, tiles, target):
        ast = _try(ast, opt, target)
    if target.has_threads and target.cores > 1 and work >= PARALLEL_WORK:
        ast = share_outputs(ast, roots, target)
    return ast


# ------------------------------------------------------------ lanes and copies
def choose_tiles(nest: Nest, target: Target) -> dict[Body, Tile]:
    """For every body its lanes and copies: the output axis in lanes, if any, serves all bodies."""
    options: list[UOp | None] = [None]
    if target.vector_bytes:
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
    if axis.src[0].op is not Ops.CONST or extent(axis) < 4:
        return False
    return any(
        [
            item.steps is not None and item.steps.get(axis) == 1
            for body in nest.bodies
            for item in body.items
        ]
    )


def _body_tile(nest: Nest, body: Body, vector: UOp | None, target: Target) -> Tile:
    items = [item for other in nest.bodies for item in other.items]
    if vector is not None and vector in body.axes:
        lanes = lanes_of(vector, items, target)
        if body.is_reduction:
            return best_tile(body, vector, lanes, target)
        return plain_tile(body, vector, lanes)
    if not body.is_reduction:
        return plain_tile(body, None, 1)
    tiles = [best_tile(body, None, 1, target)]
    if target.vector_bytes:
        for axis in body.own:
            if axis.src[0].op is not Ops.CONST or extent(axis) < 4 or _is_shared(nest, body, axis):
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
    copies = dict(tiles[main].choice.copies) if main.is_reduction else {}
    if vector is not None:
        lanes = tiles[stores].choice.lanes
        along = copies.pop(vector, 1)
        if vector not in main.axes or not main.is_reduction:
            along = _store_copies(stores, vector, lanes, target)
        elif main.is_reduction and not _has_reuse(main):
            along = _stream_copies(main, vector, lanes, target)
        _add_lanes(plan, vector, lanes, along, OptOps.UPCAST)
    for axis in nest.outputs:
        if axis is not vector and copies.get(axis, 1) > 1:
            plan.add(OptOps.UPCAST, axis.arg.number, copies[axis])
    for body in nest.bodies[:-1]:
        _plan_reduction(plan, body, tiles[body].choice, vector is not None and vector in body.axes)
    if main.is_reduction and vector is not None and vector in main.axes:
        _plan_stages(plan, main, tiles[main].choice, vector)
    return plan.opts


def _heaviest(nest: Nest, tiles: dict[Body, Tile]) -> Body:
    return max(nest.bodies, key=lambda body: (tiles[body].cost, body.is_reduction))


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


def _store_copies(stores: Body, vector: UOp, lanes: int, target: Target) -> int:
    """Several vectors at once hide latencies, as long as they fit and rounds are left to share."""
    items = [item for item in stores.items if vector in item.ranges]
    weight = sum(item.weight for item in items)
    copies = 4 if weight <= LIGHT else 2 if weight <= HEAVY else 1
    while copies > 1 and extent(vector) < copies * lanes:
        copies //= 2
    return copies


def _stream_copies(body: Body, vector: UOp, lanes: int, target: Target) -> int:
    """Column sums: long pieces of each row, but rounds enough for all cores."""
    copies = 8
    others = volume([axis for axis in body.around if axis is not vector])
    while copies > 1 and (
        copies * len(body.closers) > target.vector_registers // 2
        or others * extent(vector) // (copies * lanes) < 2 * target.cores
        or copies * body.weight() > 400
    ):
        copies //= 2
    return copies


def _plan_reduction(plan: Plan, body: Body, choice: Choice, from_outside: bool) -> None:
    """Lanes, written-out parts and blocks of the reduce axes of one body."""
    fixed = [axis for axis in body.own if axis.src[0].op is Ops.CONST]
    outer_copies = prod(n for axis, n in choice.copies.items() if axis not in body.own)
    terms = volume(body.own)
    if len(fixed) == len(body.own) and terms <= WRITTEN_OUT:
        if terms * outer_copies * body.weight() <= 600:
            for axis in body.own:
                plan.add(OptOps.UNROLL, axis.arg.number, 0)
            return
    chain = terms
    loop = body.own[0].arg.number
    if not from_outside and choice.vector is not None:
        axis, lanes = choice.vector, choice.lanes
        number = axis.arg.number
        plan.add(OptOps.VECTOR, number, lanes)
        rounds = extent(axis) // lanes
        chain //= lanes
        unroll = _unroll_count(body, choice, rounds, outer_copies)
        if rounds > 1 and unroll > 1:
            plan.add(OptOps.UNROLL, (*number, 0), unroll)
            chain //= unroll
        if axis is body.own[0]:
            loop = number if rounds == 1 else (*number, 0)
            loop = (*loop, 0) if rounds > 1 and 1 < unroll < rounds else loop
    rounded = body.closers[0].dtype in dtypes.floats and body.closers[0].arg is Ops.ADD
    if chain > 4 * BLOCK and rounded and outer_copies <= 4:
        plan.add(OptOps.BLOCK, loop, BLOCK)


def _unroll_count(body: Body, choice: Choice, rounds: int, outer_copies: int) -> int:
    """Enough accumulators to hide the latency of a sum."""
    weight = body.weight()
    wanted = 4 if weight <= 12 else 2 if weight <= 60 else 1
    wanted = max(choice.copies.get(choice.vector, 1) if choice.vector is not None else 1, wanted)
    while wanted > 1 and (wanted > rounds or wanted * outer_copies * len(body.closers) > 16):
        wanted //= 2
    return max(wanted, 1)


def _plan_stages(plan: Plan, body: Body, choice: Choice, vector: UOp) -> None:
    """Operands in another order than the lanes, or of large panels, are packed."""
    number = vector.arg.number
    along = choice.copies.get(vector, 1)
    lanes: list[tuple[int, ...]] = [(*number, 1)]
    if along > 1:
        whole = along * choice.lanes
        lanes = [(*number, 1, 0), (*number, 1, 1)]
        del whole
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
    reuse = volume([axis for axis in body.around if axis not in item.ranges])
    return size > PACK_BYTES and reuse >= 64 and not item.masked


# ------------------------------------------------------------ threads
def share_outputs(ast: UOp, roots: set[int], target: Target) -> UOp:
    """The outermost loops on which everything in the nest depends, shared by the cores."""
    stores = [
        store
        for store in ast.src
        if any([axis.arg.number[0] in roots for axis in closed_axes(store)])
    ]
    if not stores:
        return ast
    main = max(stores, key=lambda store: volume(closed_axes(store)))
    loops = [
        axis
        for axis in closed_axes(main)
        if axis.arg.kind is AxisType.LOOP and axis.src[0].op is Ops.CONST and extent(axis) > 1
    ]
    order = main.toposort()
    needs = [u.ranges for u in order if u.op in (Ops.REDUCE, Ops.STAGE)]
    outputs = set(closed_axes(main))
    needs = [ranges for ranges in needs if ranges <= outputs]
    shared = [axis for axis in loops if all([axis in ranges for ranges in needs])]
    chosen: list[UOp] = []
    for axis in shared:
        if chosen and prod(extent(a) for a in chosen) >= ROUNDS_PER_CORE * target.cores:
            break
        chosen.append(axis)
    if not chosen or prod(extent(a) for a in chosen) < 2:
        return ast
    names = [axis.arg.number for axis in chosen]
    rest = tuple(names[1:]) or None
    return _try(ast, Opt(OptOps.THREAD, names[0], rest), target)


__all__ = ["merge_axes", "nests", "optimise", "size_of"]
