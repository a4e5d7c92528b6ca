"""What `DEBUG` says about schedules, compilation and launches, and the line at a program's end.

What comes in: what happened and how long it took. What goes out: lines on standard output.
Where it sits: under the engine's drivers, which call it only where `DEBUG` asks for it.
The one invariant: numbers come first and names last, so columns line up however long a name is.
"""

from __future__ import annotations

import atexit
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from weft.contracts import Origin, bytes_text
from weft.helpers import GlobalCounters
from weft.knobs import DEBUG
from weft.progress import colored, time_to_str


@dataclass
class Totals:
    """All that was reported so far in this process."""

    kernels: int = 0
    copies: int = 0
    seconds: float = 0.0
    ops: int = 0
    mem: int = 0
    most_memory: int = 0
    programs: int = 0
    scheduling: float = 0.0
    loading: float = 0.0


totals = Totals()


def say_scheduled(steps: int, hit: bool, seconds: float) -> None:
    """`DEBUG=1`: a graph became kernels, or was one of those whose kernels are known."""
    totals.scheduling += seconds
    _say_made("cache hit:" if hit else "scheduled:", steps, seconds)


def say_loaded(kernels: int, seconds: float) -> None:
    """`DEBUG=1`: kernels became programs, compiled here or kept on disk since another run."""
    totals.loading += seconds
    totals.programs += kernels
    _say_made("loaded:", kernels, seconds)


def _say_made(what: str, number: int, seconds: float) -> None:
    print(f"{what:<10} {count_text(number, 'kernel'):>12} in {seconds * 1e3:9.2f} ms")


def say_launch(
    name: str, is_copy: bool, device: str, origin: Origin | None, ops: int, mem: int, seconds: float
) -> None:
    """`DEBUG=2`: a kernel or a copy ran."""
    if totals.kernels + totals.copies == 0:
        atexit.register(_say_totals)
    totals.kernels += not is_copy
    totals.copies += is_copy
    totals.seconds += seconds
    totals.ops += ops
    totals.mem += mem
    totals.most_memory = max(totals.most_memory, GlobalCounters.mem_used)
    rate = max(seconds, 1e-9)
    where = f"  {PurePath(origin[0]).name}:{origin[1]}" if origin else ""
    print(
        f"{colored('***', 'yellow')} {device:<8} {GlobalCounters.kernel_count:5d} "
        f"{time_to_str(seconds, w=9)} {_rate(ops / rate, 'FLOPS'):>16} "
        f"{_rate(mem / rate, 'B/s'):>13} "
        f"{GlobalCounters.mem_used / 1e6:9.2f} MB  {colored(name, 'cyan')}{where}"
    )


def _rate(per_second: float, unit: str) -> str:
    """
    >>> _rate(4.2e9, "FLOPS"), _rate(4.2e12, "B/s"), _rate(0, "B/s")
    ('4.20 GFLOPS', '4.20 TB/s', '- GB/s')
    """
    if per_second >= 1e12:
        return f"{per_second * 1e-12:.2f} T{unit}"
    return f"{f'{per_second * 1e-9:.2f}' if per_second else '-'} G{unit}"


def say_schedule(items: Sequence[Any]) -> None:
    """`DEBUG=3`: the steps of a schedule that was just made."""
    print(f"schedule of {count_text(len(items), 'step')}")
    for number, item in enumerate(items):
        name = "copy" if item.kernel is None else item.kernel.arg.name
        buffers = count_text(len(item.arguments), "buffer")
        where = f"  {item.origin[0]}:{item.origin[1]}" if item.origin else ""
        print(f"  {number:4d} {item.device:<8} {buffers:>10}  {colored(name, 'cyan')}{where}")


def memory_text(steps: Sequence[Any], inputs: int, made: Sequence[Any]) -> str:
    """What takes the most memory of a schedule, for an error: `made` follows the inputs."""
    sizes = {number: m.size * m.dtype.itemsize for number, m in enumerate(made, inputs)}
    writers: dict[int, str] = {}
    for step in steps:
        where = f"{PurePath(step.origin[0]).name}:{step.origin[1]}" if step.origin else "weft"
        writers.setdefault(step.arguments[0][0], where)
    largest = sorted(sizes, key=lambda number: -sizes[number])[:3]
    named = [f"{bytes_text(sizes[n])} made at {writers.get(n, 'weft')}" for n in largest]
    return f"the largest of what was asked for: {', '.join(named)}"


def totals_text(found: Totals) -> str:
    """The line at the end.

    >>> totals_text(Totals(kernels=3, seconds=0.002, ops=4_000_000, mem=8_000_000, programs=2))
    '3 kernels in 2.00 ms: 2.00 GFLOPS, 4.00 GB/s, 0.00 MB at most; 0.00 ms scheduling, 0.00 ms \
compiling and loading 2 programs'
    """
    ran = count_text(found.kernels, "kernel")
    if found.copies:
        ran += f" and {count_text(found.copies, 'copy', 'copies')}"
    rate = max(found.seconds, 1e-9)
    return (
        f"{ran} in {found.seconds * 1e3:.2f} ms: {found.ops / rate * 1e-9:.2f} GFLOPS, "
        f"{found.mem / rate * 1e-9:.2f} GB/s, {found.most_memory / 1e6:.2f} MB at most; "
        f"{found.scheduling * 1e3:.2f} ms scheduling, {found.loading * 1e3:.2f} ms compiling and "
        f"loading {count_text(found.programs, 'program')}"
    )


def _say_totals() -> None:
    # Asked for a part of a program only, with `Context`, there is no end to sum up at.
    if DEBUG >= 2:
        print(f"{colored('===', 'yellow')} {totals_text(totals)}")


def count_text(number: int, one: str, many: str = "") -> str:
    """
    >>> count_text(1, "kernel"), count_text(2, "kernel"), count_text(0, "copy", "copies")
    ('1 kernel', '2 kernels', '0 copies')
    """
    return f"{number} {one if number == 1 else many or one + 's'}"
