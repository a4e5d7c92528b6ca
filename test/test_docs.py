"""Every Python block in README.md and docs/ runs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from test.optional import BROUGHT_BY, need

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[tuple[int, str]]:
    """(line, code) of every block marked as Python."""
    text = page.read_text(encoding="utf-8")
    found = re.finditer(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [(text[: match.start()].count("\n") + 1, match.group(1)) for match in found]


WITH_CODE = [page for page in PAGES if blocks(page)]


@pytest.mark.parametrize("page", WITH_CODE, ids=[str(p.relative_to(ROOT)) for p in WITH_CODE])
def test_blocks_run(page: Path) -> None:
    """In one namespace, as a reader types them one after another."""
    for package in re.findall(r"^import (\w+)$", page.read_text(encoding="utf-8"), re.MULTILINE):
        if package in BROUGHT_BY:
            need(package)
    namespace = {"__name__": "__docs__"}
    for line, code in blocks(page):
        # lines count as in the page, so that a traceback leads to the block
        exec(compile("\n" * line + code, str(page.relative_to(ROOT)), "exec"), namespace)


def test_links_between_pages_lead_somewhere() -> None:
    for page in PAGES:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text(encoding="utf-8")):
            assert (page.parent / target).exists(), f"{page.name} links to {target}"


def _run_plain(code: str) -> None:
    """In a process of its own, without knobs that change what is printed."""
    plain = {k: v for k, v in os.environ.items() if k not in ("SPEC", "DEBUG", "NOOPT")}
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        env={**plain, "PYTHONPATH": str(ROOT)},
        timeout=300,
    )
    assert done.returncode == 0, done.stderr


def test_generated_tables_are_current() -> None:
    """In a process of its own: other tests make knobs of their own."""
    _run_plain(
        "import sys; sys.path.insert(0, 'docs'); import tables\n"
        "stale = [n for n, p in tables.PAGES.items() if (tables.HERE / n).read_text() != p()]\n"
        "sys.exit(f'run python docs/tables.py: {stale}' if stale else 0)"
    )


@pytest.mark.device("CPU")  # its kernels are printed
def test_tutorial_is_current() -> None:
    """All of it but the assembly, which is LLVM's."""
    code = (
        "import sys; sys.path.insert(0, 'docs'); import tutorial as t\n"
        "same = t.without_assembly(t.PAGE.read_text()) == t.without_assembly(t.page())\n"
        "sys.exit(0 if same else 'run python docs/tutorial.py')"
    )
    _run_plain(code)


def test_every_page_is_in_the_site() -> None:
    """A page that the navigation does not name would be built, and found by nobody."""
    site = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").rglob("*.md")):
        assert str(page.relative_to(ROOT / "docs")) in site, f"mkdocs.yml does not name {page}"
