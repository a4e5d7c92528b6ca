"""Methods whose cost must be that of what they touch, against PyTorch: ratios of one run.

In: nothing. Out: a table of milliseconds and ratios (weft / PyTorch; below 1 weft is faster), and
of weft's memory: what the results take, and the most that was in use at one time.
Both run with the same number of threads, one after another in turns, and the best time counts, so
that what else the machine does hits both.

    python bench/methods.py [--turns 5] [--only name]
"""

from __future__ import annotations

import argparse
import gc
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import torch

from weft import Device, Tensor

THREADS = 2
MILLION = 1_000_000


@dataclass(frozen=True)
class Case:
    """The same work written for both; each function computes its result to the end."""

    name: str
    weft: Callable[[], Tensor | list[Tensor]]
    torch: Callable[[], object]


def pair(array: np.ndarray) -> tuple[Tensor, torch.Tensor]:
    return Tensor(array).realize(), torch.from_numpy(array.copy())


def computed(tensors: tuple[Tensor, ...]) -> list[Tensor]:
    """Several results, computed together."""
    Tensor.realize(*tensors)
    return list(tensors)


def embedding_cases(random: np.random.Generator) -> Iterator[Case]:
    table, torch_table = pair(random.standard_normal((50_000, 768), dtype=np.float32))
    tokens, torch_tokens = pair(random.integers(0, 50_000, (64, 256)))
    torch_table.requires_grad_()
    yield Case(
        "embedding 64x256 of 50000x768",
        lambda: table[tokens].realize(),
        lambda: torch.nn.functional.embedding(torch_tokens, torch_table.detach()),
    )

    def weft_gradient() -> Tensor:
        return table[tokens].sum().gradient(table)[0].realize()

    def torch_gradient() -> object:
        total = torch.nn.functional.embedding(torch_tokens, torch_table).sum()
        return torch.autograd.grad(total, torch_table)

    yield Case("its gradient", weft_gradient, torch_gradient)


def order_cases(random: np.random.Generator) -> Iterator[Case]:
    values, torch_values = pair(random.standard_normal(MILLION, dtype=np.float32))
    wide, torch_wide = pair(random.integers(-(2**62), 2**62, MILLION))
    for k in (1, 100, 10_000):
        yield Case(
            f"topk {k} of a million",
            lambda k=k: computed(values.topk(k)),
            lambda k=k: torch_values.topk(k),
        )
    yield Case(
        "sort a million float32",
        lambda: computed(values.sort()),
        lambda: torch_values.sort(stable=True),
    )
    yield Case(
        "sort a million int64",
        lambda: computed(wide.sort()),
        lambda: torch_wide.sort(stable=True),
    )
    rows, torch_rows = pair(random.standard_normal((1000, 1000), dtype=np.float32))
    yield Case(
        "sort 1000 rows of 1000",
        lambda: computed(rows.sort()),
        lambda: torch_rows.sort(stable=True),
    )


def scan_cases(random: np.random.Generator) -> Iterator[Case]:
    values, torch_values = pair(random.standard_normal(16 * MILLION, dtype=np.float32))
    yield Case(
        "cumsum of 16 million",
        lambda: values.cumsum(0).realize(),
        lambda: torch_values.cumsum(0),
    )
    yield Case(
        "cummax of 16 million",
        lambda: computed(values.cummax(0)),
        lambda: torch_values.cummax(0),
    )
    square, torch_square = pair(random.standard_normal((4000, 1000), dtype=np.float32))
    for axis in (0, 1):
        yield Case(
            f"cumsum of 4000x1000, axis {axis}",
            lambda axis=axis: square.cumsum(axis).realize(),
            lambda axis=axis: torch_square.cumsum(axis),
        )


def scatter_cases(random: np.random.Generator) -> Iterator[Case]:
    values, torch_values = pair(random.standard_normal(MILLION, dtype=np.float32))
    index, torch_index = pair(random.integers(0, MILLION, MILLION))
    zeros, torch_zeros = pair(np.zeros(MILLION, dtype=np.float32))
    yield Case(
        "gather a million",
        lambda: values.gather(0, index).realize(),
        lambda: torch_values.gather(0, torch_index),
    )
    yield Case(
        "scatter a million",
        lambda: zeros.scatter(0, index, values).realize(),
        lambda: torch_zeros.scatter(0, torch_index, torch_values),
    )
    for name in ("sum", "amax", "mean"):
        yield Case(
            f"scatter_reduce {name} of a million",
            lambda name=name: zeros.scatter_reduce(0, index, values, name).realize(),
            lambda name=name: torch_zeros.scatter_reduce(0, torch_index, torch_values, name),
        )
    mask, torch_mask = pair(random.random(MILLION) < 0.5)
    yield Case(
        "masked_select of a million",
        lambda: values.masked_select(mask).realize(),
        lambda: torch_values.masked_select(torch_mask),
    )
    yield Case("nonzero of a million", lambda: mask.nonzero().realize(), torch_mask.nonzero)


def decompose_cases(random: np.random.Generator) -> Iterator[Case]:
    square, torch_square = pair(random.standard_normal((64, 64), dtype=np.float32))
    many, torch_many = pair(random.standard_normal((256, 32, 32), dtype=np.float32))
    yield Case(
        "qr of 64x64",
        lambda: computed(square.qr()),
        lambda: torch.linalg.qr(torch_square),
    )
    yield Case(
        "qr of 256 times 32x32",
        lambda: computed(many.qr()),
        lambda: torch.linalg.qr(torch_many),
    )
    yield Case(
        "svd of 256 times 32x32",
        lambda: computed(many.svd()),
        lambda: torch.linalg.svd(torch_many),
    )


def best_times(case: Case, turns: int) -> tuple[float, float]:
    """The least seconds of each, run in turns."""
    least = [float("inf"), float("inf")]
    functions = (case.weft, case.torch)
    for function in functions:
        function()
    for _ in range(turns):
        for place, function in enumerate(functions):
            started = time.perf_counter()
            function()
            least[place] = min(least[place], time.perf_counter() - started)
    return least[0], least[1]


def memory(case: Case) -> tuple[float, float]:
    """Megabytes of the results, and the most that was in use at one time beside the inputs."""
    allocator = Device[Device.DEFAULT].allocator
    before, plain = allocator.in_use, allocator.alloc
    most = 0

    def alloc(nbytes: int) -> object:
        nonlocal most
        opaque = plain(nbytes)
        most = max(most, allocator.in_use - before)
        return opaque

    allocator.alloc = alloc
    try:
        result = case.weft()
    finally:
        del allocator.alloc
    tensors = result if isinstance(result, list) else [result]
    return sum(tensor.nbytes() for tensor in tensors) / 1e6, most / 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(THREADS)
    families = (embedding_cases, order_cases, scan_cases, scatter_cases, decompose_cases)
    print(f"{'':36} {'weft ms':>9} {'torch ms':>9} {'ratio':>7} {'result MB':>10} {'peak MB':>9}")
    for family in families:
        for case in family(np.random.default_rng(0)):
            if options.only not in case.name:
                continue
            ours, theirs = best_times(case, options.turns)
            kept, most = memory(case)
            times = f"{ours * 1e3:9.2f} {theirs * 1e3:9.2f} {ours / theirs:7.2f}"
            print(f"{case.name:36} {times} {kept:10.2f} {most:9.2f}")
        gc.collect()


if __name__ == "__main__":
    main()
