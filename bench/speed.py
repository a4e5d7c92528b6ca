"""Steady-state speed: every framework on every workload, in interleaved rounds.

usage: python -m bench.speed [--with NAME ...] [--only matmul1024,conv_*] [--json FILE]
The first framework is the subject: ratios are subject / peer, below 1 the subject is faster.
In: names of frameworks and workloads. Out: a table of medians and bests, with every result compared
with PyTorch's.
Invariant: frameworks take turns in short slices, and only slices count in which threads did not
wait for a CPU: a disturbed run of several threads is not slower, it is wrong. A process is stopped
while it is another's turn: the threads of OpenMP spin for 200 ms after their last work.
"""

from __future__ import annotations

import argparse
import contextlib
import fnmatch
import json
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from bench import frameworks, workloads

DEFAULT = ["weft", "torch", "jax"]
# of numbers kept in a dtype, against what else is kept in it
TOLERANCES = {"float32": 1e-3, "float16": 1e-2, "bfloat16": 6e-2}
# computes in float32 what others compute in halves
WIDE = "torch@BENCH_WIDE=1"
Results = dict[str, dict[str, Any]]


class Worker:
    """A process that runs one framework on one workload."""

    def __init__(self, framework: str, name: str, path: str, options: Any, log: Any) -> None:
        self.framework = framework
        self.path = path
        cache = None
        if options.cache:
            folder = framework.replace("@", "_").replace(",", "_")
            cache = os.path.join(options.cache, folder)
        self.process = subprocess.Popen(
            [frameworks.python(framework), "-P", "-m", "bench.worker", framework, name, path],
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            env=frameworks.environment(framework, options.threads, cache),
            preexec_fn=frameworks.prioritise(options.nice),
        )

    def read(self) -> dict[str, Any]:
        """Its next answer."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"exit {self.process.wait()}")
        answer: dict[str, Any] = json.loads(line)
        self.process.send_signal(signal.SIGSTOP)
        return answer

    def calls(self, count: int) -> dict[str, Any]:
        """Times of so many calls."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        self.process.stdin.write(json.dumps({"calls": count}) + "\n")
        self.process.stdin.flush()
        return self.read()

    def close(self) -> None:
        """End it."""
        assert self.process.stdin is not None
        self.process.send_signal(signal.SIGCONT)
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


@contextlib.contextmanager
def locked(path: str | None) -> Iterator[None]:
    """Hold an exclusive lock on a file, where several people measure on one machine."""
    if not path:
        yield
        return
    import fcntl

    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)


def error_of(found: Any, reference: Any, rtol: float = 1e-3) -> float:
    """The worst error in units of the tolerance: up to 1 is right."""
    if found.size != reference.size or not np.isfinite(found).all():
        return float("inf")
    wanted = reference.astype(np.float64)
    distance = np.abs(found.astype(np.float64).reshape(wanted.shape) - wanted)
    allowed = rtol * (np.abs(wanted) + np.abs(wanted).std() + 1e-6)
    return float(np.max(distance / allowed))


class Job:
    """One workload on all frameworks: set up one after another, then timed in turns."""

    def __init__(self, name: str, options: Any, log: Any) -> None:
        self.name = name
        self.options = options
        self.results: Results = {}
        self.slices: dict[str, list[tuple[float, list[float]]]] = {}
        self.live: list[Worker] = []
        self.folder = tempfile.TemporaryDirectory()
        self.log = log
        self.paths: dict[str, str] = {}
        # all at once to take turns, or one after another where memory holds one only
        self.is_alone = name in workloads.ALONE
        self.dtype = workloads.HALVES.get(name, "float32")

    def run(self) -> None:
        """Set up, and time."""
        names = self.options.frameworks
        if self.dtype != "float32" and "torch" in names:
            self._set_up(WIDE)
            for worker in self.live:
                worker.close()
        groups = [[name] for name in names] if self.is_alone else [names]
        for group in groups:
            self.live = []
            for framework in group:
                self._set_up(framework)
            self._time()
            for worker in self.live:
                worker.close()

    def _set_up(self, framework: str) -> None:
        path = os.path.join(self.folder.name, f"{len(self.paths)}.npy")
        worker = Worker(framework, self.name, path, self.options, self.log)
        try:
            self.results[framework] = worker.read()
            self.slices[framework] = []
            self.paths[framework] = path
            self.live.append(worker)
        except RuntimeError as error:
            self.results[framework] = {"error": str(error)}
            worker.close()

    def _compare(self) -> None:
        # two results in halves may each be right and differ by more than that
        reference = self.paths.pop(WIDE, None) or self.paths.get("torch")
        self.results.pop(WIDE, None)
        self.slices.pop(WIDE, None)
        for framework, path in self.paths.items():
            error = None
            if reference is not None and framework != "machine":
                error = error_of(np.load(path), np.load(reference), TOLERANCES[self.dtype])
            self.results[framework]["error of result"] = error

    def _time(self) -> None:
        """Rounds; up to three times as many for a framework that was disturbed in most of them."""
        for number in range(3 * self.options.rounds):
            for worker in list(self.live):
                slices = self.slices[worker.framework]
                quiet = sum(waited <= self.options.quiet for waited, _ in slices)
                spent = sum(sum(times) for _, times in slices)
                enough = number >= self.options.rounds and quiet >= 3
                if not enough and spent <= self.options.budget * 1e3:
                    self._time_slice(worker)

    def _time_slice(self, worker: Worker) -> None:
        found = self.results[worker.framework]
        count = int(self.options.slice / max(found["once_s"], 1e-6))
        try:
            answer = worker.calls(max(1, min(self.options.max_calls, count)))
        except RuntimeError as error:
            self.results[worker.framework] = {"error": str(error)}
            self.live.remove(worker)
            return
        self.slices[worker.framework].append((answer["waited"], answer["ms"]))
        found["once_s"] = statistics.median(answer["ms"]) / 1e3

    def finish(self) -> Results:
        """Medians over quiet slices; over the least disturbed three, and marked, if few were."""
        self._compare()
        self.folder.cleanup()
        for framework, slices in self.slices.items():
            if not slices or "error" in self.results[framework]:
                continue
            slices.sort()
            used = [part for part in slices if part[0] <= self.options.quiet]
            is_noisy = len(used) < 2
            used = slices[:3] if is_noisy else used
            times = [ms for _, part in used for ms in part]
            self.results[framework] |= {
                "median": statistics.median(times),
                "best": min(times),
                "deviation": statistics.pstdev(times),
                "calls": len(times),
                "noisy": is_noisy,
                "waited": statistics.mean(waited for waited, _ in used),
            }
        return self.results


def milliseconds(value: float) -> str:
    """
    >>> milliseconds(0.05), milliseconds(5.0), milliseconds(50.0)
    ('50.0us', '5.000', '50.0')
    """
    if value < 0.1:
        return f"{value * 1e3:.1f}us"
    return f"{value:.3f}" if value < 10 else f"{value:.1f}"


def row(name: str, found: Results, names: list[str]) -> list[str]:
    """One workload: median and best of each, ratios, and what else there is to say."""
    cells, notes = [name], []
    for framework in names:
        result = found.get(framework, {})
        if "median" not in result:
            cells += ["failed" if "error" in result else "-", "-"]
            continue
        cells += [milliseconds(result["median"]), milliseconds(result["best"])]
        if result["noisy"]:
            notes.append(f"{framework} NOISY (waited {result['waited']:.0%} for a CPU)")
        error = result["error of result"]
        if error is not None and error > 1:
            notes.append(f"{framework} is wrong: {error:.1f} times the tolerance")
        if "kernels" in result:
            notes.append(f"{framework}: {result['kernels']} kernels")
    subject = found.get(names[0], {})
    for framework in names[1:]:
        peer = found.get(framework, {})
        if "median" in subject and "median" in peer:
            pair = [subject[key] / peer[key] for key in ("median", "best")]
            cells.append(f"{pair[0]:.2f} ({pair[1]:.2f})")
        else:
            cells.append("-")
    return [*cells, "; ".join(notes)]


def markdown(rows: list[list[str]]) -> str:
    """Rows as a table, the first one its head."""
    head, *body = rows
    return "\n".join(
        "| " + " | ".join(cells) + " |" for cells in [head, ["---"] * len(head), *body]
    )


def current_commit() -> str:
    """What is measured, as far as the checkout knows."""
    command = ["git", "rev-parse", "--short", "HEAD"]
    try:
        folder = Path(__file__).parent
        return subprocess.check_output(
            command, cwd=folder, text=True, stderr=subprocess.DEVNULL
        ).strip()
    except (OSError, subprocess.CalledProcessError):
        return "unknown"


def keep(path: str | None, part: str, name: str, found: Any, options: Any) -> None:
    """Add results to a JSON file."""
    if not path:
        return
    file = Path(path)
    known = json.loads(file.read_text()) if file.exists() else {}
    machine = {"cpu": platform.processor() or platform.machine(), "threads": options.threads}
    known.setdefault("machine", {**machine, "python": platform.python_version()})
    known.setdefault(part, {})[name] = found
    commits = known.setdefault("commits", [])
    if (commit := current_commit()) not in commits:
        commits.append(commit)
    file.write_text(json.dumps(known, indent=1))


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m bench.speed", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    add = parser.add_argument
    add("--with", dest="frameworks", nargs="+", default=DEFAULT, help="the first is the subject")
    add("--only", default="*", help="names of workloads, with wildcards, separated by commas")
    add("--own", action="store_true", help="also the workloads that only weft runs")
    add("--rounds", type=int, default=7)
    add("--slice", type=float, default=0.3, help="seconds of calls per framework and round")
    add("--budget", type=float, default=8.0, help="seconds of a framework on a workload")
    add("--quiet", type=float, default=0.08, help="slices count that waited at most this share")
    add("--max-calls", type=int, default=200)
    add("--threads", type=int, default=2)
    add("--cache", help="folder of the frameworks' compile caches (default: their own)")
    add("--lock", help="a file to hold an exclusive lock on while a workload runs")
    add("--nice", type=int, default=0, help="nice value of the workers (negative needs root)")
    add("--json", help="write results here; an existing file is added to")
    add("--log", default=os.devnull, help="standard error of the workers")
    return parser.parse_args()


def main() -> None:
    """All workloads asked for."""
    options = arguments()
    frameworks.pin(options.threads)
    patterns = options.only.split(",")
    known = {**workloads.CASES, **workloads.OWN_CASES} if options.own else workloads.CASES
    chosen = [n for n in known if any(fnmatch.fnmatch(n, p) for p in patterns)]
    names = options.frameworks
    rows = [["workload, ms"]]
    rows[0] += [cell for name in names for cell in (name, "best")]
    rows[0] += [f"{names[0]}/{name} (best)" for name in names[1:]] + ["notes"]
    with open(options.log, "a") as log:
        for name in chosen:
            started = time.perf_counter()
            with locked(options.lock):
                job = Job(name, options, log)
                job.run()
            found = job.finish()
            rows.append(row(name, found, names))
            keep(options.json, "speed", name, found, options)
            seconds = time.perf_counter() - started
            print(f"# {seconds:4.0f} s  {' | '.join(rows[-1])}", file=sys.stderr, flush=True)
    print(markdown(rows))


if __name__ == "__main__":
    main()
