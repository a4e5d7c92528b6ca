"""Join writes: writes to places that may be equal, as ints that are joined in memory in any order.

What comes in: where values go and how they are combined, for a device that adds ints to memory, or
makes them at least as great, by one instruction (`has_atomics`). What goes out: a STORE that needs
no order, or None where sorting takes less.
Where it sits: under order_writes, which asks it first.
The one invariant: results depend on the input alone. Sums and greatest ones of ints do not depend
on who comes first, and all else is made of them:

    the last of several writes   the greatest of their numbers wins, which then alone writes
    the greatest of floats       that of ints with the order of the floats
    sums of floats               exact: each float is a number of 24 bits, added to that one of a
                                 few 64-bit ints in whose range it lies; their sum is rounded once
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import DType, dtypes
from weft.helpers import prod
from weft.uop.args import Unique, Unordered
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.segments import NewStorage, alike, iota, take

# places for each write up to which all of them may be looked at; and so many anyway
_PLACES, _FEW_PLACES = 16, 1 << 16
# places for each write up to which a place may have ints of its own for every range of floats; and
# so many of these ints anyway
_SUMMED, _FEW_SUMS = 2, 1 << 21
# of a float32: bits of its fraction, the greatest exponent of a number, and the power of two of the
# least bit of all
_FRACTION, _INFINITE, _LEAST = 23, 255, -149
# bits of an int that sums have
_SUM_BITS = 63
# ints that count infinities of each sign, and NaNs
_SPECIAL = 3


def is_joined(store: UOp) -> bool:
    """Whether an instruction does what a STORE says."""
    dtype = store.src[0].dtype
    return store.arg in (Ops.ADD, Ops.MAX) and dtypes.is_int(dtype) and dtype.itemsize >= 4


def joined_store(
    front: UOp, keys: UOp, values: UOp, combine: Ops | None, new_storage: NewStorage
) -> UOp | None:
    """Rows of `values` written to the rows of `front` that `keys` name, if they are inside."""
    places, dtype = front.shape[0], front.dtype
    count, width = values.shape
    if places > max(_PLACES * count, _FEW_PLACES):
        return None
    if combine is None:
        return _last_writes(front, keys, values, new_storage)
    if combine not in (Ops.ADD, Ops.MAX):
        return None
    if places * width * (1 if combine is Ops.MAX else 32) >= dtypes.int32.max:
        return None
    if combine is Ops.MAX or not dtypes.is_float(dtype):
        return _by_ints(front, keys, values, combine, new_storage)
    if dtype.itemsize > 4:
        return None
    return _exact_sums(front, keys, values, new_storage)


def _filled(new_storage: NewStorage, size: int, dtype: DType, number: int) -> UOp:
    home = new_storage(size, dtype)
    value = UOp.const(dtype, number)._mop(Ops.RESHAPE, (1,))._mop(Ops.EXPAND, (size,))
    return home.after(home.store(value))


def _joined(state: UOp, index: UOp, values: UOp, op: Ops) -> UOp:
    """A vector after values were joined with its elements."""
    return state.after(take(state, index).store(values).replace(arg=Unordered(op)))


def _elements(keys: UOp, width: int) -> UOp:
    """The elements of rows, as those of a vector: what is outside stays there, behind the last."""
    if width == 1:
        return keys
    rows, columns = alike(
        keys._mop(Ops.RESHAPE, (keys.shape[0], 1)), iota(width)._mop(Ops.RESHAPE, (1, width))
    )
    return (rows * width + columns)._mop(Ops.RESHAPE, (keys.shape[0] * width,))


def _flat(value: UOp) -> UOp:
    return value._mop(Ops.RESHAPE, (prod(value.shape),))


# ------------------------------------------------------------ the last of several
def _last_writes(front: UOp, keys: UOp, values: UOp, new_storage: NewStorage) -> UOp:
    places, count = front.shape[0], keys.shape[0]
    winners = _joined(_filled(new_storage, places, dtypes.int32, -1), keys, iota(count), Ops.MAX)
    wins = take(winners, keys).eq(iota(count)) & keys.lt(places)
    written = UOp(Ops.GATHER, front.dtype, (front, wins.where(keys, places)), (0,))
    rows = values._mop(Ops.RESHAPE, (count, *front.shape[1:]))
    return written.store(rows).replace(arg=Unique())


# ------------------------------------------------------------ in other ints
def _by_ints(front: UOp, keys: UOp, values: UOp, op: Ops, new_storage: NewStorage) -> UOp:
    """All places as ints that instructions join, and back."""
    home = new_storage(
        prod(front.shape), dtypes.int64 if front.dtype.itemsize > 4 else dtypes.int32
    )
    start = home.after(home.store(_as_ints(_flat(front), home.dtype)))
    index = _elements(keys, values.shape[1])
    done = _joined(start, index, _as_ints(_flat(values), home.dtype), op)
    return front.store(_from_ints(done, front.dtype)._mop(Ops.RESHAPE, front.shape))


def _as_ints(value: UOp, dtype: DType) -> UOp:
    """Ints in the order of the values: NaN is the greatest."""
    if not dtypes.is_float(value.dtype):
        return value.cast(dtype)
    wide = value.cast(dtypes.float32) if value.dtype.itemsize < 4 else value
    bits = wide.bitcast(dtype)
    # negative floats are ordered backwards: all but the sign is inverted
    ordered = bits.lt(0).where(bits ^ dtype.max, bits)
    return wide.ne(wide).where(dtype.max, ordered)


def _from_ints(value: UOp, dtype: DType) -> UOp:
    if not dtypes.is_float(dtype):
        return value.cast(dtype)
    bits = value.lt(0).where(value ^ value.dtype.max, value)
    return bits.bitcast(dtypes.float64 if dtype.itemsize > 4 else dtypes.float32).cast(dtype)


# ------------------------------------------------------------ exact sums
def _exact_sums(front: UOp, keys: UOp, values: UOp, new_storage: NewStorage) -> UOp | None:
    """x = m * 2**(p - 149), with m of 24 bits and p from 0 to 253, is added as m << (p % step) to
    int number p // step of its place: so many additions cannot overflow 63 bits."""
    count, width = values.shape
    size = front.shape[0] * width
    step = _SUM_BITS - _FRACTION - (count - 1).bit_length()
    if step < 8:
        return None
    ranges = (_INFINITE - 2) // step + 1
    ints = (ranges + _SPECIAL) * size
    is_little = size <= _SUMMED * count * width or ints <= _FEW_SUMS
    if ints >= dtypes.int32.max or not is_little:
        return None
    number, part = _parts(_flat(values).cast(dtypes.float32), step, ranges)
    element = _elements(keys, width)
    # one range of all places after another: most floats are in few of them
    index = (number * size + element)._mop(Ops.RESHAPE, element.shape)
    index = element.lt(size).where(index, (ranges + _SPECIAL) * size)
    sums = _filled(new_storage, (ranges + _SPECIAL) * size, dtypes.int64, 0)
    sums = _joined(sums, index, part, Ops.ADD)._mop(Ops.RESHAPE, (ranges + _SPECIAL, size))
    total = _row(sums, ranges - 1).cast(dtypes.float64) * _power((ranges - 1) * step)
    for place in range(ranges - 2, -1, -1):
        total = total + _row(sums, place).cast(dtypes.float64) * _power(place * step)
    for place, special in enumerate((math.inf, -math.inf, math.nan)):
        total = total + _row(sums, ranges + place).gt(0).where(
            UOp.const(dtypes.float64, special), 0.0
        )
    total = total + _flat(front).cast(dtypes.float64)
    return front.store(total.cast(front.dtype)._mop(Ops.RESHAPE, front.shape))


def _power(exponent: int) -> float:
    return math.ldexp(1.0, exponent + _LEAST)


def _row(sums: UOp, place: int) -> UOp:
    row = sums._mop(Ops.SHRINK, ((place, place + 1), (0, sums.shape[1])))
    return row._mop(Ops.RESHAPE, (sums.shape[1],))


def _parts(value: UOp, step: int, ranges: int) -> tuple[UOp, UOp]:
    """Which int each float32 is added to, and what is added."""
    bits = value.bitcast(dtypes.int32)
    exponent: Any = (bits >> _FRACTION) & _INFINITE
    fraction: Any = bits & ((1 << _FRACTION) - 1)
    place = exponent.maximum(1) - 1
    size = exponent.ne(0).where(fraction | (1 << _FRACTION), fraction).cast(dtypes.int64)
    shifted = size << (place % step).cast(dtypes.int64)
    is_negative = bits.lt(0)
    part = is_negative.where(-shifted, shifted)
    is_special = exponent.eq(_INFINITE)
    kind = fraction.ne(0).where(2, is_negative.where(1, 0).cast(dtypes.int32))
    number = is_special.where(kind + ranges, place // step)
    return number, is_special.where(UOp.const(dtypes.int64, 1), part)
