"""docs/extending.md is true: what it adds is added to a copy of weft, and works there."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from test.children import Child

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "extending.md").read_text(encoding="utf-8")
BLOCK = re.compile(r"^```(diff|python (?:then|file=\S+))\n(.*?)^```", re.MULTILINE | re.DOTALL)
SECTIONS = {
    part.partition("\n")[0]: BLOCK.findall(part) for part in re.split(r"^## ", PAGE, flags=re.M)[1:]
}


def apply(text: str, root: Path) -> None:
    """Insert the lines that are marked with + beside the others, which are in the file once."""
    first, _, rest = text.partition("\n")
    path = root / first.removeprefix("--- ")
    source = path.read_text(encoding="utf-8")
    for hunk in rest.split("@@\n"):
        lines = hunk.splitlines(keepends=True)
        before = "".join(line[1:] for line in lines if line[0] == " ")
        assert source.count(before) == 1, f"{path.name} has not just once:\n{before}"
        source = source.replace(before, "".join(line[1:] for line in lines))
    path.write_text(source, encoding="utf-8")


@pytest.mark.parametrize("section", SECTIONS)
def test_what_a_recipe_adds_works(section: str, tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "page")
    shutil.copytree(ROOT / "weft", tmp_path / "weft", ignore=ignored)
    checks = []
    for kind, text in SECTIONS[section]:
        if kind == "diff":
            apply(text, tmp_path)
        elif kind == "python then":
            checks.append(text)
        else:
            new = tmp_path / kind.partition("file=")[2]
            assert not new.exists() and new.parent.is_dir()
            new.write_text(text, encoding="utf-8")
    assert len(checks) == 1, f"{section} has one block that shows what was added"
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "WEFT_CACHE": str(tmp_path / "cache")}
    command = [sys.executable, "-c", "import weft\nprint(weft.__file__)\n" + checks[0]]
    with Child(
        command,
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as child:
        out, errors = child.communicate()
    assert child.returncode == 0, errors
    assert out.startswith(str(tmp_path)), "the copy was imported"


def test_there_is_a_recipe_for_everything() -> None:
    wanted = ["A method", "A rewrite rule", "An op", "A pass", "A renderer", "A device"]
    assert list(SECTIONS) == wanted
