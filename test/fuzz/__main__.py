"""`python -m test.fuzz programs --count 1000`, or another kind of KINDS in its place.

Random programs against NumPy (exact ones, ones of floats within a bound, ones of half types to the
bit), random actions on random kernels against the plain kernel, random index expressions against
what they mean, gradients of random programs that look at their values against PyTorch, one method
over values at its edges against PyTorch, or random functions under TinyJit against the same
functions without it. What differs is shrunk and printed as code, with who is to blame.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from test.fuzz import (
    actions,
    edges,
    expressions,
    floats,
    gradients,
    halves,
    jit,
    jit_reads,
    programs,
    sharded,
)
from test.fuzz.culprit import find_culprit
from test.fuzz.programs import Program, run_weft, shrink
from weft import Context, Device, dtypes
from weft.errors import WeftError

# what PYTHON interprets the programs of where a GPU is asked for
GPU_TARGET = "sm_90"
# what a seed shows: None, or a report
Reports = Iterator[str | None]


@dataclass(frozen=True)
class Kind:
    """Programs of a kind: how one is made, what is wrong with it, whether it can run at all."""

    make: type[programs.Generator] | type[floats.FloatGenerator] | type[halves.HalfGenerator]
    difference: Callable[[Program, str | None], str | None]
    is_closed: Callable[[Program], bool]
    units: float  # in the last place that no kernel is blamed for
    run: Callable[..., object] = run_weft


EXACT = Kind(programs.Generator, programs.difference, programs.is_closed, 0)
ROUNDED = Kind(floats.FloatGenerator, floats.difference, floats.is_closed, floats.UNITS)


HALVES = Kind(halves.HalfGenerator, halves.difference, halves.is_closed, 0, halves.run_weft)


def fuzz_programs(args: argparse.Namespace, kind: Kind = EXACT) -> Reports:
    """Random programs, on a device or everywhere, with and without kernel optimisation."""
    ways = [(args.device, int(args.noopt))]
    if args.everywhere:
        ways = [("CPU", 0), ("CPU", 1), ("PYTHON", 0), (f"PYTHON:{GPU_TARGET}", 0)]
    has_doubles = all([_has_doubles(device) for device, _ in ways])
    left, seeds = args.count, itertools.count(args.seed)
    while left:
        program = kind.make(next(seeds), args.length, args.large).run()
        if not has_doubles and "float64" in program.source():
            continue
        left -= 1
        for device, noopt in ways:
            with Context(NOOPT=noopt):
                report = program_report(program, device, kind)
            if report is not None:
                report = f"{report} # on {device or 'the default device'}, NOOPT={noopt}"
                break
        yield report


def _has_doubles(device: str | None) -> bool:
    """Whether programs of float64 run there; where it is refused, the next seed is taken."""
    opened = Device[device or Device.DEFAULT]
    return dtypes.float64 in opened.renderer.supported_dtypes()


def program_report(program: Program, device: str | None, kind: Kind = EXACT) -> str | None:
    """What differs, who is to blame, and a small program that shows it."""

    def fails(smaller: Program) -> bool:
        return kind.difference(smaller, device) is not None

    if not fails(program):
        return None
    small = shrink(program, fails, kind.is_closed)
    culprit = find_culprit(
        lambda: kind.run(small.statements, device),
        lambda: kind.difference(small, device) is None,
        kind.units,
    )
    found = kind.difference(small, device)
    return f"seed {program.seed}: {found}\n# to blame: {culprit}\n{small.source()}\n"


def fuzz_floats(args: argparse.Namespace) -> Reports:
    """Random programs of floats that round, within a bound."""
    return fuzz_programs(args, ROUNDED)


def fuzz_halves(args: argparse.Namespace) -> Reports:
    """Random programs of half types, each of which rounds once a method."""
    return fuzz_programs(args, HALVES)


def fuzz_actions(args: argparse.Namespace) -> Reports:
    """Random sequences of actions on random kernels."""
    for seed in range(args.seed, args.seed + args.count):
        yield actions.check_seed(seed, args.device, target=args.target)


def fuzz_expressions(args: argparse.Namespace) -> Reports:
    """Random expressions of indices."""
    for seed in range(args.seed, args.seed + args.count):
        yield expressions.check_seed(seed)


def fuzz_gradients(args: argparse.Namespace) -> Reports:
    """Gradients of random programs that look at their values and write in place."""
    with Context(NOOPT=int(args.noopt)):
        for seed in range(args.seed, args.seed + args.count):
            yield gradients.check_seed(seed, args.length)


def fuzz_edges(args: argparse.Namespace) -> Reports:
    """One method at a time over edge values, beside PyTorch."""
    for seed in range(args.seed, args.seed + args.count):
        yield edges.check_seed(seed)


def fuzz_jit(args: argparse.Namespace) -> Reports:
    """Random functions under TinyJit; those that plain execution refuses are skipped."""
    if args.device is not None:
        Device.DEFAULT = args.device
    with Context(NOOPT=int(args.noopt)):
        for seed in range(args.seed, args.seed + args.count):
            program = jit.JitGenerator(seed, args.length).run()
            try:
                found = jit.difference(program)
            except Exception:
                continue
            if found is None:
                yield None
                continue
            small = jit.shrink(program, lambda p: jit.difference(p) is not None)
            yield f"seed {seed}: {jit.difference(small)}\n{small.source()}\n"


def fuzz_reads(args: argparse.Namespace) -> Reports:
    """Random functions under TinyJit that read Python state in odd ways."""
    with Context(NOOPT=1):
        for seed in range(args.seed, args.seed + args.count):
            source = jit_reads.ReadGenerator(seed).run()
            found = jit_reads.difference(source)
            yield None if found is None else f"seed {seed}: {found}\n{source}\n"


def fuzz_sharded(args: argparse.Namespace) -> Reports:
    """Random programs on several devices, cut in random ways; every fifth one is a function under
    TinyJit. Functions that plain execution refuses are skipped."""
    for seed in range(args.seed, args.seed + args.count):
        if seed % 5:
            program = programs.Generator(seed, args.length, args.large).run()
            if sharded.difference(program) is None:
                yield None
                continue
            small = shrink(program, lambda p: sharded.difference(p) is not None)
            yield f"seed {seed}: {sharded.difference(small)}\n{small.source()}\n"
            continue
        function = jit.JitGenerator(seed, args.length).run()
        try:
            found = sharded.jit_difference(function)
        except WeftError:
            continue
        yield None if found is None else f"seed {seed}: {found}\n{function.source()}\n"


KINDS: dict[str, tuple[str, Callable[[argparse.Namespace], Reports]]] = {
    "programs": ("programs", fuzz_programs),
    "floats": ("programs of floats", fuzz_floats),
    "halves": ("programs of half types", fuzz_halves),
    "actions": ("sequences of actions", fuzz_actions),
    "expressions": ("expressions", fuzz_expressions),
    "gradients": ("programs", fuzz_gradients),
    "jit": ("functions", fuzz_jit),
    "edges": ("calls of methods", fuzz_edges),
    "reads": ("functions that read state", fuzz_reads),
    "sharded": ("programs and functions on several devices", fuzz_sharded),
}


def main() -> int:
    """Run seeds one after another; print the first failures, shrunk, as code."""
    parser = argparse.ArgumentParser(prog="python -m test.fuzz", description=__doc__)
    parser.add_argument("what", nargs="?", default="programs", choices=tuple(KINDS))
    parser.add_argument("--seed", type=int, default=0, help="the first seed")
    parser.add_argument("--count", type=int, default=200, help="how many")
    parser.add_argument("--length", type=int, default=12, help="statements per program")
    parser.add_argument("--device", default=None, help="where to run (default: the default device)")
    parser.add_argument(
        "--target", default=None, help="a machine whose programs are interpreted, such as sm_90"
    )
    parser.add_argument("--large", action="store_true", help="shapes for vectors, tiles, threads")
    parser.add_argument("--noopt", action="store_true", help="without kernel optimisation")
    parser.add_argument(
        "--everywhere",
        action="store_true",
        help="on CPU, also without optimisation, on PYTHON, and on PYTHON as a GPU",
    )
    parser.add_argument("--most", type=int, default=5, help="stop after so many failures")
    args = parser.parse_args()
    if args.target is not None and args.what != "actions":
        args.device = f"PYTHON:{args.target}"
    what, fuzz = KINDS[args.what]
    done = failures = 0
    for report in fuzz(args):
        done += 1
        if report is not None:
            failures += 1
            print(f"# {report}\n", flush=True)
            if failures >= args.most:
                break
    skipped = (
        f", {args.count - done} skipped"
        if args.what in ("jit", "sharded") and failures == 0
        else ""
    )
    print(f"{done} {what} from seed {args.seed}: {failures} differ{skipped}")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
