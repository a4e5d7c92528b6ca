"""Where the bytes of a file format come from: a file, a uint8 Tensor, or bytes in memory.

In: a path, a Tensor or bytes. Out: a `ByteSource` that reads pieces and gives lazy Tensors over
ranges of the bytes. The ground floor of `nn.formats`: every loader reads through it.
Invariant: nothing outside the source's real size is ever read, and no size that a file claims is
allocated before it was compared with the real one.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from weft.dtype import DType, dtypes
from weft.engine.host import is_storage
from weft.errors import ArgumentError, DataError, MissingFileError
from weft.helpers import prod
from weft.tensor import Tensor

# A shape may have one size 0 and others of any value; beyond this no size means anything.
LARGEST_SIZE = (1 << 63) - 1
_BLOCK = 1 << 16
_OPENINGS = 100

Readable = Tensor | str | os.PathLike[str] | bytes | bytearray | memoryview


class ByteSource(ABC):
    """Bytes 0 to `size` of something, read piece by piece."""

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        self.size = size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:  # noqa: B027
        """Lets go of the file. Tensors made by `view` stay valid."""

    def check(self, start: int, length: int, what: str) -> None:
        """Raises if `length` bytes from `start` on are not all inside."""
        if start < 0 or length < 0 or start + length > self.size:
            raise DataError(
                f"{self.name}: {what} should be {length} bytes at byte {start}, but there are only "
                f"{self.size} bytes; the file is cut short or damaged"
            )

    def read(self, start: int, length: int, what: str = "a piece") -> bytes:
        """The bytes of a range, all of them."""
        self.check(start, length, what)
        return self._read(start, length) if length else b""

    def view(
        self, start: int, dtype: DType, shape: Sequence[int], what: str = "a tensor"
    ) -> Tensor:
        """A Tensor over the bytes from `start` on, read when its values are needed."""
        self.check(start, prod(shape) * dtype.itemsize, what)
        if prod(shape) == 0:
            return Tensor.empty(*shape, dtype=dtype)
        return self._view(start, dtype, tuple(shape))

    @abstractmethod
    def _read(self, start: int, length: int) -> bytes: ...

    @abstractmethod
    def _view(self, start: int, dtype: DType, shape: tuple[int, ...]) -> Tensor: ...


class FileSource(ByteSource):
    """A file. Headers are read at once, tensors stay on disk."""

    def __init__(self, path: Path) -> None:
        for _ in range(_OPENINGS):
            try:
                self._file = path.open("rb")
                try:
                    self._disk = Tensor(path)
                    found = os.fstat(self._file.fileno())
                    # Another process may put a new file here at any time. If the path still leads
                    # to the first one that was opened, so did it for the second.
                    same = os.path.samestat(os.stat(path), found)
                except BaseException:
                    self._file.close()
                    raise
            except OSError as error:
                kind = MissingFileError if isinstance(error, FileNotFoundError) else DataError
                raise kind(f"cannot read {path}: {error.strerror or error}") from error
            if same and self._disk.shape == (found.st_size,):
                super().__init__(str(path), found.st_size)
                return
            self._file.close()
        raise DataError(f"{path} is replaced all the time; load it when nobody writes it")

    def close(self) -> None:
        self._file.close()

    def _read(self, start: int, length: int) -> bytes:
        self._file.seek(start)
        data = self._file.read(length)
        if len(data) != length:
            raise DataError(f"{self.name} became shorter while it was read")
        return data

    def _view(self, start: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        return _window(self._disk, start, dtype, shape)


class TensorSource(ByteSource):
    """A Tensor of bytes, on whatever device. Small reads share one transfer."""

    def __init__(self, tensor: Tensor) -> None:
        if tensor.dtype is not dtypes.uint8 or tensor.ndim != 1:
            raise ArgumentError(
                f"bytes to load are a one-dimensional Tensor of uint8, found shape {tensor.shape} "
                f"of {tensor.dtype}"
            )
        super().__init__(f"the Tensor on {tensor.device}", int(tensor.shape[0]))
        self._tensor = tensor if is_storage(tensor.device) else tensor.contiguous().realize()
        self._block = b""
        self._block_start = 0

    def _read(self, start: int, length: int) -> bytes:
        first = start - self._block_start
        if first < 0 or first + length > len(self._block):
            stop = min(self.size, start + max(length, _BLOCK))
            self._block = self._transfer(start, stop)
            self._block_start, first = start, 0
        return self._block[first : first + length]

    def _view(self, start: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        return _window(self._tensor, start, dtype, shape)

    def _transfer(self, start: int, stop: int) -> bytes:
        if is_storage(self._tensor.device):
            return bytes(self._tensor[start:stop].data())
        part = self._tensor._buffer().view(stop - start, dtypes.uint8, start)
        return bytes(part.as_memoryview())


class MemorySource(ByteSource):
    """Bytes in memory."""

    def __init__(self, data: bytes | bytearray | memoryview, name: str = "the data") -> None:
        self._data = memoryview(data).cast("B") if memoryview(data).nbytes else memoryview(b"")
        super().__init__(name, self._data.nbytes)

    def _read(self, start: int, length: int) -> bytes:
        return bytes(self._data[start : start + length])

    def _view(self, start: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        stop = start + prod(shape) * dtype.itemsize
        return Tensor(self._data[start:stop], dtype=dtype).reshape(shape)


class PartSource(ByteSource):
    """A range of another source, such as a file inside an archive."""

    def __init__(self, whole: ByteSource, start: int, size: int, name: str) -> None:
        whole.check(start, size, name)
        super().__init__(name, size)
        self._whole = whole
        self._start = start

    def _read(self, start: int, length: int) -> bytes:
        return self._whole._read(self._start + start, length)

    def _view(self, start: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
        return self._whole._view(self._start + start, dtype, shape)


def open_source(data: Readable | ByteSource) -> ByteSource:
    """The bytes behind a path, a Tensor or a bytes object."""
    if isinstance(data, ByteSource):
        return data
    if isinstance(data, Tensor):
        return TensorSource(data)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return MemorySource(data)
    if isinstance(data, (str, os.PathLike)):
        return FileSource(Path(data))
    raise ArgumentError(
        f"cannot load from a {type(data).__name__}: give a path, a Tensor of uint8, or bytes"
    )


def _window(tensor: Tensor, start: int, dtype: DType, shape: tuple[int, ...]) -> Tensor:
    stop = start + prod(shape) * dtype.itemsize
    return tensor[start:stop].bitcast(dtype).reshape(shape)


def computable(tensor: Tensor) -> Tensor:
    """The tensor where it can be computed with: what is on disk is read to the default device."""
    return tensor.to(None) if is_storage(tensor.device) else tensor


def checked_sizes(sizes: Any, where: str) -> tuple[int, ...]:
    """Whole numbers out of a file (offsets, strides, counts), from 0 to the largest there can be.

    They need not make up a shape: the product of two offsets means nothing.
    """
    if not isinstance(sizes, (list, tuple)):
        raise DataError(f"{where}: found {_short(sizes)}, not a list of sizes")
    for size in sizes:
        if type(size) is not int or not 0 <= size <= LARGEST_SIZE:
            raise DataError(f"{where}: found {_short(size)}, which is no size")
    return tuple(sizes)


def checked_shape(sizes: Any, where: str) -> tuple[int, ...]:
    """A shape out of a file: sizes that hold no more elements than there can be."""
    shape = checked_sizes(sizes, f"{where}: the shape")
    if prod(size for size in shape if size) > LARGEST_SIZE:
        raise DataError(f"{where}: the shape {_short(shape)} has more elements than exist")
    return shape


def refuse_overlaps(ranges: Iterable[tuple[int, int, str]], source: str) -> None:
    """Raises if two of the ranges (start, stop, name) share a byte."""
    reached, owner = 0, ""
    for start, stop, name in sorted(item for item in ranges if item[0] < item[1]):
        if start < reached:
            raise DataError(
                f"{source}: {name} starts at byte {start}, inside {owner}, which ends at {reached}"
            )
        reached, owner = stop, name


def _short(value: Any) -> str:
    """A value of a damaged file for a message: never longer than a line."""
    if isinstance(value, int) and value.bit_length() > 256:
        return f"a number of {value.bit_length()} bits"
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."


class TensorIO(io.RawIOBase):
    """A Tensor of bytes read as a file: `read`, `readinto`, `seek`, `tell`.

    >>> file = TensorIO(Tensor(b"weft"))
    >>> file.seek(1), file.read(2), file.read()
    (1, b'ef', b't')
    """

    def __init__(self, tensor: Tensor) -> None:
        super().__init__()
        self._source = TensorSource(tensor)
        self._position = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        target = memoryview(buffer).cast("B")
        length = min(target.nbytes, self._source.size - self._position)
        if length <= 0:
            return 0
        target[:length] = self._source.read(self._position, length)
        self._position += length
        return length

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        start = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._source.size}
        if whence not in start:
            raise ArgumentError(f"seek takes whence 0, 1 or 2, found {whence!r}")
        if start[whence] + offset < 0:
            raise ArgumentError(f"seek to byte {start[whence] + offset}, before the first")
        self._position = start[whence] + offset
        return self._position

    def tell(self) -> int:
        return self._position
