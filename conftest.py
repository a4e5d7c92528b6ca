"""Names that the examples in docstrings use without importing them."""

from __future__ import annotations

from typing import Any

import pytest


@pytest.fixture(autouse=True)
def example_names(doctest_namespace: dict[str, Any]) -> None:
    from weft import Device, Tensor, dtypes, nn

    doctest_namespace.update(Device=Device, Tensor=Tensor, dtypes=dtypes, nn=nn)
