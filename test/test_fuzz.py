"""A fixed share of the random programs and expressions; any count with `python -m test.fuzz`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.fuzz import expressions, floats
from test.fuzz.programs import STEPS, Generator, difference, run_numpy, shrink
from test.optional import STRICTEST, need
from weft import Context, Tensor
from weft.dtype import dtypes
from weft.uop.node import UOp


@pytest.mark.parametrize("block", range(8))
def test_random_programs_agree_with_numpy(block: int) -> None:
    for seed in range(block * 25, block * 25 + 25):
        program = Generator(seed, length=14).run()
        found = difference(program)
        if found is not None:
            small = shrink(program, lambda p: difference(p) is not None)
            pytest.fail(f"seed {seed}: {difference(small)}\n{small.source()}")


def test_random_programs_agree_without_optimisation() -> None:
    with Context(NOOPT=1):
        for seed in range(1000, 1020):
            assert difference(Generator(seed, length=12).run()) is None, seed


def test_random_programs_agree_on_the_interpreter() -> None:
    for seed in range(2000, 2020):
        assert difference(Generator(seed, length=8).run(), "PYTHON") is None, seed


def test_random_programs_agree_on_the_interpreter_of_a_gpu() -> None:
    """In groups of threads, in a random order, and without races."""
    for seed in range(2100, 2112):
        assert difference(Generator(seed, length=8).run(), "PYTHON:sm_90") is None, seed


def test_random_programs_are_verified() -> None:
    with Context(SPEC=STRICTEST):
        for seed in range(3000, 3015):
            assert difference(Generator(seed, length=10).run()) is None, seed


def test_random_programs_of_floats_stay_within_their_bounds() -> None:
    for seed in range(60):
        program = floats.FloatGenerator(seed).run()
        assert floats.difference(program) is None, f"seed {seed}\n{program.source()}"


def test_random_programs_of_floats_on_the_interpreter() -> None:
    for seed in range(1000, 1015):
        assert floats.difference(floats.FloatGenerator(seed, 8).run(), "PYTHON") is None, seed


def test_random_programs_of_floats_on_the_interpreter_of_a_gpu() -> None:
    for seed in range(1100, 1108):
        program = floats.FloatGenerator(seed, 8).run()
        assert floats.difference(program, "PYTHON:sm_90") is None, seed


def test_random_programs_of_half_types_agree_to_the_bit() -> None:
    halves = _halves()
    for seed in range(60):
        program = halves.HalfGenerator(seed).run()
        assert halves.difference(program) is None, f"seed {seed}\n{program.source()}"


def test_random_programs_of_half_types_on_the_interpreter() -> None:
    halves = _halves()
    for seed in range(1000, 1015):
        assert halves.difference(halves.HalfGenerator(seed, 8).run(), "PYTHON") is None, seed


def test_random_programs_of_half_types_without_optimisation() -> None:
    halves = _halves()
    with Context(NOOPT=1):
        for seed in range(2000, 2020):
            assert halves.difference(halves.HalfGenerator(seed).run()) is None, seed


def _halves() -> Any:
    """The module, which needs bfloat16 for NumPy."""
    need("ml_dtypes")
    from test.fuzz import halves

    return halves


def test_bounds_of_floats_are_narrow() -> None:
    """A bound that holds everything would find nothing: most results have five digits or more."""
    narrow = results = 0
    for seed in range(60):
        for twin in floats.run_twin(floats.FloatGenerator(seed).run().statements).values():
            if twin.kind == "float32" and twin.size:
                results += 1
                narrow += bool(twin.error.max() < 1e-5 * (1 + np.abs(twin.value).max()))
    assert narrow > 0.9 * results > 100, (narrow, results)


def test_random_expressions_keep_their_value() -> None:
    for seed in range(200):
        report = expressions.check_seed(seed)
        assert report is None, report


def test_every_kind_of_step_is_taken() -> None:
    """A step whose conditions are never met tests nothing."""
    for step, _ in STEPS.items():
        made = 0
        for seed in range(60):
            world = Generator(seed, length=10)
            world.run()
            before = len(world.program.statements)
            step(world)
            made += len(world.program.statements) > before
        assert made >= 5, f"{step.__name__} made {made} statements in 60 programs"


def test_programs_repeat_and_print_as_code() -> None:
    program = Generator(17, length=12).run()
    assert program.source() == Generator(17, length=12).run().source()
    environment: dict[str, object] = {}
    exec(program.source(), environment)
    expected = run_numpy(program.statements)
    tensors = {k: v for k, v in environment.items() if isinstance(v, Tensor)}
    assert tensors.keys() == expected.keys()
    assert all(np.array_equal(t.numpy(), expected[k]) for k, t in tensors.items())


def test_expressions_shrink_to_the_part_that_matters() -> None:
    """A wrong rule about x % 4 is found in a large expression, and little is left of it."""
    x, y = UOp.variable("x", 0, 11), UOp.variable("y", 0, 5)
    node = ((x * 3 + y) // 2 + (x % 4) * 6) % 24 + y

    def fails(other: UOp) -> bool:
        return any(u is x % 4 for u in other.toposort())

    small = expressions.shrink(node, fails)
    assert small is x % 4 and small.dtype is dtypes.weakint
    environment: dict[str, object] = {}
    exec(expressions.source(small).replace("print(", "found = ("), environment)
    assert environment["found"] is None
