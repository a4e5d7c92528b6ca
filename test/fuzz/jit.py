"""Random functions under TinyJit, every call of them compared with un-jitted execution.

What comes in: a `JitProgram`. What goes out: what differs when it runs once decorated with TinyJit
and once as it is. A failing program is shrunk to few lines and prints as code that can be run.
"""

from __future__ import annotations

import gc
import warnings
from collections import deque
from collections.abc import Callable
from typing import Any

from test.fuzz.jit_generator import JitGenerator
from test.fuzz.jit_programs import JitProgram
from weft.errors import ArgumentError, WeftError

__all__ = ["JitGenerator", "JitProgram", "difference", "run", "shrink"]


def run(program: JitProgram, decorate: Callable[[Any], Any], maker: Any = None) -> Any:
    """What the program collects, as plain Python; `maker` stands for Tensor."""
    from weft import Tensor, Variable, dtypes

    environment: dict[str, Any] = {
        "Tensor": Tensor if maker is None else maker,
        "Variable": Variable,
        "dtypes": dtypes,
    }
    exec(compile(program.source(), f"<jit program {program.seed}>", "exec"), environment)
    Tensor.manual_seed(program.seed)
    return plain(environment["program"](decorate))


def plain(value: Any) -> Any:
    """Tensors as lists, containers as lists, objects as their attributes."""
    from weft import Tensor

    if isinstance(value, Tensor):
        return (str(value.dtype), value.tolist())
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, (list, tuple, deque)):
        return [plain(child) for child in value]
    if hasattr(value, "__dict__"):
        return plain(vars(value))
    if type(value).__name__ == "Slotted":
        return [plain(value.left), plain(value.right)]
    return value


def difference(program: JitProgram) -> str | None:
    """What differs between jitted and plain execution, or None."""
    from weft import TinyJit

    expected: Any = None
    refused: WeftError | None = None
    is_mixed = False
    try:
        expected, is_mixed = _plainly(program)
    except WeftError as error:
        # what is refused is refused in the same words
        refused = error
    except Exception as error:
        # such a program tells nothing about the JIT: the generator must not make any
        return f"plain execution fails: {type(error).__name__}: {error}"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = run(program, TinyJit)
    except Exception as error:
        if refused is not None and type(error) is type(refused) and str(error) == str(refused):
            return None
        if is_mixed and _is_mixture(error):
            # as plain execution does, though of other values that were left pending
            return None
        return f"{type(error).__name__}: {error}, instead of {refused}"
    if refused is not None and _is_mixture(refused):
        # it keeps apart what plain execution computes together
        return None
    if refused is not None:
        return f"{found} instead of {type(refused).__name__}: {refused}"
    if found == expected:
        return None
    for i, (left, right) in enumerate(zip(found, expected, strict=True)):
        if left != right:
            return f"out[{i}] is {left} instead of {right}"
    return "different"


def _is_mixture(error: Exception) -> bool:
    """Whether a variable had other values in calls that were computed together."""
    return isinstance(error, ArgumentError) and "in one computation" in str(error)


def _plainly(program: JitProgram) -> tuple[Any, bool]:
    """What comes out, and whether that needed calls to be computed one by one."""
    try:
        return run(program, lambda function: function), False
    except ArgumentError as error:
        if not _is_mixture(error):
            raise
    # TinyJit keeps them apart
    gc.collect()
    return run(program, eagerly), True


def eagerly(function: Callable[..., Any]) -> Callable[..., Any]:
    """Plain execution that leaves nothing pending."""
    from weft.engine.cell import Cell
    from weft.engine.realize import realize_cells

    def inner(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        pending = [cell for cell in Cell.live if cell.value.device is not None]
        realize_cells(pending, Cell.live)
        return result

    return inner


def shrink(program: JitProgram, fails: Callable[[JitProgram], bool]) -> JitProgram:
    """Leave out lines as long as it still fails."""
    best = program
    for part in ("calls", "body", "inner", "calls", "body"):
        size = max(1, len(getattr(best, part)) // 2)
        while size >= 1:
            start = 0
            while start < len(getattr(best, part)):
                lines = getattr(best, part)
                shorter = _with(best, part, lines[:start] + lines[start + size :])
                if _still(shorter, fails):
                    best = shorter
                else:
                    start += size
            size //= 2
    return best


def _with(program: JitProgram, part: str, lines: list[str]) -> JitProgram:
    fields = {name: getattr(program, name) for name in program.__dataclass_fields__}
    return JitProgram(**{**fields, part: lines})


def _still(program: JitProgram, fails: Callable[[JitProgram], bool]) -> bool:
    try:
        run(program, eagerly)
    except Exception:
        return False
    return fails(program)
