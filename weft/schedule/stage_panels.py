"""Stage panels: what a product needs and what is made of it never leave the cache of a core.

What comes in: built kernels. What goes out: the same, but every chain of three (arithmetic, a
product of its result with something else, arithmetic on that) whose matrices have the same columns
is one kernel that does a few columns at a time: Winograd's convolution without its transforms in
memory.
Where it sits: after build, beside stage_rows, before merge.
The one invariant: a value in fast memory is filled for the columns of one panel, all their rows,
and read for those columns only.

    V[c, t] = f(x at c, t);  M[o, t] = sum(U[o, c] * V[c, t], c);  Y[t...] = g(M at some o, t)
    -> for each panel p of 16 columns:  v = STAGE(f(x at c, p + i), c, i)
                                        m = STAGE(sum(U[o, c] * v[c, i], c), o, i)
                                        Y[p + i...] = g(m at some o, i)
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from weft.budgets import PANEL
from weft.machine import Machines, Target
from weft.schedule.build import Built
from weft.schedule.chains import Steps, linear_index, loads_of, replace_chains, sole_sources
from weft.schedule.index import as_index
from weft.uop.args import OVERLAPPING, AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops


def stage_panels(
    kernels: list[Built], homes: dict[UOp, UOp], kept: set[UOp], machines: Machines
) -> list[Built]:
    """The kernels with chains made one; as they were if they would wait for each other then.

    `homes` is the memory of each stored value, `kept` are values that somebody else wants too.
    """
    fused: dict[Built, Built] = {}
    gone: set[Built] = set()
    sources = sole_sources(kernels, kept)
    for last in kernels:
        if last.draft.heavy or last.draft.reductions or len(last.stores) != 1:
            continue
        if last.overwrites:
            # columns of panels that overlap are written twice: they must not be read between
            continue
        for products, middle in sources(last):
            if not middle.draft.heavy or len(middle.stores) != 1 or middle.overwrites:
                continue
            for windows, first in sources(middle):
                if first.draft.reductions or len(first.stores) != 1 or first.overwrites:
                    continue
                chain = _Chain(first, homes[windows], middle, homes[products], last)
                kernel = _Fusion(chain, machines(last.draft.device)).run()
                if kernel is not None and last not in fused and not gone & {first, middle}:
                    kernel.waits = {v: None for v in kernel.waits if v not in (windows, products)}
                    fused[last] = kernel
                    gone |= {first, middle}
    return replace_chains(kernels, fused, gone)


@dataclass(frozen=True)
class _Chain:
    """Three kernels, and the two matrices between them."""

    first: Built
    windows: UOp
    middle: Built
    products: UOp
    last: Built


def _linear(index: UOp) -> tuple[Steps, int] | None:
    """The same of axes whose sizes are known."""
    found = linear_index(index)
    if found is None or any(axis.src[0].op is not Ops.CONST for axis in found[0]):
        return None
    return found


def _size(axis: UOp) -> int:
    return int(axis.src[0].arg)


def _columns_of(steps: Steps, count: int) -> dict[tuple[int, int], UOp] | None:
    """The axes that run over `count` neighbouring columns, by step and size; None if others do."""
    columns: dict[tuple[int, int], UOp] = {}
    width = 1
    for axis, step in sorted(steps.items(), key=lambda item: item[1]):
        if step >= count:
            if step % count:
                return None
            continue
        if step != width:
            return None
        width *= _size(axis)
        columns[step, _size(axis)] = axis
    return columns if width == count else None


class _Fusion:
    """Makes one kernel of a chain; gives up with None where something is not as it should be."""

    def __init__(self, chain: _Chain, target: Target) -> None:
        self.chain = chain
        self.target = target
        self.first = chain.first.stores[0]
        self.middle = chain.middle.stores[0]
        self.last = chain.last.stores[0]
        self.number = chain.last.draft.next_number
        # of the last kernel, by step and size
        self.columns: dict[tuple[int, int], UOp] = {}

    def run(self) -> Built | None:
        """The kernel in place of the three."""
        if not self._match_products() or not self._match_windows():
            return None
        width = next((n for n in (PANEL, PANEL // 2) if n <= _size(self.inner)), None)
        if width is None or not self._is_worth_it(width):
            return None
        self._open_panel(width)
        store = self._store(self._stage_products(self._stage_windows()))
        first, middle, last = self.chain.first, self.chain.middle, self.chain.last
        draft = replace(last.draft, next_number=self.number, heavy=True)
        draft.count += first.draft.count + middle.draft.count
        draft.buffers = first.draft.buffers | middle.draft.buffers | last.draft.buffers
        return Built(
            draft,
            [store],
            {**first.reads, **middle.reads, **last.reads},
            last.overwrites,
            {**first.waits, **middle.waits, **last.waits},
            last.writes,
        )

    # ------------------------------------------------------------ what is what
    def _match_products(self) -> bool:
        """The columns of the product, and the axes of the last kernel that run over them."""
        written = _linear(self.middle.src[0].src[1])
        if written is None or len(self.middle.src[0].src) > 2 or written[1]:
            return False
        found = [axis for axis, step in written[0].items() if step == 1]
        if len(found) != 1 or set(written[0]) != set(self.middle.src[2:]):
            return False
        self.column, self.count = found[0], _size(found[0])
        # whole rows lie one after another: only then are they so in a panel
        if _columns_of(written[0], self.count) is None:
            return False
        self.products: dict[UOp, tuple[Steps, int]] = {}  # loads of the last kernel
        outputs = set(self.last.src[2:])
        for load in loads_of(self.last.src[1], self.chain.products):
            read = _linear(load.src[0].src[1])
            if read is None or len(load.src[0].src) > 2 or not outputs.issuperset(read[0]):
                return False
            columns = _columns_of(read[0], self.count)
            if columns is None or read[1] % self.count:
                return False
            if self.products and columns != self.columns:
                return False
            self.columns = columns
            self.products[load] = read
        if not self.products:
            return False
        self.inner = next(axis for (step, _), axis in self.columns.items() if step == 1)
        return True

    def _match_windows(self) -> bool:
        """The first kernel has the same columns, and the product reads it at its own."""
        written = _linear(self.first.src[0].src[1])
        loads = loads_of(self.middle.src[1], self.chain.windows)
        if written is None or len(loads) != 1 or len(loads[0].src[0].src) > 2 or written[1]:
            return False
        read = _linear(loads[0].src[0].src[1])
        if read is None or read[0].get(self.column) != 1 or read[1]:
            return False
        if any(step % self.count for axis, step in read[0].items() if axis is not self.column):
            return False
        if len(self.first.src[0].src) > 2 or set(written[0]) != set(self.first.src[2:]):
            return False
        columns = _columns_of(written[0], self.count)
        if columns is None or columns.keys() != self.columns.keys():
            return False
        # axes of the first kernel -> axes of the last one
        self.same = {axis: self.columns[key] for key, axis in columns.items()}
        self.load, self.read = loads[0], read[0]
        # the rows of V in the order of memory
        self.rows = sorted(
            [axis for axis in written[0] if axis not in self.same], key=lambda a: -written[0][a]
        )
        return True

    def _is_worth_it(self, width: int) -> bool:
        """Whether the products are more than what is made of them, and whether both panels and what
        they are multiplied with stay near a core."""
        rows = [self.chain.windows, self.chain.products]
        outputs = 1
        for axis in self.last.src[2:]:
            outputs *= _size(axis) if axis.src[0].op is Ops.CONST else 0
        if self.chain.products.arg.size <= outputs:
            return False
        panels = sum(m.arg.size // self.count * width * m.dtype.itemsize for m in rows)
        if panels > self.target.row_room:
            return False
        for load in self.middle.src[1].toposort():
            if load.op is not Ops.LOAD or load is self.load:
                continue
            if self.column in load.ranges or any(
                axis.src[0].op is not Ops.CONST for axis in load.ranges
            ):
                return False
            again = load.dtype.itemsize
            for axis in load.ranges:
                again *= _size(axis)
            if again > self.target.again_bytes:
                return False
        return True

    # ------------------------------------------------------------ the panel
    def _axis(self, size: UOp | int, kind: AxisType = AxisType.LOOP) -> UOp:
        self.number += 1
        return UOp.range(as_index(size), self.number - 1, kind)

    def _open_panel(self, width: int) -> None:
        """Panels along the innermost columns; the last one starts earlier if it must, and repeats
        a few columns."""
        size = _size(self.inner)
        self.width = width
        self.panels: tuple[UOp, ...] = ()
        self.start = as_index(0)
        if size > width:
            panel = self._axis(-(-size // width))
            self.panels = (panel,)
            self.start = panel * width
            if size % width:
                self.start = self.start.minimum(as_index(size - width))

    def _fresh(self, axes: list[UOp]) -> dict[UOp, UOp]:
        return {axis: self._axis(axis.src[0], axis.arg.kind) for axis in axes}

    def _stage_windows(self) -> UOp:
        """The first kernel's value at all rows of a panel."""
        column = self._axis(self.width)
        rows = self._fresh(self.rows)
        changes = {**rows, **self.same}
        moved = next(mine for mine, theirs in self.same.items() if theirs is self.inner)
        changes[moved] = self.start + column
        value = self.first.src[1].substitute(changes)
        ended = [rows[axis] for axis in self.rows]
        return UOp(Ops.STAGE, value.dtype, (value, *ended, column), StageArg(0))

    def _stage_products(self, windows: UOp) -> UOp:
        """The product at all rows of a panel."""
        column = self._axis(self.width)
        written = _linear(self.middle.src[0].src[1])
        assert written is not None
        rows = sorted(
            [axis for axis in written[0] if axis is not self.column], key=lambda a: -written[0][a]
        )
        value = self.middle.src[1]
        inside = [u for u in value.toposort() if u.op is Ops.RANGE and u is not self.column]
        fresh = self._fresh(list(dict.fromkeys([*rows, *inside])))
        place = column
        for axis, step in self.read.items():
            if axis is not self.column:
                place = place + fresh[axis] * (step // self.count * self.width)
        read = windows.index(place).load()
        value = value.substitute({self.load: read, **fresh})
        ended = [fresh[axis] for axis in rows]
        return UOp(Ops.STAGE, value.dtype, (value, *ended, column), StageArg(1))

    def _store(self, products: UOp) -> UOp:
        """The last kernel, panel by panel."""
        column = self._axis(self.width)
        changes: dict[UOp, UOp] = {}
        for load, (steps, constant) in self.products.items():
            place = column + constant // self.count * self.width
            for axis, step in steps.items():
                if step >= self.count:
                    place = place + axis * (step // self.count * self.width)
            changes[load] = products.index(place).load()
        moved = {self.inner: self.start + column}
        place, value, *axes = self.last.src
        value = value.substitute(changes).substitute(moved)
        outer = [axis for axis in axes if axis in self.columns.values() and axis is not self.inner]
        rest = [column if axis is self.inner else axis for axis in axes if axis not in outer]
        store = place.substitute(moved).store(value, *outer, *self.panels, *rest)
        return store.rtag(OVERLAPPING) if _size(self.inner) % self.width else store
