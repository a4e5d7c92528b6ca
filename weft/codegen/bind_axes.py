"""Bind axes: GLOBAL, LOCAL and WARP axes become hardware indices, shared stages get barriers.

In: an expanded kernel. Out: the same kernel where such axes are SPECIALs (gidx0 is x of the group,
lidx0 is x of the thread), where the threads of a group fill shared memory together, and where
BARRIERs stand between filling and reading it. Sits after expand, because only then it is known what
is left to fill; before lower_index, because SPECIALs are indices.
Invariant: each element of an output is written by one thread, and all threads of a group reach the
same barriers: guards of whole nests depend on the group alone, those of stores are validities.

    STORE(p[i*32 + j], v, i GLOBAL, j LOCAL)  ->  STORE(p[gidx0*32 + lidx0], v)
    AFTER(LOCAL, STORE(LOCAL[f], w, f: 64))   ->  AFTER(LOCAL, BARRIER(STORE(LOCAL[k*32 + lidx0], w, k: 2)))
"""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.codegen.loops import FreshAxes, own_axes
from weft.codegen.open_grid import nests_of
from weft.codegen.share_reduces import THREAD_KINDS
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.helpers import prod
from weft.renderer.base import Target
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
    nests = [_Nest(stores) for stores in nests_of(sink)]
    fresh = FreshAxes(order)
    grid = _number([nest.groups for nest in nests], "gidx", target.grid_limits)
    group = _number_threads(nests, sink, target)
    return _Binding(sink, nests, grid, group, fresh).run()


# ------------------------------------------------------------ axes -> hardware indices
@dataclass(eq=False)
class _Nest:
    """Stores that share axes, and the axes of theirs that run at once."""

    stores: list[UOp]
    groups: tuple[UOp, ...] = ()
    threads: tuple[UOp, ...] = ()

    def __post_init__(self) -> None:
        axes = own_axes(self.stores[0])
        self.groups = tuple([a for a in axes if a.arg.kind is AxisType.GLOBAL])
        local = [a for a in axes if a.arg.kind is AxisType.LOCAL]
        # the lanes of a warp are neighbours among the threads of a group
        self.threads = (*local, *[a for a in axes if a.arg.kind is AxisType.WARP])


@dataclass
class _Numbers:
    """Hardware indices of one kind: a number for all, and the value of each axis."""

    flat: UOp
    total: sint
    values: dict[UOp, UOp] = field(default_factory=dict)
    is_exact: bool = True  # the hardware runs no more than `total`


def _number(tuples: list[tuple[UOp, ...]], name: str, limits: tuple[int, ...]) -> _Numbers:
    """The axes of every nest in terms of at most three indices."""
    sizes = [tuple([axis.src[0] for axis in axes]) for axes in tuples if axes]
    direct = _direct(sizes, name, limits) if len(set(sizes)) == 1 else None
    total = _largest([_product(some) for some in sizes])
    if direct is not None:
        specials, flat = direct
        numbers = _Numbers(flat, total)
        for axes in tuples:
            numbers.values.update(zip(axes, specials, strict=True) if axes else ())
        return numbers
    numbers = _flat(total, name, limits)
    for axes in tuples:
        count = _product(tuple([axis.src[0] for axis in axes]))
        # where fewer run than there are, the others repeat what those do, and store nothing
        flat = numbers.flat
        if name == "lidx" and count != total:
            flat = flat % count
        numbers.values.update(zip(axes, _digits(flat, axes), strict=True))
    return numbers


def _direct(
    sizes: list[tuple[UOp, ...]], name: str, limits: tuple[int, ...]
) -> tuple[list[UOp], UOp] | None:
    """An index per axis, the innermost along x, if there are few enough and they fit."""
    first = sizes[0]
    places = range(len(first) - 1, -1, -1)
    if len(first) > 3 or any(
        [size.vmax > _limit(limits, place) for place, size in zip(places, first, strict=True)]
    ):
        return None
    specials = [_special(f"{name}{p}", size) for p, size in zip(places, first, strict=True)]
    flat = UOp.const(dtypes.weakint, 0)
    for special, size in zip(specials, first, strict=True):
        flat = flat * size + special
    return specials, flat.simplify()


def _flat(total: sint, name: str, limits: tuple[int, ...]) -> _Numbers:
    """One number, along x; along y too where x is too short."""
    size = total if isinstance(total, UOp) else UOp.const(dtypes.weakint, total)
    most = _limit(limits, 0)
    if size.vmax <= most:
        return _Numbers(_special(f"{name}0", size), total)
    width = most
    if isinstance(total, int):
        # a divisor leaves nobody without work, if it is not too far below
        width = next((n for n in range(most, most // 2, -1) if total % n == 0), most)
    rows = ((size + (width - 1)) // width).simplify()
    if rows.vmax > _limit(limits, 1):
        raise CompileError(f"a launch of {size.render()} groups is more than the target can number")
    across = _special(f"{name}0", UOp.const(dtypes.weakint, width))
    flat = _special(f"{name}1", rows) * width + across
    return _Numbers(flat, total, is_exact=isinstance(total, int) and total % width == 0)


def _number_threads(nests: list[_Nest], sink: UOp, target: Target) -> _Numbers:
    """All threads of a group: as many as the nest or the fill that wants most of them."""
    counts = [1]
    fills: list[tuple[UOp, ...]] = []
    for node in sink.toposort():
        if node.op is Ops.STORE:
            axes = tuple([a for a in own_axes(node) if a.arg.kind in THREAD_KINDS])
            counts.append(prod(_size(axis) for axis in axes))
            if any([a.arg.kind is AxisType.WARP and target.warp_size % _size(a) for a in axes]):
                raise CompileError(f"a WARP axis divides {target.warp_size}, the target's warp")
            if node not in sink.src and axes:
                fills.append(axes)
    total = max(counts)
    if total > target.group_threads:
        raise CompileError(
            f"{sink.arg.name} wants {total} threads in a group, "
            f"{target.name} has at most {target.group_threads}"
        )
    tuples = [nest.threads for nest in nests]
    if total > max([prod(_size(axis) for axis in axes) for axes in tuples], default=1):
        # some fill wants more threads than any output: threads have numbers, not places
        numbers = _flat(total, "lidx", target.group_limits)
        for axes in tuples:
            count = prod(_size(axis) for axis in axes)
            flat = numbers.flat if count == total else numbers.flat % count
            numbers.values.update(zip(axes, _digits(flat, axes), strict=True))
        return numbers
    return _number(tuples, "lidx", target.group_limits)


def _limit(limits: tuple[int, ...], place: int) -> int:
    return limits[place] if place < len(limits) else _NO_LIMIT


def _special(name: str, size: UOp) -> UOp:
    if size.op is Ops.CONST and size.arg == 1:
        return UOp.const(dtypes.weakint, 0)
    return UOp(Ops.SPECIAL, dtypes.weakint, (size,), name)


def _size(axis: UOp) -> int:
    if axis.src[0].op is not Ops.CONST:
        raise CompileError(
            f"axis {axis.arg.number} of kind {axis.arg.kind.name} needs a constant size, "
            f"found {axis.src[0].render()}"
        )
    return int(axis.src[0].arg)


def _product(sizes: tuple[UOp, ...]) -> sint:
    total: sint = 1
    for size in sizes:
        total = total * (size.arg if size.op is Ops.CONST else size)
    return total.simplify() if isinstance(total, UOp) else total


def _largest(totals: list[sint]) -> sint:
    known = max([total for total in totals if isinstance(total, int)], default=1)
    largest: sint = known
    for total in dict.fromkeys([total for total in totals if isinstance(total, UOp)]):
        largest = total.maximum(largest)
    return largest.simplify() if isinstance(largest, UOp) else largest


def _digits(flat: UOp, axes: tuple[UOp, ...]) -> list[UOp]:
    """The values of axes whose iterations are numbered from `flat` on, the last axis fastest."""
    digits: list[UOp] = []
    for axis in reversed(axes):
        size = axis.src[0]
        is_first = len(digits) == len(axes) - 1
        digits.append((flat if is_first else flat % size).simplify())
        flat = flat // size
    return digits[::-1]


# ------------------------------------------------------------ the kernel of one thread
class _Binding:
    def __init__(
        self, sink: UOp, nests: list[_Nest], grid: _Numbers, group: _Numbers, fresh: FreshAxes
    ) -> None:
        self.sink = sink
        self.nests = nests
        self.grid = grid
        self.group = group
        self.fresh = fresh
        self.rounds: dict[UOp, UOp] = {}  # by the first axis of a fill: its loop
        assert isinstance(group.total, int)
        self.threads = group.total

    def run(self) -> UOp:
        stores: dict[UOp, UOp] = {}
        for nest in self.nests:
            guard = self._guard(nest)
            for store in nest.stores:
                stores[store] = self._bind(store, nest, guard)
        bound = self.sink.with_src(tuple([stores[store] for store in self.sink.src]))
        return _add_barriers(bound) if self.threads > 1 else bound

    def _guard(self, nest: _Nest) -> UOp | None:
        """A loop of 0 or 1 rounds for a nest that fewer groups run than there are."""
        count = _product(tuple([axis.src[0] for axis in nest.groups]))
        if count == self.grid.total and self.grid.is_exact:
            return None
        one, none = UOp.const(dtypes.weakint, 1), UOp.const(dtypes.weakint, 0)
        return self.fresh.make((self.grid.flat < count).where(one, none), AxisType.LOOP)

    def _bind(self, store: UOp, nest: _Nest, guard: UOp | None) -> UOp:
        """A store of an output, done by one of the threads that compute its value."""
        own = own_axes(store)
        conditions = [
            values[axis] < 1
            for axes, values in (
                (nest.groups, self.grid.values),
                (nest.threads, self.group.values),
            )
            for axis in axes
            if axis not in own
        ]
        used = prod(_size(axis) for axis in nest.threads)
        if used < self.threads:
            conditions.append(self.group.flat < used)
        place, value = self._rebuilt(store, guard)
        for condition in conditions:
            valid = condition if len(place.src) < 3 else place.src[2] & condition
            place = place.with_src((*place.src[:2], valid))
        loops = [axis for axis in own if axis.arg.kind not in _BOUND]
        return place.store(value, *([] if guard is None else [guard]), *loops)

    def _rebuilt(self, store: UOp, guard: UOp | None) -> tuple[UOp, UOp]:
        """Index and value of a store without the axes that hardware runs."""
        done: dict[UOp, UOp] = {**self.grid.values, **self.group.values}
        for node in UOp.sink(*store.src[:2]).toposort():
            if node in done:
                continue
            if node.op is Ops.AFTER and node.src[0].arg.memory == "shared":
                done[node] = self._fill(node, done)
                continue
            src = tuple([done[s] for s in node.src])
            if node.op is Ops.LOAD and guard is not None and src[0].src[0].op is Ops.PARAM:
                # the guard is always 0; as part of the index it keeps every load behind it
                place = src[0]
                src = (place.with_src((place.src[0], place.src[1] + guard, *place.src[2:])),)
            done[node] = node if src == node.src else node.with_src(src)
        return done[store.src[0]], done[store.src[1]]

    # ------------------------------------------------------------ filling memory together
    def _fill(self, node: UOp, done: dict[UOp, UOp]) -> UOp:
        """The fills of a shared memory, spread over the threads of a group, neighbours together."""
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
        count = prod(_size(axis) for axis in loops)
        if self.threads == 1 or not loops:
            # without loops all threads would write the same elements: one does
            valid = self.group.flat < 1 if self.threads > 1 else None
            values, rounds = {axis: axis for axis in loops}, loops
        else:
            values, rounds, valid = self._spread(loops, count)
        stores = [self._fill_store(fill, values, rounds, valid, done) for fill in fills]
        return memory.after(*stores)

    def _spread(
        self, loops: tuple[UOp, ...], count: int
    ) -> tuple[dict[UOp, UOp], tuple[UOp, ...], UOp | None]:
        """Values for the axes of a fill, the loop of each thread, and which threads take part."""
        number, rounds = self.group.flat, -(-count // self.threads)
        ended: tuple[UOp, ...] = ()
        if rounds > 1:
            if loops[0] not in self.rounds:
                size = UOp.const(dtypes.weakint, rounds)
                self.rounds[loops[0]] = self.fresh.make(size, AxisType.LOOP)
            ended = (self.rounds[loops[0]],)
            number = ended[0] * self.threads + number
        valid = None
        if count % self.threads:
            valid = number < count
            # those without work compute what another one stores
            number = number.minimum(count - 1) if rounds > 1 else number % count
        return dict(zip(loops, _digits(number, loops), strict=True)), ended, valid

    def _fill_store(
        self,
        fill: UOp,
        values: dict[UOp, UOp],
        rounds: tuple[UOp, ...],
        valid: UOp | None,
        done: dict[UOp, UOp],
    ) -> UOp:
        changes = {axis: value for axis, value in values.items() if axis is not value}
        # done already holds the kernel without bound axes; the fill's own are still in it
        place, value = [done[s].substitute(changes) for s in fill.src[:2]]
        if valid is not None:
            both = valid if len(place.src) < 3 else place.src[2] & valid
            place = place.with_src((*place.src[:2], both))
        return place.store(value, *rounds)


# ------------------------------------------------------------ barriers
def _add_barriers(sink: UOp) -> UOp:
    """A barrier after each fill of shared memory, and before it where it happens again.

    Fills at one level that do not wait for each other share their barriers.
    """
    order = sink.toposort()
    rank: dict[UOp, int] = {}
    levels: dict[tuple[frozenset[UOp], int], list[UOp]] = {}
    for node in order:
        below = max([rank[s] for s in node.src], default=0)
        if _is_shared(node):
            levels.setdefault((node.ranges, below), []).append(node)
            below += 1
        rank[node] = below
    done: dict[UOp, UOp] = {}
    waiting: dict[UOp, list[UOp]] = {node: group for group in levels.values() for node in group}
    filled: dict[UOp, list[UOp]] = {}
    # a group's fills are rebuilt together, when the last of them comes up
    ready = sorted(order, key=lambda u: rank[u] - (u in waiting))
    for node in _in_ranks(ready, rank, waiting):
        if node not in waiting:
            src = tuple([done[s] for s in node.src])
            done[node] = node if src == node.src else node.with_src(src)
            continue
        group = waiting[node]
        if node not in filled:
            stores = {other: _fills_after_barrier(other, done) for other in group}
            filled.update(stores)
            barrier = UOp(
                Ops.BARRIER, dtypes.void, tuple(dict.fromkeys(sum(stores.values(), [])))
            )
            for other in group:
                done[other] = other.src[0].after(barrier)
    return done[sink]
