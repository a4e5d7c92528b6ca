"""A share of the damaged files of `python -m test.nn.mutations`."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest

from test.nn.mutations import FORMATS, Count, attempt, damaged_files

SHARE = 400
# of Python's own memory for a file of a few KiB: objects cost more than the bytes they stand for
LARGEST_PEAK = 8 << 20


@pytest.mark.parametrize("name", FORMATS)
def test_good_files_load(name: str) -> None:
    for data in FORMATS[name].examples():
        FORMATS[name].load(data)


@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_load_or_are_refused(name: str, tmp_path: Path) -> None:
    count = Count()
    path = tmp_path / "x"
    tracemalloc.start()
    try:
        for number, data in enumerate(damaged_files(name, SHARE, seed=1)):
            path.write_bytes(data)
            attempt(name, path, count, read=number % 100 == 0)
        assert tracemalloc.get_traced_memory()[1] < LARGEST_PEAK
    finally:
        tracemalloc.stop()
    assert count.loaded and count.refused
