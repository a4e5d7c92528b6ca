"""Compiled kernels kept on disk, so that a second process neither optimises, renders nor compiles.

What comes in: a kernel's content, the device's renderer and compiler. What goes out: the compiled
bytes and what a launch needs to know, or None. Where it sits: under programs, over the disk
cache, which is private, atomic, checksummed and bounded.
The one invariant: the key holds everything that decides the bytes: the kernel, the target, the
compiler, the knobs, and weft's own code.
"""

from __future__ import annotations

import contextvars
import functools
import hashlib
import json
import os
from dataclasses import fields
from pathlib import Path
from typing import Any

from weft.device import ProgramFacts
from weft.errors import WeftError
from weft.helpers import diskcache_get, diskcache_put
from weft.knobs import BEAM, CCACHE, DEBUG, IGNORE_BEAM_CACHE, SPEC
from weft.uop.node import UOp
from weft.uop.reproduce import graph_rows, parse_rows

_TABLE = "kernels"
# Parts of weft that decide nothing about a kernel: they use the compiler or look at it.
_USERS = frozenset({"__pycache__", "apps", "commands", "nn", "viz"})


# whether what is being compiled is less than the knobs ask for
_is_provisional: contextvars.ContextVar[bool] = contextvars.ContextVar(
    "weft.provisional", default=False
)


def set_provisional(value: bool) -> None:
    """Says, for what is being compiled in this thread, whether a later process shall try again."""
    _is_provisional.set(value)


def is_provisional() -> bool:
    """Whether a search that should have been could not be."""
    return _is_provisional.get()


@functools.cache
def own_code() -> str:
    """A fingerprint of this installation: another version, or an edited file, is another key."""
    digest = hashlib.sha256()
    folders = [str(Path(__file__).parent.parent)]
    while folders:
        folder = folders.pop()
        with os.scandir(folder) as found:
            entries = sorted(found, key=lambda entry: entry.name)
        for entry in entries:
            if entry.name.endswith(".py"):
                facts = entry.stat()
                digest.update(f"{entry.path}:{facts.st_size}:{facts.st_mtime_ns};".encode())
            elif entry.name not in _USERS and entry.is_dir():
                folders.append(entry.path)
    return digest.hexdigest()


def is_off(compiler: Any) -> bool:
    """Whether nothing may be kept or looked up."""
    if not CCACHE.value or DEBUG >= 4 or SPEC >= 1 or compiler.cachekey is None:
        return True
    # a kept program would leave nothing to search for
    return bool(BEAM.value and IGNORE_BEAM_CACHE.value)


def target_of(renderer: Any, compiler: Any) -> tuple[str, ...]:
    """What programs are made for, and by whom."""
    return type(renderer).__name__, repr(renderer.target), str(compiler.cachekey)


def key_of(kernel_key: bytes, renderer: Any, compiler: Any, knobs: tuple[Any, ...]) -> str | None:
    """The key of a kernel on disk; None where nothing may be kept or looked up."""
    if is_off(compiler):
        return None
    parts = (kernel_key.hex(), *target_of(renderer, compiler))
    return hashlib.sha256(repr((parts, knobs, own_code())).encode()).hexdigest()


def load(key: str | None) -> tuple[ProgramFacts, bytes] | None:
    """What was kept under the key."""
    entry = None if key is None else diskcache_get(_TABLE, key)
    if not isinstance(entry, bytes):
        return None
    head, _, library = entry.partition(b"\n")
    try:
        found = {name: decode(value) for name, value in json.loads(head).items()}
        return ProgramFacts(**found), library
    except (ValueError, TypeError, AttributeError, KeyError, WeftError):
        # whole, but not of our making
        return None


def keep(key: str | None, facts: ProgramFacts, library: bytes) -> None:
    """Keep a compiled kernel."""
    if key is not None:
        head = {field.name: encode(getattr(facts, field.name)) for field in fields(facts)}
        diskcache_put(_TABLE, key, json.dumps(head).encode() + b"\n" + library)


def encode(value: Any) -> Any:
    """A fact as JSON; an expression of the variables is the text of its graph."""
    if isinstance(value, tuple):
        return [encode(part) for part in value]
    return {"graph": graph_rows(value)} if isinstance(value, UOp) else value


def decode(value: Any) -> Any:
    """What `encode` made JSON of."""
    if isinstance(value, list):
        return tuple([decode(part) for part in value])
    return parse_rows(value["graph"]) if isinstance(value, dict) else value
