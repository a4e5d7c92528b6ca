"""Processes that tests start: each has an end, whatever becomes of the test.

In: a command. Out: a `Child`, a Popen that is killed with all it started when its block is left, or
when its time is up, so that nobody reads from it or waits for it for ever.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import threading
from typing import Any

# Far beyond what any of them takes, on a busy machine too.
LIMIT = 300.0


class Child(subprocess.Popen[str]):
    """A process that talks text. It leads a group of its own, as a program in a shell does."""

    def __init__(self, command: list[str], limit: float = LIMIT, **options: Any) -> None:
        super().__init__(command, text=True, start_new_session=True, **options)
        self._timer = threading.Timer(limit, self.end)
        self._timer.daemon = True
        self._timer.start()

    def end(self) -> None:
        """Kill it and what it started; nothing where it has ended."""
        if self.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def interrupt(self) -> None:
        """As Ctrl-C does: all processes of the group get it."""
        os.killpg(self.pid, signal.SIGINT)

    def communicate(self, *args: Any, **options: Any) -> tuple[str, str]:
        """All that it says until it ends, which the limit sees to."""
        try:
            return super().communicate(*args, **options)
        finally:
            self.end()
            self._timer.cancel()

    def __exit__(self, *error: Any) -> None:
        self.end()
        self._timer.cancel()
        super().__exit__(*error)
