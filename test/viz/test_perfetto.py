"""What `PROFILE=1` writes, read by Perfetto's own trace processor rather than by weft."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from test.viz.browser import require_browser, start_browser
from test.viz.perfetto import TraceProcessor, page_folder, serving_perfetto

ROOT = Path(__file__).resolve().parent.parent.parent

PROGRAM = """
from test.viz import program
from weft import Tensor

program.main(6)
Tensor([1.0, 2.0]).to("PYTHON").realize()
"""

SLICES = """
    select slice.id, slice.parent_id, slice.name, category, ts, dur, depth, thread.name as thread
    from slice join thread_track on slice.track_id = thread_track.id join thread using (utid)
    order by ts, depth
"""


@pytest.fixture(scope="module")
def profile(tmp_path_factory: pytest.TempPathFactory) -> Path:
    require_browser()
    page_folder()
    path = tmp_path_factory.mktemp("profiles") / "program.json"
    asked = {"PYTHONPATH": str(ROOT), "PROFILE": "1", "PROFILE_TRACE": str(path)}
    command = [sys.executable, "-c", PROGRAM]
    subprocess.run(command, cwd=ROOT, env={**os.environ, **asked}, check=True, timeout=300)
    return path


@pytest.fixture(scope="module")
def perfetto(profile: Path) -> Iterator[TraceProcessor]:
    driver = start_browser()
    try:
        with serving_perfetto() as url:
            yield TraceProcessor(driver, url, profile.read_bytes())
    finally:
        driver.quit()


@pytest.fixture(scope="module")
def slices(perfetto: TraceProcessor) -> list[dict[str, Any]]:
    return perfetto.query(SLICES)


def written(path: Path, phase: str) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())["traceEvents"]
    return [event for event in found if event["ph"] == phase]


def test_perfetto_finds_nothing_wrong(perfetto: TraceProcessor) -> None:
    assert perfetto.query("select name, value from stats where severity != 'info' and value") == []


def test_every_slice_is_read_as_it_was_written(profile: Path, slices: list[dict[str, Any]]) -> None:
    events = written(profile, "X")
    threads = {e["tid"]: e["args"]["name"] for e in written(profile, "M") if e["tid"]}
    # Perfetto counts in nanoseconds
    expected = Counter(
        (e["name"], e["cat"], threads[e["tid"]], round(e["ts"] * 1e3), round(e["dur"] * 1e3))
        for e in events
    )
    found = Counter((s["name"], s["category"], s["thread"], s["ts"], s["dur"]) for s in slices)
    assert found == expected and len(events) > 20
    assert all(s["dur"] > 0 for s in slices)


def test_kernels_and_copies_are_on_their_devices(slices: list[dict[str, Any]]) -> None:
    """Two kernels in each of six calls of a jitted layer, others before and after, one copy."""
    kernels = [s for s in slices if s["category"] == "kernel"]
    assert {s["thread"] for s in kernels} == {"CPU"} and {s["depth"] for s in kernels} == {0}
    assert sorted(Counter(s["name"] for s in kernels).values())[-2:] == [6, 6]
    copies = [s for s in slices if s["category"] == "copy"]
    assert [(s["name"], s["thread"]) for s in copies] == [("copy", "PYTHON")]


def test_phases_of_the_compiler_nest(slices: list[dict[str, Any]]) -> None:
    by_id = {s["id"]: s for s in slices}
    parents = {"schedule": "realize", "compile": "realize", "lower": "compile"}
    seen = set()
    for one in slices:
        if one["category"] != "compile" or one["name"] not in parents:
            continue
        parent = by_id[one["parent_id"]]
        assert parent["name"] == parents[one["name"]]
        assert parent["depth"] == one["depth"] - 1
        assert parent["ts"] <= one["ts"]
        assert one["ts"] + one["dur"] <= parent["ts"] + parent["dur"]
        seen.add(one["name"])
    assert seen == set(parents)


def test_memory_is_a_counter(profile: Path, perfetto: TraceProcessor) -> None:
    rows = perfetto.query(
        "select counter_track.name, ts, value from counter "
        "join counter_track on counter.track_id = counter_track.id order by ts"
    )
    events = written(profile, "C")
    assert [row["value"] for row in rows if "CPU" in row["name"]] == [
        event["args"]["bytes"] for event in events if "CPU" in event["name"]
    ]
    assert {row["name"] for row in rows} == {f"{event['name']} bytes" for event in events}
    assert max(row["value"] for row in rows) >= 32 * 32 * 4 * 2


def test_a_kernel_says_its_line_and_costs(perfetto: TraceProcessor) -> None:
    rows = perfetto.query(
        "select extract_arg(arg_set_id, 'args.line') as line, "
        "extract_arg(arg_set_id, 'args.ops') as ops, extract_arg(arg_set_id, 'args.mem') as mem "
        "from slice where category = 'kernel'"
    )
    assert all(row["ops"] >= 0 and row["mem"] > 0 for row in rows)
    assert sum("program.py:" in (row["line"] or "") for row in rows) >= 12


def test_the_process_has_the_name_of_its_command(perfetto: TraceProcessor) -> None:
    assert {"name": "-c"} in perfetto.query("select name from process")
