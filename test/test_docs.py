"""Every Python block in README.md and docs/ runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks() -> list[tuple[str, str]]:
    """(where, code) of every block marked as Python."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for match in re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
            line = text[: match.start()].count("\n") + 1
            found.append((f"{page.relative_to(ROOT)}:{line}", match.group(1)))
    return found


@pytest.mark.parametrize(("where", "code"), blocks(), ids=[where for where, _ in blocks()])
def test_block_runs(where: str, code: str) -> None:
    exec(compile(code, where, "exec"), {"__name__": "__docs__"})


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def test_generated_tables_are_current() -> None:
    """In a process of its own: other tests make knobs of their own."""
    code = (
        "import sys; sys.path.insert(0, 'docs'); import tables\n"
        "stale = [n for n, p in tables.PAGES.items() if (tables.HERE / n).read_text() != p()]\n"
        "sys.exit(f'run python docs/tables.py: {stale}' if stale else 0)"
    )
    plain = {k: v for k, v in os.environ.items() if k not in ("SPEC", "DEBUG", "NOOPT")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**plain, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr
