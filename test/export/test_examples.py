"""The programs of examples/web: short runs write whole pages; `python -m test.export.whole` runs
them all."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from test.children import Child

ROOT = Path(__file__).resolve().parent.parent.parent
SHORT = {
    "digits": ["--steps", "3"],
    "gpt": "--steps 2 --batch 2 --context 8 --width 16 --layers 1".split(),
    "style": ["--steps", "2", "--size", "16"],
}


def test_every_program_is_run_here() -> None:
    assert sorted(SHORT) == sorted(path.stem for path in (ROOT / "examples" / "web").glob("*.py"))


def test_a_short_run_writes_a_page(tmp_path: Path) -> None:
    run_short("digits", tmp_path)


def run_short(name: str, tmp_path: Path) -> None:
    """A few steps of training, and a page that is whole."""
    command = [sys.executable, str(ROOT / "examples" / "web" / f"{name}.py"), *SHORT[name]]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with Child(
        [*command, "--out", str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
    ) as child:
        _, said = child.communicate()
    assert child.returncode == 0, said
    text = (tmp_path / f"{name}.html").read_text()
    assert '"whyNot": ""' in text and text.endswith("</html>\n")
