"""A fixed share of the random programs; any count by hand with `python -m test.fuzz`."""

from __future__ import annotations

import pytest

from test.fuzz.programs import Generator, difference, shrink
from weft import Context


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
