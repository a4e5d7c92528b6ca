"""`python -m bench.constants`: the numbers that the optimiser and the schedule decide by, counted.

What comes in: the source of the packages named in `ROOMS`. What goes out: for each of them how many
names stand for numbers that somebody chose (at the head of a module, or a field of the machine's
description), and how many lines have such a number in their middle; `--list` shows them.
The one invariant: small numbers that are part of an algorithm (0, 1, 2), places in a tuple and
parts of a message are no choice.
"""

from __future__ import annotations

import argparse
import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent / "weft"
# where choices are made, then what they ask: what a machine is, and how long code may get; the
# files of tensor cores and of other groups of threads are counted by themselves
ROOMS = ("codegen/opt", "codegen/opt for groups", "schedule", "budgets.py", "machine.py")
_GROUPS = ("gpu", "fragments")
# whose lines `--lines` counts
PACKAGES = ("codegen", "schedule", "engine", "uop", "renderer", "runtime")
# neutral elements, halves, pairs
PLAIN = (0, 1, 2, -1)

_SILENT = (
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT,
    tokenize.ENDMARKER,
)  # fmt: skip
Found = tuple[int, str]  # a line, and the name or the code there


def named_numbers(tree: ast.Module, fields: bool) -> Iterator[Found]:
    """Names of numbers at the head of a module; also of fields that have a number, if asked for."""
    statements = list(tree.body)
    if fields:
        statements += [s for c in tree.body if isinstance(c, ast.ClassDef) for s in c.body]
    for statement in statements:
        if not isinstance(statement, (ast.Assign, ast.AnnAssign)):
            continue
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        names = [n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)]
        if any(_is_chosen(value, ()) for value in _numbers(statement.value)):
            yield from ((statement.lineno, name) for name in names)


def inline_numbers(tree: ast.Module) -> Iterator[Found]:
    """Lines inside of functions with a number that somebody chose."""
    lines: dict[int, str] = {}
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            for number in (n for part in function.body for n in _numbers(part)):
                if _is_chosen(number, PLAIN):
                    lines[number.lineno] = ast.unparse(number)
    yield from sorted(lines.items())


def _numbers(node: ast.AST | None) -> Iterator[ast.expr]:
    """The numbers inside: one expression of numbers (`4 << 20`) is one number."""
    pending: list[ast.AST] = [] if node is None else [node]
    while pending:
        each = pending.pop()
        if isinstance(each, ast.expr) and _value(each) is not None:
            yield each
        elif not isinstance(each, (ast.Subscript, ast.JoinedStr)):
            pending += ast.iter_child_nodes(each)


def _is_chosen(number: ast.expr, plain: tuple[int, ...]) -> bool:
    return _value(number) not in plain


def _value(node: ast.expr) -> float | None:
    """What an expression of numbers alone gives."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        inner = _value(node.operand)
        return None if inner is None else -inner
    if isinstance(node, ast.BinOp) and None not in (_value(node.left), _value(node.right)):
        return float(eval(ast.unparse(node), {"__builtins__": {}}))
    return None


def files_of(room: str) -> list[Path]:
    """The modules of a room."""
    name, _, is_for_groups = room.partition(" ")
    place = ROOT / name
    if place.is_file():
        return [place]
    found = sorted(place.glob("*.py"))
    if place.name != "opt":
        return found
    return [path for path in found if path.name.startswith(_GROUPS) == bool(is_for_groups)]


def code_lines(path: Path) -> int:
    """Lines with code: no blank ones, comments or docstrings."""
    text = path.read_text(encoding="utf-8")
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in _SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
            first = node.body[0] if node.body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                lines -= set(range(first.lineno, (first.end_lineno or first.lineno) + 1))
    return len(lines)


def main() -> None:
    """Print the counts."""
    parser = argparse.ArgumentParser(prog="python -m bench.constants", description=__doc__)
    parser.add_argument("--list", action="store_true", help="show every number")
    parser.add_argument("--lines", action="store_true", help="count lines of code instead")
    options = parser.parse_args()
    if options.lines:
        for package in PACKAGES:
            total = sum(code_lines(path) for path in (ROOT / package).rglob("*.py"))
            print(f"{package:12} {total:6} lines of code")
        return
    for room in ROOMS:
        counts, shown = [0, 0], []
        for path in files_of(room):
            tree = ast.parse(path.read_text(encoding="utf-8"))
            found = (list(named_numbers(tree, room.endswith(".py"))), list(inline_numbers(tree)))
            for i, mark in enumerate(" *"):
                counts[i] += len(found[i])
                shown += [f"  {mark} {path.name}:{line}: {text}" for line, text in found[i]]
        print(f"{room:24} {counts[0]:4} named {counts[1]:4} inline")
        print("\n".join(shown) if options.list else "", end="\n" if options.list else "")


if __name__ == "__main__":
    main()
