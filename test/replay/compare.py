"""Compares two records of the corpus: which kernels changed, and how.

In: two records, each a file, a commit, or `now` for the working tree. Out: a report; equal records
show that a refactor changed nothing.
"""

from __future__ import annotations

import difflib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from test.replay.recording import HERE, Record

ROOT = HERE.parent.parent


@dataclass(frozen=True)
class Comparison:
    """What differs between two records."""

    kernels: int
    changed: dict[str, list[str]]  # kernel -> which of its parts
    added: list[str]
    removed: list[str]

    def is_equal(self) -> bool:
        return not (self.changed or self.added or self.removed)

    def summary(self) -> str:
        return (
            f"{self.kernels} kernels: {len(self.changed)} changed, {len(self.added)} added, "
            f"{len(self.removed)} removed"
        )


def compare(left: Record, right: Record) -> Comparison:
    """What differs, kernel by kernel."""
    changed = {}
    for name in sorted(left.keys() & right.keys()):
        parts = [part for part in left[name] if left[name][part] != right[name].get(part)]
        if parts:
            changed[name] = parts
    added, removed = sorted(right.keys() - left.keys()), sorted(left.keys() - right.keys())
    return Comparison(len(left.keys() | right.keys()), changed, added, removed)


def report(left: Record, right: Record, lines: int) -> Iterator[str]:
    """The first part of each changed kernel that differs, as a diff of at most so many lines."""
    found = compare(left, right)
    for name, parts in found.changed.items():
        yield f"=== {name}: {', '.join(parts)} differ"
        before, after = (record[name][parts[0]].splitlines() for record in (left, right))
        difference = list(difflib.unified_diff(before, after, "before", "after", lineterm="", n=1))
        yield from difference[:lines]
        if len(difference) > lines:
            yield f"... {len(difference) - lines} more lines"
    for name in found.added:
        yield f"+++ {name} is new"
    for name in found.removed:
        yield f"--- {name} is gone"
    yield found.summary()


def load(what: str, random_count: int) -> Record:
    """The record in a file, or that of a commit, made now."""
    path = Path(what)
    if path.is_file():
        found: Record = json.loads(path.read_text(encoding="utf-8"))
        return found
    with tempfile.TemporaryDirectory(prefix="weft-replay-") as folder:
        checkout = ROOT if what == "now" else unpack(what, Path(folder) / "tree")
        return record_of(checkout, Path(folder), random_count)


def unpack(commit: str, folder: Path) -> Path:
    """The files of a commit in a folder; the repository is only read."""
    folder.mkdir()
    archive = subprocess.run(
        ["git", "-C", str(ROOT), "archive", commit, "weft"],
        capture_output=True,
        check=False,
        timeout=300,
    )
    if archive.returncode:
        raise SystemExit(f"{commit!r} is no file and no commit: {archive.stderr.decode().strip()}")
    subprocess.run(["tar", "-x", "-C", str(folder)], input=archive.stdout, check=True, timeout=300)
    return folder


def record_of(checkout: Path, folder: Path, random_count: int) -> Record:
    """Record with the weft of a checkout, in a process and a cache of its own."""
    target = folder / "record.json"
    environment = {
        **os.environ,
        # that weft, and the tests of this one
        "PYTHONPATH": os.pathsep.join([str(checkout), str(ROOT)]),
        "WEFT_CACHE": str(folder / "cache"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    command = [sys.executable, str(HERE / "recording.py"), str(target), str(random_count)]
    subprocess.run(
        command, env=environment, check=True, stdout=subprocess.DEVNULL, cwd=folder, timeout=3600
    )
    found: Record = json.loads(target.read_text(encoding="utf-8"))
    return found
