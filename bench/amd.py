"""The emulator of AMD's GPUs: `python -m bench.amd [size] [--tinygrad PYTHON]`.

A product of two float32 matrices on each architecture: wave instructions a second of the CPU's
time, with and without those that do nothing here (waits and hints). Beside it the same product in
tinygrad's emulator, in a process of its own, where that is installed; else why it did not run. Its
wheels do not hold the emulator (0.14.0: No module named 'test.mockgpu'): a checkout of its sources
does, whose interpreter `--tinygrad` names.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time

import numpy as np

from weft import Device, Tensor
from weft.runtime.amd.counters import Counters
from weft.runtime.amd.emulated import Launched

SILENT = ("wait", "hint")


def measure(arch: str, size: int) -> tuple[Counters, float]:
    """What one product does, and the seconds of the CPU that it takes."""
    name = f"AMD:{arch}"
    agent = Device[name].agent  # type: ignore[attr-defined]
    rng = np.random.default_rng(0)
    drawn = [rng.random((size, size), dtype=np.float32) for _ in range(2)]
    a, b = [Tensor(values, device=name).realize() for values in drawn]
    seen: list[Launched] = []
    agent.watchers.append(seen.append)
    product = (a @ b).realize()
    agent.watchers.clear()
    np.testing.assert_allclose(product.numpy(), drawn[0] @ drawn[1], rtol=1e-4)
    done = max(seen, key=lambda each: each.counters.instructions)
    best = float("inf")
    for _ in range(3):
        started = time.process_time()
        done.launch.run()
        best = min(best, time.process_time() - started)
    return done.counters, best


# only names that its users know; seconds of the CPU of the fastest of three
TINYGRAD = """
import sys, time
import numpy as np
from tinygrad import Tensor
size = int(sys.argv[1])
rng = np.random.default_rng(0)
drawn = [rng.random((size, size), dtype=np.float32) for _ in range(2)]
a, b = [Tensor(values, device="AMD").realize() for values in drawn]
best = float("inf")
for _ in range(3):
    started = time.process_time()
    product = (a @ b).realize().numpy()
    best = min(best, time.process_time() - started)
np.testing.assert_allclose(product, drawn[0] @ drawn[1], rtol=1e-4)
print(best)
"""
PATIENCE = 600


def measure_tinygrad(python: str, size: int) -> tuple[float | None, str]:
    """The seconds that tinygrad's emulator takes, or why there are none."""
    # how it is asked for since 0.13, and before
    environment = {**os.environ, "DEV": "MOCK+AMD", "MOCKGPU": "1"}
    command = [python, "-c", TINYGRAD, str(size)]
    try:
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return None, str(error)
    if done.returncode:
        said = [line.strip(" |") for line in done.stderr.splitlines() if "Error" in line]
        return None, said[-1] if said else f"it ended with {done.returncode}"
    return float(done.stdout.split()[-1]), ""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.amd", description=__doc__)
    parser.add_argument("size", nargs="?", type=int, default=512)
    parser.add_argument("--tinygrad", default=sys.executable, help="a Python that has tinygrad")
    given = parser.parse_args(arguments)
    size = given.size
    print(f"{'':10}{'instructions':>14}{'seconds':>10}{'M/s':>8}{'M/s, at work':>14}")
    ours: dict[str, float] = {}
    for arch in ("gfx1100", "gfx1201", "gfx950"):
        counters, seconds = measure(arch, size)
        ours[arch] = seconds
        silent = sum([counters.by_kind.get(kind, 0) for kind in SILENT])
        rate = counters.instructions / seconds / 1e6
        working = (counters.instructions - silent) / seconds / 1e6
        print(f"{arch:10}{counters.instructions:>14}{seconds:>10.4f}{rate:>8.1f}{working:>14.1f}")
    theirs, why = measure_tinygrad(given.tinygrad, size)
    if theirs is None:
        print(f"tinygrad's emulator did not run: {why}")
    else:
        ratio = theirs / ours["gfx1100"]
        print(
            f"tinygrad  {'':14}{theirs:>10.4f}  {ratio:.1f} times weft's gfx1100, copies included"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
