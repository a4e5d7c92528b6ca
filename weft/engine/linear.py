"""Linear: the kernels of a computation in order, as programs written for tinygrad ask for them.

What comes in: the items of a schedule, or the steps of a captured graph. What goes out: `Linear`,
whose `src` are calls, each of which has its kernel and its memory as `src`.
Where it sits: above nothing; the JIT and the compatibility methods of Tensor make them.
The one invariant: it is only looked at. What runs are the tensors it was made of.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from weft.uop.opset import Ops


@dataclass(frozen=True)
class Program:
    """A kernel that was compiled already."""

    arg: Any
    op: Any = Ops.PROGRAM  # type: ignore[attr-defined]
    src: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Copy:
    """A transfer from one device to another, which has no kernel."""

    arg: Any = None
    op: Any = Ops.COPY
    src: tuple[Any, ...] = ()


@dataclass(frozen=True)
class Call:
    """One launch: `src` is the kernel and its memory, `arg` where it runs."""

    src: tuple[Any, ...]
    arg: str
    op: Any = Ops.CALL  # type: ignore[attr-defined]


@dataclass(frozen=True)
class Linear:
    """Calls in order; `run` computes what they were made for."""

    src: tuple[Call, ...]
    run: Callable[[], Any] | None = None
    op: Any = Ops.LINEAR  # type: ignore[attr-defined]

    def toposort(self) -> dict[Any, None]:
        """The nodes of the kernels, their memory, the calls and this, sources first."""
        return _toposort(self)


def _toposort(linear: Linear) -> dict[Any, None]:
    found: dict[Any, None] = {}
    for call in linear.src:
        for source in call.src:
            below = source.toposort() if hasattr(source, "toposort") else ()
            found.update(dict.fromkeys((*below, source)))
        found[call] = None
    return {**found, linear: None}


def compile_linear(linear: Linear) -> Linear:
    """The same: kernels are compiled when they are first run."""
    return linear


def run_linear(linear: Linear, var_vals: dict[str, int] | None = None, **options: Any) -> None:
    """Compute the tensors that it was made of, with the values that their variables have."""
    if linear.run is not None:
        linear.run()
