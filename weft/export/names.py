"""Names in exported code: what users called things, as identifiers of C.

In: paths of results, of state and of arguments; lines of a program. Out: identifiers, each once.
Sits under `build`.
Invariant: equal calls in equal order give equal names, so an export can be compared with the last.
"""

from __future__ import annotations

import ast
import functools
import linecache
import re
from collections.abc import Iterable
from typing import Any

_KEYWORDS = frozenset(
    """alignas alignof auto bool break case char class const constexpr continue default delete do
    double else enum export extern false float for goto if import inline int long main new nullptr
    register restrict return self short signed sizeof static struct switch this thread_local true
    typedef union unsigned var void volatile while with yield function let errno NULL begin end
    context args""".split()
)


def identifier(text: str, fallback: str = "value") -> str:
    """An identifier of C and JavaScript that reads like the text.

    >>> identifier("layers.0.weight"), identifier("2x"), identifier("int")
    ('layers_0_weight', '_2x', 'int_')
    """
    found = re.sub(r"\W+", "_", text, flags=re.ASCII).strip("_") or fallback
    found = f"_{found}" if found[0].isdigit() else found
    return f"{found}_" if found in _KEYWORDS else found


class Names:
    """Hands out names, each once."""

    def __init__(self, taken: Iterable[str] = ()) -> None:
        self._taken = set(taken)

    def take(self, wanted: str) -> str:
        """This name, or with a number behind it."""
        name, number = wanted, 2
        while name in self._taken:
            name = f"{wanted}_{number}"
            number += 1
        self._taken.add(name)
        return name


def path_name(parts: Iterable[Any]) -> str:
    """The name of what is at the end of a path of attributes, keys and positions."""
    kept = [str(part) for part in parts if str(part) not in ("__self__", "__dict__")]
    return identifier("_".join(kept))


def source_line(file: str, line: int) -> str:
    """The text of a line of a program, if it can still be read."""
    return " ".join(linecache.getline(file, line).split())


@functools.lru_cache(maxsize=256)
def _functions(file: str) -> tuple[tuple[int, int, str], ...]:
    """(first line, last line, name) of the functions of a file, outer ones first."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError, RecursionError):
        return ()
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    found = [n for n in ast.walk(tree) if isinstance(n, kinds)]
    return tuple((n.lineno, n.end_lineno or n.lineno, n.name) for n in found)


def kernel_name(origin: tuple[str, int] | None) -> str:
    """What a kernel is called: the class and function that its line stands in, and the line."""
    if origin is None:
        return "kernel"
    file, line = origin
    around = sorted([f for f in _functions(file) if f[0] <= line <= f[1]], key=lambda f: f[0])
    inner = [name for _, _, name in around][-2:]
    named = [name.strip("_") for name in inner if name not in ("__call__", "forward", "__init__")]
    return identifier("_".join([*named, f"line{line}"]))
