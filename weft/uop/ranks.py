"""Order by counting digits in groups, as graphs that machines with RANK and SCAN run fast.

In: rows of words, a key above a place. Out: the same rows, the keys in order. Prefixes of rows.
Sits above segments; sort and the schedule's order of writes take it where `has_prefixes` is true.
Invariant: the order is stable and total: words are distinct, and a pass keeps the order of those
whose digits are equal. What a block computes, how many of its elements are equal and come before,
is said as a sum over pairs, so that any machine can run it; one with RANK counts each element once.
"""

from __future__ import annotations

from weft.dtype import dtypes
from weft.helpers import ceildiv
from weft.uop.args import Unique
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.segments import NewStorage, alike, iota, stored, take

# bits of a digit, and elements of a block inside of which digits are counted: of few, and of many,
# where a table of digits x blocks should be small beside what is sorted
DIGIT = 8
BLOCK, LONG_BLOCK = 1024, 4096
LONG = 1 << 20
# long blocks of a row: of fewer the last one would be empty for the most part
LEAST_BLOCKS = 4
# elements of a block of prefixes, of those that are scanned at once, and what both divide by
SCANNED, AT_ONCE, UNIT = 2048, 8192, 256
# bits of a place below a key, and of a count of equal digits
PLACE_BITS, COUNT_BITS = 32, 16


def _shaped(value: UOp, *shape: int) -> UOp:
    return value._mop(Ops.RESHAPE, tuple(shape))


def _sum(value: UOp) -> UOp:
    """Summed up along the last axis."""
    folded = value._reduce_axis(Ops.ADD, (len(value.shape) - 1,))
    return _shaped(folded, *value.shape[:-1])


def block_size(rows: int, count: int) -> int:
    """Elements of a block where rows of so many are put in order."""
    is_long = rows * count >= LONG and count >= LEAST_BLOCKS * LONG_BLOCK
    return LONG_BLOCK if is_long else BLOCK


def prefixes(values: UOp) -> UOp:
    """Every prefix of the rows of a matrix summed up, in memory."""
    rows, count = values.shape
    width = ceildiv(count, UNIT) * UNIT
    width = width if width <= AT_ONCE else SCANNED
    blocks = ceildiv(count, width)
    if blocks * width != count:
        values = values._mop(Ops.PAD, ((0, 0), (0, blocks * width - count)))
    cut = _shaped(values, rows, blocks, width)
    place, other, element = alike(
        _shaped(iota(width), 1, 1, width, 1),
        _shaped(iota(width), 1, 1, 1, width),
        _shaped(cut, rows, blocks, 1, width),
    )
    within = _sum(place.lt(other).where(UOp.const(values.dtype, 0), element))
    if blocks > 1:
        ends = prefixes(stored(_sum(cut)))
        before = ends._mop(Ops.SHRINK, ((0, rows), (0, blocks - 1)))._mop(Ops.PAD, ((0, 0), (1, 0)))
        within, start = alike(within, _shaped(before, rows, blocks, 1))
        within = within + start
    whole = _shaped(stored(within), rows, blocks * width)
    return whole._mop(Ops.SHRINK, ((0, rows), (0, count)))


def equals_before(digits: UOp) -> UOp:
    """Of the rows of a matrix, for each element, how many before it are equal, and above COUNT_BITS
    how many are."""
    rows, width = digits.shape
    mine, other, place, before = alike(
        _shaped(digits, rows, width, 1),
        _shaped(digits, rows, 1, width),
        _shaped(iota(width), 1, width, 1),
        _shaped(iota(width), 1, 1, width),
    )
    weight = before.lt(place).cast(dtypes.int32) + (1 << COUNT_BITS)
    return _sum(mine.eq(other).where(weight, 0))


def places_in_order(keys: UOp, bits: int, new_storage: NewStorage) -> UOp:
    """The places of the keys of each row, of so many bits, in order; as int32.

    Keys of more than 32 bits are put in order by their lower halves first. What fills the last
    block of a row has the greatest key, and comes behind all others.
    """
    rows, own = keys.shape
    size = block_size(rows, own)
    count = ceildiv(own, size) * size
    keys = stored(_filled_up(keys, count, (1 << bits) - 1))
    place, wide = alike(_shaped(iota(count, dtypes.uint64), 1, count), keys.cast(dtypes.uint64))
    order: UOp | None = None
    for start in range(0, bits, PLACE_BITS):
        width = min(PLACE_BITS, bits - start)
        part = (wide >> start) & ((1 << width) - 1)
        if order is not None:
            row, order = alike(_shaped(iota(rows), rows, 1), order)
            part = UOp(Ops.GATHER, part.dtype, (stored(part), row, order), (0, 1))
            place = order.cast(dtypes.uint64)
        order = _ordered((part << PLACE_BITS) | place, width, size, new_storage)
    assert order is not None
    return order._mop(Ops.SHRINK, ((0, rows), (0, own)))


def _filled_up(keys: UOp, count: int, filling: int) -> UOp:
    """Rows made longer."""
    rows, own = keys.shape
    if own == count:
        return keys
    padded = keys._mop(Ops.PAD, ((0, 0), (0, count - own)))
    inside, padded = alike(_shaped(iota(count), 1, count).lt(own), padded)
    return inside.where(padded, UOp.const(keys.dtype, filling))


def _ordered(words: UOp, bits: int, size: int, new_storage: NewStorage) -> UOp:
    """The lower halves of words, in the order of so many bits above them."""
    rows, count = words.shape
    passes = ceildiv(bits, DIGIT)
    # as many digits as that takes, of equal widths
    widths = [bits // passes + (number < bits % passes) for number in range(passes)]
    shift = PLACE_BITS
    for number, width in enumerate(widths):
        if size == LONG_BLOCK:
            words, place = _moved(words, shift, width, new_storage)
        else:
            place = _places(words, shift, width, new_storage)
        is_last = number == passes - 1
        moved = (words & ((1 << PLACE_BITS) - 1)).cast(dtypes.int32) if is_last else words
        home = new_storage(rows * count, moved.dtype)
        put = take(home, _shaped(place, rows * count)).store(_shaped(moved, rows * count))
        words = _shaped(home.after(put.replace(arg=Unique())), rows, count)
        shift += width
    return words


def _table(size: int, entry: UOp, counts: UOp, new_storage: NewStorage) -> UOp:
    """Counts at entries that are named once each; 0 elsewhere."""
    table = new_storage(size, dtypes.int32)
    none = UOp.const(dtypes.int32, 0)._mop(Ops.RESHAPE, (1,))._mop(Ops.EXPAND, table.shape)
    table = table.after(table.store(none))
    return table.after(take(table, entry).store(counts).replace(arg=Unique()))


def _places(words: UOp, shift: int, width: int, new_storage: NewStorage) -> UOp:
    """Where each word goes among all of them: behind those of lesser digits of its row, and of its
    digit behind those in earlier blocks and earlier in its own."""
    rows, count = words.shape
    size, digits = BLOCK, 1 << width
    blocks = count // size
    digit = stored(((words >> shift) & (digits - 1)).cast(dtypes.uint8))
    counted = stored(equals_before(_shaped(digit, rows * blocks, size)))
    counted = _shaped(counted, rows, blocks, size)
    earlier = counted & ((1 << COUNT_BITS) - 1)
    equal = counted >> COUNT_BITS
    row, block, own, counted = alike(
        _shaped(iota(rows), rows, 1, 1),
        _shaped(iota(blocks), 1, blocks, 1),
        _shaped(digit.cast(dtypes.int32), rows, blocks, size),
        counted,
    )
    at = (row * digits + own) * blocks + block
    # the first of its equals tells how many there are
    entry = _shaped(earlier.eq(0).where(at, rows * digits * blocks), rows * count)
    counts = _table(rows * digits * blocks, entry, _shaped(equal, rows * count), new_storage)
    ends = _shaped(prefixes(_shaped(counts, rows, digits * blocks)), rows * digits * blocks)
    first = take(ends, _shaped(at, rows * count)) - _shaped(equal, rows * count)
    place = _shaped(first + _shaped(earlier, rows * count), rows, count)
    row, place = alike(_shaped(iota(rows), rows, 1), place)
    return row * count + place


def _moved(words: UOp, shift: int, width: int, new_storage: NewStorage) -> tuple[UOp, UOp]:
    """The words of each block in the order of a digit, and where each of them goes among all.

    That is behind those of lesser digits of its row, and of its digit behind those in earlier
    blocks. In order, neighbours mostly go to neighbouring places.
    """
    rows, count = words.shape
    size, digits = LONG_BLOCK, 1 << width
    blocks = count // size
    whole, entries = rows * blocks, rows * blocks * digits
    digit = stored(_shaped(((words >> shift) & (digits - 1)).cast(dtypes.uint8), whole, size))
    counted = stored(equals_before(digit))
    earlier = counted & ((1 << COUNT_BITS) - 1)
    equal = counted >> COUNT_BITS
    block, own = alike(_shaped(iota(whole), whole, 1), digit.cast(dtypes.int32))
    # the first of its equals tells how many there are
    entry = _shaped(earlier.eq(0).where(block * digits + own, entries), rows * count)
    counts = _table(entries, entry, _shaped(equal, rows * count), new_storage)
    counts = _shaped(counts, whole, digits)
    # where the digits of a block begin in it, and in the row
    inside = stored(prefixes(counts) - counts)
    by_digit = _shaped(counts, rows, blocks, digits).permute((0, 2, 1))
    by_digit = stored(_shaped(by_digit, rows, digits * blocks))
    begin = _shaped(prefixes(by_digit) - by_digit, rows, digits, blocks).permute((0, 2, 1))
    row, begin = alike(_shaped(iota(rows), rows, 1, 1), begin)
    begin = _shaped(stored(row * count + begin - _shaped(inside, rows, blocks, digits)), entries)
    local = stored(take(_shaped(inside, entries), block * digits + own) + earlier)
    place, other, element = alike(
        _shaped(iota(size), 1, size, 1),
        _shaped(local, whole, 1, size),
        _shaped(stored(words), whole, 1, size),
    )
    moved = stored(_sum(other.eq(place).where(element, UOp.const(words.dtype, 0))))
    own = ((moved >> shift) & (digits - 1)).cast(dtypes.int32)
    block, own, inner = alike(_shaped(iota(whole), whole, 1), own, _shaped(iota(size), 1, size))
    target = take(begin, block * digits + own) + inner
    return _shaped(moved, rows, count), _shaped(target, rows, count)
