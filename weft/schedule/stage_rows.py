"""Stage rows: a product that is normalised row by row and multiplied again is never stored.

What comes in: built kernels. What goes out: the same, but every chain of three (a product, a
kernel over its rows, a product with the result) is one kernel that does a few rows at a time:
attention without the matrix of scores.
Where it sits: after build, before merge.
The one invariant: a value in fast memory is filled for the rows of one tile, all their elements
side by side, and read for those rows only.

    S[q, k] = sum(Q[q, e] * K[k, e], e);  P[q, k] = f(S[q, k], rows of S);  O = sum(P * V[k, d], k)
    -> for each tile of rows o:  s = STAGE(S[o*16 + i, k], k, i);  p = STAGE(f(s), k, i)
                                 O[o*16 + i, d] = sum(p[k, i] * V[k, d], k)

Rows lie side by side, so that one element of sixteen rows is a vector: maxima and sums of rows
need no sums over lanes, and neither K nor V has to be turned round. Where a mask says that nothing
behind an element of a row counts (causal attention), the loops end there.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from weft.budgets import PANEL
from weft.dtype import dtypes
from weft.machine import Machines, Target
from weft.schedule.build import Built
from weft.schedule.chains import Steps, linear_index, loads_of, replace_chains, sole_sources
from weft.schedule.index import as_index
from weft.uop.args import OVERLAPPING, AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# rows of a tile, and elements of a row that are filled together
ROWS = WIDTH = PANEL


def stage_rows(
    kernels: list[Built], homes: dict[UOp, UOp], kept: set[UOp], machines: Machines
) -> list[Built]:
    """The kernels with chains made one; as they were if they would wait for each other then.

    `homes` is the memory of each stored value, `kept` are values that somebody else wants too.
    """
    fused: dict[Built, Built] = {}
    gone: set[Built] = set()
    for chain in _find_chains(kernels, kept):
        kernel = _Fusion(chain, homes, machines(chain.last.draft.device)).run()
        if kernel is not None:
            fused[chain.last] = kernel
            gone |= {chain.first, chain.middle}
    return replace_chains(kernels, fused, gone)


@dataclass(frozen=True)
class _Chain:
    """Three kernels, and the two matrices between them."""

    first: Built
    scores: UOp
    middle: Built
    weights: UOp
    last: Built


def _find_chains(kernels: list[Built], kept: set[UOp]) -> list[_Chain]:
    only_source = sole_sources(kernels, kept)
    chains = []
    for last in kernels:
        if not last.draft.heavy or len(last.stores) != 1 or last.overwrites:
            continue
        for weights, middle in only_source(last):
            if middle.draft.heavy or not middle.draft.reductions or len(middle.stores) != 1:
                continue
            for scores, first in only_source(middle):
                if first.draft.heavy and len(first.stores) == 1:
                    chains.append(_Chain(first, scores, middle, weights, last))
    return chains


# ------------------------------------------------------------ indices as sums
def _steps(index: UOp) -> Steps | None:
    """The step of each axis in a plain sum with no constant; None for anything else."""
    found = linear_index(index)
    return None if found is None or found[1] else found[0]


def _matched(reader: UOp, writer: UOp) -> dict[UOp, UOp] | None:
    """The axes of a writer, each with the axis of the reader that stands in its place."""
    read, written = _steps(reader), _steps(writer)
    if read is None or written is None or len(read) != len(written):
        return None
    by_step = {step: axis for axis, step in read.items()}
    pairs = {axis: by_step.get(step) for axis, step in written.items()}
    if any(other is None or other.src[0] is not axis.src[0] for axis, other in pairs.items()):
        return None
    return {axis: other for axis, other in pairs.items() if other is not None}


def _reduces(value: UOp) -> list[UOp]:
    return [u for u in value.toposort() if u.op is Ops.REDUCE]


# ------------------------------------------------------------ one chain
class _Fusion:
    """Makes one kernel of a chain; gives up with None where something is not as it should be."""

    def __init__(self, chain: _Chain, homes: dict[UOp, UOp], target: Target) -> None:
        self.chain = chain
        self.target = target
        self.store = chain.last.stores[0]
        self.middle = chain.middle.stores[0]
        self.first = chain.first.stores[0]
        self.weights = homes[chain.weights]
        self.scores = homes[chain.scores]
        self.number = chain.last.draft.next_number
        self.stages = 0

    def run(self) -> Built | None:
        """The kernel in place of the three."""
        if not self._match() or not self._is_worth_it():
            return None
        self._open_tile()
        rows = self._stage_scores()
        if rows is None:
            return None
        store = self._multiply(*rows)
        first, middle, last = self.chain.first, self.chain.middle, self.chain.last
        inner = {self.chain.scores, self.chain.weights}
        waits = {**first.waits, **middle.waits, **last.waits}
        draft = replace(last.draft, next_number=self.number)
        draft.count += first.draft.count + middle.draft.count
        draft.buffers = first.draft.buffers | middle.draft.buffers | last.draft.buffers
        return Built(
            draft,
            [store],
            {**first.reads, **middle.reads, **last.reads},
            last.overwrites,
            {value: None for value in waits if value not in inner},
            last.writes,
        )

    def _axis(self, size: UOp | int, kind: AxisType = AxisType.LOOP) -> UOp:
        self.number += 1
        return UOp.range(as_index(size), self.number - 1, kind)

    def _stage(self, value: UOp, *axes: UOp) -> UOp:
        self.stages += 1
        return UOp(Ops.STAGE, value.dtype, (value, *axes), StageArg(self.stages - 1))

    # ------------------------------------------------------------ what is what
    def _match(self) -> bool:
        """Find the sum of the last kernel, and which axis is the row and which its elements."""
        loads = loads_of(self.store.src[1], self.weights)
        sums = [r for r in _reduces(self.store.src[1]) if loads and loads[0] in r.toposort()]
        if len(loads) != 1 or len(sums) != 1 or len(loads[0].src[0].src) > 2:
            return False
        self.load, self.sum = loads[0], sums[0]
        axes = _matched(self.load.src[0].src[1], self.middle.src[0].src[1])
        if axes is None or self.sum.arg is not Ops.ADD or len(self.sum.src) != 2:
            return False
        # axes of the middle kernel -> axes of the last one
        self.outer = {
            mine: theirs for mine, theirs in axes.items() if theirs is not self.sum.src[1]
        }
        across = [mine for mine, theirs in axes.items() if theirs is self.sum.src[1]]
        outputs = set(self.store.src[2:])
        if len(across) != 1 or not outputs.issuperset(self.outer.values()):
            return False
        self.element = across[0]
        if self.element.src[0].op is not Ops.CONST:
            return False
        return self._match_scores() and self._find_row()

    def _match_scores(self) -> bool:
        """Every read of the scores is of the same row; at which axis each of them is."""
        self.reads: dict[UOp, UOp] = {}  # element axis in the middle kernel -> its load
        for load in loads_of(self.middle.src[1], self.scores):
            axes = _matched(load.src[0].src[1], self.first.src[0].src[1])
            if axes is None or len(load.src[0].src) > 2:
                return False
            others = {axis for axis in axes.values() if axis not in self.outer}
            if len(others) != 1 or len(axes) != len(self.outer) + 1:
                return False
            self.reads[others.pop()] = load
            self.axes_of_scores = axes
        return self.element in self.reads

    def _find_row(self) -> bool:
        """The row axis: an axis that neither K nor V depends on."""
        back = {theirs: mine for mine, theirs in self.axes_of_scores.items()}
        self.first_outer = {back[mine]: theirs for mine, theirs in self.outer.items()}
        known = set(self.outer)
        self.first_element = next(a for a in self.first.src[2:] if a not in self.first_outer)
        if not known:
            return False
        factors = _factors(self.sum, self.load)
        products = [_product(r) for r in _reduces(self.first.src[1])]
        if factors is None or len(products) != 1 or products[0] is None:
            return False
        self.factor = factors
        for mine, theirs in self.outer.items():
            size = theirs.src[0]
            if size.op is not Ops.CONST or size.arg < ROWS or theirs in factors.ranges:
                continue
            row = back[mine]
            left, right = products[0].src
            if (row in left.ranges) != (row in right.ranges):
                self.row, self.row_size = theirs, int(size.arg)
                self.keys = right if row in left.ranges else left
                return True
        return False

    def _is_worth_it(self) -> bool:
        size = int(self.element.src[0].arg)
        if size < WIDTH or 2 * size * ROWS * self.scores.dtype.itemsize > self.target.row_room:
            return False
        batch = set(self.outer.values()) - {self.row}
        again = 0
        for value, axes in ((self.factor, batch), (self.keys, self._in_first(batch))):
            per_batch = [axis for axis in value.ranges if axis not in axes]
            if any(axis.src[0].op is not Ops.CONST for axis in per_batch):
                return False
            again = max(again, math.prod(a.src[0].arg for a in per_batch) * value.dtype.itemsize)
        return again <= self.target.again_bytes

    def _in_first(self, axes: set[UOp]) -> set[UOp]:
        return {mine for mine, theirs in self.first_outer.items() if theirs in axes}

    # ------------------------------------------------------------ the tile
    def _open_tile(self) -> None:
        """Tiles of rows; the last one starts earlier if it must, and repeats a few rows."""
        size = self.row_size
        self.tiles: tuple[UOp, ...] = ()
        self.start = as_index(0)
        if size > ROWS:
            tiles = self._axis(-(-size // ROWS))
            self.tiles = (tiles,)
            last = as_index(size - ROWS)
            self.start = tiles * ROWS if size % ROWS == 0 else (tiles * ROWS).minimum(last)
        self.count: UOp | int = int(self.element.src[0].arg)

    def _fill_axes(self) -> tuple[UOp, UOp, UOp, UOp]:
        """Axes that fill a row: blocks, elements of a block, rows; and the element they name.

        Blocks are whole: behind the last element comes that element again, which nobody reads.
        """
        size = int(self.element.src[0].arg)
        count = as_index(self.count)
        blocks = ((count + (WIDTH - 1)) // WIDTH).simplify()
        block, item, row = self._axis(blocks), self._axis(WIDTH), self._axis(ROWS)
        element = block * WIDTH + item
        if size % WIDTH:
            element = element.minimum(as_index(size - 1))
        return block, item, row, element

    def _read(self, stage: UOp, element: UOp, row: UOp) -> UOp:
        return stage.index(element * ROWS + row).load()

    def _stage_scores(self) -> tuple[UOp, UOp | None, Ops | None] | None:
        """What is multiplied with V, in fast memory; and a divisor or factor of whole rows."""
        value = self.middle.src[1]
        part = self._common_part(value)
        if part is None:
            return None
        inside = {axis: self._axis(axis.src[0], axis.arg.kind) for axis in self._own_axes(value)}
        self._end_early(value, part)
        for axis in self.reads:
            if axis is not self.element:
                inside[axis] = self._axis(self.count, AxisType.REDUCE)
        block, item, row, element = self._fill_axes()
        scores = self._stage(self._scores_at(part, element, row), block, item, row)

        def weights_at(element: UOp, row: UOp) -> UOp:
            """The middle kernel's value at an element of a row of the tile."""
            names = {**inside, self.element: element}
            changes = self._at_row(row) | names
            for axis in self.reads:
                same = part if axis is self.element else part.substitute({self.element: axis})
                changes[same] = self._read(scores, names[axis], row)
            return value.substitute(changes)

        return self._stage_weights(weights_at)

    def _own_axes(self, value: UOp) -> list[UOp]:
        axes = [u for u in value.toposort() if u.op is Ops.RANGE]
        return [axis for axis in axes if axis not in self.outer and axis is not self.element]

    def _at_row(self, row: UOp) -> dict[UOp, UOp]:
        """The axes of the middle kernel, at a row of the tile."""
        return {
            mine: self.start + row if theirs is self.row else theirs
            for mine, theirs in self.outer.items()
        }

    def _scores_at(self, part: UOp, element: UOp, row: UOp) -> UOp:
        """The first kernel's value, with what all its readers do to it, at an element of a row."""
        changes = {
            mine: self.start + row if theirs is self.row else theirs
            for mine, theirs in self.first_outer.items()
        }
        changes[self.first_element] = element
        for axis in self.first.src[1].toposort():
            if axis.op is Ops.RANGE and axis not in changes:
                changes[axis] = self._axis(axis.src[0], axis.arg.kind)
        score = self.first.src[1].substitute(changes)
        names = self._at_row(row) | {self.element: element, self.reads[self.element]: score}
        return part.substitute(names)

    def _common_part(self, value: UOp) -> UOp | None:
        """The largest expression around the score that all its readers compute."""
        order = value.toposort()
        others = [axis for axis in self.reads if axis is not self.element]
        score = self.reads[self.element]
        best = None
        above: set[UOp] = {score}  # what is made of the score, and of no whole row
        rows: set[UOp] = set()
        for node in order:
            if node.op is Ops.REDUCE or any(s in rows for s in node.src):
                rows.add(node)
                continue
            if node is not score and not any(s in above for s in node.src):
                continue
            above.add(node)
            if node is not score and node.op not in GroupOp.Elementwise:
                continue
            if node.dtype in dtypes.weaks:
                continue
            copies = [node.substitute({self.element: axis}) for axis in others]
            if all(copy in order for copy in copies) and self._covers(value, [node, *copies]):
                best = node
        return best

    def _covers(self, value: UOp, parts: list[UOp]) -> bool:
        """Whether the scores are read by way of these parts only."""
        left = value.toposort(gate=lambda u: u not in parts)
        return not any(load in left and load not in parts for load in self.reads.values())

    # ------------------------------------------------------------ normalised rows
    def _stage_weights(
        self, weights_at: Callable[[UOp, UOp], UOp]
    ) -> tuple[UOp, UOp | None, Ops | None]:
        """The rows that V is multiplied with, and what whole rows are divided by or scaled with."""
        block, item, row, element = self._fill_axes()
        value = weights_at(element, row)
        order = value.toposort()
        summed = None
        for reduce in _reduces(value):
            if len(reduce.src) == 2 and reduce.src[0].op in GroupOp.Elementwise:
                if reduce.src[0].substitute({reduce.src[1]: element}) in order:
                    summed = reduce
        if summed is None:
            return self._stage(value, block, item, row), None, None
        # what is summed and what is multiplied with V are the same rows: computed once
        power = summed.src[0].substitute({summed.src[1]: element})
        powers = self._stage(power, block, item, row)
        is_scaled = value.op in (Ops.FDIV, Ops.MUL) and value.src[0] is power
        if is_scaled and not self._depends_on_element(value.src[1], block, item):
            if self.factor_is_plain:
                other = self._axis(ROWS)
                total = self._with_powers(value.src[1], summed, powers, row, other)
                return powers, self._stage(total, other), value.op
        after = self._fill_axes()
        changed = weights_at(after[3], after[2])
        names = {
            summed.src[0].substitute({row: after[2]}): self._read(powers, summed.src[1], after[2])
        }
        names[power.substitute({element: after[3], row: after[2]})] = self._read(
            powers, after[3], after[2]
        )
        return self._stage(changed.substitute(names), *after[:3]), None, None

    def _depends_on_element(self, value: UOp, block: UOp, item: UOp) -> bool:
        return not value.ranges.isdisjoint((block, item))

    def _with_powers(self, total: UOp, summed: UOp, powers: UOp, row: UOp, other: UOp) -> UOp:
        """The divisor of a row, its terms read from fast memory."""
        again = self._axis(self.count, AxisType.REDUCE)
        new = self._read(powers, again, other).reduce(summed.arg, again)
        return total.substitute({summed: new, row: other})

    # ------------------------------------------------------------ the last product
    def _multiply(self, rows: UOp, scale: UOp | None, how: Ops | None) -> UOp:
        row, across = self._axis(ROWS), self._axis(self.count, AxisType.REDUCE)
        place, value, *axes = self.store.src
        read = self._read(rows, across, row)
        total = self.sum.src[0].substitute({self.load: read, self.sum.src[1]: across})
        total = total.reduce(Ops.ADD, across)
        if scale is not None and how is not None:
            total = total.alu(how, scale.index(row).load())
        moved = {self.row: self.start + row}
        value = value.substitute({self.sum: total}).substitute(moved)
        batch = [axis for axis in axes if axis in self.outer.values() and axis is not self.row]
        rest = [row if axis is self.row else axis for axis in axes if axis not in batch]
        store = place.substitute(moved).store(value, *batch, *self.tiles, *rest)
        return store.rtag(OVERLAPPING) if self.row_size % ROWS and self.tiles else store

    @property
    def factor_is_plain(self) -> bool:
        """Whether the sum is of products with the weights as they are, not converted."""
        terms = self.sum.src[0]
        return terms.op is Ops.MUL and self.load in terms.src

    # ------------------------------------------------------------ rows that end early
    def _end_early(self, value: UOp, part: UOp) -> None:
        """Elements of a row that no row of a tile sees are not computed."""
        distance = self._last_seen(part)
        if distance is None or distance < 0 or not self._vanishes(value, part):
            return
        size = int(self.element.src[0].arg)
        last = (self.start + (ROWS + distance)).simplify()
        self.count = last if last.vmax <= size else last.minimum(as_index(size))

    def _last_seen(self, part: UOp) -> int | None:
        """How far behind its row an element counts: c of x + where(row + c < element, -inf, 0)."""
        masks = [part, *part.src] if part.op is Ops.ADD else [part]
        for mask in masks:
            if mask.op is not Ops.WHERE or mask.src[0].op is not Ops.CMPLT:
                continue
            if not _is_minus_infinity(mask.src[1]):
                continue
            row = next(mine for mine, theirs in self.outer.items() if theirs is self.row)
            left, right = (_axis_and_offset(side) for side in mask.src[0].src)
            if left is not None and right is not None:
                if left[0] is row and right[0] is self.element:
                    return left[1] - right[1]
        return None

    def _vanishes(self, value: UOp, part: UOp) -> bool:
        """Whether a score of minus infinity changes no maximum and no sum, and becomes a zero."""
        low: set[UOp] = set()
        zero: set[UOp] = set()
        for axis in self.reads:
            low.add(part if axis is self.element else part.substitute({self.element: axis}))
        for node in value.toposort():
            if node.op is Ops.ADD and any(s in low for s in node.src):
                low.add(node)
            elif node.op is Ops.MUL and node.src[0] in low and _is_positive(node.src[1]):
                low.add(node)
            elif node.op is Ops.EXP2 and node.src[0] in low:
                zero.add(node)
            elif node.op in (Ops.FDIV, Ops.MUL) and node.src[0] in zero:
                zero.add(node)
            elif node.op is Ops.REDUCE:
                fine = low if node.arg is Ops.MAX else zero if node.arg is Ops.ADD else set()
                if node.src[0] not in fine:
                    return False
        return value in zero


def _product(reduce: UOp) -> UOp | None:
    """The product that a sum is of, perhaps converted."""
    terms = reduce.src[0]
    while terms.op is Ops.CAST:
        terms = terms.src[0]
    return terms if terms.op is Ops.MUL else None


def _factors(reduce: UOp, load: UOp) -> UOp | None:
    """In a sum of products, what the load is multiplied with."""
    product = _product(reduce)
    if product is None:
        return None
    left, right = product.src
    if load in left.toposort():
        return right if load not in right.toposort() else None
    return left


def _is_minus_infinity(node: UOp) -> bool:
    return node.op is Ops.CONST and node.arg == -math.inf


def _is_positive(node: UOp) -> bool:
    return node.op is Ops.CONST and 0 < node.arg < math.inf


def _axis_and_offset(node: UOp) -> tuple[UOp, int] | None:
    """axis + constant, perhaps converted to another integer type."""
    offset = 0
    while node.op in (Ops.CAST, Ops.ADD):
        if node.op is Ops.CAST:
            if node.dtype.kind != "int" and node.dtype not in dtypes.weaks:
                return None
            node = node.src[0]
        elif node.src[1].op is Ops.CONST:
            offset += int(node.src[1].arg)
            node = node.src[0]
        else:
            return None
    return (node, offset) if node.op is Ops.RANGE else None
