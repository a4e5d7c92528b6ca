"""Tensors on several devices: shard, shard_, shard_like.

In: a tensor and a tuple of devices. Out: the same values, whole on each device or cut along an
axis. Sits right above the writes to storage. Invariant: nothing is computed here; a COPY says where
the values go, and the schedule makes transfers of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from weft.device import Device
from weft.errors import ArgumentError, ShapeError
from weft.mixin.movement import is_int
from weft.mixin.storage import StorageMixin
from weft.uop.layout import ShardArg, even_bounds
from weft.uop.node import UOp
from weft.uop.opset import Ops


class ShardMixin(StorageMixin):
    """Methods over the protocol of StorageMixin."""

    __slots__ = ()

    def shard(
        self,
        devices: Sequence[str],
        axis: int | None = None,
        sizes: Sequence[int] | None = None,
    ) -> Self:
        """The values on several devices: whole on each, or cut along an axis.

        Parts differ by one at most, unless `sizes` says how long each is.

        >>> t = Tensor([[1, 2], [3, 4], [5, 6]]).shard(("CPU", "CPU:1"), axis=0)
        >>> t.device, t.uop.axis, t.uop.bounds
        (('CPU', 'CPU:1'), 0, ((0, 2), (2, 3)))
        >>> t.sum(0).tolist()
        [9, 12]
        """
        places = several_devices(devices)
        if sizes is not None and axis is None:
            raise ArgumentError(f"shard with sizes {tuple(sizes)} needs the axis that they cut")
        if axis is None or len(places) == 1:
            return self.to(places)
        number = self._axis(axis)
        size: Any = self.shape[number] if self.ndim else None
        if not is_int(size):
            raise ShapeError(
                f"shard cuts an axis of known size, found axis {axis} of shape {self.shape}; cut "
                "another one, or leave axis out: every device has all of it"
            )
        bounds = even_bounds(size, len(places)) if sizes is None else _bounds(sizes, size, places)
        arg = ShardArg(places, number, bounds)
        node = self._elsewhere_stored().uop
        found = node.layout
        if node.device == places and found is not None and node.axis == number:
            if found.bounds == bounds:
                return self
        moved = self._from_uop(UOp(Ops.COPY, node.dtype, (node,), arg), self._cell.pure)
        moved.requires_grad = self.requires_grad
        return moved

    def _elsewhere_stored(self) -> Self:
        """This where it can be computed with, on as many devices as it is."""
        return self if type(self.device) is tuple else self._elsewhere()

    def shard_(
        self,
        devices: Sequence[str],
        axis: int | None = None,
        sizes: Sequence[int] | None = None,
    ) -> Self:
        """This tensor itself put on several devices, as by `shard`.

        >>> Tensor([1, 2]).shard_(("CPU", "CPU:1"), axis=0).uop.axis
        0
        """
        return self.replace(self.shard(devices, axis, sizes))

    def shard_like(self, y: Any) -> Self:
        """The values on the devices of another tensor, cut as it is.

        >>> y = Tensor([[1, 2], [3, 4]]).shard(("CPU", "CPU:1"), axis=1)
        >>> Tensor([[5, 6], [7, 8]]).shard_like(y).uop.axis
        1
        """
        if not isinstance(y, StorageMixin):
            raise ArgumentError(f"shard_like takes a Tensor, found a {type(y).__name__}")
        if y.device is None:
            return self
        layout = y.uop.layout
        if layout is None:
            return self.to(y.device)
        if self.shape != y.shape:
            raise ShapeError(
                f"shard_like takes a Tensor of shape {self.shape}, found {y.shape}; name the "
                "devices and the axis: x.shard(y.device, axis)"
            )
        assert isinstance(y.device, tuple)
        sizes = [stop - start for start, stop in y.uop.bounds]
        if layout.shape == y.shape:
            return self.shard(y.device, layout.axis, sizes)
        cut = self.reshape(layout.shape).shard(y.device, layout.axis, sizes)
        return cut.reshape(self.shape)

    def replace(self, x: Any) -> Self:
        """Another name of x. Provided by the class."""
        raise NotImplementedError


def several_devices(devices: Sequence[str]) -> tuple[str, ...]:
    """Checked names of devices, in their one spelling."""
    if isinstance(devices, str) or not isinstance(devices, (tuple, list)) or not devices:
        raise ArgumentError(f"shard takes a tuple of devices, found {devices!r}")
    places: tuple[str, ...] = Device.canonicalize(tuple(devices))
    if len(set(places)) != len(places):
        raise ArgumentError(f"shard takes each device once, found {places}")
    return places


def _bounds(sizes: Sequence[int], size: int, places: tuple[str, ...]) -> tuple[int, ...]:
    if len(sizes) != len(places) or any(s < 0 for s in sizes) or sum(sizes) != size:
        raise ShapeError(
            f"the parts of an axis of {size} on {len(places)} devices are as many sizes that add "
            f"up to it, found {tuple(sizes)}"
        )
    return tuple([sum(sizes[:i]) for i in range(len(sizes) + 1)])
