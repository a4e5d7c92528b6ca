"""Helpers that programs written for tinygrad import from `tinygrad.helpers`.

In: Python values. Out: Python values. Sits right below `helpers`, which passes the names on.
Invariant: nothing in weft itself needs these, and nothing here knows a node or a device.
"""

from __future__ import annotations

import contextlib
import decimal
import functools
import importlib
import re
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from weft.errors import ArgumentError
from weft.progress import ansilen, ansistrip, colored

Result = TypeVar("Result")

CHUNK_SIZE = 2**20


# Numbers.


def all_int(items: Sequence[Any]) -> bool:
    """Whether all are plain numbers, none symbolic."""
    return all(isinstance(item, int) for item in items)


def round_down(number: Any, multiple: Any) -> Any:
    """The last multiple that is not above `number`."""
    return number // multiple * multiple


def floordiv(x: int, y: int) -> int:
    """Python's `//`; 0 for a divisor of 0."""
    return x // y if y else 0


def floormod(x: int, y: int) -> int:
    """The rest of `floordiv`."""
    return x - floordiv(x, y) * y


def next_power2(x: int) -> int:
    """The first power of two that is not below `x`."""
    return 1 if x <= 0 else 1 << (x - 1).bit_length()


def i2u(bits: int, value: int) -> int:
    """The bits of a signed number as an unsigned one."""
    return value & ((1 << bits) - 1)


def lo32(x: Any) -> Any:
    """The low half of 64 bits."""
    return x & 0xFFFFFFFF


def hi32(x: Any) -> Any:
    """The high half of 64 bits."""
    return x >> 32


def data64(data: Any) -> tuple[Any, Any]:
    """Both halves of 64 bits, the high one first."""
    return hi32(data), lo32(data)


def data64_le(data: Any) -> tuple[Any, Any]:
    """Both halves of 64 bits, the low one first."""
    return lo32(data), hi32(data)


def to_be32(value: int) -> int:
    """32 bits with their bytes in the other order."""
    return int(struct.unpack(">I", struct.pack("<I", value))[0])


def to_be64(value: int) -> int:
    """64 bits with their bytes in the other order."""
    return int(struct.unpack(">Q", struct.pack("<Q", value))[0])


# Sequences and objects.


def make_tuple(x: Any, cnt: int) -> tuple[Any, ...]:
    """A number so many times, a sequence as it is."""
    return (x,) * cnt if isinstance(x, int) else tuple(x)


def to_tuple(x: Any) -> tuple[Any, ...]:
    """A tuple as it is, anything else in one."""
    return x if isinstance(x, tuple) else (x,)


def get_child(obj: Any, key: str) -> Any:
    """What a path such as `layers.1.weight` leads to, through attributes, lists and dicts."""
    for part in key.split("."):
        if part.isnumeric() and not isinstance(obj, dict):
            obj = obj[int(part)]
        else:
            obj = obj[part] if isinstance(obj, dict) else getattr(obj, part)
    return obj


def flat_to_grouped(padding: Sequence[Any]) -> tuple[tuple[Any, Any], ...]:
    """PyTorch's padding, last axis first, as (before, after) per axis, first axis first."""
    return tuple(zip(padding[-2::-2], padding[::-2], strict=True))


def resolve_pool_pads(padding: int | Sequence[int], dims: int) -> Sequence[int]:
    """One padding for all sides, one per axis or one per side, as one per side."""
    if isinstance(padding, int):
        return [padding] * 2 * dims
    if len(padding) not in (dims, 2 * dims):
        raise ArgumentError(f"padding {padding} has neither {dims} nor {2 * dims} numbers")
    if len(padding) == 2 * dims:
        return padding
    return [amount for amount in reversed(padding) for _ in range(2)]


def canonicalize_strides(shape: tuple[Any, ...], strides: tuple[Any, ...]) -> tuple[Any, ...]:
    """Strides with 0 where an axis has size 1."""
    pairs = zip(shape, strides, strict=True)
    return tuple(0 if isinstance(size, int) and size == 1 else step for size, step in pairs)


def strides_for_shape(shape: tuple[Any, ...]) -> tuple[Any, ...]:
    """How far apart neighbours of each axis are in row-major order; 0 for axes of size 1."""
    strides: list[Any] = []
    step: Any = 1
    for size in reversed(shape):
        strides.append(step)
        step = step * size
    return canonicalize_strides(shape, tuple(reversed(strides)))


def is_image_shape(shape: tuple[Any, ...]) -> bool:
    """Whether tinygrad would keep it as an image: height, width, four channels."""
    return len(shape) == 3 and shape[2] == 4


# Text and bytes.


def ansipad(text: str, width: int) -> str:
    """`text` filled up with spaces to so many visible characters."""
    return text + " " * max(width - ansilen(text), 0)


def pluralize(noun: str, number: int) -> str:
    """How many of something."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def size_to_str(size: int) -> str:
    """A size in bytes in the unit that suits it."""
    for power, unit in ((3, "GB"), (2, "MB"), (1, "KB")):
        if size >= 1024**power:
            return f"{size / 1024**power:.2f} {unit}"
    return f"{size} B"


def to_function_name(text: str) -> str:
    """`text` as a name in C; other characters become their codes."""
    return re.sub("[^A-Za-z0-9_]", lambda found: f"{ord(found[0]):02X}", ansistrip(text))


def pad_bytes(data: bytes, align: int) -> bytes:
    """Zeros after the data, up to a multiple of `align`."""
    return data + bytes(-len(data) % align)


def flat_mv(view: memoryview) -> memoryview:
    """The bytes of a view as one axis."""
    return view if view.nbytes == 0 else view.cast("B", shape=(view.nbytes,))


def system(cmd: str, **kwargs: Any) -> str:
    """What a command writes."""
    return subprocess.check_output(cmd.split(), **kwargs).decode().strip()


def stderr_log(message: str) -> None:
    """Writes to standard error at once."""
    print(message, end="", file=sys.stderr, flush=True)


def fromimport(module: str, name: str) -> Any:
    """What `from module import name` gives."""
    return getattr(importlib.import_module(module), name)


def panic(error: type[Exception] | None = None, *args: Any) -> Any:
    """Raises, in an expression."""
    raise (error or RuntimeError)(*args)


def wait_cond(
    cb: Callable[..., Result], *args: Any, value: Any = True, timeout_ms: int = 10000, msg: str = ""
) -> Result:
    """What the function gives, asked until it is `value` or the time is over."""
    end = time.perf_counter() + timeout_ms / 1000
    while True:
        found = cb(*args)
        if found == value:
            return found
        if time.perf_counter() > end:
            raise TimeoutError(f"{msg} was not {value} in {timeout_ms} ms, but {found}")


def suppress_finalizing(function: Callable[..., Result]) -> Callable[..., Result | None]:
    """The function, whose errors while Python shuts down are kept quiet."""

    @functools.wraps(function)
    def quiet(*args: Any, **kwargs: Any) -> Result | None:
        try:
            return function(*args, **kwargs)
        except (RuntimeError, AttributeError, TypeError, ImportError):
            if not sys.is_finalizing():
                raise
            return None

    return quiet


# Watching. weft's own profile (PROFILE=1) has its own events; these can be made and kept.


@dataclass(frozen=True)
class Metadata:
    """Which method made a node, as tinygrad's users print it."""

    name: str
    backward: bool = False

    def __str__(self) -> str:
        return self.name + (" bw" if self.backward else "")


@dataclass(frozen=True)
class TracingKey:
    """A name that tinygrad's viewer shows, and what belongs to it."""

    display_name: str
    keys: tuple[Any, ...] = ()
    ret: Any = None


class ProfileEvent:
    """What happened while a program ran."""


@dataclass
class ProfileRangeEvent(ProfileEvent):
    """Something that took time."""

    device: str
    name: str | TracingKey
    st: decimal.Decimal
    en: decimal.Decimal | None = None


@dataclass(frozen=True)
class ProfilePointEvent(ProfileEvent):
    """Something at one moment."""

    device: str
    name: str
    key: Any
    arg: dict[str, Any] = field(default_factory=dict)
    ts: decimal.Decimal = field(default_factory=lambda: perf_counter_us())


cpu_events: list[ProfileEvent] = []


def perf_counter_us() -> decimal.Decimal:
    """The clock in microseconds."""
    return decimal.Decimal(time.perf_counter_ns()) / 1000


@contextlib.contextmanager
def cpu_profile(
    name: str | TracingKey, device: str = "WEFT", display: bool = True
) -> Generator[ProfileRangeEvent, None, None]:
    """Measures a block as an event."""
    event = ProfileRangeEvent(device, name, perf_counter_us())
    try:
        yield event
    finally:
        event.en = perf_counter_us()
        if display:
            cpu_events.append(event)


def profile_marker(name: str, color: str = "gray") -> None:
    """Marks a moment among the events."""
    cpu_events.append(ProfilePointEvent("WEFT", "marker", None, {"name": name, "color": color}))


# Devices.


@dataclass(frozen=True)
class Target:
    """A device as `DEV=` names it: [interface+]device[:index][:renderer[:arch]]."""

    device: str = ""
    renderer: str = ""
    arch: str = ""
    interface: str = ""
    indices: str = ""

    @staticmethod
    def parse(text: str) -> Target:
        """The parts of `text`."""
        interface, plus, rest = text.partition("+")
        if not plus:
            interface, rest = "", text
        device, *parts = rest.split(":")
        indices = parts.pop(0) if parts and parts[0].isdigit() else ""
        renderer, arch = (*parts, "", "")[:2]
        return Target(device.upper(), renderer.upper(), arch, interface.upper(), indices)

    def replacedefault(self, **changes: Any) -> Target:
        """The same, with what is empty filled in."""
        return replace(self, **{key: new for key, new in changes.items() if not getattr(self, key)})

    def __str__(self) -> str:
        head = f"{self.interface}+{self.device}" if self.interface else self.device
        parts = [head, *([self.indices] if self.indices else []), self.renderer, self.arch]
        return ":".join(parts).rstrip(":")

    __repr__ = __str__


def colorize_float(x: float) -> str:
    """A ratio of times, green where it is good and red where it is not."""
    color = "green" if x < 0.75 else "red" if x > 1.15 else "yellow"
    return colored(f"{x:7.2f}x", color)


def printable(location: tuple[str, int]) -> str:
    """The source line of a place, or that it is not there."""
    try:
        lines = Path(location[0]).read_text(encoding="utf-8").splitlines()
        return lines[location[1] - 1].strip()
    except (OSError, IndexError, TypeError):
        return "<missing>"
