"""What watching costs: cold compiles with and without VIZ, and how fast a trace opens.

In: programs of test/viz, run in new processes: on the device that computes nothing, where all of
their time is weft's own, and on the CPU, with LLVM and the kernels. Out: a table. Sits beside
`bench.compile`.
Invariant: runs with and without VIZ alternate; both look nothing up on disk.

    python -m bench.viz [runs]     # the table
    python -m bench.viz off        # what it costs that a rewrite can be watched, when none is
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
# what runs, and on which device
PROGRAMS = {
    "import weft": ("NULL", ["-c", "import weft"]),
    "a jitted layer": ("CPU", ["-m", "test.viz.program"]),
    "ResNet-50 training, lowered": ("NULL", ["-m", "test.viz.resnet", "32"]),
    "ResNet-50 training": ("CPU", ["-m", "test.viz.resnet", "32"]),
}


def seconds_of(device: str, command: list[str], viz: str, path: Path) -> float:
    """Processor seconds of a new process and its threads, which a busy machine changes least."""
    knobs = {"DEV": device, "CCACHE": "0", "VIZ": viz, "VIZ_TRACE": str(path)}
    before = os.times()
    subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env={**os.environ, **knobs},
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    after = os.times()
    user = after.children_user - before.children_user
    return user + after.children_system - before.children_system


def opening_seconds(path: Path) -> tuple[float, float]:
    """From the file to the index, and to the largest unit's first graph, as the server does it."""
    from weft.viz.server import Answers
    from weft.viz.trace_file import TraceReader

    started = time.perf_counter()
    reader = TraceReader(path)
    answers = Answers(reader)
    answers.answer("index")
    index = time.perf_counter() - started
    largest = max(reader.index["units"], key=lambda unit: unit["nodes"])["number"]
    started = time.perf_counter()
    answers.answer(f"unit/{largest}")
    answers.answer(f"graph/{largest}/0/-1/0/after")
    graph = time.perf_counter() - started
    reader.close()
    return index, graph


def run_unwatchable(self: Any, root: Any) -> Any:
    """`_Rewrite.run` as it would be if nobody could ever watch."""
    before, after = [None if pm is None else pm.rewrite for pm in (self.before, self.after)]
    if before is None and after is not None:
        self._walk_sources_first(root, after)
    elif before is not None:
        self._walk_both_ways(root, before, after)
    return self.done


def cost_when_off(rounds: int = 40) -> None:
    """Schedules and lowers a convnet's training step with and without the place for a watcher."""
    from unittest import mock

    from weft import Tensor
    from weft.codegen.pipeline import lower
    from weft.device import Device
    from weft.uop.rewrite import _Rewrite

    x, w, v = Tensor.ones(4, 3, 8, 8), Tensor.ones(8, 3, 3, 3), Tensor.ones(8, 288)
    for one in (x, w, v):
        one.replace(one.contiguous().realize()).requires_grad_()
    renderer = Device["CPU"].renderer

    def work() -> float:
        started = time.process_time()
        loss = (v @ x.conv2d(w).relu().flatten(1).T).softmax(0).square().sum()
        for item in loss.schedule(*loss.gradient(w, v)):
            if item.kernel is not None:
                lower(item.kernel, renderer)
        return time.process_time() - started

    calls = 0
    plain = _Rewrite.run

    def counted(self: Any, root: Any) -> Any:
        nonlocal calls
        calls += 1
        return plain(self, root)

    with mock.patch.object(_Rewrite, "run", counted):
        work()
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(rounds):
        times[0].append(work())
        with mock.patch.object(_Rewrite, "run", run_unwatchable):
            times[1].append(work())
    # what disturbs a run only ever adds to it
    with_place, without = (min(kept) * 1e3 for kept in times)
    print(f"{calls} rewrites; {with_place:.1f} ms, {without:.1f} ms if none could be watched")
    print(f"{with_place / without - 1:+.2%}, {(with_place - without) * 1e3 / calls:+.2f} us each")


def main(runs: int = 3) -> None:
    """Print the table."""
    print(f"{'program':<28} {'off':>8} {'VIZ=-1':>8} {'without import':>14} {'trace':>9}")
    imports = [0.0, 0.0]
    with tempfile.TemporaryDirectory() as folder:
        for name, (device, command) in PROGRAMS.items():
            path = Path(folder) / f"{len(name)}.weft"
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(runs):
                for kept, viz in zip(times, ("0", "-1"), strict=True):
                    kept.append(seconds_of(device, command, viz, path))
            medians = [statistics.median(kept) for kept in times]
            if command[0] == "-c":
                imports = medians
            off, on = (total - start for total, start in zip(medians, imports, strict=True))
            ratio = f"{on / off:13.2f}x" if off > 0 else f"{'':>14}"
            size = f"{path.stat().st_size / 1e6:6.2f} MB"
            print(f"{name:<28} {medians[0]:6.2f} s {medians[1]:6.2f} s {ratio} {size}")
        index, graph = opening_seconds(path)
        print(
            f"that trace: list of kernels {index * 1e3:.0f} ms, largest graph {graph * 1e3:.0f} ms"
        )


if __name__ == "__main__":
    if sys.argv[1:] == ["off"]:
        cost_when_off()
    else:
        main(*map(int, sys.argv[1:2]))
