"""Order and sums by key, as graphs in which nothing is written twice: scatter for many threads.

In: a vector of keys, and values that belong to them. Out: the places of the keys in order, and
every prefix of equal keys folded.
Sits above scatter; the schedule takes it where the rounds of a kernel run on many threads at once.
Invariant: results depend on the input alone, never on who comes first: the order is stable, and
sums are added in blocks that the number of elements decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.dtype import DType, dtypes
from weft.helpers import ceildiv
from weft.uop.args import Unique
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops

# storage of its own for so many elements
NewStorage = Callable[[int, DType], UOp]

# Up to here each key counts how many come before it: quadratic work, but few kernels.
COUNTED = 1024
# bits of a digit, and keys of a block inside of which equal digits are counted
DIGIT, BLOCK = 6, 64
# elements of a block of a scan, each of which looks at all of them: of rows, and of numbers, where
# fewer steps count for more than less work
SCANNED, SUMMED = 16, 256


def iota(size: int, dtype: DType = dtypes.int32) -> UOp:
    """0, 1, 2 ..."""
    return UOp(Ops.IOTA, dtype, (), size)


def stored(value: UOp) -> UOp:
    """The value in memory."""
    return UOp(Ops.CONTIGUOUS, value.dtype, (value,))


def take(source: UOp, index: UOp) -> UOp:
    """The elements at places of the first axis."""
    return UOp(Ops.GATHER, source.dtype, (source, index), (0,))


def _shaped(value: UOp, *shape: int) -> UOp:
    return value._mop(Ops.RESHAPE, tuple(shape))


def alike(*values: UOp) -> list[UOp]:
    """Values of as many axes, each as long as the longest along every axis."""
    shape = tuple([max(sizes) for sizes in zip(*[value.shape for value in values], strict=True)])
    return [v if v.shape == shape else v._mop(Ops.EXPAND, shape) for v in values]


def chosen(condition: UOp, value: UOp, otherwise: Any) -> UOp:
    """The value where a condition of as many axes holds, else a number."""
    condition, value = alike(condition, value)
    return condition.where(value, otherwise)


def filled_up(value: UOp, size: int, filling: Any) -> UOp:
    """Longer along the first axis."""
    more = size - value.shape[0]
    if more == 0:
        return value
    rest = value.shape[1:]
    padded = value._mop(Ops.PAD, ((0, more), *[(0, 0)] * len(rest)))
    inside = _shaped(iota(size), size, *[1] * len(rest)).lt(value.shape[0])
    return chosen(inside, padded, UOp.const(value.dtype, filling))


# ------------------------------------------------------------ order
def stable_order(keys: UOp, most: int, new_storage: NewStorage) -> UOp:
    """The places of int32 keys from 0 to `most`: lesser keys first, equal ones in order."""
    count = keys.shape[0]
    return _counted_order(keys) if count <= COUNTED else _digit_order(keys, most, new_storage)


def _counted_order(keys: UOp) -> UOp:
    """A key comes after those that are less, and after equal ones that are earlier."""
    count = keys.shape[0]
    mine, other, place, before = alike(
        _shaped(keys, count, 1),
        _shaped(keys, 1, count),
        _shaped(iota(count), count, 1),
        _shaped(iota(count), 1, count),
    )
    is_before = other.lt(mine) | (other.eq(mine) & before.lt(place))
    rank = stored(_fold(is_before.cast(dtypes.int32), 1, Ops.ADD))
    # turned around: whose rank is 0, 1, 2 ...
    rank, _ = alike(_shaped(rank, 1, count), place)
    return stored(_fold(rank.eq(place).where(before, 0), 1, Ops.ADD))


def _digit_order(keys: UOp, most: int, new_storage: NewStorage) -> UOp:
    """A radix sort from the least digit on: per digit, how many come before a key is its place.

    Those are all of lesser digits, and of the same digit those in earlier blocks and earlier in its
    own. What fills the last block has the greatest key and comes last.
    """
    count = keys.shape[0]
    blocks = ceildiv(count, BLOCK)
    keys = stored(filled_up(keys, blocks * BLOCK, most))
    bits = max(1, most.bit_length())
    block = _shaped(iota(blocks), blocks, 1)
    place, other = alike(_shaped(iota(BLOCK), 1, BLOCK, 1), _shaped(iota(BLOCK), 1, 1, BLOCK))
    is_later = other.ge(place)
    order: UOp | None = None
    for shift in range(0, bits, DIGIT):
        width = min(DIGIT, bits - shift)
        current = keys if order is None else take(keys, order)
        digit = (current >> shift) & ((1 << width) - 1)
        digit = stored(_shaped(digit, blocks, BLOCK))
        mine, digits = alike(
            _shaped(digit, 1, blocks, BLOCK), _shaped(iota(1 << width), 1 << width, 1, 1)
        )
        counts = _fold(mine.eq(digits).cast(dtypes.int32), 2, Ops.ADD)
        ends = scanned(stored(_shaped(counts, (1 << width) * blocks)))
        mine, other, later = alike(
            _shaped(digit, blocks, BLOCK, 1), _shaped(digit, blocks, 1, BLOCK), is_later
        )
        after = _fold((mine.eq(other) & later).cast(dtypes.int32), 2, Ops.ADD)
        digit, own = alike(digit, block)
        rank = stored(_shaped(take(ends, digit * blocks + own) - after, blocks * BLOCK))
        values = iota(blocks * BLOCK) if order is None else order
        home = new_storage(blocks * BLOCK, dtypes.int32)
        order = home.after(take(home, rank).store(values).replace(arg=Unique()))
    assert order is not None
    return order._mop(Ops.SHRINK, ((0, count),))


# ------------------------------------------------------------ prefixes
def _fold(value: UOp, axis: int, op: Ops) -> UOp:
    """The value folded along an axis, in its own dtype."""
    folded = value._reduce_axis(op, (axis,))
    return _shaped(folded, *[s for i, s in enumerate(value.shape) if i != axis])


def scanned(values: UOp) -> UOp:
    """Every prefix of a vector summed up, in memory."""
    none = UOp.const(dtypes.int32, 0)._mop(Ops.RESHAPE, (1,))._mop(Ops.EXPAND, values.shape)
    column = _shaped(values, values.shape[0], 1)
    return stored(_shaped(scanned_by_key(none, column, Ops.ADD, SUMMED), values.shape[0]))


def scanned_by_key(keys: UOp, values: UOp, op: Ops, block: int | None = None) -> UOp:
    """Rows of a matrix folded with those before them that have the same key; keys are in order.

    In blocks: the last row of each carries on what its key has so far, which is scanned in turn,
    and the rows that have the first key of a block begin with what was carried to it.
    """
    count, width = values.shape
    neutral = OPSET[op].identity
    neutral = values.dtype.min if neutral is None else neutral
    size = SCANNED if block is None else block
    blocks = ceildiv(count, size)
    if blocks > 1:
        keys = filled_up(keys, blocks * size, 0)
        values = filled_up(values, blocks * size, neutral)
    else:
        size = count
    keys = _shaped(keys, blocks, size)
    values = _shaped(values, blocks, 1, size, width)
    mine, other, place, before = alike(
        _shaped(keys, blocks, size, 1, 1),
        _shaped(keys, blocks, 1, size, 1),
        _shaped(iota(size), 1, size, 1, 1),
        _shaped(iota(size), 1, 1, size, 1),
    )
    none = UOp.const(values.dtype, neutral)
    within = _fold(chosen(mine.eq(other) & before.le(place), values, none), 2, op)
    if blocks == 1:
        return _shaped(within, count, width)
    first, last = [
        _shaped(keys._mop(Ops.SHRINK, ((0, blocks), (at, at + 1))), blocks) for at in (0, size - 1)
    ]
    ends = within._mop(Ops.SHRINK, ((0, blocks), (size - 1, size), (0, width)))
    carried = stored(scanned_by_key(last, stored(_shaped(ends, blocks, width)), op, block))
    earlier = (iota(blocks) - 1).maximum(0)
    goes_on = take(last, earlier).eq(first) & iota(blocks).gt(0)
    own, first = alike(_shaped(keys, blocks, size, 1), _shaped(first, blocks, 1, 1))
    begins, goes_on = alike(own.eq(first), _shaped(goes_on, blocks, 1, 1))
    start = chosen(begins & goes_on, _shaped(take(carried, earlier), blocks, 1, width), none)
    whole = _shaped(within.alu(op, start), blocks * size, width)
    return whole._mop(Ops.SHRINK, ((0, count), (0, width)))
