"""Convolutions and their gradients against PyTorch: same arrays, same threads, interleaved.

usage: python -m bench.conv [--rounds N] [--forward | --backward | --table] [name ...]

In: a list of shapes: those of row M21, then strided, grouped, depthwise, dilated, 1x1 and 7x7 ones.
Out: a line per shape and direction: best time of each side and PyTorch's / weft's (above 1: weft
is faster), and the error against float64. weft runs under TinyJit. PyTorch is told to keep its
memory, as weft does: otherwise every large result costs it fresh pages. `--table`: mean and
standard deviation of 30 runs of the first four shapes, plain and by Winograd.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from bench.winograd import time_table

# seconds until the threads of whoever ran before have gone to sleep
SETTLING = 0.02
CALLS = 5
TABLE_RUNS = 30
# read by malloc when the process starts
KEEP_MEMORY = {
    "MALLOC_MMAP_THRESHOLD_": str(4 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(16 << 30),
    "MALLOC_TOP_PAD_": str(64 << 20),
}


@dataclass(frozen=True)
class Shape:
    """Batch, channels in and out, side of the image and of the window, and how it moves."""

    name: str
    batch: int
    inner: int
    outer: int
    side: int
    kernel: int
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def conv(self) -> dict[str, Any]:
        """What both sides are called with; as many zeros around as keep the size, unless given."""
        return {"padding": self.kernel // 2, **self.options}

    @property
    def weight(self) -> tuple[int, ...]:
        inner = self.inner // self.options.get("groups", 1)
        return (self.outer, inner, self.kernel, self.kernel)


SHAPES = [
    Shape("small", 1, 3, 16, 32, 3),
    Shape("medium", 8, 16, 32, 64, 3),
    Shape("large", 16, 32, 64, 128, 3),
    Shape("5x5", 8, 16, 32, 64, 5),
    Shape("unpadded 5x5", 128, 32, 32, 24, 5, {"padding": 0}),
    Shape("narrow 3x3", 128, 64, 64, 8, 3, {"padding": 0}),
    Shape("resnet 3x3 56", 1, 64, 64, 56, 3),
    Shape("resnet 3x3 14", 1, 256, 256, 14, 3),
    Shape("resnet 3x3 7", 1, 512, 512, 7, 3),
    Shape("stem 7x7/2", 1, 3, 64, 224, 7, {"stride": 2}),
    Shape("3x3/2", 4, 64, 128, 56, 3, {"stride": 2}),
    Shape("1x1", 4, 256, 64, 56, 1),
    Shape("1x1/2", 4, 256, 512, 56, 1, {"stride": 2}),
    Shape("grouped", 4, 128, 128, 28, 3, {"groups": 32}),
    Shape("depthwise", 4, 144, 144, 56, 3, {"groups": 144}),
    Shape("depthwise/2", 4, 144, 144, 56, 3, {"groups": 144, "stride": 2}),
    Shape("dilated", 4, 64, 64, 32, 3, {"dilation": 2, "padding": 2}),
]


def measure(sides: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    """Least seconds of each side, in turns: several calls each, the first of them not counted,
    since the threads of the other side still wait for work then."""
    times: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        for _ in range(3):
            side()
    for _ in range(rounds):
        for name, side in sides.items():
            until = time.perf_counter() + SETTLING
            while time.perf_counter() < until:
                side()
            for _ in range(CALLS):
                started = time.perf_counter()
                side()
                times[name].append(time.perf_counter() - started)
    return {name: min(found) for name, found in times.items()}


def compare(shape: Shape, backward: bool, rounds: int) -> tuple[str, float]:
    """The line of one shape, and its ratio."""
    import numpy as np
    import torch

    from weft import Tensor, TinyJit

    rng = np.random.default_rng(0)
    x = rng.standard_normal((shape.batch, shape.inner, shape.side, shape.side), np.float32)
    w = rng.standard_normal(shape.weight, np.float32) / np.float32(np.prod(shape.weight[1:]) ** 0.5)
    theirs = [torch.from_numpy(a) for a in (x, w)]
    ours = [Tensor(a).realize() for a in (x, w)]
    convolve: Any = torch.nn.functional.conv2d
    exact_result = convolve(*[t.double() for t in theirs], **shape.conv)
    g = rng.standard_normal(exact_result.shape, np.float32)
    above, our_above = torch.from_numpy(g), Tensor(g).realize()
    if backward:
        for tensor in theirs:
            tensor.requires_grad_()
        result = convolve(*theirs, **shape.conv)
        doubles = [t.detach().double().requires_grad_() for t in theirs]
        exact = torch.autograd.grad(convolve(*doubles, **shape.conv), doubles, above.double())

        def peer() -> Any:
            return torch.autograd.grad(result, theirs, above, retain_graph=True)

        @TinyJit
        def step(x: Tensor, w: Tensor, above: Tensor) -> list[Tensor]:
            found = x.conv2d(w, **shape.conv).gradient(x, w, gradient=above)
            Tensor.realize(*found)
            return found

    else:
        exact = (exact_result,)

        def peer() -> Any:
            with torch.no_grad():
                return (convolve(*theirs, **shape.conv),)

        @TinyJit
        def step(x: Tensor, w: Tensor, above: Tensor) -> list[Tensor]:
            return [x.conv2d(w, **shape.conv).realize()]

    def weft() -> Any:
        return step(*ours, our_above)

    error = max(_error(a.numpy(), b.numpy()) for a, b in zip(weft(), exact, strict=True))
    times = measure({"weft": weft, "torch": peer}, rounds)
    ratio = times["torch"] / times["weft"]
    per_output = 2.0 * float(np.prod(shape.weight[1:]))
    rate = per_output * g.size * (2 if backward else 1) / times["weft"] / 1e9
    direction = "backward" if backward else "forward"
    return (
        f"{shape.name:<16}{direction:<10}{times['weft'] * 1e3:10.3f} ms"
        f"{times['torch'] * 1e3:10.3f} ms{ratio:8.2f}{rate:9.1f} GFLOP/s   {error:.0e}"
    ), ratio


def _error(found: Any, exact: Any) -> float:
    import numpy as np

    return float(np.abs(found - exact).max() / np.abs(exact).max())


def main(arguments: list[str]) -> None:
    """All shapes, or those named."""
    parser = argparse.ArgumentParser(prog="python -m bench.conv", description=__doc__)
    parser.add_argument("names", nargs="*", help="only shapes whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--forward", action="store_true", help="no gradients")
    parser.add_argument("--backward", action="store_true", help="gradients only")
    parser.add_argument("--table", action="store_true", help="mean and deviation of 30 runs")
    asked = parser.parse_args(arguments)
    if asked.table:
        time_table(TABLE_RUNS)
        return
    import numpy as np

    print(f"{'shape':<26}{'weft':>13}{'torch':>13}   ratio     weft's rate   error")
    ratios: list[float] = []
    for backward in (False, True):
        if asked.forward if backward else asked.backward:
            continue
        for shape in SHAPES:
            if not asked.names or any(name in shape.name for name in asked.names):
                line, ratio = compare(shape, backward, asked.rounds)
                ratios.append(ratio)
                print(line, flush=True)
    print(f"geometric mean of the ratios {float(np.exp(np.mean(np.log(ratios)))):.2f}")


if __name__ == "__main__":
    if any(name not in os.environ for name in KEEP_MEMORY):
        command = [sys.executable, "-m", "bench.conv", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **KEEP_MEMORY})
    main(sys.argv[1:])
