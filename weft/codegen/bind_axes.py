"""Bind axes: GLOBAL, LOCAL and WARP axes become hardware indices.

In: an expanded kernel. Out: the same kernel as one thread runs it: such axes are SPECIALs (gidx0 is
the group's place along x, lidx0 the thread's in its group), and the threads of a group fill shared
memory together. Sits after expand, because only then it is known what is left to fill, and before
lower_index, because SPECIALs are indices.
Invariant: each element of an output or a stage is written by one thread. Guards of whole nests
depend on the group alone, so that all its threads reach the same barriers.

    STORE(p[i*32 + j], v, i GLOBAL, j LOCAL)  ->  STORE(p[gidx0*32 + lidx0], v)
    STORE(LOCAL[f], w, f: 64)                 ->  STORE(LOCAL[k*32 + lidx0], w, k: 2)
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from dataclasses import dataclass, field

from weft.codegen.loops import FreshAxes, own_axes
from weft.codegen.opt.gpu import nests_of
from weft.codegen.share_reduces import THREAD_KINDS
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.helpers import prod
from weft.machine import Target
from weft.uop.args import AxisType
from weft.uop.node import UOp, sint
from weft.uop.opset import Ops

_BOUND = (AxisType.GLOBAL, *THREAD_KINDS)
_NO_LIMIT = (1 << 31) - 1


def bind_axes(sink: UOp, target: Target) -> UOp:
    """The kernel as one thread of the launch runs it."""
    order = sink.toposort()
    if not any([u.op is Ops.RANGE and u.arg.kind in _BOUND for u in order]):
        return sink
    nests = [_nest(stores) for stores in nests_of(sink)]
    grid = _number([nest.groups for nest in nests], "gidx", target.grid_limits)
    threads = _count_threads(sink, target)
    group = _number([nest.threads for nest in nests], "lidx", target.group_limits, threads)
    return _Binding(sink, nests, grid, group).run()


@dataclass(frozen=True)
class _Nest:
    """Stores that share axes, and the axes of theirs that run at once."""

    stores: list[UOp]
    groups: tuple[UOp, ...]
    threads: tuple[UOp, ...]


def _nest(stores: list[UOp]) -> _Nest:
    axes = own_axes(stores[0])
    groups = [axis for axis in axes if axis.arg.kind is AxisType.GLOBAL]
    threads = [axis for axis in axes if axis.arg.kind is AxisType.LOCAL]
    # the lanes of a warp are neighbours among the threads of a group
    threads += [axis for axis in axes if axis.arg.kind is AxisType.WARP]
    return _Nest(stores, tuple(groups), tuple(threads))


def _count_threads(sink: UOp, target: Target) -> int:
    """The threads of a group: as many as the output or the fill that wants most of them."""
    most = 1
    for node in sink.toposort():
        if node.op is not Ops.STORE:
            continue
        axes = [axis for axis in own_axes(node) if axis.arg.kind in THREAD_KINDS]
        most = max(most, prod(_size(axis) for axis in axes))
        for axis in axes:
            is_whole = target.warp_size % _size(axis) == 0 or _size(axis) % target.warp_size == 0
            if axis.arg.kind is AxisType.WARP and not is_whole:
                raise CompileError(
                    f"axis {axis.arg.number} of size {_size(axis)} is part of a warp, "
                    f"which has {target.warp_size} threads on {target.name}, or of several"
                )
    if most > target.group_threads:
        raise CompileError(
            f"{sink.arg.name} wants {most} threads in a group, "
            f"{target.name} has at most {target.group_threads}"
        )
    return most


# ------------------------------------------------------------ axes -> hardware indices
@dataclass
class _Numbers:
    """Hardware indices of one kind: how groups, or the threads of a group, are numbered."""

    flat: UOp
    total: sint
    values: dict[UOp, UOp] = field(default_factory=dict)  # of the axes
    is_exact: bool = True  # there are no more than `total`


def _number(
    tuples: Sequence[tuple[UOp, ...]], name: str, limits: tuple[int, ...], least: int = 1
) -> _Numbers:
    """The axes of all nests in terms of at most three indices."""
    shapes = {_shape(axes): axes for axes in tuples if axes}
    total = _largest([least, *[_product(shape) for shape in shapes]])
    if len(shapes) == 1 and _product(next(iter(shapes))) == total:
        specials = _direct(next(iter(shapes)), name, limits)
        if specials is not None:
            flat = UOp.const(dtypes.weakint, 0)
            for special, size in zip(specials, next(iter(shapes)), strict=True):
                flat = flat * size + special
            numbers = _Numbers(flat.simplify(), total)
            for axes in tuples:
                numbers.values.update(zip(axes, specials, strict=True) if axes else ())
            return numbers
    numbers = _flat(total, name, limits)
    for axes in tuples:
        count = _product(_shape(axes))
        # threads without work of their own repeat that of others, and store nothing
        repeats = name == "lidx" and count != total
        flat = numbers.flat % count if repeats else numbers.flat
        numbers.values.update(zip(axes, _digits(flat, axes), strict=True))
    return numbers


def _direct(shape: tuple[UOp, ...], name: str, limits: tuple[int, ...]) -> list[UOp] | None:
    """An index per axis, the innermost along x, if there are few enough and they fit."""
    places = range(len(shape) - 1, -1, -1)
    pairs = list(zip(places, shape, strict=True))
    if len(shape) > 3 or any([size.vmax > _limit(limits, place) for place, size in pairs]):
        return None
    return [_special(f"{name}{place}", size) for place, size in pairs]


def _flat(total: sint, name: str, limits: tuple[int, ...]) -> _Numbers:
    """One number, along x; along y too where x is too short."""
    size = total if isinstance(total, UOp) else UOp.const(dtypes.weakint, total)
    most = _limit(limits, 0)
    if size.vmax <= most:
        return _Numbers(_special(f"{name}0", size), total)
    width = most
    if isinstance(total, int):
        # a divisor leaves nobody without work; there are fewer rows to try than widths
        least = -(-total // most)
        whole = next((n for n in range(least, 2 * least) if total % n == 0), 0)
        width = total // whole if whole else most
    rows = ((size + (width - 1)) // width).simplify()
    if rows.vmax > _limit(limits, 1):
        raise CompileError(f"a launch of {size.text()} groups is more than the target can number")
    across = _special(f"{name}0", UOp.const(dtypes.weakint, width))
    flat = _special(f"{name}1", rows) * width + across
    return _Numbers(flat, total, is_exact=isinstance(total, int) and total % width == 0)


def _limit(limits: tuple[int, ...], place: int) -> int:
    return limits[place] if place < len(limits) else _NO_LIMIT


def _special(name: str, size: UOp) -> UOp:
    if size.op is Ops.CONST and size.arg == 1:
        return UOp.const(dtypes.weakint, 0)
    return UOp(Ops.SPECIAL, dtypes.weakint, (size,), name)


def _shape(axes: Sequence[UOp]) -> tuple[UOp, ...]:
    return tuple([axis.src[0] for axis in axes])


def _size(axis: UOp) -> int:
    if axis.src[0].op is not Ops.CONST:
        raise CompileError(
            f"axis {axis.arg.number} of kind {axis.arg.kind.name} needs a constant size, "
            f"found {axis.src[0].text()}"
        )
    return int(axis.src[0].arg)


def _product(sizes: tuple[UOp, ...]) -> sint:
    total: sint = 1
    for size in sizes:
        total = total * (size.arg if size.op is Ops.CONST else size)
    return total.simplify() if isinstance(total, UOp) else total


def _largest(totals: list[sint]) -> sint:
    known = max([total for total in totals if isinstance(total, int)])
    symbolic = dict.fromkeys([total for total in totals if isinstance(total, UOp)])
    largest: UOp | None = None
    for total in symbolic:
        largest = total if largest is None else largest.maximum(total)
    if largest is None:
        return known
    return largest if known == 1 and largest.vmin >= 1 else largest.maximum(known).simplify()


def _digits(flat: UOp, axes: Sequence[UOp]) -> list[UOp]:
    """The values of axes whose iterations are numbered by `flat`, the last axis fastest."""
    digits: list[UOp] = []
    for position in range(len(axes) - 1, -1, -1):
        size = axes[position].src[0]
        digits.append((flat % size if position else flat).simplify())
        flat = flat // size
    return digits[::-1]


# ------------------------------------------------------------ the kernel of one thread
class _Binding:
    """One kernel while its axes are bound."""

    def __init__(self, sink: UOp, nests: list[_Nest], grid: _Numbers, group: _Numbers) -> None:
        self.sink = sink
        self.nests = nests
        self.grid = grid
        self.group = group
        self.fresh = FreshAxes(sink.toposort())
        self.written = {store.src[0].src[0] for store in sink.src}
        self.rounds: dict[UOp, UOp] = {}  # by the first axis of a fill: the loop of each thread
        assert isinstance(group.total, int)
        self.threads = group.total

    def run(self) -> UOp:
        stores: dict[UOp, UOp] = {}
        for nest in self.nests:
            guard = self._guard(nest)
            for store in nest.stores:
                stores[store] = self._bind(store, nest, guard)
        return self.sink.with_src(tuple([stores[store] for store in self.sink.src]))

    def _guard(self, nest: _Nest) -> UOp | None:
        """A loop of 0 or 1 rounds for a nest that fewer groups run than there are."""
        count = _product(_shape(nest.groups))
        if count == self.grid.total and self.grid.is_exact:
            return None
        one, none = UOp.const(dtypes.weakint, 1), UOp.const(dtypes.weakint, 0)
        return self.fresh.make((self.grid.flat < count).where(one, none), AxisType.LOOP)

    def _bind(self, store: UOp, nest: _Nest, guard: UOp | None) -> UOp:
        """A store of an output, done by one of the threads that compute its value."""
        own = own_axes(store)
        conditions = [self.grid.values[axis] < 1 for axis in nest.groups if axis not in own]
        conditions += [self.group.values[axis] < 1 for axis in nest.threads if axis not in own]
        used = prod(_size(axis) for axis in nest.threads)
        if used < self.threads:
            conditions.append(self.group.flat < used)
        done = self._rebuild(store, guard, conditions)
        place = done[store.src[0]]
        for condition in conditions:
            place = _only_if(place, condition)
        loops = [done[axis] for axis in own if axis.arg.kind not in _BOUND]
        bound = place.store(done[store.src[1]], *([] if guard is None else [guard]), *loops)
        return bound.replace(arg=store.arg, tag=store.tag)

    def _rebuild(self, store: UOp, guard: UOp | None, conditions: list[UOp]) -> dict[UOp, UOp]:
        """All parts of a store without the axes that hardware runs.

        Threads that repeat the work of others under `conditions` must not read what those write.
        """
        done: dict[UOp, UOp] = {**self.grid.values, **self.group.values}
        for node in UOp.sink(*store.src).toposort():
            if node in done:
                continue
            src = tuple([done[s] for s in node.src])
            if node.op is Ops.AFTER and node.src[0].arg.memory == "shared":
                done[node] = self._fill(node, done)
                continue
            if node.op is Ops.LOAD and guard is not None and src[0].src[0].op is Ops.PARAM:
                # the guard is always 0; as part of the index it keeps every load behind it
                place = src[0]
                index = place.src[1] + guard.broadcast(place.src[1].dtype.count)
                src = (place.with_src((place.src[0], index, *place.src[2:])),)
            if node.op is Ops.LOAD and src[0].src[0] in self.written:
                src = (functools.reduce(_only_if, conditions, src[0]),)
            done[node] = node if src == node.src else node.with_src(src)
        return done

    # ------------------------------------------------------------ filling memory together
    def _fill(self, node: UOp, done: dict[UOp, UOp]) -> UOp:
        """The fills of a shared memory, spread over the threads of a group."""
        memory, fills = node.src[0], node.src[1:]
        for axis in node.ranges:
            if axis.arg.kind in THREAD_KINDS:
                raise CompileError(
                    f"shared memory cannot differ along axis {axis.arg.number}, which the threads "
                    f"of a group run as {axis.arg.kind.name}: it must be filled as well"
                )
        if not fills:
            return memory
        loops = own_axes(fills[0])
        values, rounds, valid = self._spread(loops)
        stores: list[UOp] = []
        for fill in fills:
            place, value = [done[s].substitute(values) for s in fill.src[:2]]
            if valid is not None:
                place = _only_if(place, valid)
            stores.append(place.store(value, *rounds))
        return memory.after(*stores).rtag(node.tag)

    def _spread(self, loops: tuple[UOp, ...]) -> tuple[dict[UOp, UOp], tuple[UOp, ...], UOp | None]:
        """Values for the axes of a fill, the loop of each thread, and which threads take part.

        Neighbours fill neighbours: thread t of T fills elements t, t + T, t + 2*T ...
        """
        if self.threads == 1:
            return {}, loops, None
        count = prod(_size(axis) for axis in loops)
        number, turns = self.group.flat, -(-count // self.threads)
        rounds: tuple[UOp, ...] = ()
        if turns > 1:
            if loops[0] not in self.rounds:
                size = UOp.const(dtypes.weakint, turns)
                self.rounds[loops[0]] = self.fresh.make(size, AxisType.LOOP)
            rounds = (self.rounds[loops[0]],)
            number = rounds[0] * self.threads + number
        valid = None
        if count % self.threads:
            valid = number < count
            # those without work compute what another one stores
            number = number.minimum(count - 1) if turns > 1 else number % count
        return dict(zip(loops, _digits(number, loops), strict=True)), rounds, valid


def _only_if(place: UOp, condition: UOp) -> UOp:
    """An INDEX that is valid only under one more condition."""
    valid = condition
    if len(place.src) > 2:
        valid = place.src[2] & condition.broadcast(place.src[2].dtype.count)
    return place.with_src((*place.src[:2], valid))
