"""Random instructions of every row of every target, printed by weft and by llvm-mc.

    python -m test.amd.differential [--count N] [--seed S] [--target gfx1201]

In: the tables. Takes every row with random bits in its fields, and asks `llvm-mc -disassemble`
what it is. LLVM's vectors cover four targets in one wave width; this covers the other three, and
waves of 64 lanes on RDNA. Prints how many agree and the rest by row.
"""

from __future__ import annotations

import argparse
import os
import random
import re
import subprocess
import sys
from collections import Counter

from weft.amd.decode import Decoder, decoder
from weft.amd.table import Row, table
from weft.amd.targets import CDNA, TARGETS, Target
from weft.errors import WeftError

MARK = re.compile(r"^\ts_nop (\S+)$")
# two encodings of one number are marks
MARKS = 1 << 16


def random_word(row: Row, source: random.Random) -> bytes:
    """An instruction of a row; its registers are low, so that ranges of them are in bounds."""
    word = row.value
    for field in row.layout.fields.values():
        value = source.getrandbits(field.width)
        if field.width >= 7 and source.random() < 0.8:
            value = value & ~0x7F | source.randrange(0, 96, 4)
            if field.width >= 9 and source.random() < 0.7:
                value |= 256
        word |= field.insert(value)
    data = word.to_bytes(row.size, "little")
    return data + source.randbytes(4)


def samples(reader: Decoder, count: int, source: random.Random) -> list[tuple[bytes, str, str]]:
    """(bytes, weft's text, row) of instructions that weft decodes."""
    found = []
    table_of = table(reader.target.family)
    mode = table_of.mode(reader.target, reader.wave)
    for row in table_of.rows:
        if not row.modes & mode or "parser_only" in row.flags or row.mnemonic == "s_nop":
            continue
        for _ in range(count):
            try:
                instruction = reader.decode(random_word(row, source))
                found.append((instruction.data, str(instruction), instruction.row.name))
            except WeftError:
                continue
    return found


def theirs(gpu: Target, wave: int, items: list[bytes]) -> list[str]:
    """What llvm-mc prints for each; "" where it sees no instruction.

    Some bytes end it with a fault, and what it had printed is lost: then it is asked about halves.
    """
    found: list[str] = []
    waiting = [items[start : start + 400] for start in range(0, len(items), 400)][::-1]
    while waiting:
        part = waiting.pop()
        answers, crashed = _ask(gpu, wave, part)
        if not crashed:
            found += answers
        elif len(part) == 1:
            found.append("")
        else:
            middle = len(part) // 2
            waiting += [part[middle:], part[:middle]]
    return found


def _ask(gpu: Target, wave: int, items: list[bytes]) -> tuple[list[str], bool]:
    """Its answers, and whether a fault ended it."""
    lines = []
    for number, data in enumerate(items):
        word = (0xBF800000 | number % MARKS).to_bytes(4, "little")
        lines += [_hex(data), _hex(word)]
    command = ["llvm-mc-22", "-triple=amdgcn", f"-mcpu={gpu.name}", "-disassemble"]
    if gpu.family != CDNA:
        command.append(f"-mattr=+wavefrontsize{wave},-wavefrontsize{96 - wave}")
    # no trace of a fault: to find its lines' names would take seconds
    plain = {**os.environ, "LLVM_DISABLE_SYMBOLIZATION": "1", "LLVM_DISABLE_CRASH_REPORT": "1"}
    text = "\n".join(lines)
    done = subprocess.run(
        command, input=text, capture_output=True, text=True, timeout=600, env=plain
    )
    found: list[str] = []
    current: list[str] = []
    for line in done.stdout.splitlines():
        match = MARK.match(line)
        # after bytes that are none to it llvm-mc may take the mark for a part of them
        lost = (int(match[1], 0) - len(found)) % MARKS if match else MARKS
        if lost < 100:
            found += [""] * lost
            found.append(current[0].strip() if len(current) == 1 and not lost else "")
            current = []
        else:
            current.append(line)
    return found + [""] * (len(items) - len(found)), done.returncode != 0


def _hex(data: bytes) -> str:
    return ",".join(f"{byte:#04x}" for byte in data)


def compare(gpu: Target, wave: int, count: int, seed: int) -> tuple[Counter[str], list[str]]:
    """Counts of a target, and lines for what differs."""
    source = random.Random(seed)
    items = samples(decoder(gpu, wave), count, source)
    answers = theirs(gpu, wave, [data for data, _, _ in items])
    counts: Counter[str] = Counter()
    wrong = []
    for (data, ours, row), other in zip(items, answers, strict=True):
        if not other:
            counts["llvm-mc sees none"] += 1
        elif ours == other:
            counts["alike"] += 1
        else:
            counts["different"] += 1
            wrong.append(f"{gpu} {row} {data.hex()}\n    llvm {other}\n    weft {ours}")
    return counts, wrong


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.amd.differential")
    parser.add_argument("--count", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--target", default="")
    parser.add_argument("--show", type=int, default=10)
    options = parser.parse_args()
    total: Counter[str] = Counter()
    for gpu in TARGETS.values():
        if options.target not in ("", gpu.name):
            continue
        for wave in (64,) if gpu.family == CDNA else (32, 64):
            counts, wrong = compare(gpu, wave, options.count, options.seed)
            total += counts
            print(f"{gpu} wave{wave}: " + ", ".join(f"{k} {v}" for k, v in counts.items()))
            for line in wrong[:: max(1, len(wrong) // max(1, options.show))]:
                print("  " + line)
    share = total["different"] / max(1, total["different"] + total["alike"])
    print(f"{share:.3%} of what both decode differs")
    return int(share > 0.005)


if __name__ == "__main__":
    sys.exit(main())
