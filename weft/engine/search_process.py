"""The other process that tries candidates, as this one sees it.

In: requests and how long each may take. Out: the answers; `Lost` if the process died or did not
answer in time. A new process takes the place of a lost one, and is told what it must know.
Where it sits: under the search, which asks; `search_worker` is what runs there.
Invariant: whatever happens there, this process lives on, and no answer is taken for another's.

It is a fresh interpreter, not a fork: this one may have threads, locks and other libraries.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
from pathlib import Path
from typing import IO, Any

from weft.errors import WeftError
from weft.knobs import child_environment

# of a first answer: a fresh interpreter imports weft and LLVM on a busy machine
START_SECONDS = 60.0
# what the process runs; tests put a misbehaving one in its place
PROGRAM = "from weft.engine.search_worker import main; main()"
# nothing of these may apply there: it compiles, runs, and reports by its answers only
_QUIET = dict.fromkeys(
    "BEAM DEBUG NOOPT SPEC VIZ PROFILE VALIDATE CHECK_NAN CHECK_OOB TRACK_MATCH_STATS".split(), "0"
)


class Lost(WeftError, RuntimeError):
    """The process died of a request, or did not answer in time."""


class NoProcess(WeftError, RuntimeError):
    """No such process can be made here."""


class TryingProcess:
    """At most one process at a time, made when it is asked something."""

    def __init__(self, device: str, cores: int) -> None:
        self.device = device
        self.cores = cores
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._owner = os.getpid()
        self._kernel: dict[str, Any] | None = None
        self.target = ""

    # -------------------------------------------------------- asking
    def bring(self, rows: str, knobs: dict[str, int], limit: float) -> None:
        """Makes a kernel the one that requests are about."""
        self._kernel = {"rows": rows, "device": self.device, "knobs": knobs}
        self._ensure_started()
        self._answer_to("kernel", self._kernel, limit)

    def ask(self, what: str, limit: float, **details: Any) -> dict[str, Any]:
        """The answer to one request about the kernel; `Lost` if it takes longer than `limit`."""
        if self._ensure_started() and self._kernel is not None:
            self._answer_to("kernel", self._kernel, START_SECONDS)
        return self._answer_to(what, details, limit)

    def _answer_to(self, what: str, details: dict[str, Any], limit: float) -> dict[str, Any]:
        request = json.dumps({"ask": what, "with": details, "limit": limit})
        process = self._process
        assert process is not None and process.stdin is not None
        try:
            process.stdin.write(request.encode() + b"\n")
            process.stdin.flush()
            line = self._answers.get(timeout=limit)
        except queue.Empty:
            self.end()
            raise Lost(f"no answer in {limit:g} seconds") from None
        except OSError as error:
            self.end()
            raise Lost(f"the process is gone: {error}") from None
        except BaseException:
            # an answer that nobody waited for would be taken for the next one
            self.end()
            raise
        if not line:
            raise Lost(self._cause())
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _cause(self) -> str:
        process = self._process
        self.end()
        code = None if process is None else process.returncode
        return f"the process ended with {'a signal' if code is None or code < 0 else 'code'} {code}"

    # -------------------------------------------------------- beginning and end
    def _ensure_started(self) -> bool:
        """Whether a new process had to be made."""
        if self._process is not None and self._owner == os.getpid():
            if self._process.poll() is None:
                return False
        self._start()
        return True

    def _start(self) -> None:
        self.end()
        if not sys.executable or getattr(sys, "frozen", False):
            raise NoProcess("this Python does not say how it was started")
        # what this process could import, that one can: weft first, then the same folders in order
        folders = [str(Path(__file__).resolve().parent.parent.parent), *filter(None, sys.path)]
        changes = {**_QUIET, "NUM_CPU_THREADS": str(self.cores), "DEV": "", "DEVICE": ""}
        try:
            process = subprocess.Popen(
                # -P: what lies in the working folder is not meant for it
                [sys.executable, "-P", "-c", PROGRAM],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=child_environment(changes, first_on_path=os.pathsep.join(folders)),
                # Ctrl-C is for this process; priorities are for both, so the session stays
                process_group=0 if os.name == "posix" else None,
            )
        except (OSError, ValueError, RuntimeError) as error:
            raise NoProcess(str(error)) from error
        self._process, self._owner = process, os.getpid()
        self._answers = queue.SimpleQueue()
        atexit.register(self.end)
        assert process.stdout is not None
        threading.Thread(
            target=_listen, args=(process.stdout, self._answers), name="weft-search", daemon=True
        ).start()
        try:
            answer = self._answer_to("target", {"device": self.device}, START_SECONDS)
        except Lost as error:
            raise NoProcess(f"it does not start: {error}") from error
        self.target = str(answer.get("target", ""))

    def end(self) -> None:
        """Ends the process, if there is one; the next request makes a new one."""
        process, self._process = self._process, None
        atexit.unregister(self.end)
        if process is None:
            return
        # after a fork the process is the parent's
        if self._owner == os.getpid():
            process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(START_SECONDS)
        # the thread that listens ends with the process, and closes the other end
        if process.stdin is not None:
            with contextlib.suppress(OSError):
                process.stdin.close()


def _listen(stream: IO[bytes], answers: queue.SimpleQueue[bytes]) -> None:
    """Lines as they come, and an empty one at the end."""
    with stream, contextlib.suppress(ValueError):
        for line in stream:
            answers.put(line)
    answers.put(b"")
