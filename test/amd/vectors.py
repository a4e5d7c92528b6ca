"""LLVM's vectors, all of them: decoded, printed, assembled again; and by an assembler not ours.

    python -m test.amd.vectors [--every N] [--independent]

Prints how many of the 195,634 decode to the right mnemonic, print LLVM's text and assemble to the
same bytes, and lists the rest by reason. `--independent` gives what weft prints to `llvm-mc` and
compares the bytes. Exit status 1 where a share is below what is promised (100 % and 99.5 %).
"""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence

from test.amd.corpus import Vector, vectors
from weft.amd.assemble import assembler
from weft.amd.decode import decode
from weft.errors import WeftError

PROMISED = 0.995
SUFFIX = re.compile(r"_(e64_dpp|e32|e64|dpp|sdwa)$")
MADE = re.compile(r"^L(\d+):\n[^\n]*encoding: \[([0-9a-fx,]*)\]", re.MULTILINE)


def has_name(vector: Vector) -> bool:
    """Whether it decodes to the right mnemonic and length."""
    found = decode(vector.data, vector.target)
    named = SUFFIX.sub("", vector.text.split()[0]) == found.mnemonics[0]
    return named and found.size == len(vector.data)


def assembled(vector: Vector, text: str) -> bytes:
    """What weft's assembler makes of a text; nothing where it refuses."""
    reader = assembler(vector.target)
    try:
        return reader.encode(reader.parse(text))
    except WeftError:
        return b""


def reason(vector: Vector, made: bytes) -> str:
    """Why LLVM's text does not give the bytes that it was printed for."""
    if vector.target in ("gfx942", "gfx950") and b"\xff" in vector.data and "0x" in vector.text:
        return "a literal where the encoding has none: llvm-mc prints a word of another instruction"
    if "/*" in vector.text and "Invalid register" not in vector.text.partition("/*")[2][:20]:
        return "a comment stands in place of the value"
    if "DP ALU" in vector.text or "invalid" in vector.text or "Invalid imm" in vector.text:
        return "a comment stands in place of the value"
    if made and str(decode(made, vector.target)) == vector.text:
        return "two encodings print alike; the shorter or the one with unused bits clear is made"
    return "other"


def check(sample: Sequence[Vector]) -> tuple[Counter[str], list[tuple[str, Vector]]]:
    """How many hold, and what does not, with the reason."""
    counts: Counter[str] = Counter(all=len(sample))
    left: list[tuple[str, Vector]] = []
    for vector in sample:
        counts["decoded"] += has_name(vector)
        printed = str(decode(vector.data, vector.target)) == vector.text
        made = assembled(vector, vector.text)
        counts["printed"] += printed
        counts["assembled"] += made == vector.data
        counts["both"] += printed and made == vector.data
        if not printed or made != vector.data:
            left.append((reason(vector, made), vector))
    return counts, left


def independent(sample: Iterable[Vector]) -> tuple[Counter[str], list[tuple[Vector, str]]]:
    """What llvm-mc makes of the text that weft prints; misaligned registers it refuses."""
    program = shutil.which("llvm-mc-22") or shutil.which("llvm-mc")
    if program is None:
        raise SystemExit("llvm-mc is not installed: apt-get install llvm-22")
    groups: dict[str, list[tuple[Vector, str]]] = {}
    counts: Counter[str] = Counter()
    for vector in sample:
        text = str(decode(vector.data, vector.target))
        if "/*" in text:
            counts["refused by design"] += 1
        else:
            groups.setdefault(vector.target, []).append((vector, text))
    wrong = []
    for target, items in groups.items():
        command = [program, "-triple=amdgcn", f"-mcpu={target}", "-show-encoding"]
        lines = "\n".join(f"L{number}:\n{text}" for number, (_, text) in enumerate(items))
        done = subprocess.run(command, input=lines, capture_output=True, text=True, timeout=600)
        made = dict(MADE.findall(done.stdout))
        for number, (vector, text) in enumerate(items):
            data = _bytes(made.get(str(number), ""))
            if not data and text == vector.text:
                # llvm-mc refuses what its own disassembler prints: registers that the hardware
                # of this target has not, results that overlap sources
                counts["refused by llvm-mc, printed so by itself"] += 1
                continue
            counts["checked"] += 1
            counts["same"] += data == vector.data
            if data != vector.data:
                wrong.append((vector, text))
    return counts, wrong


def _bytes(encoding: str) -> bytes:
    return bytes(int(part, 16) for part in encoding.split(",") if part)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.amd.vectors")
    parser.add_argument("--every", type=int, default=1)
    parser.add_argument("--independent", action="store_true")
    options = parser.parse_args()
    sample = vectors(every=options.every)
    if options.independent:
        counts, wrong = independent(sample)
        for vector, text in wrong[:40]:
            print(f"  {vector.target} {vector.data.hex()} {text}")
        print(", ".join(f"{name} {count}" for name, count in counts.items()))
        return int(counts["same"] < PROMISED * counts["checked"])
    counts, left = check(sample)
    for why, number in Counter(why for why, _ in left).most_common():
        print(f"{number:5} {why}")
        for _, vector in [item for item in left if item[0] == why][:8]:
            print(f"        {vector.target} {vector.data.hex()} {vector.text}")
    total = counts["all"]
    for name in ("decoded", "printed", "assembled", "both"):
        print(f"{name}: {counts[name]} of {total}, {counts[name] / total:.3%}")
    return int(counts["decoded"] < total or counts["both"] < PROMISED * total)


if __name__ == "__main__":
    sys.exit(main())
