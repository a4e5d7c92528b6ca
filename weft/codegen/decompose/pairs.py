"""64-bit integers as two words: add, multiply, divide, shift, compare, convert.

In: pairs of uint32 (the low word, the high word), scalar or vector. Out: pairs, truths, numbers,
each to the bit what the op on 64 bits gives. Sits between `words`, which writes the program, and
`longs`, which walks it.
Invariant: only ops on 32 bits come out, and only such that every machine has: no product of which
the high word is kept, no shift by 32, no count of zeros.
"""

from __future__ import annotations

from weft.codegen.decompose.words import WORD, Words, constant_of
from weft.dtype import DType, dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops

Pair = tuple[UOp, UOp]
# a digit of divisions by small numbers
_DIGIT = 16


def add(words: Words, x: Pair, y: Pair) -> Pair:
    """x + y, wrapping."""
    low = words.add(x[0], y[0])
    carry = words.number(words.less(low, x[0]))
    if constant_of(x[0]) == 0 or constant_of(y[0]) == 0:
        carry = words.like(0, low)
    return low, words.add(words.add(x[1], y[1]), carry)


def negate(words: Words, x: Pair) -> Pair:
    """-x, wrapping."""
    low = words.make(Ops.NEG, x[0].dtype, x[0])
    borrow = words.number(words.equal(x[0], 0))
    return low, words.add(words.bits_xor(x[1], 0xFFFFFFFF), borrow)


def multiply(words: Words, x: Pair, y: Pair) -> Pair:
    """x * y, wrapping."""
    low, high = _product(words, x[0], y[0])
    high = words.add(high, words.multiply(x[0], y[1]))
    return low, words.add(high, words.multiply(x[1], y[0]))


def _product(words: Words, x: UOp, y: UOp) -> Pair:
    """All 64 bits of a product of two words, by halves of 16 bits."""
    if constant_of(x) in (0, 1) or constant_of(y) in (0, 1):
        return words.multiply(x, y), words.like(0, x)
    x_low, x_high = words.bits_and(x, 0xFFFF), words.right(x, 16)
    y_low, y_high = words.bits_and(y, 0xFFFF), words.right(y, 16)
    # the carries of the two in the middle
    middle = words.add(words.multiply(x_high, y_low), words.right(words.multiply(x_low, y_low), 16))
    other = words.add(words.multiply(x_low, y_high), words.bits_and(middle, 0xFFFF))
    high = words.add(words.multiply(x_high, y_high), words.right(middle, 16))
    return words.multiply(x, y), words.add(high, words.right(other, 16))


# ------------------------------------------------------------ shifts


def shift_left(words: Words, x: Pair, by: UOp) -> Pair:
    """x << by for 0 <= by < 64, a word."""
    known = constant_of(by)
    if known is not None:
        if known >= 32:
            return words.like(0, x[0]), words.left(x[0], known - 32)
        if known == 0:
            return x
        high = words.bits_or(words.left(x[1], known), words.right(x[0], 32 - known))
        return words.left(x[0], known), high
    few = words.bits_and(by, 31)
    is_far = words.less(words.like(31, by), by)
    moved = words.left(x[0], few)
    carried = words.right(words.right(x[0], 1), words.bits_xor(few, 31))
    high = words.bits_or(words.left(x[1], few), carried)
    zero = words.like(0, moved)
    return words.where(is_far, zero, moved), words.where(is_far, moved, high)


def shift_right(words: Words, x: Pair, by: UOp, signed: bool) -> Pair:
    """x >> by for 0 <= by < 64, a word; copies of the sign come in where it is signed."""
    known = constant_of(by)
    fill = words.sign_of(x[1]) if signed else words.like(0, x[1])
    if known is not None:
        if known >= 32:
            return _right(words, x[1], words.like(known - 32, by), signed), fill
        if known == 0:
            return x
        low = words.bits_or(words.right(x[0], known), words.left(x[1], 32 - known))
        return low, _right(words, x[1], words.like(known, by), signed)
    few = words.bits_and(by, 31)
    is_far = words.less(words.like(31, by), by)
    moved = _right(words, x[1], few, signed)
    carried = words.left(words.left(x[1], 1), words.bits_xor(few, 31))
    low = words.bits_or(words.right(x[0], few), carried)
    return words.where(is_far, moved, low), words.where(is_far, fill, moved)


def _right(words: Words, x: UOp, by: UOp, signed: bool) -> UOp:
    if not signed:
        return words.right(x, by)
    return words.unsigned(words.right(words.signed(x), words.signed(by)))


# ------------------------------------------------------------ comparisons


def less(words: Words, x: Pair, y: Pair, signed: bool) -> UOp:
    """x < y."""
    if signed:
        first = words.less(words.signed(x[1]), words.signed(y[1]))
    else:
        first = words.less(x[1], y[1])
    second = words.less(x[0], y[0])
    same = words.equal(x[1], y[1])
    both = words.make(Ops.AND, second.dtype, same, second)
    return words.make(Ops.OR, both.dtype, first, both)


def differ(words: Words, x: Pair, y: Pair) -> UOp:
    """The words that differ, in bits."""
    return words.bits_or(words.bits_xor(x[0], y[0]), words.bits_xor(x[1], y[1]))


def select(words: Words, condition: UOp, x: Pair, y: Pair) -> Pair:
    """x where the condition holds, else y."""
    return words.where(condition, x[0], y[0]), words.where(condition, x[1], y[1])


# ------------------------------------------------------------ division


def divide(words: Words, x: Pair, y: Pair, signed: bool, is_small: bool) -> tuple[Pair, Pair]:
    """Quotient, cut towards zero, and remainder, with the sign of x; y is not 0.

    `is_small`: y is known to be positive and below 2**16.
    """
    if not signed:
        return _divide_unsigned(words, x, y, is_small)
    minus_x = words.less(words.signed(x[1]), 0)
    magnitude = select(words, minus_x, negate(words, x), x)
    divisor = y
    minus = minus_x
    if not is_small:
        minus_y = words.less(words.signed(y[1]), 0)
        divisor = select(words, minus_y, negate(words, y), y)
        minus = words.make(Ops.XOR, minus_x.dtype, minus_x, minus_y)
    quotient, remainder = _divide_unsigned(words, magnitude, divisor, is_small)
    return (
        select(words, minus, negate(words, quotient), quotient),
        select(words, minus_x, negate(words, remainder), remainder),
    )


def _divide_unsigned(words: Words, x: Pair, y: Pair, is_small: bool) -> tuple[Pair, Pair]:
    if is_small:
        return _divide_by_digit(words, x, y[0])
    found = []
    columns = [words.lanes(part) for part in (*x, *y)]
    for x_low, x_high, y_low, y_high in zip(*columns, strict=True):
        found.append(_divide_bits(words, (x_low, x_high), (y_low, y_high)))
    parts = [words.vector([lane[k] for lane in found]) for k in range(4)]
    return (parts[0], parts[1]), (parts[2], parts[3])


def _divide_by_digit(words: Words, x: Pair, y: UOp) -> tuple[Pair, Pair]:
    """Digit by digit as on paper; a remainder and the next digit are one word."""
    rest = words.like(0, y)
    quotients = []
    for part in (x[1], x[0]):
        digits = []
        for digit in (words.right(part, _DIGIT), words.bits_and(part, 0xFFFF)):
            value = words.bits_or(words.left(rest, _DIGIT), digit)
            digits.append(words.divide(value, y))
            rest = words.subtract(value, words.multiply(digits[-1], y))
        quotients.append(words.bits_or(words.left(digits[0], _DIGIT), digits[1]))
    return (quotients[1], quotients[0]), (rest, words.like(0, y))


def _divide_bits(words: Words, x: Pair, y: Pair) -> tuple[UOp, UOp, UOp, UOp]:
    """Bit by bit: the quotient comes in where the dividend goes out."""
    zero = words.constant(0)
    registers = [words.register(start) for start in (*x, zero, zero)]
    loop = words.loop(64)
    low, high, rest_low, rest_high = [words.read(register, loop) for register in registers]
    # the bit that the remainder loses on the left is kept apart: it is then larger than y
    lost = words.right(rest_high, 31)
    top = words.right(high, 31)
    one = words.constant(1)
    rest_low, rest_high = shift_left(words, (rest_low, rest_high), one)
    rest_low = words.bits_or(rest_low, top)
    less_than = less(words, (rest_low, rest_high), y, signed=False)
    is_lost = words.make(Ops.CMPNE, dtypes.bool, lost, zero)
    fits = words.make(
        Ops.OR, dtypes.bool, is_lost, words.make(Ops.CMPEQ, dtypes.bool, less_than, _no(words))
    )
    without = add(words, (rest_low, rest_high), negate(words, y))
    low, high = shift_left(words, (low, high), one)
    low = words.bits_or(low, words.number(fits))
    rest = select(words, fits, without, (rest_low, rest_high))
    for register, value in zip(registers, (low, high, *rest), strict=True):
        words.set(register, value)
    end = words.close(loop)
    found = [words.read(register, end) for register in registers]
    return found[0], found[1], found[2], found[3]


def _no(words: Words) -> UOp:
    return words.constant(False, dtypes.bool)


# ------------------------------------------------------------ conversions


def from_value(words: Words, x: UOp) -> Pair:
    """A bool, an integer of at most 32 bits or a float32 that is inside the range."""
    if x.dtype.kind == "float":
        return _from_float(words, x)
    if x.dtype.kind == "int":
        wide = words.make(Ops.CAST, dtypes.int32.vec(x.dtype.count), x)
        wide = x if x.dtype.scalar() is dtypes.int32 else wide
        low = words.unsigned(wide)
        return low, words.like(0, low) if x.vmin >= 0 else words.sign_of(low)
    low = x if x.dtype.scalar() is WORD else words.make(Ops.CAST, WORD.vec(x.dtype.count), x)
    return low, words.like(0, low)


def _from_float(words: Words, x: UOp) -> Pair:
    """Cut towards zero. Powers of two scale exactly, and so does what is left."""
    count = x.dtype.count
    bits = words.bits_as(x, dtypes.int32)
    magnitude = words.bits_as(words.bits_and(bits, 0x7FFFFFFF), dtypes.float32)
    scaled = words.make(Ops.MUL, x.dtype, magnitude, words.like(2.0**-32, x, dtypes.float32))
    high = words.make(Ops.CAST, WORD.vec(count), scaled, tag="raw")
    back = words.make(Ops.CAST, x.dtype, high)
    taken = words.make(Ops.MUL, x.dtype, back, words.like(-(2.0**32), x, dtypes.float32))
    rest = words.make(Ops.ADD, x.dtype, magnitude, taken)
    low = words.make(Ops.CAST, WORD.vec(count), rest, tag="raw")
    if x.vmin >= 0:
        return low, high
    minus = words.less(bits, 0)
    return select(words, minus, negate(words, (low, high)), (low, high))


def to_value(words: Words, x: Pair, dtype: DType, signed: bool) -> UOp:
    """A bool, an integer of at most 32 bits, which wraps, or a float32, which rounds once."""
    count = x[0].dtype.count
    target = dtype.vec(count)
    if dtype.kind == "bool":
        any_bit = words.bits_or(x[0], x[1])
        return words.make(Ops.CMPNE, target, any_bit, words.like(0, any_bit))
    if dtype.kind == "float":
        return _to_float(words, x, target, signed)
    if dtype.scalar() is WORD:
        return x[0]
    if dtype.scalar() is dtypes.int32:
        return words.signed(x[0])
    return words.make(Ops.CAST, target, x[0])


def _to_float(words: Words, x: Pair, dtype: DType, signed: bool) -> UOp:
    """The first 32 bits that count, the last of them set if any bit behind them is: then the
    conversion of that word rounds as the conversion of all 64 bits would."""
    minus = words.less(words.signed(x[1]), 0) if signed else None
    low, high = x if minus is None else select(words, minus, negate(words, x), x)
    by = words.like(0, high)
    left = high
    # how many bits of the high word are in use, by halves
    for width in (16, 8, 4, 2, 1):
        is_wide = words.less(words.like((1 << width) - 1, left), left)
        by = words.where(is_wide, words.add(by, width), by)
        left = words.where(is_wide, words.right(left, width), left)
    by = words.add(by, left)
    window, _ = shift_right(words, (low, high), by, signed=False)
    back = shift_left(words, (window, words.like(0, high)), by)
    behind = words.make(Ops.CMPNE, dtypes.bool.vec(dtype.count), back[0], low)
    window = words.bits_or(window, words.number(behind))
    value = words.make(Ops.CAST, dtype, window)
    exponent = words.left(words.add(by, 127), 23)
    scaled = words.make(Ops.MUL, dtype, value, words.bits_as(exponent, dtypes.float32))
    if minus is None:
        return scaled
    return words.where(minus, words.make(Ops.NEG, dtype, scaled), scaled)
