"""Sorting: sort, argsort, topk.

In: tensors. Out: their elements in order along an axis, and where they were.
Sits above the engine, one of the Tensor families.
Invariant: the order is total and stable: equal elements keep their order, nan comes last.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Self

from weft.device import Device
from weft.dtype import PyConst, dtypes
from weft.engine import host_calls
from weft.engine.schedule import machine_of
from weft.errors import ArgumentError
from weft.helpers import ceildiv, prod
from weft.mixin.check import whole_number
from weft.mixin.conv import ConvMixin
from weft.mixin.movement import is_int
from weft.mixin.once import built_once
from weft.uop import ranks
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.scatter import new_storage

_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_KEYS = {2: dtypes.int16, 4: dtypes.int32, 8: dtypes.int64}

# Up to here each element counts how many come before it: quadratic work, but two kernels. Beyond,
# the order is made digit by digit, stably, from the least one on.
_COUNTED = 1024
_COUNTED_AT_ONCE = 1 << 24
# compares of rows that kernels make sooner than a function of the host is called
_COUNTED_BY_KERNELS = 1 << 16
# keys of a row from which on a function of the host counts, for each digit of theirs
_COUNTED_BY_HOST = 1 << 10
# Bits of a digit, and elements of the blocks inside of which equal digits are counted: a table of
# digits x blocks is then as large as what is sorted.
_DIGIT = 6
_BLOCK = 64
# topk of up to so many looks for blocks with great elements first, until so many are left; of more
# it counts digits of so many bits
_FEW = 256
_LEAF = 2048
_TABLE = 11
# and of so many where threads count: each element is compared with all digits
_COMPARED = 4
# elements that groups of threads put in order: their places and blocks are ints of 32 bits
_MOST_RANKED = 1 << 30


class SortMixin(ConvMixin):
    """Methods over keys: ints that have the order of the elements."""

    __slots__ = ()

    def _sort_keys(self, descending: bool) -> Self:
        """Ints in the order of the elements; -0.0 is 0.0, and nan the greatest."""
        keys = self
        if self.dtype in dtypes.weaks:
            keys = self.cast(dtypes.default_float if dtypes.is_float(self.dtype) else dtypes.int64)
        if keys.dtype is dtypes.bool:
            keys = keys.cast(dtypes.uint8)
        if dtypes.is_float(keys.dtype):
            value = keys.cast(dtypes.float32) if keys.dtype.itemsize == 1 else keys
            integer = _KEYS[value.dtype.itemsize]
            bits = value.bitcast(integer)
            # negative floats are ordered backwards: all but the sign is inverted
            ordered = bits.lt(0).where(bits ^ integer.max, bits)
            ordered = value.eq(0).where(ordered._constant(0), ordered)
            keys = value.isnan().where(ordered._constant(integer.max), ordered)
        return keys.bitwise_not() if descending else keys

    def argsort(self, dim: int = -1, descending: bool = False) -> Self:
        """The places of the elements in order along an axis.

        >>> Tensor([3, 1, 2]).argsort().tolist()
        [1, 2, 0]
        """
        axis = self._axis(dim)
        if self.ndim == 0:
            return self._from_uop(self._constant(0).uop).cast(dtypes.default_int)
        keys = self._sort_keys(descending).transpose(axis, -1)
        if is_int(keys.shape[-1]) and keys.shape[-1] <= 1 or 0 in keys.shape:
            first = self._from_uop(UOp.const(dtypes.default_int, 0).expand(self.shape))
            return first if self.device is None else first.to(self.device)
        rows = keys.reshape((prod(keys.shape[:-1]), keys.shape[-1])).contiguous()
        return rows._order().reshape(keys.shape).transpose(axis, -1)

    @built_once
    def _order(self) -> Self:
        """Places in order along the second of two axes, of keys."""
        rows, count = self.shape
        if not (is_int(rows) and is_int(count)) or rows * count * count <= _COUNTED_BY_KERNELS:
            return self._kernel_order()
        results = [(self.shape, dtypes.default_int)]
        (order,) = host_calls.call(
            "sort", (self.uop,), results, _host_order, _kernel_order, (type(self),)
        )
        return self._from_uop(order)

    def _kernel_order(self) -> Self:
        rows, count = self.shape
        if not is_int(count) or count <= _COUNTED:
            return self._counted_order()
        if is_int(rows) and _has_prefixes(self.device) and rows * count < _MOST_RANKED:
            return self._ranked_order()
        return self._digit_order()

    def _ranked_order(self) -> Self:
        """The same on machines whose groups of threads count digits: `uop/ranks.py`."""
        device = str(Device.canonicalize(self.device))
        order = ranks.places_in_order(
            self._unsigned_keys().uop,
            self.dtype.itemsize * 8,
            lambda elements, dtype: new_storage(device, (elements,), dtype),
        )
        return self._from_uop(order)

    def _counted_order(self) -> Self:
        """Element i comes after all that are less, and after those equal to it that are earlier."""
        places = self._iota(self.shape[1])
        mine, other = self.unsqueeze(2), self.unsqueeze(1)
        earlier = places.unsqueeze(0).lt(places.unsqueeze(1))
        before = other.lt(mine) | (other.eq(mine) & earlier)
        rank = before.sum(2).cast(dtypes.default_int).contiguous()
        return self._put_in_order(rank, places.expand(self.shape))

    def _put_in_order(self, rank: Self, values: Self, into: Self | None = None) -> Self:
        """The values of each row at their ranks, which are all places of the row."""
        row = self._iota(self.shape[0]).unsqueeze(1).expand(rank.shape)
        return values._permuted((0, 1), (row, rank), into)

    def _digit_order(self) -> Self:
        """A radix sort: per digit, the place of an element is how many come before it.

        That is those of lesser digits, and of the same digit those in earlier blocks and earlier in
        its own block. The work is that of the elements, times the number of digits.
        """
        rows, count = self.shape
        blocks = ceildiv(count, _BLOCK)
        keys = self._unsigned_keys()
        # what fills the last block comes last: it is the greatest, and later than equal ones
        keys = keys._filled_up((rows, blocks * _BLOCK), -1).contiguous()
        row = self._iota(rows).reshape((rows, 1, 1))
        row_of = row.squeeze(2)
        block = self._iota(blocks).reshape((1, blocks, 1))
        places = self._iota(_BLOCK)
        later = places.unsqueeze(0).ge(places.unsqueeze(1))
        everywhere = self._iota(blocks * _BLOCK).expand(keys.shape)
        order: Self | None = None
        older: Self | None = None
        for word, shift, width in keys._digits():
            sorted_keys = word if order is None else word._take({0: row_of, 1: order})
            digit = ((sorted_keys >> shift) & ((1 << width) - 1)).cast(dtypes.uint8)
            digit = digit.reshape((rows, blocks, _BLOCK)).contiguous()
            digits = self._iota(1 << width).cast(dtypes.uint8)
            mine = digit.unsqueeze(1).eq(digits.reshape((1, -1, 1, 1)))
            # a block has few elements: bytes count them, and most lanes fit a vector
            counts = mine.cast(dtypes.uint8).sum(3, dtype=dtypes.uint8).cast(dtypes.int32)
            ends = counts.flatten(1).cumsum(1).reshape(counts.shape)
            after = (digit.unsqueeze(3).eq(digit.unsqueeze(2)) & later).cast(dtypes.uint8)
            after = after.sum(3, dtype=dtypes.uint8).cast(dtypes.int32)
            end = ends._take({0: row, 1: digit.cast(dtypes.int32), 2: block})
            rank = (end - after).contiguous().reshape(keys.shape)
            values = everywhere if order is None else order
            # the order of the pass before last makes room: two of them are enough
            order, older = keys._put_in_order(rank, values, older), order
        assert order is not None
        return order._slice(1, 0, count)

    def _digits(self) -> list[tuple[Self, int, int]]:
        """(ints, shift, width) of the digits of unsigned keys, the least one first.

        Digits of 64 bits are read from two words: what is read in random order is half as much.
        """
        bits = self.dtype.itemsize * 8
        words = [self]
        if bits == 64:
            words = [self.cast(dtypes.uint32).contiguous(), (self >> 32).cast(dtypes.uint32)]
            words[1] = words[1].contiguous()
            bits = 32
        count = ceildiv(bits, _DIGIT)
        # as many digits as that takes, of equal widths
        widths = [bits // count + (number < bits % count) for number in range(count)]
        starts = [sum(widths[:number]) for number in range(count)]
        return [(word, *pair) for word in words for pair in zip(starts, widths, strict=True)]

    def _unsigned_keys(self) -> Self:
        """Keys of the same order that are not negative."""
        if dtypes.is_unsigned(self.dtype):
            return self
        unsigned = _UNSIGNED[self.dtype.itemsize]
        return self.bitcast(unsigned) ^ (1 << (self.dtype.itemsize * 8 - 1))

    def _filled_up(self, shape: tuple[Any, ...], value: PyConst) -> Self:
        """Padded at the ends with an exact int (a float would not hold it)."""
        pairs = [(0, size - own) for size, own in zip(shape, self.shape, strict=True)]
        if all(is_int(after) and after == 0 for _, after in pairs):
            return self
        padded = self._pad_zeros(pairs)
        inside = self._constant(1).cast(dtypes.bool).expand(self.shape)._pad_zeros(pairs)
        return inside.where(padded, padded._constant(value))

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """The elements in order along an axis, and their places.

        >>> [x.tolist() for x in Tensor([3, 1, 2]).sort()]
        [[1, 2, 3], [1, 2, 0]]
        """
        if self.ndim == 0:
            return self, self.argsort(dim)
        sorted_both: tuple[Self, Self] = self._sorted(self._axis(dim), bool(descending))
        return sorted_both

    @built_once
    def _sorted(self, axis: int, descending: bool) -> tuple[Self, Self]:
        order = self.argsort(axis, descending)
        if order.uop.base.op is Ops.HOST:
            # the order is in memory already; stored, the values of one sort are read by the next
            return self.gather(axis, order).contiguous(), order
        order = order.contiguous()
        return self.gather(axis, order), order

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> tuple[Self, Self]:
        """The k greatest (or least) elements along an axis, and their places.

        >>> [x.tolist() for x in Tensor([3, 1, 2]).topk(2)]
        [[3, 2], [0, 2]]
        """
        axis = self._axis(dim)
        k = whole_number("k", k)
        if self.ndim and not is_int(self.shape[axis]):
            raise ArgumentError(
                f"topk of {k} elements along axis {dim} of shape {self.shape}: its size is a "
                "variable, which may be less; sort takes such an axis"
            )
        if self.ndim == 0 or not 0 <= k <= self.shape[axis]:
            raise ArgumentError(f"topk of {k} elements along axis {dim} of shape {self.shape}")
        found: tuple[Self, Self] = self._top(k, axis, bool(largest))
        return found

    @built_once
    def _top(self, k: int, axis: int, largest: bool) -> tuple[Self, Self]:
        if k == 0 or 0 in self.shape:
            order = self.argsort(axis, largest)._slice(axis, 0, k)
            return self.gather(axis, order), order
        keys = self._sort_keys(largest).transpose(axis, -1)
        rows = keys.reshape((prod(keys.shape[:-1]), keys.shape[-1])).contiguous()
        order = rows._first(k).reshape((*keys.shape[:-1], k)).transpose(axis, -1).contiguous()
        return self.gather(axis, order), order

    def _first(self, k: int) -> Self:
        """The places of the k least keys of each row, in order."""
        count = self.shape[1]
        if k == 1:
            return self.argmin(1, keepdim=True)
        if not is_int(count) or count <= _COUNTED or k > count // 4:
            return self._order()._slice(1, 0, k)
        if k <= _FEW:
            return self._first_of_blocks(k)
        places = self._below_threshold(k)
        found = self.gather(1, places).contiguous()
        # counting takes two kernels, so it may take more steps than sorting by digits
        few = self.shape[0] * k * k <= _COUNTED_AT_ONCE
        order = (found._counted_order() if few else found._order()).contiguous()
        return places.gather(1, order)

    def _first_of_blocks(self, k: int) -> Self:
        """As `_first`, for a small k: they are in the k blocks whose least keys are least.

        Those blocks are found the same way, and then the k least of their elements.
        """
        rows, count = self.shape
        if count <= _LEAF or k * 4 > count:
            return self._counted_order()._slice(1, 0, k)
        width = max(round(math.sqrt(count / k)), ceildiv(count, _LEAF))
        width = 1 << (width - 1).bit_length()
        blocks = ceildiv(count, width)
        filled = self._filled_up((rows, blocks * width), self.dtype.max)
        filled = filled.reshape((rows, blocks, width))
        # in the order of the blocks, so that of equal elements the earlier one still comes first
        chosen = filled.min(2).contiguous()._first_of_blocks(k).contiguous()
        row = self._iota(rows).unsqueeze(1)
        chosen = chosen._take({0: row, 1: chosen._counted_order()}).contiguous()
        found = filled._take({0: row, 1: chosen}).reshape((rows, k * width)).contiguous()
        inner = found._first_of_blocks(k).contiguous()
        return chosen._take({0: row, 1: inner // width}) * width + inner % width

    def _below_threshold(self, k: int) -> Self:
        """The places of the k least keys of each row, as they come.

        The greatest of them is found digit by digit from the top: the one up to which k are counted
        among those that begin with the digits known so far.
        """
        rows, count = self.shape
        keys = self._unsigned_keys().contiguous()
        width = keys.dtype.itemsize * 8
        row = self._iota(rows).unsqueeze(1)
        known = keys._constant(0).expand((rows, 1))
        left = self._iota(1).reshape((1, 1)).expand((rows, 1)) + k
        is_in_order = not machine_of(Device.canonicalize(self.device)).has_local
        bits = _TABLE if is_in_order else _COMPARED
        for shift in range(ceildiv(width, bits) * bits - bits, -1, -bits):
            digit = ((keys >> shift) & ((1 << bits) - 1)).cast(dtypes.int32)
            place = digit
            if shift + bits < width:
                begins = (keys >> (shift + bits)).eq(known)
                place = begins.where(digit, 1 << bits)
            counts = place._table(1 << bits) if is_in_order else place._compared(1 << bits)
            ends = counts.cumsum(1).contiguous()
            found = ends.lt(left).sum(1, keepdim=True).contiguous()
            before = found.gt(0).where(ends.gather(1, (found - 1).maximum(0)), 0)
            known, left = ((known << bits) | found.cast(keys.dtype)).contiguous(), left - before
            left = left.contiguous()
        equal = keys.eq(known)
        taken = keys.lt(known) | (equal & equal.cast(dtypes.int32).cumsum(1).le(left))
        target = taken.where(taken.cast(dtypes.int32).cumsum(1) - 1, k)
        places = self._iota(count).expand(keys.shape)
        empty = left._constant(0).expand((rows, k))
        at = (row.expand(keys.shape), target)
        return empty._written((0, 1), at, places, unique=True).contiguous()

    def _table(self, size: int) -> Self:
        """How often each int below `size` is in a row, counted one after another."""
        row = self._iota(self.shape[0]).unsqueeze(1).expand(self.shape)
        empty = self._constant(0).expand((self.shape[0], size))
        return empty._written((0, 1), (row, self), self._constant(1), Ops.ADD)

    def _compared(self, size: int) -> Self:
        """The same, by comparing all with each of them: sums, which threads share."""
        numbers = self._iota(size).reshape((1, size, 1))
        return self.unsqueeze(1).eq(numbers).sum(2).cast(dtypes.int32)


def _has_prefixes(device: Any) -> bool:
    """Whether the machine's groups of threads count digits."""
    return isinstance(device, str) and machine_of(Device.canonicalize(device)).has_prefixes


# ------------------------------------------------------------ by the host
def _kernel_order(nodes: Sequence[UOp], cls: Any) -> list[UOp]:
    """What `_host_order` gives, by kernels."""
    return [cls._from_uop(nodes[0])._kernel_order().contiguous().uop]


def _host_order(arrays: Sequence[Any], cls: Any) -> list[Any]:
    """Places in order along the second of two axes, of keys: stable, as the kernels' are.

    NumPy sorts words several times faster than it finds a stable order of them. So a key and its
    place are sorted as one word. Where all of a key does not fit beside a place, its highest bits
    do, and what is equal in those is put in order afterwards. Of 16 bits NumPy finds the order by
    counting: two rounds of that are faster still where there are many keys.
    """
    import numpy

    keys = arrays[0]
    if keys.dtype.itemsize <= 2:
        return [numpy.argsort(keys, 1, kind="stable")]
    count = keys.shape[1]
    bits = (count - 1).bit_length()
    least, greatest = int(keys.min()), int(keys.max())
    width = (greatest - least).bit_length()
    if width <= 32 and count >= _COUNTED_BY_HOST * -(-width // 16):
        return [_host_digit_order(keys, least, width)]
    dropped = max(0, width + bits - 64)
    # wrapping, the difference is right as an int without sign
    words = keys.astype(numpy.uint64)
    words -= numpy.uint64(least % (1 << 64))
    words >>= numpy.uint64(dropped)
    words <<= numpy.uint64(bits)
    words |= numpy.arange(count, dtype=numpy.uint64)
    words.sort(1)
    order = (words & numpy.uint64((1 << bits) - 1)).astype(numpy.int64)
    if dropped:
        words >>= numpy.uint64(bits)
        _order_ties(words, order, keys)
    return [order]


def _host_digit_order(keys: Any, least: int, width: int) -> Any:
    """The same by digits of 16 bits, the lowest first."""
    import numpy

    word = numpy.dtype(f"u{keys.itemsize}").type
    above = keys.view(word) - word(least % (1 << 8 * keys.itemsize))
    order = numpy.argsort(above.astype(numpy.uint16), 1, kind="stable")
    if width > 16:
        high = (above >> word(16)).astype(numpy.uint16)
        by_high = numpy.argsort(numpy.take_along_axis(high, order, 1), 1, kind="stable")
        order = numpy.take_along_axis(order, by_high, 1)
    return order


def _order_ties(tops: Any, order: Any, keys: Any) -> None:
    """Puts in order, in place, what is equal in the highest bits: `tops` in order."""
    import numpy

    begins = numpy.ones(tops.shape, bool)
    numpy.not_equal(tops[:, 1:], tops[:, :-1], out=begins[:, 1:])
    # rows are apart: each begins with a run of its own
    begins = begins.reshape(-1)
    is_tied = ~begins
    is_tied[:-1] |= ~begins[1:]
    where = numpy.flatnonzero(is_tied)
    if where.size > is_tied.size // 4:
        # a few far keys beside many near ones
        order[:] = numpy.argsort(keys, 1, kind="stable")
        return
    run = numpy.cumsum(begins)[where]
    flat = order.reshape(-1)
    places = flat[where]
    tied = keys[where // keys.shape[1], places]
    # stable, and places ascend inside of a run
    flat[where] = places[numpy.lexsort((tied, run))]
