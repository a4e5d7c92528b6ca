"""`python -m test.parallel --devices 4 --steps 50`: a GPT in every parallel way beside one device.

Prints the greatest difference of a loss, and the bytes of parameters and optimiser state that a
device holds, beside what one device holds. `--size gpt2` has the shape of GPT-2 small, and
`mpirun -n 4 python -m test.parallel --ranks` has a process for each device.
"""

from __future__ import annotations

import argparse
import sys

from test.parallel.training import GPT2_SMALL, WAYS, Size, train
from weft import Device, nn

TOLERANCE = 2e-4


def main() -> int:
    """All ways, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m test.parallel", description=__doc__)
    parser.add_argument("ways", nargs="*", help=f"of {', '.join(WAYS)}; all of them if none")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--ranks", action="store_true", help="under mpirun: devices are its ranks")
    parser.add_argument("--size", choices=("small", "gpt2"), default="small")
    args = parser.parse_args()
    size = Size(layers=4) if args.size == "small" else GPT2_SMALL
    devices = tuple([f"CPU:{number + 1}" for number in range(args.devices)])
    if args.ranks:
        devices = nn.parallel.ranks()
    is_first = not args.ranks or Device["MPI"].ranks.rank == 0
    alone, held = train(None, (), size, args.steps)
    whole = sum(held.values())
    if is_first:
        print(f"one device: {alone[0]:.6f} to {alone[-1]:.6f}, {whole} bytes", flush=True)
    failed = 0
    for way in args.ways or WAYS:
        losses, held = train(way, devices, size, args.steps)
        off = max([abs(a - b) for a, b in zip(alone, losses, strict=True)])
        failed += off > TOLERANCE
        most = max(held.values())
        if is_first:
            print(
                f"{way}: differs by {off:.1e}; at most {most / whole:.2f} of the bytes", flush=True
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
