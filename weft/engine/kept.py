"""Compiled kernels kept on disk, so that a second process neither optimises, renders nor compiles.

What comes in: a kernel's content, the device's renderer and compiler. What goes out: the compiled
bytes and what a launch needs to know, or None. Where it sits: under programs, over the disk
cache, which is private, atomic and checksummed.
The one invariant: the key holds everything that decides the bytes: the kernel, the target, the
compiler, the knobs, and weft's own code.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from weft.helpers import diskcache_get, diskcache_put
from weft.knobs import CCACHE, DEBUG, SPEC

_TABLE = "kernels"


@dataclass(frozen=True)
class Kept:
    """What a launch needs besides the bytes."""

    name: str
    threads_n: int
    buffer_count: int
    variables: tuple[str, ...]
    ops: int
    mem: int


@functools.cache
def _own_code() -> str:
    """A fingerprint of this installation: another version, or an edited file, is another key."""
    package = Path(__file__).parent.parent
    digest = hashlib.sha256()
    for folder, _, names in sorted(os.walk(package)):
        for name in sorted(names):
            if name.endswith(".py"):
                found = os.stat(os.path.join(folder, name))
                digest.update(f"{folder}/{name}:{found.st_size}:{found.st_mtime_ns};".encode())
    return digest.hexdigest()


def key_of(kernel_key: bytes, renderer: Any, compiler: Any, knobs: tuple[Any, ...]) -> str | None:
    """The key of a kernel on disk; None where nothing may be kept or looked up."""
    if not CCACHE.value or DEBUG >= 4 or SPEC >= 1 or compiler.cachekey is None:
        return None
    parts = (kernel_key.hex(), type(renderer).__name__, repr(renderer.target), compiler.cachekey)
    return hashlib.sha256(repr((parts, knobs, _own_code())).encode()).hexdigest()


def load(key: str | None) -> tuple[Kept, bytes] | None:
    """What was kept under the key."""
    entry = None if key is None else diskcache_get(_TABLE, key)
    if not isinstance(entry, bytes):
        return None
    head, _, library = entry.partition(b"\n")
    try:
        fields = json.loads(head)
        fields["variables"] = tuple(fields["variables"])
        return Kept(**fields), library
    except (ValueError, TypeError, KeyError):
        return None


def keep(key: str | None, kept: Kept, library: bytes) -> None:
    """Keep a compiled kernel, unless its costs depend on variables: that needs no format."""
    if key is not None and isinstance(kept.ops, int) and isinstance(kept.mem, int):
        diskcache_put(_TABLE, key, json.dumps(asdict(kept)).encode() + b"\n" + library)
