"""`python -m test.fuzz --count 1000 --seed 0 --device PYTHON`: random programs against NumPy."""

from __future__ import annotations

import argparse
import sys

from test.fuzz.programs import Generator, Program, difference, shrink
from weft import Context


def main() -> int:
    """Run seeds one after another; print the first failures, shrunk, as code."""
    parser = argparse.ArgumentParser(prog="python -m test.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--length", type=int, default=12, help="statements per program")
    parser.add_argument("--device", default=None, help="where to run (default: the default device)")
    parser.add_argument("--large", action="store_true", help="shapes for vectors, tiles, threads")
    parser.add_argument("--noopt", action="store_true", help="without kernel optimisation")
    parser.add_argument("--most", type=int, default=5, help="stop after so many failures")
    args = parser.parse_args()
    failures = 0

    def fails(program: Program) -> bool:
        return difference(program, args.device) is not None

    with Context(NOOPT=int(args.noopt)):
        for seed in range(args.seed, args.seed + args.count):
            program = Generator(seed, args.length, args.large).run()
            if not fails(program):
                continue
            failures += 1
            small = shrink(program, fails)
            print(f"# seed {seed}: {difference(small, args.device)}")
            print(small.source(), "\n", flush=True)
            if failures >= args.most:
                break
    print(f"{args.count} programs from seed {args.seed}: {failures} differ")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
