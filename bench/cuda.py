"""weft on a GPU beside PyTorch, torch.compile (Triton's kernels) and JAX, in one run.

usage: DEVICE=CUDA python -m bench.cuda [--rounds N] [--without NAME ...] [--only PART] [--small]
       [name ...]

In: rows of `cuda_rows` by name. Out: a line for each: the rate or time of every framework that is
installed, medians of interleaved rounds after a warm-up, and weft's share of the ceiling that was
measured in the same run: bytes against a copy on the GPU, operations against the best product. What
weft computes is compared with PyTorch's result. Then launches and copies, and first results of
fresh processes. A framework that fails at a row is a dash there, with the reason below the table.
`--small` tries all of it with little work, on any device. `--warm` only compiles.
"""

from __future__ import annotations

import argparse
import importlib.util
import itertools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("DEVICE", "CUDA")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from bench import frameworks as starts  # noqa: E402
from bench.cuda_rows import Model, Row, kernel_rows, model_rows  # noqa: E402
from weft import Context, Device, Tensor, TinyJit, dtypes  # noqa: E402
from weft.device import Buffer  # noqa: E402

# the frameworks of this folder ask where tensors shall be
os.environ.setdefault("BENCH_DEV", Device.DEFAULT)

ROUNDS = 9
# a round repeats its work until it has taken so long
SECONDS = 0.03
WARM_UP = 3
# what a first result is measured of, its processes, and the most seconds of one
FIRST = ("resnet50_b64", "decode_1b")
STARTS = 3
LIMIT = 120
# relative to the largest element: between results of one dtype that were rounded elsewhere
TOLERANCE = {"float32": 1e-3, "bfloat16": 4e-2}


# ------------------------------------------------------------ the frameworks
class Weft:
    """TinyJit over the default device."""

    name = "weft"

    def __init__(self) -> None:
        self.device = Device[Device.DEFAULT]

    def prepare(self, row: Row, arrays: list[Any]) -> Callable[[], Any]:
        inputs = [Tensor(array) for array in arrays]
        inputs = [x.cast(row.dtype) if x.is_floating_point() else x for x in inputs]
        inputs = [x.contiguous().realize() for x in inputs]
        function = TinyJit(lambda *given: row.weft(*given).realize())

        def call() -> Any:
            with Context(ALLOW_TF32=int(row.tf32)):
                return function(*inputs)

        return call if row.tf32 else lambda: function(*inputs)

    def prepare_model(self, model: Model) -> Callable[[], Any]:
        return starts.prepare("weft", model.case())[0]

    def numbers(self, result: Any) -> Any:
        return result.float().numpy()

    def wait(self) -> None:
        self.device.synchronize()


class Torch:
    """PyTorch, op by op or compiled to Triton's kernels."""

    def __init__(self, is_compiled: bool) -> None:
        import torch

        self.torch = torch
        self.is_compiled = is_compiled
        self.name = "torch.compile" if is_compiled else "torch"
        self.place = "cuda" if Device.DEFAULT.startswith("CUDA") else "cpu"

    def prepare(self, row: Row, arrays: list[Any]) -> Callable[[], Any]:
        torch = self.torch
        dtype = getattr(torch, row.dtype)
        inputs = [torch.from_numpy(array).to(self.place) for array in arrays]
        inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
        written = row.torch
        if written is None:
            raise NotImplementedError("not written")

        def function(*given: Any) -> Any:
            return written(torch, *given)

        if self.is_compiled:
            # or after some rows it compiles no more
            torch._dynamo.reset()
            # static shapes; its own choice of kernels beyond its default costs minutes a row
            function = torch.compile(function, dynamic=False)

        def call() -> Any:
            torch.backends.cuda.matmul.allow_tf32 = row.tf32
            return function(*inputs)

        return call

    def prepare_model(self, model: Model) -> Callable[[], Any]:
        if self.is_compiled:
            self.torch._dynamo.reset()
        self.torch.backends.cuda.matmul.allow_tf32 = False
        return starts.prepare("torch-compile" if self.is_compiled else "torch", model.case())[0]

    def numbers(self, result: Any) -> Any:
        return result.detach().float().cpu().numpy()

    def wait(self) -> None:
        if self.place == "cuda":
            self.torch.cuda.synchronize()


class Jax:
    """Compiled by XLA."""

    name = "jax"

    def __init__(self) -> None:
        import jax

        self.jax = jax
        if Device.DEFAULT.startswith("CUDA") and jax.default_backend() != "gpu":
            raise ImportError("jax finds no GPU")
        self.last: Any = None

    def prepare(self, row: Row, arrays: list[Any]) -> Callable[[], Any]:
        jnp = self.jax.numpy
        inputs = [self.jax.device_put(array) for array in arrays]
        inputs = [x.astype(row.dtype) if x.dtype.kind == "f" else x for x in inputs]
        written = row.jax
        if written is None:
            raise NotImplementedError("not written")
        function = self.jax.jit(lambda *given: written(jnp, *given))

        def call() -> Any:
            self.last = function(*inputs)
            return self.last

        return call

    def prepare_model(self, model: Model) -> Callable[[], Any]:
        return starts.prepare("jax", model.case())[0]

    def numbers(self, result: Any) -> Any:
        return np.asarray(result, dtype=np.float32)

    def wait(self) -> None:
        if self.last is not None:
            self.last.block_until_ready()


def frameworks(without: list[str]) -> list[Any]:
    made: list[Callable[[], Any]] = [Weft]
    if importlib.util.find_spec("torch") is not None:
        made += [lambda: Torch(False), lambda: Torch(True)]
    if importlib.util.find_spec("jax") is not None:
        # or it takes most of the memory for itself
        os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
        made.append(Jax)
    found = []
    for make in made:
        try:
            framework = make()
        except Exception as error:
            print(f"left out: {type(error).__name__}: {str(error).splitlines()[0]}")
            continue
        if framework.name not in without:
            found.append(framework)
    return found


# ------------------------------------------------------------ measuring
def seconds_of(call: Callable[[], Any], wait: Callable[[], None], times: int) -> float:
    wait()
    start = time.perf_counter()
    for _ in range(times):
        call()
    wait()
    return (time.perf_counter() - start) / times


def measure(row: Row | Model, found: list[Any], rounds: int, notes: list[str]) -> dict[str, float]:
    """Medians of interleaved rounds, in seconds."""
    ready: dict[str, tuple[Callable[[], Any], Any, int]] = {}
    results: dict[str, Any] = {}
    is_row = isinstance(row, Row)
    arrays = row.arrays() if isinstance(row, Row) else []
    for framework in found:
        try:
            call = framework.prepare(row, arrays) if is_row else framework.prepare_model(row)
            for _ in range(WARM_UP):
                result = call()
            once = seconds_of(call, framework.wait, 1)
            if is_row and framework.name in ("weft", "torch"):
                results[framework.name] = framework.numbers(result)
            ready[framework.name] = (call, framework, max(1, round(SECONDS / max(once, 1e-6))))
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0][:160]
            notes.append(f"{row.name}, {framework.name}: {type(error).__name__}: {reason}")
    notes += disagreement(row, results)
    samples: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, (call, framework, times) in ready.items():
            samples[name].append(seconds_of(call, framework.wait, times))
    return {name: statistics.median(taken) for name, taken in samples.items() if taken}


def disagreement(row: Row | Model, results: dict[str, Any]) -> list[str]:
    """What is to be said where weft's result is not PyTorch's."""
    if len(results) < 2 or not isinstance(row, Row):
        return []
    ours, theirs = results["weft"], results["torch"]
    if ours.shape != theirs.shape:
        return [f"{row.name}: weft's result has the shape {ours.shape}, PyTorch's {theirs.shape}"]
    off = float(np.abs(ours - theirs).max() / max(float(np.abs(theirs).max()), 1e-30))
    if off <= TOLERANCE[row.dtype]:
        return []
    return [f"{row.name}: weft's result differs from PyTorch's by {off:.2g} of the largest"]


def shown(row: Row | Model, seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if not row.amount:
        return f"{seconds * (1e3 if row.unit == 'ms' else 1e6):.1f}"
    return f"{row.amount / seconds / (1 if isinstance(row, Model) else 1e12):.3g}"


def ceilings(nbytes: int) -> dict[str, float]:
    """TB/s of a copy on the GPU."""
    device = Device[Device.DEFAULT]
    source = Buffer(device.name, nbytes, dtypes.uint8).allocate()
    target = Buffer(device.name, nbytes, dtypes.uint8).allocate()
    source.copyin(bytes(nbytes))
    once = min(
        seconds_of(lambda: target.copy_from(source), device.synchronize, 10) for _ in range(5)
    )
    return {"TB/s": 2 * nbytes / once / 1e12}


def copies(nbytes: int) -> list[str]:
    """From and to the host, as users do it: NumPy's arrays in, NumPy's arrays out."""
    array = np.random.default_rng(2).integers(0, 255, nbytes, dtype=np.uint8)
    device = Device[Device.DEFAULT]
    there: list[Any] = []
    back: list[Any] = []
    best = {"in": 1e9, "out": 1e9}
    for _ in range(4):
        there.clear()
        device.synchronize()
        start = time.perf_counter()
        there.append(Tensor(array).realize())
        device.synchronize()
        best["in"] = min(best["in"], time.perf_counter() - start)
        back.clear()
        start = time.perf_counter()
        back.append(there[0].numpy())
        best["out"] = min(best["out"], time.perf_counter() - start)
    return [f"copy {way}: {nbytes / seconds / 1e9:.1f} GB/s" for way, seconds in best.items()]


def launches() -> list[str]:
    """A kernel inside a graph, and an operation that is not captured."""
    device = Device[Device.DEFAULT]
    x = Tensor.rand(16).realize()

    def chain(x: Tensor) -> Tensor:
        for _ in range(200):
            x = (x * 1.01 + 0.5).contiguous()
        return x.realize()

    many, one = TinyJit(chain), TinyJit(lambda x: (x + 1).realize())
    for _ in range(WARM_UP):
        many(x)
        one(x)
    both = [seconds_of(lambda f=f: f(x), device.synchronize, 200) for f in (one, many)]
    eager = seconds_of(lambda: (x + 1).realize(), device.synchronize, 200)
    return [
        f"a jitted call: {both[0] * 1e6:.1f} us",
        f"a kernel inside of one: {(both[1] - both[0]) / 199 * 1e6:.2f} us",
        f"an operation without the jit: {eager * 1e6:.0f} us",
    ]


def first_results(names: list[str], what: tuple[str, ...]) -> Iterator[str]:
    """Seconds until the first result of fresh processes, with empty caches and with full ones."""
    cores = os.cpu_count() or 1
    for work in what:
        for framework in [name.replace(".", "-") for name in names]:
            taken: dict[str, list[float]] = {"cold": [], "warm": []}
            for _ in range(STARTS):
                with tempfile.TemporaryDirectory() as cache:
                    for state in taken:
                        seconds = _first(framework, work, cores, cache)
                        if seconds is not None:
                            taken[state].append(seconds)
                if framework != "weft":
                    break  # once says enough of what takes so long
            medians = [
                f"{state} {statistics.median(times):.2f} s"
                for state, times in taken.items()
                if times
            ]
            yield f"first result of {work}, {framework}: {', '.join(medians) or 'none'}"


def _first(framework: str, work: str, cores: int, cache: str) -> float | None:
    command = [sys.executable, "-m", "bench.latency_child", framework, work]
    environment = starts.environment(framework, cores, cache)
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=LIMIT, check=True
        )
        return float(json.loads(done.stdout.splitlines()[-1])["result"])
    except (subprocess.SubprocessError, ValueError, LookupError) as error:
        said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
        print(f"{framework} {work}: {said[-1] if said else error}", file=sys.stderr)
        return None


def table(rows: list[Any], found: list[Any], rounds: int, most: dict[str, float]) -> list[str]:
    """Prints a line for each row; what else there is to say."""
    names = [framework.name for framework in found]
    print(f"| work | unit | {' | '.join(names)} | of the best | of the ceiling |")
    print(f"|{'---|' * (len(names) + 4)}")
    notes: list[str] = []
    for row in rows:
        times = measure(row, found, rounds, notes)
        ours = times.get("weft")
        others = [seconds for name, seconds in times.items() if name != "weft"]
        share = f"{min(others) / ours:.0%}" if ours and others else "–"
        if row.unit == "TFLOP/s" and others:
            most[row.unit] = max(most.get(row.unit, 0.0), row.amount / min(others) / 1e12)
        ceiling = most.get(row.unit)
        of_most = f"{row.amount / ours / 1e12 / ceiling:.0%}" if ours and ceiling else "–"
        cells = [shown(row, times.get(name)) for name in names]
        line = f"| {row.name} | {row.unit} | {' | '.join(cells)} | {share} | {of_most} |"
        print(line, flush=True)
    return notes


def main(arguments: list[str]) -> None:
    """The table, then launches, copies and first results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--without", nargs="*", default=[], help="frameworks to leave out")
    parser.add_argument("--only", choices=("kernels", "models", "rest"), help="a part of it")
    parser.add_argument("--small", action="store_true", help="little work, to try it all")
    parser.add_argument("--warm", action="store_true", help="compile all rows, measure nothing")
    options = parser.parse_args(arguments)
    found = frameworks(options.without)
    device = Device[Device.DEFAULT]
    print(f"{device.name}: {device.description}")
    rows: list[Any] = []
    if options.only in (None, "kernels"):
        rows += kernel_rows(options.small)
    if options.only in (None, "models"):
        rows += model_rows(options.small)
    if options.names:
        rows = [row for row in rows if any(name in row.name for name in options.names)]
    if options.warm:
        notes: list[str] = []
        for row in rows:
            measure(row, found, 0, notes)
        print("\n".join(notes))
        return
    nbytes = 1 << 20 if options.small else 1 << 30
    most = ceilings(nbytes)
    print(f"a copy on the GPU: {most['TB/s']:.2f} TB/s")
    if rows:
        notes = table(rows, found, options.rounds, most)
        print("\n".join(notes))
    if not options.names and options.only in (None, "rest"):
        names = [framework.name for framework in found]
        what = ("block",) if options.small else FIRST
        for line in itertools.chain(launches(), copies(nbytes), first_results(names, what)):
            print(line, flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
