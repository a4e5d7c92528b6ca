"""Text for people who watch: colours, times, a progress bar.

In: strings, numbers, iterables. Out: strings, and lines on stderr. Sits between the knobs and the
helpers, which pass its names on. Invariant: where nobody watches (no terminal, NO_COLOR) there are
no colours and no redrawn lines.
"""

from __future__ import annotations

import io
import re
import sys
import time
from collections.abc import Iterable, Iterator, Sized
from types import TracebackType
from typing import Any, Generic, TypeVar

from weft.knobs import NO_COLOR, getenv

Item = TypeVar("Item")

_COLORS = ("black", "red", "green", "yellow", "blue", "magenta", "cyan", "white")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_PIECE = re.compile(_ESCAPE.pattern + "|.", re.DOTALL)


def color_wanted() -> bool:
    """Whether coloured text should be printed: on a terminal, unless NO_COLOR or FORCE_COLOR."""
    if NO_COLOR or getenv("NO_COLOR", "0") not in ("", "0"):
        return False
    if getenv("FORCE_COLOR", ""):
        return True
    return sys.stdout is not None and sys.stdout.isatty()


def colored(text: str, color: str | None, background: bool = False) -> str:
    """`text` in a colour, bright if the colour is written in capitals; plain where unwanted."""
    if color is None or not color_wanted():
        return text
    if color.lower() not in _COLORS:
        return text
    code = (40 if background else 30) + _COLORS.index(color.lower())
    code += 60 if color.isupper() else 0
    return f"\x1b[{code}m{text}\x1b[0m"


def ansistrip(text: str) -> str:
    """`text` without colours and other escape sequences."""
    return _ESCAPE.sub("", text)


def split_ansi(text: str) -> list[str]:
    """The pieces of `text`: single characters, and whole escape sequences."""
    return _PIECE.findall(text)


def ansilen(text: str) -> int:
    """Number of characters that a terminal shows for `text`."""
    return len(ansistrip(text))


def time_to_str(seconds: float, w: int = 8) -> str:
    """A time in the unit that suits it, `w` characters and the unit.

    >>> time_to_str(0.0123)
    '   12.30ms'
    """
    if seconds >= 10:
        return f"{seconds:{w}.2f}s "
    if seconds >= 0.01:
        return f"{seconds * 1e3:{w}.2f}ms"
    return f"{seconds * 1e6:{w}.2f}us"


def _clock(seconds: float) -> str:
    """Hours only where there are some: 1:02:03 or 02:03."""
    whole = int(seconds)
    hours, minutes = divmod(whole // 60, 60)
    head = f"{hours}:{minutes:02}" if hours else f"{minutes:02}"
    return f"{head}:{whole % 60:02}"


def _scaled(number: float) -> str:
    """Three digits and a letter: 1.23M."""
    for letter in ("", "k", "M", "G", "T"):
        if abs(number) < 999.5:
            digits = 2 - (abs(number) >= 9.995) - (abs(number) >= 99.95)
            return f"{number:.{digits}f}{letter}"
        number /= 1000
    return f"{number:.3g}P"


# an eighth of a letter, two, ... seven: a bar grows in these steps
_EIGHTHS = " ▏▎▍▌▋▊▉"


def _is_watched() -> bool:
    """Whether a bar is redrawn: on a terminal, or where a program keeps its own errors as text."""
    return sys.stderr.isatty() or isinstance(sys.stderr, io.StringIO)


class tqdm(Generic[Item]):
    """A progress bar around an iterable, or one moved by hand with `update`.

    Drawn at most `rate` times a second, and only on a terminal; elsewhere one line is written at
    the end.
    """

    def __init__(
        self,
        iterable: Iterable[Item] | None = None,
        desc: str = "",
        disable: bool = False,
        unit: str = "it",
        unit_scale: bool = False,
        total: int | None = None,
        rate: int = 20,
    ) -> None:
        self.iterable = iterable
        self.desc = desc
        self.disable = disable
        self.unit = unit
        self.unit_scale = unit_scale
        self.total = total
        self.rate = rate
        self.n = 0
        self._start = time.perf_counter()
        self._drawn_at = -1.0
        self._closed = False
        if total is None and isinstance(iterable, Sized):
            self.total = len(iterable)

    def __iter__(self) -> Iterator[Item]:
        if self.iterable is None:
            raise TypeError("this tqdm has no iterable; move it with update(n)")
        try:
            for item in self.iterable:
                yield item
                self.update(1)
        finally:
            self.close()

    def __enter__(self) -> tqdm[Item]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def set_description(self, desc: str) -> None:
        """Changes the text in front of the bar."""
        self.desc = desc.removesuffix(": ")

    def update(self, n: int | None = None, close: bool = False) -> None:
        """Moves the bar by `n`, one if none is given, and ends it if asked."""
        self.n += (0 if close else 1) if n is None else n
        if close:
            return self.close()
        now = time.perf_counter()
        if not self.disable and _is_watched() and now - self._drawn_at >= 1 / self.rate:
            self._drawn_at = now
            self._write("\r" + self.text(now))

    def close(self) -> None:
        """Draws the bar a last time and ends its line."""
        if self._closed or self.disable:
            return
        self._closed = True
        start = "\r" if _is_watched() else ""
        self._write(start + self.text(time.perf_counter()) + "\n")

    def text(self, now: float) -> str:
        """What the bar looks like at a time."""
        import shutil

        elapsed = max(now - self._start, 1e-9)
        speed = self.n / elapsed
        show = _scaled if self.unit_scale else str
        rate = "?"
        if speed > 0:
            rate = _scaled(speed) if self.unit_scale else f"{speed:.2f}"
        tail = f"{rate}{self.unit}/s"
        if 0 < speed < 1:
            slow = _scaled(1 / speed) if self.unit_scale else f"{1 / speed:.2f}"
            tail = f"{slow}s/{self.unit}"
        desc = f"{self.desc}: " if self.desc else ""
        if not self.total:
            return f"{desc}{show(self.n)}{self.unit} [{_clock(elapsed)}, {tail}]"
        fraction = min(self.n / self.total, 1.0)
        left = _clock(elapsed * (1 / fraction - 1)) if fraction > 0 else "?"
        head = f"{desc}{100 * fraction:3.0f}%"
        end = f" {show(self.n)}/{show(self.total)} [{_clock(elapsed)}<{left}, {tail}]"
        room = max(shutil.get_terminal_size().columns - ansilen(head) - len(end) - 2, 1)
        filled, eighths = divmod(int(fraction * room * 8), 8)
        bar = "█" * filled + (_EIGHTHS[eighths] if filled < room else "")
        return f"{head}|{bar:{room}}|{end}"

    @staticmethod
    def write(text: str) -> None:
        """Prints a line without tearing a bar apart."""
        if sys.stderr.isatty():
            tqdm._write("\r\x1b[K")
        print(text)

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


class trange(tqdm[int]):
    """A progress bar over `range(n)`."""

    def __init__(self, n: int, **kwargs: Any) -> None:
        super().__init__(iterable=range(n), **kwargs)
