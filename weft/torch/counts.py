"""What was compiled and what was left to PyTorch: `report()`.

In: notes of the compiler. Out: a `Report`, to look at or to assert on. Sits at the bottom of the
package.
Invariant: whatever PyTorch runs in weft's place is counted here, and said once in one line.
"""

from __future__ import annotations

import sys
import threading
from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Report:
    """Since the process began, or the last `reset()`.

    graphs: graphs that dynamo and AOTAutograd gave; programs: compiled ones, several where sizes
    are free or PyTorch runs a node in between; kernels: launches of all programs; operators: nodes
    that were lowered; left_to_torch: operators that PyTorch runs, each with how many nodes, and
    `reasons` why; seconds: spent in compiling.
    """

    graphs: int = 0
    programs: int = 0
    kernels: int = 0
    operators: int = 0
    left_to_torch: Counter[str] = field(default_factory=Counter)
    reasons: dict[str, str] = field(default_factory=dict)
    symbolic: int = 0
    specialised: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        lines = [
            f"{self.graphs} graphs, {self.programs} programs of {self.kernels} kernels for "
            f"{self.operators} operators, compiled in {self.seconds:.2f} s"
        ]
        if self.symbolic or self.specialised:
            lines.append(f"{self.symbolic} programs for all sizes, {self.specialised} for one each")
        for name, count in self.left_to_torch.most_common():
            lines.append(f"left to PyTorch: {name}, {count} nodes: {self.reasons[name]}")
        return "\n".join(lines)


_report = Report()
_lock = threading.Lock()
_said: set[str] = set()


def report() -> Report:
    """What was compiled so far, and what was left to PyTorch."""
    return _report


def reset() -> None:
    """Count anew."""
    global _report
    with _lock:
        _report = Report()
        _said.clear()


def left(name: str, reason: str) -> None:
    """A node that PyTorch runs; said once for each operator."""
    with _lock:
        _report.left_to_torch[name] += 1
        _report.reasons[name] = reason
        is_new = name not in _said
        _said.add(name)
    if is_new:
        print(f"weft: PyTorch runs {name}: {reason}", file=sys.stderr)
