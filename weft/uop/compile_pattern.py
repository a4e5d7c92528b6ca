"""A pattern as Python code: straight-line checks, loops only over orders that may be swapped.

What comes in: a UPat and the function that wants its names. What goes out: a compiled function
`(node, ctx)` that gives the first result of the wanted function that is not None.
Where it sits: right under the matcher, which calls it for a rule when a node first could match.
The one invariant: the root's op, dtype and number of sources were checked by the matcher's index.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from itertools import permutations
from types import CodeType
from typing import Any, TypeAlias

from weft.errors import ArgumentError
from weft.uop.node import UOp
from weft.uop.opset import OPSET, Ops
from weft.uop.pattern import UPat

Compiled: TypeAlias = Callable[[UOp, Any], Any]
# What is still to be checked: ("node", pattern, variable) or ("sources", pattern, variable).
Agenda: TypeAlias = tuple[tuple[str, UPat, str], ...]


class Parameters:
    """What a rule's function takes, found once when the rule is made."""

    __slots__ = ("accepts_all", "has_default", "keyword_only", "positional")

    def __init__(self, function: Callable[..., Any]) -> None:
        self.accepts_all = False
        code = getattr(function, "__code__", None)
        if code is not None and not code.co_flags & (inspect.CO_VARARGS | inspect.CO_VARKEYWORDS):
            if not inspect.ismethod(function) and not code.co_kwonlyargcount:
                # plain functions and lambdas, without the cost of inspect.signature
                self.positional = code.co_varnames[: code.co_argcount]
                defaults = function.__defaults__ or ()
                self.has_default = set(self.positional[len(self.positional) - len(defaults) :])
                self.keyword_only: tuple[str, ...] = ()
                return
        found = inspect.signature(function).parameters.values()
        self.positional = tuple(p.name for p in found if p.kind is p.POSITIONAL_OR_KEYWORD)
        self.keyword_only = tuple(p.name for p in found if p.kind is p.KEYWORD_ONLY)
        self.has_default = {p.name for p in found if p.default is not p.empty}
        self.accepts_all = any(p.kind is p.VAR_KEYWORD for p in found)

    def check(self, pattern: UPat, what: object) -> None:
        """Every parameter without a default must be a name that each match binds."""
        always, sometimes = pattern.names()
        for name in (*self.positional, *self.keyword_only):
            if name == "ctx" or name in always or name in self.has_default:
                continue
            why = "only some alternatives bind; give it a default" if name in sometimes else "lacks"
            raise ArgumentError(
                f"{what} takes {name!r}, which its pattern {why}; "
                f"the pattern binds {', '.join(sorted(always)) or 'no names'}"
            )

    def call(self, bound: dict[str, str]) -> str:
        """The text of a call's arguments, given the variables that hold the names."""
        known = {**bound, "ctx": "ctx"}
        texts = []
        positional = True
        for name in self.positional:
            if name in known:
                texts.append(known[name] if positional else f"{name}={known[name]}")
            else:
                positional = False
        extra = bound if self.accepts_all else self.keyword_only
        texts += [f"{n}={known[n]}" for n in extra if n in known and n not in self.positional]
        return ", ".join(texts)


class _Writer:
    """The lines of one function, and the objects they mention."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.scope: dict[str, Any] = {"_permutations": permutations}
        self.variables = 0

    def variable(self) -> str:
        self.variables += 1
        return f"v{self.variables}"

    def mention(self, item: Any) -> str:
        """A name for an object in the code; so rules of one form share their text, and its code."""
        name = f"k{len(self.scope)}"
        self.scope[name] = item
        return name

    def line(self, depth: int, text: str) -> None:
        self.lines.append("    " * depth + text)


def compile_rule(pattern: UPat, function: Callable[..., Any], parameters: Parameters) -> Compiled:
    """The rule as one function of (node, ctx)."""
    writer = _Writer()
    writer.scope["_function"] = function

    def finish(bound: dict[str, str], depth: int) -> None:
        writer.line(depth, f"found = _function({parameters.call(bound)})")
        writer.line(depth, "if found is not None:")
        writer.line(depth + 1, "return found")

    writer.line(0, "def match(node, ctx):")
    _emit_root(writer, pattern, finish)
    writer.line(1, "return None")
    return _build(writer)


def _build(writer: _Writer) -> Compiled:
    exec(_code("\n".join(writer.lines)), writer.scope)
    built: Compiled = writer.scope["match"]
    return built


@functools.cache
def _code(text: str) -> CodeType:
    """Python's compiler takes most of the time here, and half of all rules have a common form."""
    return compile(text, "<weft rule>", "exec")


Finish: TypeAlias = Callable[[dict[str, str], int], None]


def _emit_root(writer: _Writer, pattern: UPat, finish: Finish) -> None:
    """The root's op, dtype and source count are known, unless it has alternatives."""
    if pattern.alternatives:
        _emit(writer, (("node", pattern, "node"),), {}, 1, finish)
        return
    depth = 1
    conditions = [text for kind, text in _conditions(writer, pattern, "node") if kind == "content"]
    if conditions:
        writer.line(depth, f"if {' and '.join(conditions)}:")
        depth += 1
    bound = {} if pattern.name is None else {pattern.name: "node"}
    agenda: Agenda = () if pattern.src is None else (("sources", pattern, "node"),)
    _emit(writer, agenda, bound, depth, finish)


def _emit(
    writer: _Writer, agenda: Agenda, bound: dict[str, str], depth: int, finish: Finish
) -> None:
    """Code for all that is on the agenda; what fails falls through to the next order to try."""
    if not agenda:
        finish(bound, depth)
        return
    (task, pattern, variable), rest = agenda[0], agenda[1:]
    if task == "sources":
        _emit_sources(writer, pattern, variable, rest, bound, depth, finish)
        return
    if pattern.alternatives:
        for option in pattern.alternatives:
            whole = () if pattern.name is None else (("node", UPat(name=pattern.name), variable),)
            _emit(writer, (("node", option, variable), *whole, *rest), bound, depth, finish)
        return
    conditions = [text for _, text in _conditions(writer, pattern, variable)]
    if pattern.name is not None:
        if pattern.name in bound:
            conditions.insert(0, f"{variable} is {bound[pattern.name]}")
        else:
            bound = {**bound, pattern.name: variable}
    if conditions:
        writer.line(depth, f"if {' and '.join(conditions)}:")
        depth += 1
    # all siblings are looked at before anyone's sources: the cheap checks fail first
    below: Agenda = () if pattern.src is None else (("sources", pattern, variable),)
    _emit(writer, (*rest, *below), bound, depth, finish)


def _emit_sources(
    writer: _Writer,
    pattern: UPat,
    variable: str,
    rest: Agenda,
    bound: dict[str, str],
    depth: int,
    finish: Finish,
) -> None:
    sources = pattern.src or ()
    if pattern.is_repeat:
        _emit_repeat(writer, sources[0], variable, rest, bound, depth, finish)
        return
    if not sources:
        _emit(writer, rest, bound, depth, finish)
        return
    names = [writer.variable() for _ in sources]
    if pattern.is_unordered and len(sources) == 2:
        both = writer.variable()
        writer.line(depth, f"{both} = {variable}.src")
        writer.line(depth, f"for {', '.join(names)} in ({both}, ({both}[1], {both}[0])):")
        depth += 1
    elif pattern.is_unordered:
        writer.line(depth, f"for {', '.join(names)} in _permutations({variable}.src):")
        depth += 1
    elif pattern.allow_any_len:
        writer.line(depth, f"{', '.join(names)}, = {variable}.src[:{len(names)}]")
    else:
        writer.line(depth, f"{', '.join(names)}, = {variable}.src")
    nodes = tuple(("node", source, name) for source, name in zip(sources, names, strict=True))
    _emit(writer, (*nodes, *rest), bound, depth, finish)


def _emit_repeat(
    writer: _Writer,
    pattern: UPat,
    variable: str,
    rest: Agenda,
    bound: dict[str, str],
    depth: int,
    finish: Finish,
) -> None:
    """Every source matches `pattern` and binds its names to the same nodes."""
    always, sometimes = pattern.names()
    if sometimes:
        raise ArgumentError(
            f"a repeated pattern binds {sorted(sometimes)} only sometimes: {pattern}"
        )
    names = sorted(always)
    one, found, first = writer.variable(), writer.variable(), writer.variable()
    match_one = writer.mention(_compile_part(pattern, names))
    writer.line(depth, f"{first} = None")
    writer.line(depth, f"for {one} in {variable}.src:")
    writer.line(depth + 1, f"{found} = {match_one}({one}, None)")
    writer.line(depth + 1, f"if {found} is None or ({first} is not None and {found} != {first}):")
    writer.line(depth + 2, "break")
    writer.line(depth + 1, f"{first} = {found}")
    writer.line(depth, "else:")
    depth += 1
    if names:
        variables = [writer.variable() for _ in names]
        same = [f"{v} is {bound[n]}" for n, v in zip(names, variables, strict=True) if n in bound]
        writer.line(depth, f"if {first} is not None:")
        writer.line(depth + 1, f"{', '.join(variables)}, = {first}")
        depth += 1
        if same:
            writer.line(depth, f"if {' and '.join(same)}:")
            depth += 1
        bound = {**dict(zip(names, variables, strict=True)), **bound}
    _emit(writer, rest, bound, depth, finish)


def _compile_part(pattern: UPat, names: list[str]) -> Compiled:
    """A function that gives the nodes of `names` for the first way to match one node, else None."""
    writer = _Writer()

    def finish(bound: dict[str, str], depth: int) -> None:
        writer.line(depth, f"return ({''.join(f'{bound[name]}, ' for name in names)})")

    writer.line(0, "def match(node, ctx):")
    _emit(writer, (("node", pattern, "node"),), {}, 1, finish)
    writer.line(1, "return None")
    return _build(writer)


def _conditions(writer: _Writer, pattern: UPat, variable: str) -> list[tuple[str, str]]:
    """The checks of one node alone: "shape" is what the index knows of roots, else "content"."""
    found: list[tuple[str, str]] = []
    if pattern.op is not None:
        found.append(("shape", _one_of(writer, pattern.op, f"{variable}.op")))
    if pattern.dtype is not None:
        dtype = f"{variable}.dtype"
        same = _one_of(writer, pattern.dtype, dtype)
        lanes = _one_of(writer, pattern.dtype, f"{dtype}.scalar()")
        found.append(("shape", f"({same} or {dtype}.count > 1 and {lanes})"))
    if pattern.src is not None and not pattern.is_repeat:
        count = len(pattern.src)
        if not _count_is_known(pattern.op, count):
            compare = ">=" if pattern.allow_any_len else "=="
            found.append(("shape", f"len({variable}.src) {compare} {count}"))
    if pattern.arg is not None:
        value = pattern.arg
        equal = "is" if isinstance(value, Ops) else "=="
        found.append(("content", f"{variable}.arg {equal} {writer.mention(value)}"))
    if pattern.tag is not ...:
        found.append(("content", f"{variable}.tag == {writer.mention(pattern.tag)}"))
    return found


def _count_is_known(ops: frozenset[Ops] | None, count: int) -> bool:
    """Whether every one of the ops has exactly so many sources by the op table."""
    return ops is not None and all(OPSET[op].arity == count for op in ops)


def _one_of(writer: _Writer, accepted: frozenset[Any], text: str) -> str:
    if len(accepted) == 1:
        (only,) = accepted
        return f"{text} is {writer.mention(only)}"
    return f"{text} in {writer.mention(accepted)}"
