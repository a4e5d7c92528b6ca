"""Fills ahead of their use: what stands where, and that every wait and barrier is needed."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft import Tensor
from weft.codegen.opt.fragments import Tiling
from weft.codegen.pipeline import lower
from weft.dtype import DType, dtypes
from weft.errors import RaceError, SpecError
from weft.knobs import Context
from weft.renderer.base import ProgramSpec
from weft.renderer.cuda import SM_90
from weft.renderer.python import PythonRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.node import UOp
from weft.uop.opset import Ops

BRAIN = dtypes.bfloat16
random = np.random.default_rng(2)


@pytest.fixture
def product(monkeypatch: pytest.MonkeyPatch) -> Callable[..., ProgramSpec]:
    """A product of 32 rows and 16 columns in two warps, staged so many blocks deep."""

    def make(depth: int, terms: int = 80) -> ProgramSpec:
        opt = Tiling(1, ((0,),), ((1,),), 2, 1, 1, 1, 1, depth).opt((2,))
        monkeypatch.setattr("weft.codegen.opt.gpu.plan_fragments", lambda stores, target: opt)
        a, b = [Tensor.empty(*shape, dtype=BRAIN) for shape in ((32, terms), (terms, 16))]
        (step,) = (a @ b).schedule()
        with Context(SPEC=1):
            return lower(step.ast, PythonRenderer(SM_90))

    return make


def count(uops: list[UOp], op: Ops) -> int:
    return sum(u.op is op for u in uops)


def run(uops: list[UOp], terms: int = 80) -> tuple[list[float], list[float]]:
    """What a program computes of random numbers, and what it should."""
    a, b = [random.integers(-3, 4, shape) for shape in ((32, terms), (terms, 16))]
    memory = {slot: filled(values, BRAIN) for slot, values in enumerate((np.zeros((32, 16)), a, b))}
    Interpreter("product", uops).run(memory, ())
    return [memory[0][i] for i in range(512)], (a @ b).ravel().tolist()


def filled(values: np.ndarray, dtype: DType) -> object:
    memory = view_memory(memoryview(bytearray(values.size * 2)), dtype, values.size)
    for i, value in enumerate(values.ravel().tolist()):
        memory[i] = float(value)
    return memory


def test_one_barrier_a_round_and_copies_of_16_bytes(
    product: Callable[..., ProgramSpec],
) -> None:
    uops = list(product(depth=3).uops)
    assert count(uops, Ops.BARRIER) == count(uops, Ops.WAIT) == 1
    # two rounds before the loop, one in it; a thread copies one piece of A, half of them one of B
    assert count(uops, Ops.COMMIT) == 3 and count(uops, Ops.FETCH) == 6
    assert {u.arg for u in uops if u.op is Ops.FETCH} == {8}
    (wait,) = [u for u in uops if u.op is Ops.WAIT]
    assert wait.arg[0] == 1
    memories = [u.arg.size for u in uops if u.op is Ops.LOCAL]
    # rows of 16 elements and 8 of padding, but for the last row's, three times
    assert memories == [3 * (32 * 24 - 8), 3 * (16 * 24 - 8)]
    got, wanted = run(uops)
    assert got == wanted


def test_a_loop_that_is_shorter_than_the_memory(product: Callable[..., ProgramSpec]) -> None:
    for depth, terms in ((2, 32), (4, 32), (5, 80)):
        got, wanted = run(list(product(depth, terms).uops), terms)
        assert got == wanted


def test_memory_of_one_round_has_the_usual_barriers(product: Callable[..., ProgramSpec]) -> None:
    uops = list(product(depth=1).uops)
    assert count(uops, Ops.BARRIER) == 2 and count(uops, Ops.WAIT) == 0


def test_what_is_not_aligned_is_copied_by_threads(product: Callable[..., ProgramSpec]) -> None:
    uops = list(product(depth=2, terms=81).uops)
    shared = [u for u in uops if u.op is Ops.STORE and u.src[0].src[0].op is Ops.LOCAL]
    # rows of A begin anywhere; those of B have 16 elements
    assert shared and count(uops, Ops.FETCH) > 0
    got, wanted = run(uops, 81)
    assert got == wanted


def test_the_barrier_is_needed(product: Callable[..., ProgramSpec]) -> None:
    uops = [u for u in product(depth=2).uops if u.op is not Ops.BARRIER]
    with pytest.raises((RaceError, SpecError), match="no barrier|read before it is written"):
        run(uops)


def test_the_wait_is_needed(product: Callable[..., ProgramSpec]) -> None:
    uops = [u for u in product(depth=2).uops if u.op is not Ops.WAIT]
    with pytest.raises(SpecError, match="read before it is written"):
        run(uops)


def test_a_warp_that_parts_is_refused(product: Callable[..., ProgramSpec]) -> None:
    """Half of a warp leaves the loop early: the other half waits for it in vain."""
    uops = list(product(depth=1).uops)
    (loop,) = [u for u in uops if u.op is Ops.RANGE]
    lane = next(u for u in uops if u.op is Ops.SPECIAL and u.arg == "lidx0")
    size = UOp(Ops.WHERE, loop.dtype, (lane < 16, loop.src[0], UOp.const(loop.dtype, 1)))
    parted = loop.with_src((size,))
    done: dict[UOp, UOp] = {loop: parted}
    program = [u for u in uops if u.op is Ops.SPECIAL]
    for uop in uops:
        if uop not in done:
            done[uop] = uop.with_src(tuple([done.get(s, s) for s in uop.src]))
        new = done[uop]
        if new is parted:
            program += [u for u in size.toposort() if u not in program]
        if new not in program:
            program.append(new)
    with pytest.raises(SpecError):
        run(program)
