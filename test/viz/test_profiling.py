"""`PROFILE=1`, the file it writes, and `weft profile`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from test.viz import program
from weft.commands.main import main
from weft.errors import DataError
from weft.viz.profile_file import read_profile, summarise
from weft.viz.profiling import profiling

ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("profiles") / "program.json"
    with profiling(path):
        program.main(6)
    return path


def events(path: Path, phase: str) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())["traceEvents"]
    return [event for event in found if event["ph"] == phase]


def test_every_event_has_what_the_format_asks_for(profile: Path) -> None:
    needed = {
        "X": {"name", "cat", "ts", "dur", "pid", "tid"},
        "C": {"name", "ts", "pid", "args"},
        "M": {"name", "pid", "args"},
    }
    found = json.loads(profile.read_text())["traceEvents"]
    assert {event["ph"] for event in found} == set(needed)
    for event in found:
        assert needed[event["ph"]] <= set(event)
    times = [event["ts"] for event in found if event["ph"] != "M"]
    assert times == sorted(times) and times[0] >= 0


def test_slices_are_kernels_with_costs_and_phases(profile: Path) -> None:
    slices = events(profile, "X")
    kernels = [event for event in slices if event["cat"] == "kernel"]
    assert kernels
    assert any(event["args"].get("mem") for event in kernels)
    assert any("program.py" in event["args"].get("line", "") for event in kernels)
    assert {"schedule", "realize"} <= {e["name"] for e in slices if e["cat"] == "compile"}


def test_slices_of_a_thread_nest(profile: Path) -> None:
    """Perfetto drops slices that overlap without one containing the other."""
    by_thread: dict[int, list[tuple[float, float]]] = {}
    for event in events(profile, "X"):
        span = (event["ts"], event["ts"] + event["dur"])
        by_thread.setdefault(event["tid"], []).append(span)
    for spans in by_thread.values():
        open_spans: list[tuple[float, float]] = []
        for start, end in sorted(spans, key=lambda span: (span[0], -span[1])):
            while open_spans and open_spans[-1][1] <= start + 0.02:
                open_spans.pop()
            assert not open_spans or end <= open_spans[-1][1] + 0.02
            open_spans.append((start, end))


def test_memory_is_a_counter_in_bytes(profile: Path) -> None:
    counters = events(profile, "C")
    assert counters
    assert all(isinstance(event["args"]["bytes"], int) for event in counters)


def test_the_table(profile: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kernels, phases = summarise(read_profile(profile))
    assert [row.microseconds for row in kernels] == sorted(
        [row.microseconds for row in kernels], reverse=True
    )
    assert phases
    assert main(["profile", str(profile), "--quick", "--top", "3"]) == 0
    said = capsys.readouterr().out
    assert kernels[0].name in said
    assert "GFLOP/s" in said


def test_what_is_no_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no profile"):
        read_profile(tmp_path / "absent.json")
    path = tmp_path / "other.json"
    for text in ("{", "[1]", '{"traceEvents": 3}'):
        path.write_text(text)
        with pytest.raises(DataError, match="is no profile"):
            read_profile(path)
    assert main(["profile", str(path)]) == 2


def test_the_knob_writes_a_file_at_exit(tmp_path: Path) -> None:
    target = tmp_path / "made.json"
    code = "from weft import Tensor; print((Tensor([1.0, 2.0]) + 1).tolist())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "PROFILE": "1",
            "PROFILE_TRACE": str(target),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout == "[2.0, 3.0]\n", done.stderr
    assert str(target) in done.stderr
    assert any(event["cat"] == "kernel" for event in events(target, "X"))


def test_lines_are_those_of_the_forward_pass_also_from_disk(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        "from weft import Tensor\n"
        "x, w, v = [Tensor.full((8, 8), 0.5).contiguous().realize() for _ in range(3)]\n"
        "h = (x @ w).exp()\n"
        "y = (h @ v).sin()\n"
        "y.square().mean().backward()\n"
        "Tensor.realize(w.grad, v.grad)\n"
    )
    found = []
    for number in range(2):
        target = tmp_path / f"{number}.json"
        done = subprocess.run(
            [sys.executable, str(program)],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "PROFILE": "1",
                "PROFILE_TRACE": str(target),
                "XDG_CACHE_HOME": str(tmp_path / "cache"),
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 0, done.stderr
        kernels = [event for event in events(target, "X") if event["cat"] == "kernel"]
        lines = [str(event["args"].get("line", "")).rpartition(":")[2] for event in kernels]
        found.append(sorted(lines))
    assert found[0] == found[1]
    # no kernel of the backward pass is put down to the line that asks for it
    assert set(found[0]) <= {"2", "3", "4", "5"} and {"3", "4"} <= set(found[0])
