"""Winograd's convolution with its matrices as numbers, and as tensors on a device.

usage: python -m bench.winograd [--runs N] [--seconds S] [--graph | --times]

In: the four shapes of row M21. Out: two tables. One has the operations of the linear programs of a
convolution's kernels and the time to make them, with the matrices as plain numbers (what weft does)
and materialised for the shape and device, the axes of the transforms written out in both. The other
has mean and standard deviation of 30 runs, plain and by Winograd, with both kinds of matrices; a
run is as many calls as take 5 milliseconds together, or three, its time the median of theirs.
All forms take turns until each had 30 runs on quiet cores (`bench/quiet.py`), or for four minutes:
then the quietest count, and ~ says so.
"""

from __future__ import annotations

import argparse
import functools
import statistics
import time
from collections.abc import Callable, Sequence
from itertools import product
from typing import Any

from bench.quiet import Cores, Pace, quietest
from weft import Context, Device, Tensor, TinyJit
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.axes import closed_axes
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.pipeline import lower
from weft.helpers import disable_gc
from weft.mixin import winograd
from weft.uop.node import UOp
from weft.uop.opset import Ops

# batch, channels in and out, side, window
SHAPES = [(1, 3, 16, 32, 3), (8, 16, 32, 64, 3), (16, 32, 64, 128, 3), (8, 16, 32, 64, 5)]
# linearised operations of tinygrad 0.14 for the first three
PEER_OPERATIONS = {0: 1750, 1: 2436, 2: 3240}
RUNS = 30
# of making the programs
REPEATS = 7
# calls that are one run take so long, or are so many; runs that are one turn; and all of them
RUN_SECONDS, LEAST_CALLS, TURN_SECONDS, MOST_SECONDS = 0.005, 3, 0.05, 240.0
# of a transform; a tile of outputs is what is left of them by the window
POINTS = 6


def columns(matrix: Any) -> list[list[Tensor]]:
    """The columns of a matrix along two leading axes, each in memory."""
    found = []
    for shape in ((-1, 1), (1, -1)):
        values = [[float(row[k]) for row in matrix] for k in range(len(matrix[0]))]
        found.append([Tensor(value).reshape(shape).contiguous().realize() for value in values])
    return found


def transformed(pieces: Callable[[int, int], Tensor], matrix: Any) -> Tensor:
    """Both axes at once: columns times pieces, for each pair of columns."""
    first, second = columns(matrix)
    terms = []
    for i, j in product(range(len(first)), range(len(second))):
        piece = pieces(i, j)
        factor = first[i] * second[j]
        factor = factor.reshape((*factor.shape, *[1] * piece.ndim))
        terms.append(factor * piece.reshape((1, 1, *piece.shape)))
    return sum(terms[1:], terms[0])


def tile_of(width: int) -> int:
    """Outputs of a tile along one axis."""
    return POINTS - width + 1


def materialised(x: Tensor, w: Tensor) -> Tensor:
    """A convolution with as many zeros around as keep the size."""
    (batch, inner, side, _), (outer, *_, width) = x.shape, w.shape
    tile = tile_of(width)
    count = side // tile
    padded = x.transpose(0, 1).pad((width // 2,) * 4)
    reach = tile * (count - 1) + 1
    inputs = transformed(
        lambda i, j: padded[:, :, i : i + reach : tile, j : j + reach : tile],
        winograd.INPUTS[POINTS],
    )
    weights = transformed(lambda i, j: w[:, :, i, j], winograd.weights_at(POINTS, width))
    left = weights.reshape(36, outer, 1, inner)
    right = inputs.reshape(36, 1, inner, batch * count * count).transpose(-1, -2)
    products = (left * right).sum(-1).reshape(6, 6, outer, batch, count, count)
    total = transformed(lambda i, j: products[i, j], winograd.outputs_of(POINTS, tile))
    return total.permute(3, 2, 4, 0, 5, 1).reshape(batch, outer, side, side)


def plain(x: Tensor, w: Tensor) -> Tensor:
    return x.conv2d(w, padding=w.shape[-1] // 2)


def tensors(shape: Sequence[int], fill: bool) -> tuple[Tensor, Tensor]:
    batch, inner, outer, side, width = shape
    sizes = (batch, inner, side, side), (outer, inner, width, width)
    if not fill:
        return Tensor.empty(*sizes[0]), Tensor.empty(*sizes[1])
    Tensor.manual_seed(0)
    return Tensor.randn(*sizes[0]).realize(), Tensor.randn(*sizes[1]).realize()


# ------------------------------------------------------------ the graph
def written_out(kernel: UOp, width: int) -> UOp:
    """The axes of the transforms, the short ones, as many copies: what weft does where their
    values are chosen between."""
    closers = [u for u in kernel.toposort() if u.op in (Ops.STORE, Ops.STAGE)]
    for axis in [axis for closer in closers for axis in closed_axes(closer)]:
        if int(axis.src[0].vmax) in (tile_of(width), POINTS):
            kernel = apply_opt(kernel, Opt(OptOps.UPCAST, axis.arg.number, 0))
    return kernel


class Form:
    """The kernels of a convolution; `change` is what is done to them by hand."""

    def __init__(self, result: Tensor, change: Callable[[UOp], UOp] | None = None) -> None:
        self.kernels = [item.kernel for item in result.schedule() if item.kernel is not None]
        self.change = change
        self.operations = 0
        self.spent: list[float] = []

    def make(self) -> None:
        """The linear programs, timed."""
        renderer = Device["CPU"].renderer
        # as compiling does it: the collector would look at all graphs again and again
        with disable_gc():
            started = time.process_time()
            # what weft does by itself, for the other form too
            ready = [self.change(kernel) if self.change else kernel for kernel in self.kernels]
            self.operations = sum([len(lower(kernel, renderer).uops) for kernel in ready])
            self.spent.append(time.process_time() - started)

    @property
    def time(self) -> float:
        """Milliseconds to make them."""
        return statistics.median(self.spent) * 1e3

    def __str__(self) -> str:
        return f"{len(self.kernels)}, {self.operations}, {self.time:.0f}"


def graph_table() -> None:
    print("kernels, linearised operations, milliseconds to make them")
    print("| batch, in, out, side, window | numbers | tensors | ratios | tinygrad 0.14 |")
    print("| --- | --- | --- | --- | --- |")
    for place, shape in enumerate(SHAPES):
        with Context(WINO=1):
            ours = Form(plain(*tensors(shape, fill=False)))
        change = functools.partial(written_out, width=shape[-1])
        theirs = Form(materialised(*tensors(shape, fill=False)), change)
        for _ in range(REPEATS):
            # in turns: the machine is not equally fast all the time
            with Context(WINO=1):
                ours.make()
            theirs.make()
        print(
            f"| {', '.join(map(str, shape))} | {ours} | {theirs} "
            f"| {theirs.operations / ours.operations:.1f}, {theirs.time / ours.time:.1f} "
            f"| {PEER_OPERATIONS.get(place, '-')} |",
            flush=True,
        )


# ------------------------------------------------------------ the time
class Cell:
    """The runs of one form of a convolution, captured, and how quiet the cores were in each."""

    def __init__(
        self, form: Callable[[Tensor, Tensor], Tensor], shape: Sequence[int], wino: int
    ) -> None:
        self.arguments = tensors(shape, fill=True)
        self.step = TinyJit(lambda x, w: form(x, w).realize())
        self.wino = wino
        with Context(WINO=wino):
            for _ in range(5):
                self.step(*self.arguments)
            self.calls = max(LEAST_CALLS, round(RUN_SECONDS / self._call()))
        self.paces: list[tuple[Pace, Pace]] = []  # before and after a run
        self.times: list[float] = []  # in milliseconds

    def _call(self) -> float:
        started = time.perf_counter()
        self.step(*self.arguments)
        return time.perf_counter() - started

    def take_turn(self, cores: Cores) -> None:
        """A few runs more, or one."""
        started = time.perf_counter()
        while True:
            with Context(WINO=self.wino):
                # what ran before left other things in the caches
                self._call()
                before = cores.pace()
                spent = [self._call() for _ in range(self.calls)]
                after = cores.pace()
            self.paces.append((before, after))
            self.times.append(statistics.median(spent) * 1e3)
            if time.perf_counter() - started > TURN_SECONDS:
                break

    def quietest(self, runs: int, cores: Cores) -> tuple[list[float], bool]:
        """The times of its quietest runs, and whether they are as many as wanted, all quiet."""
        chosen, is_quiet = quietest([cores.noise(paces) for paces in self.paces], runs)
        return [self.times[i] for i in chosen], is_quiet and len(chosen) == runs

    def text(self, runs: int, cores: Cores) -> str:
        """Mean and standard deviation of its quietest runs."""
        times, is_quiet = self.quietest(runs, cores)
        mean, deviation = statistics.mean(times), statistics.pstdev(times)
        return f"{mean:.3f} ms, {100 * deviation / mean:.1f} %{'' if is_quiet else ' ~'}"


def time_table(runs: int, most_seconds: float) -> None:
    """WINO 0 and 1, numbers and tensors."""
    cores = Cores()
    forms = [(plain, 0), (plain, 1), (materialised, 1)]
    rows = [[Cell(form, shape, wino) for form, wino in forms] for shape in SHAPES]
    cells = [cell for row in rows for cell in row]
    started = time.perf_counter()
    while not all([cell.quietest(runs, cores)[1] for cell in cells]):
        for cell in cells:
            if not cell.quietest(runs, cores)[1]:
                cell.take_turn(cores)
        is_late = time.perf_counter() - started > most_seconds
        if is_late and all([len(cell.times) >= runs for cell in cells]):
            break
    print("| batch, in, out, side, window | WINO=0 | WINO=1 | WINO=1, matrices as tensors |")
    print("| --- | --- | --- | --- |")
    for shape, row in zip(SHAPES, rows, strict=True):
        texts = [cell.text(runs, cores) for cell in row]
        print(f"| {', '.join(map(str, shape))} | {' | '.join(texts)} |", flush=True)


def main(arguments: list[str] | None = None) -> None:
    """Both tables, or one."""
    parser = argparse.ArgumentParser(prog="python -m bench.winograd", description=__doc__)
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--seconds", type=float, default=MOST_SECONDS, help="to find quiet ones")
    parser.add_argument(
        "--graph", action="store_true", help="only operations and time to make them"
    )
    parser.add_argument("--times", action="store_true", help="only the runs")
    asked = parser.parse_args(arguments)
    if not asked.times:
        graph_table()
    if not asked.graph:
        time_table(asked.runs, asked.seconds)


if __name__ == "__main__":
    main()
