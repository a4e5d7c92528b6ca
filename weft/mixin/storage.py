"""Writing to tensors: assign, the in-place operators, writes through indices, kernels by hand.

In: a tensor and new values for some or all of its storage. Out: the same tensor, whose storage has
a new state; every view of it sees that.
Sits above the engine, the last family below Tensor.
Invariant: what is written in place is storage of its own. A value that was not in memory yet, or
whose memory others share, gets memory first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Self

from weft.device import Buffer, Device
from weft.dtype import can_lossless_cast, dtypes, least_upper_dtype, strong_dtype, to_dtype
from weft.engine import host
from weft.engine.cell import Cell
from weft.engine.eager import assign_form
from weft.engine.gradients import detached, is_leaf
from weft.engine.machine_code import check_code, run_code
from weft.engine.operands import apply_moves, cast_value, user_line
from weft.engine.realize import realize_readers
from weft.engine.storage import memory_of, node_of
from weft.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from weft.gradient import as_event
from weft.helpers import prod
from weft.machine import MachineKernel
from weft.mixin.creation import Devices
from weft.mixin.movement import broadcast_shape
from weft.mixin.values import ValuesMixin
from weft.uop.args import FunctionArg
from weft.uop.kernel_graph import plain_kernel, run_kernel, written_slots
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.scatter import spread_layout


class StorageMixin(ValuesMixin):
    """Methods over the protocol of ValuesMixin."""

    __slots__ = ()
    requires_grad: Any

    def contiguous(self, **kwargs: Any) -> Self:
        """The same values, stored in order; what is already so is returned as it is.

        >>> Tensor([[1, 2], [3, 4]]).T.contiguous().tolist()
        [[1, 3], [2, 4]]
        """
        cell = self._cell
        stored = cell.storage is not None or cell.value.op is Ops.CONTIGUOUS
        if cell.pure or (stored and self._covers_storage):
            return self
        node = self.uop
        return self._from_uop(UOp(Ops.CONTIGUOUS, node.dtype, (node,)))

    def contiguous_backward(self) -> Self:
        """The same values; their gradient is stored.

        >>> Tensor([1.0]).contiguous_backward().tolist()
        [1.0]
        """
        node = self.uop
        return self._from_uop(UOp(Ops.CONTIGUOUS_BACKWARD, node.dtype, (node,)), self._cell.pure)

    def to(self, device: Devices) -> Self:
        """The values on a device; None is the default one.

        >>> Tensor([1, 2]).to(Device.DEFAULT).device == Device.DEFAULT
        True
        """
        place: Any = Device.canonicalize(device)
        if type(place) is tuple:
            place = _several(place)
        if self.device == place:
            return self
        moved = self._from_uop(host.pin(self.uop, place), self._cell.pure)
        moved.requires_grad = self.requires_grad
        return moved

    def clone(self, device: Devices = None) -> Self:
        """A copy with its own storage.

        >>> a = Tensor([1, 2])
        >>> b = a.clone()
        >>> b += 1
        >>> a.tolist(), b.tolist()
        ([1, 2], [2, 3])
        """
        source = self.cast(host.storage_dtype(self.uop))
        place = self.device if device is None else device
        node = source.uop if place == source.device else host.pin(source.uop, place)
        copy = self._from_uop(UOp(Ops.CONTIGUOUS, node.dtype, (node,)))
        copy.requires_grad = self.requires_grad
        return copy

    @classmethod
    def from_blob(cls, ptr: int, shape: tuple[int, ...], **kwargs: Any) -> Self:
        """Memory at an address of a device, without a copy; keep its owner alive as long as this.

        >>> import ctypes
        >>> memory = (ctypes.c_float * 2)(1.0, 2.0)
        >>> Tensor.from_blob(ctypes.addressof(memory), (2,), device="CPU").tolist()
        [1.0, 2.0]
        """
        device = Device.canonicalize(kwargs.get("device"))
        if not Device[device].has_address:
            raise DeviceError(f"from_blob needs a device whose memory has addresses, not {device}")
        Device[device].check_address(ptr)
        dtype = to_dtype(kwargs.get("dtype") or dtypes.default_float)
        buffer = Buffer.from_opaque(device, prod(shape), dtype, ptr)
        return cls._from_uop(node_of(buffer).reshape(shape))

    def assign(self, x: Any) -> Self:
        """New values in this storage, in place; every view of it sees them.

        >>> a = Tensor.zeros(3)
        >>> a.assign(Tensor([1.0, 2.0, 3.0])).tolist()
        [1.0, 2.0, 3.0]
        """
        if assign_form(self, x):
            return self
        if host.is_storage(self.device):
            return self._write(x)
        cell = self._cell
        source = self._assignable(x)
        if cell.own_storage is None and self._covers_storage:
            # nothing is in memory of its own yet: the storage simply starts with the new value
            new = source.reshape(cell.value.shape).contiguous()
            cell.overwrite((new.clone() if new._cell.is_part else new).uop)
            return self
        self._refuse_shared_elements()
        state = cell.value if cell.own_storage is not None else self._allocated(source)
        place = apply_moves(state, self._moves, writing=True)
        # what is trained is a leaf: its new values are not differentiated to those before
        is_trained = (cell.is_asked or self.grad is not None) and is_leaf(state)
        new_value = detached(source.uop) if is_trained else source.uop
        cell.overwrite(state.after(as_event(place.store(new_value))))
        if cell.value.origin is None:
            cell.value.origin = user_line()
        return self

    def _assign_at(
        self, axes: Sequence[int], places: Sequence[Any], order: Sequence[int], x: Any
    ) -> None:
        """Write x, shaped as the elements at the indices are read, one element after another."""
        if host.is_storage(self.device):
            raise ArgumentError(
                f"cannot write through a Tensor of indices on {self.device}; assign to slices, or "
                "write to a copy elsewhere: x.to(None)"
            )
        self._refuse_shared_elements()
        kept = [size for axis, size in enumerate(self.shape) if axis not in axes]
        shape = (*places[0].shape, *kept)
        source = self._assignable(x, tuple([shape[axis] for axis in order]))
        values = source.permute(sorted(range(len(order)), key=lambda axis: order[axis]))
        cell = self._cell
        state = cell.value if cell.own_storage is not None else self._allocated(source, *places)
        indices = [
            _kept_apart(place.uop, self.shape[axis], state)
            for axis, place in zip(axes, places, strict=True)
        ]
        place = apply_moves(state, self._moves, writing=True)
        target = UOp(Ops.GATHER, place.dtype, (place, *indices), tuple(axes))
        cell.overwrite(state.after(as_event(target.store(values.uop))))
        if cell.value.origin is None:
            cell.value.origin = user_line()

    def __iadd__(self, x: Any) -> Self:
        return self.assign(self.add(x))

    def __isub__(self, x: Any) -> Self:
        return self.assign(self.sub(x))

    def __imul__(self, x: Any) -> Self:
        return self.assign(self.mul(x))

    def __itruediv__(self, x: Any) -> Self:
        return self.assign(self.div(x))

    def __ifloordiv__(self, x: Any) -> Self:
        return self.assign(self.idiv(x))

    def __imod__(self, x: Any) -> Self:
        return self.assign(self.mod(x))

    def __ipow__(self, x: Any) -> Self:
        return self.assign(self.pow(x))

    def __iand__(self, x: Any) -> Self:
        return self.assign(self.bitwise_and(x))

    def __ior__(self, x: Any) -> Self:
        return self.assign(self.bitwise_or(x))

    def __ixor__(self, x: Any) -> Self:
        return self.assign(self.bitwise_xor(x))

    def __ilshift__(self, x: Any) -> Self:
        return self.assign(self.lshift(x))

    def __irshift__(self, x: Any) -> Self:
        return self.assign(self.rshift(x))

    def __imatmul__(self, x: Any) -> Self:
        return self.assign(self.matmul(x))

    def _assignable(self, x: Any, shape: tuple[Any, ...] | None = None) -> Any:
        """x in this tensor's shape (or another) and dtype, or an error that says why it is not."""
        wanted = self.shape if shape is None else shape
        source: Any = self._operand(self._from_data(x))
        fits = source.device is None or self.device in (None, source.device)
        if not fits and not host.is_storage(self.device):
            raise DeviceError(
                f"assign to a Tensor on {self.device} of one on {source.device}; move it first: "
                f'x.to("{self.device}")'
            )
        target = self.dtype
        if least_upper_dtype(target, source.dtype) is not target and not can_lossless_cast(
            source.dtype, target
        ):
            weak = target in dtypes.weaks
            if not weak:
                raise DTypeError(
                    f"assign to a Tensor of {target} of one of {source.dtype}, which it cannot "
                    f"hold; cast it first: x.cast({target})"
                )
            target = source.dtype
        try:
            fits = broadcast_shape(source.shape, wanted) == wanted
        except ShapeError:
            fits = False
        if not fits:
            raise ShapeError(
                f"assign to a Tensor of shape {wanted} of one of shape {source.shape}, which "
                "does not broadcast to it"
            )
        return source.cast(strong_dtype(target)).expand(wanted)

    def _write(self, x: Any) -> Self:
        """assign on a device that only stores: the values are computed and written now."""
        cell = self._cell
        source = self._assignable(x)
        value = cell.value
        if host.is_stored_view(value):
            pass
        elif self._covers_storage:
            # nothing was written there yet, and nothing of what would have been remains
            buffer = UOp.new_buffer(str(self.device), prod(value.shape), strong_dtype(value.dtype))
            cell.overwrite(buffer.reshape(value.shape))
        else:
            self.realize()
        target = host.stored_part(self.uop)
        if target is None:
            raise ArgumentError(
                f"cannot write to this view of shape {self.shape} on {self.device}: its elements "
                "do not follow each other there; assign to slices along the first axis"
            )
        realize_readers(str(self.device), Cell.live)
        number = source._folded()
        if number is not None:
            host.fill(target, host.pack([number], target.dtype))
        else:
            found = host.stored_part(source.uop) if host.is_storage(source.device) else None
            target.copy_from(source._elsewhere()._buffer() if found is None else found)
        cell.overwrite(cell.value)
        return self

    def _elsewhere(self) -> Self:
        """This on one device where it can be computed with."""
        device = self.device
        if type(device) is tuple:
            return self.to(Device[device[0]].reads_at or device[0])
        return self.to(None) if host.is_storage(device) else self

    def _readable(self) -> Self:
        return super(StorageMixin, self._elsewhere())._readable()

    def _refuse_shared_elements(self) -> None:
        for op, _ in self._moves:
            if op is Ops.EXPAND:
                raise ArgumentError(
                    f"cannot assign to an expanded view of shape {self.shape}: several of its "
                    "elements are one place in memory; use .contiguous() first"
                )

    def _allocated(self, *sources: Any) -> UOp:
        """The state of this cell in new memory, filled with the value it has had so far."""
        value = self._cell.value
        devices = [value.device, *[source.device for source in sources]]
        device = next((place for place in devices if place is not None), None)
        dtype = strong_dtype(value.dtype)
        layout = spread_layout(device, value)
        buffer = UOp.new_buffer(Device.canonicalize(device), prod(value.shape), dtype, layout)
        base = buffer.reshape(value.shape)
        return base.after(base.store(cast_value(value, dtype)))

    def custom_kernel(
        self, *lst: Any, fxn: Callable[..., UOp], grad_fxn: Callable[..., Any] | None = None
    ) -> list[Any]:
        """These tensors after a kernel written with UOps, which writes to some of them in place.

        `fxn` gets a parameter for each tensor, in its shape, and returns the kernel: STOREs that
        end their ranges, or machine code (`custom` of `weft.amd.rdna3` and its like), which runs
        at once. `p[i, j]` is an element, `p.index(n)` the one at a row-major number.
        `grad_fxn(gradient, kernel)` gives a gradient (or None) for each of `kernel.src`, the
        tensors' nodes; without it the kernel's own gradient is taken.

        >>> from weft import UOp
        >>> def double(target, source):
        ...     i = UOp.range(source.size, 0)
        ...     return target[i].store(source[i] * 2).end(i).sink()
        >>> Tensor.empty(3).custom_kernel(Tensor([1.0, 2.0, 3.0]), fxn=double)[0].tolist()
        [2.0, 4.0, 6.0]
        """
        tensors = [self, *lst]
        parameters = [
            UOp.placeholder(tensor.max_shape, strong_dtype(tensor.dtype), slot)
            for slot, tensor in enumerate(tensors)
        ]
        made = fxn(*parameters)
        if isinstance(made, MachineKernel):
            return self._run_code(made, tensors, grad_fxn)
        kernel = plain_kernel(made)
        written = written_slots(kernel)
        values: list[UOp] = []
        for slot, tensor in enumerate(tensors):
            stored = tensor._state(*tensors) if slot in written else tensor._in_order()
            values.append(stored._mop(Ops.RESHAPE, (prod(stored.shape),)))
        inputs = tuple([tensor.uop for tensor in tensors])
        result = list(tensors)
        for slot, state in run_kernel(kernel, values, as_event).items():
            tensor = tensors[slot]
            tensor._cell.overwrite(state._mop(Ops.RESHAPE, tensor._cell.value.shape))
            if grad_fxn is not None:
                arg = FunctionArg("custom_kernel", _kernel_rule, (grad_fxn,))
                node = UOp(Ops.FUNCTION, tensor.dtype, (tensor.uop, *inputs), arg)
                result[slot] = self._from_uop(node)
        return result

    def _run_code(
        self, kernel: MachineKernel, tensors: list[Any], grad_fxn: Callable[..., Any] | None
    ) -> list[Any]:
        """These tensors after a kernel in machine code, which runs now: nobody can look into it."""
        device = check_code(kernel, len(tensors), [tensor.device for tensor in tensors])
        for slot in kernel.writes:
            tensors[slot]._state(*tensors)
        inputs = tuple([tensor.uop for tensor in tensors])
        # a write goes to memory of its own, so that another tensor may be the same memory
        stored = [tensor._in_memory() for tensor in tensors]
        written = run_code(kernel, stored, device, user_line())
        result = list(tensors)
        for slot, buffer in written.items():
            tensor = tensors[slot]
            new = self._from_uop(buffer.reshape(tensor.shape))
            if memory_of(stored[slot]) is None:
                tensor._cell.overwrite(new.uop)
            else:
                tensor.assign(new)
            rule = _no_rule if grad_fxn is None else _kernel_rule
            static = (kernel.name,) if grad_fxn is None else (grad_fxn,)
            arg = FunctionArg("custom_kernel", rule, static)
            node = UOp(Ops.FUNCTION, tensor.dtype, (tensor.uop, *inputs), arg)
            result[slot] = self._from_uop(node)
        return result

    def _in_memory(self) -> UOp:
        """The BUFFER that holds this value in order; realized unless it was never filled."""
        if any([not isinstance(size, int) for size in self.shape]):
            raise ArgumentError(f"machine code takes tensors of known shape, found {self.shape}")
        cell = self._cell
        value = cell.value
        while value.op is Ops.RESHAPE:
            value = value.src[0]
        if value.op is not Ops.BUFFER or not self._covers_storage:
            stored = self._from_uop(self._in_order()).realize()
            found = stored._cell.storage
            assert found is not None, "what is contiguous has memory once it is realized"
            if found.arg.device != self.device:
                raise ArgumentError(f"machine code takes tensors in memory, found {self!r}")
            return found
        return value

    def _state(self, *others: Any) -> UOp:
        """The storage of this tensor, which is to be written as a whole and in order."""
        if not self._covers_storage or host.is_storage(self.device):
            raise ArgumentError(
                f"a kernel writes to storage in order, found a view of shape {self.shape}; use "
                ".contiguous() first"
            )
        cell = self._cell
        return cell.value if cell.own_storage is not None else self._allocated(self, *others)

    def _in_order(self) -> UOp:
        """This value in memory, in order."""
        node = self.cast(strong_dtype(self.dtype)).uop
        return UOp(Ops.CONTIGUOUS, node.dtype, (node,))


def _several(devices: tuple[str, ...]) -> Devices:
    """A tuple of different devices; one of them is a device."""
    if len(set(devices)) != len(devices) or not devices:
        raise ArgumentError(f"a tuple of devices has each of them once, found {devices}")
    return devices if len(devices) > 1 else devices[0]


def _kernel_rule(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """The gradient of a custom kernel: the user's, over the nodes of its tensors."""
    inputs = node.src[1:]
    parts = static[0](gradient, UOp.sink(*inputs))
    return tuple([part.uop if isinstance(part, StorageMixin) else part for part in parts])


def _no_rule(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """Nobody knows what machine code computes."""
    raise ArgumentError(
        f"{static[0]} is machine code, which has no gradient of its own: pass grad_fxn to "
        "custom_kernel"
    )


def _kept_apart(index: UOp, size: Any, state: UOp) -> UOp:
    """Indices that are read from the storage they write to are stored before it is written."""
    storage = state
    while storage.op is not Ops.BUFFER:
        storage = storage.src[0]
    if storage not in index.toposort():
        return index
    # counted from the front: the storage as it is would count as stored already
    place = index.lt(-size).where(size, index.lt(0).where(index + size, index))
    return UOp(Ops.CONTIGUOUS, index.dtype, (place,))
