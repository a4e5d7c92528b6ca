"""The thread that continues texts, and how requests reach it.

In: texts from any thread. Out: what becomes of them, on the event loop of those who asked. Between
`batch` and `serve`. Invariant: only this thread touches the model; a text that nobody waits for any
more is dropped before the next step.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from weft.errors import WeftError
from weft.llm.batch import Batcher, Text


class BusyError(WeftError):
    """As many texts wait as may."""


@dataclass
class Counters:
    """What was done since the start."""

    requests: int = 0
    refused: int = 0
    cancelled: int = 0
    failed: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    answer_tokens: int = 0
    busy_seconds: float = 0.0


class Engine:
    """Runs a `Batcher` in a thread of its own."""

    def __init__(self, batcher: Batcher, most_waiting: int = 512) -> None:
        self.batcher = batcher
        self.counters = Counters()
        self._most_waiting = most_waiting
        self._inbox: deque[tuple[str, Text]] = deque()
        self._changed = threading.Condition()
        self._is_stopped = False
        self._inside = 0  # texts that were submitted and have not ended
        self._thread = threading.Thread(target=self._loop, name="weft-llm", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self, limit: float = 30.0) -> None:
        """End after the step that runs; texts that have not ended are cancelled."""
        with self._changed:
            self._is_stopped = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(limit)

    @property
    def inside(self) -> int:
        """Texts that wait or run."""
        return self._inside

    def submit(self, texts: list[Text]) -> None:
        """Continue these texts, or none of them."""
        with self._changed:
            if self._is_stopped:
                raise BusyError("the server is being stopped")
            if self._inside + len(texts) > self._most_waiting:
                self.counters.refused += 1
                raise BusyError(
                    f"{self._inside} texts wait or run, and {self._most_waiting} may; try later"
                )
            self._inside += len(texts)
            self.counters.requests += 1
            self._inbox.extend(("add", text) for text in texts)
            self._changed.notify()

    def cancel(self, texts: list[Text]) -> None:
        """Nobody waits for these any more."""
        with self._changed:
            self._inbox.extend(("cancel", text) for text in texts if text.reason is None)
            self._changed.notify()

    # -------------------------------------------------------- in the thread
    def _loop(self) -> None:
        while True:
            with self._changed:
                while not (self._inbox or len(self.batcher) or self._is_stopped):
                    self._changed.wait()
                inbox, stopped = list(self._inbox), self._is_stopped
                self._inbox.clear()
            for what, text in inbox:
                self._apply(what, text)
            if stopped:
                for text in [*self.batcher.running, *self.batcher.waiting]:
                    self.batcher.cancel(text)
                return
            began = time.perf_counter()
            try:
                self.batcher.step()
            except Exception as error:
                # a fault of the server, not of a text: all that were in it hear of it
                self._fail(error)
            self.counters.busy_seconds += time.perf_counter() - began

    def _apply(self, what: str, text: Text) -> None:
        if what == "cancel":
            self.batcher.cancel(text)
            return
        text.when_ended = self._ended
        try:
            self.batcher.add(text)
        except WeftError as error:
            text.error = error
            self.batcher.end(text, "error")

    def _fail(self, error: Exception) -> None:
        for text in [*self.batcher.running, *self.batcher.waiting]:
            text.error = error
            self.batcher.end(text, "error")

    def _ended(self, text: Text) -> None:
        counters = self.counters
        counters.cancelled += text.reason == "cancelled"
        counters.failed += text.reason == "error"
        counters.prompt_tokens += text.prompt
        counters.cached_tokens += text.reused
        counters.answer_tokens += len(text.tokens) - text.prompt
        with self._changed:
            self._inside -= 1
        if text.listener is not None:
            text.listener()


class StreamRouter:
    """Takes what the engine's thread says to the requests that wait for it on the event loop."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    def open(self) -> Stream:
        """A way from the engine to the request that runs now."""
        return Stream(self.engine, asyncio.get_running_loop())


class Stream:
    """What becomes of some texts, in order. Used in `async with`: leaving it cancels them."""

    def __init__(self, engine: Engine, loop: asyncio.AbstractEventLoop) -> None:
        self._engine = engine
        self._loop = loop
        self._queue: asyncio.Queue[tuple[int, Any]] = asyncio.Queue()
        self.texts: list[Text] = []
        self._open = 0

    def put(self, number: int, item: Any) -> None:
        """From the engine's thread: something of text `number`; None: it has ended."""
        try:
            self._loop.call_soon_threadsafe(self._queue.put_nowait, (number, item))
        except RuntimeError:
            # the loop has ended, and with it all who waited
            pass

    def submit(self, texts: list[Text]) -> None:
        """The texts whose items will come."""
        self.texts, self._open = texts, len(texts)
        self._engine.submit(texts)

    async def items(self) -> AsyncIterator[tuple[int, Any]]:
        """Items and the numbers of their texts, until all have ended."""
        while self._open:
            number, item = await self._queue.get()
            self._open -= item is None
            yield number, item

    async def __aenter__(self) -> Stream:
        return self

    async def __aexit__(self, *_: Any) -> None:
        self.cancel()

    def cancel(self) -> None:
        """Nobody waits for these texts any more."""
        self._engine.cancel(self.texts)
