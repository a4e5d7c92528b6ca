"""What the code of a Python function mentions: names that it loads and stores.

In: a code object. Out: `Mentions`: globals, closed-over names and attributes, told apart by whether
they are loaded, looked into or only stored; and strings, which may name attributes as well.
First of the guards' rooms; `observe` tells which code ran, `guards` follows what it mentions.
Invariant: whatever is not understood counts as loaded and looked into, so that a version of Python
with other instructions makes guards wider, never blind.
"""

from __future__ import annotations

import dis
import functools
import types
from collections.abc import Iterator
from dataclasses import dataclass, field

_SKIPPED = frozenset(
    "CACHE NOP PRECALL PUSH_NULL COPY_FREE_VARS RESUME EXTENDED_ARG MAKE_CELL NOT_TAKEN".split()
)
_STORES_ATTRIBUTE = frozenset("STORE_ATTR DELETE_ATTR".split())
_STORES_GLOBAL = frozenset("STORE_GLOBAL DELETE_GLOBAL STORE_NAME DELETE_NAME".split())
_STORES_FREE = frozenset("STORE_DEREF DELETE_DEREF".split())
_LOADS_ATTRIBUTE = frozenset("LOAD_ATTR LOAD_METHOD".split())
# methods of containers that tell nothing of what is inside
_MUTATORS = frozenset("add append appendleft clear discard extend extendleft insert update".split())


@dataclass
class Mentions:
    """Names by how they are used: loaded, looked into (`opened`, a part of loaded), stored."""

    loaded_globals: set[str] = field(default_factory=set)
    loaded_free: set[str] = field(default_factory=set)
    loaded_attributes: set[str] = field(default_factory=set)
    opened: set[str] = field(default_factory=set)
    stored_globals: set[str] = field(default_factory=set)
    stored_free: set[str] = field(default_factory=set)
    stored_attributes: set[str] = field(default_factory=set)
    imported: set[str] = field(default_factory=set)
    strings: set[str] = field(default_factory=set)


@functools.lru_cache(maxsize=4096)
def mentions_of(code: types.CodeType) -> Mentions:
    """What one code object mentions; functions inside of it have code of their own."""
    found = Mentions()
    steps = [i for i in dis.get_instructions(code) if i.opname not in _SKIPPED]
    free = {*code.co_freevars, *code.co_cellvars}
    names = set(code.co_names)
    for position, step in enumerate(steps):
        name, opname = step.argval, step.opname
        if not isinstance(name, str) or "CONST" in opname or "FAST" in opname:
            continue
        if opname == "LOAD_CLOSURE":
            # handed on to a function inside, which says itself what it does with it
            continue
        if opname in _STORES_ATTRIBUTE:
            found.stored_attributes.add(name)
        elif opname in _STORES_GLOBAL:
            found.stored_globals.add(name)
        elif opname in _STORES_FREE:
            found.stored_free.add(name)
        elif opname == "IMPORT_NAME":
            found.imported.add(name)
        elif name in names or name in free:
            if _is_counter(steps, position):
                continue
            is_attribute = opname in _LOADS_ATTRIBUTE or "SUPER" in opname
            if name in free and not is_attribute:
                found.loaded_free.add(name)
            elif opname.startswith(("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")):
                found.loaded_globals.add(name)
            elif is_attribute or opname == "IMPORT_FROM":
                found.loaded_attributes.add(name)
            else:
                found.loaded_globals.add(name)
                found.loaded_attributes.add(name)
            if _is_opened(steps, position + 1):
                found.opened.add(name)
    found.strings.update(_strings(code.co_consts))
    return found


def nested_codes(code: types.CodeType) -> Iterator[types.CodeType]:
    """The code of functions that are made inside of one, at any depth."""
    pending = list(code.co_consts)
    while pending:
        part = pending.pop()
        if isinstance(part, types.CodeType):
            yield part
            pending.extend(part.co_consts)


def _strings(constants: tuple[object, ...]) -> Iterator[str]:
    pending = list(constants)
    while pending:
        part = pending.pop()
        if isinstance(part, str):
            # "a.b" for attrgetter and import_module
            yield from (name for name in {part, *part.split(".")} if name)
        elif isinstance(part, (tuple, frozenset)):
            pending.extend(part)


def _is_opened(steps: list[dis.Instruction], position: int) -> bool:
    """Whether what was just loaded may be looked into, not only added to or written to."""
    if position >= len(steps) or steps[position].opname == "POP_TOP":
        return False
    if steps[position].opname in _LOADS_ATTRIBUTE:
        return steps[position].argval not in _MUTATORS
    # `container[key] = value`: the key is loaded after the container, by one instruction
    key, *store = steps[position : position + 2]
    is_key = key.opname.startswith("LOAD_") and key.opname.count("LOAD_") == 1
    is_stored = bool(store) and store[0].opname in ("STORE_SUBSCR", "DELETE_SUBSCR")
    return not (is_key and is_stored)


def _is_counter(steps: list[dis.Instruction], position: int) -> bool:
    """`calls += 1` only counts: as long as nothing else reads it, no result depends on it."""
    following = steps[position + 1 : position + 4]
    if len(following) < 3 or not following[0].opname.startswith(("LOAD_CONST", "LOAD_SMALL_INT")):
        return False
    stores = following[2].opname in ("STORE_GLOBAL", "STORE_DEREF", "STORE_NAME")
    same_name = following[2].argval == steps[position].argval
    return following[1].opname == "BINARY_OP" and stores and same_name
