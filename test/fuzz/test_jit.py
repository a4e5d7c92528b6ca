"""A few random functions under TinyJit; `python -m test.fuzz jit` runs as many as one likes."""

from __future__ import annotations

import pytest

from test.fuzz.jit import JitGenerator, difference
from weft import Context


@pytest.mark.parametrize("seed", range(20))
def test_random_functions(seed: int) -> None:
    with Context(NOOPT=1):
        assert difference(JitGenerator(seed).run()) is None


# found by longer runs: state under two names, places that hold what they held, changed numbers
@pytest.mark.parametrize("seed", [121, 143, 196, 270, 1103, 4602])
def test_functions_that_once_differed(seed: int) -> None:
    with Context(NOOPT=1):
        assert difference(JitGenerator(seed, is_wide=False).run()) is None
