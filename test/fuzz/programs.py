"""Random tensor programs with a NumPy twin for every statement.

What comes in: a seed. What goes out: a `Program`, whose statements run on weft and on NumPy. All
numbers are small integers (also in floats), so that every result is exact and must be equal to
the last bit. A failing program is shrunk to few statements and prints as code that can be run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from test.fuzz import steps, structures, twins
from test.fuzz.world import Program, Statement, Step, World
from weft import Context, Device, Tensor, Variable, dtypes

__all__ = ["Generator", "Program", "Statement", "difference", "run_numpy", "run_weft", "shrink"]

# what the statements of a program may name
ENVIRONMENT: dict[str, Any] = {
    "np": np,
    "Tensor": Tensor,
    "Variable": Variable,
    "dtypes": dtypes,
    "Context": Context,
}
# how often each kind of step is taken, in relation to the others
STEPS: dict[Step, int] = {
    steps.unary: 6,
    steps.binary: 12,
    steps.mixed: 4,
    steps.scalar: 4,
    steps.rounding: 2,
    steps.movement: 14,
    steps.reduce: 7,
    steps.where: 3,
    steps.cast: 4,
    steps.assign: 6,
    steps.update: 3,
    steps.realize: 4,
    steps.data: 2,
    steps.constant: 3,
    structures.matmul: 2,
    structures.conv: 2,
    structures.pool: 1,
    structures.cat: 2,
    structures.sort: 1,
    structures.gather: 3,
    structures.scatter: 2,
    structures.symbolic_size: 2,
    structures.symbolic_place: 2,
}


class Generator(World):
    """Makes one random program; knows every variable through its NumPy twin."""

    def __init__(self, seed: int, length: int = 12, large: bool = False) -> None:
        super().__init__(seed, large)
        self.length = length

    def run(self) -> Program:
        """Data first, then steps of all kinds."""
        for _ in range(self.rng.randint(1, 3)):
            steps.data(self)
        for step in self.rng.choices(list(STEPS), list(STEPS.values()), k=self.length):
            step(self)
        return self.program


def run_numpy(statements: list[Statement]) -> dict[str, Any]:
    """The reference: every variable's final value."""
    env: dict[str, Any] = {"np": np, "twins": twins}
    with np.errstate(all="ignore"):
        for statement in statements:
            exec(statement.numpy, env)
    return {k: v for k, v in env.items() if isinstance(v, np.ndarray)}


def run_weft(
    statements: list[Statement],
    device: str | None = None,
    read: Callable[[Tensor], Any] = Tensor.numpy,
    **names: Any,
) -> dict[str, Any]:
    """Every variable's final value, computed by weft; `names` are more that a program knows."""
    before = Device.DEFAULT
    if device is not None:
        Device.DEFAULT = device
    try:
        env: dict[str, Any] = {**ENVIRONMENT, **names}
        for statement in statements:
            exec(statement.weft, env)
        return {k: read(v) for k, v in env.items() if isinstance(v, Tensor)}
    finally:
        Device.DEFAULT = before


def first_difference(
    expected: Mapping[str, Any],
    run: Callable[[], Mapping[str, tuple[str, Any]]],
    wrong: Callable[[Any, Any], Any],
    shown: Callable[[Any, tuple[int, ...]], str],
) -> str | None:
    """What differs between twins, which have a shape and a kind, and what weft computes; or None.

    `run` gives the dtype's name and the values of each variable; `wrong` says which elements are
    not the twin's, `shown` what one should be.
    """
    try:
        found = run()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for name, twin in expected.items():
        kind, other = found[name]
        if other.shape != twin.shape or kind != twin.kind:
            return f"{name}: {kind}{other.shape} instead of {twin.kind}{twin.shape}"
        off = wrong(other, twin)
        if off.any():
            at = tuple(np.argwhere(off)[0].tolist())
            return (
                f"{name}: {int(off.sum())} of {off.size} elements differ, {other[at]!r} "
                f"instead of {shown(twin, at)} at {at}"
            )
    return None


def difference(program: Program, device: str | None = None) -> str | None:
    """What differs between weft and NumPy, or None."""
    expected = run_numpy(program.statements)
    try:
        found = run_weft(program.statements, device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return compare(expected, found)


def compare(expected: Mapping[str, Any], found: Mapping[str, Any]) -> str | None:
    """What differs between values of the same names, or None."""
    for name, value in expected.items():
        if name not in found:
            continue
        other = found[name]
        if other.shape != value.shape or other.dtype != value.dtype:
            return f"{name}: {other.dtype}{other.shape} instead of {value.dtype}{value.shape}"
        if not np.array_equal(other, value, equal_nan=value.dtype.kind == "f"):
            places = np.argwhere(np.asarray(other != value))
            first = tuple(places[0].tolist()) if len(places) else ()
            what = f"{other[first]!r} instead of {value[first]!r} at {first}"
            return f"{name}: {len(places)} of {value.size} elements differ, {what}"
    return None


def names_are_there(program: Program) -> bool:
    """Whether every variable that is named is there, also by what means nothing to NumPy."""
    there: set[str] = set()
    for statement in program.statements:
        target = re.match(r"(v\d+) *=[^=]", statement.weft)
        made = {target[1]} if target else set()
        if not set(re.findall(r"\bv\d+\b", statement.weft)) <= there | made:
            return False
        there |= made
    return True


def can_run(program: Program, run: Callable[[list[Statement]], Any]) -> bool:
    """Whether its statements name what is there, and its twin runs."""
    if not names_are_there(program):
        return False
    try:
        run(program.statements)
    except Exception:
        return False
    return True


def is_closed(program: Program) -> bool:
    """Whether it can run."""
    return can_run(program, run_numpy)


def shrink(
    program: Program,
    fails: Callable[[Program], bool],
    is_closed: Callable[[Program], bool] = is_closed,
) -> Program:
    """Leave out statements as long as it still fails."""
    statements = program.statements
    size = max(1, len(statements) // 2)
    while size >= 1:
        start = 0
        while start < len(statements):
            shorter = Program(program.seed, statements[:start] + statements[start + size :])
            if is_closed(shorter) and fails(shorter):
                statements = shorter.statements
            else:
                start += size
        size //= 2
    return Program(program.seed, statements)
