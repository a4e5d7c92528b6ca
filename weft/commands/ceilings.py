"""What this machine can do at most, measured with weft's own kernels in about a second.

What comes in: a device name. What goes out: `Ceilings`, in GFLOP/s, GB/s and microseconds. Where it
sits: under `weft doctor` and `weft profile`, which say how far a program is from them.
The one invariant: a figure is the best of several runs, since a machine is disturbed but never
faster than it is.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

from weft import Device, Tensor, TinyJit, dtypes
from weft.device import Buffer
from weft.knobs import Context

# of a device without and with groups of threads
MATMUL, GROUP_MATMUL = 1024, 4096
ROUNDS = 8
# far larger than any last cache level that a figure of memory should not come from
STREAM_BYTES = 256 << 20
# sums of one call where a cache is measured, so that the call does not count
CACHE_RUNS = 16


@dataclass(frozen=True)
class Ceilings:
    """Rates of one device."""

    matmul_gflops: float
    read_gbs: float
    copy_gbs: float
    launch_us: float
    # of a device with memory of its own: copies from and to the host
    in_gbs: float = 0.0
    out_gbs: float = 0.0
    cache_gbs: tuple[tuple[str, float], ...] = ()  # of one core, by level


def best_seconds(run: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The quickest of several runs, after the ones that compile and capture."""
    for _ in range(3):
        run()
    device = Device[Device.DEFAULT]
    best = float("inf")
    for _ in range(rounds):
        device.synchronize()
        start = time.perf_counter()
        run()
        device.synchronize()
        best = min(best, time.perf_counter() - start)
    return best


def measure_ceilings(stream_bytes: int = STREAM_BYTES, matmul: int = 0) -> Ceilings:
    """Measure the default device."""
    device = Device[Device.DEFAULT]
    matmul = matmul or (GROUP_MATMUL if device.renderer.target.has_local else MATMUL)
    in_gbs = out_gbs = 0.0
    with Context(DEBUG=0):
        square = Tensor.rand(matmul, matmul).realize()
        stream = Tensor.rand(stream_bytes // 4).realize()
        small = Tensor.rand(16).realize()
        multiply = TinyJit(lambda x: (x @ x).realize())
        total = TinyJit(lambda x: x.sum().realize())
        copy = TinyJit(lambda x: (x + 1).realize())
        matmul_seconds = best_seconds(lambda: multiply(square))
        read_seconds = best_seconds(lambda: total(stream))
        copy_seconds = best_seconds(lambda: copy(stream))
        launch_seconds = best_seconds(lambda: copy_small(small))
        if not device.is_host:
            memory = Buffer(device.name, stream_bytes, dtypes.uint8).allocate()
            data = bytearray(stream_bytes)
            in_gbs = stream_bytes / best_seconds(lambda: memory.copyin(data)) / 1e9
            out_gbs = stream_bytes / best_seconds(memory.as_memoryview) / 1e9
    return Ceilings(
        matmul_gflops=2 * matmul**3 / matmul_seconds / 1e9,
        read_gbs=stream_bytes / read_seconds / 1e9,
        copy_gbs=2 * stream_bytes / copy_seconds / 1e9,
        launch_us=launch_seconds * 1e6,
        in_gbs=in_gbs,
        out_gbs=out_gbs,
        cache_gbs=_measure_caches(),
    )


def _measure_caches() -> tuple[tuple[str, float], ...]:
    """How fast one core sums up what fills half of each cache beyond the first."""
    target = Device[Device.DEFAULT].renderer.target
    found: list[tuple[str, float]] = []
    for name in ("l2", "l3"):
        size = getattr(target, name) // 2
        with Context(NUM_CPU_THREADS=1):
            row = Tensor.rand(size // 4).realize()
            total = TinyJit(lambda x: [(x + i).sum().realize() for i in range(CACHE_RUNS)])
            seconds = best_seconds(lambda run=total, x=row: run(x))  # type: ignore[misc]
        found.append((name, CACHE_RUNS * size / seconds / 1e9))
    return tuple(found)


@TinyJit
def copy_small(x: Tensor) -> Tensor:
    """A kernel that does next to nothing: what is left is the launch."""
    return (x + 1).realize()
