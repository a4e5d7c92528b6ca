"""Padding, windows and diagonals, shared by `UOp` and `Tensor`.

In: a class with the protocol of `MovementMixin`. Out: pad in four modes, unfold, diagonals.
Sits below both users; imports no UOp.
Invariant: windows and diagonals are reshapes and shrinks of repeated axes; no data is gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from weft.dtype import dtypes
from weft.errors import ArgumentError, ShapeError, UnsupportedError
from weft.helpers import argfix, ceildiv
from weft.mixin.check import described, whole_number, whole_numbers
from weft.mixin.movement import MovementMixin, is_int

Pair = tuple[Any, Any]


class PaddingMixin(MovementMixin):
    """Methods over `reshape`, `expand`, `shrink`, `_pad_zeros`, `where`."""

    __slots__ = ()

    # ------------------------------------------------------------ padding
    def pad(self, padding: Any, mode: str = "constant", value: float = 0.0) -> Self:
        """Elements around; `padding` as PyTorch's (last axis first: left, right, top, bottom), or
        one (before, after) or None per axis. Negative padding takes elements away.

        `mode` is "constant", "reflect", "replicate" or "circular".

        >>> Tensor([[1, 2]]).pad((1, 1)).tolist()
        [[0, 1, 2, 0]]
        >>> Tensor([[1, 2]]).pad(((1, 0), None), value=7).tolist()
        [[7, 7], [1, 2]]
        >>> Tensor([[1, 2, 3]]).pad((2, 1), mode="reflect").tolist()
        [[3, 2, 1, 2, 3, 2]]
        """
        pairs = self._padding_pairs(padding)
        if mode == "constant":
            return self._pad_constant(pairs, value)
        if mode not in ("reflect", "replicate", "circular"):
            raise UnsupportedError(
                f'pad has mode "constant", "reflect", "replicate" or "circular", found {mode!r}'
            )
        result = self
        for axis, (before, after) in enumerate(pairs):
            result = result._pad_copied(axis, before, after, mode)
        return result

    def _padding_pairs(self, padding: Any) -> list[Pair]:
        what = "the padding"
        if not isinstance(padding, (tuple, list)):
            raise ArgumentError(
                f"pad takes a sequence such as (left, right), found {described(padding)}"
            )
        parts = list(padding)
        if parts and all(part is None or isinstance(part, (tuple, list)) for part in parts):
            pairs = [(0, 0) if part is None else whole_numbers(what, part) for part in parts]
            if len(pairs) != self.ndim or any(len(pair) != 2 for pair in pairs):
                raise ShapeError(f"pad of {self.shape} by {padding}: give a pair for each axis")
            return [(before, after) for before, after in pairs]
        parts = [whole_number(what, part) for part in parts]
        if len(parts) % 2 or len(parts) > 2 * self.ndim:
            raise ShapeError(
                f"pad of {self.shape} by {padding}: give (before, after) for the last axes, at "
                f"most {2 * self.ndim} numbers"
            )
        last_first = [(parts[i], parts[i + 1]) for i in range(0, len(parts), 2)]
        return [(0, 0)] * (self.ndim - len(last_first)) + last_first[::-1]

    def _pad_constant(self, pairs: Sequence[Pair], value: float) -> Self:
        box = tuple(
            (-_least_zero(before), size + _least_zero(after))
            for (before, after), size in zip(pairs, self.shape, strict=True)
        )
        kept = self.shrink(box)
        around = [(_at_least_zero(before), _at_least_zero(after)) for before, after in pairs]
        padded = kept._pad_zeros(around)
        if value == 0 or padded is kept:
            return padded
        inside = self._constant(1).cast(dtypes.bool).expand(kept.shape)._pad_zeros(around)
        # as in NumPy and PyTorch, what is put around takes the dtype of what is inside
        return inside.where(padded, padded._constant(value))

    def _pad_copied(self, axis: int, before: int, after: int, mode: str) -> Self:
        """One axis padded with copies of its own elements.

        "circular" repeats what is left after negative padding took elements away; the two others
        copy from the axis as it was, and then cut the result.
        """
        if mode == "circular" and min(before, after) < 0:
            cut = self._slice(axis, max(0, -before), self.shape[axis] - max(0, -after))
            return cut._pad_copied(axis, max(0, before), max(0, after), mode)
        size = self.shape[axis]
        edge = {"reflect": size - 1, "circular": size, "replicate": None}[mode]
        wanted = max(before, after)
        if (edge is not None and wanted > edge) or (wanted > 0 and size == 0):
            raise ShapeError(
                f"pad of {self.shape} by ({before}, {after}) on axis {axis}: mode {mode!r} has at "
                f"most {edge or 0} elements to copy"
            )
        parts = [self]
        if before > 0:
            parts.insert(0, self._copied_edge(axis, before, mode, front=True))
        if after > 0:
            parts.append(self._copied_edge(axis, after, mode, front=False))
        grown = parts[0].cat(*parts[1:], dim=axis) if len(parts) > 1 else self
        return grown._slice(axis, max(0, -before), grown.shape[axis] - max(0, -after))

    def _copied_edge(self, axis: int, count: int, mode: str, front: bool) -> Self:
        size = self.shape[axis]
        if mode == "replicate":
            one = self._slice(axis, 0, 1) if front else self._slice(axis, size - 1, size)
            return one.expand((*self.shape[:axis], count, *self.shape[axis + 1 :]))
        if mode == "circular":
            return self._slice(axis, size - count, size) if front else self._slice(axis, 0, count)
        start = 1 if front else size - 1 - count
        return self._slice(axis, start, start + count).flip(axis)

    def _slice(self, axis: int, start: Any, stop: Any) -> Self:
        """Elements start to stop of one axis."""
        box: list[Any] = [None] * self.ndim
        box[axis] = (start, stop)
        return self.shrink(box)

    def pad_to(self, shape: Any, *args: Any, value: float = 0) -> Self:
        """Padded at the end of each axis up to a shape; None keeps a size.

        >>> Tensor([1, 2]).pad_to(4).tolist()
        [1, 2, 0, 0]
        """
        asked = argfix(shape, *args)
        if len(asked) != self.ndim:
            raise ShapeError(f"pad_to of {self.shape} to {asked}: give a size for each axis")
        pairs = [
            (0, 0 if want is None else whole_number("a size", want) - have)
            for want, have in zip(asked, self.shape, strict=True)
        ]
        if any(is_int(after) and after < 0 for _, after in pairs):
            raise ShapeError(f"pad_to of {self.shape} to {asked}: an axis would get smaller")
        return self._pad_constant(pairs, value)

    def shrink_to(self, shape: Any, *args: Any) -> Self:
        """The beginning of each axis, down to a shape; None keeps a size.

        >>> Tensor([1, 2, 3]).shrink_to(2).tolist()
        [1, 2]
        """
        asked = argfix(shape, *args)
        return self.shrink([None if size is None else (0, size) for size in asked])

    # ------------------------------------------------------------ windows
    def unfold(self, dim: int, size: int, step: int) -> Self:
        """All windows of `size` elements along an axis, `step` apart; they become the last axis.

        >>> Tensor.arange(5).unfold(0, 3, 1).tolist()
        [[0, 1, 2], [1, 2, 3], [2, 3, 4]]
        """
        axis = self._axis(dim)
        size, step = whole_number("size", size), whole_number("step", step)
        if self.ndim == 0:
            raise ShapeError("unfold of a tensor of shape (): it has no axis")
        if size < 0 or step < 1 or size > self.shape[axis]:
            raise ArgumentError(
                f"unfold of axis {dim} of {self.shape} into windows of {size}, {step} apart: the "
                f"window must fit and the step be at least 1"
            )
        last = self.permute([i for i in range(self.ndim) if i != axis] + [axis])
        windows = last._windows((size,), (step,), (1,))
        order = [i for i in range(windows.ndim) if i != self.ndim - 1]
        order.insert(axis, self.ndim - 1)
        return windows.permute(order)

    def _windows(self, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]) -> Self:
        """Windows over the last axes: (..., *positions, *size).

        An axis of n elements, repeated and cut into rows of n + d, has x[j + k*d] at column j of
        row k: that is element k of the window that starts at j. No data is gathered for it.
        """
        rank = len(size)
        kept = self.ndim - rank
        positions = [kept + 2 * i for i in range(rank)]
        inside = [kept + 2 * i + 1 for i in range(rank)]
        pairs = self._window_pairs(size, stride, dilation)
        return pairs.permute([*range(kept), *positions, *inside])

    def _window_pairs(
        self, size: Sequence[int], stride: Sequence[int], dilation: Sequence[int]
    ) -> Self:
        """The same with every axis where it was: (..., position, inside, position, inside)."""
        kept = self.ndim - len(size)
        result = self
        for i, (width, step, gap) in enumerate(zip(size, stride, dilation, strict=True)):
            result = result._windows_of_axis(kept + 2 * i, width, step, gap)
        return result

    def _windows_of_axis(self, axis: int, width: int, step: int, gap: int) -> Self:
        """One axis of n elements as (positions, width)."""
        length = self.shape[axis]
        reach = gap * (width - 1) + 1
        if is_int(length) and reach > length:
            raise ShapeError(
                f"a window of {width} elements {gap} apart does not fit axis {axis} of {self.shape}"
            )
        count = (length - reach) // step + 1
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        if width == 1:
            cut = self._slice(axis, 0, (count - 1) * step + 1)
            strided = cut._stride([step if i == axis else 1 for i in range(self.ndim)])
            return strided.reshape((*before, count, 1, *after))
        if is_int(count) and count == 1:
            return self._slice(axis, 0, reach)._windows_apart(axis, 1, width, reach, gap)
        if reach <= step:
            return self._windows_apart(axis, count, width, step, gap)
        row = length + gap
        times = ceildiv(width * row, length)
        repeated = self.repeat(*[times if i == axis else 1 for i in range(self.ndim)])
        rows = repeated._slice(axis, 0, width * row).reshape((*before, width, row, *after))
        rows = rows._slice(axis + 1, 0, (count - 1) * step + 1)
        rows = rows._stride([step if i == axis + 1 else 1 for i in range(rows.ndim)])
        order = list(range(rows.ndim))
        order[axis], order[axis + 1] = axis + 1, axis
        return rows.permute(order)

    def _windows_apart(self, axis: int, count: int, width: int, step: int, gap: int) -> Self:
        """Windows that do not overlap: a plain reshape of rows as long as a step."""
        before, after = self.shape[:axis], self.shape[axis + 1 :]
        length = self.shape[axis]
        # the last row may be short: what a window does not reach can be anything
        need = count * step
        source = self._slice(axis, 0, need) if need <= length else self
        if need > length:
            source = source._pad_zeros(
                [(0, need - length) if i == axis else (0, 0) for i in range(self.ndim)]
            )
        rows = source.reshape((*before, count, step, *after))
        rows = rows._slice(axis + 1, 0, gap * (width - 1) + 1)
        return rows._stride([gap if i == axis + 1 else 1 for i in range(rows.ndim)])

    # ------------------------------------------------------------ diagonals
    def diag(self) -> Self:
        """A square matrix with this vector on its diagonal; of a matrix, its diagonal.

        >>> Tensor([1, 2]).diag().tolist()
        [[1, 0], [0, 2]]
        >>> Tensor([[1, 2], [3, 4]]).diag().tolist()
        [1, 4]
        """
        if self.ndim == 2:
            return self.diagonal()
        if self.ndim != 1:
            raise ShapeError(
                f"diag takes a vector or a matrix, found shape {self.shape}; see diagonal()"
            )
        n = self.shape[0]
        column = self.unsqueeze(1)._pad_zeros(((0, 0), (0, n)))
        return column.reshape((n * (n + 1),)).shrink(((0, n * n),)).reshape((n, n))

    def diagonal(self, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Self:
        """The diagonal of two axes, as a view; it becomes the last axis.

        >>> Tensor([[1, 2], [3, 4]]).diagonal().tolist()
        [1, 4]
        """
        first, second = self._axis(dim1), self._axis(dim2)
        offset = whole_number("offset", offset)
        if self.ndim < 2 or first == second:
            raise ArgumentError(
                f"diagonal of axes {dim1} and {dim2} of shape {self.shape}: it needs two axes"
            )
        order = [i for i in range(self.ndim) if i not in (first, second)]
        matrix = self.permute([*order, first, second])
        rows, columns = matrix.shape[-2:]
        top, left = max(0, -offset), max(0, offset)
        n = max(0, min(rows - top, columns - left))
        kept = matrix.shape[:-2]
        if n == 0:
            # there is nothing on it, as in NumPy and PyTorch
            return (
                matrix._slice(self.ndim - 1, 0, 0)._slice(self.ndim - 2, 0, 0).reshape((*kept, 0))
            )
        square = matrix._slice(self.ndim - 2, top, top + n)._slice(self.ndim - 1, left, left + n)
        # every (n+1)-th element of the flat square
        flat = square.reshape((*kept, n * n))
        return flat._stride([1] * len(kept) + [n + 1])


def _least_zero(n: Any) -> Any:
    return n if is_int(n) and n < 0 else 0


def _at_least_zero(n: Any) -> Any:
    return n if not is_int(n) or n > 0 else 0
