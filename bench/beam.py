"""The heuristic against a search (BEAM): how much faster other actions make the same kernels.

usage: python -m bench.beam [--width N] [--seconds N] [name ...]

In: names of workloads, or a part of them; none means all. Out: a line per kernel that takes a fair
share of its workload: time with the heuristic's actions, with the best that were found, and their
ratio; where that is above 1.15, both sequences. A kernel is searched afresh, whatever is remembered
on disk. Times are medians of rounds in which both take turns, in the process of the search.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from weft import Context, Device, Tensor
from weft.codegen.opt.chosen import choosing
from weft.codegen.opt.moves import Space, nest_cost
from weft.codegen.pipeline import lower
from weft.engine.search import Outcome, actions_text, clear_searches, search_kernel
from weft.renderer.base import Target
from weft.uop.node import UOp

# a kernel with less than this share of its workload's estimated work is not searched
SHARE = 0.1
# what the heuristic may miss
GAP = 1.15


def zeros(*shape: int) -> Tensor:
    """Memory of that shape; the search fills it with numbers of its own."""
    return Tensor.zeros(*shape).contiguous().realize()


def matmul(m: int, k: int, n: int, left: bool = False, right: bool = False) -> Tensor:
    a = zeros(k, m).T if left else zeros(m, k)
    b = zeros(n, k).T if right else zeros(k, n)
    return a @ b


def conv(batch: int, inner: int, outer: int, side: int, window: int, **options: Any) -> Tensor:
    weight = zeros(outer, inner // options.get("groups", 1), window, window)
    return zeros(batch, inner, side, side).conv2d(weight, padding=window // 2, **options)


def attention(heads: int, length: int, causal: bool = False) -> Tensor:
    q, k, v = (zeros(1, heads, length, 64) for _ in range(3))
    return q.scaled_dot_product_attention(k, v, is_causal=causal)


WORKLOADS: dict[str, Callable[[], Tensor]] = {
    "matmul 256": lambda: matmul(256, 256, 256),
    "matmul 512": lambda: matmul(512, 512, 512),
    "matmul 1000": lambda: matmul(1000, 1000, 1000),
    "matmul 1023": lambda: matmul(1023, 1023, 1023),
    "matmul 1024": lambda: matmul(1024, 1024, 1024),
    "matmul 1024 left turned": lambda: matmul(1024, 1024, 1024, left=True),
    "matmul 1024 right turned": lambda: matmul(1024, 1024, 1024, right=True),
    "matmul 768x3072x128": lambda: matmul(128, 768, 3072),
    "matmul 1 row": lambda: matmul(1, 2048, 2048),
    "matmul 1 row, turned": lambda: matmul(1, 2048, 2048, right=True),
    "matmul 4 rows": lambda: matmul(4, 2048, 2048),
    "matmul 16 rows": lambda: matmul(16, 2048, 2048),
    "matmul 16 rows, turned": lambda: matmul(16, 2048, 2048, right=True),
    "matmul batched": lambda: zeros(32, 64, 64) @ zeros(32, 64, 64),
    "conv small": lambda: conv(1, 3, 16, 32, 3),
    "conv medium": lambda: conv(8, 16, 32, 64, 3),
    "conv 5x5": lambda: conv(8, 16, 32, 64, 5),
    "conv resnet 14": lambda: conv(1, 256, 256, 14, 3),
    "conv stem": lambda: conv(1, 3, 64, 224, 7, stride=2),
    "conv 1x1": lambda: conv(4, 256, 64, 56, 1),
    "conv depthwise": lambda: conv(4, 144, 144, 56, 3, groups=144),
    "add 4M": lambda: zeros(1 << 22) + zeros(1 << 22),
    "exp 4M": lambda: zeros(1 << 22).exp(),
    "transpose": lambda: zeros(2048, 1024).T.contiguous(),
    "sum 4M": lambda: zeros(1 << 22).sum(),
    "sum of rows": lambda: zeros(2048, 2048).sum(axis=1),
    "sum of columns": lambda: zeros(2048, 2048).sum(axis=0),
    "largest of rows": lambda: zeros(2048, 2048).max(axis=1),
    "softmax": lambda: zeros(2048, 2048).softmax(),
    "layernorm": lambda: zeros(4096, 1024).layernorm(),
    "attention": lambda: attention(8, 512),
    "attention causal": lambda: attention(8, 512, causal=True),
}


def kernels_of(tensor: Tensor) -> list[UOp]:
    """The kernels of a workload that matter, as the heuristic gets them."""
    renderer = Device.default.renderer
    found: list[UOp] = []

    def note(ast: UOp, target: Target) -> None:
        found.append(ast)

    with choosing(note):
        for item in tensor.schedule():
            if item.kernel is not None:
                lower(item.kernel, renderer)
    work = [nest_cost(ast, renderer.target) for ast in found]
    return [ast for ast, cost in zip(found, work, strict=True) if cost >= SHARE * sum(work)]


def show(name: str, ast: UOp, outcome: Outcome, start: str) -> float | None:
    """Prints the line of one kernel; its ratio."""
    before, after = outcome.heuristic_seconds, outcome.best_seconds
    if before is None or after is None:
        print(f"{name:<26}{ast.arg.name:<28} not measured", flush=True)
        return None
    print(
        f"{name:<26}{ast.arg.name:<28}{before * 1e6:11.1f}{after * 1e6:11.1f}{before / after:8.2f}"
        f"{outcome.tried:7d}{outcome.spent:7.1f}",
        flush=True,
    )
    if before / after > GAP and outcome.best is not None:
        print(f"    heuristic: {start}\n    found:     {actions_text(outcome.best)}", flush=True)
    return before / after


def main() -> None:
    """One line per kernel, and how many are within the gap."""
    parser = argparse.ArgumentParser(description="the heuristic's actions against searched ones")
    parser.add_argument("--width", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=20.0)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args()
    wanted = [
        name
        for name in WORKLOADS
        if not options.names or any(part in name for part in options.names)
    ]
    print(
        f"{'workload':<26}{'kernel':<28}{'heuristic':>11}{'found':>11}{'ratio':>8}  tried  seconds"
    )
    ratios: list[float] = []
    with Context(BEAM=options.width, BEAM_TIMEOUT=options.seconds):
        for name in wanted:
            with Context(BEAM=0):
                kernels = kernels_of(WORKLOADS[name]())
            for ast in kernels:
                space = Space(ast, Device.default.renderer.target)
                outcome = search_kernel(space, Device.default.name)
                ratio = show(name, ast, outcome, actions_text(space.start))
                ratios += [] if ratio is None else [ratio]
    clear_searches()
    if ratios:
        near = sum(ratio <= GAP for ratio in ratios)
        mean = math.exp(float(np.mean(np.log(ratios))))
        print(f"{near} of {len(ratios)} within {GAP - 1:.0%}; geometric mean of ratios {mean:.3f}")


if __name__ == "__main__":
    main()
