"""A few of the files that `python -m test.llm.families` compares."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.llm.families import compare, is_close


@pytest.mark.parametrize(
    ("family", "kind"),
    [("mistral", "Q4_K"), ("gemma2", "Q6_K")],
)
def test_a_file_agrees_with_transformers(family: str, kind: str, tmp_path: Path) -> None:
    assert is_close(*compare(family, kind, tmp_path))
