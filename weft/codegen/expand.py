"""Expand: write out the UPCAST and UNROLL axes of a kernel, turn VECTOR axes into lanes.

In: a kernel AST of scalars. Out: the same kernel without those axes: one UOp per combination of the written-out
axes a value depends on, vector dtypes where it depends on a VECTOR axis, and each STAGE as
`AFTER(LOCAL, STORE...)`. Sits after decompose (so that an op is decomposed once, not once per copy) and before
lower_index.
Invariant: a value that does not depend on an axis exists once, whatever else is copied around it.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd
from typing import NamedTuple

from weft.codegen.fold import fold_node
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.helpers import prod
from weft.uop.args import AxisType, LocalArg
from weft.uop.node import CLOSES, UOp
from weft.uop.opset import GroupOp, Ops

Axes = tuple[UOp, ...]
WRITTEN_OUT = (AxisType.UPCAST, AxisType.UNROLL)


@dataclass(frozen=True, eq=False)
class Steps:
    """An index whose lane i is `base + step * i`: kept apart so that memory access can see it."""

    base: UOp
    step: int


Value = UOp | Steps


class Place(NamedTuple):
    """An INDEX, part by part: memory, index and validity may each be scalar or have lanes."""

    memory: UOp
    index: Value
    valid: UOp | None


def expand(sink: UOp) -> UOp:
    """The kernel without UPCAST, UNROLL and VECTOR axes, and without axes of size 1."""
    return _Expansion(sink).run()


def _is_written_out(axis: UOp) -> bool:
    size = axis.src[0]
    if axis.arg.kind in WRITTEN_OUT and size.op is not Ops.CONST:
        raise CompileError(
            f"an axis of kind {axis.arg.kind.name} is written out and needs a constant size, "
            f"found {size.render()}"
        )
    return axis.arg.kind in WRITTEN_OUT or (size.op is Ops.CONST and size.arg == 1)


class _Expansion:
    """One walk over a kernel, sources first; `parts[node]` holds its copies in row-major order."""

    def __init__(self, sink: UOp) -> None:
        self.order = sink.toposort()
        axes = sorted((u for u in self.order if u.op is Ops.RANGE), key=lambda u: u.arg.number)
        self.written = {axis: i for i, axis in enumerate(axes) if _is_written_out(axis)}
        self.vectors = {
            axis for axis in axes if axis.arg.kind is AxisType.VECTOR and axis not in self.written
        }
        self.parts: dict[UOp, list[Value]] = {}
        self.places: dict[UOp, list[Place]] = {}
        self.axes_of: dict[frozenset[UOp], Axes] = {}
        self.pickers: dict[tuple[Axes, Axes], list[int]] = {}
        self.locals = 0

    def run(self) -> UOp:
        if not self.written and not any(u.op is Ops.STAGE for u in self.order):
            if not self.vectors:
                return next(reversed(self.order))
        for node in self.order:
            self._lanes(node)
            if node.op is Ops.RANGE:
                self.parts[node] = self._expand_range(node)
            elif node.op is Ops.INDEX:
                self.places[node] = self._expand_index(node)
            elif node.op is Ops.LOAD:
                count = self._lanes(node)
                self.parts[node] = [_load(node, place, count) for place in self.places[node.src[0]]]
            elif node.op is Ops.STORE:
                self.parts[node] = list(self._expand_store(node))
            elif node.op is Ops.REDUCE:
                self.parts[node] = list(self._expand_reduce(node))
            elif node.op is Ops.STAGE:
                self.parts[node] = list(self._expand_stage(node))
            elif node.op is Ops.SINK:
                flat = [_scalar(part) for s in node.src for part in self.parts[s]]
                self.parts[node] = [node.with_src(tuple(dict.fromkeys(flat)))]
            else:
                self.parts[node] = self._expand_elementwise(node)
        return _scalar(self.parts[node][0])

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
        axes = [axis for axis in node.ranges if axis in self.vectors] if self.vectors else []
        if len(axes) > 1:
            numbers = sorted(axis.arg.number for axis in axes)
            raise CompileError(
                f"{node.op.name} depends on {len(axes)} VECTOR axes {numbers}; "
                "an expression may have one"
            )
        return axes[0].src[0].arg if axes else 1

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
            return [Steps(UOp.const(dtypes.weakint, 0), 1)]
        sizes = self.parts[node.src[0]]
        if len(sizes) > 1:
            raise CompileError("the size of a loop cannot depend on an axis that is written out")
        return [node.with_src((_scalar(sizes[0]),))]

    # ------------------------------------------------------------ elementwise
    def _expand_elementwise(self, node: UOp) -> list[Value]:
        if not node.src:
            return [node]
        axes = self._axes(node.ranges)
        count = self._lanes(node)
        sources = [self._pick(s, axes) for s in node.src]
        if len(sources) == 1:
            return [_apply(node, (x,), count) for x in sources[0]]
        return [_apply(node, operands, count) for operands in zip(*sources, strict=True)]

    # ------------------------------------------------------------ memory
    def _expand_index(self, node: UOp) -> list[Place]:
        axes = self._axes(node.ranges)
        memory = self._pick(node.src[0], axes)
        index = self._pick(node.src[1], axes)
        if len(node.src) == 2:
            return [Place(_scalar(m), i, None) for m, i in zip(memory, index, strict=True)]
        valid = self._pick(node.src[2], axes)
        return [
            Place(_scalar(m), i, None if _is_true(v) else _scalar(v))
            for m, i, v in zip(memory, index, valid, strict=True)
        ]

    def _expand_store(self, node: UOp) -> list[UOp]:
        place, value = node.src[:2]
        axes = self._axes(place.ranges | value.ranges)
        count = max(self._lanes(place), self._lanes(value))
        places = [self.places[place][i] for i in self._picker(axes, self._axes(place.ranges))]
        values = self._pick(value, axes)
        loops = self._loops(node)
        stores = [_store(p, v, count, loops) for p, v in zip(places, values, strict=True)]
        return [store for store in stores if store is not None]

    def _loops(self, node: UOp) -> tuple[UOp, ...]:
        """The axes a REDUCE, STAGE or STORE closes that stay loops."""
        closed = node.src[CLOSES[node.op] :]
        stay = [axis for axis in closed if axis not in self.written and axis not in self.vectors]
        return tuple([_scalar(self.parts[axis][0]) for axis in stay])

    def _expand_stage(self, node: UOp) -> list[UOp]:
        """STAGE(value, r, v) -> AFTER(LOCAL, STORE(INDEX(LOCAL, r*4 + lanes), value, r))."""
        value, closed = node.src[0], node.src[1:]
        sizes = [axis.src[0] for axis in closed]
        if any(size.op is not Ops.CONST for size in sizes):
            raise CompileError("a STAGE needs fill axes of constant size")
        if any(axis in self.vectors for axis in node.ranges):
            raise CompileError("a staged value cannot depend on a VECTOR axis that it does not fill")
        offset: Value = UOp.const(dtypes.weakint, 0)
        own = tuple([axis for axis in closed if axis in self.written])
        own = tuple(sorted(own, key=self.written.__getitem__))
        strides = {axis: prod(s.arg for s in sizes[i + 1 :]) for i, axis in enumerate(closed)}
        for axis in closed:
            if axis not in self.written:
                offset = _add(offset, _scale(self.parts[axis][0], strides[axis]))
        offsets = [offset]
        for axis in own:
            stride = strides[axis]
            size = axis.src[0].arg
            offsets = [_add(at, _index(stride * i)) for at in offsets for i in range(size)]
        count = next((axis.src[0].arg for axis in closed if axis in self.vectors), 1)
        loops = self._loops(node)
        free = self._axes(node.ranges)
        picked = self._pick(value, free + own)
        results = []
        for first in range(0, len(picked), len(offsets)):
            memory = self._new_local(node, prod(size.arg for size in sizes))
            fills = [
                _store(Place(memory, at, None), x, count, loops)
                for at, x in zip(offsets, picked[first : first + len(offsets)], strict=True)
            ]
            results.append(memory.after(*[fill for fill in fills if fill is not None]))
        return results

    def _new_local(self, stage: UOp, size: int) -> UOp:
        arg = LocalArg(self.locals, size, stage.arg.memory)
        self.locals += 1
        return UOp(Ops.LOCAL, stage.dtype, (), arg)

    # ------------------------------------------------------------ reduce
    def _expand_reduce(self, node: UOp) -> list[UOp]:
        """A loop per written-out part, then a tree over the parts, then a tree over the lanes."""
        value, closed = node.src[0], node.src[1:]
        own = tuple([axis for axis in closed if axis in self.written])
        own = tuple(sorted(own, key=self.written.__getitem__))
        vector = [axis for axis in closed if axis in self.vectors]
        loops = self._loops(node)
        picked = self._pick(value, self._axes(node.ranges) + own)
        group = prod(axis.src[0].arg for axis in own)
        results = []
        for first in range(0, len(picked), group):
            terms = [_materialize(x, self._lanes(value)) for x in picked[first : first + group]]
            results.append(_reduce_parts(node.arg, terms, loops, vector))
        return results


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
        pairs = [
            fold_node(UOp(op, terms[i].dtype, (terms[i], terms[i + 1])))
            for i in range(0, len(terms) - 1, 2)
        ]
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
        vector = UOp(op, low.dtype, (low, high))
    return vector


# ------------------------------------------------------------ lanes
def _scalar(part: Value) -> UOp:
    if isinstance(part, Steps):
        raise CompileError("an index with lanes stands where a value is needed")
    return part


def _is_true(part: Value) -> bool:
    return isinstance(part, UOp) and part.op is Ops.CONST and bool(part.arg)


def _index(value: int) -> UOp:
    return UOp.const(dtypes.weakint, value)


def _materialize(part: Value, count: int) -> UOp:
    """A value as a UOp: lanes as a vector, scalars as they are."""
    if not isinstance(part, Steps):
        return part
    ramp = UOp(
        Ops.VECTORIZE,
        dtypes.weakint.vec(count),
        tuple([_index(part.step * i) for i in range(count)]),
    )
    if part.base.op is Ops.CONST:
        lanes = tuple([_index(part.base.arg + part.step * i) for i in range(count)])
        return ramp.with_src(lanes)
    return UOp(Ops.ADD, ramp.dtype, (part.base.broadcast(count), ramp))


def _apply(node: UOp, operands: tuple[Value, ...], count: int) -> Value:
    """`node` on these operands: scalar if they all are, else lane by lane."""
    if all([isinstance(x, UOp) and x.dtype.count == 1 for x in operands]):
        sources: tuple[UOp, ...] = operands  # type: ignore[assignment]
        return node if sources == node.src else fold_node(node.with_src(sources))
    stepped = _apply_to_steps(node, operands, count)
    if stepped is not None:
        return stepped
    vectors = [_materialize(x, count) for x in operands]
    folded = _fold_lanes(node, vectors, count)
    if folded is not None:
        return folded
    wide = tuple([x.broadcast(count) for x in vectors])
    return UOp(node.op, node.dtype.vec(count), wide, node.arg, node.tag)


def _fold_lanes(node: UOp, operands: list[UOp], count: int) -> UOp | None:
    """Constant lanes are computed here: (0, 1, 2, 3) < 2 is (true, true, false, false)."""
    for x in operands:
        lanes = x.src if x.op is Ops.VECTORIZE else (x,)
        if any([lane.op is not Ops.CONST for lane in lanes]):
            return None
    results = []
    for i in range(count):
        lanes = tuple([x.src[i] if x.op is Ops.VECTORIZE else x for x in operands])
        results.append(fold_node(node.with_src(lanes)))
    if any([result.op is not Ops.CONST for result in results]):
        return None
    if all([result is results[0] for result in results]):
        return results[0]
    return UOp(Ops.VECTORIZE, node.dtype.vec(count), tuple(results))


def _add(x: Value, y: Value) -> Value:
    if isinstance(x, Steps) or isinstance(y, Steps):
        x, y = _as_steps(x), _as_steps(y)
        return _steps(_plus(x.base, y.base), x.step + y.step)
    return _plus(x, y)


def _plus(x: UOp, y: UOp) -> UOp:
    return fold_node(UOp(Ops.ADD, dtypes.weakint, (x, y)))


def _scale(x: Value, factor: int) -> Value:
    if isinstance(x, Steps):
        return _steps(_times(x.base, factor), x.step * factor)
    return _times(x, factor)


def _times(x: UOp, factor: int) -> UOp:
    return fold_node(UOp(Ops.MUL, dtypes.weakint, (x, _index(factor))))


def _as_steps(x: Value) -> Steps:
    return x if isinstance(x, Steps) else Steps(x, 0)


def _steps(base: UOp, step: int) -> Value:
    return Steps(base, step) if step else base


def _apply_to_steps(node: UOp, operands: tuple[Value, ...], count: int) -> Value | None:
    """Index arithmetic that keeps the form base + step * lane, or loses its lanes altogether."""
    if any([isinstance(x, UOp) and x.dtype.count > 1 for x in operands]) or len(operands) > 2:
        return None
    if node.op is Ops.ADD:
        return _add(*operands)
    if node.op is Ops.NEG:
        return _scale(operands[0], -1)
    if len(operands) != 2:
        return None
    left, right = operands
    if node.op is Ops.MUL and isinstance(left, UOp):
        left, right = right, left
    if node.op is Ops.CMPLT:
        return _compare_steps(node, _as_steps(left), _as_steps(right), count)
    if not isinstance(left, Steps) or not isinstance(right, UOp) or right.op is not Ops.CONST:
        return None
    if node.op is Ops.MUL:
        return _scale(left, right.arg)
    return _divide_steps(node, left, right, count)


def _divide_steps(node: UOp, left: Steps, right: UOp, count: int) -> Value | None:
    """(8*o + lane) // 16 -> (8*o) // 16 and (8*o + lane) % 16 -> (8*o) % 16 + lane, for 8 lanes.

    All lanes lie between two multiples of the base's factor, so none crosses a multiple of the
    divisor. Shifts and masks are the same divisions by a power of two.
    """
    if node.op in (Ops.IDIV, Ops.MOD):
        divisor, is_division = right.arg, node.op is Ops.IDIV
        if node.tag == "raw" and left.base.vmin < 0:
            return None
    elif node.op is Ops.SHR:
        divisor, is_division = 1 << right.arg, True
    elif node.op is Ops.AND and right.arg > 0 and not (right.arg + 1) & right.arg:
        divisor, is_division = right.arg + 1, False
    else:
        return None
    unit = gcd(_common_factor(left.base), divisor)
    if divisor <= 0 or not 0 <= left.step * (count - 1) < unit:
        return None
    result = fold_node(node.with_src((left.base, right)))
    return result if is_division else _steps(result, left.step)


def _compare_steps(node: UOp, left: Steps, right: Steps, count: int) -> Value | None:
    """8*o + lane < 24 -> 8*o < 24, for 8 lanes: either all lanes are below or none is."""
    if right.step == 0:
        unit = gcd(_common_factor(left.base), _common_factor(right.base))
        if 0 <= left.step * (count - 1) < unit:
            return fold_node(node.with_src((left.base, right.base)))
    elif left.step == 0:
        # c < base + lane, where base is a multiple of the unit and c one less than one
        bound = _plus(left.base, _index(1))
        unit = gcd(_common_factor(bound), _common_factor(right.base))
        if 0 <= right.step * (count - 1) < unit:
            return fold_node(node.with_src((left.base, right.base)))
    return None


def _common_factor(node: UOp) -> int:
    """A number that divides the index whatever its variables are; 0 divides only the constant 0."""
    factor = 0
    stack = [node]
    while stack:
        term = stack.pop()
        if term.op is Ops.ADD:
            stack.extend(term.src)
        elif term.op is Ops.CONST:
            factor = gcd(factor, term.arg)
        elif term.op is Ops.MUL and term.src[1].op is Ops.CONST:
            factor = gcd(factor, term.src[1].arg)
        elif term.op is Ops.SHL and term.src[1].op is Ops.CONST:
            factor = gcd(factor, 1 << term.src[1].arg)
        else:
            return 1
    return factor


# ------------------------------------------------------------ loads and stores
def _load(node: UOp, place: Place, count: int) -> UOp:
    """Consecutive lanes become one vector load, equal lanes one scalar load, others a gather."""
    memory, index, valid = place
    has_lanes = isinstance(index, Steps) or index.dtype.count > 1
    if not has_lanes and (valid is None or valid.dtype.count == 1):
        return _index_of(memory, _materialize(index, count), valid).load()
    dtype = node.dtype.vec(count)
    if isinstance(index, Steps) and index.step == 1:
        return UOp(Ops.LOAD, dtype, (_index_of(memory, index.base, valid),))
    if isinstance(index, Steps) and index.step == -1 and (valid is None or valid.dtype.count == 1):
        first = _plus(index.base, _index(1 - count))
        forward = UOp(Ops.LOAD, dtype, (_index_of(memory, first, valid),))
        return forward.gep(tuple(reversed(range(count))))
    wide = _materialize(index, count).broadcast(count)
    return UOp(Ops.LOAD, dtype, (_index_of(memory, wide, valid),))


def _store(place: Place, value: Value, count: int, loops: tuple[UOp, ...]) -> UOp | None:
    """Consecutive lanes become one vector store, others a scatter; None if nothing is written."""
    memory, index, valid = place
    if valid is not None and valid.op is Ops.CONST and not valid.arg:
        return None
    if count == 1:
        return _index_of(memory, _scalar(index), valid).store(_scalar(value), *loops)
    wide = _materialize(value, count).broadcast(count)
    if isinstance(index, Steps) and index.step == 1:
        return _index_of(memory, index.base, valid).store(wide, *loops)
    lanes = _materialize(index, count).broadcast(count)
    return _index_of(memory, lanes, valid).store(wide, *loops)


def _index_of(memory: UOp, index: UOp, valid: UOp | None) -> UOp:
    return memory.index(index, valid)
