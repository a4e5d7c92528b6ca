"""Recording is repeatable, and a difference is found and shown."""

from __future__ import annotations

import copy
from pathlib import Path

import pytest

from test.replay import __main__ as command
from test.replay.compare import ROOT, compare, load, record_of, report
from test.replay.recording import load_by_path, record, record_program, write


def test_two_records_of_one_compiler_are_equal() -> None:
    names = ["elementwise", "reductions", "random 0003"]
    first, second = record(5, names), record(5, names)
    assert compare(first, second).is_equal()
    assert len(first) > 8
    assert all(set(parts) == {"kernel", "program", "source"} for parts in first.values())
    assert {name.split("/")[0] for name in first} == set(names)


def test_what_was_scheduled_before_changes_no_kernel() -> None:
    """Stand-ins for run-time indices had numbers of the process: sums came in another order."""
    first = record(0, ["indexing"])
    for _ in range(6):
        assert compare(first, record(0, ["indexing"])).is_equal()


def test_a_commit_is_recorded_with_the_programs_of_today(tmp_path: Path) -> None:
    found = record_of(ROOT, tmp_path, 2)
    assert {"random 0000", "random 0001", "indexing"} <= {name.split("/")[0] for name in found}
    assert [name for name in found if name.endswith("error")] == []


def test_every_program_of_the_corpus_runs() -> None:
    found = record(0)
    assert [name for name in found if name.endswith("error")] == []


def test_changes_are_shown_part_by_part() -> None:
    before = record(0, ["products"])
    after = copy.deepcopy(before)
    name = sorted(after)[0]
    after[name]["source"] += "\nret void"
    gone = sorted(after)[-1]
    del after[gone]
    after["products/99 new"] = {"kernel": ""}
    found = compare(before, after)
    assert found.changed == {name: ["source"]}
    assert (found.added, found.removed) == (["products/99 new"], [gone])
    lines = list(report(before, after, 10))
    assert f"=== {name}: source differ" in lines and "+ret void" in lines
    assert lines[-1] == f"{len(before) + 1} kernels: 1 changed, 1 added, 1 removed"


def test_a_program_that_fails_is_recorded_as_its_error() -> None:
    def broken() -> None:
        raise ValueError("not in this version")

    assert record_program("old", broken) == {
        "old/error": {"kernel": "ValueError: not in this version"}
    }


def test_files_and_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    corpus = load_by_path(Path(__file__).parent / "corpus.py")
    assert "attention" in corpus.PROGRAMS
    path = tmp_path / "record.json"
    assert write(path, 0) > 50
    assert compare(load(str(path), 0), record(0)).is_equal()
    monkeypatch.setattr("sys.argv", ["replay", "diff", str(path), str(path)])
    assert command.main() == 0
    assert "0 changed" in capsys.readouterr().out
