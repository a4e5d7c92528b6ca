"""Values of tensors: realize, schedule, and reading them out.

In: tensors. Out: memory that holds their values; numbers, lists, arrays.
Sits above the engine, one of the Tensor families, below those that write.
Invariant: what is known without computing (a constant, an empty tensor) needs no device.
"""

from __future__ import annotations

from typing import Any, Self

from weft.device import Buffer, Device
from weft.dtype import NARROW_FLOATS, dtypes, to_numpy_dtype
from weft.engine import dlpack, host, record
from weft.engine import realize as engine
from weft.engine.cell import Cell
from weft.engine.operands import Move
from weft.engine.programs import runner_for
from weft.engine.storage import buffer_of, node_of
from weft.errors import (
    ArgumentError,
    DeviceError,
    DTypeError,
    IndexingError,
    ShapeError,
    UnsupportedError,
)
from weft.helpers import prod
from weft.mixin.bits import BitsMixin
from weft.mixin.creation import Devices
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# if all elements are one number, they still are after these
_MOVED_ONLY = GroupOp.View | {Ops.EXPAND, Ops.COPY, Ops.CONTIGUOUS, Ops.DETACH}


_READ_AS_THEY_ARE = frozenset(
    {dtypes.bool, dtypes.float16, dtypes.float32, dtypes.float64, *dtypes.ints} - {*dtypes.weaks}
)


class ValuesMixin(BitsMixin):
    """Methods over the protocol `_cell`, `_moves`, `_view_of`, which Tensor provides."""

    __slots__ = ()
    _cell: Cell
    _moves: tuple[Move, ...]
    grad: Any

    @property
    def _covers_storage(self) -> bool:
        """Whether this is the whole storage in order. Provided by the class."""
        raise NotImplementedError

    @classmethod
    def _view_of(cls, cell: Cell, moves: tuple[Move, ...]) -> Self:
        """A view of a storage. Provided by the class."""
        raise NotImplementedError

    def clone(self, device: Devices = None) -> Self:
        """A copy with its own storage. Provided by the class."""
        raise NotImplementedError

    def _elsewhere(self) -> Self:
        """This where it can be computed with. Provided by the class."""
        raise NotImplementedError

    # ------------------------------------------------------------ computing
    def realize(self, *lst: Any, do_update_stats: bool = True) -> Self:
        """Compute this tensor and the others now.

        >>> Tensor([1, 2], device="CPU").add(1).realize()
        <Tensor (2,) dtypes.int on CPU (realized)>
        """
        cells = dict.fromkeys([self._cell, *[tensor._cell for tensor in lst]])
        pending = [cell for cell in cells if not cell.pure and not cell.is_realized]
        if pending:
            engine.realize_cells(pending, Cell.live)
        return self

    def schedule(self, *lst: Any) -> Any:
        """The kernels that would compute this tensor and the others, in order; nothing runs.

        >>> len(Tensor([1, 2]).add(1).schedule())
        1
        """
        cells = dict.fromkeys([self._cell, *[tensor._cell for tensor in lst]])
        return engine.schedule_cells(
            [cell for cell in cells if not cell.pure and not cell.is_realized]
        )

    def callify(self, *lst: Any) -> Self:
        """The kernels that will compute this tensor and the others made ready; nothing runs.

        >>> Tensor([1, 2]).add(1).callify().tolist()
        [2, 3]
        """
        for item in self.schedule(*lst):
            if item.kernel is not None:
                runner_for(item.kernel, str(item.device))
        return self

    # ------------------------------------------------------------ how much there is
    def size(self, dim: int | None = None) -> Any:
        """The shape, or the size of one axis.

        >>> Tensor.zeros(2, 3).size(), Tensor.zeros(2, 3).size(1)
        ((2, 3), 3)
        """
        if dim is None:
            return self.shape
        axis = self._axis(dim)
        if not self.ndim:
            raise IndexingError(f"size of axis {dim} of a tensor of shape (): it has none")
        return self.shape[axis]

    def nbytes(self) -> Any:
        """How many bytes the elements take.

        >>> Tensor.zeros(2, 3).nbytes()
        24
        """
        return self.numel() * self.element_size()

    @property
    def max_shape(self) -> tuple[int, ...]:
        """The shape with each symbolic size at its greatest.

        >>> Tensor.zeros(2, 3).max_shape
        (2, 3)
        """
        return tuple(int(size.vmax) if isinstance(size, UOp) else size for size in self.shape)

    def max_numel(self) -> int:
        """How many elements there can be at most.

        >>> Tensor.zeros(2, 3).max_numel()
        6
        """
        return int(prod(self.max_shape))

    # ------------------------------------------------------------ reading
    def _stored(self) -> Self:
        """This value in memory, as a whole storage in order."""
        cell = self._cell
        value = self
        if cell.pure or (cell.storage is None and self.device is None and self._moves):
            # constants stay constants: only what is asked for is computed, and given away
            strong = self.cast(host.storage_dtype(self.uop)).uop
            value = self._view_of(Cell(UOp(Ops.CONTIGUOUS, strong.dtype, (strong,))), ())
        return value.realize()

    def _buffer(self) -> Buffer:
        """The memory of this value, in order."""
        recorder = record.active()
        if recorder is not None:
            recorder.refuse("reads the values of a Tensor (item(), tolist(), numpy(), data())")
        stored = self._stored()
        if type(stored.device) is tuple:
            return stored._elsewhere()._buffer()
        if not stored._covers_storage:
            stored = stored.contiguous().realize()
        storage = stored._cell.storage
        if storage is None:
            raise DeviceError(f"{self!r} was realized but has no memory")
        return buffer_of(storage)

    def _folded(self) -> Any:
        """The one number that every element is, if that is known without computing; else None."""
        if self.device is not None and not self._cell.pure:
            return None
        node = self.uop
        done: dict[UOp, UOp] = {}
        for part in node.toposort():
            if part.op in _MOVED_ONLY and part.src:
                done[part] = done[part.src[0]]
            elif part.op in (Ops.CONST, Ops.BIND, Ops.VARIABLE):
                done[part] = part.src[1] if part.op is Ops.BIND else part
            elif part.op in GroupOp.Elementwise:
                done[part] = part.with_src(tuple([done[s] for s in part.src])).simplify()
            else:
                return None
        result = done[node]
        return result.arg if result.op is Ops.CONST else None

    def _readable(self) -> Self:
        """This in a dtype that Python and NumPy can read."""
        if self.dtype in _READ_AS_THEY_ARE:
            return self
        narrow = self.dtype in NARROW_FLOATS and self.dtype is not dtypes.float16
        target = dtypes.float32 if narrow else host.storage_dtype(self.uop)
        return self.cast(target)

    def _concrete_shape(self) -> tuple[int, ...]:
        shape = self.shape
        if all([type(size) is int for size in shape]):
            return shape
        sizes = []
        for size in shape:
            if isinstance(size, UOp):
                bound = {u: u.src[1] for u in size.toposort() if u.op is Ops.BIND}
                size = size.substitute(bound).ssimplify()
            sizes.append(int(size))
        return tuple(sizes)

    def _bytes(self) -> memoryview:
        """The bytes of the elements in order, without the device if every element is known."""
        shape = self._concrete_shape()
        number = self._folded()
        if number is not None or prod(shape) == 0:
            one = host.pack([0 if number is None else number], self.dtype)
            return memoryview(one * prod(shape))
        # the memory of a symbolic shape is as large as it can get
        return (
            self._buffer().ensure_allocated().as_memoryview()[: prod(shape) * self.dtype.itemsize]
        )

    def data(self) -> memoryview:
        """The values as a memoryview with their shape.

        >>> Tensor([[1, 2], [3, 4]]).data().tolist()
        [[1, 2], [3, 4]]
        """
        source = self._readable()
        shape = source._concrete_shape()
        raw = source._bytes()
        try:
            if prod(shape) == 0:
                return raw.cast(source.dtype.fmt)
            return raw.cast("B").cast(source.dtype.fmt, shape)
        except ValueError:
            # before 3.12 Python had no half floats
            raise UnsupportedError(
                f"this Python has no memoryview of {source.dtype}; read x.float().data()"
            ) from None

    def tolist(self) -> Any:
        """The values as nested lists.

        >>> Tensor([[1, 2], [3, 4]]).tolist()
        [[1, 2], [3, 4]]
        """
        source = self._readable()
        return host.nest(host.unpack(source._bytes(), source.dtype), source._concrete_shape())

    def item(self) -> Any:
        """The one value of a tensor of one element.

        >>> Tensor([1, 2]).sum().item()
        3
        """
        shape = self._concrete_shape()
        if shape and prod(shape) != 1:
            raise ShapeError(f"item() takes a Tensor of one element, found shape {self.shape}")
        source = self._readable()
        return host.unpack(source._bytes(), source.dtype)[0]

    def numpy(self) -> Any:
        """The values as a NumPy array; types that NumPy lacks come as float32.

        >>> Tensor([[1, 2], [3, 4]]).numpy().sum()
        np.int64(10)
        """
        import numpy

        source = self._readable()
        flat = numpy.frombuffer(source._bytes(), dtype=to_numpy_dtype(source.dtype))
        array = flat.reshape(source._concrete_shape())
        return array if array.flags.writeable else array.copy()

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        """For NumPy: `numpy.asarray(t)` shares the memory of a tensor that the host can read.

        Writing to one is seen by the other. `copy=True`, or `t.numpy()`, copies; another dtype and
        memory of another device need a copy, which `copy=False` refuses.
        """
        import numpy

        wanted = None if dtype is None else numpy.dtype(dtype)
        source = self._readable()
        converted = wanted is not None and wanted != numpy.dtype(to_numpy_dtype(source.dtype))
        shared = source.dtype is self.dtype and source._is_readable_in_place()
        if copy is False and (converted or not shared):
            raise ArgumentError(
                f"NumPy needs a copy of this {self.dtype} tensor on {self.device}, but copy=False"
            )
        if not shared or copy:
            array = self.numpy()
            return array.astype(wanted) if converted else array
        shape = source._concrete_shape()
        memory = source._buffer().ensure_allocated().as_memoryview(allow_zero_copy=True)
        flat = numpy.frombuffer(memory, to_numpy_dtype(source.dtype), prod(shape))
        array = flat.reshape(shape)
        return array.astype(wanted) if converted else array

    def _is_readable_in_place(self) -> bool:
        """Whether NumPy can use the memory of this value as it is."""
        opened = Device[self._sharing_place()]
        return opened.is_host and opened.executes and prod(self._concrete_shape()) > 0

    @property
    def __array_interface__(self) -> dict[str, Any]:
        """The same memory for who asks by this name, as Pillow does."""
        source = self._readable()
        if source.dtype is not self.dtype or not self._is_readable_in_place():
            raise AttributeError(
                f"a {self.dtype} Tensor on {self.device} has no __array_interface__: NumPy cannot "
                "read it in place; t.numpy() copies"
            )
        array = self.__array__()
        described: dict[str, Any] = dict(array.__array_interface__)
        # the array, not its address: it keeps the memory alive
        return {**described, "data": array, "strides": array.strides}

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def tobytes(self) -> bytes:
        """The bytes of the elements in order.

        >>> Tensor([1, 2], dtype="uint8").tobytes()
        b'\\x01\\x02'
        """
        return bytes(self._readable()._bytes())

    # ------------------------------------------------------------ memory shared with others
    @classmethod
    def from_dlpack(cls, x: Any, device: Devices = None) -> Self:
        """The memory of an array of another library, without a copy if it is in order.

        The Tensor is on the device whose memory that is; with a `device` that is another one, it is
        copied there.

        >>> import numpy
        >>> array = numpy.array([1.0, 2.0], dtype=numpy.float32)
        >>> t = Tensor.from_dlpack(array)
        >>> array[0] = 5.0
        >>> t.tolist()
        [5.0, 2.0]
        """
        wanted = None if device is None else str(Device.canonicalize(device))
        taken = dlpack.take(x, wanted)
        made = cls._from_taken(taken)
        return made if wanted is None or wanted == taken.device else made.to(wanted)

    @classmethod
    def _from_taken(cls, taken: dlpack.Taken) -> Self:
        size = prod(taken.shape)
        pairs = list(zip(taken.shape, taken.strides, strict=True))
        # the elements from the first to the last one in memory
        start = sum((count - 1) * step for count, step in pairs if step < 0) if size else 0
        span = 1 + sum((count - 1) * abs(step) for count, step in pairs) if size else 0
        address = taken.address + start * taken.dtype.itemsize
        buffer = Buffer.from_opaque(taken.device, span, taken.dtype, address, taken.owner)
        flat = cls._from_uop(node_of(buffer))
        order = sorted(range(len(pairs)), key=lambda axis: (-pairs[axis][1], axis))
        sizes = [taken.shape[axis] for axis in order]
        if span == size and [taken.strides[axis] for axis in order] == dlpack.row_major(sizes):
            back = sorted(range(len(order)), key=lambda place: order[place])
            made = flat.reshape(sizes).permute(back)
            return made.clone() if taken.is_read_only else made
        index = cls._iota(1).reshape((1,) * len(pairs)) - start
        for axis, (count, step) in enumerate(pairs):
            shape = [count if i == axis else 1 for i in range(len(pairs))]
            index = index + (cls._iota(count) * step).reshape(shape)
        return flat._take({0: index.expand(taken.shape)})

    def __dlpack__(
        self,
        *,
        stream: Any = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """The memory of this tensor for another library, without a copy.

        Work that the other library submits to `stream` waits for what is computed here.
        """
        source = self.clone() if copy else self._elsewhere()
        place = Device[source._sharing_place()]
        if dl_device not in (None, place.memory_kind) and copy is not False:
            kind = (int(dl_device[0]), int(dl_device[1]))
            found = Device.with_memory(kind)
            if found is not None:
                source, place = source.to(found.name), found
        if place.memory_kind is None or dl_device not in (None, place.memory_kind):
            raise DeviceError(
                f"DLPack of a Tensor on {place.name} for memory {dl_device}: its memory cannot be "
                "shared so; move it to another device first"
            )
        source = source.cast(host.storage_dtype(source.uop))
        versioned = max_version is not None and max_version[0] >= 1
        buffer = source._buffer()
        place.let_wait(stream)
        return dlpack.give(buffer, source._concrete_shape(), versioned)

    def __dlpack_device__(self) -> tuple[int, int]:
        """The kind of memory that `__dlpack__` shares, and which of that kind."""
        return Device[self._elsewhere()._sharing_place()].memory_kind or dlpack.HOST

    def _sharing_place(self) -> str:
        return str(Device.canonicalize(None) if self.device is None else self.device)

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        """The memory of a Tensor on a GPU for libraries that know it by this name."""
        place = Device[self._sharing_place()]
        if place.memory_kind is None or place.memory_kind[0] != dlpack.GPU_KIND:
            raise AttributeError(f"a Tensor on {place.name} has no __cuda_array_interface__")
        source = self.cast(host.storage_dtype(self.uop))
        if source.dtype in NARROW_FLOATS and source.dtype is not dtypes.float16:
            raise DTypeError(f"__cuda_array_interface__ has no {source.dtype}; cast it first")
        buffer = source._buffer()
        kind = {"float": "f", "int": "i", "uint": "u", "bool": "b"}[source.dtype.kind]
        return {
            "shape": source._concrete_shape(),
            "typestr": f"{'|' if source.dtype.itemsize == 1 else '<'}{kind}{source.dtype.itemsize}",
            "data": (buffer.address if buffer.size else 0, False),
            "strides": None,
            "stream": place.stream,
            "version": 3,
        }
