"""Kernels written with tinygrad's names: `c[i].store(a[i] * 2).end(i).sink()`.

What comes in: nodes of a kernel (the mixin's `self`). What goes out: nodes; `kernel_graph` brings
them into weft's own form, where loads are LOADs and a STORE closes its ranges itself.
Where it sits: under `node.py`, beside `compat.py`; it imports no UOp, `type(self)` is one.
The one invariant: an element of a view is an INDEX of that view by its row-major number.
"""

from __future__ import annotations

import math
from typing import Any

from weft.dtype import DType
from weft.errors import ArgumentError, ShapeError
from weft.uop.args import ParamArg
from weft.uop.opset import GroupOp, Ops

# The tag of a PARAM that is no parameter: memory inside of a kernel, which holds sums on the way.
REGISTER = "register"


class KernelCompatibilityMixin:
    """What tinygrad's users build kernels with."""

    __slots__ = ()
    op: Any
    dtype: Any
    src: Any
    shape: Any

    # a node has elements, and still nobody walks over them
    __iter__ = None

    @classmethod
    def placeholder(
        cls: Any,
        shape: Any,
        dtype: DType,
        slot: int | None = None,
        addrspace: Any = None,
        **details: Any,
    ) -> Any:
        """Memory in a shape: a parameter of a kernel, or (an `addrspace` but global) its own."""
        own = addrspace is not None and getattr(addrspace, "name", "GLOBAL") != "GLOBAL"
        arg = ParamArg(slot or 0, math.prod(shape))
        memory = cls(Ops.PARAM, dtype, (), arg, REGISTER if own else None)
        return memory if tuple(shape) == memory.shape else memory.reshape(tuple(shape))

    def placeholder_like(self: Any, slot: int, addrspace: Any = None) -> Any:
        """A parameter in the shape and dtype of this node."""
        return type(self).placeholder(self.max_shape, self.dtype, slot, addrspace)

    def __getitem__(self: Any, idx: Any) -> Any:
        """An element of memory (as many indices as axes), or a view: numbers, nodes, slices."""
        items = _every_axis(idx, self.ndim)
        if _is_memory(self) and len(items) == self.ndim and all(map(_is_place, items)):
            number: Any = 0
            for item, size in zip(items, self.shape, strict=True):
                number = number * size + _from_front(item, size)
            return self.index(number)
        return _view(self, items)

    def end(self: Any, *ranges: Any) -> Any:
        """These effects over all of the ranges."""
        if self.op is Ops.STORE:
            place, value, *inner = self.src
            more = [axis for axis in ranges if axis not in inner]
            return self.replace(src=(place, value, *more, *inner))
        if self.op is Ops.SINK:
            return self.replace(src=tuple([effect.end(*ranges) for effect in self.src]))
        effects = [effect for effect in _effects(self) if effect.op is Ops.STORE]
        if not effects:
            raise ArgumentError(f"ranges end what is stored over them, found {self.op.name}")
        return type(self).group(*[effect.end(*ranges) for effect in effects])

    def set(self: Any, val: Any, end: Any = ()) -> Any:
        """The memory of this element once it holds `val`, written over the ranges `end`."""
        if self.op is not Ops.INDEX:
            raise ArgumentError(f"an element of memory is set, found {self.op.name}")
        ranges = end if isinstance(end, (tuple, list)) else (end,)
        store = self.store(val)
        return self.src[0].after(store.end(*ranges) if ranges else store)


def _is_place(item: Any) -> bool:
    return item is not None and not isinstance(item, slice)


def _from_front(item: Any, size: Any) -> Any:
    """The index, counted from the front; a number is inside."""
    if not isinstance(item, int):
        return item
    if isinstance(size, int) and not -size <= item < size:
        raise ShapeError(f"index {item} of an axis of {size}")
    return item + size if item < 0 else item


def _is_memory(node: Any) -> bool:
    while node.op is Ops.AFTER or node.op in GroupOp.Movement:
        node = node.src[0]
    return node.op is Ops.PARAM


def _effects(node: Any) -> tuple[Any, ...]:
    """What a memory waits for last."""
    while node.op in GroupOp.Movement:
        node = node.src[0]
    return tuple(node.src[1:]) if node.op is Ops.AFTER else ()


def _every_axis(idx: Any, ndim: int) -> list[Any]:
    """The items of an index with the ellipsis written out."""
    items = list(idx) if isinstance(idx, (tuple, list)) else [idx]
    used = len([item for item in items if item is not None and item is not Ellipsis])
    if used > ndim:
        raise ShapeError(f"{used} indices of {ndim} axes")
    rest = [slice(None)] * (ndim - used)
    if Ellipsis not in [item for item in items if not hasattr(item, "op")]:
        return items + rest
    place = next(i for i, item in enumerate(items) if item is Ellipsis)
    return items[:place] + rest + items[place + 1 :]


def _view(node: Any, items: list[Any]) -> Any:
    """A box of the node, its axes of one index left out and those of None put in."""
    box: list[Any] = []
    shape: list[Any] = []
    flipped: list[int] = []
    for item in items:
        if item is None:
            shape.append(1)
            continue
        size = node.shape[len(box)]
        if isinstance(item, slice):
            if item.step not in (None, 1, -1):
                raise ArgumentError(f"a node is sliced in steps of 1 or -1, found {item.step}")
            if item.step == -1:
                flipped.append(len(box))
            start, stop = _bounds(item, size)
            box.append((start, stop))
            shape.append(stop - start)
        else:
            place = _from_front(item, size)
            box.append((place, place + 1))
    moved = node.shrink(tuple(box))
    moved = moved.flip(tuple(flipped)) if flipped else moved
    return moved.reshape(tuple(shape)) if tuple(shape) != moved.shape else moved


def _bounds(item: slice, size: Any) -> tuple[Any, Any]:
    ends = (item.start, item.stop)
    if isinstance(size, int) and all(end is None or isinstance(end, int) for end in ends):
        found = range(size)[item]
        if not found:
            return 0, 0
        return min(found[0], found[-1]), max(found[0], found[-1]) + 1
    if item.step == -1:
        raise ArgumentError("a slice in steps of -1 needs numbers as its ends")
    start = 0 if item.start is None else item.start
    return start, size if item.stop is None else item.stop
