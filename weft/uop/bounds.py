"""Bounds of every op: the least and greatest value a node can have.

What comes in: a node whose sources know their bounds. What goes out: the pair (least, greatest).
Where it sits: below the node, which asks lazily and caches; rules decide conditions with it.
The one invariant: every value the node can take lies inside, wrapping of concrete ints included.
`weakint` never wraps, so its bounds are Python ints of any size. A float interval speaks about the
numbers only: nan may always be there as well, so nothing follows from "not inside".
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from weft.dtype import DType, convert, dtypes
from weft.uop.opset import Ops

# a node is duck-typed here (op, dtype, src, arg, _bounds): this file sits above UOp
Bounds = tuple[Any, Any]


def min_max(node: Any) -> Bounds:
    """The least and greatest value of a node whose sources' bounds are known."""
    rule = _RULES.get(node.op)
    if rule is not None:
        return rule(node)
    return _dtype_range(node.dtype)


def _dtype_range(dtype: DType) -> Bounds:
    if dtype.kind == "void":
        return None, None
    return dtype.min, dtype.max


def _fit(low: int, high: int, dtype: DType) -> Bounds:
    """The interval after wrapping to a dtype: exact where all of it wraps equally often."""
    scalar = dtype.scalar()
    if scalar is dtypes.weakint:
        return low, high
    if scalar.kind == "bool":
        return bool(low), bool(high)
    least, most = scalar.min, scalar.max
    if least <= low and high <= most:
        return low, high
    turns = (low - int(least)) >> scalar.bitsize
    if (high - int(least)) >> scalar.bitsize != turns:
        return least, most
    span = turns << scalar.bitsize
    return low - span, high - span


def _join(*parts: Bounds) -> Bounds:
    """The least interval around some intervals."""
    return min([low for low, _ in parts]), max([high for _, high in parts])


# ------------------------------------------------------------ leaves
def _const(node: Any) -> Bounds:
    value = node.arg
    if isinstance(value, float):
        # without the equality of constants, by which 0.0 is not -0.0
        return _dtype_range(node.dtype) if math.isnan(value) else (float(value), float(value))
    return value, value


def _variable(node: Any) -> Bounds:
    return node.arg.lo, node.arg.hi


def _iota(node: Any) -> Bounds:
    size = node.arg if node.arg is not None else node.src[0]._bounds[1]
    if dtypes.is_int(node.dtype):
        return _fit(0, max(size - 1, 0), node.dtype)
    return _dtype_range(node.dtype)


def _axis(node: Any) -> Bounds:
    # an axis of size 0 has no value at all: any interval is right, and this one is not inside out
    return 0, max(node.src[0]._bounds[1] - 1, 0)


# ------------------------------------------------------------ values that only travel
def _same(node: Any) -> Bounds:
    found: Bounds = node.src[0]._bounds
    return found


def _same_or_zero(node: Any) -> Bounds:
    low, high = node.src[0]._bounds
    zero = node.dtype.const(0) if node.dtype.count == 1 else node.dtype.scalar().const(0)
    return min(low, zero), max(high, zero)


def _any_source(node: Any) -> Bounds:
    return _join(*[s._bounds for s in node.src])


# ------------------------------------------------------------ arithmetic
def _add(node: Any) -> Bounds:
    if not dtypes.is_int(node.dtype):
        return _dtype_range(node.dtype)
    (low, high), (other_low, other_high) = node.src[0]._bounds, node.src[1]._bounds
    return _fit(low + other_low, high + other_high, node.dtype)


def _neg(node: Any) -> Bounds:
    low, high = node.src[0]._bounds
    if dtypes.is_int(node.dtype):
        return _fit(-high, -low, node.dtype)
    return _dtype_range(node.dtype)


def _mul(node: Any) -> Bounds:
    if not dtypes.is_int(node.dtype):
        return _dtype_range(node.dtype)
    (low, high), (other_low, other_high) = node.src[0]._bounds, node.src[1]._bounds
    if low >= 0 and other_low >= 0:
        return _fit(low * other_low, high * other_high, node.dtype)
    corners = (low * other_low, low * other_high, high * other_low, high * other_high)
    least = min(corners)
    if node.src[0] is node.src[1]:
        least = 0 if low <= 0 <= high else min(low * low, high * high)
    return _fit(least, max(corners), node.dtype)


def _idiv(node: Any) -> Bounds:
    low, high = node.src[0]._bounds
    divide = _divide_truncating if node.tag == "raw" else _divide_floor
    parts = []
    for least, most in _by_sign(*node.src[1]._bounds):
        # for a divisor of one sign the quotient is monotone in both operands
        corners = [divide(x, y) for x in (low, high) for y in (least, most)]
        parts.append((min(corners), max(corners)))
    return _fit(*_join(*parts), node.dtype)


def _divide_floor(x: int, y: int) -> int:
    return x // y if y else 0


def _divide_truncating(x: int, y: int) -> int:
    if y == 0:
        return 0
    return x // y if (x < 0) == (y < 0) else -(-x // y)


def _mod(node: Any) -> Bounds:
    low, high = node.src[0]._bounds
    if node.tag == "raw" and (low < 0 or node.src[1]._bounds[0] < 0):
        # a truncating remainder has the sign of the dividend and is smaller than the divisor
        most = max([abs(y) for y in node.src[1]._bounds]) - 1
        return max(min(low, 0), -most), min(max(high, 0), most)
    parts = [_mod_one_sign(low, high, *part) for part in _by_sign(*node.src[1]._bounds)]
    return _join(*parts)


def _mod_one_sign(low: int, high: int, least: int, most: int) -> Bounds:
    """x % y, where y is zero, positive or negative as a whole."""
    if least == most == 0:
        return 0, 0
    if least < 0:
        mirrored = _mod_one_sign(-high, -low, -most, -least)
        return -mirrored[1], -mirrored[0]
    if least == most and low // least == high // least:
        return low % least, high % least
    if low >= 0:
        return (low, high) if high < least else (0, min(high, most - 1))
    return 0, most - 1


def _by_sign(low: int, high: int) -> list[Bounds]:
    """An interval cut into its negative, zero and positive parts."""
    parts = []
    if low < 0:
        parts.append((low, min(high, -1)))
    if low <= 0 <= high:
        parts.append((0, 0))
    if high > 0:
        parts.append((max(low, 1), high))
    return parts


def _max(node: Any) -> Bounds:
    (low, high), (other_low, other_high) = node.src[0]._bounds, node.src[1]._bounds
    return max(low, other_low), max(high, other_high)


# ------------------------------------------------------------ comparison
def _undecided(node: Any) -> bool:
    return node.src[0].dtype.kind == "float"


def _cmplt(node: Any) -> Bounds:
    if _undecided(node):
        return False, True
    (low, high), (other_low, other_high) = node.src[0]._bounds, node.src[1]._bounds
    return bool(high < other_low), bool(low < other_high)


def _cmpne(node: Any) -> Bounds:
    if _undecided(node):
        return False, True
    (low, high), (other_low, other_high) = node.src[0]._bounds, node.src[1]._bounds
    if high < other_low or other_high < low:
        return True, True
    equal = node.src[0] is node.src[1] or low == high == other_low == other_high
    return False, not equal


def _cmpeq(node: Any) -> Bounds:
    if _undecided(node):
        return False, True
    low, high = _cmpne(node)
    return not high, not low


def _where(node: Any) -> Bounds:
    low, high = node.src[0]._bounds
    if low == high:
        chosen: Bounds = node.src[1 if low else 2]._bounds
        return chosen
    return _join(node.src[1]._bounds, node.src[2]._bounds)


# ------------------------------------------------------------ bits
def _and_interval(x: Bounds, y: Bounds) -> Bounds:
    """x & y of Python ints."""
    if x[0] == x[1] and y[0] == y[1]:
        return x[0] & y[0], x[0] & y[0]
    if x[0] >= 0 and y[0] >= 0:
        return 0, min(x[1], y[1])
    if x[0] >= 0:
        return 0, x[1]
    if y[0] >= 0:
        return 0, y[1]
    width = max((~x[0]).bit_length(), (~y[0]).bit_length())
    most = min(x[1], y[1]) if x[1] < 0 and y[1] < 0 else max(x[1], y[1])
    return -(1 << width), most


def _invert(x: Bounds) -> Bounds:
    return -1 - x[1], -1 - x[0]


def _bits(node: Any) -> tuple[Bounds, Bounds]:
    """Both operands' bounds as ints (a bool is one bit)."""
    (low, high), (other_low, other_high) = node.src[0]._bounds, node.src[1]._bounds
    return (int(low), int(high)), (int(other_low), int(other_high))


def _and(node: Any) -> Bounds:
    return _fit(*_and_interval(*_bits(node)), node.dtype)


def _or(node: Any) -> Bounds:
    x, y = _bits(node)
    return _fit(*_invert(_and_interval(_invert(x), _invert(y))), node.dtype)


def _xor(node: Any) -> Bounds:
    x, y = _bits(node)
    for value, other in ((x, y), (y, x)):
        if other[0] != other[1]:
            continue
        if other[0] == -1:
            return _invert(value)
        # all ones of an unsigned dtype is its bitwise not as well
        if node.dtype.kind == "uint" and other[0] == node.dtype.max:
            return other[0] - value[1], other[0] - value[0]
    if x[0] == x[1] and y[0] == y[1]:
        return _fit(x[0] ^ y[0], x[0] ^ y[0], node.dtype)
    width = max([(v if v >= 0 else ~v).bit_length() for v in (*x, *y)])
    low, high = -(1 << width), (1 << width) - 1
    negative, other_negative = _sign(x), _sign(y)
    if negative is not None and other_negative is not None:
        if negative == other_negative:
            low = 0
        else:
            high = -1
    return _fit(low, high, node.dtype)


def _sign(x: Bounds) -> bool | None:
    """Whether negative, where the interval says."""
    if x[0] >= 0:
        return False
    return True if x[1] < 0 else None


def _shift_counts(node: Any) -> tuple[int, int, bool]:
    """The counts below the width, from least to most, and whether there may be others.

    A count is read as unsigned, so a negative one is at least the width.
    """
    least, most = node.src[1]._bounds
    width = node.dtype.scalar().bitsize
    return max(least, 0), min(most, width - 1), least < 0 or most >= width


def _shl(node: Any) -> Bounds:
    low, high = node.src[0]._bounds
    least, most, beyond = _shift_counts(node)
    if least > most:
        return 0, 0
    corners = [x << count for x in (low, high) for count in (least, most)]
    found = _fit(min(corners), max(corners), node.dtype)
    return _join(found, (0, 0)) if beyond else found


def _shr(node: Any) -> Bounds:
    low, high = node.src[0]._bounds
    least, most, beyond = _shift_counts(node)
    corners = [x >> count for x in (low, high) for count in (least, most) if least <= most]
    if beyond:
        corners.extend([-1 if x < 0 else 0 for x in (low, high)])
    return min(corners), max(corners)


# ------------------------------------------------------------ types
def _cast(node: Any) -> Bounds:
    source, target = node.src[0].dtype.scalar(), node.dtype.scalar()
    low, high = node.src[0]._bounds
    if target.kind == "bool":
        if low > 0 or high < 0:
            return True, True
        return False, not (low == 0 == high and source.kind != "float")
    if target.kind == "float":
        low, high = convert(low, source, target), convert(high, source, target)
        return _dtype_range(target) if math.isnan(low) or math.isnan(high) else (low, high)
    if source.kind == "float":
        # nan gives 0
        return min(convert(low, source, target), 0), max(convert(high, source, target), 0)
    # a cast to a weak int gives one that is stored, in 64 bits
    return _fit(int(low), int(high), dtypes.int64 if target is dtypes.weakint else target)


def _bitcast(node: Any) -> Bounds:
    source = node.src[0].dtype
    if dtypes.is_int(source) and dtypes.is_int(node.dtype) and source.count == node.dtype.count:
        if source.itemsize == node.dtype.itemsize and source.scalar() is not dtypes.weakint:
            low, high = node.src[0]._bounds
            return _fit(low, high, node.dtype)
    return _dtype_range(node.dtype)


# ------------------------------------------------------------ reductions
def _fold_over(node: Any, op: Ops, sizes: list[Bounds]) -> Bounds:
    """A reduction of values inside the source's bounds over axes of these sizes."""
    if not dtypes.is_int(node.dtype) and node.dtype.kind != "bool":
        return _dtype_range(node.dtype)
    low, high = node.src[0]._bounds
    least = most = 1
    for size_low, size_high in sizes:
        least, most = least * max(size_low, 0), most * max(size_high, 0)
    if op is Ops.MAX and least > 0:
        return low, high
    if op is Ops.ADD and node.dtype.kind != "bool":
        return _fit(min(low * least, low * most), max(high * least, high * most), node.dtype)
    return _dtype_range(node.dtype)


def _reduce(node: Any) -> Bounds:
    return _fold_over(node, node.arg, [axis.src[0]._bounds for axis in node.src[1:] if axis.src])


def _reduce_axis(node: Any) -> Bounds:
    shape = node.src[0].shape
    sizes = [shape[axis] for axis in node.arg.axes]
    plain = [(size, size) if isinstance(size, int) else size._min_max for size in sizes]
    return _fold_over(node, node.arg.op, plain)


_RULES: dict[Ops, Callable[[Any], Bounds]] = {
    Ops.CONST: _const,
    Ops.VARIABLE: _variable,
    # not the bound value: what is decided by it would be wrong in a replay with another one
    Ops.BIND: _same,
    Ops.IOTA: _iota,
    Ops.RANGE: _axis,
    Ops.SPECIAL: _axis,
    **dict.fromkeys(
        (
            Ops.RESHAPE,
            Ops.PERMUTE,
            Ops.EXPAND,
            Ops.SHRINK,
            Ops.FLIP,
            Ops.STRIDE,
            Ops.CONTIGUOUS,
            Ops.CONTIGUOUS_BACKWARD,
            Ops.DETACH,
            Ops.FUNCTION,
            Ops.COPY,
        ),
        _same,
    ),
    Ops.PAD: _same_or_zero,
    Ops.GATHER: _same_or_zero,
    Ops.CAT: _any_source,
    Ops.VECTORIZE: _any_source,
    Ops.GEP: _any_source,
    Ops.ADD: _add,
    Ops.NEG: _neg,
    Ops.MUL: _mul,
    Ops.IDIV: _idiv,
    Ops.MOD: _mod,
    Ops.MAX: _max,
    Ops.CMPLT: _cmplt,
    Ops.CMPNE: _cmpne,
    Ops.CMPEQ: _cmpeq,
    Ops.WHERE: _where,
    Ops.AND: _and,
    Ops.OR: _or,
    Ops.XOR: _xor,
    Ops.SHL: _shl,
    Ops.SHR: _shr,
    Ops.CAST: _cast,
    Ops.BITCAST: _bitcast,
    Ops.REDUCE: _reduce,
    Ops.REDUCE_AXIS: _reduce_axis,
}
