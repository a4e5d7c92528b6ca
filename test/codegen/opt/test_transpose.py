"""Transpositions, alone and inside of other arithmetic, go through squares in registers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import Context, Tensor, dtypes
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.heuristic import merge_axes, optimise
from weft.codegen.opt.survey import nests_of
from weft.codegen.opt.transpose import propose_transpose
from weft.codegen.pipeline import lower
from weft.machine import Target
from weft.renderer.python import PythonRenderer
from weft.uop.node import UOp
from weft.uop.opset import Ops

WIDE = Target(name="wide", vector_bytes=64, vector_registers=32, l3=1 << 20)
NARROW = Target(name="narrow", vector_bytes=16, vector_registers=16)


def kernel_of(tensor: Tensor) -> UOp:
    ast = tensor.contiguous().schedule()[-1].kernel
    assert ast is not None
    return ast


def empty(*shape: int, dtype: Any = dtypes.float32) -> Tensor:
    return Tensor.zeros(*shape, dtype=dtype).contiguous().realize()


def test_lanes_lie_along_what_is_written_and_rows_along_what_is_read() -> None:
    applied = optimise(kernel_of(empty(100, 96).T), WIDE).arg.applied
    assert applied == (Opt(OptOps.VECTOR, (1,), 16), Opt(OptOps.UPCAST, (0,), 16))
    # fewer registers, shorter vectors
    applied = optimise(kernel_of(empty(100, 96).T), NARROW).arg.applied
    assert applied == (Opt(OptOps.VECTOR, (1,), 4), Opt(OptOps.UPCAST, (0,), 8))


def test_short_rows_make_low_squares() -> None:
    applied = optimise(kernel_of(empty(2000, 12).T), WIDE).arg.applied
    assert applied[-2:] == (Opt(OptOps.VECTOR, (1, 1), 16), Opt(OptOps.UPCAST, (0,), 8))


def test_large_ones_run_in_blocks() -> None:
    near = optimise(kernel_of(empty(256, 256).T), WIDE).arg.applied
    assert near[:2] == (Opt(OptOps.SPLIT, (0,), 64), Opt(OptOps.SPLIT, (1,), 64))
    assert near[2] == Opt(OptOps.SWAP, (0, 1), (1, 0))
    far = optimise(kernel_of(empty(1024, 1024).T), WIDE).arg.applied
    assert far[:2] == (Opt(OptOps.SPLIT, (0,), 128), Opt(OptOps.SPLIT, (1,), 16))


@pytest.mark.parametrize(
    "tensor",
    [
        lambda: empty(100, 100) + 1,
        lambda: empty(100, 100) + empty(100),
        lambda: empty(100, 100).flip(1),
        lambda: empty(100, 256)[:, ::2],
        lambda: empty(5000, 2).T,
        lambda: empty(64, 64).T,
    ],
    ids=["in order", "a row for all", "backwards", "few apart", "few rows", "small"],
)
def test_what_is_not_transposed_has_no_squares(tensor: Any) -> None:
    (nest,) = nests_of(list(merge_axes(kernel_of(tensor())).src), WIDE)
    assert propose_transpose(nest, WIDE) is None


def test_memory_is_touched_in_whole_vectors() -> None:
    program = lower(kernel_of(empty(100, 100).T.exp2() + empty(100, 100)), PythonRenderer(WIDE))
    touched = [u for u in program.uops if u.op in (Ops.LOAD, Ops.STORE)]
    values = [u if u.op is Ops.LOAD else u.src[1] for u in touched if u.src[0].op is Ops.INDEX]
    assert values and all(value.dtype.count == 16 for value in values)
    assert all(u.src[0].src[1].dtype.count == 1 for u in touched if u.src[0].op is Ops.INDEX)


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "uint8", "bool", "int64"])
@pytest.mark.parametrize("shape", [(130, 67), (64, 1000)])
def test_results(dtype: str, shape: tuple[int, int]) -> None:
    a = (np.arange(np.prod(shape)) * 7919 % 251).astype(dtype).reshape(shape)
    x = Tensor(a).realize()
    with Context(CCACHE=0):
        np.testing.assert_array_equal(x.T.contiguous().numpy(), a.T)
        if dtype != "bool":
            found = (x.T * 2 + x.reshape(shape[::-1])).numpy()
            np.testing.assert_array_equal(found, (a.T * 2 + a.reshape(shape[::-1])).astype(dtype))


@pytest.mark.parametrize("order", [(0, 2, 3, 1), (0, 3, 1, 2), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_permutations(order: tuple[int, ...]) -> None:
    a = np.arange(3 * 20 * 7 * 33, dtype=np.float32).reshape(3, 20, 7, 33)
    found = Tensor(a).realize().permute(order).contiguous().numpy()
    np.testing.assert_array_equal(found, a.transpose(order))


def test_in_place() -> None:
    a = np.arange(70 * 70, dtype=np.float32).reshape(70, 70)
    x = Tensor(a).realize()
    y = Tensor(a * 2).realize()
    y += x.T
    np.testing.assert_array_equal(y.numpy(), a * 2 + a.T)
    x.assign(x.T + x)
    np.testing.assert_array_equal(x.numpy(), a.T + a)
