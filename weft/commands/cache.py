"""`weft cache`: what is kept on disk between runs, whether it is whole, and how to be rid of it.

What comes in: show, verify or clear. What goes out: a report; `verify` gives exit code 1 if an
entry was damaged, which it removes. Where it sits: with the other commands, over weft/disk.py.
The one invariant: other processes may use the cache meanwhile, and none of this disturbs them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterable

from weft.disk import (
    CacheEntry,
    cache_entries,
    diskcache_clear,
    diskcache_remove,
    entries_folder,
    is_whole,
)
from weft.knobs import CACHE_MB

NAME = "cache"
HELP = "Show, verify or clear what is kept on disk: compiled kernels, schedules, searches."

_DAY = 24 * 3600.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """One word: what to do."""
    parser.add_argument(
        "action",
        nargs="?",
        choices=("show", "verify", "clear"),
        default="show",
        help="show: entries, bytes and age (default); verify: check every entry and remove the "
        "damaged ones; clear: remove all entries, downloads stay",
    )


def run(args: argparse.Namespace) -> int:
    """Do it and say so."""
    return {"show": _show, "verify": _verify, "clear": _clear}[args.action]()


def _show() -> int:
    bound = f"at most {int(CACHE_MB)} MB" if CACHE_MB > 0 else "without bound"
    print(f"folder  {entries_folder()}")
    entries = list(cache_entries())
    print(f"total   {_amount(entries)}, {bound} (CACHE_MB)")
    recent = time.time() - _DAY
    for table in sorted({entry.table for entry in entries}):
        own = [entry for entry in entries if entry.table == table]
        used = sum(entry.used > recent for entry in own)
        oldest = (time.time() - min(entry.used for entry in own)) / _DAY
        print(
            f"  {table:<24} {_amount(own)}, {used} used in the last day, oldest {oldest:.1f} days"
        )
    return 0


def _verify() -> int:
    entries = list(cache_entries())
    damaged = [entry for entry in entries if not is_whole(entry)]
    for entry in damaged:
        print(f"damaged, removed: {entry.path}")
        diskcache_remove(entry)
    print(f"entries: {len(entries) - len(damaged)} whole, {len(damaged)} damaged")
    return 1 if damaged else 0


def _clear() -> int:
    entries = list(cache_entries())
    diskcache_clear()
    print(f"removed {_amount(entries)} from {entries_folder()}")
    return 0


def _amount(entries: Iterable[CacheEntry]) -> str:
    sizes = [entry.size for entry in entries]
    return f"{len(sizes)} {'entry' if len(sizes) == 1 else 'entries'}, {sum(sizes) / 1e6:.2f} MB"
