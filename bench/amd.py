"""The emulator of AMD's GPUs: `python -m bench.amd [size]`.

A product of two float32 matrices on each architecture: wave instructions a second of the CPU's
time, with and without those that do nothing here (waits and hints).
"""

from __future__ import annotations

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


def main(arguments: list[str]) -> int:
    size = int(arguments[0]) if arguments else 512
    print(f"{'':10}{'instructions':>14}{'seconds':>10}{'M/s':>8}{'M/s, at work':>14}")
    for arch in ("gfx1100", "gfx1201", "gfx950"):
        counters, seconds = measure(arch, size)
        silent = sum([counters.by_kind.get(kind, 0) for kind in SILENT])
        rate = counters.instructions / seconds / 1e6
        working = (counters.instructions - silent) / seconds / 1e6
        print(f"{arch:10}{counters.instructions:>14}{seconds:>10.4f}{rate:>8.1f}{working:>14.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
