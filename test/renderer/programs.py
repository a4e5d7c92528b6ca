"""Small linear programs, built by hand, and ways to run them: what the renderers' tests share."""

from __future__ import annotations

import ctypes
import functools
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from test.optional import need_program
from weft.dtype import DType, dtypes, to_numpy_dtype
from weft.renderer.base import Renderer
from weft.renderer.c import CRenderer
from weft.renderer.llvmir import LLVMRenderer
from weft.runtime import llvm
from weft.uop.args import AxisType, LocalArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

i64 = dtypes.int64


def const(value: float, dtype: DType = i64) -> UOp:
    return UOp.const(dtype, value)


def loop(size: int | UOp, number: int = 0, kind: AxisType = AxisType.LOOP) -> UOp:
    end = size if isinstance(size, UOp) else const(size)
    return UOp.range(end, number, kind).replace(dtype=i64)


def load(memory: UOp, idx: UOp, valid: UOp | None = None, lanes: int = 1) -> UOp:
    place = memory.index(idx, valid)
    return UOp(Ops.LOAD, memory.dtype.vec(lanes), (place,))


def end(opened: UOp) -> UOp:
    return UOp(Ops.END, dtypes.void, (opened,))


def acc(init: UOp, number: int = 0) -> UOp:
    return UOp(Ops.ACC, init.dtype, (init,), number)


def read(register: UOp, when: UOp) -> UOp:
    return UOp(Ops.LOAD, register.dtype, (register, when))


def acc_set(register: UOp, value: UOp) -> UOp:
    return UOp(Ops.ACC_SET, dtypes.void, (register, value))


def local(number: int, size: int, dtype: DType) -> UOp:
    return UOp(Ops.LOCAL, dtype, (), LocalArg(number, size))


def program(*statements: UOp) -> list[UOp]:
    """The statements in their order, each after what it is computed from."""
    order: dict[UOp, None] = {}
    for statement in statements:
        for uop in statement.toposort(gate=lambda u: u not in order):
            order.setdefault(uop)
    return list(order)


def elementwise(
    builds: Sequence[Callable[..., UOp]], dtypes_in: Sequence[DType], lanes: int = 1
) -> tuple[list[UOp], list[DType]]:
    """A loop that stores `build(*loads)` of each build to a slot of its own, then come the inputs.

    The size is the variable n. Returns the program and the outputs' dtypes.
    """
    i = loop(UOp.variable("n", 0, 1 << 40, i64))
    place = i if lanes == 1 else i * const(lanes)
    inputs = [UOp.param(len(builds) + slot, dtype, 1 << 40) for slot, dtype in enumerate(dtypes_in)]
    sources = [load(memory, place, lanes=lanes) for memory in inputs]
    values = [build(*sources) for build in builds]
    kinds = [value.dtype.scalar() for value in values]
    stores = [
        UOp.param(slot, kind, 1 << 40).index(place).store(value)
        for slot, (kind, value) in enumerate(zip(kinds, values, strict=True))
    ]
    # inputs that nothing reads are arguments all the same
    return program(*inputs, i, *stores, end(i)), kinds


def call(address: int, buffers: Sequence[np.ndarray], values: Sequence[int], n: int = 1) -> None:
    slots = [buffer.ctypes.data for buffer in buffers]
    args = (ctypes.c_int64 * (len(slots) + len(values) + 1))(*slots, *values)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)
    function(ctypes.addressof(args), 0, n)


def run_llvm(
    uops: list[UOp],
    buffers: Sequence[np.ndarray],
    values: Sequence[int] = (),
    n: int = 1,
    renderer: Renderer | None = None,
) -> str:
    """Compiles and runs; returns the text."""
    text = (renderer or LLVMRenderer()).render("kernel", uops)
    code = llvm.load(llvm.LLVMCompiler().compile(text), "kernel")
    call(code.address, buffers, values, n)
    return text


def run_c(
    uops: list[UOp],
    buffers: Sequence[np.ndarray],
    values: Sequence[int] = (),
    n: int = 1,
    renderer: Renderer | None = None,
) -> str:
    """The same through the system's C compiler."""
    text = (renderer or CRenderer()).render("kernel", uops)
    library = compile_c(text)
    call(ctypes.cast(library.kernel, ctypes.c_void_p).value or 0, buffers, values, n)
    return text


@functools.cache
def compile_c(text: str) -> ctypes.CDLL:
    compiler = need_program("cc")
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder, "kernel.c"), Path(folder, "kernel.so")
        source.write_text(text)
        flags = [
            "-O1",
            "-Wall",
            "-Werror",
            "-Wno-unknown-pragmas",
            "-Wno-psabi",
            "-shared",
            "-fPIC",
        ]
        flags.append("-Wno-unused-variable")
        command = [compiler, *flags, str(source), "-o", str(library), "-lm"]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == 0, f"{done.stderr}\n{text}"
        return ctypes.CDLL(str(library))


def empty(count: int, dtype: DType) -> np.ndarray:
    return np.zeros(count, to_numpy_dtype(dtype))
