"""`torch.compile` on weft beside eager PyTorch and PyTorch's own compiler, net by net.

    python -m bench.torch_compile [NET ...] [--modes eval,train,autocast,dynamic] [--rounds 7]
                                  [--threads 2] [--shard 0/4] [--json FILE]

Every net of bench.torch_nets without gradients (eval), as a training step (train), in bfloat16 by
autocast (autocast), and with a batch of another size in every call (dynamic). One process, the
three interleaved, CPU seconds of all threads; a ratio above 1 means that weft takes less than the
better of both others. Compile seconds are those of the first call, CPU seconds of compilers that
run as processes of their own included. Caches are empty at the beginning.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

# of the nets that are measured in each mode beside eval
TRAINED = ("resnet18", "mobilenet_v2", "unet", "vit", "gpt2", "mlp", "recommender")
AUTOCAST = ("vit", "bert", "gpt2", "llama")
DYNAMIC = ("mlp", "resnet18", "gpt2", "recommender")
BACKENDS = ("eager", "inductor", "weft")


def cpu_seconds() -> float:
    """Of this process and of its children that have ended."""
    return sum(
        resource.getrusage(who).ru_utime + resource.getrusage(who).ru_stime
        for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )


def calls_of(name: str, mode: str, backend: str) -> Callable[[int], Any]:
    """One call of a net in a mode; its argument counts the calls."""
    import torch

    from bench.torch_nets import NETS

    torch.manual_seed(0)
    model, inputs = NETS[name](False)
    model.train(mode == "train")
    function: Any = model
    if backend != "eager":
        function = torch.compile(
            model, backend=backend, dynamic=True if mode == "dynamic" else None
        )
    batches = [inputs]
    if mode == "dynamic":
        batches = [tuple(torch.cat([x] * times) for x in inputs) for times in (1, 2, 3)]

    @contextlib.contextmanager
    def inference() -> Iterator[None]:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=mode == "autocast"):
            yield

    def call(number: int) -> Any:
        if mode == "train":
            for parameter in model.parameters():
                parameter.grad = None
            loss = function(*inputs)
            loss = loss[0] if isinstance(loss, tuple) else loss
            return loss.square().mean().backward()
        with inference():
            return function(*batches[number % len(batches)])

    return call


def measure(name: str, mode: str, rounds: int) -> dict[str, Any]:
    """Milliseconds of a call and seconds of the first one, for each backend."""
    import torch

    torch._dynamo.reset()
    row: dict[str, Any] = {"net": name, "mode": mode}
    calls: dict[str, Callable[[int], Any]] = {}
    for backend in BACKENDS:
        started = cpu_seconds()
        try:
            call = calls_of(name, mode, backend)
            for number in range(3):
                call(number)
        except Exception as error:  # noqa: BLE001
            row[f"{backend}_error"] = f"{type(error).__name__}: {error}"[:200]
            continue
        row[f"{backend}_compile_s"] = cpu_seconds() - started
        calls[backend] = call
    seconds: dict[str, list[float]] = {backend: [] for backend in calls}
    started = time.perf_counter()
    calls["eager"](0)
    many = max(3, min(200, 3 * int(0.02 / (time.perf_counter() - started))))
    for _ in range(rounds):
        for backend, call in calls.items():
            before = time.process_time()
            for number in range(many):
                call(number)
            seconds[backend].append((time.process_time() - before) / many)
    for backend, found in seconds.items():
        row[f"{backend}_ms"] = statistics.median(found) * 1e3
    others = [row[f"{b}_ms"] for b in ("eager", "inductor") if f"{b}_ms" in row]
    if "weft_ms" in row and others:
        row["ratio"] = min(others) / row["weft_ms"]
    return row


def text_of(row: dict[str, Any]) -> str:
    """A row of the table."""

    def number(key: str) -> str:
        return f"{row[key]:10.2f}" if key in row else f"{'-':>10}"

    parts = [f"{row['net'] + ' ' + row['mode']:22}"]
    parts += [number(f"{backend}_ms") for backend in BACKENDS]
    parts += [number("ratio"), number("inductor_compile_s"), number("weft_compile_s")]
    errors = [f"{b}: {row[f'{b}_error']}" for b in BACKENDS if f"{b}_error" in row]
    return "".join(parts) + ("  " + "; ".join(errors) if errors else "")


def summary(rows: list[dict[str, Any]]) -> str:
    """Geometric means."""
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    compiles = [
        row["inductor_compile_s"] / row["weft_compile_s"]
        for row in rows
        if "inductor_compile_s" in row and "weft_compile_s" in row
    ]
    lines = []
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        lines.append(f"time: {mean:.2f} of the better of both, least {min(ratios):.2f}")
    if compiles:
        mean = math.exp(statistics.fmean(map(math.log, compiles)))
        lines.append(
            f"compiling: inductor takes {mean:.1f} times as long, least {min(compiles):.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    """Measures and prints."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("nets", nargs="*")
    parser.add_argument("--modes", default="eval,train,autocast,dynamic")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--shard", default="0/1")
    parser.add_argument("--json")
    parser.add_argument("--summary", nargs="*", help="files of --json to put together")
    asked = parser.parse_args()
    if asked.summary:
        rows = [json.loads(line) for path in asked.summary for line in open(path)]
        print("\n".join([*map(text_of, rows), summary(rows)]))
        return
    with tempfile.TemporaryDirectory() as folder:
        # before PyTorch and weft are imported, which read them once
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = os.path.join(folder, "inductor")
        os.environ["XDG_CACHE_HOME"] = os.path.join(folder, "weft")
        os.environ["OMP_NUM_THREADS"] = str(asked.threads)
        run(asked)


def run(asked: argparse.Namespace) -> None:
    import torch

    import weft.torch
    from bench.torch_nets import NETS

    torch.set_num_threads(asked.threads)
    torch._dynamo.config.allow_rnn = True
    modes = asked.modes.split(",")
    chosen = [(name, "eval") for name in NETS if "eval" in modes]
    for mode, names in (("train", TRAINED), ("autocast", AUTOCAST), ("dynamic", DYNAMIC)):
        chosen += [(name, mode) for name in names if mode in modes]
    chosen = [(name, mode) for name, mode in chosen if not asked.nets or name in asked.nets]
    first, step = map(int, asked.shard.split("/"))
    print(f"{'':22}{'eager ms':>10}{'inductor':>10}{'weft':>10}{'ratio':>10}{'compile s':>20}")
    rows = []
    for name, mode in chosen[first::step]:
        rows.append(measure(name, mode, asked.rounds))
        print(text_of(rows[-1]), flush=True)
        if asked.json:
            with open(asked.json, "a") as file:
                file.write(json.dumps(rows[-1]) + "\n")
    print(summary(rows))
    print(weft.torch.report(), file=sys.stderr)


if __name__ == "__main__":
    main()
