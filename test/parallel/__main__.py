"""`python -m test.parallel --devices 4 --steps 50`: a GPT in every parallel way beside one device.

Prints the greatest difference of a loss, and two shares of what one device has: bytes of parameters
and optimiser state that the fullest device holds, and all bytes that are in use there, intermediate
values too. `--size gpt2` has the shape of GPT-2 small, `--size gpt2-short` has its width and depth,
with 1,024 tokens and sequences of 64, and `mpirun -n 4 python -m test.parallel --ranks` has a
process for each device.
"""

from __future__ import annotations

import argparse
import sys

from test.parallel.training import GPT2_SHORT, GPT2_SMALL, WAYS, Size, train
from weft import Device, nn

TOLERANCE = 2e-4
SIZES = {"small": Size(layers=4), "gpt2": GPT2_SMALL, "gpt2-short": GPT2_SHORT}


def main() -> int:
    """All ways, or those that are named."""
    parser = argparse.ArgumentParser(prog="python -m test.parallel", description=__doc__)
    parser.add_argument("ways", nargs="*", help=f"of {', '.join(WAYS)}; all of them if none")
    parser.add_argument("--devices", type=int, default=2)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--ranks", action="store_true", help="under mpirun: devices are its ranks")
    parser.add_argument("--size", choices=tuple(SIZES), default="small")
    args = parser.parse_args()
    size = SIZES[args.size]
    devices = tuple([f"CPU:{number + 1}" for number in range(args.devices)])
    if args.ranks:
        devices = nn.parallel.ranks()
    is_first = not args.ranks or Device["MPI"].ranks.rank == 0
    alone, held, used = train(None, (), size, args.steps)
    whole, whole_used = sum(held.values()), sum(used.values())
    if is_first:
        print(
            f"one device: {alone[0]:.6f} to {alone[-1]:.6f}, {whole} bytes, {whole_used} in use",
            flush=True,
        )
    failed = 0
    for way in args.ways or WAYS:
        losses, held, used = train(way, devices, size, args.steps)
        off = max([abs(a - b) for a, b in zip(alone, losses, strict=True)])
        failed += off > TOLERANCE
        most, most_used = max(held.values()), max(used.values())
        if is_first:
            print(
                f"{way}: differs by {off:.1e}; at most {most / whole:.2f} of the bytes, "
                f"{most_used / whole_used:.2f} of those in use",
                flush=True,
            )
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
