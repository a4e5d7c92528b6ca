"""A profile: launches, phases of the compiler and memory over time, in the Trace Event Format.

What comes in: the parts of a recording. What goes out: JSON that Perfetto and chrome://tracing
open, and a table of kernels for the terminal. Where it sits: beside the viewer's own trace file.
The one invariant: everything the table shows is in the file, so a profile can be read elsewhere.

The format: "Trace Event Format" by the Chromium authors. Times are microseconds.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from weft.errors import DataError

PROCESS = 1
COMPILER_THREAD = 1
FIRST_DEVICE_THREAD = 10
# more than an honest profile has: launches are bounded where they are recorded
MOST_BYTES = 1 << 30


def trace_events(index: dict[str, Any], timeline: dict[str, Any]) -> dict[str, Any]:
    """The recording as one object of the Trace Event Format."""
    items = index["items"]
    devices = sorted({item["device"] for item in items})
    threads = {device: FIRST_DEVICE_THREAD + i for i, device in enumerate(devices)}
    compilers: dict[str, int] = {}
    events: list[dict[str, Any]] = []
    for name, detail, thread, depth, start, length in timeline["spans"]:
        number = compilers.setdefault(thread, COMPILER_THREAD + len(compilers))
        arguments = {"detail": detail, "depth": depth}
        events.append(_slice(name, "compile", start, length, number, arguments))
    launches = timeline["launches"]
    for start, length, number in zip(
        launches["start"], launches["length"], launches["item"], strict=True
    ):
        item = items[number]
        facts = {key: item[key] for key in ("ops", "mem") if item.get(key) is not None}
        origin = item["origin"]
        if origin:
            facts["line"] = f"{origin[0]}:{origin[1]}"
        category = "copy" if item["name"].startswith("copy") else "kernel"
        thread = threads[item["device"]]
        events.append(_slice(item["name"], category, start, length, thread, facts))
    for device, columns in timeline["memory"].items():
        for moment, size in zip(columns["time"], columns["bytes"], strict=True):
            counter = {"name": f"memory {device}", "cat": "memory", "ph": "C", "ts": moment}
            events.append({**counter, "pid": PROCESS, "args": {"bytes": size}})
    names = {f"compiler ({name})": number for name, number in compilers.items()} | threads
    metadata = [_name("process_name", 0, " ".join(index["program"]["command"]) or "weft")]
    metadata += [_name("thread_name", number, name) for name, number in names.items()]
    events.sort(key=lambda event: event["ts"])
    return {
        "traceEvents": metadata + events,
        "displayTimeUnit": "ms",
        "otherData": {"producer": "weft", "dropped": index["dropped"]},
    }


def _slice(
    name: str, category: str, start: float, length: float, thread: int, arguments: dict[str, Any]
) -> dict[str, Any]:
    where = {"pid": PROCESS, "tid": thread}
    when = {"ts": start, "dur": length}
    return {"name": name, "cat": category, "ph": "X", **when, **where, "args": arguments}


def _name(kind: str, thread: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": PROCESS, "tid": thread, "args": {"name": name}}


def read_profile(path: Path) -> dict[str, Any]:
    """A profile as data, or a `DataError`."""
    try:
        if os.stat(path).st_size > MOST_BYTES:
            raise DataError(f"{path} has more than {MOST_BYTES} bytes: no profile of weft")
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DataError(f"there is no profile {path}") from None
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} is no profile: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("traceEvents"), list):
        raise DataError(f"{path} is no profile: it has no list of traceEvents")
    return found


@dataclass
class Row:
    """All launches of one kernel."""

    name: str
    launches: int = 0
    microseconds: float = 0.0
    ops: int = 0
    mem: int = 0
    line: str = ""


def summarise(profile: dict[str, Any]) -> tuple[list[Row], list[Row]]:
    """(kernels and copies, phases of the compiler), each with the slowest first."""
    run: dict[tuple[str, str], Row] = {}
    made: dict[tuple[str, str], Row] = {}
    for event in _slices(profile):
        arguments = event.get("args") or {}
        name = str(event.get("name"))
        is_compiler = event.get("cat") == "compile"
        line = "" if is_compiler else str(arguments.get("line", ""))
        row = (made if is_compiler else run).setdefault((name, line), Row(name, line=line))
        row.launches += 1
        row.microseconds += float(event.get("dur", 0))
        row.ops += int(arguments.get("ops", 0))
        row.mem += int(arguments.get("mem", 0))
    ordered = [sorted(rows.values(), key=lambda r: -r.microseconds) for rows in (run, made)]
    return ordered[0], ordered[1]


@dataclass
class Share:
    """How busy a device was between its first launch and the end of its last."""

    device: str
    busy: float = 0.0
    first: float = math.inf
    last: float = 0.0

    @property
    def idle(self) -> float:
        """Microseconds without a launch."""
        return max(0.0, self.last - self.first - self.busy)


def device_shares(profile: dict[str, Any]) -> list[Share]:
    """The devices of a profile, the busiest first."""
    names = {
        event.get("tid"): str((event.get("args") or {}).get("name"))
        for event in profile["traceEvents"]
        if isinstance(event, dict) and event.get("name") == "thread_name"
    }
    found: dict[str, Share] = {}
    for event in _slices(profile):
        if event.get("cat") == "compile":
            continue
        name = names.get(event.get("tid"), "")
        share = found.setdefault(name, Share(name))
        start, length = float(event.get("ts", 0)), float(event.get("dur", 0))
        share.busy += length
        share.first, share.last = min(share.first, start), max(share.last, start + length)
    return sorted(found.values(), key=lambda share: -share.busy)


def _slices(profile: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for event in profile["traceEvents"]:
        if isinstance(event, dict) and event.get("ph") == "X":
            yield event
