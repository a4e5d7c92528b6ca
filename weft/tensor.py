"""Tensor: what a user holds. A storage (its Cell) and the movement ops that make a view of it.

In: Python numbers, lists, arrays; other tensors. Out: UOp graphs, and values when asked.
Sits at the top of the compiler: everything below is reached through `realize`.
Invariant: building an expression never computes. `tensor.uop` is its cell's value with the moves
applied, so assigning to a storage is seen by every view of it.
"""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Self

from weft.device import Device
from weft.dtype import (
    DType,
    dtypes,
    strong_dtype,
    to_dtype,
    weak_dtype,
)
from weft.engine import eager, forms, gradients, host
from weft.engine.cell import Cell
from weft.engine.conditions import check_bound
from weft.engine.live import LiveSet
from weft.engine.operands import apply_moves, broadcast, cast_value, promote, user_line
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.gradient import NO_GRAD, of_nothing, with_identity
from weft.knobs import TRAINING
from weft.mixin.cached import CACHED
from weft.mixin.compat import NAMES
from weft.mixin.fitting import certain, misfit, side_of
from weft.mixin.gradients import GradientsMixin
from weft.mixin.movement import broadcast_shape
from weft.mixin.values import Move, ValuesMixin
from weft.uop.args import ReduceArg
from weft.uop.node import UOp
from weft.uop.opset import OPSET, GroupOp, Ops, Typing

Devices = str | tuple[str, ...] | None

# what an op means on bools: they are the two-element algebra, not numbers
_ON_BOOLS = {Ops.ADD: Ops.OR, Ops.MUL: Ops.AND}
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


class Tensor(GradientsMixin, metaclass=_TensorType):
    """A multidimensional array whose values are computed when they are needed.

    >>> (Tensor([1, 2, 3]) * 2).tolist()
    [2, 4, 6]
    """

    # programs hang names, scales and the like on their tensors: __dict__ is made when one does
    __slots__ = (
        "__dict__",
        "__weakref__",
        "_cell",
        "_moves",
        "_requires_grad",
        "_uop",
        "grad",
    )
    _cell: Cell
    _moves: tuple[Move, ...]
    # what the moves make of the cell's value; the cell takes it back when its value changes
    _uop: UOp | None
    # for backward, which looks for the tensors of a graph
    _live: ClassVar[LiveSet[Tensor]] = LiveSet()
    # NumPy lets a Tensor handle `array + tensor` instead of looping over it
    __array_priority__ = 1000

    def __init__(
        self,
        data: Any = None,
        device: Devices = None,
        dtype: DType | str | None = None,
        requires_grad: bool | None = None,
    ) -> None:
        """From a number, bytes, lists, an array, a file's Path, a Variable, a UOp, a Tensor.

        An array is copied, PyTorch's and others that speak DLPack too. None is the number 0.

        With a `dtype`, ints that it does not hold wrap, as those that are cast to it do (NumPy
        raises instead); floats saturate.

        >>> Tensor([[1, 2], [3, 4]]).shape
        (2, 2)
        >>> Tensor([300, -1], dtype="int8").tolist(), Tensor([300.0], dtype="int8").tolist()
        ([44, -1], [127])
        """
        chosen = None if dtype is None else to_dtype(dtype)
        place = None if device is None else Device.canonicalize(device)
        if hasattr(data, "__dlpack__") and not isinstance(data, Tensor) and not host.is_numpy(data):
            data = _copy_of_array(data, place)
        self._moves = ()
        self._uop = None
        if isinstance(data, Tensor):
            other = data if chosen is None else data.cast(chosen)
            other = other if place is None else other.to(place)
            self._cell, self._moves = other._cell, other._moves
        elif data is None:
            self._cell = Cell(host.number(0.0, place, chosen), pure=True)
        elif isinstance(data, (bool, int, float)) and not host.is_numpy(data):
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
            value = host.from_host(data, place, chosen)
            if type(place) is tuple:
                value = host.pin(value, place)
            value.origin = user_line()
            self._cell = Cell(value)
        self.grad: Tensor | None = None
        self.requires_grad = requires_grad
        # last: data that is refused must leave nothing half-made among the live ones
        Tensor._live.add(self)

    # ------------------------------------------------------------ the graph behind
    @property
    def uop(self) -> UOp:
        """The expression this tensor stands for.

        >>> Tensor(3.0).uop.op
        Ops.CONST
        """
        if not self._moves:
            node = self._cell._node
            return self._cell.value if node is None else node
        found = self._uop
        if found is None:
            found = self._uop = apply_moves(self._cell.value, self._moves)
            self._cell.seen_by(self)
        return found

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
        tensor._uop = None
        tensor.grad = None
        tensor._requires_grad = None
        Tensor._live.add(tensor)
        return tensor

    @property
    def shape(self) -> tuple[Any, ...]:
        """The sizes of the axes.

        >>> Tensor([[1, 2, 3]]).shape
        (1, 3)
        """
        node = self._cell._node
        if node is not None and not self._moves:
            return node.shape
        form = self._form
        return self.uop.shape if form is None else form.shape

    @property
    def dtype(self) -> DType:
        """The type of the elements.

        >>> Tensor([1.0]).dtype
        dtypes.float
        """
        node = self._cell._node
        if node is not None and not self._moves:
            return node.dtype
        form = self._form
        return self.uop.dtype if form is None else form.dtype

    @property
    def device(self) -> Devices:
        """Where it lives; None for what is computed from numbers alone.

        >>> Tensor(3.0).device is None
        True
        """
        node = self._cell._node
        if node is not None and not self._moves:
            return node.device
        form = self._form
        return self.uop.device if form is None else form.device

    @property
    def _form(self) -> forms.Form | None:
        """The form of a value whose graph is not built yet, or of a view that is known."""
        cell = self._cell
        formed, write = cell.formed, cell.write
        if cell._node is not None:
            return formed[0].views.get(self._moves) if formed and self._moves else None
        if not formed and not write:
            return None
        form: forms.Form = formed[0] if formed else write[0].place
        return form.moved(self._moves) if self._moves else form

    def __repr__(self) -> str:
        state = "realized" if self._cell.is_realized else "lazy"
        where = "" if self.device is None else f" on {self.device}"
        return f"<Tensor {self.shape} {self.dtype}{where} ({state})>"

    # by identity; elements are what == compares
    __hash__ = object.__hash__

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
        if op is Ops.SHRINK and len(view.uop.src) > 1:
            check_bound(view.uop)
        return view

    def _cat(self, others: Sequence[Self], axis: int) -> Self:
        parts = (self, *others)
        dtype, pure = promote(parts)
        nodes = tuple([cast_value(part.uop, dtype) for part in parts])
        return self._from_uop(UOp(Ops.CAT, dtype, nodes, axis), pure)

    def _reduce_axis(self, op: Ops, axes: tuple[int, ...]) -> Self:
        if any(isinstance(self.shape[i], int) and self.shape[i] == 0 for i in axes):
            shape = tuple(1 if i in axes else size for i, size in enumerate(self.shape))
            row = OPSET[op]
            start = UOp.const(self.dtype, self.dtype.min if op is Ops.MAX else row.identity)
            nothing = self._from_uop(start, self._cell.pure).expand(shape)
            nothing = nothing if self.device is None else nothing.to(self.device)
            if self._cell.pure or not dtypes.is_float(self.dtype):
                return nothing
            # an empty batch gives what it was computed from a gradient, which is zero
            return self._from_uop(of_nothing(nothing.uop, self.uop))
        node = UOp(Ops.REDUCE_AXIS, self.dtype, (self.uop,), ReduceArg(op, axes))
        return self._from_uop(node, self._cell.pure)

    def _operand(self, x: Any) -> Self:
        lifted = self._lift(x)
        if not isinstance(lifted, (bool, int, float)):
            return lifted
        dtype = weak_dtype(lifted)
        if dtype is dtypes.weakint and not dtype.min <= lifted <= dtype.max:
            # as a number without a dtype it would not be itself
            dtype = self.dtype if self.dtype.kind != "bool" else dtypes.weakint
        return self._from_uop(UOp.const(dtype, lifted), pure=True)

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

    def _limit(self, x: Any, side: int) -> Any:
        if self.dtype.kind not in ("int", "uint") or not isinstance(x, int):
            return x
        return None if side_of(x, self.dtype) == side else x

    def _constant(self, b: Any) -> Self:
        return self._from_uop(UOp.const(self.dtype, b), pure=True)

    def const_like(self, b: Any, dtype: DType | None = None) -> Self:
        """A constant of this tensor's shape and dtype.

        >>> Tensor([1, 2]).const_like(7).tolist()
        [7, 7]
        """
        node = UOp.const(self.dtype if dtype is None else to_dtype(dtype), b)
        return self._from_uop(node, pure=True).expand(self.shape)

    def alu(self, op: Ops, *src: Any) -> Self:
        """One elementwise op of the op table, with promotion and broadcast.

        >>> from weft.uop.ops import Ops
        >>> Tensor([1, 2]).alu(Ops.ADD, 3).tolist()
        [4, 5]
        """
        if op is Ops.WHERE:
            return self.where(*src)
        if not isinstance(op, Ops) or op not in GroupOp.Elementwise:
            raise ArgumentError(f"alu takes an elementwise op such as Ops.ADD, found {op!r}")
        return self._combined(op, (self, *[self._lift(x) for x in src]))

    def _binop(self, op: Ops, x: Any, reverse: bool) -> Self:
        other = self._lift(x)
        return self._combined(op, (other, self) if reverse else (self, other))

    def _combined(self, op: Ops, operands: tuple[Any, ...]) -> Self:
        """An op of operands that are tensors or numbers."""
        dtype, pure = promote(operands)
        if dtype is dtypes.bool:
            op = _ON_BOOLS.get(op, op)
            if op in (Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR):
                dtype = dtypes.default_int
        row = OPSET[op]
        if row.on != "any" and not _TAKES[row.on][0](dtype):
            raise DTypeError(f"{op.name} ({row.meaning}) takes {_TAKES[row.on][1]}, found {dtype}")
        if dtype.kind in ("int", "uint"):
            position = misfit(operands, dtype)
            if position is not None:
                found = self._beside_misfit(op, operands, dtype, position)
                if found is not None:
                    return found
        result = dtypes.bool if row.typing is Typing.COMPARE else dtype
        return self._from_uop(UOp(op, result, broadcast(operands, dtype)), pure)

    def _beside_misfit(
        self, op: Ops, operands: tuple[Any, ...], dtype: DType, position: int
    ) -> Self | None:
        """An op of ints and an operand whose values they do not hold, at `position`.

        None where the operand's low bits are taken.
        """
        side = side_of(operands[position], dtype)
        answer = certain(op, side, position == 0, dtype) if side else None
        if answer is not None:
            shapes = [x.shape for x in operands if isinstance(x, Tensor)]
            node = broadcast(operands, dtype)[1 - position].expand(broadcast_shape(*shapes))
            return self._from_uop(node.alu(answer, node), promote(operands)[1])
        if op in GroupOp.Comparison and dtype.itemsize < dtypes.int64.itemsize:
            wide = [x.cast(dtypes.int64) if isinstance(x, Tensor) else x for x in operands]
            return self._combined(op, tuple(wide))
        return None

    def _marked(self, tag: str) -> Self:
        """The same, with what a decomposition may know about it."""
        return self._from_uop(self.uop.rtag(tag), self._cell.pure)

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
        if not isinstance(x, Tensor) or x.shape != self.shape:
            found = x.shape if isinstance(x, Tensor) else type(x).__name__
            raise ShapeError(f"replace needs a tensor of shape {self.shape}, found {found}")
        self._become(x._cell, x._moves)
        self.requires_grad = self.requires_grad
        return self

    def _become(self, cell: Cell, moves: tuple[Move, ...]) -> None:
        self._cell, self._moves, self._uop = cell, moves, None

    def _ask(self, value: bool | None) -> None:
        self._requires_grad = value
        if value:
            self._cell.is_asked = True

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

    # ------------------------------------------------------------ computing
    @classmethod
    def _made(cls, node: UOp, device: Devices, requires_grad: bool | None = None) -> Self:
        # equal constants are one node, but each call of a constructor gives its own parameter
        return super()._made(with_identity(node), device, requires_grad)

    def realize(self, *lst: Any, do_update_stats: bool = True) -> Self:
        if self._cell._node is None:
            if lst:
                is_done = eager.realize_forms([self._cell, *[tensor._cell for tensor in lst]])
            elif self._cell.write:
                is_done = eager.realize_write(self._cell)
            else:
                is_done = eager.realize_form(self._cell)
            if is_done:
                return self
        # equal constants computed together would get one memory, and so become one parameter
        for tensor in (self, *lst):
            if gradients.is_own_constant(tensor._cell.value):
                super(Tensor, tensor).realize()
        return super().realize(*lst, do_update_stats=do_update_stats)

    realize.__doc__ = ValuesMixin.realize.__doc__


def _copy_of_array(data: Any, device: Devices) -> Tensor:
    """The values of another library's array, such as PyTorch's, as they are now."""
    source = data.detach() if hasattr(data, "detach") else data
    try:
        shared = Tensor.from_dlpack(source)
    except ArgumentError:
        # of a device that is none of ours; PyTorch's arrays know the way to the host
        if not hasattr(source, "cpu"):
            raise
        shared = Tensor.from_dlpack(source.cpu())
    return shared.clone(device if isinstance(device, str) else Device.DEFAULT).realize()


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


for _name in CACHED:
    setattr(Tensor, _name, forms.cached(_name, getattr(Tensor, _name), Tensor))

# as it is called in tinygrad
all_tensors = Tensor._live


def __getattr__(name: str) -> Any:
    """Names that programs for tinygrad import from here."""
    if name not in NAMES:
        raise AttributeError(f"module 'weft.tensor' has no attribute {name!r}")
    return NAMES[name]
