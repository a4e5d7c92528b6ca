"""Oclgrind sees a race that is there, and none in a kernel with barriers."""

from __future__ import annotations

import subprocess
import sys

from test.optional import need_device, skip
from test.renderer.oclgrind import library


def test_a_kernel_with_barriers_has_no_race() -> None:
    """The whole corpus: `python -m test.renderer.oclgrind`."""
    need_device("CL")  # with it comes the loader
    if library() is None:
        skip("oclgrind", "is not installed")
    done = subprocess.run(
        [sys.executable, "-m", "test.renderer.oclgrind", "sum_rows"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "opencl: 1 kernels" in done.stdout and "0 wrong" in done.stdout
