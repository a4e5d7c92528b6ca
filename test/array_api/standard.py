"""The text of the array API standard, 2024.12, as data: functions, signatures, special cases.

In: the package `array-api`, which carries the standard's docstrings. Out: signatures by name, and
the sentences "If ... is ..., the result is ...".
Its files are written in a newer Python than weft's oldest, so they are read as text.
"""

from __future__ import annotations

import ast
import functools
import importlib.util
import inspect
import re
from dataclasses import dataclass
from pathlib import Path

from test.optional import need

_KINDS = (
    ("posonlyargs", inspect.Parameter.POSITIONAL_ONLY),
    ("args", inspect.Parameter.POSITIONAL_OR_KEYWORD),
)


@functools.cache
def _classes() -> dict[str, ast.ClassDef]:
    """The classes of the text: one for each function, and the namespaces."""
    need("array_api")
    found = importlib.util.find_spec("array_api")
    assert found is not None and found.submodule_search_locations
    text = (Path(found.submodule_search_locations[0]) / "_2024_12.py").read_text(encoding="utf-8")
    plain = re.sub(r"^(class \w+)\[.*?\]\(.*\):$", r"\1:", text, flags=re.MULTILINE)
    return {node.name: node for node in ast.parse(plain).body if isinstance(node, ast.ClassDef)}


@functools.cache
def names(namespace: str) -> tuple[str, ...]:
    """The names of "Array" (the main namespace), "Linalg" or "Fft"."""
    body = _classes()[f"{namespace}Namespace"].body
    return tuple(
        node.target.id
        for node in body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    )


@functools.cache
def functions(namespace: str) -> tuple[str, ...]:
    """The functions among the names."""
    return tuple(name for name in names(namespace) if name in _classes())


@dataclass(frozen=True)
class Parameter:
    """A parameter: its name, how it may be given, and whether it may be left out."""

    name: str
    kind: inspect._ParameterKind
    optional: bool


def _parameters(node: ast.FunctionDef) -> list[Parameter]:
    given = node.args
    plain = [*given.posonlyargs, *given.args]
    first = len(plain) - len(given.defaults)
    positional = len(given.posonlyargs)
    found = []
    for number, argument in enumerate(plain):
        kind = _KINDS[0 if number < positional else 1][1]
        found.append(Parameter(argument.arg, kind, number >= first))
    if given.vararg:
        found.append(Parameter(given.vararg.arg, inspect.Parameter.VAR_POSITIONAL, False))
    for argument, default in zip(given.kwonlyargs, given.kw_defaults, strict=True):
        kind = inspect.Parameter.KEYWORD_ONLY
        found.append(Parameter(argument.arg, kind, default is not None))
    return [parameter for parameter in found if parameter.name != "self"]


def signature(name: str) -> list[Parameter]:
    """The parameters of a function."""
    return next(
        _parameters(node) for node in _classes()[name].body if isinstance(node, ast.FunctionDef)
    )


def methods() -> dict[str, list[Parameter]]:
    """The methods of the array object, by name."""
    return {
        node.name: _parameters(node)
        for node in _classes()["Array"].body
        if isinstance(node, ast.FunctionDef) and not _is_property(node) and node.name != "__init__"
    }


def properties() -> list[str]:
    """The attributes of the array object."""
    return [
        node.name
        for node in _classes()["Array"].body
        if isinstance(node, ast.FunctionDef) and _is_property(node)
    ]


def _is_property(node: ast.FunctionDef) -> bool:
    return any("property" in ast.unparse(each) for each in node.decorator_list)


@dataclass(frozen=True)
class Sentence:
    """A special case as it is written."""

    function: str
    is_complex: bool
    condition: str
    result: str


def sentences() -> list[Sentence]:
    """All special cases that have a condition and a result."""
    found = []
    for name in functions("Array"):
        is_complex = False
        for line in (ast.get_docstring(_classes()[name]) or "").splitlines():
            text = line.strip().replace("``", "")
            if text.startswith("For complex floating-point operands"):
                is_complex = True
            match = re.match(r"- If (.*?), (?:then )?the result (is|has) (.*)$", text)
            if match and name not in ("full", "asarray"):
                result = match.group(3) if match.group(2) == "is" else f"has {match.group(3)}"
                found.append(Sentence(name, is_complex, match.group(1), result.rstrip(".")))
    return found
