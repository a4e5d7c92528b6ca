"""Small linear programs, built by hand, and ways to run them: what the renderers' tests share."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from weft.dtype import DType, dtypes, to_numpy_dtype
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


def elementwise(build: object, dtypes_in: Sequence[DType], lanes: int = 1) -> list[UOp]:
    """A loop over slot 0 that stores `build(*loads)`; its size is the variable n."""
    count = UOp.variable("n", 0, 1 << 40, i64)
    i = loop(count)
    place = i if lanes == 1 else i * const(lanes)
    sources = [
        load(UOp.param(slot + 1, dtype, 0), place, lanes=lanes)
        for slot, dtype in enumerate(dtypes_in)
    ]
    value = build(*sources)  # type: ignore[operator]
    out = UOp.param(0, value.dtype.scalar(), 0)
    return program(i, out.index(place).store(value), end(i))


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
    renderer: LLVMRenderer | None = None,
) -> str:
    """Compiles and runs; returns the text."""
    text = (renderer or LLVMRenderer()).render("kernel", uops)
    code = llvm.load(llvm.LLVMCompiler().compile(text), "kernel")
    call(code.address, buffers, values, n)
    return text


def empty(count: int, dtype: DType) -> np.ndarray:
    return np.zeros(count, to_numpy_dtype(dtype))
