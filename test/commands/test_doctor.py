"""`weft doctor` in a process of its own, healthy and broken."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import weft
from weft.commands.ceilings import measure_ceilings


def doctor(**environment: str) -> tuple[int, str]:
    """Exit code and everything printed."""
    root = str(Path(weft.__file__).parent.parent)
    found = subprocess.run(
        [sys.executable, "-m", "weft", "doctor", "--quick"],
        env={**os.environ, "PYTHONPATH": root, **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )
    return found.returncode, found.stdout + found.stderr


def test_a_healthy_machine(tmp_path: Path) -> None:
    code, said = doctor(WEFT_CACHE=str(tmp_path))
    assert code == 0, said
    assert "[1, 2, 3] * 2 + 1 = [3.0, 5.0, 7.0]" in said
    assert "(default)" in said
    assert str(tmp_path) in said
    assert "PROBLEM" not in said


def test_an_unknown_device_is_named_and_the_report_goes_on(tmp_path: Path) -> None:
    code, said = doctor(WEFT_CACHE=str(tmp_path), DEVICE="ABACUS")
    assert code == 1
    assert "PROBLEM: DEVICE=ABACUS in the environment: there is no device ABACUS" in said
    assert "Traceback" not in said
    assert "cache" in said


def test_settings_that_slow_down_are_said(tmp_path: Path) -> None:
    _, said = doctor(WEFT_CACHE=str(tmp_path), NOOPT="1", NUM_CPU_THREADS="4096")
    assert "NOOPT is set: kernels are not optimised" in said
    assert "4096 threads were asked for" in said


def test_ceilings_are_rates() -> None:
    found = measure_ceilings(stream_bytes=1 << 16, matmul=32)
    assert min(found.matmul_gflops, found.read_gbs, found.copy_gbs, found.launch_us) > 0
