"""A small share of `python -m test.llm.mutate`."""

from __future__ import annotations

from pathlib import Path

from test.llm.mutate import run


def test_changed_files_and_templates_are_read_or_refused(tmp_path: Path) -> None:
    counts, wrong = run(200, 0, tmp_path)
    assert not wrong
    assert min(counts.values()) > 2 and len(counts) == 4
