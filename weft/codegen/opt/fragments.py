"""Fragments: a product of matrices that warps compute, out of tiles in shared memory.

In: a kernel AST with a sum of products, and a tiling. Out: the kernel in which a group of warps
computes a tile of outputs: for each block of terms both operands are staged in their own dtype, and
every warp multiplies fragments of them. One of the actions (OptOps.TC), in a file of its own.
Invariant: meaning never changes. Each product is of operands that the fragment holds exactly, and
is summed in the dtype that the kernel sums in; sizes that do not divide are masked, so that what is
beyond them is zero in the sums and never stored.

    STORE(p[i*N + j], REDUCE(x[i, k]*y[k, j], k), i, j)
    -> STORE(p[..], REDUCE(WMMA(X[..], Y[..]), k0, k1 UNROLL),
             i0, j0, iw LOCAL, jw LOCAL, lane WARP, it UPCAST, jt UPCAST, registers UPCAST)
       with X = STAGE(x[i0*BM + r, k0*BK + c], r, c), and rows and columns as functions of the lane
       and the register, as the fragment's maps say
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from weft.codegen.opt.axes import closed_axes, find_axis, index_const, piece, size_of
from weft.codegen.opt.opt import Opt, OptError
from weft.codegen.opt.patches import patch_of, tiles_of
from weft.codegen.opt.strides import Strides
from weft.codegen.opt.tiling import Tiling
from weft.dtype import DType, dtypes
from weft.fragment import SWIZZLED_BYTES, Digit, Fragment, OperandMap
from weft.helpers import prod
from weft.machine import Target
from weft.uop.args import DISTINCT, AxisType, MatrixArg, StageArg, TileArg
from weft.uop.distinct import writes_apart
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.products import Product, product_of

# bytes of a row of the matrices that a warp reads at once, of one of its words, and rows of each
ROW_BYTES, WORD_BYTES, MATRIX_ROWS = 16, 4, 8

Axes = tuple[UOp, ...]


# ------------------------------------------------------------ the action
def use_fragments(ast: UOp, opt: Opt, target: Target) -> UOp:
    """The kernel in which warps compute a product, or OptError that says why not."""
    if not target.fragments:
        raise OptError(f"target {target.name} describes no tensor-core fragments")
    tiling = Tiling.from_opt(opt)
    if not tiling.fragment < len(target.fragments):
        raise OptError(
            f"target {target.name} describes {len(target.fragments)} fragments, "
            f"found number {tiling.fragment}"
        )
    fragment = target.fragments[tiling.fragment]
    axis = find_axis(ast, opt.axis)
    reduces = [u for u in ast.toposort() if u.op is Ops.REDUCE and axis in closed_axes(u)]
    if len(reduces) != 1:
        raise OptError(f"axis {axis.arg.number} is reduced {len(reduces)} times, once is wanted")
    product = product_of(reduces[0], fragment)
    if product is None:
        raise OptError(
            f"the reduction over axis {axis.arg.number} is no sum of products of "
            f"{fragment.a_dtype} and {fragment.b_dtype} in {fragment.c_dtype}"
        )
    rows = tuple([find_axis(ast, name) for name in tiling.rows])
    columns = tuple([find_axis(ast, name) for name in tiling.columns])
    if rows[0] in product.right.ranges:
        product = replace(product, left=product.right, right=product.left)
        if fragment.a_dtype is not fragment.b_dtype:
            raise OptError("the operands of this fragment have different dtypes and stay in place")
    _check(ast, product, rows, columns)
    tiles = _Tiles(ast, product, rows, columns, tiling, fragment, target)
    most = max(target.shared_bytes, target.most_shared_bytes)
    if tiles.shared_bytes > most:
        raise OptError(f"the tiles need {tiles.shared_bytes} bytes, {target.name} shares {most}")
    if tiles.threads > target.group_threads or fragment.lanes % target.warp_size:
        raise OptError(f"{tiles.threads} threads are more than a group of {target.name} has")
    return tiles.run()


def _check(ast: UOp, product: Product, rows: Axes, columns: Axes) -> None:
    """OptError unless rows are of one operand alone, columns of the other, and all are outputs."""
    outputs = {*rows, *columns}
    if len(outputs) != len(rows) + len(columns):
        raise OptError("an axis is a row or a column, and once")
    kinds = {axis.arg.kind for axis in (*outputs, *product.terms)}
    if not kinds <= {AxisType.LOOP, AxisType.REDUCE}:
        raise OptError("axes of a product must be loops that nothing else was done to")
    for axis in (*rows, *columns, *product.terms):
        size_of(axis)  # refuses run-time sizes
    left, right = product.left.ranges, product.right.ranges
    if not set(rows) <= left or not right.isdisjoint(rows):
        raise OptError("rows must be axes of the first operand alone")
    if not set(columns) <= right or not left.isdisjoint(columns):
        raise OptError("columns must be axes of the second operand alone")
    stores = [store for store in ast.src if not outputs.isdisjoint(closed_axes(store))]
    ends = [set(closed_axes(store)) for store in stores]
    if not stores or any([end != ends[0] or not outputs <= end for end in ends]):
        raise OptError("every output of the nest must have the axes of rows and columns")
    if any([axis not in left | right for axis in ends[0]]):
        raise OptError("an output axis that no operand depends on would repeat the product")
    if not all([writes_apart(store) for store in stores]):
        raise OptError("outputs that may write to one element stay in order")
    written = [store.src[0].src[0] for store in ast.src]
    if len(set(written)) < len(written):
        raise OptError("several stores to one buffer stay as they are")
    mine = outputs | set(product.terms)
    for node in ast.toposort():
        if node.op in (Ops.REDUCE, Ops.STAGE) and node is not product.reduce:
            if not mine.isdisjoint(node.src[0].ranges):
                raise OptError("another reduction or stage depends on the axes of the product")
    for value in (product.left, product.right):
        for node in value.toposort():
            if node.op is Ops.LOAD and node.src[0].src[0] in written:
                raise OptError("a value that the kernel itself overwrites cannot be staged")


@dataclass(frozen=True)
class _Side:
    """The rows, or the columns: their axes, and those that they are cut into."""

    axes: Axes
    warps: int
    fragments: int
    size: int  # of a fragment
    blocks: Axes  # that number the tiles
    block: UOp  # index of the tile
    warp: UOp
    fragment: UOp

    @property
    def total(self) -> int:
        return prod(size_of(axis) for axis in self.axes)

    @property
    def tile(self) -> int:
        return self.warps * self.fragments * self.size

    @property
    def inside(self) -> UOp:
        """Where the fragment begins in the tile."""
        return (self.warp * self.fragments + self.fragment) * self.size


class _Tiles:
    """One kernel while it is cut."""

    def __init__(
        self,
        ast: UOp,
        product: Product,
        rows: Axes,
        columns: Axes,
        tiling: Tiling,
        fragment: Fragment,
        target: Target,
    ) -> None:
        self.ast = ast
        self.product = product
        self.fragment = fragment
        self.target = target
        self.strides = Strides()
        tile = tiling.row_warps * tiling.row_fragments * fragment.m
        width = tiling.column_warps * tiling.column_fragments * fragment.n
        sizes = [(tiles_of(rows, tile), tile), (tiles_of(columns, width), width)]
        together = patch_of(sizes[0], sizes[1], target.cores)
        self.rows = _side(rows, tiling.row_warps, tiling.row_fragments, fragment.m, together)
        self.columns = _side(columns, tiling.column_warps, tiling.column_fragments, fragment.n)
        self.depth = tiling.depth
        self.terms = terms = terms_in_order(product, self.strides)
        self.block_terms = tiling.term_fragments * fragment.k
        self.total_terms = prod(size_of(axis) for axis in terms)
        blocks = -(-self.total_terms // self.block_terms)
        # one round has nothing to be ahead of
        self.depth = max(1, min(tiling.depth, blocks))
        self.block = _axis(terms[0], 0, blocks, AxisType.REDUCE)
        self.unrolled = _axis(terms[0], 1, tiling.term_fragments, AxisType.UNROLL)
        self.lane = _axis(columns[0], 3, fragment.lanes, AxisType.WARP)
        self.registers = self._register_axes()
        self.stages = sum(u.op is Ops.STAGE for u in ast.toposort())

    @property
    def threads(self) -> int:
        return self.rows.warps * self.columns.warps * self.fragment.lanes

    @property
    def shared_bytes(self) -> int:
        """Of both operands, rows of memory padded or swizzled."""
        total = 0
        if self.fragment.in_shared:
            elements = (self.rows.tile + self.columns.tile) * self.block_terms * self.depth
            return elements * self.fragment.a_dtype.itemsize
        for side, dtype in (
            (self.rows, self.fragment.a_dtype),
            (self.columns, self.fragment.b_dtype),
        ):
            # the longer of the two ways to pad it
            padding = max(side.tile, self.block_terms) * padding_of(dtype, True)
            total += (side.tile * self.block_terms + padding) * dtype.itemsize
        return total * self.depth

    def run(self) -> UOp:
        a_read, a_axes = self._operand(self.product.left, self.rows, self.fragment.a, 5, True)
        b_read, b_axes = self._operand(self.product.right, self.columns, self.fragment.b, 8, False)
        number = index_const(0)
        for axis, digit in zip(self.registers, self.fragment.c.registers, strict=True):
            number = number * digit.size + axis
        product = UOp(
            Ops.WMMA,
            self.fragment.c_dtype,
            (a_read, b_read, number, *a_axes, *b_axes),
            self.fragment,
        )
        loops = [axis for axis in (self.block, self.unrolled) if axis.op is Ops.RANGE]
        total = product.reduce(Ops.ADD, *loops) if loops else product
        return self._outputs(total)

    # ------------------------------------------------------------ outputs
    def _register_axes(self) -> list[UOp]:
        """An axis for each digit of a sum's registers; neighbours in memory are lanes."""
        found = []
        for number, digit in enumerate(self.fragment.c.registers):
            is_last = number == len(self.fragment.c.registers) - 1
            has_lanes = is_last and digit.column == 1 and self._stores_neighbours(digit.size)
            kind = AxisType.VECTOR if has_lanes else AxisType.UPCAST
            found.append(_axis(self.columns.axes[0], 12 + number, digit.size, kind))
        return found

    def _stores_neighbours(self, count: int) -> bool:
        """Whether columns are neighbours in memory wherever outputs are stored or read."""
        last = self.columns.axes[-1]
        if size_of(last) % count:
            return False
        reduce = self.product.reduce
        for node in self.ast.toposort(gate=lambda u: u is not reduce):
            if node.op is Ops.INDEX and last in node.ranges:
                if self.strides.of(node.src[1]).get(last, 0) not in (0, 1):
                    return False
        return True

    def _outputs(self, total: UOp) -> UOp:
        """The stores, with the axes of rows and columns as functions of lanes and registers."""
        row, column = element_of(self.fragment.c, self.lane, self.registers)
        row = (self.rows.block * self.rows.tile + self.rows.inside + row).simplify()
        column = (self.columns.block * self.columns.tile + self.columns.inside + column).simplify()
        values = {**digits_of(self.rows.axes, row), **digits_of(self.columns.axes, column)}
        masks = [
            (set(side.axes), at < side.total)
            for side, at in ((self.rows, row), (self.columns, column))
            if side.total % side.tile
        ]
        outputs = {*self.rows.axes, *self.columns.axes}
        whole = replaced(self.ast, {**values, self.product.reduce: total}, masks)
        # tiles that run at a time are a patch of those of all rows and columns
        pieces = [*self.rows.blocks[:-1], *self.columns.blocks, self.rows.blocks[-1]]
        pieces += [self.rows.warp, self.columns.warp, self.lane]
        pieces += [self.rows.fragment, self.columns.fragment, *self.registers]
        ended = tuple([axis for axis in pieces if axis.op is Ops.RANGE])
        stores = []
        for old in self.ast.src:
            axes = closed_axes(old)
            if outputs.isdisjoint(axes):
                stores.append(old)
                continue
            kept = tuple([axis for axis in axes if axis not in outputs])
            place, value = [whole[s] for s in old.src[:2]]
            store = UOp(Ops.STORE, old.dtype, (place, value, *kept, *ended), old.arg)
            stores.append(store.rtag(DISTINCT))
        return self.ast.with_src(tuple(stores))

    # ------------------------------------------------------------ operands
    def _operand(
        self, value: UOp, side: _Side, held: OperandMap, first: int, is_left: bool
    ) -> tuple[UOp, Axes]:
        """What a warp reads of an operand out of shared memory, and the axes of its registers."""
        if self.fragment.in_shared:
            return self._named(value, side, 4 * first), ()
        terms = self.terms
        across = self._is_across(value, side)
        lines, run = (self.block_terms, side.tile) if across else (side.tile, self.block_terms)
        own, base = (side.axes[0], first) if not across else (terms[0], first)
        other = terms[0] if not across else side.axes[0]
        width = self._width(value, side.axes if across else terms, run)
        line = _axis(own, base, lines, AxisType.LOOP)
        chunk = _axis(other, base + 1, run // width, AxisType.LOOP)
        item = _axis(other, base + 2, width, AxisType.VECTOR)
        along = chunk * width + item
        at_side, at_term = (along, line) if across else (line, along)
        pitch = run + padding_of(value.dtype, across)
        filled = self._fill(value, side, at_side, at_term)
        closed = [(line, pitch), (chunk, width), (item, 1)]
        closed = [(axis, step) for axis, step in closed if axis.op is Ops.RANGE]
        arg = StageArg(
            self.stages,
            "shared",
            strides=tuple([step for _, step in closed]),
            depth=self.depth,
        )
        self.stages += 1
        stage = UOp(Ops.STAGE, value.dtype, (filled, *[axis for axis, _ in closed]), arg)
        side_step, term_step = (1, pitch) if across else (pitch, 1)
        start = side.inside * side_step + self.unrolled * (self.fragment.k * term_step)
        return self._read(stage, start, held, side_step, term_step, is_left, (own, first + 16))

    def _named(self, value: UOp, side: _Side, first: int) -> UOp:
        """An operand that the fragment reads by itself: where it begins among swizzled rows."""
        terms, size = self.terms, value.dtype.itemsize
        row = SWIZZLED_BYTES // size
        across = self._is_across(value, side) and self.fragment.takes_turned
        if across and side.size % row:
            raise OptError(f"{side.size} elements are no multiple of the {row} of a swizzled row")
        lines, run = (self.block_terms, side.tile) if across else (side.tile, self.block_terms)
        own, other = (terms[0], side.axes[0]) if across else (side.axes[0], terms[0])
        width = self._width(value, side.axes if across else terms, run)
        line = _axis(own, first, lines, AxisType.LOOP)
        part = _axis(other, first + 1, run // row, AxisType.LOOP)
        chunk = _axis(other, first + 2, row // width, AxisType.LOOP)
        item = _axis(other, first + 3, width, AxisType.VECTOR)
        along = part * row + chunk * width + item
        at_side, at_term = (along, line) if across else (line, along)
        filled = self._fill(value, side, at_side, at_term)
        closed = [(line, row), (part, lines * row), (chunk, width), (item, 1)]
        closed = [(axis, step) for axis, step in closed if axis.op is Ops.RANGE]
        steps = tuple([step for _, step in closed])
        arg = StageArg(self.stages, "shared", strides=steps, depth=self.depth, is_swizzled=True)
        self.stages += 1
        stage = UOp(Ops.STAGE, value.dtype, (filled, *[axis for axis, _ in closed]), arg)
        if across:
            tile = TileArg(side.size, self.fragment.k, row, 1, lines * row, row)
            start = side.inside * lines + self.unrolled * (self.fragment.k * row)
        else:
            tile = TileArg(side.size, self.fragment.k, side.size, row, 0, 1)
            start = side.inside * row + self.unrolled * (lines * row)
        return UOp(Ops.LOAD, value.dtype, (stage.index(start.simplify()),), tile)

    def _is_across(self, value: UOp, side: _Side) -> bool:
        """Whether neighbours in memory are along rows (or columns) rather than along terms."""
        loads = [u for u in value.toposort() if u.op is Ops.LOAD and u.src[0].op is Ops.INDEX]
        votes = 0
        for load in loads:
            steps = self.strides.of(load.src[0].src[1])
            votes += steps.get(side.axes[-1]) == 1
            votes -= steps.get(self.terms[-1]) == 1
        return votes > 0

    def _places(self, value: UOp, axes: Axes, number: UOp) -> dict[UOp, UOp]:
        """The values of axes whose rounds are numbered; where memory has them as one, as one."""
        if not is_one_axis(value, axes, self.strides):
            return digits_of(axes, number)
        return {**dict.fromkeys(axes, index_const(0)), axes[-1]: number}

    def _width(self, value: UOp, axes: Axes, run: int) -> int:
        """Elements that a thread copies at once: neighbours in memory, 16 bytes of them."""
        width = ROW_BYTES // value.dtype.itemsize
        in_parts = size_of(axes[-1]) % width and not is_one_axis(value, axes, self.strides)
        if in_parts or run % width:
            return 1
        for node in value.toposort():
            if node.op is Ops.INDEX and axes[-1] in node.ranges:
                if self.strides.of(node.src[1]).get(axes[-1], 0) not in (0, 1):
                    return 1
        return width

    def _fill(self, value: UOp, side: _Side, at_side: UOp, at_term: UOp) -> UOp:
        """The operand over a tile: zero beyond the last term."""
        terms = self.terms
        row = (side.block * side.tile + at_side).simplify()
        term = (self.block * self.block_terms + at_term).simplify()
        masks = []
        if side.total % side.tile:
            masks.append((set(side.axes), row < side.total))
        inside = term < self.total_terms
        if self.total_terms % self.block_terms:
            masks.append((set(terms), inside))
        values = {**self._places(value, side.axes, row), **self._places(value, terms, term)}
        filled = replaced(value, values, masks)[value]
        if not self.total_terms % self.block_terms or filled.op is Ops.LOAD:
            return filled
        wide = filled.src[0] if filled.op is Ops.CAST else filled
        return inside.where(wide, UOp.const(wide.dtype, 0)).cast(filled.dtype)

    def _read(
        self,
        stage: UOp,
        start: UOp,
        held: OperandMap,
        side_step: int,
        term_step: int,
        is_left: bool,
        name: tuple[UOp, int],
    ) -> tuple[UOp, Axes]:
        """An operand of a fragment: rows of matrices that a warp exchanges, or single elements."""
        steps = (side_step, term_step) if is_left else (term_step, side_step)
        size = stage.dtype.itemsize
        word = WORD_BYTES // size
        matrices = held.count // word
        transposed = term_step != 1
        if self.target.has_matrix_loads and matrices in (1, 2, 4) and (not transposed or size == 2):
            line = self.lane % MATRIX_ROWS
            number = self.lane // MATRIX_ROWS % matrices * word
            if transposed:
                row, column = held.place(index_const(0), number)
                at = row * steps[0] + column * steps[1] + line * term_step
            else:
                row, column = held.place(line * WORD_BYTES, number)
                at = row * steps[0] + column * steps[1]
            place = stage.index((start + at).simplify())
            return UOp(Ops.LOAD, stage.dtype, (place,), MatrixArg(matrices, transposed)), ()
        register = _axis(name[0], name[1], held.count, AxisType.UPCAST)
        row, column = held.place(self.lane, register)
        place = stage.index((start + row * steps[0] + column * steps[1]).simplify())
        return place.load(), (register,)


def terms_in_order(product: Product, strides: Strides) -> Axes:
    """The terms of a product, those last along which operands are neighbours in memory: in which
    order they are added is free."""
    votes = dict.fromkeys(product.terms, 0)
    for node in (*product.left.toposort(), *product.right.toposort()):
        if node.op is Ops.LOAD and node.src[0].op is Ops.INDEX:
            for axis, step in strides.of(node.src[0].src[1]).items():
                if axis in votes and step == 1 and size_of(axis) > 1:
                    votes[axis] += 1
    return tuple(sorted(votes, key=lambda axis: votes[axis]))


def is_one_axis(value: UOp, axes: Axes, strides: Strides) -> bool:
    """Whether axes only ever number elements of memory in their order, each after the other."""
    if len(axes) == 1:
        return True
    for node in value.toposort():
        if node.op is Ops.INDEX:
            steps = strides.of(node.src[1])
            found = [steps.get(axis, 0) for axis in axes]
            for step, after, axis in zip(found, found[1:], axes[1:], strict=False):
                if step is None or after is None or step != after * size_of(axis):
                    return False
            if len(node.src) > 2 and not node.src[2].ranges.isdisjoint(axes):
                return False
        elif node.dtype not in dtypes.weaks and node.op is not Ops.RANGE:
            if any([s.dtype in dtypes.weaks and not s.ranges.isdisjoint(axes) for s in node.src]):
                return False
    return True


def _loaded(value: UOp) -> UOp:
    """The LOAD that a value is: one that is zero where it is not valid needs no choice."""
    chosen = value.src[0] if value.op is Ops.CAST else value
    if chosen.op is not Ops.WHERE or chosen.src[2].op is not Ops.CONST or chosen.src[2].arg != 0:
        return value
    inner = chosen.src[1].src[0] if chosen.src[1].op is Ops.CAST else chosen.src[1]
    if (
        inner.op is not Ops.LOAD
        or inner.dtype is not value.dtype
        or inner.src[0].op is not Ops.INDEX
    ):
        return value
    return inner if chosen.src[0] in inner.src[0].src[2:] else value


def is_copied(value: UOp, axes: Axes, strides: Strides) -> bool:
    """Whether neighbours along these axes are 16 bytes that the machine copies by itself: they lie
    in order, at multiples of 16 bytes, and are all there or none."""
    value = _loaded(value)
    if value.op is not Ops.LOAD or value.src[0].op is not Ops.INDEX:
        return False
    width = ROW_BYTES // value.dtype.itemsize
    place = value.src[0]
    steps = strides.of(place.src[1])
    if steps.get(axes[-1]) != 1 or any([step is None for step in steps.values()]):
        return False
    if size_of(axes[-1]) % width and not is_one_axis(value, axes, strides):
        return False
    others = [step for axis, step in steps.items() if axis is not axes[-1]]
    if is_one_axis(value, axes, strides):
        others = [step for axis, step in steps.items() if axis not in axes]
    masked = len(place.src) > 2 and axes[-1] in place.src[2].ranges
    return not masked and all([step is not None and step % width == 0 for step in others])


def padding_of(dtype: DType, across: bool) -> int:
    """Elements beyond each row of shared memory, so that rows begin in different banks.

    Matrices are read by rows of 16 bytes. Words `across` terms are read by 8 neighbours of 4 rows,
    which take all banks if rows are 8 words apart.
    """
    return ROW_BYTES // dtype.itemsize * (2 if across and dtype.itemsize == WORD_BYTES else 1)


def _side(axes: Axes, warps: int, fragments: int, size: int, together: int = 1) -> _Side:
    """`together` tiles, a divisor of their number, come one after the other in the order of all."""
    tiles = tiles_of(axes, warps * fragments * size)
    first = axes[0]
    blocks: Axes = (_axis(first, 0, tiles // together, AxisType.LOOP),)
    block = blocks[0]
    if together > 1:
        blocks = (*blocks, _axis(first, 3, together, AxisType.LOOP))
        block = block * together + blocks[1]
    warp = _axis(first, 1, warps, AxisType.LOCAL)
    fragment = _axis(first, 2, fragments, AxisType.UPCAST)
    return _Side(axes, warps, fragments, size, blocks, block, warp, fragment)


def _axis(like: UOp, position: int, size: int, kind: AxisType) -> UOp:
    """Part of an axis; one of a single round is a number."""
    return index_const(0) if size == 1 else piece(like, position, index_const(size), kind)


def digits_of(axes: Axes, number: UOp) -> dict[UOp, UOp]:
    """The values of axes whose rounds are numbered, the last axis fastest."""
    values: dict[UOp, UOp] = {}
    for position in range(len(axes) - 1, -1, -1):
        size = size_of(axes[position])
        values[axes[position]] = (number % size if position else number).simplify()
        number = number // size
    return values


def element_of(held: OperandMap, lane: UOp, registers: Sequence[UOp]) -> tuple[UOp, UOp]:
    """(row, column) of what a lane has, with an axis for each digit of its registers."""
    row, column = held.place(lane, index_const(0))
    digits: tuple[Digit, ...] = held.registers
    for axis, digit in zip(registers, digits, strict=True):
        row, column = row + axis * digit.row, column + axis * digit.column
    return row.simplify(), column.simplify()


def replaced(
    root: UOp, values: dict[UOp, UOp], masks: list[tuple[set[UOp], UOp]]
) -> dict[UOp, UOp]:
    """All nodes with values in place of others; what is read along masked axes is read inside."""
    done = dict(values)
    reduces = [node for node in values if node.op is Ops.REDUCE]
    for node in root.toposort(gate=lambda u: u not in reduces):
        if node in done:
            continue
        src = tuple([done[s] if s in done else s for s in node.src])
        if node.op is Ops.INDEX:
            for axes, inside in masks:
                if not axes.isdisjoint(node.ranges):
                    valid = inside if len(src) == 2 else src[2] & inside
                    src = (src[0], src[1], valid)
        if node.op in (Ops.SINK, Ops.STORE):
            continue
        done[node] = node if src == node.src else node.with_src(src)
    return done
