"""Indexing: slices, new axes, lists and tensors of indices, masks; gather and scatter.

In: the expression between the brackets. Out: a view for basic indices, else a GATHER.
Sits above the engine, one of the Tensor families.
Invariant: a basic index (ints, slices, None, ...) is a view and can be written through.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Self

from weft.device import Device
from weft.dtype import dtypes, strong_dtype
from weft.engine import host
from weft.errors import ArgumentError, DeviceError, DTypeError, IndexingError, ShapeError
from weft.mixin.check import whole_number
from weft.mixin.creation import CreationMixin
from weft.mixin.dtype import sum_dtype
from weft.mixin.movement import broadcast_shape, is_int
from weft.slopes import slope_rule
from weft.uop.args import FunctionArg
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops
from weft.uop.scatter import new_state, new_storage, put, spread_layout

# how scatter_reduce combines; the mean is a sum divided by a count
_REDUCTIONS = {
    "sum": Ops.ADD,
    "prod": Ops.MUL,
    "mean": Ops.ADD,
    "amax": Ops.MAX,
    "amin": Ops.MAX,
}


class IndexingMixin(CreationMixin):
    """`x[...]`, `x[...] = y` and their named relatives."""

    __slots__ = ()

    def assign(self, x: Any) -> Self:
        """New values in this storage. Provided by the class."""
        raise NotImplementedError

    def _assign_at(
        self, axes: Sequence[int], places: Sequence[Any], order: Sequence[int], x: Any
    ) -> None:
        """New values at indices of axes of this view. Provided by the class."""
        raise NotImplementedError

    def _from_data(self, x: Any) -> Any:
        """What is assigned, if it is data, as a Tensor of this dtype: data has none of its own."""
        if self.dtype in dtypes.weaks or isinstance(x, (CreationMixin, UOp)):
            return x
        if isinstance(x, (bool, int, float)):
            return type(self)(x, dtype=self.dtype)
        if isinstance(x, (list, tuple, bytes, bytearray, memoryview)) or host.is_numpy(x):
            home = None if host.is_storage(self.device) else self.device
            return type(self)(x, dtype=self.dtype, device=home)
        return x

    def __getitem__(self, indices: Any) -> Self:
        view, tensors = self._basic(indices)
        return view._take(tensors) if tensors else view

    def __setitem__(self, indices: Any, value: Any) -> None:
        mask_value = self._masked(indices, value)
        if mask_value is not None:
            self.assign(mask_value)
            return
        view, tensors = self._basic(indices)
        if not tensors:
            view.assign(value)
            return
        axes, common, order = view._taken_order(tensors)
        places = [tensors[axis].expand(common) for axis in axes]
        view._assign_at(axes, places, order, value)

    def _masked(self, indices: Any, value: Any) -> Self | None:
        """`x[mask] = v` of a value that does not depend on how many are True: no counting."""
        mask = indices
        if not isinstance(mask, CreationMixin) or mask.dtype is not dtypes.bool:
            return None
        if mask.ndim == 0 or mask.shape != self.shape[: mask.ndim]:
            return None
        new = self._operand(self._from_data(value))
        if new.ndim > self.ndim - mask.ndim:
            return None
        whole: Any = mask.reshape((*mask.shape, *[1] * (self.ndim - mask.ndim)))
        chosen: Self = whole.where(new, self)
        return chosen

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
        given = list(indices) if _is_several(indices) else [indices]
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
        step = 1 if item.step is None else _as_int(item.step)
        if not is_int(step) or step == 0:
            raise IndexingError(f"a slice has a step that is an int and not 0, found {step!r}")
        item = slice(_as_int(item.start), _as_int(item.stop), step)
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
    def _taken_order(self, tensors: dict[int, Any]) -> tuple[list[int], Any, list[int]]:
        """The indexed axes, the indices' common shape, and NumPy's order of the axes of GATHER."""
        axes = sorted(tensors)
        common = broadcast_shape(*[tensors[axis].shape for axis in axes])
        together = axes == list(range(axes[0], axes[-1] + 1))
        first = axes[0] if together else 0
        rank = len(common)
        total = rank + self.ndim - len(axes)
        order = [*range(rank, rank + first), *range(rank), *range(rank + first, total)]
        return axes, common, order

    def _take(self, tensors: dict[int, Any]) -> Self:
        """The elements at tensors of indices; they replace their axes, in NumPy's order."""
        axes, common, order = self._taken_order(tensors)
        nodes = [tensors[axis].expand(common).uop for axis in axes]
        node = UOp(Ops.GATHER, self.dtype, (self.uop, *nodes), tuple(axes))
        return self._from_uop(node).permute(order)

    def _written(
        self,
        axes: Sequence[int],
        places: Sequence[Any],
        values: Any,
        combine: Ops | None = None,
        cleared: Any = None,
        unique: bool = False,
    ) -> Self:
        """A copy of this with values written at indices of its axes, one after another.

        `cleared` is a number that is written to all those places first. `unique`: no place is named
        twice, so the order does not matter.
        """
        start = self.cast(strong_dtype(self.dtype)).uop
        indices = [place.uop for place in places]
        devices = [node.device for node in (start, values.uop, *indices)]
        device = next((device for device in devices if device is not None), None)
        state = new_state(start, Device.canonicalize(device), self.shape)
        if cleared is not None:
            state = put(state, indices, axes, UOp.const(start.dtype, cleared))
        return self._from_uop(put(state, indices, axes, values.uop, combine, unique))

    def _permuted(
        self, axes: Sequence[int], places: Sequence[Any], into: Self | None = None
    ) -> Self:
        """These values at indices that name each place once.

        `into` is storage whose contents are no longer needed; without it new storage is taken.
        """
        nodes = [self.uop, *[place.uop for place in places]]
        if into is not None:
            return self._from_uop(put(into.uop, nodes[1:], axes, nodes[0], unique=True))
        device = next((node.device for node in nodes if node.device is not None), None)
        place = Device.canonicalize(device)
        layout = spread_layout(place, self.uop)
        storage = new_storage(place, self.shape, self.dtype, layout)
        return self._from_uop(put(storage, nodes[1:], axes, nodes[0], unique=True))

    def gather(self, dim: int, index: Self) -> Self:
        """The elements that `index` names along an axis.

        >>> Tensor([[1, 2], [3, 4]]).gather(1, Tensor([[0], [1]])).tolist()
        [[1], [4]]
        """
        axis = self._checked_gather("gather", dim, index)
        if self.ndim == 0:
            return self.reshape((1,)).gather(0, index.reshape((1,))).reshape(())
        box = [None if i == axis else (0, index.shape[i]) for i in range(self.ndim)]
        return self.shrink(box)._take(dict(enumerate(self._every_place(axis, index))))

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
        if self.ndim == 0:
            return self._scatter_scalar(dim, index, src)
        axes, places, values = self._scatter_places("scatter", dim, index, src)
        return self._written(axes, places, values)

    def scatter_reduce(
        self, dim: int, index: Self, src: Any, reduce: str, include_self: bool = True
    ) -> Self:
        """This combined with the elements of `src` at the places that `index` names along an axis.

        `reduce` is "sum", "prod", "mean", "amax" or "amin".

        >>> x = Tensor([[1.0, 1.0]])
        >>> x.scatter_reduce(1, Tensor([[0, 0]]), Tensor([[2.0, 3.0]]), "sum").tolist()
        [[6.0, 1.0]]
        """
        if not isinstance(reduce, str) or reduce not in _REDUCTIONS:
            raise ArgumentError(
                f"scatter_reduce has reduce {_quoted(_REDUCTIONS)}, found {reduce!r}"
            )
        if self.dtype in dtypes.weaks:
            strong = self.cast(strong_dtype(self.dtype))
            return strong.scatter_reduce(dim, index, src, reduce, include_self)
        if self.ndim == 0:
            return self._scatter_scalar(dim, index, src, reduce, include_self)
        axes, places, values = self._scatter_places("scatter_reduce", dim, index, src)
        if reduce == "amin":
            inner = self.inverse().scatter_reduce(
                dim, index, values.inverse(), "amax", include_self
            )
            return inner.inverse()
        if reduce == "mean":
            return self._scatter_mean(axes, places, values, include_self)
        if self.dtype is dtypes.bool:
            # on bools a sum is "or", which is the maximum, and a product "and"
            if reduce == "prod":
                return (
                    self.inverse()
                    .scatter_reduce(dim, index, values.inverse(), "amax", include_self)
                    .inverse()
                )
            reduce = "amax"
        combine = _REDUCTIONS[reduce]
        wide = self.dtype if combine is Ops.MAX else sum_dtype(self.dtype)
        start = wide.min if combine is Ops.MAX else OPSET[combine].identity
        own, values = self.cast(wide), values.cast(wide)
        total = own._written(axes, places, values, combine, None if include_self else start)
        if combine is not Ops.ADD and dtypes.is_float(wide):
            rule = _product_gradient if combine is Ops.MUL else _greatest_gradient
            static = (type(self), tuple(axes), include_self)
            total = total._with_rule(reduce, (own, values, *places), rule, static)
        return total.cast(self.dtype)

    def _with_rule(
        self, name: str, inputs: Sequence[Any], rule: Callable[..., Any], static: tuple[Any, ...]
    ) -> Self:
        """This value, as a function of the inputs whose gradient is what the rule gives."""
        nodes = (self.uop, *[tensor.uop for tensor in inputs])
        node = UOp(Ops.FUNCTION, self.dtype, nodes, FunctionArg(name, rule, static))
        return self._from_uop(node)

    def _sloped(self, name: str, operand: Any) -> Self:
        return self._with_rule(name, (operand,), slope_rule, (name,))

    def _scatter_scalar(self, dim: int, index: Self, src: Any, *reduce: Any) -> Self:
        """A scalar is allowed its one imagined axis."""
        self._checked_gather("scatter", dim, index)
        one = self.reshape((1,))
        values = self._operand(src).reshape((1,))
        method = one.scatter_reduce if reduce else one.scatter
        return method(0, index.reshape((1,)), values, *reduce).reshape(())

    def _scatter_mean(
        self, axes: Sequence[int], places: Sequence[Any], values: Any, include_self: bool
    ) -> Self:
        """Sums at run-time places divided by how many terms they have."""
        wide = sum_dtype(self.dtype)
        cleared = None if include_self else 0
        total = self.cast(wide)._written(axes, places, values.cast(wide), Ops.ADD, cleared)
        start = UOp.const(dtypes.default_int, int(include_self)).expand(self.shape)
        one = self._from_uop(UOp.const(dtypes.default_int, 1))
        count = self._from_uop(start)._written(axes, places, one, Ops.ADD)
        divisor = count.maximum(1).cast(wide)
        mean = total / divisor if dtypes.is_float(wide) else total // divisor
        return mean.cast(self.dtype)

    def _scatter_places(
        self, name: str, dim: int, index: Self, src: Any
    ) -> tuple[list[int], list[Self], Self]:
        """Every axis, its indices in the shape of `index`, and the values in that shape."""
        axis = self._checked_gather(name, dim, index)
        values = self._operand(src).cast(strong_dtype(self.dtype))
        if not isinstance(src, CreationMixin):
            values = values.expand(index.shape)
        if values.ndim != index.ndim or any(
            a > b for a, b in zip(index.shape, values.shape, strict=True)
        ):
            raise ShapeError(
                f"{name} of values of shape {values.shape} with an index of shape {index.shape}: "
                "there must be a value for each index"
            )
        values = values.shrink([(0, size) for size in index.shape])
        devices = [part.device for part in (self, index, values) if part.device is not None]
        if len(set(devices)) > 1:
            raise DeviceError(
                f"{name} of tensors on {devices[0]} and {devices[-1]}; move one of them first: "
                f'x.to("{devices[0]}")'
            )
        return list(range(self.ndim)), self._every_place(axis, index), values

    def _every_place(self, axis: int, index: Self) -> list[Self]:
        """Indices of every axis in the shape of `index`: on all but one axis the place itself."""
        places = []
        for i in range(self.ndim):
            shape = [1] * self.ndim
            shape[i] = index.shape[i]
            own = index if i == axis else self._iota(index.shape[i]).reshape(shape)
            places.append(own.expand(index.shape))
        return places

    def masked_fill(self, mask: Any, value: Any) -> Self:
        """`value` where the mask is true.

        >>> Tensor([1, 2, 3]).masked_fill(Tensor([True, False, True]), 0).tolist()
        [0, 2, 0]
        """
        return self._operand(mask).where(value, self)

    def nonzero(self, size: int | None = None, fill_value: int = 0) -> Self:
        """The places of what is not zero, one row each. Without `size` they are counted first;
        with it there are so many rows: the first ones, or `fill_value` where there are no more.

        >>> Tensor([0, 5, 6]).nonzero().tolist()
        [[1], [2]]
        >>> Tensor([0, 5, 6]).nonzero(size=3, fill_value=-1).tolist()
        [[1], [2], [-1]]
        """
        size = None if size is None else whole_number("size", size, least=0)
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
        # places stay whole numbers whatever the filling is
        return flat.ge(0).unsqueeze(1).where(places, places._constant(fill_value))

    def _nonzero_positions(self, count: int) -> Self:
        """The places of the first `count` True of a vector; -1 when there are no more."""
        total = self.shape[0]
        # the n-th True is written to place n; the others to none
        order = self.cast(dtypes.default_int).cumsum(0)  # type: ignore[attr-defined]
        # those beyond `count` too, by condition: CHECK_OOB=1 would take them for a mistake
        target = self.bitwise_and(order.le(count)).where(order - 1, count)
        empty = self._from_uop(UOp.const(dtypes.default_int, -1).expand((count,)))
        return empty._written((0,), (target,), self._iota(total), unique=True)

    def masked_select(self, mask: Any, size: int | None = None, fill_value: Any = 0) -> Self:
        """The elements where the mask is true, as a vector.

        >>> Tensor([1, 2, 3]).masked_select(Tensor([True, False, True])).tolist()
        [1, 3]
        """
        size = None if size is None else whole_number("size", size, least=0)
        flags = self._operand(mask).expand(self.shape).cast(dtypes.bool).flatten()
        count = int(flags.sum().item()) if size is None else size  # type: ignore[attr-defined]
        places = flags._nonzero_positions(count)
        taken = self.flatten()._take({0: places.maximum(0)})
        return places.ge(0).where(taken, taken._constant(fill_value))


def _greatest_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    """scatter_reduce "amax": to the greatest; several that are equal share it."""
    cls, axes, include_self = static
    own, values, *places = [cls._from_uop(source) for source in node.src[1:]]
    result, outer = cls._from_uop(node), cls._from_uop(gradient)
    at = dict(zip(axes, places, strict=True))
    is_greatest = values.eq(result._take(at))
    is_own = own.eq(result) if include_self else _is_hit(own, axes, places).logical_not()
    ties = is_own.cast(outer.dtype)._written(axes, places, is_greatest.cast(outer.dtype), Ops.ADD)
    share = outer / ties
    to_values = is_greatest.where(share._take(at), 0)
    return is_own.where(share, 0).uop, to_values.uop, *[None] * len(places)


def _product_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    """scatter_reduce "prod": to each factor the gradient times the product of the others."""
    cls, axes, include_self = static
    own, values, *places = [cls._from_uop(source) for source in node.src[1:]]
    outer = cls._from_uop(gradient)
    at = dict(zip(axes, places, strict=True))
    if not include_self:
        is_hit = _is_hit(own, axes, places)
        own = is_hit.where(own._constant(1), own)
    zero_own, zero_values = own.eq(0), values.eq(0)
    zeros = zero_own.cast(dtypes.int32)._written(
        axes, places, zero_values.cast(dtypes.int32), Ops.ADD
    )
    # the product without the zeros, of which at most one may be left out of the others
    factors = zero_own.where(own._constant(1), own), zero_values.where(values._constant(1), values)
    rest = factors[0]._written(axes, places, factors[1], Ops.MUL)
    static_rest = (cls, axes, True)
    rest = rest._with_rule("prod", (*factors, *places), _product_gradient, static_rest)

    def others(is_zero: Any, factor: Any, count: Any, product: Any) -> Any:
        return count.eq(is_zero.cast(dtypes.int32)).where(product / factor, 0)

    to_own = outer * others(zero_own, factors[0], zeros, rest)
    if not include_self:
        to_own = is_hit.where(to_own._constant(0), to_own)
    to_values = outer._take(at) * others(zero_values, factors[1], zeros._take(at), rest._take(at))
    return to_own.uop, to_values.uop, *[None] * len(places)


def _is_hit(own: Any, axes: Sequence[int], places: Sequence[Any]) -> Any:
    """Which places some index names."""
    nowhere = own._constant(0).cast(dtypes.bool).expand(own.shape)
    return nowhere._written(axes, places, nowhere._constant(True))


def _quoted(names: Iterable[str]) -> str:
    *first, last = [f'"{name}"' for name in names]
    return f"{', '.join(first)} or {last}"


def _is_several(indices: Any) -> bool:
    """Whether it is one index for each axis: a tuple, or a list of more than numbers.

    As in PyTorch and tinygrad `x[[[0, 1], [2, 0]]]` is `x[[0, 1], [2, 0]]`.
    """
    if isinstance(indices, list):
        return any(not hasattr(item, "__index__") or hasattr(item, "uop") for item in indices)
    return isinstance(indices, tuple)


def _is_array(item: Any) -> bool:
    return type(item).__module__ == "numpy" and getattr(item, "ndim", 0) > 0


def _as_int(bound: Any) -> Any:
    """An int of NumPy as Python's; all else as it is."""
    if isinstance(bound, (int, UOp)) or not hasattr(bound, "__index__"):
        return bound
    return bound if isinstance(bound, CreationMixin) else bound.__index__()


def _axes_of(item: Any) -> int:
    """How many axes an item of an index uses."""
    return 0 if item is None or item is Ellipsis else 1


def _count(start: Any, stop: Any, step: int) -> Any:
    """How many elements a slice has."""
    if is_int(start) and is_int(stop):
        return len(range(start, stop, step))
    count = stop - start if step == 1 else (stop - start + step - 1) // step
    # from n to n + 2 are 2 elements, whatever n is
    return count if is_int(count) else count.ssimplify()


IndexLike = int | slice | None | Sequence[Any]
