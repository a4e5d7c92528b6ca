"""The process of the search: compiles and runs candidates, and may die of one.

In: requests, one line of JSON each, on its standard input. Out: one line for each. Started by
`search_process`; nobody imports it. What a candidate prints or breaks stays in this process.
Invariant: what goes in and out is data. A request that Python can refuse is answered with why; one
that takes far too long ends the process, also if nobody is left who waits for it.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import sys
from typing import Any, TextIO

from weft.codegen.opt.moves import Candidate
from weft.device import Device
from weft.engine.search_trial import Trial
from weft.knobs import Context
from weft.uop.reproduce import parse_rows

# beyond the limit that is given with a request; whoever asked gave up before
GRACE_SECONDS = 5.0


class Requests:
    """Answers requests; remembers the kernel that they are about."""

    def __init__(self) -> None:
        self._trial: Trial | None = None
        self._knobs: dict[str, int] = {}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """What one request asks for."""
        with Context(**self._knobs):
            found: dict[str, Any] = getattr(self, f"_{request['ask']}")(**request["with"])
            return found

    @property
    def trial(self) -> Trial:
        """The kernel in question."""
        assert self._trial is not None, "the first request about a kernel brings it"
        return self._trial

    def _target(self, device: str) -> dict[str, Any]:
        return {"target": repr(Device[device].renderer.target)}

    def _kernel(self, rows: str, device: str, knobs: dict[str, int]) -> dict[str, Any]:
        self._trial = None  # the memory of the kernel before is free now
        self._knobs = knobs
        with Context(**knobs):
            self._trial = Trial(parse_rows(rows), device)
        return {}

    def _measure(self, candidate: Any, best: float) -> dict[str, Any]:
        return {"seconds": self.trial.measure(Candidate.decode(candidate), best)}

    def _duel(self, candidates: list[Any]) -> dict[str, Any]:
        return {"seconds": self.trial.duel([Candidate.decode(data) for data in candidates])}

    def _difference(self, candidate: Any, reference: Any) -> dict[str, Any]:
        both = [Candidate.decode(data) for data in (candidate, reference)]
        return {"difference": self.trial.difference(*both)}


def serve(questions: TextIO, answers: TextIO) -> None:
    """Answers until nobody asks any more."""
    requests = Requests()
    with open(os.devnull, "w", encoding="utf-8") as nowhere:
        for line in questions:
            request = json.loads(line)
            # a thread of its own that needs no Python: it also ends an endless loop in a kernel
            limit = request["limit"] + GRACE_SECONDS
            faulthandler.dump_traceback_later(limit, exit=True, file=nowhere)
            try:
                found = requests.answer(request)
            except Exception as error:
                found = {"refused": f"{type(error).__name__}: {error}"[:2000]}
            faulthandler.cancel_dump_traceback_later()
            answers.write(json.dumps(found) + "\n")
            answers.flush()


def main() -> None:
    """Answers on what was standard output; what anybody prints goes nowhere."""
    with contextlib.suppress(ImportError, ValueError, OSError):
        import resource

        # a crash is an answer here, nobody needs its memory on disk
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    with contextlib.suppress(KeyboardInterrupt, BrokenPipeError):
        serve(sys.stdin, answers)
    # threads of the runtime may still be at work
    os._exit(0)


if __name__ == "__main__":
    main()
