"""What the JIT knows of a tensor: its structure without its memory, and its memory by itself.

In: tensors. Out: `describe(tensor)`: a structure that two tensors share if one graph serves both,
the BUFFER behind, and the values of the variables in it; stand-ins that mark memory as an input
while a function is recorded.
First of the JIT's rooms, just above Tensor.
Invariant: the structure holds no memory, no address and no variable's value.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from weft.engine.cell import Cell
from weft.engine.storage import buffer_of, held_with, node_of, storages_of, whole_of
from weft.helpers import prod
from weft.tensor import Tensor
from weft.uop.node import UOp
from weft.uop.opset import Ops

Move = tuple[Ops, Any]
_NOTHING: dict[str, int] = {}


class Description(NamedTuple):
    """A tensor for the JIT: `storage` is None for a pure constant."""

    structure: tuple[Any, ...]
    storage: UOp | None
    variables: dict[str, int]


class Kind(NamedTuple):
    """What Python can ask of a tensor without its values."""

    shape: tuple[Any, ...]
    dtype: Any
    device: Any
    requires_grad: bool | None

    @classmethod
    def of(cls, tensor: Tensor) -> Kind:
        """That of a tensor now."""
        return cls(tensor.shape, tensor.dtype, tensor.device, tensor.requires_grad)


class Window(NamedTuple):
    """A view that is one run of elements of its storage: `rest` are the moves after it."""

    start: int
    size: int
    shape: tuple[int, ...]
    first: tuple[Move, ...]
    rest: tuple[Move, ...]


_moves_known: dict[tuple[Move, ...], tuple[Any, dict[str, int]]] = {}
_windows_known: dict[tuple[Any, ...], Window | None] = {}
_KNOWN_AT_MOST = 4096


def free_of(value: Any) -> tuple[Any, dict[str, int]]:
    """A UOp, or nested tuples with UOps, over free variables; and the values they were bound to.

    Raises KeyError if one name is bound to two values: such a thing has no free form.
    """
    values: dict[str, int] = {}
    return _free(value, values), values


def _free(part: Any, values: dict[str, int]) -> Any:
    if isinstance(part, tuple):
        return tuple([_free(p, values) for p in part])
    if not isinstance(part, UOp):
        return part
    result, bound = part.unbind_all()
    for variable, number in bound.items():
        if values.setdefault(variable.arg.name, number) != number:
            raise KeyError(variable.arg.name)
    return result


def bind_again(value: Any, values: dict[str, int]) -> Any:
    """A UOp, or nested tuples with UOps, with its variables bound to these values."""
    if isinstance(value, tuple):
        return tuple([bind_again(part, values) for part in value])
    if not isinstance(value, UOp):
        return value
    bound = {v: v.bind(values[v.arg.name]) for v in value.variables() if v.arg.name in values}
    return value.substitute(bound) if bound else value


def describe(tensor: Tensor, window: Window | None = None) -> Description:
    """A realized (or purely constant) tensor; inside a window the place in storage is left out."""
    cell = tensor._cell
    value = cell.value
    moves = tensor._moves
    variables = _NOTHING
    shape: Any
    if cell.pure:
        value, variables = free_of(value)
        free, more = _free_moves(moves)
        pure = ("pure", value, free, tensor.requires_grad)
        return Description(pure, None, {**variables, **more})
    if value.op is Ops.BUFFER:
        storage, shape = value, None
    elif value.op is Ops.RESHAPE and len(value.src) == 1 and value.src[0].op is Ops.BUFFER:
        storage, shape = value.src[0], value.arg
    else:
        found = cell.storage
        assert found is not None, "only what is realized can be described"
        storage = found
        shape, variables = free_of(value.shape)
    if window is not None:
        moves = window.rest
        size, shape = window.size, ("window", window.shape)
    else:
        size = storage.arg.size
    if moves:
        free, more = _free_moves(moves)
        variables = {**variables, **more} if more else variables
    else:
        free = ()
    shared = Cell.is_shared(storage)
    place = storage.arg.device
    structure = (
        storage.dtype,
        place if type(place) is str else (place, storage.arg.layout),
        size,
        shape,
        free,
        shared,
        tensor.requires_grad,
    )
    return Description(structure, storage, variables)


def _free_moves(moves: tuple[Move, ...]) -> tuple[Any, dict[str, int]]:
    found = _moves_known.get(moves)
    if found is None:
        if len(_moves_known) >= _KNOWN_AT_MOST:
            _moves_known.clear()
        found = _moves_known[moves] = free_of(moves)
    return found


def window_of(tensor: Tensor) -> Window | None:
    """The run of elements that a view is of, if it is a proper part of its storage."""
    moves = tensor._moves
    if not moves or all(op is not Ops.SHRINK for op, _ in moves):
        return None
    shape = tensor._cell.value.shape
    key = (shape, moves)
    if key not in _windows_known:
        if len(_windows_known) >= _KNOWN_AT_MOST:
            _windows_known.clear()
        _windows_known[key] = _find_window(shape, moves)
    return _windows_known[key]


def _find_window(shape: tuple[Any, ...], moves: tuple[Move, ...]) -> Window | None:
    start = 0
    count = 0
    whole = shape
    best: Window | None = None
    if not all(isinstance(size, int) for size in shape):
        return None
    for op, arg in moves:
        count += 1
        if op not in (Ops.RESHAPE, Ops.SHRINK) or not _is_concrete(arg):
            break
        if op is Ops.RESHAPE:
            shape = arg
            if best is not None:
                best = Window(start, prod(shape), shape, moves[:count], moves[count:])
            continue
        offset = _run_start(shape, arg)
        if offset is None:
            break
        start += offset
        shape = tuple(stop - first for first, stop in arg)
        best = Window(start, prod(shape), shape, moves[:count], moves[count:])
    return best if best is not None and 0 < best.size < prod(whole) else None


def _is_concrete(arg: Any) -> bool:
    if isinstance(arg, tuple):
        return all(_is_concrete(part) for part in arg)
    return isinstance(arg, int)


def _run_start(shape: tuple[int, ...], box: tuple[tuple[int, int], ...]) -> int | None:
    """Where a box starts whose elements follow each other in storage; None if they do not."""
    offset, stride, whole = 0, 1, True
    for size, (start, stop) in zip(reversed(shape), reversed(box), strict=True):
        if not whole and stop - start != 1:
            return None
        offset += start * stride
        stride *= size
        whole = whole and start == 0 and stop == size
    return offset


def _over(storage: UOp) -> UOp:
    """A BUFFER node of its own over the memory of another."""
    nodes = [node_of(buffer_of(part).ensure_allocated()) for part in storages_of(storage)]
    is_one = type(storage.arg.device) is str
    return nodes[0] if is_one else whole_of(nodes, storage.arg.layout)


class StandIn:
    """Memory that is marked as an input: a BUFFER node of its own over the memory of another."""

    __slots__ = ("cell", "node", "original", "storage", "window")

    def __init__(self, original: Cell, window: Window | None) -> None:
        storage = original.storage
        assert storage is not None
        self.original = original
        self.storage = storage
        self.window = window
        if window is None:
            self.node = _over(storage)
            value = original.value.substitute({storage: self.node})
        else:
            memory = buffer_of(storage).ensure_allocated()
            part = memory.view(window.size, memory.dtype, window.start * memory.dtype.itemsize)
            self.node = node_of(part)
            held_with(self.node).is_part = True
            value = self.node
            if window.shape != value.shape:
                value = value._mop(Ops.RESHAPE, window.shape)
        self.cell = Cell(value)
        self.cell.is_asked = original.is_asked
        if Cell.is_shared(storage):
            held_with(self.node).is_shared = True

    def original_of(self, value: UOp) -> UOp:
        """A value over the stand-in as one over the storage itself."""
        if self.window is None:
            return value.substitute({self.node: self.storage})
        stop = self.window.start + self.window.size
        return value.substitute(
            {self.node: self.storage._mop(Ops.SHRINK, ((self.window.start, stop),))}
        )
