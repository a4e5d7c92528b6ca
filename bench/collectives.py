"""`python -m bench.collectives`: 100 MiB all-reduced by ranks of one machine, beside MPI and gloo.

For each number of ranks one run of `mpiexec`, in which the ways take turns: MPI's own Allreduce,
gloo's (torch.distributed), weft's collective over memory that the ranks share, and a jitted sum of
a tensor that is cut over the ranks. A time is that of the slowest rank. Medians, and the middle
half of the rounds. Every way's result is compared once.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

OWN = ("weft collective", "weft tensor")


def main() -> int:
    """All numbers of ranks, or, inside of mpiexec, the rounds of a rank."""
    parser = argparse.ArgumentParser(prog="python -m bench.collectives", description=__doc__)
    parser.add_argument("--ranks", type=int, nargs="*", default=[2, 4])
    parser.add_argument("--mib", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--port", type=int, default=0, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.port:
        return run_rank(args.mib << 18, args.rounds, args.port)
    code = 0
    for count in args.ranks:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        command = ["mpiexec", "-n", str(count), sys.executable, "-m", "bench.collectives"]
        options = ["--mib", str(args.mib), "--rounds", str(args.rounds), "--port", str(port)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        code |= subprocess.run([*command, *options], env=environment, check=False).returncode
    return code


def run_rank(size: int, rounds: int, port: int) -> int:
    """The rounds, and from rank 0 what they took."""
    from mpi4py import MPI

    comm = MPI.COMM_WORLD
    ways = ways_of(comm, size, port)
    expected = comm.size * (comm.size + 1) / 2
    for name, (start, run, read) in ways.items():
        start()
        run()
        found = read()
        if not (found[0] == found[-1] == found[size // 2] == expected):
            raise SystemExit(f"{name}: {expected} is expected, found {found[0]} to {found[-1]}")
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, (start, run, _) in ways.items():
            start()
            comm.Barrier()
            begun = time.perf_counter()
            run()
            taken[name].append(comm.allreduce(time.perf_counter() - begun, op=MPI.MAX))
    if comm.rank:
        return 0
    print(f"{comm.size} ranks, {size >> 18} MiB of float32, {rounds} rounds:")
    middle = {name: statistics.median(times) for name, times in taken.items()}
    for name, times in taken.items():
        low, _, high = statistics.quantiles(times, n=4)
        own = min(middle[way] for way in OWN)
        print(
            f"  {name:16} {middle[name] * 1e3:7.1f} ms ({low * 1e3:.1f} to {high * 1e3:.1f})"
            f"  {middle[name] / own:.2f} of weft's time",
            flush=True,
        )
    return 0


Way = tuple[Callable[[], Any], Callable[[], Any], Callable[[], np.ndarray]]


def ways_of(comm: Any, size: int, port: int) -> dict[str, Way]:
    """By name: what fills the memory, what adds it up, and what reads the result."""
    import torch
    import torch.distributed as dist

    from weft import Device, Tensor, TinyJit, nn
    from weft.device import Buffer
    from weft.dtype import dtypes
    from weft.engine.add_up import add_up

    rank, own = comm.rank, float(comm.rank + 1)
    given, result = np.full(size, own, np.float32), np.empty(size, np.float32)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=comm.size
    )
    tensor = torch.empty(size)
    devices = nn.parallel.ranks()
    ranks = Device[devices[0]].ranks
    memories = [Buffer(device, size, dtypes.float32).allocate() for device in devices]
    view = np.frombuffer(memories[rank].as_memoryview(allow_zero_copy=True), np.float32)
    rows = np.repeat(np.arange(1, comm.size + 1, dtype=np.float32)[:, None], 1, 1)
    cut = (Tensor(rows).shard(devices, 0).expand(comm.size, size) * 1).contiguous().realize()
    add = TinyJit(lambda x: x.sum(0))
    kept: list[Any] = []
    return {
        "MPI Allreduce": (lambda: None, lambda: comm.Allreduce(given, result), lambda: result),
        "gloo": (
            lambda: tensor.fill_(own),
            lambda: dist.all_reduce(tensor),
            lambda: tensor.numpy(),
        ),
        "weft collective": (
            lambda: view.fill(own),
            lambda: ranks.all_reduce(memories, add_up),
            lambda: view,
        ),
        "weft tensor": (
            kept.clear,
            lambda: kept.append(add(cut).realize()),
            lambda: kept[0].numpy(),
        ),
    }


if __name__ == "__main__":
    sys.exit(main())
