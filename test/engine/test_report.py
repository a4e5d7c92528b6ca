"""What `DEBUG` prints: aligned, coloured only for a terminal, and summed up at the end."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from weft import Context, Tensor
from weft.engine.report import Totals, say_launch, totals_text
from weft.errors import OutOfMemory

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
from weft import Tensor, TinyJit

x = Tensor.rand(8, 8).realize()
print((x @ x).softmax().shape)
(x @ x).softmax().realize()
x.to("PYTHON").realize()

@TinyJit
def step(t):
    return (t * 2 + 1).sum().realize()

for _ in range(4):
    step(x)
"""

LAUNCH = re.compile(
    r"\*\*\* (CPU|PYTHON) +(\d+) +[\d.]+[mu]?s +(-|[\d.]+) GFLOPS +(-|[\d.]+) GB/s +[\d.]+ MB  "
    r"(\S+)  <string>:(\d+)"
)


def run(debug: int, **knobs: str) -> str:
    plain = {k: v for k, v in os.environ.items() if k not in ("SPEC", "NOOPT", "NO_COLOR")}
    asked = {"PYTHONPATH": str(ROOT), "DEBUG": str(debug), "DEVICE": "CPU", **knobs}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env={**plain, **asked},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def said() -> str:
    return run(2)


def test_launches_are_aligned_and_name_their_line(said: str) -> None:
    lines = [line for line in said.splitlines() if line.startswith("***")]
    assert len(lines) >= 8
    for line in lines:
        assert LAUNCH.fullmatch(line), line
    assert len({line.index("GFLOPS") for line in lines}) == 1
    assert len({line.index(" MB") for line in lines}) == 1
    assert [int(LAUNCH.fullmatch(line)[2]) for line in lines] == list(range(1, len(lines) + 1))  # type: ignore[index]


def test_nothing_but_a_terminal_gets_colours(
    said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "\x1b" not in said
    for knobs, is_coloured in (("", False), ("FORCE_COLOR", True), ("NO_COLOR", False)):
        if knobs:
            monkeypatch.setenv(knobs, "1")
        say_launch("r_8", False, "CPU", None, 1, 1, 1e-6)
        assert ("\x1b[33m***\x1b[0m CPU" in capsys.readouterr().out) == is_coloured


def test_the_last_line_sums_up(said: str) -> None:
    lines = said.splitlines()
    launches = [LAUNCH.fullmatch(line) for line in lines if line.startswith("***")]
    copies = [found for found in launches if found is not None and found[5] == "copy"]
    last = lines[-1]
    assert len(copies) == 1
    assert last.startswith(f"=== {len(launches) - 1} kernels and 1 copy in ")
    for part in ("GFLOPS", "GB/s", "MB at most", "ms scheduling", "ms compiling and loading"):
        assert part in last
    assert sum(line.startswith("===") for line in lines) == 1


def test_each_level_says_what_the_one_below_says_and_more(said: str) -> None:
    levels = {1: run(1), 2: said, 7: run(7)}
    kinds = {
        1: ["scheduled: ", "loaded: ", "cache hit: "],
        2: ["*** CPU", "=== "],
        7: [
            "schedule of 1 step\n",
            "--- source of ",
            "after optimise\n",
            "linear program\n",
            "Opt(",
            "--- assembly of ",
        ],
    }
    for level, parts in kinds.items():
        for part in parts:
            for other, text in levels.items():
                assert (part in text) == (other >= level), (part, other)


def test_a_part_of_a_program_has_no_summary(capsys: pytest.CaptureFixture[str]) -> None:
    with Context(DEBUG=2, JIT=1):
        (Tensor([1.0, 2.0]).realize() + 1).realize()
    said = capsys.readouterr().out
    assert said.count("***") >= 1 and "===" not in said


def test_long_names_and_large_numbers_do_not_break_the_columns(
    capsys: pytest.CaptureFixture[str],
) -> None:
    say_launch("r_" + "1024_" * 20, False, "CPU:1", ("/a/b.py", 7), 10**15, 10**12, 1e3)
    say_launch("copy", True, "WEBGPU", None, 0, 10, 1e-6)
    first, second = capsys.readouterr().out.splitlines()
    assert first.index("FLOPS") == second.index("FLOPS")
    assert first.index(" MB  ") == second.index(" MB  ")
    assert first.endswith("_  b.py:7") and second.endswith("  copy")


def test_the_summary_of_little() -> None:
    assert totals_text(Totals()).startswith("0 kernels in 0.00 ms: 0.00 GFLOPS, 0.00 GB/s")
    assert totals_text(Totals(kernels=1, copies=2)).startswith("1 kernel and 2 copies in ")


def test_an_error_for_memory_says_which_lines_asked_for_it() -> None:
    large = Tensor.ones(1 << 22, 1 << 22).contiguous()
    with pytest.raises(
        OutOfMemory, match=r"64\.00 TiB\) made at test_report\.py:\d+, 16777216 bytes"
    ):
        (large.sum(0) + large.max(0)).realize()
