"""Tensor: what a user holds. A storage (its Cell) and the movement ops that make a view of it.

In: Python numbers, lists, arrays; other tensors. Out: UOp graphs, and values when asked.
Sits at the top of the compiler: everything below is reached through `realize`.
Invariant: building an expression never computes. `tensor.uop` is its cell's value with the moves
applied, so assigning to a storage is seen by every view of it.
"""

from __future__ import annotations

import pathlib
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Self

from weft.device import Buffer, Device
from weft.dtype import (
    DType,
    can_lossless_cast,
    dtypes,
    least_upper_dtype,
    strong_dtype,
    to_dtype,
    weak_dtype,
)
from weft.engine import gradients, host
from weft.engine.cell import Cell
from weft.engine.operands import apply_moves, broadcast, cast_value, promote, user_line
from weft.engine.realize import realize_readers
from weft.engine.storage import node_of
from weft.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from weft.gradient import NO_GRAD, as_event, with_identity
from weft.helpers import prod
from weft.knobs import TRAINING, Context
from weft.mixin.movement import broadcast_shape
from weft.mixin.values import Move, ValuesMixin
from weft.uop.args import FunctionArg, ReduceArg
from weft.uop.kernel_graph import run_kernel, written_slots
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops, Typing

Devices = str | tuple[str, ...] | None

# what an op means on bools: they are the two-element algebra, not numbers
_ON_BOOLS = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND}
_UNSIGNED = {1: dtypes.uint8, 2: dtypes.uint16, 4: dtypes.uint32, 8: dtypes.uint64}
_TAKES = {
    "float": (lambda dtype: dtype.kind == "float", "floats"),
    "int": (lambda dtype: dtype.kind in ("int", "uint"), "ints"),
    "number": (lambda dtype: dtype.kind != "bool", "numbers (for bools use logical_not() or ^)"),
    "bits": (lambda dtype: dtype.kind in ("int", "uint", "bool"), "ints or bools"),
}


def is_numpy_ndarray(value: Any) -> bool:
    """Whether it is a NumPy array, asked without importing NumPy.

    >>> is_numpy_ndarray([1, 2])
    False
    """
    return host.is_numpy(value) and hasattr(value, "tobytes")


class _TensorType(type):
    """Gives the class itself the property `training`."""

    @property
    def training(cls) -> bool:
        return bool(TRAINING)

    @training.setter
    def training(cls, value: bool) -> None:
        TRAINING.value = int(value)


class Tensor(ValuesMixin, metaclass=_TensorType):
    """A multidimensional array whose values are computed when they are needed.

    >>> (Tensor([1, 2, 3]) * 2).tolist()
    [2, 4, 6]
    """

    __slots__ = ("__weakref__", "_cell", "_moves", "_source", "_uop", "grad", "requires_grad")
    _cell: Cell
    _moves: tuple[Move, ...]
    # for backward, which looks for the tensors of a graph
    _live: ClassVar[weakref.WeakValueDictionary[int, Tensor]] = weakref.WeakValueDictionary()
    # NumPy lets a Tensor handle `array + tensor` instead of looping over it
    __array_priority__ = 1000

    def __init__(
        self,
        data: Any = None,
        device: Devices = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        """From None, a number, bytes, lists, an array, a file's Path, a Variable, a UOp, a Tensor.

        >>> Tensor([[1, 2], [3, 4]]).shape
        (2, 2)
        """
        chosen = None if dtype is None else to_dtype(dtype)
        place = None if device is None else Device.canonicalize(device)
        self.grad: Tensor | None = None
        self.requires_grad = requires_grad
        self._moves = ()
        self._source: UOp | None = None
        Tensor._live[id(self)] = self
        if isinstance(data, Tensor):
            other = data if chosen is None else data.cast(chosen)
            other = other if place is None else other.to(place)
            self._cell, self._moves = other._cell, other._moves
            return
        if isinstance(data, (bool, int, float)) and not host.is_numpy(data):
            self._cell = Cell(host.number(data, place, chosen), pure=True)
            if requires_grad:
                self.requires_grad_()
        elif isinstance(data, UOp):
            value = data if chosen is None else cast_value(data, chosen)
            value = value if place is None or value.device == place else host.pin(value, place)
            self._cell = Cell(value, pure=data.dtype in dtypes.weaks)
        elif isinstance(data, pathlib.Path):
            stored = host.from_file(data, chosen)
            self._cell = Cell(stored if place is None else host.pin(stored, place))
        else:
            self._cell = Cell(host.from_host(data, place, chosen))

    # ------------------------------------------------------------ the graph behind
    @property
    def uop(self) -> UOp:
        """The expression this tensor stands for.

        >>> Tensor(3.0).uop.op
        Ops.CONST
        """
        value = self._cell.value
        if self._source is not value:
            self._uop: UOp = apply_moves(value, self._moves)
            self._source = value
        return self._uop

    @classmethod
    def _from_uop(cls, node: UOp, pure: bool = False) -> Self:
        """A new storage with this value."""
        if node.dtype in dtypes.weaks and not pure:
            node = cast_value(node, strong_dtype(node.dtype))
        # asking now reports wrong shapes and devices where the user wrote them
        node.shape  # noqa: B018
        host.refuse_computing(node)
        node.device  # noqa: B018
        if node.origin is None:
            node.origin = user_line()
        if NO_GRAD and not pure:
            node = gradients.detached(node)
        return cls._view_of(Cell(node, pure), ())

    @classmethod
    def _view_of(cls, cell: Cell, moves: tuple[Move, ...]) -> Self:
        tensor = object.__new__(cls)
        tensor._cell = cell
        tensor._moves = moves
        tensor._source = None
        tensor.grad = None
        tensor.requires_grad = None
        Tensor._live[id(tensor)] = tensor
        return tensor

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the axes.

        >>> Tensor([[1, 2, 3]]).shape
        (1, 3)
        """
        return self.uop.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements.

        >>> Tensor([1.0]).dtype
        dtypes.float32
        """
        return self.uop.dtype

    @property
    def device(self) -> Devices:
        """Where it lives; None for what is computed from numbers alone.

        >>> Tensor(3.0).device is None
        True
        """
        return self.uop.device

    def __repr__(self) -> str:
        state = "realized" if self._cell.is_realized else "lazy"
        where = "" if self.device is None else f" on {self.device}"
        return f"<Tensor {self.shape} {self.dtype}{where} ({state})>"

    def __hash__(self) -> int:
        return id(self)

    # ------------------------------------------------------------ the protocol of the families
    def _mop(self, op: Ops, arg: Any) -> Self:
        if op is Ops.PAD:
            return self._from_uop(self.uop._mop(op, arg), self._cell.pure)
        # every step is kept: a view that was only passed through is part of the graph as well
        moves = (*self._moves, (op, arg))
        if NO_GRAD and not self._cell.pure and dtypes.is_float(self.dtype):
            moves = (*moves, (Ops.DETACH, None))
        view = self._view_of(self._cell, moves)
        if view.uop.origin is None:
            view.uop.origin = user_line()
        return view

    def _cat(self, others: Sequence[Self], axis: int) -> Self:
        parts = (self, *others)
        dtype, pure = promote(parts)
        nodes = tuple([cast_value(part.uop, dtype) for part in parts])
        return self._from_uop(UOp(Ops.CAT, dtype, nodes, axis), pure)

    def _reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> Self:
        if any(isinstance(self.shape[i], int) and self.shape[i] == 0 for i in axes):
            shape = tuple(1 if i in axes else size for i, size in enumerate(self.shape))
            start = UOp.const(self.dtype, OPSET[op].identity)
            nothing = self._from_uop(start, self._cell.pure).expand(shape)
            return nothing if self.device is None else nothing.to(self.device)
        node = UOp(Ops.REDUCE_AXIS, self.dtype, (self.uop,), ReduceArg(op, axes))
        return self._from_uop(node, self._cell.pure)

    def _operand(self, x: Any) -> Self:
        lifted = self._lift(x)
        if isinstance(lifted, (bool, int, float)):
            return self._from_uop(UOp.const(weak_dtype(lifted), lifted), pure=True)
        return lifted

    def _lift(self, x: Any) -> Any:
        """An operand as a Tensor, or the number it is."""
        if isinstance(x, Tensor):
            return x
        if host.is_numpy(x) and not isinstance(x, (bool, int, float)):
            return type(self)(x, device=self.device)
        if isinstance(x, (bool, int, float)):
            return x
        if isinstance(x, UOp):
            return type(self)(x)
        raise ArgumentError(
            f"a Tensor can be combined with a Tensor, a number, a UOp or a NumPy array, not with a "
            f"{type(x).__name__}; Tensor(...) makes one of a list"
        )

    def _unchanged(self) -> Self:
        return self._from_uop(self.uop, self._cell.pure)

    def _constant(self, b: Any) -> Self:
        return self._from_uop(UOp.const(self.dtype, b), pure=True)

    def const_like(self, b: Any, dtype: DType | None = None) -> Self:
        """A constant of this tensor's shape and dtype.

        >>> Tensor([1, 2]).const_like(7).tolist()
        [7, 7]
        """
        node = UOp.const(dtype or self.dtype, b)
        return self._from_uop(node, pure=True).expand(self.shape)

    def alu(self, op: Ops, *src: Any) -> Self:
        """One elementwise op of the op table, with promotion and broadcast.

        >>> from weft.uop.ops import Ops
        >>> Tensor([1, 2]).alu(Ops.ADD, 3).tolist()
        [4, 5]
        """
        if op is Ops.WHERE:
            return self.where(*src)
        operands = (self, *[self._lift(x) for x in src])
        dtype, pure = promote(operands)
        if dtype is dtypes.bool:
            op = _ON_BOOLS.get(op, op)
            if op in (Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR):
                dtype = dtypes.default_int
        row = OPSET[op]
        if row.on != "any" and not _TAKES[row.on][0](dtype):
            raise DTypeError(f"{op.name} ({row.meaning}) takes {_TAKES[row.on][1]}, found {dtype}")
        result = dtypes.bool if row.typing is Typing.COMPARE else dtype
        return self._from_uop(UOp(op, result, broadcast(operands, dtype)), pure)

    def where(self, x: Any, y: Any) -> Self:
        """x where this is true, else y.

        >>> (Tensor([1, 2, 3]) > 1).where(Tensor([10, 20, 30]), 0).tolist()
        [0, 20, 30]
        """
        choices = (self._lift(x), self._lift(y))
        dtype, pure = promote(choices)
        condition = self.cast(dtypes.bool)
        nodes = broadcast((condition, *choices), dtype, first=dtypes.bool)
        return self._from_uop(UOp(Ops.WHERE, dtype, nodes), pure and condition._cell.pure)

    def cast(self, dtype: DType | str) -> Self:
        """The values in another dtype.

        >>> Tensor([1.7, 2.2]).cast(dtypes.int32).tolist()
        [1, 2]
        """
        target = to_dtype(dtype)
        if target is self.dtype:
            return self
        return self._from_uop(cast_value(self.uop, target), self._cell.pure)

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

    def __eq__(self, x: object) -> Self:  # type: ignore[override]
        return self.eq(x)

    def __ne__(self, x: object) -> Self:  # type: ignore[override]
        return self.ne(x)

    def __bool__(self) -> bool:
        raise ArgumentError(
            "the truth of a Tensor is not known before it is computed: use .item(), or where(), "
            "any(), all() to stay in the graph"
        )

    def __len__(self) -> int:
        if not self.ndim:
            raise ArgumentError("a Tensor of shape () has no length")
        return int(self.shape[0])

    def __iter__(self) -> Iterator[Self]:
        if not self.ndim:
            raise ArgumentError("a Tensor of shape () cannot be iterated over")
        return (self.split(1, 0)[i].squeeze(0) for i in range(len(self)))

    # ------------------------------------------------------------ storage
    @property
    def _covers_storage(self) -> bool:
        """Whether this is the whole storage in order, in whatever shape."""
        return all(op in (Ops.RESHAPE, Ops.DETACH) for op, _ in self._moves)

    def detach(self) -> Self:
        """The same storage, through which no gradient passes.

        >>> Tensor([1.0]).detach().tolist()
        [1.0]
        """
        view = self._view_of(self._cell, (*self._moves, (Ops.DETACH, None)))
        view.requires_grad = False
        return view

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
        place = Device.canonicalize(device)
        if self.device == place:
            return self
        moved = self._from_uop(host.pin(self.uop, place), self._cell.pure)
        moved.requires_grad = self.requires_grad
        return moved

    def to_(self, device: Devices) -> Self:
        """This tensor itself moved to a device.

        >>> Tensor([1, 2]).to_(Device.DEFAULT).device == Device.DEFAULT
        True
        """
        return self.replace(self.to(device))

    def replace(self, x: Tensor) -> Self:
        """This tensor made another name of x, which must have its shape.

        >>> Tensor([1, 2]).replace(Tensor([3, 4])).tolist()
        [3, 4]
        """
        if x.shape != self.shape:
            raise ShapeError(f"replace needs a tensor of shape {self.shape}, found {x.shape}")
        self._cell, self._moves, self._source = x._cell, x._moves, None
        return self

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

    def assign(self, x: Any) -> Self:
        """New values in this storage, in place; every view of it sees them.

        >>> a = Tensor.zeros(3)
        >>> a.assign(Tensor([1.0, 2.0, 3.0])).tolist()
        [1.0, 2.0, 3.0]
        """
        if host.is_storage(self.device):
            return self._write(x)
        cell = self._cell
        source = self._assignable(x)
        if cell.own_storage is None and self._covers_storage:
            # nothing is in memory of its own yet: the storage simply starts with the new value
            cell.overwrite(source.reshape(cell.value.shape).contiguous().uop)
            return self
        self._refuse_shared_elements()
        state = cell.value if cell.own_storage is not None else self._allocated(source)
        place = apply_moves(state, self._moves, writing=True)
        cell.overwrite(state.after(as_event(place.store(source.uop))))
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

    def _assignable(self, x: Any, shape: tuple[Any, ...] | None = None) -> Tensor:
        """x in this tensor's shape (or another) and dtype, or an error that says why it is not."""
        wanted = self.shape if shape is None else shape
        source: Tensor = self._operand(x)
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
        if isinstance(x, (list, tuple, bytes, bytearray, memoryview)):
            x = type(self)(x, dtype=self.dtype)
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
        """This where it can be computed with."""
        return self.to(None) if host.is_storage(self.device) else self

    def _readable(self) -> Self:
        return super(Tensor, self._elsewhere())._readable()

    def _refuse_shared_elements(self) -> None:
        for op, _ in self._moves:
            if op is Ops.EXPAND:
                raise ArgumentError(
                    f"cannot assign to an expanded view of shape {self.shape}: several of its "
                    "elements are one place in memory; use .contiguous() first"
                )

    def _allocated(self, *sources: Tensor) -> UOp:
        """The state of this cell in new memory, filled with the value it has had so far."""
        value = self._cell.value
        devices = [value.device, *[source.device for source in sources]]
        device = next((place for place in devices if place is not None), None)
        dtype = strong_dtype(value.dtype)
        buffer = UOp.new_buffer(Device.canonicalize(device), prod(value.shape), dtype)
        base = buffer.reshape(value.shape)
        return base.after(base.store(cast_value(value, dtype)))

    def custom_kernel(
        self, *lst: Tensor, fxn: Callable[..., UOp], grad_fxn: Callable[..., Any] | None = None
    ) -> list[Tensor]:
        """These tensors after a kernel written with UOps, which writes to some of them in place.

        `fxn` gets a parameter for each tensor, its elements in order, and returns the kernel:
        STOREs that end their ranges. `grad_fxn(gradient, kernel)` gives a gradient (or None) for
        each of `kernel.src`, the tensors' nodes; without it the kernel's own gradient is taken.

        >>> from weft import UOp
        >>> def double(target, source):
        ...     i = UOp.range(source.size, 0)
        ...     return target.index(i).store(source.index(i).load() * 2, i).sink()
        >>> Tensor.empty(3).custom_kernel(Tensor([1.0, 2.0, 3.0]), fxn=double)[0].tolist()
        [2.0, 4.0, 6.0]
        """
        tensors = [self, *lst]
        parameters = [
            UOp.param(slot, strong_dtype(tensor.dtype), prod(tensor.max_shape))
            for slot, tensor in enumerate(tensors)
        ]
        kernel = fxn(*parameters)
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

    def _state(self, *others: Tensor) -> UOp:
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

    @classmethod
    def from_blob(cls, ptr: int, shape: tuple[int, ...], **kwargs: Any) -> Self:
        """Memory of the host at an address, without a copy; keep its owner alive as long as this.

        >>> import ctypes
        >>> memory = (ctypes.c_float * 2)(1.0, 2.0)
        >>> Tensor.from_blob(ctypes.addressof(memory), (2,), device="CPU").tolist()
        [1.0, 2.0]
        """
        device = Device.canonicalize(kwargs.get("device"))
        if not Device[device].is_host:
            raise DeviceError(f"from_blob needs a device in the host's memory, not {device}")
        dtype = to_dtype(kwargs.get("dtype") or dtypes.default_float)
        buffer = Buffer.from_opaque(device, prod(shape), dtype, ptr)
        return cls._from_uop(node_of(buffer).reshape(shape))

    def __reduce__(self) -> tuple[Any, ...]:
        # what is restored must not write to the file that it was read from
        source = self._elsewhere()
        contents = None if self._cell.pure else bytes(source._bytes())
        value = self.uop if self._cell.pure else None
        place = None if source.device is None else str(source.device)
        fields = (contents, self.shape, self.dtype, place, self.requires_grad, value)
        return _restored, fields

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy with storage of its own; views of one storage, copied together, share the copy."""
        copied = memo.get(id(self._cell))
        if copied is None:
            cell = self._cell
            if cell.pure:
                copied = Cell(cell.value, pure=True)
            else:
                copied = self._view_of(cell, ()).clone()._cell
            memo[id(cell)] = copied
        view = self._view_of(copied, self._moves)
        view.requires_grad = self.requires_grad
        return view

    # ------------------------------------------------------------ training
    @property
    def training(self) -> bool:
        """Whether layers such as dropout train; set it on the class.

        >>> Tensor.training
        False
        """
        return bool(TRAINING)

    @staticmethod
    def train(mode: bool = True) -> Context:
        """Training inside a `with` block or a decorated function.

        >>> with Tensor.train():
        ...     Tensor.training
        True
        """
        return Context(TRAINING=int(mode))

    # ------------------------------------------------------------ gradients
    def backward(self, gradient: Any = None) -> Self:
        """Fill `.grad` of every live float Tensor that this one was computed from.

        It is added to the `.grad` that is there already. Pure constants have none, and
        `requires_grad=False` opts out. Call it before the value is realized: what is in memory
        no longer knows what it was computed from.

        >>> x = Tensor([1.0, 2.0])
        >>> loss = (x * x).sum().backward()
        >>> x.grad.tolist()
        [2.0, 4.0]
        """
        seed = gradients.seed_of("backward", self, gradient)
        gradients.check_not_computed("backward", self)
        graph = gradients.TensorGraph(self.uop)
        targets = [
            (tensor, nodes)
            for tensor in list(Tensor._live.values())
            if tensor.requires_grad is not False
            and (nodes := graph.nodes_of(tensor))
            and dtypes.is_float(tensor.dtype)
        ]
        found = graph.gradients(seed, [nodes for _, nodes in targets])
        for (tensor, _), node in zip(targets, found, strict=True):
            new = tensor._gradient_tensor(node)
            tensor.grad = new if tensor.grad is None else tensor.grad + new
            tensor.grad.requires_grad = False
        return self

    def gradient(self, *targets: Tensor, gradient: Any = None) -> list[Tensor]:
        """The gradients of this with respect to the targets; zeros for what it does not depend on.

        >>> x = Tensor([1.0, 2.0])
        >>> [g.tolist() for g in (x * x).sum().gradient(x)]
        [[2.0, 4.0]]
        """
        seed = gradients.seed_of("gradient", self, gradient)
        for target in targets:
            if not isinstance(target, Tensor):
                raise ArgumentError(
                    f"gradient takes Tensors as targets, found a {type(target).__name__}"
                )
            gradients.check_target(target)
        graph = gradients.TensorGraph(self.uop)
        nodes = [graph.nodes_of(target) for target in targets]
        if not any(nodes):
            gradients.check_not_computed("gradient", self)
        found = graph.gradients(seed, nodes)
        return [x._gradient_tensor(node) for x, node in zip(targets, found, strict=True)]

    def _gradient_tensor(self, node: UOp | None) -> Tensor:
        """A gradient of this tensor, on its device; nothing is zeros."""
        if node is None:
            return self.zeros_like()
        if node.device is None and self.device is not None:
            node = host.pin(node, self.device)
        return Tensor._from_uop(node)

    def requires_grad_(self, requires_grad: bool | None = True) -> Self:
        """Set whether `backward` fills `.grad` of this; a number with one is a storage of its own.

        >>> x = Tensor(3.0).requires_grad_()
        >>> loss = (x * x).backward()
        >>> x.grad.item()
        6.0
        """
        if requires_grad and not dtypes.is_float(self.dtype):
            raise DTypeError(
                f"requires_grad_() of a Tensor of {self.dtype}: only floats have gradients; cast "
                "it first: x.float()"
            )
        if requires_grad and self._cell.pure:
            value = cast_value(self.uop, strong_dtype(self.dtype))
            self._cell, self._moves, self._source = Cell(with_identity(value)), (), None
        self.requires_grad = requires_grad
        return self

    @staticmethod
    def no_grad() -> Context:
        """Inside a `with` block or a decorated function: no gradient passes what is computed there.

        >>> x = Tensor([1.0, 2.0])
        >>> with Tensor.no_grad():
        ...     y = x * 2
        >>> (x * y).sum().gradient(x)[0].tolist()
        [2.0, 4.0]
        """
        return Context(NO_GRAD=1)

    @classmethod
    def _made(cls, node: UOp, device: Devices, requires_grad: bool | None = None) -> Self:
        # equal constants are one node, but each call of a constructor gives its own parameter
        return super()._made(with_identity(node), device, requires_grad)

    def realize(self, *lst: Any, do_update_stats: bool = True) -> Self:
        # equal constants computed together would get one memory, and so become one parameter
        for tensor in (self, *lst):
            if gradients.is_own_constant(tensor._cell.value):
                super(Tensor, tensor).realize()
        return super().realize(*lst, do_update_stats=do_update_stats)

    realize.__doc__ = ValuesMixin.realize.__doc__


def _kernel_rule(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """The gradient of a custom kernel: the user's, over the nodes of its tensors."""
    inputs = node.src[1:]
    parts = static[0](gradient, UOp.sink(*inputs))
    return tuple([part.uop if isinstance(part, Tensor) else part for part in parts])


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


def _restored(
    contents: bytes | None,
    shape: tuple[int, ...],
    dtype: DType,
    device: str | None,
    requires_grad: bool | None,
    value: UOp | None,
) -> Tensor:
    """What a pickled Tensor becomes: a pure constant, or storage of its own."""
    if contents is None:
        return Tensor(value, requires_grad=requires_grad)
    flat = Tensor(contents, device=device, dtype=dtype, requires_grad=requires_grad)
    return flat.reshape(shape)
