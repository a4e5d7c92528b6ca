"""DLPack: memory shared with other array libraries, without a copy.

In: a Buffer with an address and a shape; or a capsule that another library made. Out: a capsule; or
the address, shape, strides and dtype of the memory, whose it is, and who keeps it alive.
Sits beside host.py, under Tensor's `__dlpack__` and `from_dlpack`.
Invariant: memory that was given away lives until its taker says so; memory that was taken is given
back exactly once.
"""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.device import BaseDevice, Buffer, Device
from weft.dtype import DType, dtypes
from weft.errors import ArgumentError, DTypeError

HOST = (1, 0)  # kDLCPU and the number of the device
_HOST_KIND, GPU_KIND = 1, 2
# Kinds that are of another kind for whoever uses them: memory of the host that a GPU reads too (two
# vendors'), and memory that moves between the host and a GPU by itself.
_SAME_AS = {3: _HOST_KIND, 11: _HOST_KIND, 13: GPU_KIND}
_READ_ONLY = 1

_KINDS: dict[DType, tuple[int, int]] = {
    **{dtype: (0, dtype.itemsize * 8) for dtype in dtypes.sints},
    **{dtype: (1, dtype.itemsize * 8) for dtype in dtypes.uints},
    dtypes.float16: (2, 16),
    dtypes.float32: (2, 32),
    dtypes.float64: (2, 64),
    dtypes.bfloat16: (4, 16),
    dtypes.bool: (6, 8),
}
_DTYPES = {kind: dtype for dtype, kind in _KINDS.items() if dtype not in dtypes.weaks}
# complex numbers have no dtype: they are pairs of floats along one more axis
_COMPLEX_CODE = 5
_PAIRS = {(_COMPLEX_CODE, 64): dtypes.float32, (_COMPLEX_CODE, 128): dtypes.float64}


class _Tensor(ctypes.Structure):
    _fields_ = (
        ("data", ctypes.c_void_p),
        ("device_kind", ctypes.c_int32),
        ("device_number", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    )


class _Managed(ctypes.Structure):
    """Before version 1 of DLPack."""


class _Versioned(ctypes.Structure):
    """Since version 1 of DLPack."""


_Deleter = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_Managed._fields_ = (
    ("tensor", _Tensor),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
)
_Versioned._fields_ = (
    ("major", ctypes.c_uint32),
    ("minor", ctypes.c_uint32),
    ("context", ctypes.c_void_p),
    ("deleter", _Deleter),
    ("flags", ctypes.c_uint64),
    ("tensor", _Tensor),
)
_FORMS: dict[bytes, type[_Managed] | type[_Versioned]] = {
    b"dltensor": _Managed,
    b"dltensor_versioned": _Versioned,
}

_python = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", _python))
_capsule_pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _python)
)
_is_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_IsValid", _python)
)
_rename_capsule = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _python)
)
# What was given away and not given back: address of the structure -> everything it points to, and
# the capsule. A capsule has no destructor: whoever refuses one drops it with an exception pending,
# and no Python may run then. So we hold it, and look who else does.
_given: dict[int, tuple[Any, ...]] = {}
_CAPSULE = 0  # its place in the tuple


@_Deleter
def _give_back(address: int) -> None:
    _given.pop(address, None)


def _forget_unused() -> None:
    """Gives back what is in capsules that nobody took and nobody holds any more."""
    for address, entry in list(_given.items()):
        if sys.getrefcount(entry[_CAPSULE]) == _ALONE and _name_of(entry[_CAPSULE]) is not None:
            _given.pop(address, None)


def _count_alone() -> int:
    """What Python counts for an object in a tuple and nowhere else."""
    entry = (object(),)
    return sys.getrefcount(entry[_CAPSULE])


_ALONE = _count_alone()


def _on_collection(phase: str, facts: dict[str, Any]) -> None:
    if _given and phase == "start":
        _forget_unused()


gc.callbacks.append(_on_collection)


def _name_of(capsule: Any) -> bytes | None:
    """Which form a capsule holds; None: it was taken, or is none of DLPack's."""
    return next((name for name in _FORMS if _is_capsule(capsule, name)), None)


def give(buffer: Buffer, shape: Sequence[int], versioned: bool, of_pairs: bool = False) -> Any:
    """A capsule of memory in row-major order; `of_pairs`: each two floats are a complex number."""
    where = Device[buffer.device].memory_kind
    assert where is not None, "whoever gives memory has asked"
    if buffer.dtype not in _KINDS:
        raise DTypeError(
            f"DLPack has no {buffer.dtype}; cast or bitcast it first, to one of "
            f"{', '.join(str(dtype) for dtype in _DTYPES.values())}"
        )
    name = b"dltensor_versioned" if versioned else b"dltensor"
    rank = len(shape)
    sizes = (ctypes.c_int64 * max(1, rank))(*shape)
    steps = (ctypes.c_int64 * max(1, rank))(*row_major(shape))
    managed = _FORMS[name]()
    if isinstance(managed, _Versioned):
        managed.major, managed.minor, managed.flags = 1, 0, 0
    code, bits = _KINDS[buffer.dtype]
    if of_pairs:
        code, bits = _COMPLEX_CODE, 2 * bits
    managed.tensor = _Tensor(
        buffer.address if buffer.size else None, *where, rank, code, bits, 1, sizes, steps, 0
    )
    managed.deleter = _give_back
    address = ctypes.addressof(managed)
    capsule = _new_capsule(address, name, None)
    if _given:
        _forget_unused()
    _given[address] = (capsule, managed, buffer, sizes, steps)
    return capsule


def row_major(shape: Sequence[int]) -> list[int]:
    """The strides, in elements, of axes in order."""
    steps: list[int] = []
    step = 1
    for size in reversed(shape):
        steps.insert(0, step)
        step *= max(1, size)
    return steps


class _Owner:
    """Gives memory back when the last one who uses it is gone."""

    def __init__(self, managed: Any) -> None:
        self.managed = managed

    def __del__(self) -> None:
        if self.managed.deleter:
            self.managed.deleter(ctypes.addressof(self.managed))


class Taken(NamedTuple):
    """Memory of another library; strides are in elements."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: DType
    is_read_only: bool
    owner: Any
    device: str
    is_complex: bool = False


def take(source: Any, device: str | None = None, with_pairs: bool = False) -> Taken:
    """The memory of an array of another library, or of a capsule.

    It is on `device` if that has such memory, else on another device that has. `with_pairs` takes
    complex numbers too, as floats with one more axis of two.
    """
    capsule = _capsule_of(source, device)
    name = _name_of(capsule)
    if name is None:
        raise ArgumentError("from_dlpack takes an array or a DLPack capsule that was not used yet")
    pointer = _capsule_pointer(capsule, name)
    managed = _FORMS[name].from_address(pointer)
    flags = 0
    if isinstance(managed, _Versioned):
        flags = managed.flags
    tensor = managed.tensor
    kind = (tensor.code, tensor.bits)
    is_complex = with_pairs and kind in _PAIRS
    if tensor.lanes != 1 or not (is_complex or kind in _DTYPES):
        raise DTypeError(f"from_dlpack of elements of kind {kind[0]} with {kind[1]} bits")
    home = _home_of(tensor.device_kind, tensor.device_number, device)
    _rename_capsule(capsule, _used_name(name))
    rank = tensor.ndim
    shape = tuple(tensor.shape[:rank])
    strides = tuple(tensor.strides[:rank]) if tensor.strides else tuple(row_major(shape))
    address = (tensor.data or 0) + tensor.byte_offset
    is_read_only = bool(flags & _READ_ONLY)
    owner = _Owner(managed)
    dtype = _PAIRS[kind] if is_complex else _DTYPES[kind]
    if is_complex:
        shape, strides = (*shape, 2), (*[2 * step for step in strides], 1)
    return Taken(address, shape, strides, dtype, is_read_only, owner, home.name, is_complex)


def _capsule_of(source: Any, device: str | None) -> Any:
    if not hasattr(source, "__dlpack__"):
        return source
    kind, number = source.__dlpack_device__()
    home = _home_of(int(kind), int(number), device)
    # whoever gives the memory lets our stream wait for what is still being written there
    named = {} if home.stream is None else {"stream": home.stream}
    try:
        return source.__dlpack__(max_version=(1, 0), **named)
    except TypeError:
        # made before version 1 of DLPack, which knows no such argument
        return source.__dlpack__(**named)


def _home_of(kind: int, number: int, device: str | None) -> BaseDevice:
    """The device whose memory is of a kind; of several the one that was asked for."""
    kind = _SAME_AS.get(kind, kind)
    home = Device.with_memory((kind, 0 if kind == _HOST_KIND else number), device)
    if home is None:
        raise ArgumentError(
            f"from_dlpack of memory of DLPack's kind {kind}, number {number}, which no device here "
            "has; move the array to the host first"
        )
    return home


_used_names = {name: b"used_" + name for name in _FORMS}


def _used_name(name: bytes) -> bytes:
    # Python keeps the pointer, so the bytes must stay
    return _used_names[name]
