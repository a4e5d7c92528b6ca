"""What is read once and written several times, as in images of twice the size: whole vectors."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from test.codegen.opt.kernels import run_for
from weft import Context, Tensor, dtypes
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.heuristic import optimise
from weft.codegen.pipeline import lower
from weft.machine import Target
from weft.renderer.python import PythonRenderer
from weft.uop.node import UOp
from weft.uop.opset import Ops

WIDE = Target(name="wide", vector_bytes=64, vector_registers=32)
NARROW = Target(name="narrow", vector_bytes=16, vector_registers=16)


def kernel_of(tensor: Tensor) -> UOp:
    ast = tensor.contiguous().schedule()[-1].kernel
    assert ast is not None
    return ast


def data(*shape: int) -> Tensor:
    numbers = np.random.default_rng(0).integers(-9, 9, shape)
    return Tensor(numbers.astype(np.float32)).realize()


@pytest.mark.parametrize(("target", "lanes"), [(WIDE, 16), (NARROW, 4)])
def test_lanes_lie_along_what_is_read(target: Target, lanes: int) -> None:
    applied = optimise(kernel_of(data(6, 48).repeat_interleave(2, 1)), target).arg.applied
    assert applied == (
        Opt(OptOps.SPLIT, (1,), 2),
        Opt(OptOps.MERGE, (0,), (1, 0)),
        Opt(OptOps.VECTOR, (0,), lanes),
        Opt(OptOps.UPCAST, (1, 1), 0),
    )


def test_memory_is_read_and_written_in_whole_vectors() -> None:
    with Context(SPEC=0):
        program = lower(
            kernel_of(data(6, 9, 48).interpolate((18, 96), "nearest")), PythonRenderer(WIDE)
        )
    touched = [u for u in program.uops if u.op in (Ops.LOAD, Ops.STORE)]
    assert all(u.src[0].src[1].dtype.count == 1 for u in touched)
    stored = [u.src[1].dtype.count for u in touched if u.op is Ops.STORE]
    # an exchange leaves pairs of lanes together; rows of two squares are written at a time
    assert sum(stored) == 32


CASES: dict[str, Callable[[], Tensor]] = {
    "twice": lambda: data(5, 32).repeat_interleave(2, 1),
    "four times": lambda: data(3, 20).repeat_interleave(4, 1),
    "eight times": lambda: data(3, 16).repeat_interleave(8, 1),
    "three times": lambda: data(3, 16).repeat_interleave(3, 1),
    "both axes": lambda: data(2, 7, 24).repeat_interleave(2, 1).repeat_interleave(2, 2),
    "beside what is in order": lambda: data(4, 16).repeat_interleave(2, 1) * data(4, 32) + data(32),
    "twice and twice": lambda: data(64).repeat_interleave(2) + data(32).repeat_interleave(4),
    "short rows": lambda: data(40, 2).repeat_interleave(2, 1),
    "few": lambda: data(3).repeat_interleave(2),
    "padded": lambda: data(4, 16).repeat_interleave(2, 1).pad(((0, 0), (1, 1))),
    "beside others": lambda: data(2, 16).repeat_interleave(2, 1).cat(data(3, 32)),
    "halves": lambda: data(4, 32).cast(dtypes.float16).repeat_interleave(2, 1),
    "whole numbers": lambda: data(4, 32).cast(dtypes.int8).repeat_interleave(2, 1) + 1,
    "no axis divided": lambda: data(48, 1).expand(48, 2) + 1,
    "with a remainder": lambda: Tensor.arange(64).realize() % 4 + data(32).repeat_interleave(2),
}


@pytest.mark.parametrize("target", [WIDE, NARROW], ids=["wide", "narrow"])
@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers(name: str, target: Target) -> None:
    ast = kernel_of(CASES[name]())
    params = sorted({u for u in ast.toposort() if u.op is Ops.PARAM}, key=lambda u: u.arg.slot)
    arrays = [(np.arange(u.arg.size) % 17 - 5).astype(u.dtype.name) for u in params]
    expected, *_ = run_for(ast, arrays, None)
    found, *_ = run_for(ast, arrays, target)
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("name", CASES)
def test_the_same_numbers_from_this_machine(name: str) -> None:
    with Context(NOOPT=1):
        expected = CASES[name]().numpy()
    with Context(CCACHE=0):
        found = CASES[name]().numpy()
    np.testing.assert_array_equal(found, expected)
