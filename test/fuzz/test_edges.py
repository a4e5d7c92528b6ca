"""A few calls at the edges of methods; `python -m test.fuzz edges` runs more."""

from __future__ import annotations

import pytest

from test.optional import optional

optional("torch")


@pytest.mark.parametrize("block", range(4))
def test_methods_at_their_edges(block: int) -> None:
    from test.fuzz.edges import check_seed

    for seed in range(block * 50, block * 50 + 50):
        assert check_seed(seed) is None
