"""The bits of tensors as other dtypes, of the same size or another.

In: tensors and a dtype. Out: tensors of that dtype over the same bits.
Sits above the engine, one of the Tensor families, under those that read values out.
Invariant: words are cut and joined lowest part first, as memory holds them.
"""

from __future__ import annotations

from typing import Any, Self

from weft.dtype import DType, dtypes, strong_dtype, to_dtype
from weft.engine import host
from weft.errors import DTypeError, ShapeError
from weft.mixin.digest import DigestMixin

_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}


class BitsMixin(DigestMixin):
    """Methods over the protocol `_cell`, which Tensor provides."""

    __slots__ = ()
    _cell: Any

    def bitcast(self, dtype: DType | str) -> Self:
        """The same bits as another dtype; if it has another size, the last axis changes.

        >>> Tensor([1.0]).bitcast(dtypes.int32).tolist()
        [1065353216]
        """
        target = to_dtype(dtype)
        if target is self.dtype:
            return self
        if self.dtype in dtypes.weaks:
            return self.cast(strong_dtype(self.dtype)).bitcast(target)
        if self.ndim == 0 and target.itemsize != self.dtype.itemsize:
            raise DTypeError(
                f"bitcast of a scalar from {self.dtype} to {target} needs types of one size"
            )
        if host.is_storage(self.device):
            stored = host.stored_bits(self.uop, target)
            if stored is not None:
                return self._from_uop(stored)
        if target.itemsize == self.dtype.itemsize:
            return self._from_uop(self.uop.bitcast(target), self._cell.pure)
        return self._bitcast_resized(target)

    def _bitcast_resized(self, target: DType) -> Self:
        """Bits of another size: words are cut into parts, or joined of them, lowest first."""
        before, after = self.dtype.itemsize, target.itemsize
        words = self.bitcast(_UNSIGNED[before])
        last = self.shape[-1]
        if after < before:
            shifts = self._iota(before // after).cast(words.dtype) * (8 * after)
            parts = (words.unsqueeze(-1) >> shifts).cast(_UNSIGNED[after])
            return parts.reshape((*self.shape[:-1], last * (before // after))).bitcast(target)
        count = after // before
        if isinstance(last, int) and last % count:
            raise ShapeError(
                f"bitcast from {self.dtype} to {target} needs a last axis whose bytes divide by "
                f"{after}, found {last} elements of {before} bytes"
            )
        parts = words.reshape((*self.shape[:-1], last // count, count)).cast(_UNSIGNED[after])
        shifts = self._iota(count).cast(_UNSIGNED[after]) * (8 * before)
        return (parts << shifts).sum(-1, dtype=_UNSIGNED[after]).bitcast(target)
