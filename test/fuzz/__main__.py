"""`python -m test.fuzz [programs|actions|jit] --count 1000 --seed 0 --device PYTHON`

Random programs against NumPy, random actions on random kernels against the plain kernel, or random
functions under TinyJit against the same functions without it. What differs is shrunk and printed as
code, with who is to blame.
"""

from __future__ import annotations

import argparse
import sys

from test.fuzz import jit
from test.fuzz.actions import check_seed
from test.fuzz.culprit import find_culprit
from test.fuzz.programs import Generator, Program, difference, run_weft, shrink
from weft import Context


def blame(program: Program, device: str | None) -> str:
    """Who makes a program go wrong."""
    return find_culprit(
        lambda: run_weft(program.statements, device), lambda: difference(program, device) is None
    )


def main() -> int:
    """Run seeds one after another; print the first failures, shrunk, as code."""
    parser = argparse.ArgumentParser(prog="python -m test.fuzz", description=__doc__)
    parser.add_argument(
        "what", nargs="?", default="programs", choices=("programs", "actions", "jit")
    )
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200, help="how many programs")
    parser.add_argument("--length", type=int, default=12, help="statements per program")
    parser.add_argument("--device", default=None, help="where to run (default: the default device)")
    parser.add_argument("--large", action="store_true", help="shapes for vectors, tiles, threads")
    parser.add_argument("--noopt", action="store_true", help="without kernel optimisation")
    parser.add_argument("--most", type=int, default=5, help="stop after so many failures")
    args = parser.parse_args()
    if args.what == "jit":
        return fuzz_jit(args)
    failures = 0
    if args.what == "actions":
        for seed in range(args.seed, args.seed + args.count):
            report = check_seed(seed, args.device)
            if report is not None:
                failures += 1
                print(f"# {report}\n", flush=True)
                if failures >= args.most:
                    break
        print(f"{args.count} sequences of actions from seed {args.seed}: {failures} differ")
        return 1 if failures else 0

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
            print(f"# to blame: {blame(small, args.device)}")
            print(small.source(), "\n", flush=True)
            if failures >= args.most:
                break
    print(f"{args.count} programs from seed {args.seed}: {failures} differ")
    return 1 if failures else 0


def fuzz_jit(args: argparse.Namespace) -> int:
    """The same for functions under TinyJit; programs that plain execution refuses are skipped."""
    failures = skipped = 0
    with Context(NOOPT=int(args.noopt)):
        for seed in range(args.seed, args.seed + args.count):
            program = jit.JitGenerator(seed, args.length).run()
            try:
                found = jit.difference(program)
            except Exception:
                skipped += 1
                continue
            if found is None:
                continue
            failures += 1
            small = jit.shrink(program, lambda p: jit.difference(p) is not None)
            print(f"# seed {seed}: {jit.difference(small)}")
            print(small.source(), "\n", flush=True)
            if failures >= args.most:
                break
    print(f"{args.count} functions from seed {args.seed}: {failures} differ, {skipped} skipped")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
