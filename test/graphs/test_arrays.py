"""What inputs of a model are checked for."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.errors import ShapeError
from weft.graphs.arrays import _check_shape


def test_sizes_that_an_exporter_calls_unknown_differ() -> None:
    """PaddlePaddle's models have "?" for height and width: they are not one size."""
    wanted: Any = SimpleNamespace(shape=(1, 3, "?", "?"))
    _check_shape("x", (1, 3, 48, 192), wanted, {})
    named: Any = SimpleNamespace(shape=(1, 3, "n", "n"))
    with pytest.raises(ShapeError, match="the size 'n' is 48"):
        _check_shape("x", (1, 3, 48, 192), named, {})
