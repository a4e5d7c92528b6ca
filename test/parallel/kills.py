"""`python -m test.parallel.kills 200`: ranks are killed at random moments of a training.

Each run of `mpiexec` goes on from the newest checkpoint, saves one after every step, and loses a
rank (kill -9) at a random moment. What has to hold: the others end within `LIMIT` seconds and
mpiexec says why; checkpoints are whole; every loss is, to the last bit, that of a training which
nobody disturbed.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import numpy as np

from test.children import Child

LIMIT = 10.0
# of the training that all others are compared with; what goes beyond starts anew
STEPS = 200


def train(folder: str, steps: int) -> None:
    """A rank: says who it is, then every loss."""
    from weft import Device, Tensor, TinyJit, nn

    devices = nn.parallel.ranks()
    rank = Device["MPI"].ranks.rank
    Tensor.manual_seed(11)
    layers = [nn.Linear(16, 32), nn.Linear(32, 8)]
    for parameter in nn.state.get_parameters(layers):
        parameter.realize()
    model = nn.parallel.FullySharded(Net(layers), devices)
    optimizer = nn.optim.AdamW(nn.state.get_parameters(layers), lr=0.01)
    state = {"layers": layers, "optimizer": optimizer}
    found = nn.checkpoint.resume(folder, state)
    say(f"rank {rank} pid {os.getpid()}")

    @TinyJit
    def step(x: Any, y: Any) -> Any:
        optimizer.zero_grad()
        loss = model(x, y).backward()
        optimizer.step()
        return loss

    with Tensor.train():
        for number in range(0 if found is None else found.step, steps):
            generator = np.random.default_rng(number)
            x = Tensor(generator.standard_normal((8, 16)).astype(np.float32)).realize()
            y = Tensor(generator.integers(0, 8, 8, np.int32)).realize()
            loss = step(x, y).item()
            if rank == 0:
                say(f"loss {number} {loss.hex()}")
            nn.checkpoint.save(folder, number + 1, state)


class Net:
    """Gives the loss of two layers."""

    def __init__(self, layers: list[Any]) -> None:
        self.layers = layers

    def __call__(self, x: Any, y: Any) -> Any:
        return self.layers[1](self.layers[0](x).relu()).sparse_categorical_crossentropy(y)


def say(line: str) -> None:
    """In one piece: the lines of the ranks come together in one stream."""
    os.write(1, (line + "\n").encode())


def start(folder: str, ranks: int, steps: int) -> Child:
    """The ranks, under mpiexec."""
    command = ["mpiexec", "-n", str(ranks), sys.executable, "-m", "test.parallel.kills"]
    root = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
    return Child(
        [*command, "--train", folder, "--steps", str(steps)],
        limit=600,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, **root},
    )


def losses_of(text: str) -> dict[int, str]:
    """By step."""
    return {int(n): value for n, value in re.findall(r"^loss (\d+) (\S+)$", text, re.MULTILINE)}


class Failed(Exception):
    """What should have held did not."""


def kill_once(
    folder: str, ranks: int, steps: int, rng: random.Random, expected: dict[int, str]
) -> str:
    """One run and the death of a rank: what there is to say of it."""
    child = start(folder, ranks, steps)
    lines: Queue[str] = Queue()
    assert child.stdout is not None
    stream = child.stdout
    reader = threading.Thread(target=lambda: [lines.put(line) for line in stream], daemon=True)
    reader.start()
    said: list[str] = []
    pids: dict[int, int] = {}
    try:
        begun = time.monotonic()
        while len(pids) < ranks:
            if time.monotonic() - begun > 120:
                raise Failed(f"the ranks do not start: {''.join(said)[-2000:]}")
            try:
                said.append(lines.get(timeout=1))
            except Empty:
                continue
            found = re.match(r"rank (\d+) pid (\d+)", said[-1])
            if found:
                pids[int(found[1])] = int(found[2])
        time.sleep(rng.random() * rng.choice([0.1, 1.0, 3.0]))
        victim = rng.randrange(ranks)
        os.kill(pids[victim], signal.SIGKILL)
        killed = time.monotonic()
        try:
            child.wait(timeout=LIMIT)
        except subprocess.TimeoutExpired:
            raise Failed(f"ranks still run {LIMIT} s after the death of rank {victim}") from None
        taken = time.monotonic() - killed
        for rank, pid in pids.items():
            while Path(f"/proc/{pid}/stat").exists() and time.monotonic() - killed < LIMIT:
                if Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z":
                    break
                time.sleep(0.05)
            else:
                if Path(f"/proc/{pid}/stat").exists():
                    raise Failed(f"rank {rank} runs on after the death of rank {victim}")
    finally:
        child.end()
    reader.join(5)
    while not lines.empty():
        said.append(lines.get())
    text = "".join(said)
    if child.returncode == 0 or not re.search("signal|weft: rank", text, re.IGNORECASE):
        raise Failed(f"nobody said why: {child.returncode}, {text[-500:]}")
    check(folder, text, expected)
    return f"rank {victim}, {taken:.2f} s, {len(losses_of(text))} steps"


def check(folder: str, text: str, expected: dict[int, str]) -> None:
    """Losses are those of the undisturbed training, and what is saved can be read."""
    from weft import nn

    for number, value in losses_of(text).items():
        if expected[number] != value:
            raise Failed(f"step {number} gives {value}, undisturbed {expected[number]}")
    for number in nn.checkpoint.steps(folder):
        found = nn.checkpoint.load(folder, number)
        assert found is not None
        for tensor in found.tensors.values():
            tensor.numpy()


def kill(count: int, ranks: int, steps: int, seed: int) -> None:
    """So many deaths in one training; `Failed` if something does not hold."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as place:
        child = start(f"{place}/undisturbed", ranks, steps)
        text, _ = child.communicate()
        expected = losses_of(text)
        if len(expected) != steps:
            raise Failed(f"the undisturbed training ended at step {len(expected)}: {text[-2000:]}")
        from weft import nn

        folder = f"{place}/disturbed"
        for number in range(count):
            done = nn.checkpoint.steps(folder)
            if done and done[-1] > steps * 3 // 4:
                shutil.rmtree(folder)
            print(f"{number + 1}: {kill_once(folder, ranks, steps, rng, expected)}", flush=True)


def main() -> int:
    """The kills, or a rank of one of them."""
    parser = argparse.ArgumentParser(prog="python -m test.parallel.kills", description=__doc__)
    parser.add_argument("count", nargs="?", type=int, default=200)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--train", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.train:
        train(args.train, args.steps)
        return 0
    kill(args.count, args.ranks, args.steps, args.seed)
    print(f"{args.count} deaths among {args.ranks} ranks: all ended in time, all is whole")
    return 0


if __name__ == "__main__":
    sys.exit(main())
