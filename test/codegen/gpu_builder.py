"""Kernels with the axes of GPUs, built by hand, and what interprets them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from test.codegen.kernel_builder import Axes, interpret, kernel, load, params
from weft.codegen.pipeline import lower
from weft.dtype import dtypes
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.base import ProgramSpec
from weft.renderer.python import PythonRenderer
from weft.uop.args import AxisType, StageArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

GPU = Target(
    name="gpu",
    vector_bytes=16,
    has_local=True,
    index_dtype=dtypes.int32,
    group_threads=256,
    shared_bytes=32 << 10,
    warp_size=32,
)
F32 = dtypes.float32
random = np.random.default_rng(5)


class GPUAxes(Axes):
    """The axes of hand-built kernels, with those of GPUs."""

    def grid(self, size: int | UOp) -> UOp:
        return self.make(size, AxisType.GLOBAL)

    def local(self, size: int) -> UOp:
        return self.make(size, AxisType.LOCAL)

    def warp(self, size: int) -> UOp:
        return self.make(size, AxisType.WARP)

    def group(self, size: int) -> UOp:
        return self.make(size, AxisType.GROUP_REDUCE)


def normal(*shape: int) -> np.ndarray:
    return random.normal(0, 1, shape).astype(np.float32)


def zeros(*shape: int) -> np.ndarray:
    return np.full(shape, -77.0, np.float32)


def run(
    sink: UOp,
    *arrays: np.ndarray,
    values: Sequence[int] = (),
    target: Target = GPU,
    optimised: bool = False,
) -> ProgramSpec:
    """Lower with every pass verified, and interpret."""
    with Context(SPEC=2, NOOPT=int(not optimised)):
        spec = lower(sink, PythonRenderer(target))
    interpret(spec.uops, arrays, values)
    return spec


def stage(value: UOp, *fills: UOp, memory: str = "shared") -> UOp:
    return UOp(Ops.STAGE, value.dtype, (value, *fills), StageArg(fills[0].arg.number[0], memory))


def tiled_matmul(size: int, tile: int) -> tuple[UOp, np.ndarray, np.ndarray, np.ndarray]:
    """Square tiles of both operands, staged by hand."""
    x, y, out = normal(size, size), normal(size, size), zeros(size, size)
    o, p, q = params(out, x, y)
    a = GPUAxes()
    i, j, m, n = a.grid(size // tile), a.grid(size // tile), a.local(tile), a.local(tile)
    k, t = a.reduce(size // tile), a.reduce(tile)
    fills = [a.loop(tile) for _ in range(4)]
    left = stage(load(p, (i * tile + fills[0]) * size + k * tile + fills[1]), *fills[:2])
    right = stage(load(q, (k * tile + fills[2]) * size + j * tile + fills[3]), *fills[2:])
    product = left.index(m * tile + t).load() * right.index(t * tile + n).load()
    index = (i * tile + m) * size + j * tile + n
    sink = kernel(o.index(index).store(product.reduce(Ops.ADD, k, t), i, j, m, n))
    return sink, out, x, y
