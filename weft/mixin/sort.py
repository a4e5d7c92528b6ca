"""Sorting: sort, argsort, topk.

In: tensors. Out: their elements in order along an axis, and where they were.
Sits above the engine, one of the Tensor families.
Invariant: the order is total and stable: equal elements keep their order, nan comes last.
"""

from __future__ import annotations

from typing import Self

from weft.dtype import PyConst, dtypes
from weft.errors import ArgumentError
from weft.mixin.conv import ConvMixin

# Up to here each element counts how many come before it: one kernel, quadratic work. Beyond, a
# network of compare-and-swap steps.
_COUNTED = 1024


class SortMixin(ConvMixin):
    """Methods over keys: ints that have the order of the elements."""

    __slots__ = ()

    def _sort_keys(self, descending: bool) -> Self:
        """Ints in the order of the elements; -0.0 is 0.0, and nan the greatest."""
        keys = self
        if self.dtype in dtypes.weaks:
            keys = self.cast(dtypes.default_float if dtypes.is_float(self.dtype) else dtypes.int64)
        if keys.dtype is dtypes.bool:
            keys = keys.cast(dtypes.int32)
        if dtypes.is_float(keys.dtype):
            value = keys if keys.dtype is dtypes.float64 else keys.cast(dtypes.float32)
            integer = dtypes.int64 if keys.dtype is dtypes.float64 else dtypes.int32
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
        count = keys.shape[-1]
        if count <= 1:
            return self.zeros_like(dtype=dtypes.default_int)
        if count <= _COUNTED or keys.dtype.itemsize > 4:
            order = keys.contiguous()._counted_order()
        else:
            order = keys._network_order()
        return order.transpose(axis, -1)

    def _counted_order(self) -> Self:
        """Places in order along the last axis: element i comes after all that are less."""
        count = self.shape[-1]
        places = self._iota(count)
        mine, other = self.unsqueeze(-1), self.unsqueeze(-2)
        earlier = places.unsqueeze(0).lt(places.unsqueeze(1))
        before = other.lt(mine) | (other.eq(mine) & earlier)
        rank = before.sum(-1).contiguous()
        hits = rank.unsqueeze(-2).eq(places.unsqueeze(1))
        return hits.where(places, 0).sum(-1).cast(dtypes.default_int)

    def _network_order(self) -> Self:
        """Places in order along the last axis, by a bitonic network over (key, place) as int64."""
        count = self.shape[-1]
        size = 1 << (count - 1).bit_length()
        packed = (self.cast(dtypes.int64) << 32) | self._iota(count).cast(dtypes.int64)
        kept = self.shape[:-1]
        grow = [(0, 0)] * len(kept) + [(0, size - count)]
        table = packed._pad_lowest_or(grow, dtypes.int64.max).contiguous()
        width = 2
        while width <= size:
            # the second half is turned round, so that every comparison goes the same way
            table = table.reshape((*kept, size // width, 2, width // 2))
            table = table._compared(len(kept) + 1, turned=True).reshape((*kept, size)).contiguous()
            part = width // 2
            while part > 1:
                table = table.reshape((*kept, size // part, 2, part // 2))
                table = table._compared(len(kept) + 1, turned=False)
                table = table.reshape((*kept, size)).contiguous()
                part //= 2
            width *= 2
        order = (table & 0xFFFFFFFF).cast(dtypes.default_int)
        return order._slice(len(kept), 0, count)

    def _pad_lowest_or(self, pairs: list[tuple[int, int]], value: PyConst) -> Self:
        """Padding with an exact int (a float would not hold it)."""
        padded = self._pad_zeros(pairs)
        inside = self._constant(1).cast(dtypes.bool).expand(self.shape)._pad_zeros(pairs)
        return inside.where(padded, padded._constant(value))

    def _compared(self, axis: int, turned: bool) -> Self:
        """The lesser of two halves first, the greater second."""
        low, high = self._slice(axis, 0, 1), self._slice(axis, 1, 2)
        high = high.flip(axis + 1) if turned else high
        greater = low.maximum(high)
        return low.minimum(high).cat(greater.flip(axis + 1) if turned else greater, dim=axis)

    def sort(self, dim: int = -1, descending: bool = False) -> tuple[Self, Self]:
        """The elements in order along an axis, and their places.

        >>> [x.tolist() for x in Tensor([3, 1, 2]).sort()]
        [[1, 2, 3], [1, 2, 0]]
        """
        if self.ndim == 0:
            return self, self.argsort(dim)
        axis = self._axis(dim)
        order = self.argsort(axis, descending).contiguous()
        return self.gather(axis, order), order

    def topk(
        self, k: int, dim: int = -1, largest: bool = True, sorted_: bool = True
    ) -> tuple[Self, Self]:
        """The k greatest (or least) elements along an axis, and their places.

        >>> [x.tolist() for x in Tensor([3, 1, 2]).topk(2)]
        [[3, 2], [0, 2]]
        """
        axis = self._axis(dim)
        if self.ndim == 0 or not 0 <= k <= self.shape[axis]:
            raise ArgumentError(f"topk of {k} elements along axis {dim} of shape {self.shape}")
        order = self.argsort(axis, descending=largest)._slice(axis, 0, k).contiguous()
        return self.gather(axis, order), order
