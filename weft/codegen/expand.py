"""Expand: write out the UPCAST and UNROLL axes of a kernel, turn VECTOR axes into lanes.

In: a kernel AST of scalars. Out: the same kernel without those axes: one UOp per combination of
the written-out axes a value depends on, vector dtypes where it depends on a VECTOR axis, and each
STAGE as `AFTER(LOCAL, STORE...)`. Sits after decompose (so that an op is decomposed once, not
once per copy) and before lower_index.
Invariant: a value that does not depend on an axis exists once, whatever else is copied around it.
"""

from __future__ import annotations

from weft.codegen.columns import LEAST_COPIES, Column, apply_column, copies_of, load_column
from weft.codegen.decompose.arithmetic import from_ordered_bits, ordered_bits
from weft.codegen.fold import fold_node
from weft.codegen.lanes import (
    Place,
    Ramp,
    Value,
    add,
    apply,
    index_const,
    is_true,
    load,
    materialize,
    scalar,
    scale,
    store,
)
from weft.codegen.linearize import identity_of, step
from weft.codegen.shuffle import LEAST_LOADED, load_apart, load_square, squares, store_square
from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.helpers import prod
from weft.uop.args import AxisType, LocalArg, MatrixArg, TileArg
from weft.uop.infer import CLOSES, derive_ranges
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

Axes = tuple[UOp, ...]
# threads that exchange what they have by an instruction, on all machines that do
WARP = 32
WRITTEN_OUT = (AxisType.UPCAST, AxisType.UNROLL)


def expand(sink: UOp, in_rows: bool = False, has_max: bool = True) -> UOp:
    """The kernel without UPCAST, UNROLL and VECTOR axes, and without axes of size 1.

    `in_rows`: the target shuffles lanes for less than it reads or writes them one by one.
    `has_max`: the target has a MAX of floats; else the greatest is found by the order of bits.
    """
    return _Expansion(sink, in_rows, has_max).run()


def _is_written_out(axis: UOp) -> bool:
    size = axis.src[0]
    if axis.arg.kind in WRITTEN_OUT and size.op is not Ops.CONST:
        raise CompileError(
            f"an axis of kind {axis.arg.kind.name} is written out and needs a constant size, "
            f"found {size.text()}"
        )
    return axis.arg.kind in WRITTEN_OUT or (size.op is Ops.CONST and size.arg == 1)


class _Expansion:
    """One walk over a kernel, sources first; `parts[node]` holds its copies in row-major order."""

    def __init__(self, sink: UOp, in_rows: bool, has_max: bool) -> None:
        self.in_rows = in_rows
        self.has_max = has_max
        self.order = sink.toposort()
        axes = sorted((u for u in self.order if u.op is Ops.RANGE), key=lambda u: u.arg.number)
        self.written = {axis: i for i, axis in enumerate(axes) if _is_written_out(axis)}
        self.vectors = {
            axis for axis in axes if axis.arg.kind is AxisType.VECTOR and axis not in self.written
        }
        self.parts: dict[UOp, list[Value]] = {}
        self.places: dict[UOp, list[Place]] = {}
        self.columns: dict[UOp, Column] = {}
        self.has_columns: dict[frozenset[UOp], bool] = {}
        self.axes_of: dict[frozenset[UOp], Axes] = {}
        self.lanes_of: dict[frozenset[UOp], int] = {}
        self.pickers: dict[tuple[Axes, Axes], list[int]] = {}
        self.fragments: dict[UOp, list[UOp]] = {}  # of a WMMA, or the sum of one: whole fragments
        self.locals = 0

    def run(self) -> UOp:
        met = (Ops.STAGE, Ops.SCAN, Ops.RANK, Ops.MOVE)  # these get their memory here
        if not (self.written or self.vectors or any(u.op in met for u in self.order)):
            return next(reversed(self.order))
        derive_ranges(self.order)
        for node in self.order:
            self._lanes(node)
            if node.op is Ops.RANGE:
                self.parts[node] = self._expand_range(node)
            elif node.op is Ops.INDEX:
                self.places[node] = self._expand_index(node)
            elif node.op is Ops.LOAD:
                self.parts[node] = list(self._expand_load(node))
            elif node.op is Ops.STORE:
                self.parts[node] = list(self._expand_store(node))
            elif node.op is Ops.REDUCE:
                self.parts[node] = list(self._expand_reduce(node))
            elif node.op is Ops.STAGE:
                self.parts[node] = list(self._expand_stage(node))
            elif node.op is Ops.WMMA:
                self.fragments[node] = self._expand_fragment(node)
                self.parts[node] = self._registers_of(node, self.fragments[node], node.ranges)
            elif node.op in (Ops.SCAN, Ops.RANK, Ops.MOVE):
                self.parts[node] = list(self._expand_prefix(node))
            elif node.op is Ops.RUNNING:
                self.parts[node] = list(self._expand_running(node))
            elif node.op is Ops.RESCALED:
                self.parts[node] = []  # the sum around it takes its parts
            elif node.op is Ops.SINK:
                flat = [scalar(part) for s in node.src for part in self.parts[s]]
                self.parts[node] = [node.with_src(tuple(dict.fromkeys(flat)))]
            else:
                self.parts[node] = self._expand_elementwise(node)
        return scalar(self.parts[node][0])

    # ------------------------------------------------------------ axes
    def _axes(self, ranges: frozenset[UOp]) -> Axes:
        """The written-out axes among `ranges`, in the one order used everywhere."""
        found = self.axes_of.get(ranges)
        if found is None:
            chosen = [axis for axis in ranges if axis in self.written]
            found = tuple(sorted(chosen, key=self.written.__getitem__))
            self.axes_of[ranges] = found
        return found

    def _lanes(self, node: UOp) -> int:
        """How many lanes a node has: 1 if it depends on no VECTOR axis."""
        found = self.lanes_of.get(node.ranges)
        if found is None:
            axes = [axis for axis in node.ranges if axis in self.vectors]
            if len(axes) > 1:
                numbers = sorted(axis.arg.number for axis in axes)
                raise CompileError(
                    f"{node.op.name} depends on {len(axes)} VECTOR axes {numbers}; "
                    "an expression may have one"
                )
            found = self.lanes_of[node.ranges] = axes[0].src[0].arg if axes else 1
        return found

    def _may_be_column(self, node: UOp) -> bool:
        """Whether the copies of a node could be lanes: along one axis, beside the lanes there are.

        Not in a reduction, where each is used once for many products: memory spreads a number over
        lanes for less than they are exchanged.
        """
        found = self.has_columns.get(node.ranges)
        if found is None:
            axes = self._axes(node.ranges)
            found = (
                self.in_rows
                and bool(self.vectors)
                and len(axes) == 1
                and axes[0].arg.kind is AxisType.UPCAST
                and axes[0].src[0].arg >= LEAST_COPIES
                and self._lanes(node) == 1
                and all([axis.arg.kind is not AxisType.REDUCE for axis in node.ranges])
            )
            self.has_columns[node.ranges] = found
        return found

    def _picker(self, outer: Axes, inner: Axes) -> list[int]:
        """For each combination of `outer`, the position of its part among those of `inner`."""
        key = (outer, inner)
        found = self.pickers.get(key)
        if found is None:
            strides = dict.fromkeys(outer, 0)
            stride = 1
            for axis in reversed(inner):
                strides[axis] = stride
                stride *= axis.src[0].arg
            found = [0]
            for axis in outer:
                step = strides[axis]
                found = [at + step * i for at in found for i in range(axis.src[0].arg)]
            self.pickers[key] = found
        return found

    def _pick(self, node: UOp, axes: Axes) -> list[Value]:
        """The part of `node` for each combination of `axes`."""
        parts = self.parts[node]
        if len(parts) == 1 and not axes:
            return parts
        return [parts[i] for i in self._picker(axes, self._axes(node.ranges))]

    def _expand_range(self, node: UOp) -> list[Value]:
        if node in self.written:
            return [UOp.const(dtypes.weakint, i) for i in range(node.src[0].arg)]
        if node in self.vectors:
            if node.src[0].op is not Ops.CONST:
                raise CompileError(f"a VECTOR axis needs a constant size, found {node.src[0]!r}")
            return [Ramp(UOp.const(dtypes.weakint, 0), 1)]
        sizes = self.parts[node.src[0]]
        if len(sizes) > 1:
            raise CompileError("the size of a loop cannot depend on an axis that is written out")
        return [node.with_src((scalar(sizes[0]),))]

    # ------------------------------------------------------------ elementwise
    def _expand_elementwise(self, node: UOp) -> list[Value]:
        if not node.src:
            return [node]
        axes = self._axes(node.ranges)
        count = self._lanes(node)
        if self.columns and self._may_be_column(node):
            column = self._expand_column(node)
            if column is not None:
                self.columns[node] = column
                return list(copies_of(column))
        sources = [self._pick(s, axes) for s in node.src]
        if len(sources) == 1:
            return [apply(node, (x,), count) for x in sources[0]]
        return [apply(node, operands, count) for operands in zip(*sources, strict=True)]

    def _expand_column(self, node: UOp) -> Column | None:
        """The node on columns, if it has any and its other operands are the same for all copies."""
        operands: list[Column | UOp] = []
        for source in node.src:
            if source in self.columns:
                operands.append(self.columns[source])
                continue
            parts = self.parts[source]
            if self._axes(source.ranges) or not isinstance(parts[0], UOp):
                return None
            operands.append(parts[0])
        if not any([isinstance(operand, list) for operand in operands]):
            return None
        return apply_column(node, operands)

    # ------------------------------------------------------------ memory
    def _expand_index(self, node: UOp) -> list[Place]:
        axes = self._axes(node.ranges)
        memory = self._pick(node.src[0], axes)
        index = self._pick(node.src[1], axes)
        if len(node.src) == 2:
            return [Place(scalar(m), i, None) for m, i in zip(memory, index, strict=True)]
        valid = self._pick(node.src[2], axes)
        return [
            Place(scalar(m), i, None if is_true(v) else scalar(v))
            for m, i, v in zip(memory, index, valid, strict=True)
        ]

    def _expand_load(self, node: UOp) -> list[UOp]:
        places, count = self.places[node.src[0]], self._lanes(node)
        if isinstance(node.arg, MatrixArg):
            dtype = node.dtype.vec(node.arg.count * 4 // node.dtype.itemsize)
            at = [place.memory.index(scalar(place.at), place.valid) for place in places]
            return [UOp(Ops.LOAD, dtype, (place,), node.arg) for place in at]
        if isinstance(node.arg, TileArg):
            at = [place.memory.index(scalar(place.at), place.valid) for place in places]
            return [UOp(Ops.LOAD, node.dtype, (place,), node.arg) for place in at]
        if self._may_be_column(node):
            column = load_column(node, places)
            if column is not None:
                self.columns[node] = column
                return copies_of(column)
        if not self.in_rows or count == 1:
            return [load(node, place, count) for place in places]
        loads: list[UOp | None] = [load_apart(node, place, count) for place in places]
        if loads[0] is None:
            for group in squares(places, count, LEAST_LOADED):
                turned = load_square(node, [places[i] for i in group], count)
                for i, value in zip(group, turned, strict=True):
                    loads[i] = value
        return [
            load(node, place, count) if value is None else value
            for place, value in zip(places, loads, strict=True)
        ]

    def _expand_store(self, node: UOp) -> list[UOp]:
        place, value = node.src[:2]
        axes = self._axes(place.ranges | value.ranges)
        count = max(self._lanes(place), self._lanes(value))
        places = [self.places[place][i] for i in self._picker(axes, self._axes(place.ranges))]
        values = self._pick(value, axes)
        loops = self._loops(node)
        stores: list[UOp | None] = []
        left = dict.fromkeys(range(len(places)))
        for group in squares(places, count) if self.in_rows else ():
            stores += store_square(
                [places[i] for i in group], [values[i] for i in group], count, loops
            )
            for i in group:
                del left[i]
        stores += [store(places[i], values[i], count, loops) for i in left]
        if node.arg is not None:
            stores = [None if each is None else each.replace(arg=node.arg) for each in stores]
        # who runs them at once asks whether they meet
        tag = None if self.in_rows else node.tag
        return [each.rtag(tag) for each in stores if each is not None]

    def _loops(self, node: UOp) -> tuple[UOp, ...]:
        """The axes a REDUCE, STAGE or STORE closes that stay loops."""
        closed = node.src[CLOSES[node.op] :]
        stay = [axis for axis in closed if axis not in self.written and axis not in self.vectors]
        return tuple([scalar(self.parts[axis][0]) for axis in stay])

    def _expand_stage(self, node: UOp) -> list[UOp]:
        """STAGE(value, r, v) -> AFTER(LOCAL, STORE(INDEX(LOCAL, r*4 + lanes), value, r))."""
        value, closed = node.src[0], node.src[1:]
        sizes = [axis.src[0] for axis in closed]
        if any(size.op is not Ops.CONST for size in sizes[1:]):
            raise CompileError("a STAGE needs fill axes of constant size, but for the first")
        if any(axis in self.vectors for axis in node.ranges):
            raise CompileError(
                "a staged value cannot depend on a VECTOR axis that it does not fill"
            )
        offset: Value = UOp.const(dtypes.weakint, 0)
        own = tuple([axis for axis in closed if axis in self.written])
        own = tuple(sorted(own, key=self.written.__getitem__))
        strides = {axis: prod(s.arg for s in sizes[i + 1 :]) for i, axis in enumerate(closed)}
        # where the first axis ends earlier, the rest of the memory is not used
        size = prod(int(s.vmax) for s in sizes)
        if node.arg.strides is not None:
            strides = dict(zip(closed, node.arg.strides, strict=True))
            size = int(node.shape[0]) * node.arg.depth
        # of a row in tiles, the last one overlaps: it ends where the row does
        tiles = closed[0] if node.arg.length is not None else None
        for axis in closed:
            if axis not in self.written:
                start = scale(self.parts[axis][0], strides[axis])
                if axis is tiles:
                    last = index_const(node.arg.length - strides[axis])
                    start = scalar(start).minimum(last).simplify()
                offset = add(offset, start)
        offsets = [offset]
        for axis in own:
            stride = strides[axis]
            starts = [stride * i for i in range(axis.src[0].arg)]
            if axis is tiles:
                starts = [min(start, node.arg.length - stride) for start in starts]
            offsets = [add(at, index_const(start)) for at in offsets for start in starts]
        count = next((axis.src[0].arg for axis in closed if axis in self.vectors), 1)
        loops = self._loops(node)
        free = self._axes(node.ranges)
        if node.arg.sweep and value.op is Ops.REDUCE and self.vectors.isdisjoint(value.src[1:]):
            memories = [self._new_local(node, size) for _ in range(_count(free))]
            return self._expand_sweep(node, memories, offsets, own)
        picked = self._pick(value, free + own)
        results = []
        for first in range(0, len(picked), len(offsets)):
            memory = self._new_local(node, size)
            fills = [
                store(Place(memory, at, None), x, count, loops)
                for at, x in zip(offsets, picked[first : first + len(offsets)], strict=True)
            ]
            filled = memory.after(*[fill for fill in fills if fill is not None])
            results.append(filled if node.arg.depth == 1 else filled.rtag(node.arg.depth))
        return results

    def _expand_sweep(
        self, node: UOp, memories: list[UOp], offsets: list[Value], own: Axes
    ) -> list[UOp]:
        """STAGE(REDUCE(x, k), r) -> AFTER(m, STORE(m[r], (0 if k < 1 else m[r]) + x, k, r)).

        Products that are written out are added one by one: a product and its sum become one
        operation. Other terms are added to each other first, which rounds less.
        """
        reduce = node.src[0]
        value = reduce.src[0]
        terms = self._axes(frozenset(reduce.src[1:]))
        fill_loops, loops = self._loops(node), self._loops(reduce)
        count = next((a.src[0].arg for a in node.src[1:] if a in self.vectors), 1)
        picked = self._pick(value, self._axes(node.ranges) + own + terms)
        start = identity_of(reduce.arg, reduce.dtype).broadcast(count)
        # a load that is not valid is a zero: the first round needs nothing in memory
        is_later: UOp | None = None
        for axis in loops:
            moved = index_const(0) < axis
            is_later = moved if is_later is None else is_later | moved
        group = _count(terms)
        results = []
        for number, memory in enumerate(memories):
            sums = []
            for place, at in enumerate(offsets):
                first = (number * len(offsets) + place) * group
                total = start
                if is_later is not None:
                    total = load(node, Place(memory, at, is_later), count)
                    if reduce.arg is not Ops.ADD:
                        lanes = is_later.broadcast(count)
                        total = UOp(Ops.WHERE, start.dtype, (lanes, total, start))
                wide = [
                    materialize(term, count).broadcast(count)
                    for term in picked[first : first + group]
                ]
                if reduce.arg is not Ops.ADD or value.op is not Ops.MUL:
                    wide = [_combine(reduce.arg, wide)]
                for term in wide:
                    total = step(reduce.arg, total, term)
                sums.append(store(Place(memory, at, None), total, count, (*loops, *fill_loops)))
            results.append(memory.after(*[each for each in sums if each is not None]))
        return results

    def _new_local(self, stage: UOp, size: int) -> UOp:
        return self._new_memory(stage.dtype, size, stage.arg.memory, stage.arg.is_swizzled)

    def _new_memory(self, dtype: DType, size: int, kind: str, is_swizzled: bool = False) -> UOp:
        arg = LocalArg(self.locals, size, kind, is_swizzled)
        self.locals += 1
        return UOp(Ops.LOCAL, dtype, (), arg)

    def _expand_prefix(self, node: UOp) -> list[UOp]:
        """SCAN(value, place) -> SCAN(its lanes, memory of the group's own)."""
        axes, count = self._axes(node.ranges), self._lanes(node)
        results = []
        for values in zip(*[self._pick(source, axes) for source in node.src[:-1]], strict=True):
            lanes = [materialize(value, count).broadcast(count) for value in values]
            memory = self._new_memory(node.dtype, prefix_memory(node), "shared")
            results.append(UOp(node.op, node.dtype.vec(count), (*lanes, memory), node.arg))
        return results

    # ------------------------------------------------------------ fragments
    def _fragment_axes(self, node: UOp, ranges: frozenset[UOp]) -> Axes:
        """The written-out axes that whole fragments differ in: not those of their registers."""
        return tuple([a for a in self._axes(ranges) if a not in node.src[2].ranges])

    def _expand_fragment(self, node: UOp) -> list[UOp]:
        """WMMA(A, B, register, a, b) -> WMMA(vector of A over a, vector of B over b, 0)."""
        free = self._fragment_axes(node, node.ranges)
        fragment = node.arg
        closed = set(node.src[3:])
        operands: list[list[UOp]] = []
        for value in node.src[:2]:
            own = tuple([a for a in self._axes(value.ranges) if a in closed])
            picked = self._pick(value, free + own)
            count = _count(own)
            groups = [picked[i : i + count] for i in range(0, len(picked), count)]
            operands.append([_joined([scalar(part) for part in group]) for group in groups])
        zero = UOp.const(node.dtype.vec(fragment.c.count), 0)
        return [
            UOp(Ops.WMMA, zero.dtype, (a, b, zero), fragment)
            for a, b in zip(*operands, strict=True)
        ]

    def _registers_of(self, node: UOp, whole: list[UOp], ranges: frozenset[UOp]) -> list[Value]:
        """The copies of a WMMA's value, or of their sum: registers of whole fragments."""
        axes = self._axes(ranges)
        fragments = self._picker(axes, self._fragment_axes(node, ranges))
        register = node.src[2]
        numbers = self._pick(register, axes)
        lanes = self._lanes(register)
        found: list[Value] = []
        for place, number in zip(fragments, numbers, strict=True):
            ramp = materialize(number, lanes)
            picked = tuple([int(s.arg) for s in ramp.src]) if ramp.src else (int(ramp.arg),)
            found.append(whole[place].gep(picked if len(picked) > 1 else picked[0]))
        return found

    def _reduce_fragments(self, node: UOp) -> list[UOp]:
        """A sum of fragments: one register for all that is written out, one after the other."""
        value, closed = node.src[0], node.src[1:]
        factors: list[UOp] | None = None
        if value.op is Ops.RESCALED:
            value, factor = value.src
            factors = self._factors_of(value, factor, node.ranges)
        own = tuple([axis for axis in self._axes(frozenset(closed)) if axis in self.written])
        free = self._fragment_axes(value, node.ranges)
        inner = self._fragment_axes(value, value.ranges)
        whole = self.fragments[value]
        picked = [whole[i] for i in self._picker(free + own, inner)]
        loops, count = self._loops(node), _count(own)
        sums = []
        for first in range(0, len(picked), count):
            total = picked[first]
            for term in picked[first + 1 : first + count]:
                total = step(Ops.ADD, total, term)
            if factors is not None and loops:
                total = UOp(Ops.RESCALED, total.dtype, (total, factors[first // count]))
            sums.append(total.reduce(Ops.ADD, *loops) if loops else total)
        return sums

    def _factors_of(self, node: UOp, factor: UOp, ranges: frozenset[UOp]) -> list[UOp]:
        """For each fragment of a sum, what its registers are multiplied by."""
        registers = tuple([axis for axis in self._axes(ranges) if axis in node.src[2].ranges])
        axes = self._fragment_axes(node, ranges) + registers
        numbers, picked = self._pick(node.src[2], axes), self._pick(factor, axes)
        lanes, count, group = self._lanes(node.src[2]), node.arg.c.count, _count(registers)
        found = []
        for first in range(0, len(picked), group):
            each: list[UOp] = [scalar(picked[first])] * count
            for at in range(first, first + group):
                ramp = materialize(numbers[at], lanes)
                for number in ramp.src or (ramp,):
                    each[int(number.arg)] = scalar(picked[at])
            found.append(UOp(Ops.VECTORIZE, each[0].dtype.vec(count), tuple(each)))
        return found

    # ------------------------------------------------------------ reduce
    def _expand_reduce(self, node: UOp) -> list[UOp]:
        """A loop per written-out part, then a tree over the parts, then a tree over the lanes."""
        value, closed = node.src[0], node.src[1:]
        summed = value.src[0] if value.op is Ops.RESCALED else value
        if summed.op is Ops.WMMA:
            whole = self._reduce_fragments(node)
            return [scalar(part) for part in self._registers_of(summed, whole, node.ranges)]
        if value.op is Ops.RESCALED:
            return self._reduce_rescaled(node)
        own = tuple([axis for axis in closed if axis in self.written])
        own = tuple(sorted(own, key=self.written.__getitem__))
        vector = [axis for axis in closed if axis in self.vectors]
        loops = self._loops(node)
        picked = self._pick(value, self._axes(node.ranges) + own)
        group = prod(axis.src[0].arg for axis in own)
        results = []
        for first in range(0, len(picked), group):
            terms = [materialize(x, self._lanes(value)) for x in picked[first : first + group]]
            if node.arg is Ops.MAX and node.dtype is dtypes.float32 and not self.has_max:
                terms = [ordered_bits(term) for term in terms]
                highest = _reduce_parts(Ops.MAX, terms, loops, vector)
                results.append(from_ordered_bits(highest))
            else:
                results.append(_reduce_parts(node.arg, terms, loops, vector))
        return results

    def _expand_running(self, node: UOp) -> list[UOp]:
        """A reduction as it runs; a loop of one round has run before it begins."""
        reduce, axis = node.src
        picked = [scalar(part) for part in self._pick(reduce, self._axes(node.ranges - {axis}))]
        if axis in self.written:
            return picked if node.arg else [identity_of(reduce.arg, x.dtype) for x in picked]
        return [node.with_src((part, scalar(self.parts[axis][0]))) for part in picked]

    def _reduce_rescaled(self, node: UOp) -> list[UOp]:
        """Terms that are written out are added up first: a round has one factor for all."""
        value, factor = node.src[0].src
        own = tuple([a for a in self._axes(frozenset(node.src[1:])) if a in self.written])
        free, loops, group = self._axes(node.ranges), self._loops(node), _count(own)
        picked = [scalar(part) for part in self._pick(value, free + own)]
        factors = [scalar(part) for part in self._pick(factor, free)]
        parts = [picked[first : first + group] for first in range(0, len(picked), group)]
        sums = [_combine(node.arg, part) for part in parts]
        if not loops:
            return sums
        pairs = [UOp(Ops.RESCALED, node.dtype, pair) for pair in zip(sums, factors, strict=True)]
        return [pair.reduce(node.arg, *loops) for pair in pairs]


def _joined(parts: list[UOp]) -> UOp:
    """The registers of an operand as one vector; a matrix load gives that already."""
    if len(parts) == 1:
        return parts[0]
    if all([part.op is Ops.CAST and part.src[0].dtype is parts[0].src[0].dtype for part in parts]):
        # conversions take several lanes at a time
        wide = _joined([part.src[0] for part in parts])
        return UOp(Ops.CAST, parts[0].dtype.vec(len(parts)), (wide,))
    return UOp(Ops.VECTORIZE, parts[0].dtype.vec(len(parts)), tuple(parts))


def prefix_memory(node: UOp) -> int:
    """Elements that a group shares for a SCAN (one a warp), a RANK (a count of each digit for every
    warp, and for all of them) or a MOVE (all of them, and a place for those that go nowhere)."""
    if node.op is Ops.MOVE:
        return int(node.src[2].vmax) + 2
    threads = [a for a in node.ranges if a.arg.kind in (AxisType.LOCAL, AxisType.WARP)]
    warps = -(-prod(int(axis.src[0].arg) for axis in threads) // WARP)
    return warps if node.op is Ops.SCAN else (warps + 1) << node.arg


def _count(axes: Axes) -> int:
    return prod(axis.src[0].arg for axis in axes)


def _reduce_parts(op: Ops, terms: list[UOp], loops: tuple[UOp, ...], vector: list[UOp]) -> UOp:
    if len({term.dtype.count for term in terms}) > 1:
        count = max(term.dtype.count for term in terms)
        terms = [term.broadcast(count) for term in terms]
    if vector and terms[0].dtype.count == 1:
        # the value is the same in every lane, and still counts once per lane
        terms = terms * vector[0].src[0].arg
        vector = []
    if op in GroupOp.Idempotent:
        terms = list(dict.fromkeys(terms))
    if loops:
        terms = [term.reduce(op, *loops) for term in terms]
    total = _combine(op, terms)
    return _combine_lanes(op, total) if vector else total


def _combine(op: Ops, terms: list[UOp]) -> UOp:
    """A balanced tree: short dependency chains, and the error of a pairwise sum."""
    while len(terms) > 1:
        pairs = [fold_node(step(op, terms[i], terms[i + 1])) for i in range(0, len(terms) - 1, 2)]
        terms = pairs + terms[len(pairs) * 2 :]
    return terms[0]


def _combine_lanes(op: Ops, vector: UOp) -> UOp:
    """The lanes of a vector folded to one scalar, halves first."""
    while vector.dtype.count > 1:
        count = vector.dtype.count
        if count % 2:
            return _combine(op, [vector.gep(i) for i in range(count)])
        low = vector.gep(tuple(range(count // 2)))
        high = vector.gep(tuple(range(count // 2, count)))
        vector = step(op, low, high)
    return vector
