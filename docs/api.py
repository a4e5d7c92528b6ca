"""Writes docs/api.md from the docstrings; a test fails when it is stale.

In: the public names of weft. Out: one page: Tensor's methods by family, then the other names, then
the neural nets. Run it as `python docs/api.py` after a docstring or a signature changed.
"""

from __future__ import annotations

import doctest
import enum
import inspect
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import weft
from weft import nn

HERE = Path(__file__).parent
HEAD = """# API reference

Generated from the docstrings by `python docs/api.py`. Every example here runs in the tests.
Methods marked † are called on the class, those marked ‡ are properties.
"""
# in the order in which one meets them
FAMILIES = (
    "tensor", "creation", "rand", "values", "dtype", "arith", "unary", "trigonometry", "activation",
    "reduce", "stats", "sort", "movement", "padding", "rearrange", "indexing", "linalg",
    "decompose", "conv", "resize", "neural", "loss", "digest",
)  # fmt: skip
DATA = {
    "grad": "The gradient that `backward` filled in, or None.",
    "requires_grad": "Whether `backward` fills `.grad`: True, False, or None for what is usual.",
}


def signature(value: Any) -> str:
    """The parameters as a user writes them: no annotations, no self."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "(...)"
    kept = [p.replace(annotation=p.empty) for p in found.parameters.values() if p.name != "self"]
    return str(found.replace(parameters=kept, return_annotation=found.empty))


def body(text: str | None) -> list[str]:
    """A docstring as Markdown: its prose, then its examples as one block."""
    cleaned = inspect.cleandoc(text or "")
    parts = doctest.DocTestParser().parse(cleaned)
    prose = "".join(part for part in parts if isinstance(part, str)).strip()
    lines = [*prose.splitlines()] if prose else []
    shown: list[str] = []
    for part in parts:
        if isinstance(part, doctest.Example):
            first, *rest = part.source.rstrip("\n").split("\n")
            shown += [f">>> {first}", *[f"... {line}" for line in rest]]
            shown += part.want.rstrip("\n").split("\n") if part.want else []
    return [*lines, "", "```pycon", *shown, "```", ""] if shown else [*lines, ""]


# ------------------------------------------------------------ Tensor
def documented(name: str) -> tuple[Any, type]:
    """The object behind a method's name and the class that documents it."""
    found = None
    for owner in weft.Tensor.__mro__:
        if name in vars(owner):
            value = vars(owner)[name]
            cached = getattr(value, "__wrapped__", None)
            if cached is not None and not cached.__qualname__.startswith(f"{owner.__name__}."):
                # looked up before it is run; it belongs where it is defined
                continue
            found = found or (value, owner)
            if inspect.getdoc(getattr(value, "__func__", value)) and owner is not found[1]:
                break
    assert found is not None, name
    return found


def family_of(name: str) -> str:
    """The module whose docstring says what a method belongs to."""
    owner = documented(name)[1]
    module = owner.__module__.rpartition(".")[2]
    # what Tensor itself provides may be declared by the family that needs it
    return module if module in FAMILIES else "tensor"


def method(name: str) -> list[str]:
    """The entry of one method."""
    value, _ = documented(name)
    if name in DATA:
        return [f"#### `{name}` ‡", "", DATA[name], ""]
    if isinstance(value, property):
        return [f"#### `{name}` ‡", "", *body(value.__doc__)]
    mark = " †" if isinstance(value, (classmethod, staticmethod)) else ""
    text = getattr(value, "__func__", value).__doc__
    return [f"#### `{name}{signature(getattr(weft.Tensor, name))}`{mark}", "", *body(text)]


def title(module: ModuleType) -> tuple[str, str]:
    """The first sentence of a module's docstring, and what stands behind its colon."""
    first = inspect.cleandoc(module.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    head, _, rest = first.partition(":")
    named = head.partition(",")[0].rstrip(".")
    return named[0].upper() + named[1:], rest.strip()


def tensor_part() -> Iterator[str]:
    """All methods of Tensor, by family."""
    public = [name for name in dir(weft.Tensor) if not name.startswith("_")]
    groups: dict[str, list[str]] = {family: [] for family in FAMILIES}
    for name in public:
        groups[family_of(name)].append(name)
    yield from ["## Tensor", "", *body(weft.Tensor.__doc__)]
    yield from [f"#### `Tensor{signature(weft.Tensor)}`", "", *body(weft.Tensor.__init__.__doc__)]
    for family, names in groups.items():
        if not names:
            continue
        path = "weft.tensor" if family == "tensor" else f"weft.mixin.{family}"
        head, rest = title(sys.modules[path])
        head = "Storage and gradients" if family == "tensor" else head
        yield from [f"### {head}", ""]
        if rest and family != "tensor":
            yield from [rest[0].upper() + rest[1:], ""]
        for name in names:
            yield from method(name)


# ------------------------------------------------------------ the other names
def members(module: ModuleType) -> list[str]:
    """The public names that a module defines or exports."""
    if hasattr(module, "__all__"):
        return sorted(module.__all__, key=str.lower)
    own = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_")
        and getattr(value, "__module__", None) == module.__name__
        and (inspect.isclass(value) or inspect.isfunction(value))
    ]
    return sorted(own, key=str.lower)


def entry(name: str, value: Any, level: str = "###") -> Iterator[str]:
    """A function or a class with its public methods."""
    is_enum = inspect.isclass(value) and issubclass(value, enum.Enum)
    callable_ = (inspect.isclass(value) or inspect.isroutine(value)) and not is_enum
    yield from [f"{level} `{name}{signature(value) if callable_ else ''}`", ""]
    yield from body(value.__doc__ if callable_ or is_enum else type(value).__doc__)
    owner = value if inspect.isclass(value) else type(value)
    if inspect.isroutine(value) or not owner.__module__.startswith("weft"):
        return
    listed = [m for m in vars(owner) if not m.startswith("_")]
    for each in sorted(listed):
        found = vars(owner)[each]
        function = getattr(found, "__func__", found)
        if inspect.isfunction(function) and function.__doc__:
            summary = inspect.cleandoc(function.__doc__).split("\n\n")[0].replace("\n", " ")
            yield f"- `{each}{signature(getattr(value, each))}`: {summary}"
        elif isinstance(found, property) and found.__doc__:
            summary = inspect.cleandoc(found.__doc__).split("\n\n")[0].replace("\n", " ")
            yield f"- `{each}` ‡: {summary}"
    if listed:
        yield ""


def module_part(heading: str, module: ModuleType, skip: tuple[str, ...]) -> Iterator[str]:
    """All names of a module."""
    yield from [f"## {heading}", ""]
    for name in members(module):
        value = getattr(module, name)
        if name not in skip and not isinstance(value, ModuleType):
            yield from entry(name, value)


def api_page() -> str:
    """The whole page."""
    lines = [HEAD, *tensor_part()]
    lines += module_part("Other names of `weft`", weft, ("Tensor", "UOp"))
    lines += module_part("`weft.nn`", nn, ())
    for name in ("optim", "schedule", "amp", "state", "datasets"):
        if hasattr(nn, name):
            lines += module_part(f"`weft.nn.{name}`", getattr(nn, name), ())
    text = "\n".join(line.rstrip() for line in [lines[0], "", *contents(lines), *lines[1:]])
    while "\n\n\n" in text:
        text = text.replace("\n\n\n", "\n\n")
    return text.rstrip() + "\n"


def contents(lines: list[str]) -> Iterator[str]:
    """Links to the parts, and to the families of Tensor's methods."""
    for line in lines:
        mark, _, text = line.partition(" ")
        if mark == "##" or (mark == "###" and "`" not in text):
            anchor = "".join(c for c in text.lower() if c.isalnum() or c in " -_").replace(" ", "-")
            yield f"{'  ' * (len(mark) - 2)}- [{text}](#{anchor})"
    yield ""


PAGES: dict[str, Callable[[], str]] = {"api.md": api_page}


def main() -> None:
    """Write the page."""
    for name, page in PAGES.items():
        (HERE / name).write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
