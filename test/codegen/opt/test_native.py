"""Optimised kernels on the machine that runs the tests: vectors, threads and scratch for real."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from test.codegen.opt.kernels import KERNELS
from weft.codegen.pipeline import lower
from weft.device import Buffer, Device
from weft.dtype import from_numpy_dtype
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer
from weft.uop.node import UOp


def run(ast: UOp, arrays: Sequence[np.ndarray], target: Target, noopt: int) -> list[np.ndarray]:
    device = Device["CPU"]
    copies = [array.copy() for array in arrays]
    with Context(NOOPT=noopt):
        spec = lower(ast, LLVMRenderer(target))
    code = device.compiler.compile(spec.src)
    program = device.runtime(spec.name, code, spec.threads_n, spec.buffer_count)
    program(
        [
            Buffer.from_opaque("CPU", a.size, from_numpy_dtype(a.dtype), a.ctypes.data, a)
            for a in copies[: spec.buffer_count]
        ]
    )
    return copies


@pytest.mark.parametrize("seed", range(3 * len(KERNELS)))
def test_optimised_kernels_compute_the_same(seed: int) -> None:
    pick = random.Random(seed)
    ast, arrays = KERNELS[seed % len(KERNELS)](pick, pick.choice([20, 40, 100]))
    host = Device["CPU"].renderer.target
    narrow = replace(host, vector_bytes=16, vector_registers=16, cores=8)
    target = pick.choice([host, narrow])
    expected = run(ast, arrays, target, 1)
    for left, right in zip(run(ast, arrays, target, 0), expected, strict=True):
        np.testing.assert_array_equal(left, right)
