"""Traces that no program made: very large ones, and one that wants to be markup."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from weft.viz.trace_file import FORMAT, VERSION, TraceWriter

EVIL = "<img src=x onerror='window.pwned=1'>\"'><script>window.pwned=1</script>"


def make_trace(
    path: Path, kernels: int = 1, nodes: int = 20, steps: int = 5, name: str = "kernel"
) -> Path:
    """A trace of so many kernels, which share one unit of so many nodes."""
    writer = TraceWriter(path)
    writer.write("unit/0.json", _unit(nodes, steps, name))
    code = {
        "listing": f"for r0 in 4:  # LOOP\n  {name}",
        "source": f"define void @{name}()",
        "language": "ll",
        "assembly": f"{name}:\n\tret",
        "axes": [["r0", "LOOP", name]],
    }
    writer.write("code/0.json", code)
    items = [
        {
            "schedule": number // 50,
            "position": number % 50,
            "name": f"{name}_{number}",
            "key": "aa",
            "device": name if name == EVIL else "CPU",
            "origin": [f"/{name}.py", number % 97 + 1],
            "buffers": 2,
            "bytes": 100,
            "launches": 1,
            "seconds": (number % 31 + 1) * 1e-4,
            "best": 1e-4,
        }
        for number in range(kernels)
    ]
    schedules = [
        {
            "unit": 0,
            "device": "CPU",
            "first": first,
            "count": min(50, kernels - first),
            "runs": 1,
            "began": 0.0,
        }
        for first in range(0, kernels, 50)
    ]
    unit: dict[str, Any] = {
        "number": 0,
        "kind": "kernel",
        "name": name,
        "key": "aa",
        "passes": 1,
        "steps": steps,
        "nodes": nodes,
        "seconds": 0.1,
        "code": True,
        "lines": [[f"/{name}.py", 1]],
        "applied": [name],
        "ops": 100,
        "mem": 100,
        "threads": 1,
    }
    starts = [number * 1000.0 for number in range(kernels)]
    writer.write(
        "timeline.json",
        {
            "launches": {
                "start": starts,
                "length": [item["seconds"] * 1e6 for item in items],
                "item": list(range(kernels)),
            },
            "memory": {"CPU": {"time": starts, "bytes": [n % 100 * 1000 for n in range(kernels)]}},
            "spans": [["lower", name, "MainThread", 0, 0.0, 500.0]],
            "seconds": kernels * 1e-3,
        },
    )
    writer.write(
        "index.json",
        {
            "format": FORMAT,
            "version": VERSION,
            "program": {
                "command": [name],
                "began": 0.0,
                "seconds": 1.0,
                "python": "3",
                "machine": name,
            },
            "schedules": schedules,
            "items": items,
            "units": [unit],
            "rules": [[name, f"/{name}.py", 1, name]],
            "lines": {f"/{name}.py": {str(line): name for line in range(1, 100)}},
            "dropped": 0,
        },
    )
    return writer.close()


def _unit(nodes: int, steps: int, name: str) -> dict[str, Any]:
    """A wide and deep graph of sums; each step adds another node on top of the last one."""
    strings = ["ADD", "PARAM", "float32", name, "MUL"]
    rows = [[1, 2, 3, -1, -1, 0] for _ in range(4)]
    while len(rows) < nodes:
        number = len(rows)
        op = 0 if number % 3 else 4
        far = (number * 7919) % number if number % 5 == 0 else number - 4
        rows.append([op, 2, 3 if number % 50 == 0 else -1, -1, 3, 0, number - 1 - number % 3, far])
    root = len(rows) - 1
    flat: list[int] = []
    before = root
    for _ in range(steps):
        rows.append([0, 2, -1, -1, -1, 0, before, 0])
        flat += (before, len(rows) - 1, 0)
        # what was put in holds what it replaced, as no rule does: each step only counts once
        before = len(rows) - 1
    run = {"name": name, "root": root, "result": before, "steps": flat}
    stage = {
        "name": name,
        "why": name,
        "before": root,
        "after": before,
        "seconds": 0.01,
        "silent": 0,
        "rewrites": [run],
    }
    return {"strings": strings, "origins": [[f"/{name}.py", 1]], "nodes": rows, "passes": [stage]}
