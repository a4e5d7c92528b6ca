"""Runs one op, decomposed for a renderer, over arrays: what the tests of decompositions share."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from test.renderer.programs import elementwise, empty, run_c, run_llvm
from weft.codegen.decompose.decompose import decompose
from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.renderer.base import Renderer
from weft.renderer.c import CRenderer
from weft.renderer.llvmir import LLVMRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.node import UOp
from weft.uop.opset import Ops

LANES = 8
HALF = LLVMRenderer(Target(has_half_conversion=True, has_fma=True))
PLAIN = LLVMRenderer(Target(has_rounding=False))
f32, f64 = dtypes.float32, dtypes.float64
# the references: wider than what is tested
WIDER = {f32: np.float64, f64: np.longdouble}
random = np.random.default_rng(11)


class Lacking(LLVMRenderer):
    """LLVM IR without some ops, so that they are decomposed."""

    def __init__(self, *ops: Ops) -> None:
        super().__init__(Target())
        self.code_for_op = {op: True for op in self.code_for_op if op not in ops}


def alu(op: Ops) -> Callable[..., UOp]:
    return lambda x, *others: x.alu(op, *others)


def compute(
    build: Callable[..., UOp],
    inputs: Sequence[np.ndarray],
    dtypes_in: Sequence[DType],
    renderer: Renderer = HALF,
    lanes: int = LANES,
) -> np.ndarray:
    """`build` of the inputs, decomposed for a renderer, compiled and run."""
    size = len(inputs[0])
    padded = [np.resize(x, (size + lanes - 1) // lanes * lanes) for x in inputs]
    uops, kinds = elementwise([lambda *x: decompose(build(*x), renderer)], dtypes_in, lanes)
    out = empty(len(padded[0]), kinds[0])
    run = run_c if isinstance(renderer, CRenderer) else run_llvm
    run(uops, [out, *padded], [len(out) // lanes], renderer=renderer)
    return out[:size]


def interpret(
    build: Callable[..., UOp],
    inputs: Sequence[np.ndarray],
    dtypes_in: Sequence[DType],
    renderer: Renderer = HALF,
) -> np.ndarray:
    """The same by the interpreter, which raises where a raw op's promise is broken."""
    uops, kinds = elementwise([lambda *x: decompose(build(*x), renderer)], dtypes_in, 1)
    size = len(inputs[0])
    arrays = [empty(size, kinds[0]), *(np.ascontiguousarray(x) for x in inputs)]
    memory = {
        slot: view_memory(memoryview(array.view(np.uint8)), dtype, size)
        for slot, (array, dtype) in enumerate(zip(arrays, [kinds[0], *dtypes_in], strict=True))
    }
    Interpreter("kernel", uops).run(memory, [size])
    return arrays[0]


def any_bits(dtype: DType, count: int) -> np.ndarray:
    """Floats of any bits: every exponent, both signs, denormals and NaNs."""
    kind = np.uint32 if dtype is f32 else np.uint64
    bits = random.integers(0, np.iinfo(kind).max, count, dtype=kind, endpoint=True)
    return bits.view(np.float32 if dtype is f32 else np.float64)


def worst_ulp(found: np.ndarray, expected: np.ndarray) -> float:
    """The largest error in units in the last place; infinities, NaN and zeros must agree."""
    with np.errstate(all="ignore"):
        rounded = expected.astype(found.dtype)
        np.testing.assert_array_equal(np.isnan(found), np.isnan(rounded))
        infinite = np.isinf(rounded) | np.isinf(found)
        np.testing.assert_array_equal(found[infinite], rounded[infinite])
        zeros = (rounded == 0) & (found == 0)
        np.testing.assert_array_equal(np.signbit(found[zeros]), np.signbit(rounded[zeros]))
        finite = np.isfinite(rounded)
        unit = np.spacing(np.abs(rounded[finite])).astype(expected.dtype)
        error = np.abs(found[finite].astype(expected.dtype) - expected[finite]) / unit
    return float(error.max(initial=0.0))
