"""Lanes: values with one entry per lane of a VECTOR axis, and how memory is reached with them.

In: operands that are scalars, vectors, or steps (base + step * lane). Out: the result of an op, a
load or a store on them, in the plainest of those forms. Sits below expand, which asks part by
part.
Invariant: what is the same in every lane stays scalar, and consecutive lanes stay `base + lane`,
so that most memory access is one scalar load or one vector load; only what is left becomes a
gather or a scatter.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

from weft.codegen.fold import fold_node
from weft.dtype import dtypes
from weft.errors import CompileError
from weft.uop.node import UOp
from weft.uop.opset import Ops


@dataclass(eq=False, slots=True)
class Ramp:
    """An index whose lane i is `base + step * i`: kept apart so that memory access can see it."""

    base: UOp
    step: int


Value = UOp | Ramp


@dataclass(eq=False, slots=True)
class Place:
    """One part of an INDEX: index and validity may each be scalar or have lanes."""

    memory: UOp
    at: Value
    valid: UOp | None


def scalar(part: Value) -> UOp:
    if isinstance(part, Ramp):
        raise CompileError("an index with lanes stands where a value is needed")
    return part


def is_true(part: Value) -> bool:
    return isinstance(part, UOp) and part.op is Ops.CONST and bool(part.arg)


def index_const(value: int) -> UOp:
    return UOp.const(dtypes.weakint, value)


def materialize(part: Value, count: int) -> UOp:
    """A value as a UOp: lanes as a vector, scalars as they are."""
    if not isinstance(part, Ramp):
        return part
    ramp = UOp(
        Ops.VECTORIZE,
        dtypes.weakint.vec(count),
        tuple([index_const(part.step * i) for i in range(count)]),
    )
    if part.base.op is Ops.CONST:
        lanes = tuple([index_const(part.base.arg + part.step * i) for i in range(count)])
        return ramp.with_src(lanes)
    return UOp(Ops.ADD, ramp.dtype, (part.base.broadcast(count), ramp))


def apply(node: UOp, operands: tuple[Value, ...], count: int) -> Value:
    """`node` on these operands: scalar if they all are, else lane by lane."""
    first = operands[0]
    if node.op is Ops.WHERE and isinstance(first, UOp) and first.op is Ops.CONST:
        # what chooses between copies is mostly known by now
        return operands[1] if first.arg else operands[2]
    has_steps = has_vectors = False
    for x in operands:
        if isinstance(x, Ramp):
            has_steps = True
        elif x.dtype.count > 1:
            has_vectors = True
    if has_steps:
        stepped = None if has_vectors else _apply_to_steps(node, operands, count)
        if stepped is not None:
            return stepped
        operands = tuple([materialize(x, count) for x in operands])
    plain: tuple[UOp, ...] = operands  # type: ignore[assignment]
    if not has_steps and not has_vectors:
        return node if plain == node.src else _apply_to_scalars(node, plain)
    folded = _fold_lanes(node, plain, count)
    if folded is not None:
        return folded
    wide = tuple([x.broadcast(count) for x in plain])
    return UOp(node.op, node.dtype.vec(count), wide, node.arg, node.tag)


def _apply_to_scalars(node: UOp, operands: tuple[UOp, ...]) -> UOp:
    """Most are indices of copies: their sums, and what is asked about the axes written out."""
    if operands[0].dtype is dtypes.weakint:
        if node.op is Ops.ADD:
            return plus(*operands)
        if node.op is Ops.CMPLT and all([x.op is Ops.CONST for x in operands]):
            return UOp.const(node.dtype, operands[0].arg < operands[1].arg)
    return fold_node(node.with_src(operands))


def _fold_lanes(node: UOp, operands: tuple[UOp, ...], count: int) -> UOp | None:
    """Constant lanes are computed here: (0, 1, 2, 3) < 2 is (true, true, false, false)."""
    for x in operands:
        for lane in x.src if x.op is Ops.VECTORIZE else (x,):
            if lane.op is not Ops.CONST:
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


def add(x: Value, y: Value) -> Value:
    if isinstance(x, Ramp) or isinstance(y, Ramp):
        x, y = _as_steps(x), _as_steps(y)
        return _steps(plus(x.base, y.base), x.step + y.step)
    return plus(x, y)


def plus(x: UOp, y: UOp) -> UOp:
    """The sum of two index expressions."""
    if y.op is Ops.CONST and x.op in _SUMMED:
        # the constant stands last, and is one
        offset = y.arg
        if x.op is Ops.CONST:
            return index_const(x.arg + offset)
        if x.op is Ops.ADD and x.src[1].op is Ops.CONST:
            x, offset = x.src[0], x.src[1].arg + offset
        return UOp(Ops.ADD, dtypes.weakint, (x, index_const(offset))) if offset else x
    return fold_node(UOp(Ops.ADD, dtypes.weakint, (x, y)))


_SUMMED = frozenset({Ops.CONST, Ops.RANGE, Ops.MUL, Ops.ADD})


def scale(x: Value, factor: int) -> Value:
    if isinstance(x, Ramp):
        return _steps(_times(x.base, factor), x.step * factor)
    return _times(x, factor)


def _times(x: UOp, factor: int) -> UOp:
    return fold_node(UOp(Ops.MUL, dtypes.weakint, (x, index_const(factor))))


def _as_steps(x: Value) -> Ramp:
    return x if isinstance(x, Ramp) else Ramp(x, 0)


def _steps(base: UOp, step: int) -> Value:
    return Ramp(base, step) if step else base


def _apply_to_steps(node: UOp, operands: tuple[Value, ...], count: int) -> Value | None:
    """Index arithmetic that keeps the form base + step * lane, or loses its lanes altogether.

    No operand is a vector.
    """
    if len(operands) > 2:
        return None
    if node.op is Ops.ADD:
        return add(*operands)
    if node.op is Ops.NEG:
        return scale(operands[0], -1)
    if len(operands) != 2:
        return None
    left, right = operands
    if node.op is Ops.MUL and isinstance(left, UOp):
        left, right = right, left
    if node.op is Ops.CMPLT:
        return _compare_steps(node, _as_steps(left), _as_steps(right), count)
    if not isinstance(left, Ramp) or not isinstance(right, UOp) or right.op is not Ops.CONST:
        return None
    if node.op is Ops.MUL:
        return scale(left, right.arg)
    return _divide_steps(node, left, right, count)


def _divide_steps(node: UOp, left: Ramp, right: UOp, count: int) -> Value | None:
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
    unit = gcd(common_factor(left.base), divisor)
    if divisor <= 0 or not 0 <= left.step * (count - 1) < unit:
        return None
    result = fold_node(node.with_src((left.base, right)))
    return result if is_division else _steps(result, left.step)


def _compare_steps(node: UOp, left: Ramp, right: Ramp, count: int) -> Value | None:
    """8*o + lane < 24 -> 8*o < 24, for 8 lanes: either all lanes are below or none is."""
    if right.step == 0:
        unit = gcd(common_factor(left.base), common_factor(right.base))
        if 0 <= left.step * (count - 1) < unit:
            return fold_node(node.with_src((left.base, right.base)))
    elif left.step == 0:
        # c < base + lane, where base is a multiple of the unit and c one less than one
        bound = plus(left.base, index_const(1))
        unit = gcd(common_factor(bound), common_factor(right.base))
        if 0 <= right.step * (count - 1) < unit:
            return fold_node(node.with_src((left.base, right.base)))
    return None


def common_factor(node: UOp) -> int:
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
def load(node: UOp, place: Place, count: int) -> UOp:
    """Consecutive lanes become one vector load, equal lanes one scalar load, others a gather."""
    memory, index, valid = place.memory, place.at, place.valid
    has_lanes = isinstance(index, Ramp) or index.dtype.count > 1
    if not has_lanes and (valid is None or valid.dtype.count == 1):
        return memory.index(materialize(index, count), valid).load()
    dtype = node.dtype.vec(count)
    if isinstance(index, Ramp) and index.step == 1:
        return UOp(Ops.LOAD, dtype, (memory.index(index.base, valid),))
    if isinstance(index, Ramp) and index.step == -1 and (valid is None or valid.dtype.count == 1):
        first = plus(index.base, index_const(1 - count))
        forward = UOp(Ops.LOAD, dtype, (memory.index(first, valid),))
        return forward.gep(tuple(reversed(range(count))))
    wide = materialize(index, count).broadcast(count)
    return UOp(Ops.LOAD, dtype, (memory.index(wide, valid),))


def store(place: Place, value: Value, count: int, loops: tuple[UOp, ...]) -> UOp | None:
    """Consecutive lanes become one vector store, others a scatter; None if nothing is written."""
    memory, index, valid = place.memory, place.at, place.valid
    if valid is not None and valid.op is Ops.CONST and not valid.arg:
        return None
    if count == 1:
        return memory.index(scalar(index), valid).store(scalar(value), *loops)
    wide = materialize(value, count).broadcast(count)
    if isinstance(index, Ramp) and index.step == 1:
        return memory.index(index.base, valid).store(wide, *loops)
    lanes = materialize(index, count).broadcast(count)
    return memory.index(lanes, valid).store(wide, *loops)
