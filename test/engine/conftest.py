"""What tests of the engine share: a cache folder in which nothing is kept yet."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from test.engine.keeping import forget
from weft.knobs import Context


@pytest.fixture
def cache(cache: Path) -> Iterator[Path]:
    """An empty folder that is used, and nothing known in memory."""
    with Context(CCACHE=1, SPEC=0, DEBUG=0):
        forget()
        yield cache
    forget()
