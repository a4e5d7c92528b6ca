"""Actions: what may be done to the axes of a kernel, each legal or refused.

In: a kernel AST and an axis of it. Out: a kernel AST that computes the same. `apply_opt` applies
an Opt by name; the heuristic and the search use nothing else. Sits between the axes' helpers and
the heuristic.
Invariant: meaning never changes. Where a size does not divide, the last tile of outputs starts
earlier and overlaps (only if the kernel reads no buffer that it writes), else a rest is computed
apart; never a mask in the hot body.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from weft.codegen.opt.axes import (
    LOOP_KINDS,
    closed_axes,
    closers_of,
    find_axis,
    fold_index,
    fresh_axes,
    index_const,
    is_reduced,
    piece,
    replace_axes,
    size_of,
    with_kind,
)
from weft.codegen.opt.chained import use_chain
from weft.codegen.opt.fragments import use_fragments
from weft.codegen.opt.keep import keep
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.outline import Outline, with_applied
from weft.codegen.opt.prefixes import share_prefixes
from weft.codegen.opt.stage import stage
from weft.codegen.opt.strides import Strides
from weft.codegen.opt.sweep import sweep
from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.uop.args import DISTINCT, OVERLAPPING, AxisType, Unordered
from weft.uop.distinct import writes_apart
from weft.uop.infer import CLOSES
from weft.uop.node import UOp
from weft.uop.opset import OPSET, GroupOp, Ops


# ------------------------------------------------------------ split
def split(ast: UOp, axis: UOp, size: int, inner: AxisType, outer: AxisType | None = None) -> UOp:
    """r -> o*size + i; the pieces are numbered (*r, 0) and (*r, 1), a rest (*r, 2).

    divides       STORE(p[r], r: 12) by 4 -> STORE(p[o*4 + i], o: 3, i: 4)
    output        STORE(p[r], r: 10) by 4 -> STORE(p[min(o*4, 6) + i], o: 3, i: 4)
    in place      STORE(p[r], p[r]+1, r: 10) by 4 -> two STOREs, p[o*4 + i] and p[8 + t], t: 2
    run-time size with a rest: n // 4 tiles and n % 4 items; 8*n divides: 2*n tiles
    reduction     REDUCE(x[r], r: 10) by 4 -> REDUCE(x[o*4 + i], o, i) + REDUCE(x[8 + t], t: 2)
    """
    outer = axis.arg.kind if outer is None else outer
    closers = closers_of(ast, axis)
    if _has_whole_tiles(axis, size, closers):
        return _split_whole(ast, axis, size, inner, outer)
    if closers[0].op is Ops.REDUCE:
        return _peel_reduces(ast, axis, size, inner, outer)
    if closers[0].op is Ops.STAGE:
        return _split_row(ast, axis, size, inner, outer)
    if axis.src[0].op is not Ops.CONST or _reads_what_it_writes(ast):
        return _peel_stores(ast, axis, size, inner, outer)
    return _split_whole(ast, axis, size, inner, outer)


def _has_whole_tiles(axis: UOp, size: int, closers: list[UOp]) -> bool:
    """Whether `size` divides an axis that these end; OptError if it cannot be split by it."""
    if axis.arg.kind is AxisType.VECTOR:
        raise OptError(f"axis {axis.arg.number} is the lanes of a vector, which stay together")
    is_staged = closers[0].op is Ops.STAGE
    if axis.src[0].op is not Ops.CONST:
        if is_staged or axis.arg.kind not in LOOP_KINDS or size < 2:
            size_of(axis)  # refuses
        return False
    total = size_of(axis)
    if not 1 <= size <= total:
        raise OptError(f"axis {axis.arg.number} of size {total} cannot be split by {size}")
    if is_staged and any([_is_tiles(stage, axis) for stage in closers]):
        raise OptError(f"axis {axis.arg.number} counts tiles of a row that does not divide")
    return total % size == 0


def _split_whole(ast: UOp, axis: UOp, size: int, inner: AxisType, outer: AxisType) -> UOp:
    """Every tile full; the last one overlaps its neighbour if it must."""
    value, pieces = _tiles_of(axis, size, inner, outer)
    whole = replace_axes(ast, {axis: value}, {axis: pieces})
    if size_of(axis) % size == 0 or closers_of(ast, axis)[0].op is not Ops.STORE:
        return whole
    stores = [
        new.rtag(OVERLAPPING) if axis in closed_axes(old) and writes_apart(old) else new
        for old, new in zip(ast.src, whole.src, strict=True)
    ]
    return whole.with_src(tuple(stores))


def _tiles_of(
    axis: UOp, size: int, inner: AxisType, outer: AxisType
) -> tuple[UOp, tuple[UOp, ...]]:
    """What stands for an axis in full tiles, and the pieces that end where it did."""
    total = size_of(axis)
    rest = piece(axis, 1, index_const(size), inner)
    if size == total:
        # the outer piece would be 0 for ever
        return rest, (rest,)
    tiles = piece(axis, 0, index_const(-(-total // size)), outer)
    start = tiles * size
    if total % size:
        start = start.minimum(index_const(total - size))
    return start + rest, (tiles, rest)


def _split_row(ast: UOp, axis: UOp, size: int, inner: AxisType, outer: AxisType) -> UOp:
    """A row in fast memory: the last tile overlaps, and fills the places that it computes."""
    total = size_of(axis)
    stage, *others = closers_of(ast, axis)
    if others or len(closed_axes(stage)) > 1 or stage.arg.sweep:
        raise OptError(f"a staged axis of size {total} cannot be split by {size}: it must divide")
    row = stage.replace(arg=replace(stage.arg, length=total))
    return _split_whole(ast.substitute({stage: row}), axis, size, inner, outer)


def _is_tiles(stage: UOp, axis: UOp) -> bool:
    """Whether the axis counts the tiles of a row whose last tile overlaps."""
    return stage.arg.length is not None and closed_axes(stage)[0] is axis


def _main_and_rest(
    root: UOp, axis: UOp, size: int, inner: AxisType, outer: AxisType
) -> tuple[UOp, UOp | None]:
    """The expression over the full tiles, and over what is left, if anything can be."""
    total = axis.src[0]
    if total.op is Ops.CONST:
        count, left = index_const(total.arg // size), index_const(total.arg % size)
    else:
        count, left = total // size, (total % size).simplify()
    tiles, item = piece(axis, 0, count, outer), piece(axis, 1, index_const(size), inner)
    main = replace_axes(root, {axis: tiles * size + item}, {axis: (tiles, item)})
    if left.op is Ops.CONST and left.arg == 0:
        return main, None
    # a rest is a loop until someone says otherwise
    kind = outer if outer in LOOP_KINDS else AxisType.LOOP
    rest = piece(axis, 2, left, kind)
    offset = fold_index(count * size)
    return main, replace_axes(root, {axis: rest + offset}, {axis: (rest,)})


def _peel_stores(ast: UOp, axis: UOp, size: int, inner: AxisType, outer: AxisType) -> UOp:
    """STOREs over the full tiles, then the same STOREs over the rest, a nest of its own."""
    others = [a for store in ast.src if axis in closed_axes(store) for a in closed_axes(store)]
    names = fresh_axes(ast, dict.fromkeys(a for a in others if a is not axis))
    stores: list[UOp] = []
    rests: list[UOp] = []
    for store in ast.src:
        if axis not in closed_axes(store):
            stores.append(store)
            continue
        main, rest = _main_and_rest(store, axis, size, inner, outer)
        stores.append(main)
        if rest is not None:
            rests.append(replace_axes(rest, names, {a: (b,) for a, b in names.items()}))
    return ast.with_src((*stores, *rests))


def _peel_reduces(ast: UOp, axis: UOp, size: int, inner: AxisType, outer: AxisType) -> UOp:
    """Each REDUCE over the full tiles, combined with one over the rest."""
    changes: dict[UOp, UOp] = {}
    for reduce in closers_of(ast, axis):
        main, rest = _main_and_rest(reduce, axis, size, inner, outer)
        if rest is None:
            changes[reduce] = main
            continue
        others = [a for a in closed_axes(reduce) if a is not axis]
        if others:
            # the rest is another loop nest, so it has axes of its own
            names = fresh_axes(ast, others)
            rest = replace_axes(rest, names, {a: (b,) for a, b in names.items()})
        changes[reduce] = main.alu(reduce.arg, rest)
    return ast.substitute(changes)


def _reads_what_it_writes(ast: UOp) -> bool:
    """Whether some buffer is both loaded from and stored to: then no element may be done twice."""
    if any([isinstance(store.arg, Unordered) for store in ast.src]):
        return True
    order = ast.toposort()
    written = {u.src[0].src[0] for u in order if u.op is Ops.STORE}
    return any([u.op is Ops.LOAD and u.src[0].src[0] in written for u in order])


# ------------------------------------------------------------ registers and lanes
def _wanted_size(axis: UOp, size: int | None) -> int:
    """0 or nothing means the whole axis."""
    return size_of(axis) if not size else size


def upcast(ast: UOp, axis: UOp, size: int | None = None) -> UOp:
    """Part of an output axis in registers: STORE(p[r], r) -> STORE(p[o*4 + i], o, i UPCAST)."""
    return _cut(ast, axis, size, AxisType.UPCAST)


def unroll(ast: UOp, axis: UOp, size: int | None = None) -> UOp:
    """Part of a reduce axis, an accumulator for each: REDUCE(x, r) -> REDUCE(x, o, i UNROLL)."""
    return _cut(ast, axis, size, AxisType.UNROLL)


def vectorize(ast: UOp, axis: UOp, lanes: int | None = None) -> UOp:
    """Part of an axis as lanes: STORE(p[r], r) by 8 -> STORE(p[o*8 + i], o, i VECTOR).

    Refused if some value would depend on two VECTOR axes.
    """
    return _cut(ast, axis, lanes, AxisType.VECTOR)


def _cut(ast: UOp, axis: UOp, size: int | None, kind: AxisType) -> UOp:
    _check_kind(Outline(ast), axis, kind)
    return split(ast, axis, _wanted_size(axis, size), kind)


def _check_kind(outline: Outline, axis: UOp, kind: AxisType) -> None:
    """OptError if no part of the axis may be copies or lanes, whichever is asked for."""
    number = axis.arg.number
    if kind is AxisType.VECTOR:
        if outline.has_stage_inside(axis):
            raise OptError(f"axis {number} is one that a staged value is placed inside of")
        if outline.meets_lanes(axis):
            raise OptError(
                f"axis {number} meets another VECTOR axis in one expression, which may have one"
            )
        return
    is_reduced = outline.closers(axis)[0].op is Ops.REDUCE
    if is_reduced and kind is AxisType.UPCAST:
        raise OptError(f"axis {number} is reduced: unroll it, only outputs are upcast")
    if not is_reduced and kind is AxisType.UNROLL:
        raise OptError(f"axis {number} is an output: upcast it, only reductions unroll")


# ------------------------------------------------------------ order and number of loops
def swap(ast: UOp, axis: UOp, other: UOp) -> UOp:
    """Two output axes change places: STORE(p, x, i, j) -> STORE(p, x, j, i)."""
    stores: list[UOp] = []
    for store in ast.src:
        ended = closed_axes(store)
        if axis in ended and other in ended:
            exchange = {axis: other, other: axis}
            ended = tuple([exchange.get(a, a) for a in ended])
        elif axis in ended or other in ended:
            raise OptError(
                f"axes {axis.arg.number} and {other.arg.number} are not of the same outputs"
            )
        stores.append(store.with_src((*store.src[:2], *ended)))
    return ast.with_src(tuple(stores))


def uses_of_axes(ast: UOp) -> list[UOp]:
    """All nodes that say how axes are used: who ends them, addresses, values made of indices."""
    return [
        node
        for node in ast.toposort()
        if node.op in CLOSES
        or node.op is Ops.INDEX
        or (
            node.op in GroupOp.Elementwise
            and not _is_index_arithmetic(node)
            and any([_is_index_arithmetic(s) for s in node.src])
        )
    ]


def can_merge(uses: list[UOp], axis: UOp, other: UOp, strides: Strides | None = None) -> bool:
    """Whether both axes only ever appear as axis*size(other) + other, times something."""
    if axis.src[0].op is not Ops.CONST or other.src[0].op is not Ops.CONST:
        return False
    if not all([_end_together(node, axis, other) for node in uses if node.op in CLOSES]):
        return False
    strides = Strides() if strides is None else strides
    size = size_of(other)
    both = {axis, other}
    for node in uses:
        if node.op is Ops.INDEX:
            steps = strides.of(node.src[1])
            first, second = steps.get(axis, 0), steps.get(other, 0)
            if first is None or second is None or first != second * size:
                return False
            if len(node.src) > 2 and not both.isdisjoint(node.src[2].ranges):
                return False
        elif node.op not in CLOSES and any(
            [_is_index_arithmetic(s) and not both.isdisjoint(s.ranges) for s in node.src]
        ):
            return False
    return True


def _end_together(closer: UOp, axis: UOp, other: UOp) -> bool:
    """Whether it ends neither axis, or both, one right after the other, and fills no memory."""
    ended = closed_axes(closer)
    if axis not in ended and other not in ended:
        return True
    if closer.op is Ops.STAGE or axis not in ended:
        return False
    place = ended.index(axis)
    return other in ended and ended.index(other) == place + 1


def _is_index_arithmetic(node: UOp) -> bool:
    return node.dtype.scalar() is dtypes.weakint


def merge(ast: UOp, axis: UOp, other: UOp) -> UOp:
    """Neighbours used only as i*J + j become one: STORE(p[i*J + j], i, j) -> STORE(p[m], m)."""
    if not can_merge(uses_of_axes(ast), axis, other):
        raise OptError(
            f"axes {axis.arg.number} and {other.arg.number} are not used as one axis everywhere"
        )
    if axis.arg.kind is not other.arg.kind:
        raise OptError(f"axes of kinds {axis.arg.kind.name} and {other.arg.kind.name} stay apart")
    whole = UOp(Ops.RANGE, axis.dtype, (index_const(size_of(axis) * size_of(other)),), axis.arg)
    return replace_axes(ast, {axis: index_const(0), other: whole}, {axis: (), other: (whole,)})


def block(ast: UOp, axis: UOp, size: int) -> UOp:
    """A long reduction in two levels, so that rounding errors do not pile up.

    REDUCE(x[q, r, s], q, r, s) by 64 of r -> REDUCE(REDUCE(x[q, o*64 + i, s], i, s), q, o)
    """
    reduces = closers_of(ast, axis)
    total = size_of(axis)
    if any([reduce.op is not Ops.REDUCE for reduce in reduces]):
        raise OptError(f"axis {axis.arg.number} is not reduced")
    if axis.arg.kind is not AxisType.REDUCE or not 1 < size <= total:
        raise OptError(f"axis {axis.arg.number} of size {total} has no blocks of {size}")
    items = axis
    if size < total:
        ast = split(ast, axis, size, axis.arg.kind)
        items = find_axis(ast, (*axis.arg.number, 1))
    changes = {}
    for reduce in closers_of(ast, items):
        ended = closed_axes(reduce)
        after = ended[ended.index(items) :]
        inner = [a for a in after if a.arg.kind is AxisType.REDUCE]
        outer = [a for a in ended if a not in inner]
        if not outer:
            raise OptError("a reduction that is all one block has no second level")
        changes[reduce] = reduce.src[0].reduce(reduce.arg, *inner).reduce(reduce.arg, *outer)
    return ast.substitute(changes)


def thread(outline: Outline, axes: list[UOp], target: Target) -> None:
    """Output axes shared by the cores, as one outermost axis.

    STORE(p[i, j, k], i: 3, j: 4, k) -> STORE(p[t // 4, t % 4, k], t: 12 THREAD, k)
    """
    if not target.has_threads:
        raise OptError(f"target {target.name} has no threads")
    if len(set(axes)) != len(axes):
        raise OptError("an axis can be shared by the cores once")
    if any([closer.op is not Ops.STORE for axis in axes for closer in outline.closers(axis)]):
        raise OptError("only the axes of outputs can be shared by the cores")
    nest = [store for store in outline.ast.src if not set(axes).isdisjoint(outline.ended(store))]
    for store in nest:
        ended = outline.ended(store)
        if any([a.arg.kind is AxisType.THREAD for a in ended]):
            raise OptError("these outputs have a THREAD axis already")
        if any([a not in ended for a in axes]):
            raise OptError("every output of the nest must have the axes that are shared")
    if any([a.arg.kind is not AxisType.LOOP for a in axes]):
        raise OptError("only LOOP axes can be shared by the cores")
    if len(axes) == 1:
        shared = with_kind(axes[0], AxisType.THREAD)
        values = {axes[0]: shared}
    else:
        sizes = [size_of(a) for a in axes]
        total = 1
        for size in sizes:
            total *= size
        shared = UOp(
            Ops.RANGE, axes[0].dtype, (index_const(total),), with_kind(axes[0], AxisType.THREAD).arg
        )
        values = {}
        for i, a in enumerate(axes):
            total //= sizes[i]
            digit = shared // total if total > 1 else shared
            values[a] = digit % sizes[i] if i else digit
    outline.share(values, shared, nest)


# ------------------------------------------------------------ groups of threads
def local(ast: UOp, axis: UOp, size: int, target: Target) -> UOp:
    """Part of an output axis over a group: STORE(p[r], r) -> STORE(p[o*8 + i], o, i LOCAL)."""
    if not target.has_local:
        raise OptError(f"target {target.name} has no groups of threads")
    if is_reduced(ast, axis):
        raise OptError(f"axis {axis.arg.number} is reduced: group it, only outputs are local")
    return split(ast, axis, size, AxisType.LOCAL)


def group(ast: UOp, axis: UOp, size: int, target: Target) -> UOp:
    """Part of a reduce axis over a group: REDUCE(x, r) -> REDUCE(x, o, i GROUP_REDUCE)."""
    if not target.has_local:
        raise OptError(f"target {target.name} has no groups of threads")
    if not is_reduced(ast, axis):
        raise OptError(f"axis {axis.arg.number} is an output: only reductions are grouped")
    return split(ast, axis, size, AxisType.GROUP_REDUCE)


# ------------------------------------------------------------ padding
def pad(ast: UOp, axis: UOp, multiple: int) -> UOp:
    """An axis made longer, the rest masked: r: 10 to a multiple of 4 -> r: 12.

    STORE(p[r], x[r], r) -> STORE(p[r, r < 10], x[r, r < 10], r)
    REDUCE(x[r], r) -> REDUCE(where(r < 10, x[r, r < 10], 0), r)
    """
    total = size_of(axis)
    if multiple < 1 or total % multiple == 0:
        raise OptError(f"axis {axis.arg.number} of size {total} needs no padding to {multiple}")
    if any([closer.op is Ops.STAGE for closer in closers_of(ast, axis)]):
        raise OptError(f"axis {axis.arg.number} fills fast memory and keeps its size")
    size = index_const(-(-total // multiple) * multiple)
    longer = axis.with_src((size,))
    inside = longer < total
    masked: dict[UOp, UOp] = {}
    for node in ast.toposort():
        src = tuple([masked[s] for s in node.src])
        if node is axis:
            masked[node] = longer
            continue
        if node.op is Ops.INDEX and axis in node.ranges:
            valid = inside if len(src) == 2 else src[2] & inside
            src = (src[0], src[1], valid)
        elif node.op is Ops.REDUCE and axis in closed_axes(node):
            src = (inside.where(src[0], identity(node.arg, node.dtype)), *src[1:])
        elif node.op is Ops.STORE and axis in closed_axes(node) and axis not in node.src[0].ranges:
            raise OptError("an output that does not move with the axis cannot be padded")
        masked[node] = node if src == node.src else node.with_src(src)
        if node.op is Ops.STORE and node.tag is None and axis in closed_axes(node):
            # the longer axis does not show that rounds are apart: those that write anything are
            masked[node] = masked[node].rtag(DISTINCT if writes_apart(node) else None)
    return masked[ast]


def identity(op: Ops, dtype: DType) -> UOp:
    """What changes nothing in a reduction."""
    neutral = OPSET[op].identity
    return UOp.const(dtype, dtype.min if neutral is None else neutral)


# ------------------------------------------------------------ by name
def apply_opt(ast: UOp, opt: Opt, target: Target | None = None) -> UOp:
    """The kernel after one action; OptError if it is refused."""
    target = Target() if target is None else target
    outline = Outline(ast)
    if _outlined(outline, opt, target):
        return outline.kernel()
    return with_applied(_act(ast, opt, target), ast, [opt])


def apply_legal(outline: Outline, opts: list[Opt], target: Target) -> Outline:
    """The kernel after those of the actions that are legal.

    The same as `apply_opt` with one after the other, but those in a row that only change how axes
    run are written into the kernel together: each would be a walk over all of it.
    """
    for opt in opts:
        with suppress(OptError):
            if not _outlined(outline, opt, target):
                outline = Outline(outline.kernel())
                outline = Outline(apply_opt(outline.ast, opt, target))
    return outline


def _outlined(outline: Outline, opt: Opt, target: Target) -> bool:
    """Whether the action only changes how axes run, and the outline has it now."""
    if opt.op is OptOps.THREAD:
        names = (opt.axis,) if opt.arg is None else (opt.axis, *_as_tuple(opt.arg))
        axes = [axis for name in names if (axis := outline.find(name)) is not None]
        if len(axes) < len(names):
            return False
        thread(outline, axes, target)
    elif opt.op not in _CUTS or not _cut_whole(outline, opt):
        return False
    outline.opts.append(opt)
    return True


# the actions that cut an axis, and how the inner part runs then; None: as the axis did
_CUTS = {
    OptOps.SPLIT: None,
    OptOps.UPCAST: AxisType.UPCAST,
    OptOps.UNROLL: AxisType.UNROLL,
    OptOps.VECTOR: AxisType.VECTOR,
}


def _cut_whole(outline: Outline, opt: Opt) -> bool:
    """Cut an axis into whole tiles; False if they are not, OptError if it may not run that way."""
    axis, size, inner = outline.find(opt.axis), opt.arg, _CUTS[opt.op]
    if axis is None or isinstance(size, tuple):
        return False
    if inner is not None:
        _check_kind(outline, axis, inner)
        size = _wanted_size(axis, size)
    if size is None or not _has_whole_tiles(axis, size, outline.closers(axis)):
        return False
    inner = _kind_inside(axis) if inner is None else inner
    outline.cut(axis, *_tiles_of(axis, size, inner, axis.arg.kind))
    return True


def _kind_inside(axis: UOp) -> AxisType:
    """How the inner part of a split axis runs: threads share the outer one, each runs the inner."""
    kind: AxisType = axis.arg.kind
    return AxisType.LOOP if kind is AxisType.THREAD else kind


def _act(ast: UOp, opt: Opt, target: Target) -> UOp:
    if opt.op is OptOps.TC:
        return use_fragments(ast, opt, target)
    if opt.op is OptOps.PREFIX:
        return share_prefixes(ast, opt, target)
    if opt.op is OptOps.CHAIN:
        return use_chain(ast, opt, target)
    if opt.op is OptOps.STAGE:
        if not isinstance(opt.axis, int) or not isinstance(opt.arg, tuple):
            raise OptError(f"STAGE needs a buffer's slot and the axes to fill, found {opt!r}")
        axes = [find_axis(ast, name) for name in opt.arg]
        return stage(ast, opt.axis, axes, target)
    if opt.op is OptOps.SWEEP:
        rows = () if opt.arg is None else _as_tuple(opt.arg)
        return sweep(ast, find_axis(ast, opt.axis), [find_axis(ast, n) for n in rows], target)
    axis = find_axis(ast, opt.axis)
    if opt.op in (OptOps.SWAP, OptOps.MERGE):
        if opt.arg is None:
            raise OptError(f"{opt.op.name} needs a second axis")
        other = find_axis(ast, opt.arg)  # type: ignore[arg-type]
        return swap(ast, axis, other) if opt.op is OptOps.SWAP else merge(ast, axis, other)
    if opt.arg is not None and not isinstance(opt.arg, int):
        raise OptError(f"{opt.op.name} needs a size, found {opt.arg!r}")
    if opt.op is OptOps.UPCAST:
        return upcast(ast, axis, opt.arg)
    if opt.op is OptOps.UNROLL:
        return unroll(ast, axis, opt.arg)
    if opt.op is OptOps.VECTOR:
        return vectorize(ast, axis, opt.arg)
    if opt.op is OptOps.KEEP:
        return keep(ast, axis, target)
    if opt.arg is None:
        raise OptError(f"{opt.op.name} needs a size")
    if opt.op is OptOps.SPLIT:
        return split(ast, axis, opt.arg, _kind_inside(axis))
    if opt.op is OptOps.BLOCK:
        return block(ast, axis, opt.arg)
    if opt.op is OptOps.PADTO:
        return pad(ast, axis, opt.arg)
    if opt.op is OptOps.LOCAL:
        return local(ast, axis, opt.arg, target)
    return group(ast, axis, opt.arg, target)


def _as_tuple(arg: int | tuple[int | tuple[int, ...], ...]) -> tuple[int | tuple[int, ...], ...]:
    return (arg,) if isinstance(arg, int) else arg
