"""weft on a GPU beside PyTorch, torch.compile (Triton's kernels) and JAX, in one run.

usage: DEVICE=CUDA python -m bench.cuda [--rounds N] [--without NAME ...] [name ...]

In: workloads by name. Out: a row for each: the rate or time of every framework that is installed,
medians of interleaved rounds after a warm-up, and weft's share of the ceiling that was measured in
the same run: bytes against a copy on the GPU, operations against cuBLAS's bf16 product.
A framework that fails at a row is a dash there, with the reason below the table.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

os.environ.setdefault("DEVICE", "CUDA")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from weft import Device, Tensor, TinyJit, dtypes  # noqa: E402
from weft.device import Buffer  # noqa: E402

ROUNDS = 9
# a round repeats its work until it has taken so long
SECONDS = 0.03
WARM_UP = 3


@dataclass
class Row:
    """A workload: inputs as float32 arrays or shapes, and what each framework computes of them."""

    name: str
    shapes: list[tuple[int, ...]]
    dtype: str
    weft: Callable[..., Any]
    torch: Callable[..., Any] | None
    jax: Callable[..., Any] | None
    amount: float  # operations or bytes of one call; 0: the time is shown
    unit: str  # TFLOP/s, TB/s or us


def gelu_chain(x: Any, tanh: Callable[[Any], Any]) -> Any:
    """Elementwise, and cheap beside the bytes."""
    return 0.5 * x * (1 + tanh(0.79788456 * (x + 0.044715 * x * x * x)))


def rows() -> list[Row]:
    found = []
    for dtype, size in (("bfloat16", 4096), ("bfloat16", 8192), ("float32", 8192)):
        found.append(
            Row(
                f"matmul {dtype} {size}",
                [(size, size), (size, size)],
                dtype,
                lambda a, b: a @ b,
                lambda torch, a, b: a @ b,
                lambda jnp, a, b: a @ b,
                2.0 * size**3,
                "TFLOP/s",
            )
        )
    found.append(
        Row(
            "gemv bfloat16 8192",
            [(8192, 8192), (8192, 1)],
            "bfloat16",
            lambda a, x: a @ x,
            lambda torch, a, x: a @ x,
            lambda jnp, a, x: a @ x,
            2.0 * 8192**2,
            "TB/s",
        )
    )
    wide, size = (8192, 8192), 8192.0**2
    for dtype, width in (("float32", 4), ("bfloat16", 2)):
        traffic = 2 * width * size
        found.append(
            Row(
                f"softmax {dtype}",
                [wide],
                dtype,
                lambda x: x.softmax(-1),
                lambda torch, x: torch.softmax(x, -1),
                lambda jnp, x: _jax().nn.softmax(x, -1),
                traffic,
                "TB/s",
            )
        )
        found.append(
            Row(
                f"gelu chain {dtype}",
                [wide],
                dtype,
                lambda x: gelu_chain(x, lambda y: y.tanh()),
                lambda torch, x: gelu_chain(x, torch.tanh),
                lambda jnp, x: gelu_chain(x, jnp.tanh),
                traffic,
                "TB/s",
            )
        )
    found.append(
        Row(
            "layernorm bfloat16",
            [wide],
            "bfloat16",
            lambda x: x.layernorm(),
            lambda torch, x: torch.nn.functional.layer_norm(x, x.shape[-1:]),
            lambda jnp, x: (
                (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)
            ),
            4 * size,
            "TB/s",
        )
    )
    found.append(
        Row(
            "rmsnorm bfloat16",
            [wide],
            "bfloat16",
            lambda x: x * (x.float().square().mean(-1, keepdim=True) + 1e-5).rsqrt().cast(x.dtype),
            lambda torch, x: torch.nn.functional.rms_norm(x, x.shape[-1:]),
            lambda jnp, x: x / jnp.sqrt((x * x).mean(-1, keepdims=True) + 1e-5),
            4 * size,
            "TB/s",
        )
    )
    found.append(
        Row(
            "sum float32 1 GiB",
            [(1 << 28,)],
            "float32",
            lambda x: x.sum(),
            lambda torch, x: x.sum(),
            lambda jnp, x: x.sum(),
            float(1 << 30),
            "TB/s",
        )
    )
    heads = (4, 32, 4096, 128)
    found.append(
        Row(
            "causal attention B4 H32 S4096 D128 bfloat16",
            [heads] * 3,
            "bfloat16",
            lambda q, k, v: q.scaled_dot_product_attention(k, v, is_causal=True),
            lambda torch, q, k, v: torch.nn.functional.scaled_dot_product_attention(
                q, k, v, is_causal=True
            ),
            None,
            2.0 * 4 * 32 * 4096 * 4096 * 128,
            "TFLOP/s",
        )
    )
    found.append(
        Row(
            "sort 64K float32",
            [(1 << 16,)],
            "float32",
            lambda x: x.sort()[0],
            lambda torch, x: x.sort()[0],
            lambda jnp, x: jnp.sort(x),
            0,
            "us",
        )
    )
    found.append(
        Row(
            "one jitted kernel",
            [(16,)],
            "float32",
            lambda x: x + 1,
            lambda torch, x: x + 1,
            lambda jnp, x: x + 1,
            0,
            "us",
        )
    )
    return found


# ------------------------------------------------------------ the frameworks
def _jax() -> Any:
    import jax

    return jax


class Weft:
    """TinyJit over the default device."""

    name = "weft"

    def __init__(self) -> None:
        self.device = Device[Device.DEFAULT]

    def prepare(self, row: Row, arrays: list[Any]) -> Callable[[], Any]:
        inputs = [Tensor(a).cast(row.dtype).contiguous().realize() for a in arrays]
        function = TinyJit(lambda *given: row.weft(*given).realize())
        return lambda: function(*inputs)

    def wait(self) -> None:
        self.device.synchronize()


class Torch:
    """PyTorch, op by op or compiled to Triton's kernels."""

    def __init__(self, is_compiled: bool) -> None:
        import torch

        self.torch = torch
        self.is_compiled = is_compiled
        self.name = "torch.compile" if is_compiled else "torch"

    def prepare(self, row: Row, arrays: list[Any]) -> Callable[[], Any]:
        dtype = getattr(self.torch, row.dtype)
        inputs = [self.torch.from_numpy(a).cuda().to(dtype) for a in arrays]
        written = row.torch
        if written is None:
            raise NotImplementedError("not written")

        def function(*given: Any) -> Any:
            return written(self.torch, *given)

        if not self.is_compiled:
            return lambda: function(*inputs)
        # or after some rows it compiles no more
        self.torch._dynamo.reset()
        # static shapes; its own choice of kernels beyond its default costs minutes a row
        called = self.torch.compile(function, dynamic=False)
        return lambda: called(*inputs)

    def wait(self) -> None:
        self.torch.cuda.synchronize()


class Jax:
    """Compiled by XLA."""

    name = "jax"

    def __init__(self) -> None:
        self.jax = _jax()
        if self.jax.default_backend() != "gpu":
            raise ImportError("jax finds no GPU")
        self.last: Any = None

    def prepare(self, row: Row, arrays: list[Any]) -> Callable[[], Any]:
        jnp = self.jax.numpy
        inputs = [self.jax.device_put(a).astype(row.dtype) for a in arrays]
        written = row.jax
        if written is None:
            raise NotImplementedError("not written")
        function = self.jax.jit(lambda *given: written(jnp, *given))

        def call() -> Any:
            self.last = function(*inputs)

        return call

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


def measure(row: Row, found: list[Any], rounds: int, notes: list[str]) -> dict[str, float]:
    """Medians of interleaved rounds, in seconds."""
    generator = np.random.default_rng(1)
    arrays = [generator.standard_normal(shape, dtype=np.float32) for shape in row.shapes]
    ready: dict[str, tuple[Callable[[], Any], Any, int]] = {}
    for framework in found:
        try:
            call = framework.prepare(row, arrays)
            for _ in range(WARM_UP):
                call()
            once = seconds_of(call, framework.wait, 1)
            ready[framework.name] = (call, framework, max(1, round(SECONDS / max(once, 1e-6))))
        except Exception as error:
            reason = (str(error).splitlines() or [""])[0][:120]
            notes.append(f"{row.name}, {framework.name}: {type(error).__name__}: {reason}")
    samples: dict[str, list[float]] = {name: [] for name in ready}
    for _ in range(rounds):
        for name, (call, framework, times) in ready.items():
            samples[name].append(seconds_of(call, framework.wait, times))
    return {name: statistics.median(taken) for name, taken in samples.items()}


def shown(row: Row, seconds: float | None) -> str:
    if seconds is None:
        return "–"
    if not row.amount:
        return f"{seconds * 1e6:.1f}"
    return f"{row.amount / seconds / 1e12:.2f}"


def ceilings() -> dict[str, float]:
    """TB/s of a copy on the GPU and TFLOP/s of the library's product, where PyTorch is there."""
    device = Device[Device.DEFAULT]
    source = Buffer(device.name, 1 << 30, dtypes.uint8).allocate()
    target = Buffer(device.name, 1 << 30, dtypes.uint8).allocate()
    source.copyin(bytes(1 << 30))
    once = min(
        seconds_of(lambda: target.copy_from(source), device.synchronize, 10) for _ in range(5)
    )
    return {"TB/s": 2 * (1 << 30) / once / 1e12}


def copies() -> list[str]:
    """From and to the host, as users do it: NumPy's arrays in, NumPy's arrays out."""
    array = np.random.default_rng(2).integers(0, 255, 1 << 30, dtype=np.uint8)
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
    return [f"copy {way}: {(1 << 30) / seconds / 1e9:.1f} GB/s" for way, seconds in best.items()]


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
    eager = seconds_of(lambda: (x + 1).realize(), device.synchronize, 50)
    return [
        f"a jitted call: {both[0] * 1e6:.1f} us",
        f"a kernel inside of one: {(both[1] - both[0]) / 199 * 1e6:.2f} us",
        f"an operation without the jit: {eager * 1e6:.0f} us",
    ]


def main(arguments: list[str]) -> None:
    """The table, then copies and launches."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", help="rows whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--without", nargs="*", default=[], help="frameworks to leave out")
    options = parser.parse_args(arguments)
    found = frameworks(options.without)
    device = Device[Device.DEFAULT]
    print(f"{device.name}: {device.description}")
    most = ceilings()
    print(f"a copy on the GPU: {most['TB/s']:.2f} TB/s")
    names = [framework.name for framework in found]
    print(f"| work | unit | {' | '.join(names)} | of the best | of the ceiling |")
    print(f"|{'---|' * (len(names) + 4)}")
    notes: list[str] = []
    for row in rows():
        if options.names and not any(name in row.name for name in options.names):
            continue
        times = measure(row, found, options.rounds, notes)
        ours = times.get("weft")
        others = [seconds for name, seconds in times.items() if name != "weft"]
        share = f"{min(others) / ours:.0%}" if ours and others else "–"
        if row.unit == "TFLOP/s" and others:
            most[row.unit] = max(most.get(row.unit, 0.0), row.amount / min(others) / 1e12)
        ceiling = most.get(row.unit)
        of_most = f"{row.amount / ours / 1e12 / ceiling:.0%}" if ours and ceiling else "–"
        cells = [shown(row, times.get(name)) for name in names]
        print(
            f"| {row.name} | {row.unit} | {' | '.join(cells)} | {share} | {of_most} |", flush=True
        )
    for line in (*launches(), *copies(), *notes):
        print(line)


if __name__ == "__main__":
    main(sys.argv[1:])
