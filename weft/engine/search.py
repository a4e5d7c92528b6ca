"""Search: which actions make a kernel fastest, found by running it (BEAM=n).

In: a kernel that is ready to be optimised, its target. Out: the kernel after the actions that were
found, or None: the heuristic's are as good, or nothing can be measured here. Where it sits: beside
the programs; codegen asks it by name when the knob BEAM says so.
The one invariant: candidates run in another process on memory of their own, so that one that
crashes, hangs or is wrong costs its own time only; what is found is remembered on disk.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
import threading
import time
import warnings
from dataclasses import dataclass, field, replace
from typing import Any

from weft.codegen.opt.beam import Beam, Measured
from weft.codegen.opt.moves import Candidate, Space
from weft.codegen.opt.opt import OptError
from weft.device import Device
from weft.engine import kept
from weft.engine.search_process import START_SECONDS, Lost, NoProcess, TryingProcess
from weft.errors import DataError, DeviceError
from weft.helpers import colored, diskcache_get, diskcache_put, time_to_str
from weft.knobs import (
    BEAM,
    BEAM_TIMEOUT,
    BEAM_TRIAL,
    CACHELEVEL,
    DEBUG,
    IGNORE_BEAM_CACHE,
    TRANSCENDENTAL,
)
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.reproduce import graph_rows, save_graph

_TABLE = "searches"
# counted up when the same actions come to mean something else
_FORMAT = 1
# a kernel that takes less than this is all launch
LEAST_SECONDS = 2e-6
# memory of a kernel's buffers that may be taken a second time
MOST_BYTES = 1 << 30
# how much faster than the heuristic's choice another must be, measured side by side
LEAST_GAIN = 0.02
FINALISTS = 4

_lock = threading.RLock()
_found: dict[tuple[Any, ...], Candidate | None] = {}
# those of them that another process shall search again
_unfinished: set[tuple[Any, ...]] = set()
_processes: dict[tuple[str, int], TryingProcess] = {}
_warned: set[str] = set()


def searched(ast: UOp, target: Target) -> UOp | None:
    """The kernel after the actions of a search; None where the heuristic shall pick."""
    if target.has_local or not target.vector_bytes:
        return None
    device = _device_of(target)
    if device is None:
        return None
    space = Space(ast, target)
    key = (ast.key.hex(), repr(target), int(BEAM), int(TRANSCENDENTAL))
    with _lock:
        if key not in _found or IGNORE_BEAM_CACHE:
            remembered = _remembered(key, space)
            if remembered is None:
                outcome = search_kernel(space, device)
                if outcome.finished:
                    _remember(key, outcome.best)
                    _unfinished.discard(key)
                else:
                    _unfinished.add(key)
                _found[key] = outcome.best
            else:
                _unfinished.discard(key)
                _found[key] = remembered[0]
        if key in _unfinished:
            kept.set_provisional(True)
        best = _found[key]
    return None if best is None else space.kernel(best)


def _device_of(target: Target) -> str | None:
    """A device that runs kernels for this target; None if a kernel is only printed."""
    for device in Device.opened():
        with contextlib.suppress(DeviceError):
            if device.executes and device.renderer.target == target:
                return device.name
    return None


def clear_searches() -> None:
    """Forgets what was found in this process (not on disk), and ends the process that tried."""
    with _lock:
        _found.clear()
        _unfinished.clear()
        for process in _processes.values():
            process.end()
        _processes.clear()


def _forget_parent() -> None:
    """After a fork: the other process and the lock belong to the parent."""
    global _lock
    _lock = threading.RLock()
    _processes.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_parent)


# ------------------------------------------------------------ remembering
def _disk_key(key: tuple[Any, ...]) -> list[Any]:
    # another version may print other code for the same actions
    version = importlib.import_module("weft").__version__
    return [_FORMAT, version, *key]


def _remembered(key: tuple[Any, ...], space: Space) -> tuple[Candidate | None] | None:
    """What an earlier process found: in a tuple, for it may be that the heuristic is best."""
    if CACHELEVEL < 2 or IGNORE_BEAM_CACHE:
        return None
    entry = diskcache_get(_TABLE, _disk_key(key))
    if not isinstance(entry, dict) or "best" not in entry:
        return None
    if entry["best"] is None:
        return (None,)
    try:
        best = Candidate.decode(entry["best"])
        space.kernel(best)
    except (DataError, OptError):
        # not of our making, or from a weft whose actions are others
        return None
    return (best,)


def _remember(key: tuple[Any, ...], best: Candidate | None) -> None:
    if CACHELEVEL >= 2:
        diskcache_put(_TABLE, _disk_key(key), {"best": None if best is None else best.encode()})


# ------------------------------------------------------------ searching
@dataclass
class Outcome:
    """What a search found; without times nothing was measured."""

    best: Candidate | None = None  # None: the heuristic's choice
    finished: bool = False  # whether a search of the same kernel would find the same
    tried: int = 0
    refused: int = 0
    lost: list[tuple[Candidate, str]] = field(default_factory=list)  # crashed or hung, and how
    heuristic_seconds: float | None = None
    best_seconds: float | None = None
    spent: float = 0.0


def search_kernel(space: Space, device: str) -> Outcome:
    """Searches for one kernel, whatever is remembered, and tells what it found."""
    with _lock:
        search = _Search(space, device)
        search.run()
        search.report()
        return search.outcome


class _Search:
    """One kernel's search: asks the other process, counts, and says what it found."""

    def __init__(self, space: Space, device: str) -> None:
        self.space = space
        self.name = str(space.ast.arg.name)
        self.started = time.perf_counter()
        self.deadline = math.inf
        self.trial_seconds = max(0.01, BEAM_TRIAL.value)
        self.outcome = Outcome()
        cores = space.target.cores
        self.process = _processes.setdefault((device, cores), TryingProcess(device, cores))

    def run(self) -> None:
        """Fills in the outcome."""
        if _buffer_bytes(self.space.ast) > MOST_BYTES:
            self._say(f"not searched: its buffers take more than {MOST_BYTES >> 20} MB")
            self.outcome.finished = True
            return
        try:
            # what stands in origins are places of the user's files, of no use to the other process
            info = replace(self.space.ast.arg, origins=())
            rows = graph_rows(self.space.ast.replace(arg=info))
            self.process.bring(rows, {"TRANSCENDENTAL": int(TRANSCENDENTAL)}, START_SECONDS)
            if self.process.target != repr(self.space.target):
                raise NoProcess(f"it finds another machine: {self.process.target}")
            # how long the process took to start says nothing about the kernel
            self.deadline = time.perf_counter() + max(0.0, BEAM_TIMEOUT.value)
            self._find_best()
        except NoProcess as error:
            _warn_once(f"BEAM={BEAM} searches nothing, for no process can be made: {error}")
        except Lost as error:
            self._say(f"not searched: {error}")

    def _find_best(self) -> None:
        start = self.space.start
        limit = max(self.deadline - time.perf_counter(), self.trial_seconds)
        answer = self.process.ask("measure", limit, candidate=start.encode(), best=1e9)
        if "refused" in answer:
            self._say(f"not searched: {answer['refused']}")
            return
        model = float(answer["seconds"])
        if model < LEAST_SECONDS:
            self.outcome.finished = True
            self._say(f"not searched: {time_to_str(model, w=0)} is all launch")
            return
        # one that takes long takes as long again to be measured
        self.trial_seconds = max(self.trial_seconds, 10 * model)
        beam: Beam[Candidate] = Beam(
            self.space.neighbours, self.space.cost, self._measure, self._is_over
        )
        beam.add(Measured(start, model))
        found = beam.search(self._plain(model), int(BEAM))
        self.outcome.tried = beam.tried
        # where all but the heuristic's choice failed, or nothing else was tried in time, another
        # search may find more
        is_searched = len(found) > 1 or (beam.tried == 1 and not self._is_over())
        self.outcome.finished = self._choose(found) and is_searched

    def _plain(self, model: float) -> list[Candidate]:
        """The plain kernel, unless it would take all the time there is: it cannot be stopped."""
        plain = self.space.plain()
        expected = model * self.space.cost(plain) / max(self.space.cost(self.space.start), 1.0)
        return [plain] if expected < self.trial_seconds / 4 else []

    def _is_over(self) -> bool:
        return time.perf_counter() > self.deadline

    def _measure(self, candidate: Candidate, best: float) -> float | None:
        try:
            answer = self.process.ask(
                "measure", self.trial_seconds, candidate=candidate.encode(), best=best
            )
        except Lost as error:
            self.outcome.lost.append((candidate, str(error)))
            return None
        seconds = answer.get("seconds")
        self.outcome.refused += seconds is None
        if DEBUG >= 6:
            shown = answer.get("refused") if seconds is None else time_to_str(seconds)
            print(f"    {shown} {actions_text(candidate)}")
        self._progress(best)
        return None if seconds is None else float(seconds)

    # -------------------------------------------------------- the last comparison
    def _choose(self, found: list[Measured[Candidate]]) -> bool:
        """The fastest that computes the same as the heuristic's choice, measured side by side.

        Whether they could be measured.
        """
        start = self.space.start
        finalists = [start, *[known.point for known in found if known.point != start][:FINALISTS]]
        times = self._duel(finalists)
        if times is None:
            return False
        self.outcome.heuristic_seconds = self.outcome.best_seconds = times[0]
        for place in sorted(range(1, len(times)), key=lambda i: times[i]):
            if times[place] > (1 - LEAST_GAIN) * times[0]:
                break
            if self._is_right(finalists[place]):
                return self._confirm(finalists[place])
        return True

    def _confirm(self, candidate: Candidate) -> bool:
        """Of many that are as fast as each other the luckiest comes first: it has to win again.

        Whether it could be measured.
        """
        times = self._duel([self.space.start, candidate])
        if times is None:
            return False
        self.outcome.heuristic_seconds = self.outcome.best_seconds = times[0]
        if times[1] <= (1 - LEAST_GAIN) * times[0]:
            self.outcome.best, self.outcome.best_seconds = candidate, times[1]
        return True

    def _duel(self, candidates: list[Candidate]) -> list[float] | None:
        """Seconds of each, measured in turns; None if they could not be."""
        encoded = [candidate.encode() for candidate in candidates]
        # each has answered before, so this is patient: a new process compiles them all again
        limit = self.trial_seconds * len(encoded) + START_SECONDS
        answer = self.process.ask("duel", limit, candidates=encoded)
        if "seconds" not in answer:
            self._say(f"not compared: {answer.get('refused')}")
            return None
        times: list[float] = answer["seconds"]
        return times

    def _is_right(self, candidate: Candidate) -> bool:
        limit = 4 * self.trial_seconds + START_SECONDS
        answer = self.process.ask(
            "difference",
            limit,
            candidate=candidate.encode(),
            reference=self.space.start.encode(),
        )
        difference = answer.get("difference", answer.get("refused"))
        if difference is None:
            return True
        path = save_graph(self.space.ast, f"{difference}\nafter {actions_text(candidate)}")
        warnings.warn(
            f"a bug of weft: actions change what {self.name} computes: {difference}; they are not "
            f"used. Please report {actions_text(candidate)} with the kernel in {path}",
            RuntimeWarning,
            stacklevel=2,
        )
        return False

    # -------------------------------------------------------- telling
    def _say(self, text: str) -> None:
        if DEBUG >= 1:
            print(f"{colored('beam', 'magenta')} {self.name}: {text}")

    def _progress(self, best: float) -> None:
        """A line that is redrawn where somebody watches."""
        if DEBUG >= 1 and sys.stderr.isatty():
            spent = time.perf_counter() - self.started
            line = f"beam {self.name}: {spent:.1f} s, best {time_to_str(best, w=0)}"
            print(f"\r{line:<79}", end="\r", file=sys.stderr, flush=True)

    def report(self) -> None:
        """Says what was found, if anybody wants to know."""
        found = self.outcome
        found.spent = time.perf_counter() - self.started
        before, after = found.heuristic_seconds, found.best_seconds
        if DEBUG < 1 or before is None or after is None:
            return
        self._say(
            f"{found.tried} tried in {found.spent:.1f} s, {time_to_str(before, w=0).strip()} -> "
            f"{time_to_str(after, w=0).strip()} ({before / after:.2f}x)"
        )
        if DEBUG >= 2:
            print(f"     heuristic: {actions_text(self.space.start)}")
            if found.best is not None:
                print(f"     found:     {actions_text(found.best)}")
            print(f"     {found.refused} refused, {len(found.lost)} crashed or hung")
            for candidate, why in found.lost:
                print(f"     {why}: {actions_text(candidate)}")


def actions_text(candidate: Candidate) -> str:
    """The actions in a few words: UPCAST(0,):64 VECTOR(0,1):16."""
    words = []
    for opt in candidate.flat():
        size = "" if opt.arg is None else f":{opt.arg}"
        words.append(f"{opt.op.name}{opt.axis}{size}".replace(" ", ""))
    return " ".join(words) or "no actions"


def _buffer_bytes(ast: UOp) -> int:
    params = [u for u in ast.toposort() if u.op is Ops.PARAM]
    return sum(u.arg.size * u.dtype.itemsize for u in params)


def _warn_once(text: str) -> None:
    if text not in _warned:
        _warned.add(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)
