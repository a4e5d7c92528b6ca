"""Names that the examples in docstrings use without importing them, and which files have some."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest


def _has_torch() -> bool:
    try:
        return importlib.util.find_spec("torch") is not None
    except ModuleNotFoundError:  # imports of it are blocked
        return False


# these import PyTorch, which weft does not need
collect_ignore_glob = [] if _has_torch() else ["weft/torch/*"]


@pytest.fixture(autouse=True)
def example_names(doctest_namespace: dict[str, Any]) -> None:
    from weft import Device, Tensor, dtypes, nn

    doctest_namespace.update(Device=Device, Tensor=Tensor, dtypes=dtypes, nn=nn)
