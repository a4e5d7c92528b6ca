"""A share of the random models of `python -m test.graphs.random_models`."""

from __future__ import annotations

import pytest

from test.graphs.random_models import check


@pytest.mark.parametrize("seed", range(12))
def test_agrees_with_onnx_runtime(seed: int) -> None:
    assert check(seed)
