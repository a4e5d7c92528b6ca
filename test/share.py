"""A fixed share of the tests: `pytest -p test.share` runs one in `SHARE` (of the environment).

Which ones depends on their names, so it is the same everywhere. For devices whose compilers take
seconds a kernel: `make test-devices` runs a share under each, `make test-all` all of them.
"""

from __future__ import annotations

import os
import zlib
from typing import Any

import pytest

SHARE = int(os.environ.get("SHARE", "100"))


def pytest_collection_modifyitems(config: Any, items: list[pytest.Item]) -> None:
    """Keep the share."""
    kept = [item for item in items if zlib.crc32(item.nodeid.encode()) % SHARE == 0]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept
