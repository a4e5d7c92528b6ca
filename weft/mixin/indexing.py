"""Indexing: slices, new axes, lists and tensors of indices, masks; gather and scatter.

In: the expression between the brackets. Out: a view for basic indices, else a GATHER.
Sits above the engine, one of the Tensor families.
Invariant: a basic index (ints, slices, None, ...) is a view and can be written through.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from weft.dtype import dtypes
from weft.errors import ArgumentError, DTypeError, IndexingError, ShapeError
from weft.mixin.creation import CreationMixin
from weft.mixin.movement import broadcast_shape, is_int
from weft.uop.node import UOp
from weft.uop.opset import Ops


class IndexingMixin(CreationMixin):
    """`x[...]`, `x[...] = y` and their named relatives."""

    __slots__ = ()

    def assign(self, x: Any) -> Self:
        """New values in this storage. Provided by the class."""
        raise NotImplementedError

    def __getitem__(self, indices: Any) -> Self:
        view, tensors = self._basic(indices)
        return view._take(tensors) if tensors else view

    def __setitem__(self, indices: Any, value: Any) -> None:
        view, tensors = self._basic(indices)
        if not tensors:
            view.assign(value)
            return
        new = value if isinstance(value, IndexingMixin) else self._operand(value)
        view.assign(view._put(tensors, new))

    def _basic(self, indices: Any) -> tuple[Self, dict[int, Any]]:
        """The basic part of an index as a view, and what is left: tensors of indices by axis."""
        items = self._index_items(indices)
        boxes: list[Any] = []
        steps: list[int] = []
        shape: list[Any] = []
        tensors: dict[int, Any] = {}
        flipped: list[bool] = []
        axis = 0
        for item in items:
            if item is None:
                shape.append(1)
                continue
            size = self.shape[axis]
            start, stop, step = 0, size, 1
            if isinstance(item, slice):
                start, stop, step = self._slice_bounds(item, size, axis)
                count = _count(start, stop, step)
            elif isinstance(item, CreationMixin):
                tensors[len(shape)] = item
                count = size
            else:
                start = self._checked_position(item, size, axis)
                stop, count = start + 1, None
            boxes.append((start, stop) if step > 0 else (stop + 1, start + 1))
            flipped.append(step < 0)
            steps.append(abs(step))
            if count is not None:
                shape.append(count)
            axis += 1
        view = self.shrink(boxes)
        view = view.flip([i for i, reverse in enumerate(flipped) if reverse])
        return view._stride(steps).reshape(shape), tensors

    def _index_items(self, indices: Any) -> list[Any]:
        """One item per axis and new axis: the ellipsis filled in, lists and masks made tensors."""
        given = list(indices) if isinstance(indices, tuple) else [indices]
        items: list[Any] = []
        for item in given:
            if isinstance(item, (list, tuple)) or _is_array(item):
                item = type(self)(item, device=self.device)
                if item.numel() == 0 and not dtypes.is_int(item.dtype):
                    item = item.cast(dtypes.default_int)
            if isinstance(item, CreationMixin) and item.dtype is dtypes.bool:
                items.extend(self._mask_indices(item, sum(_axes_of(i) for i in items)))
                continue
            if isinstance(item, CreationMixin) and not dtypes.is_int(item.dtype):
                raise IndexingError(f"a tensor of indices has ints or bools, found {item.dtype}")
            items.append(item)
        used = sum(_axes_of(item) for item in items)
        if sum(item is Ellipsis for item in items) > 1:
            raise IndexingError(f"an index has at most one ..., found {indices!r}")
        if used > self.ndim:
            raise IndexingError(
                f"too many indices for shape {self.shape}: {used} axes are indexed, it has "
                f"{self.ndim}"
            )
        if not any(item is Ellipsis for item in items):
            items.append(Ellipsis)
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        return [*items[:at], *[slice(None)] * (self.ndim - used), *items[at + 1 :]]

    def _mask_indices(self, mask: Any, axis: int) -> list[Any]:
        """A mask as one tensor of indices per axis it covers; its True places must be counted."""
        covered = self.shape[axis : axis + mask.ndim]
        if mask.shape != covered:
            raise IndexingError(
                f"a mask of shape {mask.shape} does not fit the axes {covered} of {self.shape}"
            )
        places = mask.nonzero()
        return [places._slice(1, i, i + 1).squeeze(1) for i in range(mask.ndim)]

    def _slice_bounds(self, item: slice, size: Any, axis: int) -> tuple[Any, Any, int]:
        step = 1 if item.step is None else item.step
        if not is_int(step) or step == 0:
            raise IndexingError(f"a slice has a step that is an int and not 0, found {step!r}")
        for bound in (item.start, item.stop):
            if bound is not None and not isinstance(bound, (int, UOp)):
                raise IndexingError(f"a slice has ints, found {bound!r} for axis {axis}")
        if is_int(size) and all(b is None or is_int(b) for b in (item.start, item.stop)):
            start, stop, step = item.indices(size)
            # an empty slice may have its stop before its start
            return (start, max(start, stop), step) if step > 0 else (start, min(start, stop), step)
        if step < 0:
            raise IndexingError("a slice with symbolic bounds has a positive step")
        start = 0 if item.start is None else item.start
        stop = size if item.stop is None else item.stop
        start = start + size if is_int(start) and start < 0 else start
        stop = stop + size if is_int(stop) and stop < 0 else stop
        return start, stop, step

    def _checked_position(self, item: Any, size: Any, axis: int) -> Any:
        if isinstance(item, UOp):
            return item
        if isinstance(item, bool) or not hasattr(item, "__index__"):
            raise IndexingError(
                f"{item!r} is no index: use ints, slices, None, ..., tensors of ints or masks"
            )
        position = item.__index__()
        if is_int(size) and not -size <= position < size:
            raise IndexingError(
                f"index {position} is outside axis {axis} of shape {self.shape}: it must be from "
                f"{-size} to {size - 1}"
            )
        return position + size if position < 0 else position

    # ------------------------------------------------------------ tensors of indices
    def _take(self, tensors: dict[int, Any]) -> Self:
        """The elements at tensors of indices; they replace their axes, in NumPy's order."""
        axes = sorted(tensors)
        common = broadcast_shape(*[tensors[axis].shape for axis in axes])
        nodes = [tensors[axis].expand(common).uop for axis in axes]
        node = UOp(Ops.GATHER, self.dtype, (self.uop, *nodes), tuple(axes))
        taken = self._from_uop(node)
        together = axes == list(range(axes[0], axes[-1] + 1))
        first = axes[0] if together else 0
        rank = len(common)
        order = [*range(rank, rank + first), *range(rank), *range(rank + first, taken.ndim)]
        return taken.permute(order)

    def _put(self, tensors: dict[int, Any], value: Any) -> Self:
        """This with `value` at tensors of indices; of equal indices the last one wins."""
        axes = sorted(tensors)
        if axes != list(range(axes[0], axes[-1] + 1)):
            raise IndexingError(
                f"assigning through tensors of indices on the axes {axes}: they must stand together"
            )
        common = broadcast_shape(*[tensors[axis].shape for axis in axes])
        sizes = [self.shape[axis] for axis in axes]
        flat_index = tensors[axes[0]]._wrapped(sizes[0])
        inside = flat_index.ge(0) & flat_index.lt(sizes[0])
        for axis, size in zip(axes[1:], sizes[1:], strict=True):
            position = tensors[axis]._wrapped(size)
            inside = inside & position.ge(0) & position.lt(size)
            flat_index = flat_index * size + position
        flat_index = inside.where(flat_index, -1).expand(common).flatten()
        before, after = self.shape[: axes[0]], self.shape[axes[-1] + 1 :]
        source = value.cast(self.dtype).expand((*before, *common, *after))
        count = flat_index.shape[0]
        source = source.reshape((*before, count, *after))
        places = 1
        for size in sizes:
            places = places * size
        # for each place the last index that names it, counted from 1; 0 where there is none
        hits = self._iota(places).unsqueeze(1).eq(flat_index)
        latest = hits.where(self._iota(count) + 1, 0).max(axis=1)
        moved = source.permute(
            [len(before), *range(len(before)), *range(len(before) + 1, source.ndim)]
        )
        chosen = moved._take({0: (latest - 1).maximum(0)})
        chosen = chosen.permute(
            [*range(1, len(before) + 1), 0, *range(len(before) + 1, chosen.ndim)]
        )
        mask = latest.gt(0).reshape((places, *[1] * len(after)))
        old = self.reshape((*before, places, *after))
        return mask.where(chosen, old).reshape(self.shape)

    def _wrapped(self, size: Any) -> Self:
        """Indices with negative ones counted from the end."""
        return self.lt(0).where(self + size, self)

    def gather(self, dim: int, index: Self) -> Self:
        """The elements that `index` names along an axis.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0], [1]])).tolist()
        [[1], [4]]
        """
        axis = self._checked_gather("gather", dim, index)
        box = [None if i == axis else (0, index.shape[i]) for i in range(self.ndim)]
        source = self.shrink(box)
        tensors: dict[int, Any] = {}
        for i in range(self.ndim):
            shape = [1] * self.ndim
            shape[i] = index.shape[i]
            tensors[i] = index if i == axis else self._iota(index.shape[i]).reshape(shape)
        return source._take(tensors)

    def _checked_gather(self, what: str, dim: int, index: Any) -> int:
        axis = self._axis(dim)
        if not isinstance(index, CreationMixin) or not dtypes.is_int(index.dtype):
            found = index.dtype if isinstance(index, CreationMixin) else type(index).__name__
            raise DTypeError(f"{what} takes a Tensor of ints as index, found {found}")
        if index.ndim != self.ndim or any(
            i != axis and index.shape[i] > self.shape[i] for i in range(self.ndim)
        ):
            raise ShapeError(
                f"{what} along axis {dim} of shape {self.shape} with an index of shape "
                f"{index.shape}: it must have as many axes, and but for that axis be no larger"
            )
        return axis

    def scatter(self, dim: int, index: Self, src: Any, reduce: str | None = None) -> Self:
        """This with the elements of `src` at the places that `index` names along an axis.

        `reduce` is None (the last one wins), "add" or "multiply".

        >>> Tensor.zeros(1, 3).scatter(1, Tensor([[0, 2]]), Tensor([[5.0, 7.0]])).tolist()
        [[5.0, 0.0, 7.0]]
        """
        if reduce not in (None, "add", "multiply"):
            raise ArgumentError(f'scatter has reduce None, "add" or "multiply", found {reduce!r}')
        if reduce is not None:
            name = "sum" if reduce == "add" else "prod"
            return self.scatter_reduce(dim, index, src, name)
        hits, values = self._scatter_hits(dim, index, src)
        positions = self._iota(hits.shape[-1]) + 1
        latest = hits.where(positions, 0).max(axis=-1, keepdim=True)
        chosen = (positions.eq(latest) & hits).where(values, values._constant(0)).sum(axis=-1)
        return latest.squeeze(-1).gt(0).where(chosen.cast(self.dtype), self)

    def scatter_reduce(
        self, dim: int, index: Self, src: Any, reduce: str, include_self: bool = True
    ) -> Self:
        """This combined with the elements of `src` at the places that `index` names along an axis.

        `reduce` is "sum", "prod", "mean", "amax" or "amin".

        >>> x = Tensor([[1.0, 1.0]])
        >>> x.scatter_reduce(1, Tensor([[0, 0]]), Tensor([[2.0, 3.0]]), "sum").tolist()
        [[6.0, 1.0]]
        """
        hits, values = self._scatter_hits(dim, index, src)
        hit = hits.any(axis=-1)
        own = self
        if not include_self:
            neutral = {
                "sum": 0,
                "prod": 1,
                "mean": 0,
                "amax": self.dtype.min,
                "amin": self.dtype.max,
            }
            own = hit.where(self._constant(neutral.get(reduce, 0)), self)
        if reduce == "sum":
            return own + hits.where(values, values._constant(0)).sum(axis=-1).cast(self.dtype)
        if reduce == "prod":
            return own * hits.where(values, values._constant(1)).prod(axis=-1).cast(self.dtype)
        if reduce == "amax":
            return own.maximum(hits.where(values, values._constant(self.dtype.min)).max(axis=-1))
        if reduce == "amin":
            return own.minimum(hits.where(values, values._constant(self.dtype.max)).min(axis=-1))
        if reduce == "mean":
            count = hits.sum(axis=-1)
            total = own + hits.where(values, values._constant(0)).sum(axis=-1).cast(self.dtype)
            divisor = count + 1 if include_self else count.maximum(1)
            if dtypes.is_float(self.dtype):
                return total / divisor.cast(self.dtype)
            return total // divisor.cast(self.dtype)
        raise ArgumentError(
            f'scatter_reduce has reduce "sum", "prod", "mean", "amax" or "amin", found {reduce!r}'
        )

    def _scatter_hits(self, dim: int, index: Self, src: Any) -> tuple[Self, Self]:
        """For each place a last axis over the index: whether it names the place, and its value."""
        axis = self._checked_gather("scatter", dim, index)
        values = self._operand(src).cast(self.dtype)
        if not isinstance(src, CreationMixin):
            values = values.expand(index.shape)
        if values.ndim != index.ndim or any(
            a > b for a, b in zip(index.shape, values.shape, strict=True)
        ):
            raise ShapeError(f"scatter of shape {values.shape} with an index of {index.shape}")
        values = values.shrink([(0, size) for size in index.shape])
        order = [*[i for i in range(self.ndim) if i != axis], axis]
        back = [*range(axis), self.ndim - 1, *range(axis, self.ndim - 1), self.ndim]
        wrapped = index._wrapped(self.shape[axis]).permute(order).unsqueeze(-2)
        hits = self._iota(self.shape[axis]).unsqueeze(-1).eq(wrapped)
        values = values.permute(order).unsqueeze(-2).expand(hits.shape)
        # the index may be smaller than this on the other axes: nothing is named there
        grow = [(0, self.shape[i] - index.shape[i]) for i in order[:-1]] + [(0, 0), (0, 0)]
        return hits._pad_zeros(grow).permute(back), values._pad_zeros(grow).permute(back)

    def masked_fill(self, mask: Any, value: Any) -> Self:
        """`value` where the mask is true.

        >>> Tensor([1, 2, 3]).masked_fill(Tensor([True, False, True]), 0).tolist()
        [0, 2, 0]
        """
        return self._operand(mask).where(value, self)

    def nonzero(self, size: int | None = None, fill_value: int = 0) -> Self:
        """The places of what is not zero, one row each. Without `size` they are counted first.

        >>> Tensor([0, 5, 6]).nonzero().tolist()
        [[1], [2]]
        """
        flags = self.ne(0).flatten()
        count = int(flags.sum().item()) if size is None else size  # type: ignore[attr-defined]
        flat = flags._nonzero_positions(count)
        columns: list[Self] = []
        rest = flat.maximum(0)
        for extent in reversed(self.shape):
            columns.insert(0, rest % extent)
            rest = rest // extent
        if not columns:
            return flat.unsqueeze(1).shrink(((0, count), (0, 0)))
        places = columns[0].stack(*columns[1:], dim=1)
        return flat.ge(0).unsqueeze(1).where(places, fill_value)

    def _nonzero_positions(self, count: int) -> Self:
        """The places of the first `count` True of a vector; -1 when there are no more."""
        order = self.cast(dtypes.int32).cumsum(0)  # type: ignore[attr-defined]
        wanted = self._iota(count).unsqueeze(1) + 1
        hits = order.unsqueeze(0).eq(wanted) & self.unsqueeze(0)
        found: Self = hits.where(self._iota(self.shape[0]) + 1, 0).max(axis=1) - 1
        return found

    def masked_select(self, mask: Any, size: int | None = None, fill_value: Any = 0) -> Self:
        """The elements where the mask is true, as a vector.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        """
        flags = self._operand(mask).expand(self.shape).cast(dtypes.bool).flatten()
        count = int(flags.sum().item()) if size is None else size  # type: ignore[attr-defined]
        places = flags._nonzero_positions(count)
        taken = self.flatten()._take({0: places.maximum(0)})
        return places.ge(0).where(taken, fill_value)


def _is_array(item: Any) -> bool:
    return type(item).__module__ == "numpy" and getattr(item, "ndim", 0) > 0


def _axes_of(item: Any) -> int:
    """How many axes an item of an index uses."""
    return 0 if item is None or item is Ellipsis else 1


def _count(start: Any, stop: Any, step: int) -> Any:
    """How many elements a slice has."""
    if is_int(start) and is_int(stop):
        return len(range(start, stop, step))
    return stop - start if step == 1 else (stop - start + step - 1) // step


IndexLike = int | slice | None | Sequence[Any]
