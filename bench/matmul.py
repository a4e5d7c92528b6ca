"""`Tensor @ Tensor` against NumPy: no flags, both with all threads, interleaved, median and spread.

usage: python -m bench.matmul [size ...]
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np

from weft import Tensor

ROUNDS = 15


def measure(*sides: Callable[[], object]) -> list[list[float]]:
    """Milliseconds of each side, round by round in turn, after a warm-up."""
    for side in sides:
        side()
        side()
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(ROUNDS):
        for side, found in zip(sides, times, strict=True):
            started = time.perf_counter()
            side()
            found.append((time.perf_counter() - started) * 1e3)
    return times


def show(found: list[float]) -> str:
    """Median, with the middle half of the rounds."""
    low, middle, high = np.percentile(found, (25, 50, 75))
    return f"{middle:9.3f} ms ({low:.3f}..{high:.3f})"


def main(arguments: list[str]) -> None:
    """One line per size."""
    sizes = [int(a) for a in arguments] or [64, 128, 256, 512, 1000, 1024]
    print(f"{'matmul':<10}{'weft':>28}{'NumPy':>28}   NumPy / weft   largest error")
    for n in sizes:
        print(compare(n), flush=True)


def compare(n: int) -> str:
    """The line of one size."""
    rng = np.random.default_rng(n)
    a, b = (rng.standard_normal((n, n)).astype(np.float32) for _ in range(2))
    left, right = Tensor(a).realize(), Tensor(b).realize()
    error = float(np.abs((left @ right).numpy() - a.astype(np.float64) @ b).max())
    ours, theirs = measure(lambda: (left @ right).realize(), lambda: a @ b)
    ratio = float(np.median(theirs) / np.median(ours))
    return f"{n:<10}{show(ours):>28}{show(theirs):>28}   {ratio:12.2f}   {error:.1e}"


if __name__ == "__main__":
    main(sys.argv[1:])
