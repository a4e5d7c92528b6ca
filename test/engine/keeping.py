"""What tests of the disk cache share: how a process begins, in this one and in another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from test.children import Child
from weft.engine.programs import clear_programs
from weft.engine.schedule import clear_schedules


def forget() -> None:
    """As a new process would begin."""
    clear_schedules()
    clear_programs()


def start(cache: Path, code: str, *arguments: str) -> Child:
    """A process of its own with this cache folder."""
    return Child(
        [sys.executable, "-c", code, *arguments],
        env={
            **os.environ,
            "SPEC": "0",  # what is to be verified is made anew
            "WEFT_CACHE": str(cache),
            "PYTHONPATH": os.pathsep.join(sys.path),
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def said_by(child: Child) -> str:
    """What a process printed that ended well."""
    out, errors = child.communicate(timeout=120)
    assert (child.returncode, errors) == (0, "")
    return out
