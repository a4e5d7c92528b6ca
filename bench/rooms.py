"""`python -m bench.rooms`: how often a first `(Tensor.rand(3) + 1).tolist()` changes rooms.

A room is a file of weft; a change is a call from code of one file into code of another (returns are
not counted again). Fewer changes: a reader who follows the program turns fewer pages.

In a process of its own, with empty caches on disk, so that all of the compiler runs.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PROGRAM = """
import sys
from weft import Tensor
from weft.device import Device

home, changes = {home!r}, {{}}

def look(frame, event, argument):
    if event == "call" and frame.f_code.co_filename.startswith(home):
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(home):
            caller = caller.f_back
        here = frame.f_code.co_filename
        there = None if caller is None else caller.f_code.co_filename
        if here != there:
            changes[there, here] = changes.get((there, here), 0) + 1

Device[Device.DEFAULT]
sys.setprofile(look)
(Tensor.rand(3) + 1).tolist()
sys.setprofile(None)
for (there, here), count in changes.items():
    print(count, there, here)
"""


def room_changes(root: Path = ROOT) -> Counter[tuple[str, str]]:
    """For each pair of files how often one calls into the other."""
    home = str(root / "weft")
    found: Counter[tuple[str, str]] = Counter()
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PYTHONPATH": str(root), "XDG_CACHE_HOME": folder, "PATH": "", "DEV": "CPU"}
        done = subprocess.run(
            [sys.executable, "-P", "-c", PROGRAM.format(home=home)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=True,
        )
    for line in done.stdout.splitlines():
        count, there, here = line.split(" ")
        short = [name.removeprefix(home + "/") for name in (there, here)]
        found[short[0], short[1]] = int(count)
    return found


def main() -> None:
    """Prints the sum, and the pairs that change most."""
    root = Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else ROOT
    found = room_changes(root)
    print(
        f"{found.total()} changes of rooms among {len({r for pair in found for r in pair})} files"
    )
    for (there, here), count in found.most_common(12):
        print(f"{count:6} {there} -> {here}")


if __name__ == "__main__":
    main()
