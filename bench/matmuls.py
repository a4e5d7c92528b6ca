"""Products of all sizes and orders against PyTorch: one process, in turns, the ratio of medians.

usage: python -m bench.matmuls [--seconds S] [--below R] [pattern ...]
In: patterns of case names, e.g. `square*` or `*bfloat16*`. Out: a line per case: median times,
PyTorch's / weft's (above 1: weft is faster), GFLOPS and GB/s of weft, the error against float64.
Invariant: both sides write to memory they keep (TinyJit, `out=`), use all cores, and run in
slices of calls, of which the first few do not count: threads of the other side have gone to sleep.
"""

from __future__ import annotations

import argparse
import fnmatch
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from weft import Tensor, TinyJit, dtypes

ROUNDS = 5
# calls at the start of a slice that do not count, and how long they last at most
SETTLE_CALLS, SETTLE_SECONDS = 20, 0.01
TORCH_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def turn(operand: Any, turned: bool) -> Any:
    """A matrix, or its transpose, in all three frameworks."""
    if not turned:
        return operand
    return (
        operand.swapaxes(-1, -2) if isinstance(operand, np.ndarray) else operand.transpose(-1, -2)
    )


@dataclass(frozen=True)
class Product:
    """(batch x) m x k by k x n; an operand may lie in memory the other way round."""

    kind: str
    m: int
    n: int
    k: int
    batch: int = 1
    left_turned: bool = False
    right_turned: bool = False
    dtype: str = "float32"

    @property
    def name(self) -> str:
        order = "tn"[not self.left_turned] + "tn"[not self.right_turned]
        batch = f"{self.batch}x" if self.batch > 1 else ""
        return f"{self.kind} {batch}{self.m}x{self.n}x{self.k} {order} {self.dtype}"

    def operands(self) -> list[np.ndarray[Any, Any]]:
        """Both operands as they lie in memory."""
        rng = np.random.default_rng(self.m + self.n + self.k)
        batch = (self.batch,) if self.batch > 1 else ()
        left = (self.k, self.m) if self.left_turned else (self.m, self.k)
        right = (self.n, self.k) if self.right_turned else (self.k, self.n)
        return [rng.standard_normal((*batch, *s), np.float32) for s in (left, right)]

    def turn(self, left: Any, right: Any) -> tuple[Any, Any]:
        """The operands as they are multiplied."""
        return turn(left, self.left_turned), turn(right, self.right_turned)

    @property
    def operations(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    @property
    def bytes(self) -> float:
        elements = self.m * self.k + self.k * self.n + self.m * self.n
        return float(self.batch * elements * (4 if self.dtype == "float32" else 2))


def products() -> Iterator[Product]:
    """Squares small and odd, all orders, batches, few rows, halves."""
    for n in (16, 32, 48, 64, 96, 128, 160, 192, 200, 256, 384, 512):
        yield Product("square", n, n, n)
    for n in (1000, 1008, 1023, 1024, 1025, 2048):
        yield Product("square", n, n, n)
    for n in (64, 100, 256, 257, 512, 1000, 1024):
        for left, right in ((False, True), (True, False), (True, True)):
            yield Product("turned", n, n, n, 1, left, right)
    for batch, m, n, k in (
        (8, 64, 64, 64),
        (12, 128, 128, 64),
        (8, 512, 512, 64),
        (8, 512, 64, 512),
    ):
        yield Product("batched", m, n, k, batch)
        yield Product("batched", m, n, k, batch, False, True)
    for m, n, k in ((128, 768, 768), (128, 3072, 768), (128, 768, 3072), (197, 768, 768)):
        yield Product("layer", m, n, k, 1, False, True)
    for m, n, k in (
        (4096, 64, 64),
        (64, 4096, 64),
        (64, 64, 4096),
        (2048, 2048, 32),
        (33, 77, 123),
    ):
        yield Product("shape", m, n, k)
    for m in (1, 2, 3, 4, 6, 8, 12, 16):
        yield Product("skinny", m, 4096, 4096)
        yield Product("skinny", m, 4096, 4096, 1, False, True)
    for n in (1, 4, 16):
        yield Product("narrow", 4096, n, 4096)
    for m, n, k in ((1, 768, 768), (1, 2048, 768), (1, 768, 2048), (1, 32000, 768)):
        yield Product("decode", m, n, k, 1, False, True)
    for dtype in ("bfloat16", "float16"):
        for m in (1, 4, 16):
            yield Product("half", m, 4096, 4096, 1, False, True, dtype)
            yield Product("half", m, 4096, 4096, 1, False, False, dtype)
        for n in (256, 1024):
            yield Product("half", n, n, n, 1, False, False, dtype)
            yield Product("half", n, n, n, 1, False, True, dtype)


def sides(product: Product) -> tuple[Callable[[], Any], Callable[[], Any], float]:
    """A call of weft, a call of PyTorch, and weft's error in units of the bound."""
    arrays = product.operands()
    kept = [torch.from_numpy(a).to(TORCH_DTYPES[product.dtype]) for a in arrays]
    left, right = product.turn(*kept)
    out = torch.matmul(left, right)
    dtype = getattr(dtypes, product.dtype)
    mine = [Tensor(a).cast(dtype).contiguous().realize() for a in arrays]

    def multiply(x: Tensor, y: Tensor) -> Tensor:
        first, second = product.turn(x, y)
        return (first @ second).realize()

    step = TinyJit(multiply)
    for _ in range(3):
        found = step(*mine)
    exact = np.matmul(*product.turn(*[t.double().numpy() for t in kept]))
    spread = np.matmul(*[np.abs(x) for x in product.turn(*[t.double().numpy() for t in kept])])
    eps = np.finfo(np.float32).eps
    bound = 4 * eps * math.sqrt(product.k) * spread
    if product.dtype != "float32":
        bound = bound + np.abs(exact) * (2.0**-8 if product.dtype == "bfloat16" else 2.0**-11)
    error = float((np.abs(found.cast(dtypes.float32).numpy() - exact) / bound).max())
    return (
        lambda: step(*mine),
        lambda: torch.matmul(left, right, out=out),
        error,
    )


def slice_of(call: Callable[[], Any], seconds: float) -> list[float]:
    """Seconds of each call of one side's turn."""
    until = time.perf_counter() + SETTLE_SECONDS
    for _ in range(SETTLE_CALLS):
        call()
        if time.perf_counter() > until:
            break
    times: list[float] = []
    until = time.perf_counter() + seconds
    while True:
        started = time.perf_counter()
        call()
        now = time.perf_counter()
        times.append(now - started)
        if now >= until and len(times) >= 3:
            return times


def measure(product: Product, seconds: float) -> tuple[float, str]:
    """The ratio and the line of one product."""
    ours, theirs, error = sides(product)
    times: tuple[list[float], list[float]] = ([], [])
    for _ in range(ROUNDS):
        times[0].extend(slice_of(ours, seconds / ROUNDS))
        times[1].extend(slice_of(theirs, seconds / ROUNDS))
    mine, peer = (float(np.median(found)) for found in times)
    ratio = peer / mine
    line = f"{product.name:34} weft {mine * 1e6:10.1f} us  torch {peer * 1e6:10.1f} us"
    line += f"  ratio {ratio:5.2f}  {product.operations / mine / 1e9:7.1f} GFLOPS"
    return ratio, f"{line} {product.bytes / mine / 1e9:6.1f} GB/s  error {error:.2f}"


def main() -> None:
    """A line per case, the worst at the end once more."""
    parser = argparse.ArgumentParser(prog="python -m bench.matmuls", description=__doc__)
    parser.add_argument("patterns", nargs="*", default=["*"], help="names, with wildcards")
    parser.add_argument("--seconds", type=float, default=0.25, help="per case and side")
    parser.add_argument("--below", type=float, default=0.9, help="ratios to list at the end")
    options = parser.parse_args()
    chosen = [p for p in products() if any(fnmatch.fnmatch(p.name, f) for f in options.patterns)]
    found = []
    for product in chosen:
        found.append(measure(product, options.seconds))
        print(found[-1][1], flush=True)
    mean = math.exp(sum(math.log(ratio) for ratio, _ in found) / max(1, len(found)))
    print(f"{len(found)} products, geometric mean {mean:.2f}")
    for ratio, line in sorted(found):
        if ratio < options.below:
            print(f"below {options.below}: {line}")


if __name__ == "__main__":
    main()
