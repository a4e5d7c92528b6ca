"""Random shapes against PyTorch: how the ratio is distributed, so that no benchmark is recognised.

usage: python -m bench.random_shapes [--count N] [--seed S] [--kind KIND ...] [--rounds R]

In: a seed. Out: the ratio PyTorch's / weft's time (above 1: weft is faster) of matmuls,
convolutions, reductions, norms and attentions of random sizes: its 10th, 50th and 90th percentile,
all together and by kind, and the worst shapes. Both sides as in bench/conv.py. The work of each is
large enough (10 million operations, 128 thousand elements) that it, not the call, is measured.
"""

from __future__ import annotations

import argparse
import math
import os
import random
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.conv import KEEP_MEMORY, measure

WORST = 12
# operations of one case at most, so that all of them take minutes
MOST_WORK = 4e9


@dataclass(frozen=True)
class Case:
    """Shapes of the inputs, and one function for tensors of both sides."""

    name: str
    shapes: tuple[tuple[int, ...], ...]
    ours: Callable[..., Any]
    theirs: Callable[..., Any]


def _size(pick: random.Random, low: int, high: int) -> int:
    """Small and large sizes alike; every third a multiple of 8, as sizes in use often are."""
    size = round(math.exp(pick.uniform(math.log(low), math.log(high))))
    return max(low, size // 8 * 8) if pick.random() < 1 / 3 else size


def matmul(pick: random.Random) -> Case:
    while True:
        m, n, k = (_size(pick, 1, 2048) for _ in range(3))
        batch = pick.choice([1, 1, 1, _size(pick, 2, 32)])
        if 1e7 <= 2.0 * batch * m * n * k <= MOST_WORK:
            break
    turned = pick.random() < 0.5
    left: tuple[int, ...] = (batch, m, k) if batch > 1 else (m, k)
    right: tuple[int, ...] = (n, k) if turned else (k, n)
    right = (batch, *right) if batch > 1 else right

    def product(x: Any, y: Any) -> Any:
        return x @ (y.transpose(-1, -2) if turned else y)

    name = f"{batch}x{m}x{n}x{k}{' turned' if turned else ''}"
    return Case(name, (left, right), product, product)


def conv(pick: random.Random) -> Case:
    import torch

    while True:
        kernel = pick.choice([1, 3, 3, 3, 5, 7])
        stride, dilation = pick.choice([1, 1, 1, 2]), pick.choice([1, 1, 1, 2])
        batch, side = _size(pick, 1, 32), _size(pick, 4, 160)
        groups = pick.choice([1, 1, 1, 1, 2, 8, 0])
        inner, outer = _size(pick, 1, 256), _size(pick, 1, 256)
        if groups == 0:
            groups = outer = inner
        inner, outer = (max(1, n // groups) * groups for n in (inner, outer))
        padding = pick.choice([0, dilation * (kernel // 2)])
        reach = dilation * (kernel - 1) + 1
        if side + 2 * padding < reach:
            continue
        space = (side + 2 * padding - reach) // stride + 1
        work = 2.0 * batch * outer * space**2 * (inner // groups) * kernel**2
        if 1e7 <= work <= MOST_WORK and batch * max(inner, outer) * side**2 < 1 << 25:
            break
    options: dict[str, Any] = {
        "stride": stride,
        "dilation": dilation,
        "padding": padding,
        "groups": groups,
    }
    shapes = ((batch, inner, side, side), (outer, inner // groups, kernel, kernel))
    name = f"{batch},{inner}->{outer},{side},{kernel} " + " ".join(
        f"{key[0]}{value}" for key, value in options.items() if value != int(key != "padding")
    )
    return Case(
        name,
        shapes,
        lambda x, w: x.conv2d(w, **options),
        lambda x, w: torch.nn.functional.conv2d(x, w, **options),
    )


def reduction(pick: random.Random) -> Case:
    while True:
        shape = tuple(_size(pick, 2, 4096) for _ in range(pick.randint(1, 4)))
        if 1 << 17 <= math.prod(shape) <= 1 << 24:
            break
    axes = tuple(sorted(pick.sample(range(len(shape)), pick.randint(1, len(shape)))))
    name, ours, theirs = pick.choice(
        [
            ("sum", lambda x: x.sum(axes), lambda x: x.sum(axes)),
            ("mean", lambda x: x.mean(axes), lambda x: x.mean(axes)),
            ("max", lambda x: x.max(axes), lambda x: x.amax(axes)),
        ]
    )
    return Case(f"{name} {shape} over {axes}", (shape,), ours, theirs)


def norm(pick: random.Random) -> Case:
    import torch

    while True:
        rows, columns = _size(pick, 1, 8192), _size(pick, 8, 8192)
        if 1 << 17 <= rows * columns <= 1 << 24:
            break
    name, ours, theirs = pick.choice(
        [
            ("softmax", lambda x: x.softmax(-1), lambda x: x.softmax(-1)),
            ("log_softmax", lambda x: x.log_softmax(-1), lambda x: x.log_softmax(-1)),
            (
                "layernorm",
                lambda x: x.layernorm(),
                lambda x: torch.nn.functional.layer_norm(x, (columns,)),
            ),
        ]
    )
    return Case(f"{name} {rows}x{columns}", ((rows, columns),), ours, theirs)


def attention(pick: random.Random) -> Case:
    import torch

    while True:
        heads, dim = _size(pick, 1, 32), pick.choice([16, 32, 40, 64, 80, 128])
        queries = _size(pick, 1, 2048)
        keys = queries if pick.random() < 0.7 else _size(pick, 8, 2048)
        if 1e7 <= 4.0 * heads * queries * keys * dim <= MOST_WORK:
            break
    causal = queries == keys and pick.random() < 0.5
    shapes = tuple((1, heads, n, dim) for n in (queries, keys, keys))
    return Case(
        f"{heads} heads {queries}x{keys}x{dim}{' causal' if causal else ''}",
        shapes,
        lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=causal),
        lambda q, k, v: torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal),
    )


KINDS: dict[str, Callable[[random.Random], Case]] = {
    "matmul": matmul,
    "conv": conv,
    "reduce": reduction,
    "norm": norm,
    "attention": attention,
}


def ratio_of(case: Case, rounds: int) -> tuple[float, str]:
    """PyTorch's / weft's time, and the line that says so; what they compute must agree."""
    import torch

    from weft import Tensor, TinyJit

    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape, np.float32) for shape in case.shapes]
    theirs = [torch.from_numpy(array) for array in arrays]
    ours = [Tensor(array).realize() for array in arrays]
    step = TinyJit(lambda *inputs: case.ours(*inputs).realize())

    def peer() -> Any:
        with torch.no_grad():
            return case.theirs(*theirs)

    expected = case.theirs(*[tensor.double() for tensor in theirs]).numpy()
    found = step(*ours).numpy()
    error = np.abs(found - expected).max() / max(np.abs(expected).max(), 1e-30)
    if not error < 1e-4:
        raise AssertionError(f"{case.name}: relative error {error}")
    times = measure({"weft": lambda: step(*ours), "torch": peer}, rounds)
    ratio = times["torch"] / times["weft"]
    return ratio, f"{times['weft'] * 1e3:9.3f} ms {times['torch'] * 1e3:9.3f} ms {ratio:6.2f}"


def spread(ratios: list[float]) -> str:
    low, middle, high = np.percentile(ratios, (10, 50, 90))
    mean = float(np.exp(np.mean(np.log(ratios))))
    return (
        f"{len(ratios):4} cases   10 % {low:5.2f}   median {middle:5.2f}   90 % {high:5.2f}   "
        f"geometric mean {mean:5.2f}"
    )


def main(arguments: list[str]) -> None:
    """Draw, run, and tell the distribution."""
    parser = argparse.ArgumentParser(prog="python -m bench.random_shapes", description=__doc__)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--kind", nargs="*", default=list(KINDS), choices=list(KINDS))
    parser.add_argument("--all", action="store_true", help="a line for every shape")
    asked = parser.parse_args(arguments)
    found: list[tuple[float, str, str]] = []
    for number in range(asked.count):
        pick = random.Random(asked.seed * 1_000_003 + number)
        kind = asked.kind[number % len(asked.kind)]
        case = KINDS[kind](pick)
        ratio, line = ratio_of(case, asked.rounds)
        found.append((ratio, kind, f"{line}   {kind} {case.name}"))
        if asked.all:
            print(found[-1][2], flush=True)
    print(
        f"PyTorch's / weft's time, seed {asked.seed}\nall        {spread([r for r, _, _ in found])}"
    )
    for kind in asked.kind:
        print(f"{kind:<11}{spread([r for r, k, _ in found if k == kind])}")
    print("worst:")
    for _, _, line in sorted(found)[:WORST]:
        print(line)


if __name__ == "__main__":
    if any(name not in os.environ for name in KEEP_MEMORY):
        command = [sys.executable, "-m", "bench.random_shapes", *sys.argv[1:]]
        os.execve(sys.executable, command, {**os.environ, **KEEP_MEMORY})
    main(sys.argv[1:])
