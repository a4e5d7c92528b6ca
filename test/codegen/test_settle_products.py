"""Products that go on by themselves are waited for where their sums are used, and nowhere else."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor
from weft.codegen.opt.tiling import Tiling
from weft.codegen.pipeline import lower
from weft.codegen.settle_products import settle_products
from weft.dtype import dtypes
from weft.errors import RaceError
from weft.knobs import Context
from weft.renderer.base import ProgramSpec
from weft.renderer.cuda import SM_90
from weft.renderer.python import PythonRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.node import UOp
from weft.uop.opset import Ops

BRAIN = dtypes.bfloat16
ROWS, COLUMNS = 64, 32
NUMBER = next(
    number
    for number, fragment in enumerate(SM_90.fragments)
    if fragment.in_shared and fragment.a_dtype is BRAIN and fragment.n == COLUMNS
)
random = np.random.default_rng(4)


def product(terms: int, depth: int, monkeypatch: pytest.MonkeyPatch, spec: int = 1) -> ProgramSpec:
    """One group of warps that computes 64 rows and 32 columns."""
    opt = Tiling(NUMBER, ((0,),), ((1,),), 1, 1, 1, 1, 1, depth).opt((2,))
    monkeypatch.setattr("weft.codegen.opt.gpu.plan_fragments", lambda stores, target: opt)
    a, b = [Tensor.empty(*shape, dtype=BRAIN) for shape in ((ROWS, terms), (COLUMNS, terms))]
    (step,) = (a @ b.T).schedule()
    with Context(SPEC=spec):
        return lower(step.ast, PythonRenderer(SM_90))


def run(uops: list[UOp], terms: int) -> bool:
    """Whether a program computes of random numbers what it should."""
    a, b = [random.integers(-1, 2, (size, terms)) for size in (ROWS, COLUMNS)]
    memory = {}
    for slot, values in enumerate((np.zeros((ROWS, COLUMNS)), a, b)):
        memory[slot] = view_memory(memoryview(bytearray(values.size * 2)), BRAIN, values.size)
        for i, value in enumerate(values.ravel().tolist()):
            memory[slot][i] = float(value)
    Interpreter("product", uops).run(memory, ())
    return [memory[0][i] for i in range(ROWS * COLUMNS)] == (a @ b.T).ravel().tolist()


def settled(uops: list[UOp]) -> list[tuple[int, int]]:
    """Of each SETTLE: products that may go on, and sums that it gives."""
    return [(u.arg[0], len(u.src)) for u in uops if u.op is Ops.SETTLE]


@pytest.mark.parametrize(
    ("depth", "wanted"), [(2, [(0, 0), (0, 1)]), (3, [(1, 0), (0, 1)]), (4, [(1, 0), (0, 1)])]
)
def test_one_round_goes_on_where_there_is_room(
    depth: int, wanted: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    uops = list(product(320, depth, monkeypatch, spec=2 if depth == 3 else 1).uops)
    assert settled(uops) == wanted
    assert run(uops, 320)
    # memory of so many rounds of 64 terms, without any padding
    memories = [u.arg for u in uops if u.op is Ops.LOCAL]
    assert [m.size for m in memories] == [depth * 64 * ROWS, depth * 64 * COLUMNS]
    assert all(m.is_swizzled for m in memories)


def test_a_product_without_a_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    uops = list(product(64, 3, monkeypatch).uops)
    assert settled(uops) == [(0, 1)]
    (settle,) = [u for u in uops if u.op is Ops.SETTLE]
    assert settle.src[0].op is Ops.WMMA
    assert run(uops, 64)


def test_other_programs_stay_as_they_are() -> None:
    (step,) = (Tensor.empty(8) + 1).schedule()
    uops = list(lower(step.ast, PythonRenderer()).uops)
    assert settle_products(uops) == uops


def test_what_is_overwritten_while_it_is_read_is_a_race(monkeypatch: pytest.MonkeyPatch) -> None:
    """A product that goes on reads what the round after the next fetches, unless it is settled."""
    uops = list(product(320, 3, monkeypatch).uops)
    for removed in ([u for u in uops if u.op is Ops.SETTLE and u.arg[0]], [*find_barriers(uops)]):
        left = [u for u in uops if u not in removed]
        with pytest.raises(RaceError, match="shared memory"):
            run(left, 320)


def find_barriers(uops: list[UOp]) -> list[UOp]:
    return [u for u in uops if u.op is Ops.BARRIER]
