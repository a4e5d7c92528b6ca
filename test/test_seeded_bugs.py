"""Compiler bugs put in on purpose: each is caught, by SPEC=2 or by a fuzzer, and the message names
the culprit.

A bug is one small change to a rule, a pass, an action, the planner or a renderer. A check that
finds nothing in a healthy compiler is worth nothing until it has found these.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, kernel, load, params
from test.codegen.opt.kernels import in_place
from test.fuzz import actions, floats
from test.fuzz.culprit import find_culprit, forget_everything
from test.fuzz.programs import Generator, Program, difference, run_weft, shrink
from weft import Context, Tensor
from weft.codegen import linearize, pipeline
from weft.codegen.decompose import decompose, transcendental
from weft.codegen.opt import actions as opt_actions
from weft.dtype import DType, dtypes
from weft.engine import memory
from weft.errors import SpecError
from weft.machine import Target
from weft.renderer import llvm_base
from weft.renderer.python import PythonRenderer
from weft.schedule import index
from weft.schedule import pipeline as schedule_pipeline
from weft.uop import bounds
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.prove import clear_proofs

Patch = pytest.MonkeyPatch


@pytest.fixture(autouse=True)
def fresh(monkeypatch: Patch) -> Iterator[None]:
    """Nothing compiled with a bug survives the test, and nothing compiled before hides it."""
    forget_everything()
    clear_proofs()
    with Context(CCACHE=0):
        yield
    monkeypatch.undo()
    forget_everything()
    clear_proofs()


# ------------------------------------------------------------ the two ways to be caught


def caught_by_spec(run: Callable[[], Any]) -> str:
    """What SPEC=2 says about a program that is compiled with the bug."""
    with Context(SPEC=2), pytest.raises(SpecError) as caught:
        run()
    return str(caught.value)


def caught_by_fuzzer(
    programs: int = 200, length: int = 10, device: str | None = None
) -> tuple[Program, str]:
    """The first random program that goes wrong, shrunk, and who is said to be to blame.

    Bugs that lead outside of memory are looked for on PYTHON, which survives them.
    """

    def fails(program: Program) -> bool:
        forget_everything()
        return difference(program, device) is not None

    for seed in range(programs):
        program = Generator(seed, length).run()
        if fails(program):
            return blamed(shrink(program, fails), device)
    pytest.fail(f"{programs} random programs did not find the bug")


def blamed(program: Program, device: str | None) -> tuple[Program, str]:
    """The program, and who makes it go wrong."""
    return program, find_culprit(
        lambda: run_weft(program.statements, device), lambda: difference(program, device) is None
    )


def numbers(*shape: int, dtype: str = "float32") -> Tensor:
    values = np.arange(int(np.prod(shape))).reshape(shape)
    return Tensor(values.astype(dtype)).realize()


def with_rule(monkeypatch: Patch, pattern: UPat, rule: Callable[..., UOp]) -> None:
    """The kernel's simplification gets one more rule, first."""
    monkeypatch.setattr(pipeline, "sym", PatternMatcher([(pattern, rule)]) + pipeline.sym)


# ------------------------------------------------------------ rules


def take_first(node: UOp) -> UOp:
    """max(x, y) -> x: wrong where y is greater"""
    return node.src[0]


def test_a_wrong_rule(monkeypatch: Patch) -> None:
    with_rule(monkeypatch, UPat(Ops.MAX, (dtypes.int32, dtypes.float32), name="node"), take_first)
    program, culprit = caught_by_fuzzer()
    assert "rule take_first" in culprit and "'simplify'" in culprit
    assert len(program.statements) <= 8


def lose_rounding(node: UOp) -> UOp:
    """cast(x, float32) -> x: keeps the dtype that was cast from"""
    return node.src[0]


def test_a_wrong_dtype(monkeypatch: Patch) -> None:
    with_rule(monkeypatch, UPat(Ops.CAST, dtypes.float32, name="node"), lose_rounding)
    message = caught_by_spec(lambda: (numbers(4, dtype="int32").cast("float32") + 1.5).realize())
    assert "SPEC ISSUE" in message and "'simplify'" in message
    assert "made by rule lose_rounding" in message


def drop_guard(node: UOp) -> UOp:
    """INDEX(p, i, valid) -> INDEX(p, i)"""
    return node.with_src(node.src[:2])


def test_a_lost_validity(monkeypatch: Patch) -> None:
    guarded = UPat(Ops.INDEX, src=(UPat(), UPat(), UPat()), name="node")
    with_rule(monkeypatch, guarded, drop_guard)
    message = caught_by_spec(lambda: (numbers(4).pad(((1, 1),)) + 1).realize())
    assert "kernel E_6 after pass 'simplify'" in message and "touches element" in message
    assert "made by rule drop_guard" in message


def test_wrong_bounds(monkeypatch: Patch) -> None:
    """x % 3 is said to be 0 or 1."""
    right = bounds._RULES[Ops.MOD]

    def wrong(node: Any) -> Any:
        low, high = right(node)
        return low, max(low, high - 1)

    monkeypatch.setitem(bounds._RULES, Ops.MOD, wrong)
    # of dtypes that no node before this test had bounds of
    x = Tensor(np.arange(40, dtype=np.uint16)).realize()

    def run() -> list[int]:
        return ((x % 3) < 2).cast("int32").tolist()

    expected = (np.arange(40) % 3 < 2).astype(int).tolist()
    assert run() != expected
    culprit = find_culprit(run, lambda: run() == expected)
    assert "rule fold_decided" in culprit or "rule simplify_less" in culprit


def floor_is_forgotten(x: UOp, y: UOp) -> UOp:
    """x // y as C has it, rounded towards zero"""
    divisor = y.eq(0).where(1, y)
    return y.eq(0).where(0, UOp(Ops.IDIV, x.dtype, (x, divisor), None, "raw"))


def test_a_division_that_rounds_as_c_does(monkeypatch: Patch) -> None:
    monkeypatch.setitem(decompose._BINARY, Ops.IDIV, floor_is_forgotten)
    _, culprit = caught_by_fuzzer(length=16)
    assert "rule decompose_binary" in culprit and "'decompose'" in culprit


# ------------------------------------------------------------ the schedule


def test_an_index_off_by_one(monkeypatch: Patch) -> None:
    right = index._plus

    def wrong(x: UOp, offset: Any) -> UOp:
        return right(x, offset + 1 if isinstance(offset, int) and offset > 0 else offset)

    monkeypatch.setattr(index, "_plus", wrong)
    message = caught_by_spec(lambda: (numbers(3, 4)[1:] * 2).realize())
    assert "after pass 'schedule': LOAD" in message and "touches element 12" in message
    assert "which has 12 elements" in message


def test_a_pad_that_forgets_its_end(monkeypatch: Patch) -> None:
    right = index.pad_guard

    def wrong(node: UOp, idx: Any) -> Any:
        inner, _ = right(node, idx)
        return inner, inner[0] >= 0

    monkeypatch.setattr(index, "pad_guard", wrong)
    message = caught_by_spec(lambda: (numbers(4).pad(((1, 2),)) + 1).realize())
    assert "after pass 'schedule': LOAD" in message and "touches element 4" in message


def test_a_swapped_axis(monkeypatch: Patch) -> None:
    """The inverse permutation: the same for two axes, another for three."""
    right = index.source_index

    def wrong(node: UOp, idx: Any) -> Any:
        if node.op is Ops.PERMUTE:
            return tuple(idx[axis] for axis in node.arg), None
        return right(node, idx)

    monkeypatch.setattr(index, "source_index", wrong)
    x = numbers(3, 3, 3)
    expected = x.numpy().transpose(2, 0, 1)

    def run() -> np.ndarray:
        found: np.ndarray = (x.permute(2, 0, 1) + 0.5).numpy()
        return found

    assert not np.array_equal(run(), expected + 0.5)
    culprit = find_culprit(run, lambda: np.array_equal(run(), expected + 0.5))
    assert culprit.startswith("the schedule") and "test_seeded_bugs.py" in culprit
    # where the sizes differ the wrong element is outside
    _, culprit = caught_by_fuzzer(device="PYTHON")
    assert "schedule" in culprit


def test_a_write_that_overtakes_its_readers(monkeypatch: Patch) -> None:
    """In place, an element is read after another step wrote it."""
    monkeypatch.setattr(schedule_pipeline, "in_place_conflict", lambda stores: False)

    def run() -> None:
        x = numbers(8)
        x.assign(x.flip(0) + 1).realize()

    message = caught_by_spec(run)
    assert "after pass 'schedule': in place, element" in message and "read in another" in message


def test_memory_that_is_given_out_twice(monkeypatch: Patch) -> None:
    right = memory._Arena.take

    def wrong(self: Any, nbytes: int) -> int:
        right(self, nbytes)
        return 0

    monkeypatch.setattr(memory._Arena, "take", wrong)
    x = numbers(64)
    expected = (x.numpy() * 2 + (x.numpy() + 3)[::-1]).sum()

    def run() -> float:
        # nobody holds the parts: they live in planned memory
        total = ((x * 2).contiguous() + (x + 3).contiguous().flip(0)).contiguous().sum()
        return float(total.item())

    assert run() != expected
    culprit = find_culprit(run, lambda: run() == expected)
    assert culprit.startswith("the memory planner: buffers") and "test_seeded_bugs.py" in culprit


# ------------------------------------------------------------ codegen


def test_an_overlapping_tile_in_place(monkeypatch: Patch) -> None:
    monkeypatch.setattr(opt_actions, "_reads_what_it_writes", lambda ast: False)

    def run() -> None:
        x = numbers(1003)
        x.assign(x * 2 + 1).realize()

    message = caught_by_spec(run)
    assert "after pass 'optimise': in place, element" in message
    # the fuzzer of actions sees it as well, and names the action
    ast, arrays = in_place(random.Random(3), 9)
    size = arrays[0].size
    opt = opt_actions.Opt(opt_actions.OptOps.SPLIT, (0,), size - 1)
    case = actions.Case(0, ast, tuple(arrays), (opt,))
    with Context(SPEC=0):
        small = actions.shrink(case, lambda c: actions.difference(c) is not None)
        found = actions.difference(small)
    assert found is not None and "OptOps.SPLIT" in found


def test_a_wrong_neutral_element(monkeypatch: Patch) -> None:
    """A maximum that starts from 0."""
    right = linearize.identity_of

    def wrong(op: Ops, dtype: DType) -> UOp:
        return UOp.const(dtype, 0) if op is Ops.MAX else right(op, dtype)

    monkeypatch.setattr(linearize, "identity_of", wrong)
    _, culprit = caught_by_fuzzer()
    assert "a pass from expand to linearize in kernel r_" in culprit


def test_a_polynomial_with_a_wrong_coefficient(monkeypatch: Patch) -> None:
    """Off by a few hundred units: too little to be seen without a bound for each result."""
    right = transcendental._EXP2[dtypes.float32]
    wrong = (right.terms[0] + 1e-4, *right.terms[1:])
    table = dict(transcendental._EXP2)
    table[dtypes.float32] = replace(right, terms=wrong)
    monkeypatch.setattr(transcendental, "_EXP2", table)

    def fails(program: Program) -> bool:
        forget_everything()
        return floats.difference(program) is not None

    found = next(p for p in map(float_program, range(100)) if fails(p))
    small = shrink(found, fails, floats.is_closed)
    culprit = find_culprit(
        lambda: run_weft(small.statements), lambda: floats.difference(small) is None, floats.UNITS
    )
    assert "pass 'decompose' in kernel" in culprit
    assert len(small.statements) <= 6


def float_program(seed: int) -> Program:
    return floats.FloatGenerator(seed).run()


GPU = Target(name="gpu", vector_bytes=16, has_local=True, group_threads=256, shared_bytes=32 << 10)


def test_a_dropped_barrier(monkeypatch: Patch) -> None:
    arrays = [np.zeros(4, np.float32), np.zeros((4, 256), np.float32)]
    out, x = params(*arrays)
    a = Axes()
    i, r = a.loop(4), a.reduce(256)
    ast = kernel(out.index(i).store(load(x, i * 256 + r).reduce(Ops.ADD, r), i))
    with Context(SPEC=2):
        healthy = pipeline.lower(ast, PythonRenderer(GPU))
    assert any(u.op is Ops.BARRIER for u in healthy.uops)
    passes = tuple(step for step in pipeline.PROGRAM_PASSES if step.name != "add_barriers")
    monkeypatch.setattr(pipeline, "PROGRAM_PASSES", passes)
    message = caught_by_spec(lambda: pipeline.lower(ast, PythonRenderer(GPU)))
    assert "kernel test after pass 'linearize': LOAD of local0" in message
    assert "no BARRIER" in message


@pytest.mark.device("CPU")
def test_a_renderer_that_prints_another_op(monkeypatch: Patch) -> None:
    # of floats: a wrong index would take this process with it
    right = llvm_base.INSTRUCTIONS[Ops.ADD]
    monkeypatch.setitem(llvm_base.INSTRUCTIONS, Ops.ADD, ("fsub", *right[1:]))
    _, culprit = caught_by_fuzzer()
    assert culprit.startswith("the renderer or compiler of CPU in kernel")


# ------------------------------------------------------------ no false alarms


def test_a_healthy_compiler_is_not_accused() -> None:
    program = Generator(7, 10).run()
    culprit = find_culprit(
        lambda: run_weft(program.statements), lambda: difference(program) is None
    )
    # nothing is wrong, so whatever is asked last is said to mend it
    assert "rule" not in culprit and "pass" not in culprit and "renderer" not in culprit
