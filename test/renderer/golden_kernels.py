"""Kernels built by hand whose text in every language is kept in `golden/`.

`python -m test.renderer.golden_kernels` writes the files anew; look at the difference before you
keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.renderer.base import Renderer
from weft.renderer.cuda import CUDARenderer
from weft.renderer.metal import MetalRenderer
from weft.renderer.opencl import OpenCLRenderer
from weft.renderer.wgsl import WGSLRenderer
from weft.uop.args import AxisType, KernelInfo
from weft.uop.node import UOp
from weft.uop.opset import Ops

FOLDER = Path(__file__).parent / "golden"
RENDERERS: tuple[type[Renderer], ...] = (
    CUDARenderer,
    OpenCLRenderer,
    MetalRenderer,
    WGSLRenderer,
)
F32 = dtypes.float32


def _loop(size: int | UOp, number: int) -> UOp:
    return UOp.range(size, number, AxisType.LOOP)


def _reduce(size: int, number: int) -> UOp:
    return UOp.range(size, number, AxisType.REDUCE)


def scale() -> list[UOp]:
    """Neighbours as lanes, threads along them."""
    out, x, i = UOp.param(0, F32, 4096), UOp.param(1, F32, 4096), _loop(4096, 0)
    return [out.index(i).store(x.index(i).load() * 2.0 + 1.0, i)]


def sum_rows() -> list[UOp]:
    """A reduction shared by a group."""
    out, x = UOp.param(0, F32, 64), UOp.param(1, F32, 64 * 1024)
    i, r = _loop(64, 0), _reduce(1024, 1)
    return [out.index(i).store(x.index(i * 1024 + r).load().reduce(Ops.ADD, r), i)]


def softmax() -> list[UOp]:
    """Two reductions and outputs over the same threads."""
    out, x = UOp.param(0, F32, 16 * 512), UOp.param(1, F32, 16 * 512)
    i, j, r, s = _loop(16, 0), _loop(512, 1), _reduce(512, 2), _reduce(512, 3)
    most = x.index(i * 512 + r).load().reduce(Ops.MAX, r)

    def power(axis: UOp) -> UOp:
        return (x.index(i * 512 + axis).load() - most).alu(Ops.EXP2)

    total = power(s).reduce(Ops.ADD, s)
    return [out.index(i * 512 + j).store(power(j).alu(Ops.FDIV, total), i, j)]


def matmul() -> list[UOp]:
    """Tiles of both operands in shared memory."""
    size = 128
    out, a, b = [UOp.param(slot, F32, size * size) for slot in range(3)]
    i, j, k = _loop(size, 0), _loop(size, 1), _reduce(size, 2)
    product = a.index(i * size + k).load() * b.index(k * size + j).load()
    return [out.index(i * size + j).store(product.reduce(Ops.ADD, k), i, j)]


def narrow_types() -> list[UOp]:
    """Bytes, shorts, bools and halves in memory."""
    i = _loop(40, 0)
    small, flag, half = [
        UOp.param(slot, dtype, 40)
        for slot, dtype in enumerate((dtypes.int8, dtypes.bool, dtypes.float16))
    ]
    short, other = UOp.param(3, dtypes.uint16, 40), UOp.param(4, dtypes.int8, 40)
    value = other.index(i).load()
    wide = short.index(i).load()
    return [
        small.index(i).store(value * value + value.const_like(7), i),
        flag.index(i).store(wide.alu(Ops.CMPLT, wide.const_like(1000)), i),
        half.index(i).store(wide.cast(F32).cast(dtypes.float16), i),
    ]


def shifted() -> list[UOp]:
    """A validity, and a size that is known at run time only."""
    size = UOp.variable("n", 1, 1000)
    out, x, i = UOp.param(0, F32, 1000), UOp.param(1, F32, 1000), _loop(size, 0)
    before = x.index(i - 1, UOp.const(dtypes.weakint, 0) < i).load()
    return [out.index(i).store(x.index(i).load() + before, i)]


def two_nests() -> list[UOp]:
    """Outputs of different sizes, one of them a constant without a literal."""
    first, second = UOp.param(0, dtypes.int32, 700), UOp.param(1, F32, 5)
    x, i, j = UOp.param(2, dtypes.int32, 700), _loop(700, 0), _loop(5, 1)
    value = x.index(i).load()
    return [
        first.index(i).store(value // value.const_like(3), i),
        second.index(j).store(UOp.const(F32, float("-inf")), j),
    ]


KERNELS: dict[str, Callable[[], list[UOp]]] = {
    function.__name__: function
    for function in (scale, sum_rows, softmax, matmul, narrow_types, shifted, two_nests)
}


def text_of(name: str, renderer: Renderer) -> str:
    return lower(UOp.sink(*KERNELS[name](), arg=KernelInfo(name)), renderer).src


def golden_file(name: str, renderer: Renderer) -> Path:
    return FOLDER / f"{name}.{renderer.suffix}"


def write_all() -> None:
    FOLDER.mkdir(exist_ok=True)
    for kind in RENDERERS:
        renderer = kind()
        for name in KERNELS:
            golden_file(name, renderer).write_text(text_of(name, renderer))


if __name__ == "__main__":
    write_all()
