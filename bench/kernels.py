"""Generated kernels against NumPy and PyTorch: the same arrays, the same threads, interleaved.

usage: python bench/kernels.py [--seconds S] [--opts] [name ...]
(one thread: OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 NUM_CPU_THREADS=1 before it)

In: kernels built by hand, as the schedule would make them. Out: a line per kernel: best time of
each side, ratio to the best peer (above 1: weft is faster), and the error against float64. Outputs
are reused where the peer can, so that nobody pays for fresh pages.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from weft.codegen.pipeline import lower  # noqa: E402
from weft.device import Buffer, Device  # noqa: E402
from weft.dtype import dtypes, from_numpy_dtype  # noqa: E402
from weft.engine.programs import runner_for  # noqa: E402
from weft.uop.args import AxisType, KernelInfo  # noqa: E402
from weft.uop.node import UOp  # noqa: E402
from weft.uop.opset import Ops  # noqa: E402

Array = np.ndarray[Any, np.dtype[np.float32]]
SECONDS = 0.3
ROUNDS = 5


@dataclass
class Case:
    """One kernel, its arrays (the output first), what it should give, and who else computes it."""

    name: str
    kernel: Any
    arrays: list[Array]
    expected: Callable[[], Any]
    peers: dict[str, Callable[[], Any]]
    amount: float  # operations, or bytes where memory is the limit
    unit: str


def random_array(*shape: int) -> Array:
    return np.random.default_rng(len(shape)).standard_normal(shape, np.float32)


# ------------------------------------------------------------ kernels
def _param(slot: int, size: int) -> UOp:
    return UOp.param(slot, dtypes.float32, size)


def _loops(*sizes: int) -> list[UOp]:
    return [UOp.range(size, number) for number, size in enumerate(sizes)]


def _reduces(*sizes: int) -> list[UOp]:
    return [UOp.range(size, 10 + number, AxisType.REDUCE) for number, size in enumerate(sizes)]


def _kernel(name: str, store: UOp) -> UOp:
    return UOp.sink(store, arg=KernelInfo(name))


def _const(value: float) -> UOp:
    return UOp.const(dtypes.float32, value)


def product(m: int, n: int, k: int, turned: bool) -> UOp:
    (i, j), (r,) = _loops(m, n), _reduces(k)
    right = j * k + r if turned else r * n + j
    terms = _param(1, m * k).index(i * k + r).load() * _param(2, k * n).index(right).load()
    place = _param(0, m * n).index(i * n + j)
    return _kernel("product", place.store(terms.reduce(Ops.ADD, r), i, j))


def add(rows: int, columns: int) -> UOp:
    i, j = _loops(rows, columns)
    at, size = i * columns + j, rows * columns
    value = _param(1, size).index(at).load() + _param(2, size).index(at).load()
    return _kernel("add", _param(0, size).index(at).store(value, i, j))


def transpose(rows: int, columns: int) -> UOp:
    i, j = _loops(rows, columns)
    size = rows * columns
    value = _param(1, size).index(j * rows + i).load()
    return _kernel("transpose", _param(0, size).index(i * columns + j).store(value, i, j))


def column_sums(rows: int, columns: int) -> UOp:
    (j,), (r,) = _loops(columns), _reduces(rows)
    total = _param(1, rows * columns).index(r * columns + j).load().reduce(Ops.ADD, r)
    return _kernel("column_sums", _param(0, columns).index(j).store(total, j))


def row_sums(rows: int, columns: int) -> UOp:
    (i,), (r,) = _loops(rows), _reduces(columns)
    total = _param(1, rows * columns).index(i * columns + r).load().reduce(Ops.ADD, r)
    return _kernel("row_sums", _param(0, rows).index(i).store(total, i))


def sum_all(size: int) -> UOp:
    (r,) = _reduces(size)
    total = _param(1, size).index(r).load().reduce(Ops.ADD, r)
    return _kernel("total", _param(0, 1).index(UOp.const(dtypes.weakint, 0)).store(total))


def softmax(rows: int, columns: int) -> UOp:
    (i, j), (r, s) = _loops(rows, columns), _reduces(columns, columns)
    size = rows * columns
    top = _param(1, size).index(i * columns + r).load().reduce(Ops.MAX, r)

    def power(at: UOp) -> UOp:
        x = _param(1, size).index(i * columns + at).load()
        return ((x - top) * _const(1.4426950408889634)).alu(Ops.EXP2)

    scale = _const(1.0).alu(Ops.FDIV, power(s).reduce(Ops.ADD, s))
    return _kernel("softmax", _param(0, size).index(i * columns + j).store(power(j) * scale, i, j))


def layernorm(rows: int, columns: int) -> UOp:
    (i, j), (r, s) = _loops(rows, columns), _reduces(columns, columns)
    size = rows * columns
    mean = _param(1, size).index(i * columns + r).load().reduce(Ops.ADD, r) * _const(1 / columns)

    def centred(at: UOp) -> UOp:
        return _param(1, size).index(i * columns + at).load() - mean

    variance = (centred(s) * centred(s)).reduce(Ops.ADD, s) * _const(1 / columns)
    scale = _const(1.0).alu(Ops.FDIV, (variance + _const(1e-5)).alu(Ops.SQRT))
    value = centred(j) * scale * _param(2, columns).index(j).load()
    value = value + _param(3, columns).index(j).load()
    return _kernel("layernorm", _param(0, size).index(i * columns + j).store(value, i, j))


def convolution(n: int, ci: int, co: int, width: int, k: int) -> UOp:
    (b, o, y, x), (c, p, q) = _loops(n, co, width, width), _reduces(ci, k, k)
    row, column = y + p - k // 2, x + q - k // 2
    inside = (row >= 0) & (row < width) & (column >= 0) & (column < width)
    image = _param(1, n * ci * width * width)
    pixel = image.index(((b * ci + c) * width + row) * width + column, inside).load()
    weight = _param(2, co * ci * k * k).index(((o * ci + c) * k + p) * k + q).load()
    place = _param(0, n * co * width * width).index(((b * co + o) * width + y) * width + x)
    return _kernel("conv", place.store((pixel * weight).reduce(Ops.ADD, c, p, q), b, o, y, x))


# ------------------------------------------------------------ cases
t = torch.from_numpy


def product_case(m: int, n: int, k: int, turned: bool = False) -> Case:
    x, w = random_array(m, k), random_array(*((n, k) if turned else (k, n)))
    out = random_array(m, n)
    right = w.T if turned else w
    return Case(
        f"matmul {m}x{n}x{k}{' turned' if turned else ''}",
        product(m, n, k, turned),
        [out, x, w],
        lambda: x.astype(np.float64) @ right.astype(np.float64),
        {
            "numpy": lambda: np.matmul(x, right, out=out),
            "torch": lambda: torch.matmul(t(x), t(w).T if turned else t(w), out=t(out)),
        },
        2.0 * m * n * k,
        "GFLOPS",
    )


def convolution_case(n: int, ci: int, co: int, width: int, k: int) -> Case:
    image, weight = random_array(n, ci, width, width), random_array(co, ci, k, k)
    result = random_array(n, co, width, width)
    return Case(
        f"conv {n},{ci}->{co},{width},{k}",
        convolution(n, ci, co, width, k),
        [result, image, weight],
        lambda: torch.conv2d(t(image).double(), t(weight).double(), padding=k // 2).numpy(),
        {"torch": lambda: torch.conv2d(t(image), t(weight), padding=k // 2)},
        2.0 * n * co * width * width * ci * k * k,
        "GFLOPS",
    )


def cases() -> Iterator[Case]:
    """The kernels that a tensor compiler lives on."""
    for size in (256, 512, 1024):
        yield product_case(size, size, size)
    yield product_case(1000, 1000, 1000)
    yield product_case(512, 512, 512, turned=True)
    yield product_case(128, 768, 3072, turned=True)
    yield product_case(1, 4096, 4096, turned=True)
    yield product_case(16, 4096, 4096, turned=True)

    side = 4096
    x, y, out = random_array(side, side), random_array(side, side), random_array(side, side)
    row = random_array(side)
    size = float(x.nbytes)
    yield Case(
        "add 16M", add(side, side), [out, x, y], lambda: x + y,
        {
            "numpy": lambda: np.add(x, y, out=out),
            "torch": lambda: torch.add(t(x), t(y), out=t(out)),
        },
        3 * size, "GB/s",
    )  # fmt: skip
    yield Case(
        "sum of columns", column_sums(side, side), [row, x], lambda: x.sum(0, dtype=np.float64),
        {"numpy": lambda: x.sum(0, out=row), "torch": lambda: t(x).sum(0)}, size, "GB/s",
    )  # fmt: skip
    yield Case(
        "sum of rows", row_sums(side, side), [row, x], lambda: x.sum(1, dtype=np.float64),
        {"numpy": lambda: x.sum(1, out=row), "torch": lambda: t(x).sum(1)}, size, "GB/s",
    )  # fmt: skip
    yield Case(
        "sum of all", sum_all(side * side), [row[:1], x], lambda: x.sum(dtype=np.float64),
        {"numpy": lambda: x.sum(), "torch": lambda: t(x).sum()}, size, "GB/s",
    )  # fmt: skip
    yield Case(
        "transpose 4096", transpose(side, side), [out, x], lambda: x.T,
        {"numpy": lambda: np.copyto(out, x.T), "torch": lambda: t(out).copy_(t(x).T)},
        2 * size, "GB/s",
    )  # fmt: skip
    yield Case(
        "softmax 4096x4096", softmax(side, side), [out, x],
        lambda: torch.softmax(t(x).double(), 1).numpy(),
        {"torch": lambda: torch.softmax(t(x), 1, out=t(out))}, 2 * size, "GB/s",
    )  # fmt: skip
    u, v = random_array(4096, 1024), random_array(4096, 1024)
    gain, shift = random_array(1024), random_array(1024) + 1
    yield Case(
        "layernorm 4096x1024", layernorm(4096, 1024), [v, u, gain, shift],
        lambda: torch.layer_norm(
            t(u).double(), (1024,), t(gain).double(), t(shift).double()
        ).numpy(),
        {"torch": lambda: torch.layer_norm(t(u), (1024,), t(gain), t(shift))},
        2.0 * u.nbytes, "GB/s",
    )  # fmt: skip
    for shape in ((8, 16, 32, 64, 3), (1, 64, 64, 56, 3), (1, 512, 512, 7, 3)):
        yield convolution_case(*shape)


# ------------------------------------------------------------ timing
def best_of(function: Callable[[], Any], seconds: float) -> float:
    best = float("inf")
    until = time.perf_counter() + seconds
    while True:
        start = time.perf_counter()
        function()
        now = time.perf_counter()
        best = min(best, now - start)
        if now >= until:
            return best


def measure(case: Case, seconds: float, show_opts: bool) -> str:
    runner = runner_for(case.kernel, "CPU")
    buffers = [
        Buffer.from_opaque("CPU", a.size, from_numpy_dtype(a.dtype), a.ctypes.data, a)
        for a in case.arrays
    ]

    def ours() -> None:
        runner(buffers, {}, False)

    case.arrays[0][...] = np.nan
    ours()
    expected = np.asarray(case.expected())
    error = np.abs(case.arrays[0] - expected).max() / np.abs(expected).max()
    best = dict.fromkeys(["weft", *case.peers], float("inf"))
    for _ in range(ROUNDS):
        for name, function in {"weft": ours, **case.peers}.items():
            best[name] = min(best[name], best_of(function, seconds / ROUNDS))
    fastest = min(each for name, each in best.items() if name != "weft")
    times = "  ".join(f"{name} {each * 1e3:8.3f} ms" for name, each in best.items())
    rate = case.amount / best["weft"] / 1e9
    line = f"{case.name:24} {times:58} ratio {fastest / best['weft']:5.2f}"
    line += f"  {rate:6.1f} {case.unit:6}  error {error:.0e}"
    if show_opts:
        renderer = Device["CPU"].renderer
        line += "".join(f"\n    {opt}" for opt in lower(case.kernel, renderer).applied)
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="only kernels whose name contains one of these")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="per kernel and side")
    parser.add_argument("--opts", action="store_true", help="also print the optimisations")
    arguments = parser.parse_args()
    for case in cases():
        if not arguments.names or any(name in case.name for name in arguments.names):
            print(measure(case, arguments.seconds, arguments.opts), flush=True)


if __name__ == "__main__":
    main()
