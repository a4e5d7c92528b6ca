"""GPU heuristic: how a kernel is spread over groups of threads.

In: a kernel AST, its nests, and a target with groups of threads. Out: the kernel with axes typed
LOCAL (threads of a group), GROUP_REDUCE (a reduction that they share), VECTOR and UPCAST, and with
staged tiles; what stays a loop over outputs becomes the grid. Beside the CPU's heuristic, which
calls it for such targets.
Invariant: everything is done by actions, each legal by itself. Neighbouring threads read and write
neighbouring elements wherever some choice of axes allows it.

A nest runs in one of three ways: tiles of a product in shared memory, rows whose reductions a group
shares, or a thread per output.
"""

from __future__ import annotations

import itertools
from contextlib import suppress

from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.axes import closed_axes
from weft.codegen.opt.gpu_chains import plan_chain
from weft.codegen.opt.gpu_tiles import plan_fragments
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.prefixes import plan_prefixes
from weft.codegen.opt.survey import Body, Item, Nest, extent, stays_in_order, volume
from weft.machine import Target
from weft.uop.args import DISTINCT, AxisType
from weft.uop.distinct import never_meet, writes_apart
from weft.uop.node import UOp
from weft.uop.opset import Ops

# threads of a group, where nothing asks for another number
THREADS = 256
# terms of a reduction from which threads share it
SHARED_TERMS = 32
# terms that each of them takes
TERMS_PER_THREAD = 4
# outputs below which a thread per output leaves the machine idle
FEW_OUTPUTS = 1 << 12
# bytes that a bank of shared memory gives at a time
_WORD = 4
# side of a tile in threads, and outputs of each thread along it
TILE_SIDE, TILE_COPIES = 16, 4
# terms of a product that are staged at once
TILE_DEPTH = 16
# instructions of a thread, as weights count them, beyond which lanes only make its code longer
MOST_WEIGHT = 2048


def optimise_groups(ast: UOp, nests: list[list[UOp]], target: Target) -> UOp:
    """The kernel spread over groups; one whose order matters stays as it is."""
    if not runs_in_any_order(ast):
        return ast
    ast = _with_order(ast)
    for stores in nests:
        if any([axis.arg.kind is not AxisType.LOOP for axis in closed_axes(stores[0])]):
            continue
        chain = plan_chain(stores, target)
        if chain is not None:
            with suppress(OptError):
                ast = apply_opt(ast, chain, target)
                continue
        product = plan_fragments(stores, target)
        if product is not None:
            with suppress(OptError):
                ast = apply_opt(ast, product, target)
                continue
        prefix = plan_prefixes(stores, target) if target.has_prefixes else None
        if prefix is not None:
            with suppress(OptError):
                ast = apply_opt(ast, prefix, target)
                continue
        for opt in _plan(Nest(stores, target), target):
            try:
                ast = apply_opt(ast, opt, target)
            except OptError:
                # refused, as for a nest that another action has changed: it stays a loop
                continue
    return ast


def runs_in_any_order(ast: UOp) -> bool:
    """Whether iterations of output loops do not see each other's stores.

    Each round of a store has an element of its own, which nothing else of the kernel touches. Only
    the round itself may load it, before.
    """
    if not all([writes_apart(store) for store in ast.src]):
        return False
    places: dict[UOp, list[UOp]] = {}
    for store in ast.src:
        places.setdefault(store.src[0].src[0], []).append(store.src[0])
    if not all([_are_disjoint(some) for some in places.values()]):
        return False
    for nest in nests_of(ast):
        own = _own_places(nest)
        for node in UOp.sink(*nest).toposort():
            if node.op is not Ops.LOAD or node.src[0].src[0] not in places:
                continue
            memory, index = node.src[0].src[:2]
            if own.get(memory) is not index and not all(
                [never_meet(node.src[0], place) for place in places[memory]]
            ):
                return False
    return True


def _are_disjoint(places: list[UOp]) -> bool:
    """Whether no two of several stores to one memory are of one element."""
    pairs = itertools.combinations(places, 2)
    return all([never_meet(left, right) for left, right in pairs])


def _with_order(ast: UOp) -> UOp:
    """A kernel whose stores are proven to be apart, which is noted where splitting axes would hide
    it: in divisions of them. A sum of axes shows it as long as it is one.
    """
    stores = [
        store.rtag(DISTINCT) if store.tag is None and _divides(store.src[0].src[1]) else store
        for store in ast.src
    ]
    return ast.with_src(tuple(stores))


def _divides(index: UOp) -> bool:
    return any([node.op in (Ops.IDIV, Ops.MOD) for node in index.toposort()])


def nests_of(ast: UOp) -> list[list[UOp]]:
    """Stores that share axes, together, the deepest first; those without axes are one nest."""
    found: list[list[UOp]] = []
    owner: dict[UOp | None, list[UOp]] = {}
    for store in sorted(ast.src, key=lambda s: -len(closed_axes(s))):
        axes: tuple[UOp | None, ...] = closed_axes(store) or (None,)
        nest = next((owner[axis] for axis in axes if axis in owner), None)
        if nest is None:
            nest = []
            found.append(nest)
        nest.append(store)
        for axis in axes:
            owner.setdefault(axis, nest)
    return found


def _own_places(nest: list[UOp]) -> dict[UOp, UOp | None]:
    """For each buffer the one index at which every iteration stores an element of its own."""
    places: dict[UOp, UOp | None] = {}
    for store in nest:
        memory, index = store.src[0].src[:2]
        is_own = len(closed_axes(store)) == len(closed_axes(nest[0]))
        if places.setdefault(memory, index) is not index or not is_own:
            places[memory] = None
    return places


def _plan(nest: Nest, target: Target) -> list[Opt]:
    reductions = [body for body in nest.bodies if body.is_reduction]
    for body in reductions:
        opts = _plan_tiles(nest, body, target) if len(reductions) == 1 else []
        if opts:
            return opts
    if any([_wants_sharing(nest, body) for body in reductions]):
        return _plan_rows(nest, reductions, target)
    turned = _plan_turned(nest, target) if not reductions else []
    if turned:
        return turned
    # threads that differ only in what a reduction does not depend on would all repeat it
    axes = [axis for axis in nest.outputs if all([axis in body.around for body in reductions])]
    return _plan_outputs(nest, axes, target, _group_size(target), lanes=not reductions)


def _group_size(target: Target) -> int:
    return min(THREADS, target.group_threads)


def _is_fixed(axis: UOp) -> bool:
    return axis.src[0].op is Ops.CONST


def _fast_axis(items: list[Item], axes: list[UOp]) -> UOp | None:
    """The axis along which most accesses move by one element."""
    votes = {
        axis: sum([item.steps is not None and item.steps.get(axis) == 1 for item in items])
        for axis in axes
        if _is_fixed(axis)
    }
    return max(votes, key=lambda axis: (votes[axis], axes.index(axis)), default=None)


# ------------------------------------------------------------ a thread per output
def _plan_outputs(
    nest: Nest, axes: list[UOp], target: Target, threads: int, lanes: bool
) -> list[Opt]:
    """Threads along the axis that is contiguous in memory, what is left over along the others."""
    opts: list[Opt] = []
    items = [item for body in nest.bodies for item in body.items]
    fast = _fast_axis(items, axes)
    others = [axis for axis in reversed(axes) if axis is not fast and _is_fixed(axis)]
    for axis in [] if fast is None else [fast, *others]:
        number, size = axis.arg.number, extent(axis)
        width = _lanes(items, axis, target) if lanes and axis is fast else 1
        if width > 1:
            opts.append(Opt(OptOps.VECTOR, number, width))
            number, size = (*number, 0), size // width
        count = _divisor_near(size, threads)
        if count > 1:
            opts.append(Opt(OptOps.LOCAL, number, count))
            threads //= count
    return opts


def _lanes(items: list[Item], axis: UOp, target: Target) -> int:
    """Elements of one access, if all accesses go along the axis in order."""
    moving = [item for item in items if axis in item.ranges and item.steps is not None]
    if not moving or not all([stays_in_order(item, axis) for item in moving]):
        return 1
    if any([axis in item.masked for item in moving]):
        return 1
    widest = max(item.dtype.itemsize for item in moving)
    lanes = min(target.thread_lanes, target.vector_bytes // widest)
    weight = sum([item.weight for item in items if axis in item.ranges])
    while lanes > 1 and lanes * weight > MOST_WEIGHT:
        lanes //= 2
    return lanes if lanes > 1 and extent(axis) % lanes == 0 else 1


def _divisor_near(size: int, most: int) -> int:
    """As many threads as fit, a divisor of the size unless all of those are much too small."""
    if size <= most:
        return size
    best = max([n for n in range(1, most + 1) if size % n == 0])
    return best if best * 4 >= most else most


# ------------------------------------------------------------ turned tiles
def _plan_turned(nest: Nest, target: Target) -> list[Opt]:
    """What is read along one axis and written along another: tiles in shared memory.

    A group reads a tile as it lies in memory, neighbours by neighbouring threads, and writes it the
    same way. Rows of the tile are a word apart from what banks repeat after (see `stage`).
    """
    items = nest.bodies[-1].items
    stores = [item for item in items if item.is_store()]
    loads = [item for item in items if item.node is not None and item.node.op is Ops.LOAD]
    if len(stores) != 1 or any([item.steps is None or item.masked for item in (*stores, *loads)]):
        return []
    across = _fast_axis(stores, list(nest.outputs))
    if across is None or (stores[0].steps or {}).get(across) != 1:
        return []
    turned = [item for item in loads if (item.steps or {}).get(across, 0) not in (0, 1)]
    along = {axis for item in turned for axis, step in (item.steps or {}).items() if step == 1}
    if len(turned) != 1 or len(along) != 1 or not along <= set(nest.outputs):
        return []
    (axis,) = along
    size = turned[0].dtype.itemsize
    lanes, copies = max(1, _WORD // size), max(1, target.vector_bytes // size)
    width, height = target.warp_size * lanes, THREADS // target.warp_size * copies
    if not _is_fixed(axis) or extent(axis) < height or extent(across) < width:
        return []
    opts = [Opt(OptOps.LOCAL, across.arg.number, width), Opt(OptOps.LOCAL, axis.arg.number, height)]
    columns, rows = [(*across.arg.number, 1)], [(*axis.arg.number, 1)]
    if lanes > 1:
        opts.append(Opt(OptOps.VECTOR, columns[0], lanes))
        columns = [(*columns[0], 0), (*columns[0], 1)]
    if copies > 1:
        opts.append(Opt(OptOps.UPCAST, rows[0], copies))
        rows = [(*rows[0], 0), (*rows[0], 1)]
    assert turned[0].node is not None
    slot = turned[0].node.src[0].src[0].arg.slot
    return [*opts, Opt(OptOps.STAGE, slot, (*columns, *rows))]


# ------------------------------------------------------------ rows shared by a group
def _wants_sharing(nest: Nest, body: Body) -> bool:
    """A long reduction of neighbours in memory, or of so few outputs that threads are left."""
    axis = _fast_axis(body.items, list(body.own))
    if axis is None or extent(axis) < SHARED_TERMS:
        return False
    others = [other for other in nest.bodies if other.is_reduction and other is not body]
    if any([axis in closer.src[0].ranges for other in others for closer in other.closers]):
        # another reduction runs inside of this one, once per round
        return False
    along = _fast_axis(body.items, [*body.around, *body.own])
    return along in body.own or volume(nest.outputs) * TERMS_PER_THREAD < FEW_OUTPUTS


def _plan_rows(nest: Nest, reductions: list[Body], target: Target) -> list[Opt]:
    """Every reduction of the nest over the threads of a group, then the outputs over the same."""
    opts: list[Opt] = []
    widest = max(volume(body.own) for body in reductions)
    threads = _group_size(target)
    while threads > target.warp_size and threads * TERMS_PER_THREAD > widest:
        threads //= 2
    for body in reductions:
        axis = _fast_axis(body.items, list(body.own))
        if axis is None or not _wants_sharing(nest, body):
            continue
        size = _sharing_size(extent(axis), threads)
        if size > 1:
            opts.append(Opt(OptOps.GROUP, axis.arg.number, size))
    free = [axis for axis in nest.outputs if not any([axis in b.around for b in reductions])]
    return opts + _plan_outputs(nest, free, target, threads, lanes=False)


def _sharing_size(terms: int, threads: int) -> int:
    """Threads for a reduction: the fewest steps, counting the rest that each would do alone."""
    sizes = [n for n in range(1, min(threads, terms) + 1)]
    return min(sizes, key=lambda n: (terms // n + terms % n, -n))


# ------------------------------------------------------------ tiles of a product
def _plan_tiles(nest: Nest, body: Body, target: Target) -> list[Opt]:
    """Two operands, each the same along an output axis of the other: tiles in shared memory.

    A group computes a square of outputs; for every TILE_DEPTH terms it stages what the square needs
    of both operands, so that each element is read once per group instead of once per thread.
    """
    loads = [item for item in body.items if item.node is not None and item.node.op is Ops.LOAD]
    own = [axis for axis in body.own if _is_fixed(axis) and extent(axis) >= TILE_DEPTH]
    if len(loads) != 2 or not own or len(nest.stores) > 1 or target.group_threads < TILE_SIDE**2:
        return []
    columns = _tile_axis(nest, body, loads[1], loads[0])
    rows = _tile_axis(nest, body, loads[0], loads[1])
    if rows is None or columns is None:
        return []
    if any([item.masked or own[-1] not in item.ranges for item in loads]):
        return []
    # the axis along which outputs are neighbours gets the neighbouring threads
    if _fast_axis(nest.bodies[-1].items, [rows, columns]) is rows:
        rows, columns, loads = columns, rows, loads[::-1]
    return _tile_opts(rows, columns, own[-1], loads, target)


def _tile_axis(nest: Nest, body: Body, varies: Item, stays: Item) -> UOp | None:
    """An output axis that only one of two operands depends on, long enough for a tile."""
    found = [
        axis
        for axis in body.around
        if axis in varies.ranges and axis not in stays.ranges and _is_fixed(axis)
    ]
    found = [axis for axis in found if extent(axis) >= TILE_SIDE]
    return max(found, key=extent, default=None)


def _tile_opts(rows: UOp, columns: UOp, terms: UOp, loads: list[Item], target: Target) -> list[Opt]:
    """The square in threads and registers, and both operands staged; see `_plan_tiles`."""
    opts: list[Opt] = []
    sides: list[list[tuple[int, ...]]] = []
    for axis, copy in ((rows, OptOps.UPCAST), (columns, OptOps.VECTOR)):
        number = axis.arg.number
        copies = TILE_COPIES
        while copies > 1 and extent(axis) < 2 * TILE_SIDE * copies:
            copies //= 2
        if copy is OptOps.VECTOR and target.vector_bytes < copies * 4:
            copy = OptOps.UPCAST
        opts.append(Opt(OptOps.LOCAL, number, TILE_SIDE * copies))
        number = (*number, 1)
        names = [number]
        if copies > 1:
            opts.append(Opt(copy, number, copies))
            names = [(*number, 0), (*number, 1)]
        sides.append(names)
    if extent(terms) > TILE_DEPTH:
        opts.append(Opt(OptOps.SPLIT, terms.arg.number, TILE_DEPTH))
        depth = (*terms.arg.number, 1)
    else:
        depth = terms.arg.number
    for item, side in zip(loads, sides, strict=True):
        assert item.node is not None
        slot = item.node.src[0].src[0].arg.slot
        # neighbours in memory are staged by neighbouring threads: the contiguous axis comes last
        is_deep = item.steps is not None and item.steps.get(terms) == 1
        names = [*side, depth] if is_deep else [depth, *side]
        opts.append(Opt(OptOps.STAGE, slot, tuple(names)))
    return opts
