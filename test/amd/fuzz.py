"""Damaged code objects and instruction streams: each is an error of weft's, or still one.

    python -m test.amd.fuzz [--count N] [--seed S]

In: code objects that were built and linked, LLVM's vectors, and lines of assembly. Mutates each
and loads, decodes, prints or assembles it. Anything but a `WeftError` is a failure. A share runs
in the tests.
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import traceback
from collections import Counter
from collections.abc import Callable

from test.amd.corpus import vectors
from test.amd.kernels import compiled, kernels
from weft.amd import elf
from weft.amd.assemble import assemble
from weft.amd.codeobject import Argument, KernelCode, build, load
from weft.amd.decode import decode_all
from weft.amd.link import link
from weft.amd.targets import CDNA, TARGETS
from weft.errors import WeftError


def mutated(data: bytes, source: random.Random) -> bytes:
    """The bytes with a few changed, cut or repeated."""
    out = bytearray(data)
    for _ in range(source.choice((1, 1, 2, 4))):
        kind = source.random()
        at = source.randrange(max(1, len(out)))
        if kind < 0.6 and out:
            out[at] = source.choice((0, 1, 127, 128, 255, source.randrange(256)))
        elif kind < 0.8:
            out[at : at + 8] = source.choice((b"\xff" * 8, bytes(8), source.randbytes(8)))
        elif kind < 0.9:
            del out[at:]
            out += b"\0"
        else:
            out[at:at] = out[at : at + source.randrange(64)]
    return bytes(out)


def originals() -> list[bytes]:
    """Code objects and relocatable objects of several targets."""
    found = []
    chosen = list(itertools.islice(kernels(), 0, 300, 61))
    for name in ("gfx1100", "gfx1201", "gfx942"):
        gpu = TARGETS[name]
        end = bytes.fromhex("000081bf" if gpu.family == CDNA else "0000b0bf")
        found.append(build(gpu, KernelCode("k", end, [Argument("a"), Argument("b")])))
        found += [compiled(ir, name) for _, ir in chosen[:2]]
        found.append(link(compiled(chosen[2][1], name)))
    return found


class Fuzzer:
    """Makes one damaged input after the other."""

    def __init__(self, seed: int):
        self.source = random.Random(seed)
        self.objects = originals()
        self.sample = vectors(every=97, first=seed % 97)

    def code_object(self) -> None:
        """A file that was changed."""
        data = mutated(self.source.choice(self.objects), self.source)
        relocatable = elf.read(data).type == elf.RELOCATABLE
        loaded = load(link(data) if relocatable else data)
        loaded.image(self.source.choice((0, 4096, 1 << 40)))

    def stream(self) -> None:
        """Instructions one after the other, changed."""
        target = self.source.choice(list(TARGETS))
        parts = [self.source.choice(self.sample).data for _ in range(self.source.randrange(1, 6))]
        for instruction in decode_all(mutated(b"".join(parts), self.source), target):
            str(instruction)

    def text(self) -> None:
        """A line of assembly, changed."""
        vector = self.source.choice(self.sample)
        data = mutated(vector.text.encode(), self.source)
        assemble(data.decode("utf-8", "replace"), vector.target)


def run(count: int, seed: int) -> Counter[str]:
    """Counts by outcome; an exception that is not weft's is raised."""
    fuzzer = Fuzzer(seed)
    kinds: list[Callable[[], None]] = [fuzzer.code_object, fuzzer.stream, fuzzer.text]
    outcomes: Counter[str] = Counter()
    for number in range(count):
        kind = kinds[number % 3]
        try:
            kind()
        except WeftError:
            outcomes[f"{kind.__name__}: error"] += 1
        except Exception:
            print(f"seed {seed}, input {number}, {kind.__name__}")
            raise
        else:
            outcomes[f"{kind.__name__}: taken"] += 1
    return outcomes


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.amd.fuzz")
    parser.add_argument("--count", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    try:
        outcomes = run(options.count, options.seed)
    except Exception:
        traceback.print_exc()
        return 1
    print(", ".join(f"{name} {number}" for name, number in sorted(outcomes.items())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
