"""`weft profile [file]`: a profile as a table: which kernels took the time, and how near a ceiling.

What comes in: the path of a profile, or nothing for the newest. What goes out: text. Where it sits:
with the other commands. The one invariant: rates are compared with ceilings measured now, on this
machine, or not at all.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from weft.commands.ceilings import Ceilings, measure_ceilings
from weft.errors import ArgumentError, DataError
from weft.viz.profile_file import Row, Share, device_shares, read_profile, summarise
from weft.viz.profiling import last_profile

NAME = "profile"
HELP = "Sum up a profile, recorded with PROFILE=1."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `weft profile`."""
    parser.add_argument("profile", nargs="?", help="the file; the newest one if left out")
    parser.add_argument("--top", type=int, default=20, help="rows to show (default: 20)")
    parser.add_argument("--quick", action="store_true", help="do not measure the ceilings")


def run(args: argparse.Namespace) -> int:
    """Print the tables."""
    path = Path(args.profile) if args.profile else last_profile()
    if path is None:
        raise DataError("there is no profile yet; record one with `PROFILE=1 python program.py`")
    if args.top < 1:
        raise ArgumentError(f"--top {args.top}: at least one row can be shown")
    profile = read_profile(path)
    kernels, phases = summarise(profile)
    ceilings = None if args.quick or not kernels else measure_ceilings()
    print(path)
    for line in kernel_table(kernels, ceilings, args.top):
        print(line)
    for line in idle_table(device_shares(profile)):
        print(line)
    for line in phase_table(phases):
        print(line)
    return 0


def kernel_table(rows: list[Row], ceilings: Ceilings | None, top: int) -> list[str]:
    """Kernels by time, with their rates."""
    total = sum(row.microseconds for row in rows)
    launches = sum(row.launches for row in rows)
    lines = [f"{launches} {'launch' if launches == 1 else 'launches'}, {total / 1e3:.3f} ms"]
    if ceilings is not None:
        lines.append(
            f"ceilings: {ceilings.matmul_gflops:.0f} GFLOP/s in a matmul, "
            f"{ceilings.read_gbs:.0f} GB/s reading"
        )
    lines.append(f"{'ms':>10} {'share':>6} {'calls':>7} {'GFLOP/s':>16} {'GB/s':>16}  kernel")
    most_flops = None if ceilings is None else ceilings.matmul_gflops
    most_bytes = None if ceilings is None else ceilings.read_gbs
    for row in rows[:top]:
        share = row.microseconds / total if total else 0.0
        flops = _rate(row.ops, row.microseconds, most_flops)
        bytes_ = _rate(row.mem, row.microseconds, most_bytes)
        where = f"  {Path(row.line).name}" if row.line else ""
        lines.append(
            f"{row.microseconds / 1e3:10.3f} {share:6.1%} {row.launches:7d} {flops:>16} "
            f"{bytes_:>16}  {row.name}{where}"
        )
    if len(rows) > top:
        rest = sum(row.microseconds for row in rows[top:])
        share = rest / total if total else 0.0
        lines.append(f"{rest / 1e3:10.3f} {share:6.1%}  {len(rows) - top} more")
    return lines


def idle_table(shares: list[Share]) -> list[str]:
    """How long each device waited for something to do."""
    lines = []
    for share in shares:
        whole = share.busy + share.idle
        lines.append(
            f"{share.device}: busy {share.busy / 1e3:.3f} ms, idle {share.idle / 1e3:.3f} ms "
            f"({share.idle / whole if whole else 0.0:.0%})"
        )
    return lines


def _rate(amount: int, microseconds: float, ceiling: float | None) -> str:
    if not amount or not microseconds:
        return "-"
    rate = amount / microseconds / 1e3
    return f"{rate:.1f}" if not ceiling else f"{rate:.1f} ({rate / ceiling:.0%})"


def phase_table(rows: list[Row]) -> list[str]:
    """Phases of the compiler by time. They nest, so they do not add up."""
    if not rows:
        return []
    lines = ["compiling (phases contain each other)"]
    lines += [f"{row.microseconds / 1e3:10.3f} ms {row.launches:7d}  {row.name}" for row in rows]
    return lines
