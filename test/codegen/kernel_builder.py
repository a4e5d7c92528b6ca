"""Kernels built by hand, and what runs them: shared by the tests of the lowering passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from test.optional import STRICTEST
from weft.codegen.expand import expand
from weft.codegen.hoist import hoist_sums
from weft.codegen.linearize import linearize
from weft.codegen.lower_index import lower_index
from weft.codegen.merge import merge
from weft.codegen.pipeline import lower
from weft.codegen.place import LoopTree
from weft.codegen.separate import separate, separate_loops
from weft.codegen.share_threads import share_threads
from weft.codegen.widen import widen
from weft.dtype import DType, dtypes, from_numpy_dtype
from weft.knobs import Context
from weft.renderer.python import PythonRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.args import AxisType, KernelInfo
from weft.uop.node import UOp
from weft.uop.opset import Ops

F32 = dtypes.float32
Pass = Callable[[UOp], UOp]


class Axes:
    """Axes with numbers of their own, by kind: `a.loop(4)`, `a.vector(8)`."""

    def __init__(self) -> None:
        self.number = 0

    def make(self, size: int | UOp, kind: AxisType) -> UOp:
        self.number += 1
        return UOp.range(size, self.number - 1, kind)

    def loop(self, size: int | UOp) -> UOp:
        return self.make(size, AxisType.LOOP)

    def reduce(self, size: int | UOp) -> UOp:
        return self.make(size, AxisType.REDUCE)

    def upcast(self, size: int) -> UOp:
        return self.make(size, AxisType.UPCAST)

    def unroll(self, size: int) -> UOp:
        return self.make(size, AxisType.UNROLL)

    def vector(self, size: int) -> UOp:
        return self.make(size, AxisType.VECTOR)

    def thread(self, size: int) -> UOp:
        return self.make(size, AxisType.THREAD)


def params(*arrays: np.ndarray) -> list[UOp]:
    """A PARAM per array, in order."""
    return [
        UOp.param(slot, from_numpy_dtype(array.dtype), array.size)
        for slot, array in enumerate(arrays)
    ]


def load(memory: UOp, idx: UOp, valid: UOp | None = None) -> UOp:
    return memory.index(idx, valid).load()


def kernel(*stores: UOp) -> UOp:
    return UOp.sink(*stores, arg=KernelInfo("test"))


def const(value: int) -> UOp:
    return UOp.const(dtypes.weakint, value)


def linear_program(sink: UOp, index_dtype: DType = dtypes.int64) -> list[UOp]:
    """The passes of the pipeline that need no target."""
    sink = widen(separate(merge(sink)))
    sink = expand(share_threads(separate(sink)))
    sink = separate_loops(lower_index(sink, index_dtype))
    nest = LoopTree(sink)
    return linearize(hoist_sums(sink, nest), nest)


def interpret(
    uops: Sequence[UOp], arrays: Sequence[np.ndarray], values: Sequence[int] = ()
) -> None:
    memory = {
        u.arg.slot: view_memory(memoryview(arrays[u.arg.slot]).cast("B"), u.dtype, u.arg.size)
        for u in uops
        if u.op is Ops.PARAM
    }
    Interpreter("test", uops).run(memory, values)


def run(sink: UOp, *arrays: np.ndarray, values: Sequence[int] = ()) -> list[UOp]:
    """Lower, interpret, and give the program back for a look at it.

    The whole pipeline, verified after each pass, must compute the same as these passes alone.
    """
    again = [array.copy() for array in arrays]
    uops = linear_program(sink)
    interpret(uops, arrays, values)
    with Context(SPEC=STRICTEST, NOOPT=1):
        program = lower(sink, PythonRenderer())
    interpret(program.uops, again, values)
    for found, expected in zip(again, arrays, strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    return uops


def count(uops: Sequence[UOp], op: Ops) -> int:
    return sum(1 for u in uops if u.op is op)
