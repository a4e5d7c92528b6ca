"""docs/architecture.md follows one expression through the files, as it goes."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from test.children import Child

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
STEPS = re.findall(r"^\| `(weft/\S+\.py)` `(\w+)` \|", PAGE, re.MULTILINE)

FOLLOW = """
import sys
from weft import Tensor

seen = {}

def watch(frame, event, argument):
    if event == "call":
        seen.setdefault((frame.f_code.co_filename, frame.f_code.co_name))

sys.setprofile(watch)
(Tensor.rand(3) + 1).tolist()
sys.setprofile(None)
for path, name in seen:
    print(path, name, sep="\\t")
"""


def test_the_expression_goes_that_way(tmp_path: Path) -> None:
    plain = {k: v for k, v in os.environ.items() if k not in ("SPEC", "DEBUG", "DEVICE", "VIZ")}
    environment = {**plain, "PYTHONPATH": str(ROOT), "WEFT_CACHE": str(tmp_path), "DEVICE": "CPU"}
    with Child(
        [sys.executable, "-c", FOLLOW], env=environment, stdout=subprocess.PIPE, cwd=tmp_path
    ) as child:
        out, _ = child.communicate()
    assert child.returncode == 0
    calls = [tuple(line.split("\t")) for line in out.splitlines()]
    visited = [(str(Path(p).relative_to(ROOT)), n) for p, n in calls if p.startswith(str(ROOT))]
    missing = [step for step in STEPS if step not in visited]
    assert not missing, f"the page says that these are called: {missing}"
    order = [visited.index(step) for step in STEPS]
    late = [STEPS[i] for i in range(1, len(order)) if order[i] < order[i - 1]]
    assert not late, f"these come earlier than the page says: {late}"
    assert len(STEPS) > 20
