"""A few functions that read state in odd ways; `python -m test.fuzz reads` runs as many as one
likes."""

from __future__ import annotations

import pytest

from test.fuzz.jit_reads import ReadGenerator, difference
from weft import Context


@pytest.mark.parametrize("seed", range(40))
def test_random_reads(seed: int) -> None:
    with Context(NOOPT=1):
        assert difference(ReadGenerator(seed).run()) is None
