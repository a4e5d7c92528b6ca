"""A few random programs that look at their values; `python -m test.fuzz gradients` runs more."""

from __future__ import annotations

import pytest

from test.fuzz.gradients import check_seed
from weft import Context


@pytest.mark.parametrize("block", range(4))
def test_gradients_of_random_programs(block: int) -> None:
    with Context(NOOPT=1):
        for seed in range(block * 10, block * 10 + 10):
            assert check_seed(seed) is None


# found by longer runs: writes that happen on the way, a clone that is written to, one memory for
# values with different gradients, a write that is counted twice, memory that is written by the
# realize that reads it
SEEDS = [46, 55, 126, 1116, 2162, 2240, 3121, 4104, 500570, 500687, 501154]


@pytest.mark.parametrize("seed", SEEDS)
def test_programs_whose_gradients_once_differed(seed: int) -> None:
    with Context(NOOPT=1):
        assert check_seed(seed) is None


# values between two writes that happen together
@pytest.mark.parametrize("seed", [700757])
def test_longer_programs_whose_gradients_once_differed(seed: int) -> None:
    with Context(NOOPT=1):
        assert check_seed(seed, length=20) is None
