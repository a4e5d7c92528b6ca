"""What a recording holds, and that it leaves no trace of itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import urllib.request
import warnings
import zipfile
from pathlib import Path
from typing import Any

import pytest

from test.children import Child
from test.viz import program
from weft import Tensor, Variable
from weft.codegen import pipeline
from weft.device import Allocator
from weft.engine import programs, realize, schedule
from weft.errors import DataError, WeftError
from weft.knobs import JIT, VIZ_TRACE, Context
from weft.uop import passes, trace
from weft.viz import recording as recording_module
from weft.viz import shelf
from weft.viz.graphs import UnitGraphs
from weft.viz.recording import recording
from weft.viz.trace_file import TraceReader

# how many launches there are, and the language of their sources, are those of the CPU
pytestmark = pytest.mark.device("CPU")
ROOT = Path(__file__).resolve().parent.parent.parent


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> TraceReader:
    path = tmp_path_factory.mktemp("traces") / "program.weft"
    with warnings.catch_warnings(), Context(DEV="CPU"), recording(path):
        warnings.simplefilter("error")
        program.main(6)
    return TraceReader(path)


def units(reader: TraceReader) -> list[UnitGraphs]:
    numbers = [unit["number"] for unit in reader.index["units"]]
    return [UnitGraphs(reader.read(f"unit/{n}.json"), f"unit {n}") for n in numbers]


def test_every_kernel_has_its_line_its_launches_and_its_lowering(recorded: TraceReader) -> None:
    items = recorded.index["items"]
    source = Path(program.__file__).read_text().splitlines()
    matmul = [item for item in items if item["origin"] and "@" in source[item["origin"][1] - 1]]
    assert len(matmul) == 1
    assert matmul[0]["origin"][0] == program.__file__
    # called, captured and replayed: each launch counts
    assert matmul[0]["launches"] == 6
    assert matmul[0]["seconds"] >= 6 * matmul[0]["best"] > 0
    by_key = {unit["key"]: unit for unit in recorded.index["units"]}
    for item in items:
        unit = by_key[item["key"]]
        assert unit["kind"] == "kernel" and unit["code"] and unit["passes"] > 5
    line = matmul[0]["origin"][1]
    assert "relu" in recorded.index["lines"][program.__file__][str(line)]


def test_a_kernel_names_every_line_that_was_fused_into_it(tmp_path: Path) -> None:
    with recording(tmp_path / "fused.weft"):
        doubled = Tensor.arange(10) * 2
        (doubled.exp() + 1).realize()
    index = TraceReader(tmp_path / "fused.weft").index
    lines = {tuple(origin) for unit in index["units"] for origin in unit["lines"]}
    assert len({line for path, line in lines if path == __file__}) >= 2


def test_passes_are_those_of_the_pipeline(recorded: TraceReader) -> None:
    kernel = next(u["number"] for u in recorded.index["units"] if u["kind"] == "kernel")
    names = [stage["name"] for stage in recorded.read(f"unit/{kernel}.json")["passes"]]
    steps = (*pipeline.KERNEL_PASSES, *pipeline.PROGRAM_PASSES)
    assert names == [step.name for step in steps]


def test_steps_name_their_rule(recorded: TraceReader) -> None:
    rules = recorded.index["rules"]
    assert rules
    for name, path, line, text in rules:
        assert name and text
        assert Path(path).read_text().splitlines()[line - 1].strip().startswith(text[:40])


def test_the_steps_of_a_rewrite_lead_from_its_first_graph_to_its_last(
    recorded: TraceReader,
) -> None:
    """The trace keeps no graph per step: putting the steps in must give what the rewriter gave."""
    checked = 0
    for unit in units(recorded):
        for stage in unit.passes:
            for rewrite in stage["rewrites"]:
                count = len(rewrite["steps"]) // 3
                assert unit.state(rewrite, 0) == rewrite["root"]
                assert unit.rows[unit.state(rewrite, count)] == unit.rows[rewrite["result"]]
                checked += count
    assert checked > 20


def test_code_is_there_three_times(recorded: TraceReader) -> None:
    numbers = [unit["number"] for unit in recorded.index["units"] if unit["code"]]
    for number in numbers:
        code = recorded.read(f"code/{number}.json")
        assert "p0: " in code["listing"]
        assert "define void" in code["source"] and code["language"] == "ll"
        assert "ret" in code["assembly"]
        for name, _, size in code["axes"]:
            assert f"for {name} in {size}:" in code["listing"]


def test_the_timeline_has_launches_phases_and_memory(recorded: TraceReader) -> None:
    timeline = recorded.read("timeline.json")
    launches = timeline["launches"]
    counted = sum(item["launches"] for item in recorded.index["items"])
    assert len(launches["start"]) == len(launches["item"]) == counted > 10
    assert {"realize", "schedule", "compile", "lower"} <= {row[0] for row in timeline["spans"]}
    for use in timeline["memory"].values():
        assert use["time"] == sorted(use["time"]) and min(use["bytes"]) >= 0


def test_one_kernel_on_two_devices_is_lowered_and_shown_for_each(tmp_path: Path) -> None:
    with recording(tmp_path / "devices.weft"):
        x = (Tensor([1.0, 2.0], device="CPU") * 3).realize()
        y = (Tensor([1.0, 2.0], device="PYTHON") * 3).realize()
        x.to("PYTHON").realize()
    reader = TraceReader(tmp_path / "devices.weft")
    items = reader.index["items"]
    assert [(item["name"], item["device"]) for item in items][-1] == ("copy", "PYTHON")
    by_key = {unit["key"]: unit["number"] for unit in reader.index["units"]}
    units = {item["device"]: by_key[item["key"]] for item in items if item["key"]}
    sources = {device: reader.read(f"code/{unit}.json") for device, unit in units.items()}
    assert sources["CPU"]["language"] == "ll" != sources["PYTHON"]["language"]
    assert {"CPU", "PYTHON"} <= set(reader.read("timeline.json")["memory"])
    assert x.tolist() == y.tolist()


def test_symbolic_sizes_are_recorded(tmp_path: Path) -> None:
    with recording(tmp_path / "symbolic.weft"):
        size = Variable("n", 1, 8).bind(5)
        Tensor.arange(8)[:size].sum().realize()
    assert TraceReader(tmp_path / "symbolic.weft").index["items"]


def watched() -> list[Any]:
    return [
        pipeline.lower,
        schedule.make_schedule,
        realize.prepare_schedule,
        realize.launch,
        realize.realize_cells,
        programs.Runner.__call__,
        Allocator._count,
    ]


def test_nothing_is_wrapped_when_nothing_is_recorded(tmp_path: Path) -> None:
    before, jit = watched(), JIT.value
    with recording(tmp_path / "one.weft"):
        assert all(old is not new for old, new in zip(before, watched(), strict=True))
        assert trace.tracers and passes.watchers
    assert watched() == before
    assert not trace.tracers and not passes.watchers and JIT.value == jit
    assert not any(hasattr(function, "__wrapped__") for function in before)


def test_importing_weft_does_not_load_the_viewer() -> None:
    code = "import sys, weft; assert not any('viz' in name for name in sys.modules)"
    subprocess.run([sys.executable, "-c", code], cwd=ROOT, check=True, timeout=120)


def test_an_error_of_the_program_passes_through_and_the_trace_is_complete(tmp_path: Path) -> None:
    path = tmp_path / "error.weft"
    with pytest.raises(WeftError), recording(path):
        Tensor.ones(3).contiguous().realize()
        Tensor.ones(3).reshape(4)
    assert len(TraceReader(path).index["items"]) == 1


def test_a_recorder_that_fails_does_not_break_the_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(recording_module, "NodeTable", fail)
    with recording(tmp_path / "broken.weft"), pytest.warns(UserWarning, match="did not record"):
        assert (Tensor([1, 2]) + 3).tolist() == [4, 5]
        monkeypatch.undo()


def test_two_threads_do_not_mix_their_kernels(tmp_path: Path) -> None:
    with recording(tmp_path / "threads.weft"):
        threads = [
            threading.Thread(target=lambda n=n: Tensor.full((n + 3,), 2.5).exp().realize())
            for n in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(300)
    reader = TraceReader(tmp_path / "threads.weft")
    passes = len(pipeline.KERNEL_PASSES) + len(pipeline.PROGRAM_PASSES)
    kernels = [unit for unit in reader.index["units"] if unit["kind"] == "kernel"]
    assert len(kernels) == 4 and {unit["passes"] for unit in kernels} == {passes}


def test_long_programs_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("weft.viz.events.MOST_LAUNCHES", 10)
    monkeypatch.setattr("weft.viz.events.MOST_MEMORY", 16)
    with recording(tmp_path / "long.weft"):
        x = Tensor.zeros(4).contiguous().realize()
        for _ in range(30):
            x = (x + 1).realize()
    reader = TraceReader(tmp_path / "long.weft")
    assert sum(item["launches"] for item in reader.index["items"]) == 31
    timeline = reader.read("timeline.json")
    assert len(timeline["launches"]["start"]) == 10 and reader.index["dropped"] == 21
    assert all(len(use["bytes"]) < 16 for use in timeline["memory"].values())


def test_new_kernels_without_end_are_bounded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recording_module, "MOST_ITEMS", 3)
    monkeypatch.setattr(recording_module, "MOST_UNITS", 4)
    with recording(tmp_path / "many.weft"):
        for size in range(2, 10):
            assert Tensor.arange(size).sum().item() == size * (size - 1) // 2
    index = TraceReader(tmp_path / "many.weft").index
    assert len(index["units"]) == 4
    assert len(index["schedules"]) == 3
    # the others are counted by name
    assert sum(item["launches"] for item in index["items"]) == 8


def run_watched(code: str, folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "WEFT_CACHE": str(folder), **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.parametrize("viz", ["-1", "-2"])
def test_negative_viz_saves_only(viz: str, tmp_path: Path) -> None:
    code = "from weft import Tensor; print((Tensor([1, 2]) + 1).tolist())"
    done = run_watched(code, tmp_path, VIZ=viz)
    assert done.returncode == 0 and done.stdout == "[2, 3]\n", done.stderr
    (path,) = (tmp_path / "traces").glob("*.weft")
    assert str(path) in done.stderr
    assert TraceReader(path).index["items"][0]["launches"] == 1
    assert path.stat().st_mode & 0o077 == 0


def test_viz_trace_names_the_file_and_a_failing_program_keeps_its_exit_code(
    tmp_path: Path,
) -> None:
    path = tmp_path / "deep" / "mine.weft"
    code = "from weft import Tensor; Tensor([1, 2]).exp().realize(); raise SystemExit(3)"
    done = run_watched(code, tmp_path, VIZ="-1", VIZ_TRACE=str(path))
    assert done.returncode == 3
    assert TraceReader(path).index["items"]


def test_viz_serves_the_page_when_the_program_ends(tmp_path: Path) -> None:
    """The page is a process of its own, which is not watched itself though VIZ is set."""
    code = "from weft import Tensor; (Tensor([1, 2]) + 1).realize(); print('done')"
    path = tmp_path / "one.weft"
    with Child(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT), "VIZ": "1", "VIZ_TRACE": str(path)},
        stdout=subprocess.PIPE,
    ) as running:
        assert running.stdout is not None
        # in the order in which they were said, though standard output is no terminal
        assert running.stdout.readline() == "done\n"
        url = running.stdout.readline().removeprefix("weft viz: ").strip()
        with urllib.request.urlopen(f"{url}api/index", timeout=60) as response:
            assert len(json.load(response)["items"]) == 1
        running.interrupt()
        assert running.wait(60) == 0
    assert [found.name for found in tmp_path.iterdir()] == ["one.weft"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_leaves_the_trace_to_its_parent(tmp_path: Path) -> None:
    code = (
        "import os; from weft import Tensor; Tensor([1]).exp().realize()\n"
        "child = os.fork()\n"
        "if child == 0:\n    Tensor([1.0, 2.0]).sin().realize(); raise SystemExit(0)\n"
        "os.waitpid(child, 0)\n"
    )
    path = tmp_path / "fork.weft"
    done = run_watched(code, tmp_path, VIZ="-1", VIZ_TRACE=str(path))
    assert done.returncode == 0, done.stderr
    with zipfile.ZipFile(path) as whole:
        assert whole.testzip() is None
        assert len(json.loads(whole.read("index.json"))["items"]) == 1


def test_old_traces_make_room(tmp_path: Path) -> None:
    for number in range(shelf.KEPT + 5):
        path = tmp_path / f"{number}.weft"
        path.write_bytes(b"")
        os.utime(path, (number, number))
    assert shelf.path_for(VIZ_TRACE, tmp_path, ".weft").parent == tmp_path
    left = sorted(int(path.stem) for path in tmp_path.glob("*.weft"))
    assert left[0] == 6 and len(left) == shelf.KEPT - 1


def test_where_nothing_can_be_written_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    for wrong in (tmp_path / "file" / "trace.weft", tmp_path):
        with Context(VIZ_TRACE=str(wrong)), pytest.raises(DataError) as caught:
            shelf.path_for(VIZ_TRACE, tmp_path, ".weft")
        assert f"VIZ_TRACE={wrong}: no file can be written there" in str(caught.value)
        assert "leave it out" in str(caught.value)
    fine = tmp_path / "new" / "trace.weft"
    with Context(VIZ_TRACE=str(fine)):
        assert shelf.path_for(VIZ_TRACE, tmp_path, ".weft") == fine and fine.parent.is_dir()


def test_a_cache_folder_that_cannot_be_written_is_no_hindrance(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = shelf.path_for(VIZ_TRACE, tmp_path / "file" / "traces", ".weft")
    assert path.parent.is_dir() and path.suffix == ".weft"
    path.parent.rmdir()
