"""The reference value of each elementwise op, for Python numbers.

In: an op, its dtype and the values of its sources. Out: the value that every device must give.
Sits above UOp, which folds constants with it; the PYTHON device and the fuzzers compute with it
too, so a node is duck-typed here.
Invariant: every op is total, exactly as its row of the op table says: integers wrap (weakint, which
is unbounded, does not), a float result is rounded once to its dtype, no input raises.
"""

from __future__ import annotations

import functools
import math
import operator
import struct
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from weft.dtype import FORMATS, ConstFloat, DType, PyConst, bitcast_value, convert, dtypes, truncate
from weft.errors import ArgumentError, DTypeError
from weft.uop.opset import OPSET, GroupOp, Ops, Typing

Function = Callable[..., Any]


def evaluate(
    op: Ops, dtype: DType, *values: PyConst, src_dtypes: Sequence[DType] | None = None
) -> Any:
    """The value of `op` with result type `dtype` for the values of its sources.

    `src_dtypes` is needed where the sources' type is not `dtype` and decides the result: BITCAST.

    >>> evaluate(Ops.ADD, dtypes.int8, 127, 1), evaluate(Ops.IDIV, dtypes.int32, -7, 2)
    (-128, -4)
    >>> evaluate(Ops.MUL, dtypes.float32, 0.1, 1.0)
    0.10000000149011612
    """
    function = function_for(op, dtype, None if src_dtypes is None else tuple(src_dtypes))
    count = OPSET[op].arity
    if len(values) != count:
        raise ArgumentError(f"{op.name} takes {count} values, found {len(values)}")
    plain = [_plain(value) for value in values]
    if dtype.kind == "float" and OPSET[op].typing in (Typing.SAME, Typing.ALL_SAME):
        plain = [float(value) for value in plain]
    return function(*plain)


def cast(value: Any, src: DType, dst: DType) -> Any:
    """The meaning of CAST for one value."""
    return convert(_plain(value), src, dst)


def function_for(op: Ops, dtype: DType, src_dtypes: tuple[DType, ...] | None = None) -> Function:
    """A function of the sources' values that computes `op` on one dtype (one lane of a vector).

    For whoever evaluates often. The values must be plain Python numbers of the sources' types: not
    `ConstFloat`, whose equality is that of constants, and floats where the type is a float.
    """
    source = src_dtypes[0].scalar() if src_dtypes else None
    return _function_for(op, dtype.scalar(), source)


def evaluate_uop(uop: Any, values: Mapping[Any, PyConst] | None = None) -> Any:
    """The value of an expression of scalars.

    `values` gives RANGEs, VARIABLEs, or any other node its value; nothing below such a node is
    looked at. CONST and BIND know their own.
    """
    found: dict[Any, Any] = {node: _plain(value) for node, value in (values or {}).items()}
    for node in uop.toposort(gate=lambda node: node not in found):
        if node in found:
            continue
        if node.op is Ops.CONST:
            found[node] = _plain(node.arg)
        elif node.op is Ops.BIND:
            found[node] = found[node.src[1]]
        elif node.op is Ops.VARIABLE:
            # A bound variable has its value in the BIND; a free one is missed only if it is read.
            continue
        elif node.op in GroupOp.Elementwise:
            found[node] = _evaluate_node(node, found)
        else:
            raise ArgumentError(
                f"{node!r} has no value: give it one, this evaluates elementwise ops on scalars"
            )
    if uop not in found:
        raise ArgumentError(f"variable {uop.arg.name} has no value: give it one")
    return found[uop]


def _evaluate_node(node: Any, found: dict[Any, Any]) -> Any:
    for source in node.src:
        if source not in found:
            raise ArgumentError(f"variable {source.arg.name} has no value: give it one")
    function = function_for(node.op, node.dtype, tuple(source.dtype for source in node.src))
    return function(*[found[source] for source in node.src])


def _plain(value: Any) -> Any:
    """Without the equality of constants, by which 0.0 is not -0.0 and NaN is itself."""
    return float(value) if type(value) is ConstFloat else value


# *** which function computes an op on a type ***


@functools.cache
def _function_for(op: Ops, dtype: DType, source: DType | None) -> Function:
    row = OPSET[op]
    if op not in GroupOp.Elementwise:
        raise ArgumentError(f"{op.name} is not elementwise, so it has no value of its own")
    if op is Ops.CAST:
        # The value says itself what it is; the source's type only names it in an error.
        return functools.partial(_cast_to, source or dtype, dtype)
    if op is Ops.BITCAST:
        if source is None:
            raise ArgumentError("BITCAST needs src_dtypes: the bits depend on the type before")
        return functools.partial(_bitcast_to, source, dtype)
    if row.typing is Typing.COMPARE:
        return _COMPARISONS[op]
    if op is Ops.WHERE:
        return _where
    if not takes(op, dtype):
        raise DTypeError(f"{op.name} takes {_DOMAINS[row.on][0]}, found {dtype}")
    if dtype.kind == "float":
        return _float_function(op, dtype)
    if dtype.kind == "bool":
        return _BOOLS[op]
    return _integer_function(op, dtype)


_DOMAINS: dict[str, tuple[str, frozenset[str]]] = {
    "any": ("any type with values", frozenset({"bool", "int", "uint", "float"})),
    "float": ("floating point types", frozenset({"float"})),
    "int": ("integer types", frozenset({"int", "uint"})),
    "number": ("integer and floating point types", frozenset({"int", "uint", "float"})),
    "bits": ("integer types and bool", frozenset({"int", "uint", "bool"})),
}


def takes(op: Ops, dtype: DType) -> bool:
    """Whether an elementwise op takes operands of this type."""
    if op is Ops.THREEFRY:
        return dtype.scalar() is dtypes.uint64
    return dtype.kind in _DOMAINS[OPSET[op].on][1]


def _cast_to(source: DType, target: DType, value: Any) -> Any:
    return convert(value, source, target)


def _bitcast_to(source: DType, target: DType, value: Any) -> Any:
    return bitcast_value(value, source, target)


def _where(condition: Any, chosen: Any, otherwise: Any) -> Any:
    return chosen if condition else otherwise


_COMPARISONS: dict[Ops, Function] = {
    Ops.CMPLT: operator.lt,
    Ops.CMPNE: operator.ne,
    Ops.CMPEQ: operator.eq,
}

_BOOLS: dict[Ops, Function] = {
    Ops.MAX: operator.or_,
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
}


# *** integers ***


def _floor_divide(x: int, y: int) -> int:
    return x // y if y else 0


def _floor_modulo(x: int, y: int) -> int:
    return x % y if y else 0


def threefry(counter: int, key: int) -> int:
    """Threefry-2x32 with 20 rounds, of Random123. The low halves are the words of index 0.

    Salmon et al., Parallel random numbers: as easy as 1, 2, 3 (2011).

    >>> hex(threefry(0, 0))
    '0x99ba4efe6b200159'
    """
    word = 0xFFFFFFFF
    keys = (key & word, key >> 32 & word, 0x1BD11BDA ^ (key & word) ^ (key >> 32 & word))
    x0 = (counter & word) + keys[0] & word
    x1 = (counter >> 32 & word) + keys[1] & word
    for group in range(5):
        for rotation in _ROTATIONS[group % 2]:
            x0 = x0 + x1 & word
            x1 = ((x1 << rotation | x1 >> 32 - rotation) & word) ^ x0
        x0 = x0 + keys[(group + 1) % 3] & word
        x1 = x1 + keys[(group + 2) % 3] + group + 1 & word
    return x1 << 32 | x0


_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))

# Results that are in range whenever the operands are.
_CLOSED_INTEGERS: dict[Ops, Function] = {
    Ops.MOD: _floor_modulo,
    Ops.MAX: max,
    Ops.AND: operator.and_,
    Ops.OR: operator.or_,
    Ops.XOR: operator.xor,
    Ops.THREEFRY: threefry,
}

_WRAPPING_INTEGERS: dict[Ops, Function] = {
    Ops.NEG: operator.neg,
    Ops.ADD: operator.add,
    Ops.MUL: operator.mul,
    Ops.IDIV: _floor_divide,
}


def _integer_function(op: Ops, dtype: DType) -> Function:
    closed = _CLOSED_INTEGERS.get(op)
    if closed is not None:
        return closed
    if op in (Ops.SHL, Ops.SHR):
        return _shift_left(dtype) if op is Ops.SHL else _shift_right(dtype)
    exact = _WRAPPING_INTEGERS[op]
    if dtype is dtypes.weakint:
        return exact
    low, high, wrap = dtype.min, dtype.max, truncate[dtype]

    def wrapped(*values: int) -> int:
        result = exact(*values)
        return result if low <= result <= high else wrap(result)

    def wrapped_pair(x: int, y: int) -> int:
        result = exact(x, y)
        return result if low <= result <= high else wrap(result)

    return wrapped_pair if OPSET[op].arity == 2 else wrapped


def _shift_left(dtype: DType) -> Function:
    width = dtype.bitsize
    # The width of weakint only bounds the shift: what is shifted out on the left is kept.
    wrap = (lambda value: value) if dtype is dtypes.weakint else truncate[dtype]

    def shift(x: int, y: int) -> Any:
        return wrap(x << y) if 0 <= y < width else 0

    return shift


def _shift_right(dtype: DType) -> Function:
    width = dtype.bitsize

    # A negative amount, read as unsigned, is at least the width.
    def shift(x: int, y: int) -> int:
        if 0 <= y < width:
            return x >> y
        return -1 if x < 0 else 0

    return shift


# *** floats: computed in double, then rounded once ***

# Double has more than twice the bits of every narrower type, so that rounding a sum, product,
# quotient or square root in double and then again gives the same as rounding it once.


def _float_function(op: Ops, dtype: DType) -> Function:
    if op is Ops.MULACC:
        return functools.partial(multiply_add, dtype)
    if op is Ops.MULADD:
        product, total = _float_function(Ops.MUL, dtype), _float_function(Ops.ADD, dtype)
        return lambda x, y, z: total(product(x, y), z)
    function, exact = _FLOATS[op]
    if exact and not FORMATS[dtype].single_nan:
        return function
    round_value = rounding(dtype)
    if round_value is None:
        return function
    if OPSET[op].arity == 1:
        return lambda x: round_value(function(x))
    return lambda x, y: round_value(function(x, y))


@functools.cache
def rounding(dtype: DType) -> Callable[[float], float] | None:
    """Rounds a double to a floating point type; None where there is nothing to round."""
    if dtype in (dtypes.float64, dtypes.weakfloat):
        return None
    if dtype not in (dtypes.float32, dtypes.float16):
        return truncate[dtype]
    layout = struct.Struct(f"<{dtype.fmt}")
    pack, unpack = layout.pack, layout.unpack

    def round_value(value: float) -> Any:
        try:
            return unpack(pack(value))[0]
        except OverflowError:
            return math.copysign(math.inf, value)

    return round_value


def multiply_add(dtype: DType, x: float, y: float, z: float) -> Any:
    """x * y + z, rounded once to `dtype`."""
    if not (math.isfinite(x) and math.isfinite(y) and math.isfinite(z)):
        # A finite product may overflow in double; it must not meet an infinite z as an infinity.
        finite_product = math.isfinite(x) and math.isfinite(y)
        return truncate[dtype](z if finite_product else x * y + z)
    # Exact, in integers: a ratio whose parts are not reduced.
    (x_top, x_bottom), (y_top, y_bottom) = x.as_integer_ratio(), y.as_integer_ratio()
    z_top, z_bottom = z.as_integer_ratio()
    top = x_top * y_top * z_bottom + z_top * x_bottom * y_bottom
    bottom = x_bottom * y_bottom * z_bottom
    if top == 0:
        # Opposite terms or zeros: only the latter may give -0.0, and doubles know when.
        both_zero = z == 0 and (x == 0 or y == 0)
        return truncate[dtype](x * y + z if both_zero else 0.0)
    try:
        nearest = top / bottom
    except OverflowError:
        return truncate[dtype](math.inf if top > 0 else -math.inf)
    if dtype in (dtypes.float64, dtypes.weakfloat):
        return nearest
    return truncate[dtype](_to_odd(nearest, top, bottom))


def _to_odd(nearest: float, top: int, bottom: int) -> float:
    """top / bottom rounded to odd, given the nearest double: not a tie of any narrower type."""
    nearest_top, nearest_bottom = nearest.as_integer_ratio()
    excess = nearest_top * bottom - top * nearest_bottom
    is_odd = struct.unpack("<Q", struct.pack("<d", nearest))[0] & 1
    if excess == 0 or is_odd:
        return nearest
    return math.nextafter(nearest, -math.inf if excess > 0 else math.inf)


def _divide(x: float, y: float) -> float:
    if y:
        return x / y
    if x == 0 or x != x or y != y:
        return math.nan
    return math.copysign(math.inf, x) * math.copysign(1.0, y)


def _maximum(x: float, y: float) -> float:
    if x > y or x != x:
        return x
    if x == 0 and y == 0:
        # Also the sum of the two: -0.0 only if both are.
        return x + y
    return y


def _truncate(x: float) -> float:
    # From 2**52 on every double is whole; this also passes infinity and NaN.
    return math.copysign(float(int(x)), x) if abs(x) < 4503599627370496.0 else x


def _exp2(x: float) -> float:
    try:
        return math.exp2(x)
    except OverflowError:
        return math.inf


def _log2(x: float) -> float:
    if x > 0:
        return math.log2(x)
    return -math.inf if x == 0 else math.nan


def _sin(x: float) -> float:
    return math.nan if math.isinf(x) else math.sin(x)


def _sqrt(x: float) -> float:
    return math.nan if x < 0 else math.sqrt(x)


def _power(x: float, y: float) -> float:
    """C's pow, where Python would raise."""
    try:
        return math.pow(x, y)
    except OverflowError:
        return -math.inf if x < 0 and y % 2 == 1 else math.inf
    except ValueError:
        if x < 0:
            return math.nan
        # x is zero and y negative: only an odd power keeps the sign.
        return math.copysign(math.inf, x) if y % 2 == 1 else math.inf


# The function on doubles, and whether its results need no rounding when the operands do not.
_FLOATS: dict[Ops, tuple[Function, bool]] = {
    Ops.NEG: (operator.neg, True),
    Ops.EXP2: (_exp2, False),
    Ops.LOG2: (_log2, False),
    Ops.SIN: (_sin, False),
    Ops.SQRT: (_sqrt, False),
    Ops.TRUNC: (_truncate, True),
    Ops.ADD: (operator.add, False),
    Ops.MUL: (operator.mul, False),
    Ops.FDIV: (_divide, False),
    Ops.MAX: (_maximum, True),
    Ops.POW: (_power, False),
}
