"""GPU tiles: which products become fragments, and how they are cut.

In: a nest of a kernel, and a target that describes fragments. Out: the action that computes it with
them, or None. A part of the GPU heuristic.
Invariant: a choice is made by what the machine's description says (fragments, shared memory,
registers, cores), never by what a kernel is called or by a size that someone measures.

What a tiling costs is the time of one core for its share of the tiles: what tensor cores, reads of
fragments and the memory behind them take, and what nothing hides at the ends of blocks and tiles.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, replace

from weft.codegen.opt.axes import closed_axes
from weft.codegen.opt.fragments import ROW_BYTES, is_copied, padding_of, terms_in_order
from weft.codegen.opt.opt import Opt
from weft.codegen.opt.strides import Strides
from weft.codegen.opt.survey import volume
from weft.codegen.opt.tiling import Tiling
from weft.dtype import DType, dtypes
from weft.fragment import SWIZZLED_BYTES, Fragment
from weft.knobs import USE_TC
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.products import Product, product_of

# registers of a thread beside sums and operands
_OTHER_REGISTERS = 8
# the same where operands are in shared memory: addresses of what is fetched
_OWN_REGISTERS = 40
# and elements on their way, where threads gather them
_GATHER_REGISTERS = 16
# outputs and terms below which a fragment is mostly padding
_LEAST_SIDE, _LEAST_TERMS = 16, 16
# bytes of a staged row of terms, blocks of terms in memory, warps, and fragments of a warp
_TERM_BYTES = (64, 128)
_DEPTHS = (4, 3, 2)
_WARPS = (1, 2, 4)
_FRAGMENTS = (1, 2, 4)
# the same of fragments of several warps
_GROUPS = (1, 2)
_PARTS = (1, 2)

Names = tuple[tuple[tuple[int, ...], ...], tuple[tuple[int, ...], ...]]


def plan_fragments(stores: list[UOp], target: Target) -> Opt | None:
    """The action for the nest of these stores."""
    if not target.fragments or not USE_TC:
        return None
    reduces = [u for u in UOp.sink(*stores).toposort() if u.op is Ops.REDUCE]
    if len(reduces) != 1:
        return None
    (reduce,) = reduces
    found: list[tuple[float, Tiling]] = []
    known: dict[tuple[DType, DType, bool], tuple[_Work, Names] | None] = {}
    for number, fragment in enumerate(target.fragments):
        kind = (fragment.a_dtype, fragment.b_dtype, fragment.exact)
        if kind not in known:
            product = product_of(reduce, fragment)
            known[kind] = None if product is None else _survey(stores, product, fragment, target)
        work = known[kind]
        if work is not None:
            found += _priced(number, *work, fragment, target)
    if not found:
        return None
    best = min(found, key=lambda pair: pair[0])[1]
    return best.opt(closed_axes(reduce)[0].arg.number)


def _survey(
    stores: list[UOp], product: Product, fragment: Fragment, target: Target
) -> tuple[_Work, Names] | None:
    """What there is to do, and the axes of rows and of columns; None where it is not for these."""
    reduce = product.reduce
    outputs = closed_axes(stores[0])
    left, right = product.left.ranges, product.right.ranges
    rows = [axis for axis in outputs if axis in left and axis not in right]
    columns = [axis for axis in outputs if axis in right and axis not in left]
    if not rows or not columns:
        return None
    axes = [*rows, *columns, *closed_axes(reduce)]
    if any([axis.src[0].op is not Ops.CONST for axis in axes]):
        return None
    if any([axis.arg.kind not in (AxisType.LOOP, AxisType.REDUCE) for axis in axes]):
        return None
    steps = Strides().of(stores[0].src[0].src[1])
    if any([steps.get(axis) == 1 for axis in rows]) and fragment.a_dtype is fragment.b_dtype:
        # outputs that are neighbours in memory are columns
        rows, columns = columns, rows
    sizes = (volume(rows), volume(columns), volume(closed_axes(reduce)))
    if min(sizes[:2]) < _LEAST_SIDE or sizes[2] < _LEAST_TERMS:
        return None
    batches = volume([axis for axis in outputs if axis not in rows and axis not in columns])
    if not left.isdisjoint(columns):
        product = replace(product, left=product.right, right=product.left)
    terms = terms_in_order(product, Strides())
    work = _Work(
        sizes,
        batches,
        gathers_rows=not _is_copied(product.left, rows, terms),
        gathers_columns=not _is_copied(product.right, columns, terms),
        turns_rows=_is_copied(product.left, rows, ()),
        turns_columns=_is_copied(product.right, columns, ()),
        weight=_weight(stores, reduce, target),
    )
    first, second = [tuple([axis.arg.number for axis in axes]) for axes in (rows, columns)]
    return work, (first, second)


def _weight(stores: list[UOp], reduce: UOp, target: Target) -> float:
    """Instructions for an output behind its sum."""
    nodes = UOp.sink(*[store.src[1] for store in stores]).toposort(gate=lambda u: u is not reduce)
    ops = [u.op for u in nodes if u.op in GroupOp.ALU and u.dtype not in dtypes.weaks]
    return sum([target.op_cost(op) for op in ops])


def _priced(
    number: int, work: _Work, names: Names, fragment: Fragment, target: Target
) -> list[tuple[float, Tiling]]:
    """What tilings with a fragment cost, of those that fit the machine."""
    price = _shared_cost if fragment.in_shared else _cost
    return [
        (cost, tiling)
        for tiling in _tilings(number, names, fragment)
        if (cost := price(tiling, work, fragment, target)) is not None
    ]


def _tilings(number: int, names: Names, fragment: Fragment) -> list[Tiling]:
    found = []
    warps, fragments = (_GROUPS, _PARTS) if fragment.in_shared else (_WARPS, _FRAGMENTS)
    for row_warps, column_warps in itertools.product(warps, warps):
        if row_warps * column_warps > 8:
            continue
        for row_f, column_f in itertools.product(fragments, fragments):
            for nbytes, depth in itertools.product(_TERM_BYTES, _DEPTHS):
                terms = nbytes // (fragment.k * fragment.a_dtype.itemsize)
                if terms:
                    found.append(
                        Tiling(
                            *(number, names[0], names[1], row_warps, column_warps),
                            *(row_f, column_f, terms, depth),
                        )
                    )
    return found


@dataclass(frozen=True)
class _Work:
    """A product: rows, columns and terms, how often, and which operands threads gather."""

    sizes: tuple[int, int, int]
    batches: int
    gathers_rows: bool
    gathers_columns: bool
    turns_rows: bool  # neighbours in memory are along rows
    turns_columns: bool
    weight: float  # of what is done to an output


def _is_copied(value: UOp, side: list[UOp], terms: tuple[UOp, ...]) -> bool:
    strides = Strides()
    return any([axes and is_copied(value, tuple(axes), strides) for axes in (side, terms)])


def _cost(tiling: Tiling, work: _Work, fragment: Fragment, target: Target) -> float | None:
    """Cycles of a core; None where its registers or its shared memory do not suffice."""
    times = target.group_times
    warps = tiling.row_warps * tiling.column_warps
    warp_rows = tiling.row_fragments * fragment.m
    warp_columns = tiling.column_fragments * fragment.n
    rows, columns = tiling.row_warps * warp_rows, tiling.column_warps * warp_columns
    terms = tiling.term_fragments * fragment.k
    width = fragment.a_dtype.itemsize
    threads = warps * fragment.lanes
    registers = warp_rows * warp_columns // fragment.lanes + _OTHER_REGISTERS
    words = (warp_rows + warp_columns) * fragment.k * width // (4 * fragment.lanes)
    registers += words
    if registers > target.thread_registers:
        return None
    padding = padding_of(fragment.a_dtype, across=True)
    staged = (rows + columns) * (terms + padding) * width
    shared = staged * tiling.depth
    if shared > target.most_shared_bytes:
        return None
    groups = min(
        target.core_shared_bytes // (shared + times.reserved_bytes),
        target.core_registers // (registers * threads),
        target.core_threads // threads,
    )
    if groups < 1:
        return None
    sizes = work.sizes
    tiles = -(-sizes[0] // rows) * -(-sizes[1] // columns) * work.batches
    blocks = -(-sizes[2] // terms)
    together = min(groups, -(-tiles // target.cores))
    products = rows * columns * terms * width / 4 / fragment.rate
    # neither hides the other, since a warp waits for what it reads
    read = warps * (warp_rows + warp_columns) * terms * width / fragment.read_bytes
    far = (rows + columns) * terms * width / times.far_bytes
    busy = warps * together / (warps * together + times.half_busy)
    # of one tile, while the others of its core wait for what it does not need
    block = (
        max((products + read) / busy + times.far_exposed * far, far)
        + times.barrier_cycles / together
    )
    # what threads gather they wait for, some elements at a time
    gathered = (rows * work.gathers_rows + columns * work.gathers_columns) * terms
    block += gathered * target.gather_cycles / fragment.lanes
    block += gathered / threads * width / ROW_BYTES * times.fetch_cycles / together
    latency = max(0.0, times.fetch_cycles - (tiling.depth - 1) * block * together) / together
    store = rows * columns * 4 / times.far_bytes
    return -(-tiles // target.cores) * (
        blocks * (block + latency) + store + times.start_cycles / together
    )


def _shared_cost(tiling: Tiling, work: _Work, fragment: Fragment, target: Target) -> float | None:
    """As `_cost`, of fragments that read shared memory by themselves while warps go on: products,
    what they read and what fills memory for them hide each other."""
    width, row = fragment.a_dtype.itemsize, SWIZZLED_BYTES // fragment.a_dtype.itemsize
    turned = (work.turns_rows and fragment.m % row, work.turns_columns and fragment.n % row)
    if any(turned) or ((work.turns_rows or work.turns_columns) and not fragment.takes_turned):
        return None
    times = target.group_times
    groups_of_warps = tiling.row_warps * tiling.column_warps
    fragments = tiling.row_fragments * tiling.column_fragments
    rows = tiling.row_warps * tiling.row_fragments * fragment.m
    columns = tiling.column_warps * tiling.column_fragments * fragment.n
    terms = tiling.term_fragments * fragment.k
    threads = groups_of_warps * fragment.lanes
    registers = fragments * fragment.c.count + _OWN_REGISTERS
    registers += _GATHER_REGISTERS if work.gathers_rows or work.gathers_columns else 0
    staged = (rows + columns) * terms * width
    shared = staged * tiling.depth + times.reserved_bytes
    if registers > target.thread_registers or shared > target.most_shared_bytes:
        return None
    groups = min(
        target.core_shared_bytes // (shared + times.reserved_bytes),
        target.core_registers // (registers * threads),
        target.core_threads // threads,
    )
    if groups < 1:
        return None
    tiles = -(-work.sizes[0] // rows) * -(-work.sizes[1] // columns) * work.batches
    blocks = -(-work.sizes[2] // terms)
    together = min(groups, -(-tiles // target.cores))
    products = rows * columns * terms * width / 4 / fragment.rate
    reads = groups_of_warps * fragments * (fragment.m + fragment.n) * terms * width
    near = (reads + staged) / fragment.read_bytes
    gathered = (rows * work.gathers_rows + columns * work.gathers_columns) * terms
    latency = times.latency + staged / times.stream_bytes
    # with room for two blocks only, nothing goes on while a block ends
    ahead, ends = (tiling.depth - 2, 0.0) if tiling.depth > 2 else (1, times.end_cycles)
    share = times.overhead + times.alone_overhead / (groups_of_warps * together)
    block = max(share * max(products, near) + ends, latency / ahead / together)
    block += gathered * target.gather_cycles / target.warp_size
    block += gathered / threads * width / ROW_BYTES * times.fetch_cycles / together
    outside = rows * columns * (4 / times.store_bytes + work.weight / target.core_threads * 16)
    outside += times.start_cycles + latency
    return -(-tiles // target.cores) * (blocks * block + outside / together)
