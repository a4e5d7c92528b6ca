"""The demo: a small network, how few kernels it becomes, and how long they take.

In: nothing. Out: a table on stdout. Uses the public names only.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

from weft import Device, GlobalCounters, Tensor

BATCH = 512
FEATURES = 512
CLASSES = 128


def feed_forward(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A layer with its bias and activation."""
    return (x @ w + b).gelu()


def normalised(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """A chain of elementwise ops around two reduces."""
    centred = x - x.mean(axis=-1, keepdim=True)
    return centred / ((centred * centred).mean(axis=-1, keepdim=True) + 1e-5).sqrt()


def classify(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
    """Probabilities of classes."""
    return (x @ w + b).softmax(axis=-1)


PROGRAMS: list[tuple[str, Callable[[Tensor, Tensor, Tensor], Tensor]]] = [
    ("gelu(x @ w + b)", feed_forward),
    ("layernorm(x)", normalised),
    ("softmax(x @ w + b)", classify),
]


def inputs(seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Random numbers, in memory before the clock starts."""
    Tensor.manual_seed(seed)
    x = Tensor.randn(BATCH, FEATURES)
    w = Tensor.randn(FEATURES, CLASSES) * 0.05
    b = Tensor.randn(CLASSES) * 0.1
    return x.realize(), w.realize(), b.realize()


def measure(
    build: Callable[[Tensor, Tensor, Tensor], Tensor],
    operands: tuple[Tensor, Tensor, Tensor],
    runs: int,
) -> tuple[int, int, float, float, float]:
    """Ops of the graph, kernels, first and best time in seconds, and the mean of the result."""
    expression = build(*operands)
    nodes = len(expression.uop.toposort())
    kernels = len(expression.schedule())
    times = []
    for _ in range(runs):
        result = build(*operands)
        start = time.perf_counter()
        result.realize()
        times.append(time.perf_counter() - start)
    return nodes, kernels, times[0], min(times), float(result.mean().item())


def main() -> None:
    """Prints one line per program."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--runs", type=int, default=5, help="how often to run each")
    parser.add_argument("--seed", type=int, default=1, help="seed of the operands")
    options = parser.parse_args()
    runs = max(1, options.runs)
    print(f"weft on {Device.DEFAULT}: x is {BATCH}x{FEATURES}, w is {FEATURES}x{CLASSES}\n")
    print(f"{'program':<20}{'graph':>8}{'kernels':>9}{'first':>12}{'then':>12}{'mean':>12}")
    operands = inputs(options.seed)
    GlobalCounters.reset()
    for name, build in PROGRAMS:
        nodes, kernels, first, best, mean = measure(build, operands, runs)
        print(
            f"{name:<20}{nodes:>8}{kernels:>9}{first * 1e3:>9.2f} ms{best * 1e3:>9.2f} ms"
            f"{mean:>12.6f}"
        )
    print(f"\n{GlobalCounters.kernel_count} kernels ran, {GlobalCounters.mem_used:,} bytes in use")
    print("DEBUG=2 shows each kernel as it runs, DEBUG=4 its source.")


if __name__ == "__main__":
    main()
