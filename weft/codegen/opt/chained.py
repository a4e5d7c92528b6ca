"""Chained products: attention and its like in fragments, with what is in between in registers.

In: a kernel AST that is a chain (`uop/chained.py`), and a tiling. Out: the kernel in which each
warp has some rows: for every block of keys it computes the products inside, what is made of them,
and adds their product with the block's other factor. One of the actions (OptOps.CHAIN).
Invariant: nothing of rows times keys is ever in memory. A maximum of rows that the rest depends on
is the one so far: when it grows, what was summed is scaled by a power of the difference. Sums of
all keys are then those of the maximum of all keys.

    m = max(x, k); O = sum(exp2(x - m)*V, k) / sum(exp2(x - m), k)
    -> for each block of keys: m' = max(m, x); a = exp2(m - m'); p = exp2(x - m')
       l = l*a + sum(p); O = O*a + p @ V;  at the end O / l

What a lane has of a sum of fragments is what it needs of the left factor of the next ones, so
registers pass from one product to the other as they are. A row is in the lanes that share its
digits, which exchange their part of a maximum (SHUFFLE).
"""

from __future__ import annotations

from dataclasses import dataclass

from weft.codegen.opt.axes import closed_axes, index_const, piece, size_of
from weft.codegen.opt.chained_operands import Operands, Span, axis_of
from weft.codegen.opt.fragments import digits_of, element_of, padding_of, replaced
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.opt.strides import Strides
from weft.dtype import dtypes
from weft.fragment import Fragment, OperandMap
from weft.helpers import prod
from weft.machine import Target
from weft.uop.args import DISTINCT, AxisType
from weft.uop.chained import Chain, Inner, Statistic, find_chain
from weft.uop.distinct import writes_apart
from weft.uop.node import UOp
from weft.uop.opset import FALLING, Ops

Axes = tuple[UOp, ...]


@dataclass(frozen=True)
class ChainTiling:
    """How a chain is cut: warps of a group, fragments of rows of each, fragments of keys of a
    block, and blocks that are in memory."""

    warps: int
    row_fragments: int
    key_fragments: int
    depth: int

    def opt(self, key: UOp) -> Opt:
        """The action, on the axis of keys."""
        arg = (self.warps, self.row_fragments, self.key_fragments, self.depth)
        return Opt(OptOps.CHAIN, key.arg.number, arg)

    def shared_bytes(self, chain: Chain, fragment: Fragment) -> int:
        """Of all operands, the rows of memory padded the longer of two ways."""
        size = fragment.a_dtype.itemsize
        padding = padding_of(fragment.a_dtype, True)
        rows = self.warps * self.row_fragments * fragment.m
        keys = self.key_fragments * fragment.n
        once, block = 0, 0
        for inner in chain.products:
            terms = _padded_terms(inner, fragment)
            once += rows * terms + max(rows, terms) * padding
            block += keys * terms + max(keys, terms) * padding
        if chain.columns:
            columns = prod(size_of(axis) for axis in chain.columns)
            columns = -(-columns // fragment.n) * fragment.n
            block += keys * columns + max(keys, columns) * padding
        return (once + block * self.depth) * size


def _padded_terms(inner: Inner, fragment: Fragment) -> int:
    terms = prod(size_of(axis) for axis in inner.terms)
    return -(-terms // fragment.k) * fragment.k


def use_chain(ast: UOp, opt: Opt, target: Target) -> UOp:
    """The kernel in which warps compute a chain, or OptError that says why not."""
    arg = opt.arg
    if not isinstance(arg, tuple) or len(arg) != 4 or not all([type(n) is int for n in arg]):
        raise OptError(f"CHAIN needs warps, fragments of rows and of keys, and a depth: {arg!r}")
    if len(ast.src) != 1:
        raise OptError("a chain is a kernel of one output")
    chain = find_chain(ast.src[0], target.fragments)
    if chain is None:
        raise OptError("the kernel is no chain of products")
    check_chain(ast.src[0], chain)
    tiles = _Chained(ast, chain, ChainTiling(*arg), target)  # type: ignore[arg-type]
    most = max(target.shared_bytes, target.most_shared_bytes)
    if tiles.shared_bytes > most:
        raise OptError(f"the tiles need {tiles.shared_bytes} bytes, {target.name} shares {most}")
    if tiles.threads > target.group_threads or tiles.fragment.lanes != target.warp_size:
        raise OptError(f"{tiles.threads} threads are more than a group of {target.name} has")
    return tiles.run()


def check_chain(store: UOp, chain: Chain) -> None:
    """OptError unless outputs are loops that nothing was done to, each stored once."""
    kinds = {axis.arg.kind for axis in (*closed_axes(store), chain.key)}
    if not kinds <= {AxisType.LOOP, AxisType.REDUCE}:
        raise OptError("axes of a chain must be loops that nothing else was done to")
    if not writes_apart(store):
        raise OptError("outputs that may write to one element stay in order")
    memory = store.src[0].src[0]
    for node in store.src[1].toposort():
        if node.op is Ops.LOAD and node.src[0].src[0] is memory:
            raise OptError("a value that the kernel itself overwrites cannot be staged")


class _Chained:
    """One kernel while it is cut."""

    def __init__(self, ast: UOp, chain: Chain, tiling: ChainTiling, target: Target) -> None:
        self.ast = ast
        self.store = ast.src[0]
        self.chain = chain
        self.tiling = tiling
        self.target = target
        self.fragment: Fragment = target.fragments[chain.fragment]
        self.strides = Strides()
        fragment, key = self.fragment, chain.key
        column = self.output = (*chain.columns, *chain.rows, chain.key)[0]
        self.row_total = prod(size_of(axis) for axis in chain.rows)
        self.column_total = prod(size_of(axis) for axis in chain.columns)
        self.row_tile = tiling.warps * tiling.row_fragments * fragment.m
        self.key_tile = tiling.key_fragments * fragment.n
        self.row_blocks = -(-self.row_total // self.row_tile)
        self.column_fragments = -(-self.column_total // fragment.n) if chain.columns else 0
        self.row_block = axis_of(column, 0, self.row_blocks, AxisType.LOOP)
        self.warp = axis_of(column, 1, tiling.warps, AxisType.LOCAL)
        self.row_fragment = axis_of(column, 2, tiling.row_fragments, AxisType.UPCAST)
        self.lane = axis_of(column, 3, fragment.lanes, AxisType.WARP)
        self.operands = Operands(chain.key, self.lane, target)
        self.column_fragment = axis_of(column, 4, max(1, self.column_fragments), AxisType.UPCAST)
        self.key_fragment = axis_of(key, 1, tiling.key_fragments, AxisType.UNROLL)
        self.key_fragment_inside = axis_of(key, 2, tiling.key_fragments, AxisType.UNROLL)
        self.depth = tiling.depth
        self._number_registers()
        self._number_blocks()

    def _number_registers(self) -> None:
        """Axes of the registers of outputs (which share the digits of rows with statistics), of
        what statistics reduce, and of the left factor."""
        digits = self.fragment.c.registers
        self.outputs, self.inside, self.factor = [], [], []
        for number, digit in enumerate(digits):
            is_last = number == len(digits) - 1
            lanes = is_last and digit.column == 1 and self._stores_neighbours(digit.size)
            kind = AxisType.VECTOR if lanes else AxisType.UPCAST
            output = axis_of(self.output, 12 + number, digit.size, kind)
            inside = axis_of(self.chain.key, 12 + number, digit.size, AxisType.UNROLL)
            self.outputs.append(output)
            self.inside.append(output if digit.row else inside)
            self.factor.append(axis_of(self.chain.key, 16 + number, digit.size, AxisType.UNROLL))

    def _number_blocks(self) -> None:
        """The loop over blocks of keys: those that some row of the tile has a use for."""
        chain, tile = self.chain, self.key_tile
        self.key_total = chain.key.src[0]
        end: UOp = (self.key_total + (tile - 1)) // tile
        start = index_const(0)
        if chain.last is not None:
            # the longest first, so that the last groups are short ones
            self.row_block = (index_const(self.row_blocks - 1) - self.row_block).simplify()
        first_row = self.row_block * self.row_tile
        if chain.last is not None:
            stop = first_row + (self.row_tile + chain.last + tile - 1)
            end = end.minimum(stop.maximum(0) // tile).simplify()
        if chain.first is not None:
            start = ((first_row + chain.first).maximum(0) // tile).minimum(end).simplify()
        self.first_block = start
        self.blocks = (end - start).simplify()
        self.block = piece(chain.key, 0, self.blocks, AxisType.REDUCE)
        if self.blocks.op is Ops.CONST:
            self.depth = max(1, min(self.depth, int(self.blocks.arg)))
            self.block = axis_of(chain.key, 0, int(self.blocks.arg), AxisType.REDUCE)

    @property
    def threads(self) -> int:
        return self.tiling.warps * self.fragment.lanes

    @property
    def shared_bytes(self) -> int:
        return self.tiling.shared_bytes(self.chain, self.fragment)

    def _padded_terms(self, inner: Inner) -> int:
        return _padded_terms(inner, self.fragment)

    # ------------------------------------------------------------ the kernel
    def run(self) -> UOp:
        chain, fragment = self.chain, self.fragment
        self._stage_operands()
        row, column = element_of(fragment.c, self.lane, self.outputs)
        at_row = self._row(row)
        at_column = (self.column_fragment * fragment.n + column).simplify()
        values = {
            **digits_of(chain.rows, at_row),
            **digits_of(chain.columns, at_column),
            **{s.node: self._statistic(s, self.outputs) for s in chain.statistics},
        }
        masks = []
        if self.row_total % self.row_tile:
            masks.append((set(chain.rows), at_row < self.row_total))
        if self.column_total % fragment.n and chain.columns:
            masks.append((set(chain.columns), at_column < self.column_total))
        if chain.left is not None and chain.right is not None:
            total = self._sum(chain.left)
            for op, factor in chain.factors:
                total = total.alu(op, replaced(factor, values, masks)[factor])
            values[chain.sum] = total
        whole = replaced(UOp.sink(self.store.src[0], chain.value), values, masks)
        place = whole[self.store.src[0]]
        if not chain.rows:
            # all rows of the tile are the one that there is
            place = _only_if(place, at_row < 1)
        if not chain.columns:
            # the lanes of a row all have its statistics
            place = _only_if(place, element_of(fragment.c, self.lane, self._no_registers)[1] < 1)
        pieces = [self.row_block, self.warp, self.lane, self.row_fragment]
        pieces += [axis for axis in self.outputs if axis in self.inside or chain.columns]
        pieces += [self.column_fragment] if chain.columns else []
        ended = [axis for piece in pieces for axis in piece.toposort() if axis.op is Ops.RANGE]
        outputs = {*chain.rows, *chain.columns}
        kept = [axis for axis in closed_axes(self.store) if axis not in outputs]
        ends = (*kept, *ended)
        store = UOp(Ops.STORE, dtypes.void, (place, whole[chain.value], *ends), self.store.arg)
        return self.ast.with_src((store.rtag(DISTINCT),))

    @property
    def _no_registers(self) -> list[UOp]:
        return [index_const(0)] * len(self.outputs)

    def _row(self, row: UOp) -> UOp:
        """The row of a group's tile that is this row of a fragment."""
        start = self.row_block * self.row_tile
        inside = (self.warp * self.tiling.row_fragments + self.row_fragment) * self.fragment.m
        return (start + inside + row).simplify()

    # ------------------------------------------------------------ values of rows and keys
    def _at(self, value: UOp, registers: list[UOp], key_fragment: UOp) -> UOp:
        """A value at the row and the key that a lane has in these registers."""
        chain, fragment = self.chain, self.fragment
        row, column = element_of(fragment.c, self.lane, registers)
        at_row = self._row(row)
        at_key = ((self.first_block + self.block) * self.key_tile).simplify()
        at_key = (at_key + key_fragment * fragment.n + column).simplify()
        masks = []
        if self.row_total % self.row_tile:
            masks.append((set(chain.rows), at_row < self.row_total))
        inside = at_key < self.key_total
        if self._ends_inside:
            masks.append(({chain.key}, inside))
        values = {
            **digits_of(chain.rows, at_row),
            chain.key: at_key,
            **{p.node: self._product(p, registers, key_fragment) for p in chain.products},
        }
        for statistic in chain.statistics:
            if statistic.op is Ops.MAX and statistic.node in value.toposort():
                values[statistic.node] = self._so_far(statistic, registers)
        return replaced(value, values, masks)[value]

    @property
    def _ends_inside(self) -> bool:
        """Whether the last block of keys reaches beyond the end."""
        total = self.key_total
        return not (total.op is Ops.CONST and total.arg % self.key_tile == 0)

    def _inside(self, value: UOp, other: UOp, registers: list[UOp], key_fragment: UOp) -> UOp:
        """The value, or another beyond the last key."""
        if not self._ends_inside:
            return value
        column = element_of(self.fragment.c, self.lane, registers)[1]
        at_key = (self.first_block + self.block) * self.key_tile
        at_key = (at_key + key_fragment * self.fragment.n + column).simplify()
        return (at_key < self.key_total).where(value, other)

    def _product(self, inner: Inner, registers: list[UOp], key_fragment: UOp) -> UOp:
        """One register of a product inside."""
        fragment = self.fragment
        count = self._padded_terms(inner) // fragment.k
        terms = axis_of(inner.terms[0], 1, count, AxisType.UNROLL)
        rows, keys = self.staged[inner.node]
        a_read, a_axes = self._read(*rows, self._row_start, terms, fragment.a, True, inner, 20)
        b_start = key_fragment * fragment.n
        b_read, b_axes = self._read(*keys, b_start, terms, fragment.b, False, inner, 24)
        src = (a_read, b_read, self._register(registers), *a_axes, *b_axes)
        product = UOp(Ops.WMMA, fragment.c_dtype, src, fragment)
        return product.reduce(Ops.ADD, terms) if terms.op is Ops.RANGE else product

    @property
    def _row_start(self) -> UOp:
        return (self.warp * self.tiling.row_fragments + self.row_fragment) * self.fragment.m

    def _register(self, registers: list[UOp]) -> UOp:
        number = index_const(0)
        for axis, digit in zip(registers, self.fragment.c.registers, strict=True):
            number = number * digit.size + axis
        return number

    # ------------------------------------------------------------ statistics
    def _of_row(self, registers: list[UOp]) -> list[UOp]:
        """Registers whose rows are those of `registers`, and whose keys a statistic reduces."""
        digits = self.fragment.c.registers
        pairs = zip(registers, self.inside, digits, strict=True)
        return [own if digit.row else inside for own, inside, digit in pairs]

    def _part(self, statistic: Statistic, registers: list[UOp]) -> UOp:
        """A statistic of what one lane has of a block."""
        own = self._of_row(registers)
        key_fragment = self.key_fragment_inside
        value = self._at(statistic.value, own, key_fragment)
        least = value.dtype.min if statistic.op is Ops.MAX else 0
        value = self._inside(value, UOp.const(value.dtype, least), own, key_fragment)
        digits = self.fragment.c.registers
        axes = [axis for axis, digit in zip(own, digits, strict=True) if not digit.row]
        axes = [axis for axis in (key_fragment, *axes) if axis.op is Ops.RANGE]
        return value.reduce(statistic.op, *axes) if axes else value

    def _over_lanes(self, value: UOp, op: Ops) -> UOp:
        """Of all lanes that have parts of the same row."""
        step = 1
        for digit in reversed(self.fragment.c.lanes):
            for _ in range(digit.size.bit_length() - 1):
                if not digit.row:
                    value = value.alu(op, UOp(Ops.SHUFFLE, value.dtype, (value,), step))
                step *= 2
        return value

    def _running(self, statistic: Statistic, registers: list[UOp]) -> UOp:
        """The reduction over all blocks of a maximum that others see as it runs."""
        part = self._over_lanes(self._part(statistic, registers), statistic.op)
        return self._over_blocks(part, statistic.op)

    def _over_blocks(self, part: UOp, op: Ops) -> UOp:
        return part.reduce(op, self.block) if self.block.op is Ops.RANGE else part

    def _so_far(self, statistic: Statistic, registers: list[UOp]) -> UOp:
        """A maximum with this block; of no finite value, zero: powers of minus infinity are then
        zeros, and the row is none in the end."""
        running = self._running(statistic, registers)
        found = running
        if self.block.op is Ops.RANGE:
            found = UOp(Ops.RUNNING, running.dtype, (running, self.block), True)
        nothing = found.const_like(found.dtype.min)
        return found.eq(nothing).where(found.const_like(0.0), found)

    def _shrinkage(self, registers: list[UOp]) -> UOp:
        """What sums so far are multiplied by, since the maximum has grown."""
        power = self.chain.power
        assert power is not None
        maximum = next(s for s in self.chain.statistics if s.node is power.maximum)
        running = self._running(maximum, registers)
        before = UOp(Ops.RUNNING, running.dtype, (running, self.block), False)
        change = before * power.scale - self._so_far(maximum, registers) * power.scale
        return UOp(Ops.EXP2, change.dtype, (change,), None, FALLING)

    def _statistic(self, statistic: Statistic, registers: list[UOp]) -> UOp:
        """A statistic of all keys."""
        if statistic.op is Ops.MAX:
            return self._running(statistic, registers)
        part = self._part(statistic, registers)
        if statistic.node in self.chain.scaled and self.block.op is Ops.RANGE:
            part = UOp(Ops.RESCALED, part.dtype, (part, self._shrinkage(registers)))
        return self._over_lanes(self._over_blocks(part, statistic.op), statistic.op)

    # ------------------------------------------------------------ the sum
    def _sum(self, factor: UOp) -> UOp:
        chain, fragment = self.chain, self.fragment
        left = self._at(factor, self.factor, self.key_fragment)
        half = index_const(0)
        if left.dtype is not fragment.a_dtype:
            # narrow numbers, whose sum it is: to 16 bits, or to all where outputs have as many
            count = 2 if self.store.src[0].dtype.itemsize < left.dtype.itemsize else 3
            half = axis_of(self.output, 5, count, AxisType.UNROLL)
            part = rest = left
            for number in range(1, count):
                rest = rest - rest.cast(fragment.a_dtype).cast(left.dtype)
                # of what is not finite the first is all there is
                rest = rest.ne(rest).where(rest.const_like(0.0), rest)
                part = (half < number).where(part, rest)
            left = part.cast(fragment.a_dtype)
        zero = UOp.const(left.dtype, 0)
        wide = left.src[0] if left.op is Ops.CAST else left
        if wide is not left:
            zero = UOp.const(wide.dtype, 0)
            left = self._inside(wide, zero, self.factor, self.key_fragment).cast(left.dtype)
        else:
            left = self._inside(left, zero, self.factor, self.key_fragment)
        start = self.column_fragment * fragment.n
        read, b_axes = self._read_right(start)
        closed = [axis for axis in self.factor if axis.op is Ops.RANGE]
        src = (left, read, self._register(self.outputs), *closed, *b_axes)
        product = UOp(Ops.WMMA, fragment.c_dtype, src, fragment)
        if chain.sum in chain.scaled and self.block.op is Ops.RANGE:
            product = UOp(Ops.RESCALED, product.dtype, (product, self._shrinkage(self.outputs)))
        loops = [axis for axis in (self.block, self.key_fragment, half) if axis.op is Ops.RANGE]
        return product.reduce(Ops.ADD, *loops) if loops else product

    def _stores_neighbours(self, count: int) -> bool:
        """Whether columns are neighbours in memory wherever outputs are stored or read."""
        if not self.chain.columns:
            return False
        last = self.chain.columns[-1]
        if size_of(last) % count:
            return False
        for node in UOp.sink(self.store.src[0], self.chain.value).toposort():
            if node.op is Ops.INDEX and last in node.ranges:
                if self.strides.of(node.src[1]).get(last, 0) not in (0, 1):
                    return False
        return True

    # ------------------------------------------------------------ operands
    def _stage_operands(self) -> None:
        """Rows once, keys block by block."""
        chain = self.chain
        self.staged: dict[UOp, tuple[tuple[UOp, int, int], tuple[UOp, int, int]]] = {}
        rows = Span(
            chain.rows,
            (self.row_block * self.row_tile).simplify(),
            self.row_tile,
            index_const(self.row_total),
        )
        first_key = ((self.first_block + self.block) * self.key_tile).simplify()
        keys = Span((chain.key,), first_key, self.key_tile, self.key_total)
        for number, inner in enumerate(chain.products):
            total = prod(size_of(axis) for axis in inner.terms)
            padded = self._padded_terms(inner)
            terms = Span(inner.terms, index_const(0), padded, index_const(total))
            self.staged[inner.node] = (
                self.operands.stage(inner.left, rows, terms, 1, 40 + 8 * number),
                self.operands.stage(inner.right, keys, terms, self.depth, 44 + 8 * number),
            )
        columns = Span(
            chain.columns,
            index_const(0),
            self.column_fragments * self.fragment.n,
            index_const(self.column_total),
        )
        if chain.right is not None:
            self.staged_right = self.operands.stage(chain.right, columns, keys, self.depth, 32)

    def _read(
        self,
        stage: UOp,
        side_step: int,
        term_step: int,
        start: UOp,
        terms: UOp,
        held: OperandMap,
        is_left: bool,
        inner: Inner,
        name: int,
    ) -> tuple[UOp, Axes]:
        at = start * side_step + terms * (self.fragment.k * term_step)
        return self.operands.load(
            stage, at, side_step, term_step, held, is_left, (inner.terms[0], name)
        )

    def _read_right(self, start: UOp) -> tuple[UOp, Axes]:
        stage, side_step, term_step = self.staged_right
        at = start * side_step + self.key_fragment * (self.fragment.k * term_step)
        name = (self.output, 28)
        return self.operands.load(stage, at, side_step, term_step, self.fragment.b, False, name)


def _only_if(place: UOp, condition: UOp) -> UOp:
    """A place that is there under one more condition."""
    valid = condition
    for other in place.src[2:]:
        valid = other & valid
    return place.with_src((*place.src[:2], valid))
