"""Folding: what constants, neutral elements and repeated operands make trivial, for every dtype.

What comes in: one node and its sources. What goes out: a plainer node of the same value.
Where it sits: first of the rule sets; all simplification includes it.
The one invariant: each rule is value-preserving for every dtype it matches. Ints wrap; floats keep
-0.0, inf and nan: `x + 0.0` is not `x` for x = -0.0, `x * 0` is not 0, and nothing is reassociated.
Nodes tagged "raw" (truncating division, proven operands) are folded only where both meanings agree.
"""

from __future__ import annotations

import math

from weft.dtype import FORMATS, can_lossless_cast, dtypes
from weft.uop import evaluate
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops
from weft.uop.pattern import UPat
from weft.uop.rules.shaped import (
    FLOATS,
    INTS,
    INTS_AND_BOOL,
    constant_like,
    logical_not,
    shaped_like,
)

x, y, z = UPat.var("x"), UPat.var("y"), UPat.var("z")
c, d = UPat.cvar("c"), UPat.cvar("d")


# ------------------------------------------------------------ constants
def fold_constants(node: UOp) -> UOp | None:
    """2 + 3 -> 5, by the reference value of the op."""
    if node.dtype.count > 1:
        return None
    values = [s.arg for s in node.src]
    if node.tag == "raw" and node.op in (Ops.IDIV, Ops.MOD) and min(values) < 0:
        return None
    if node.op is Ops.BITCAST and node.src[0].dtype.itemsize != node.dtype.itemsize:
        return None
    return _folded(node, values)


def _folded(node: UOp, values: list[float]) -> UOp | None:
    scalar = node.dtype.scalar()
    source_dtypes = [s.dtype.scalar() for s in node.src]
    value = evaluate.evaluate(node.op, scalar, *values, src_dtypes=source_dtypes)
    if scalar is dtypes.weakint and not dtypes.int64.min <= value <= dtypes.int64.max:
        # a constant holds 64 bits, weakint has no limit
        return None
    return UOp.const(scalar, value)


def fold_vector_constants(node: UOp) -> UOp | None:
    """(1, 2) + (3, 4) -> (4, 6)"""
    if node.op is Ops.BITCAST or node.tag == "raw":
        return None
    lanes = []
    for lane in range(node.dtype.count):
        folded = _folded(node, [s.src[lane].arg for s in node.src])
        if folded is None:
            return None
        lanes.append(folded)
    return UOp(Ops.VECTORIZE, node.dtype, tuple(lanes))


def move_constant_right(node: UOp) -> UOp | None:
    """3 + x -> x + 3, so that other rules look for constants in one place."""
    left, right = node.src
    if left.op is Ops.CONST and right.op is not Ops.CONST:
        return node.with_src((right, left))
    return None


def merge_constants(node: UOp, inner: UOp, x: UOp, c: UOp, d: UOp) -> UOp | None:
    """(x op 3) op 5 -> x op (3 op 5), for ops that associate exactly"""
    if inner.op is not node.op:
        return None
    both = _folded(node, [c.arg, d.arg])
    return None if both is None else UOp(node.op, node.dtype, (x, both))


# ------------------------------------------------------------ neutral elements
def fold_add(x: UOp, c: UOp) -> UOp | None:
    """x + 0 -> x of ints; of floats x + -0.0 -> x, and x + 0.0 -> x where x was an int"""
    if dtypes.is_int(x.dtype):
        return x if c.arg == 0 else None
    value = float(c.arg)
    if value != 0.0:
        return None
    was_int = x.op is Ops.CAST and not dtypes.is_float(x.src[0].dtype)
    return x if was_int or math.copysign(1.0, value) < 0 else None


def fold_multiply(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x * 1 -> x,  x * -1 -> -x,  and of ints x * 0 -> 0"""
    value = c.arg
    if value == 1:
        return x
    if dtypes.is_int(x.dtype):
        if value == 0:
            return constant_like(node, 0)
        # all ones of an unsigned dtype is -1 as well
        if value == -1 or (dtypes.is_unsigned(x.dtype) and value == x.dtype.max):
            return UOp(Ops.NEG, node.dtype, (x,))
        return None
    return UOp(Ops.NEG, node.dtype, (x,)) if value == -1.0 else None


def fold_divide(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x / 1 -> x,  x / 8 -> x * 0.125: exact, since both round the same number once"""
    value = float(c.arg)
    if value == 1.0:
        return x
    if not math.isfinite(value) or abs(math.frexp(value)[0]) != 0.5:
        return None
    inverse = UOp.const(node.dtype, 1.0 / value)
    # the inverse must be a normal number: some hardware flushes the others
    least_normal = 2.0 ** (1 - FORMATS[node.dtype].bias)
    if float(inverse.arg) * value != 1.0 or abs(1.0 / value) < least_normal:
        return None
    return UOp(Ops.MUL, node.dtype, (x, inverse))


def fold_int_divide(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x // 1 -> x,  x // -1 -> -x,  x // 0 -> 0"""
    if c.arg == 1:
        return x
    if c.arg == 0:
        return constant_like(node, 0)
    if c.arg == -1:
        return UOp(Ops.NEG, node.dtype, (x,))
    return None


def fold_modulo(node: UOp, c: UOp) -> UOp | None:
    """x % 1, x % -1, x % 0 -> 0"""
    return constant_like(node, 0) if c.arg in (0, 1, -1) else None


def fold_maximum(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """max(x, least of the dtype) -> x, and of ints max(x, greatest) -> greatest

    Of floats the first lets nan and -0.0 through as they are; the second would lose nan.
    """
    if node.dtype is dtypes.weakint:
        return None
    if bool(c.arg == node.dtype.min):
        return x
    at_most = node.dtype.kind != "float" and c.arg == node.dtype.max
    return shaped_like(node, c) if at_most else None


def _all_ones(node: UOp) -> int:
    scalar = node.dtype.scalar()
    return int(scalar.max) if scalar.kind in ("uint", "bool") else -1


def fold_and(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x & 0 -> 0,  x & -1 -> x"""
    if c.arg == 0:
        return constant_like(node, 0)
    return x if c.arg == _all_ones(node) else None


def fold_or(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x | 0 -> x,  x | -1 -> -1"""
    if c.arg == 0:
        return x
    return shaped_like(node, c) if c.arg == _all_ones(node) else None


def fold_xor(x: UOp, c: UOp) -> UOp | None:
    """x ^ 0 -> x, and of bools x ^ True -> not x"""
    if c.arg == 0:
        return x
    return logical_not(x) if x.dtype.kind == "bool" else None


def fold_shift(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """x << 0 -> x, and a shift by the width or more -> 0 (or the sign)"""
    if c.arg == 0:
        return x
    width = node.dtype.scalar().bitsize
    if 0 < c.arg < width or node.dtype is dtypes.weakint:
        return None
    if node.op is Ops.SHL or x.vmin >= 0:
        return constant_like(node, 0)
    return UOp(Ops.SHR, node.dtype, (x, UOp.const(c.dtype, width - 1)))


# ------------------------------------------------------------ conditions
def fold_where(node: UOp, x: UOp, y: UOp, z: UOp) -> UOp | None:
    """where(True, y, z) -> y,  where(x, y, y) -> y"""
    if y is z:
        return shaped_like(node, y)
    if x.op is Ops.CONST:
        return shaped_like(node, y if x.arg else z)
    return None


def fold_where_bool(x: UOp, y: UOp, z: UOp) -> UOp | None:
    """where(x, y, False) -> x & y,  where(x, True, z) -> x | z,  and the ones with not x"""
    if z.op is Ops.CONST:
        if z.arg:
            return UOp(Ops.OR, y.dtype, (logical_not(x), y))
        return UOp(Ops.AND, y.dtype, (x, y))
    if y.op is Ops.CONST:
        if y.arg:
            return UOp(Ops.OR, z.dtype, (x, z))
        return UOp(Ops.AND, z.dtype, (logical_not(x), z))
    return None


def fold_where_numbers(node: UOp, x: UOp, c: UOp, d: UOp) -> UOp | None:
    """where(x, 1, 0) -> cast(x),  where(x, 0, 1) -> cast(not x)"""
    one, zero = UOp.const(node.dtype, 1), UOp.const(node.dtype, 0)
    if c is one and d is zero:
        return x.cast(node.dtype)
    if c is zero and d is one:
        return logical_not(x).cast(node.dtype)
    return None


def swap_where(x: UOp, y: UOp, z: UOp) -> UOp:
    """where(not x, y, z) -> where(x, z, y)"""
    return UOp(Ops.WHERE, y.dtype, (x, z, y))


def merge_where(node: UOp, x: UOp, y: UOp, z: UOp) -> UOp | None:
    """where(x, where(x, a, b), z) -> where(x, a, z), and the same in the other branch

    where(x, where(d, a, z), z) -> where(x & d, a, z)
    where(x, y, where(d, y, b)) -> where(x | d, y, b)
    """
    if y.op is Ops.WHERE:
        condition, first, second = y.src
        if condition is x:
            return shaped_like(node, node.with_src((x, first, z)))
        if second is z:
            return node.with_src((UOp(Ops.AND, x.dtype, (x, condition)), first, z))
    if z.op is Ops.WHERE:
        condition, first, second = z.src
        if condition is x:
            return shaped_like(node, node.with_src((x, y, second)))
        if first is y:
            return node.with_src((UOp(Ops.OR, x.dtype, (x, condition)), y, second))
    return None


def fold_same_compared(node: UOp, x: UOp) -> UOp | None:
    """x < x -> False; of ints x == x -> True, x != x -> False (of floats these ask for nan)"""
    if node.op is Ops.CMPLT:
        return constant_like(node, False)
    if dtypes.is_float(x.dtype):
        return None
    return constant_like(node, node.op is Ops.CMPEQ)


def fold_bool_compared(node: UOp, x: UOp, c: UOp) -> UOp | None:
    """(x == True) -> x,  (x != True) -> (x == False),  (x < True) -> (x == False)"""
    if node.op is Ops.CMPLT:
        return logical_not(x) if c.arg else constant_like(node, False)
    if (node.op is Ops.CMPEQ) == bool(c.arg):
        return x
    return logical_not(x) if node.op is Ops.CMPNE else None


def fold_bool_above(node: UOp, x: UOp, c: UOp) -> UOp:
    """(False < x) -> x,  (True < x) -> False"""
    return constant_like(node, False) if c.arg else x


def fold_not(x: UOp) -> UOp | None:
    """not not x -> x,  not (a == b) -> a != b,  not (a != b) -> a == b; right for nan as well"""
    if x.op not in (Ops.CMPEQ, Ops.CMPNE):
        return None
    left, right = x.src
    if x.op is Ops.CMPNE:
        return UOp(Ops.CMPEQ, x.dtype, (left, right))
    if right.op is Ops.CONST and right.dtype.kind == "bool":
        return left if not right.arg else logical_not(left)
    return UOp(Ops.CMPNE, x.dtype, (left, right))


def split_compared_choice(node: UOp, x: UOp, y: UOp, z: UOp, c: UOp) -> UOp:
    """where(x, 1, 2) < 2 -> where(x, 1 < 2, 2 < 2), which folds further"""
    first = UOp(node.op, node.dtype, (y, c))
    second = UOp(node.op, node.dtype, (z, c))
    return UOp(Ops.WHERE, node.dtype, (x, first, second))


def split_compared_bool(node: UOp, x: UOp, c: UOp) -> UOp:
    """cast(x) < 1 of a bool x -> where(x, 1 < 1, 0 < 1)"""
    one, zero = UOp.const(c.dtype, 1), UOp.const(c.dtype, 0)
    return split_compared_choice(node, x, one, zero, c)


# ------------------------------------------------------------ types
def fold_cast(node: UOp, x: UOp) -> UOp | None:
    """cast(x, its own dtype) -> x,  cast(x, bool) -> x != 0"""
    if x.dtype is node.dtype:
        return x
    if node.dtype.kind == "bool":
        return UOp(Ops.CMPNE, node.dtype, (x, UOp.const(x.dtype, 0)))
    return None


def merge_casts(node: UOp, middle: UOp, x: UOp) -> UOp | None:
    """cast(cast(x, middle), dtype) -> cast(x, dtype), where the first one loses nothing that counts

    cast(cast(x: int8, int32), float32) -> cast(x, float32). A rounding is never dropped.
    """
    if node.tag is not None or middle.tag is not None:
        return None
    source, between, target = x.dtype.scalar(), middle.dtype.scalar(), node.dtype.scalar()
    ints = ("int", "uint")
    if between.kind in ints and target.kind in ints and source.kind in ints:
        # modulo 2**n, then modulo 2**m with m <= n
        narrows = between is not dtypes.weakint and target.bitsize <= between.bitsize
        if narrows and target is not dtypes.weakint:
            return x.cast(node.dtype)
    if source.kind in ints and between.kind in ints:
        if between.min <= x.vmin and x.vmax <= between.max:
            return x.cast(node.dtype)
        return None
    if not can_lossless_cast(source, between):
        return None
    if source.kind in ints and between.kind == "float" and target.kind in ints:
        # out of the target's range a float saturates, an int wraps
        return x.cast(node.dtype) if can_lossless_cast(source, target) else None
    return x.cast(node.dtype)


def cast_choice(node: UOp, x: UOp, c: UOp, d: UOp) -> UOp:
    """cast(where(x, 1, 2)) -> where(x, cast(1), cast(2))"""
    return UOp(Ops.WHERE, node.dtype, (x, c.cast(node.dtype), d.cast(node.dtype)))


def merge_bitcasts(node: UOp, x: UOp) -> UOp:
    """bitcast(bitcast(x)) -> bitcast(x)"""
    return x if x.dtype is node.dtype else UOp(Ops.BITCAST, node.dtype, (x,))


# ------------------------------------------------------------ vectors
def fold_gep(node: UOp, x: UOp) -> UOp | None:
    """lanes of (a, b, c, d) -> the ones asked for; lanes of lanes; all lanes in order -> x"""
    lanes = node.arg
    if x.op is Ops.VECTORIZE:
        picked = tuple([x.src[lane] for lane in lanes])
        return picked[0] if len(picked) == 1 else UOp(Ops.VECTORIZE, node.dtype, picked)
    if x.op is Ops.GEP:
        return x.src[0].gep(tuple([x.arg[lane] for lane in lanes]), *x.src[1:])
    return x if lanes == tuple(range(x.dtype.count)) else None


def fold_vectorize(node: UOp) -> UOp | None:
    """(x) -> x,  (x.0, x.1, x.2, x.3) -> x,  (x.2, x.0) -> lanes 2, 0 of x"""
    if len(node.src) == 1:
        return node.src[0]
    first = node.src[0]
    if first.op is not Ops.GEP:
        return None
    for lane in node.src:
        if lane.op is not Ops.GEP or lane.src != first.src or len(lane.arg) != 1:
            return None
    return first.src[0].gep(tuple([lane.arg[0] for lane in node.src]), *first.src[1:])


_ASSOCIATIVE_BITS = (Ops.AND, Ops.OR, Ops.XOR)

fold = PatternMatcher(
    [
        (UPat(GroupOp.Elementwise, src=UPat(Ops.CONST), name="node"), fold_constants),
        (
            UPat(
                GroupOp.ALU | {Ops.CAST}, src=UPat(Ops.VECTORIZE, src=UPat(Ops.CONST)), name="node"
            ),
            fold_vector_constants,
        ),
        (
            UPat(GroupOp.Commutative, src=(UPat(Ops.CONST), UPat()), name="node"),
            move_constant_right,
        ),
        # neutral elements
        (UPat(Ops.ADD, src=(x, c)), fold_add),
        (UPat(Ops.MUL, src=(x, c), name="node"), fold_multiply),
        (UPat(Ops.FDIV, src=(x, c), name="node"), fold_divide),
        (UPat(Ops.IDIV, src=(x, c), name="node"), fold_int_divide),
        (UPat(Ops.MOD, src=(x, c), name="node"), fold_modulo),
        (UPat(Ops.MOD, src=(x, x), name="node"), lambda node, x: constant_like(node, 0)),
        (
            UPat((Ops.IDIV, Ops.MOD), src=(UPat.const(None, 0), x), name="node"),
            lambda node, x: constant_like(node, 0),
        ),
        (UPat(Ops.MAX, src=(x, c), name="node"), fold_maximum),
        (UPat(Ops.AND, src=(x, c), name="node"), fold_and),
        (UPat(Ops.OR, src=(x, c), name="node"), fold_or),
        (UPat(Ops.XOR, src=(x, c)), fold_xor),
        (UPat((Ops.SHL, Ops.SHR), src=(x, c), name="node"), fold_shift),
        # the same operand twice, and twice the same op
        (UPat(GroupOp.Idempotent, src=(x, x)), lambda x: x),
        (UPat(Ops.XOR, src=(x, x), name="node"), lambda node, x: constant_like(node, 0)),
        ((y ^ (y ^ x)).named("node"), lambda node, x, y: shaped_like(node, x)),
        ((x & (x | y)).named("node"), lambda node, x, y: shaped_like(node, x)),
        ((x | (x & y)).named("node"), lambda node, x, y: shaped_like(node, x)),
        (x.neg().neg(), lambda x: x),
        (UPat(Ops.TRUNC, src=(UPat(Ops.TRUNC, name="x"),)), lambda x: x),
        (
            UPat(Ops.TRUNC, src=(UPat(Ops.CAST, src=(UPat(dtype=INTS_AND_BOOL),), name="x"),)),
            lambda x: x,
        ),
        (
            UPat(
                (*_ASSOCIATIVE_BITS, Ops.MAX),
                src=(UPat((*_ASSOCIATIVE_BITS, Ops.MAX), src=(x, c), name="inner"), d),
                name="node",
            ),
            merge_constants,
        ),
        # conditions
        (UPat(Ops.WHERE, src=(x, y, z), name="node"), fold_where),
        (UPat(Ops.WHERE, dtypes.bool, src=(x, y, z)), fold_where_bool),
        (
            UPat(
                Ops.WHERE,
                src=(UPat(Ops.CMPEQ, src=(x, UPat.const(dtypes.bool, False))), y, z),
            ),
            swap_where,
        ),
        (UPat(Ops.WHERE, (*INTS, *FLOATS), src=(x, c, d), name="node"), fold_where_numbers),
        (UPat(Ops.WHERE, src=(x, y, z), name="node"), merge_where),
        (UPat(GroupOp.Comparison, src=(x, x), name="node"), fold_same_compared),
        (
            UPat(GroupOp.Comparison, src=(UPat.var("x", dtypes.bool), c), name="node"),
            fold_bool_compared,
        ),
        (UPat(Ops.CMPLT, src=(c, UPat.var("x", dtypes.bool)), name="node"), fold_bool_above),
        (UPat(Ops.CMPEQ, src=(x, UPat.const(dtypes.bool, False))), fold_not),
        (
            UPat(
                GroupOp.Comparison,
                src=(UPat(Ops.WHERE, src=(x, UPat.cvar("y"), UPat.cvar("z"))), c),
                name="node",
            ),
            split_compared_choice,
        ),
        (
            UPat(
                GroupOp.Comparison,
                src=(UPat(Ops.CAST, src=(UPat.var("x", dtypes.bool),)), c),
                name="node",
            ),
            split_compared_bool,
        ),
        # types
        (UPat(Ops.CAST, src=(x,), name="node"), fold_cast),
        (UPat(Ops.CAST, src=(UPat(Ops.CAST, src=(x,), name="middle"),), name="node"), merge_casts),
        (UPat(Ops.CAST, src=(UPat(Ops.WHERE, src=(x, c, d)),), name="node"), cast_choice),
        (
            UPat(Ops.BITCAST, src=(x,), name="node"),
            lambda node, x: x if x.dtype is node.dtype else None,
        ),
        (UPat(Ops.BITCAST, src=(UPat(Ops.BITCAST, src=(x,)),), name="node"), merge_bitcasts),
        # vectors
        (UPat(Ops.GEP, src=(x,), name="node"), fold_gep),
        (UPat(Ops.VECTORIZE, name="node"), fold_vectorize),
    ]
)
