"""Three hundred kernels on all targets: linked, built anew, and read by LLVM's tools.

    python -m test.amd.objects [--every N]

In: the kernels of `kernels`, compiled by llvmlite. Each is linked; its machine code is also built
into a code object of its own. llvm-readelf must read both without a word of complaint, and
llvm-objdump must print the instructions that weft prints. Exit status 1 where one does not hold.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from test.amd.kernels import compiled, kernels
from weft.amd.codeobject import Argument, KernelCode, build, load
from weft.amd.decode import decode_all
from weft.amd.dsl import registers_used
from weft.amd.link import link
from weft.amd.targets import TARGETS

PRINTED = re.compile(r"^\s+(\S.*?)\s*// ([0-9A-F]+): [0-9A-F ]+(<.*>)?$", re.MULTILINE)


def write(folder: Path, target: str, every: int, counts: Counter[str]) -> dict[Path, list[str]]:
    """The files of a target, each with what weft prints for its kernel's code."""
    found = {}
    for number, (name, ir) in enumerate(kernels()):
        if number % every:
            continue
        linked = link(compiled(ir, target))
        loaded = load(linked)
        kernel = loaded.kernels[name]
        size = next(each.size for each in loaded.object.symbols if each.name == name)
        code = loaded.image()[kernel.entry : kernel.entry + size]
        instructions = decode_all(code, target)
        lines = [str(each) for each in instructions if each.branch_target is None]
        arguments = [Argument("out"), Argument("in"), Argument("n", 4, value_kind="by_value")]
        built = build(target, KernelCode(name, code, arguments, **registers_used(instructions)))
        assert load(built).kernels[name].arguments[:3] == tuple(kernel.arguments[:3])
        for kind, data in (("linked", linked), ("built", built)):
            path = folder / f"{target}-{name}-{kind}.co"
            path.write_bytes(data)
            found[path] = lines
            counts["files"] += 1
        counts["instructions"] += len(instructions)
    return found


def check(target: str, files: dict[Path, list[str]], counts: Counter[str]) -> None:
    """Ask LLVM's tools about a target's files, a hundred at a time."""
    paths = list(files)
    for start in range(0, len(paths), 100):
        part = paths[start : start + 100]
        read = subprocess.run(
            ["llvm-readelf-22", "-a", *part], capture_output=True, text=True, timeout=300
        )
        counts["complaints of readelf"] += bool(read.returncode) + len(read.stderr.splitlines())
        counts["metadata read"] += read.stdout.count("amdhsa.kernels:")
        dump = subprocess.run(
            ["llvm-objdump-22", "-d", *part], capture_output=True, text=True, timeout=300
        )
        counts["complaints of objdump"] += bool(dump.returncode) + len(dump.stderr.splitlines())
        listings = dump.stdout.split("file format elf64-amdgpu")[1:]
        for path, listing in zip(part, listings, strict=True):
            name = path.stem.split("-")[1]
            function = listing.split(f"<{name}>:\n")[1].split("\n\n")[0]
            theirs = [m[1] for m in PRINTED.finditer(function) if not m[1].startswith("s_cbranch")]
            theirs = [line for line in theirs if not line.startswith("s_branch")]
            same = theirs[: len(files[path])] == files[path]
            counts["listings alike" if same else "listings that differ"] += 1


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m test.amd.objects")
    parser.add_argument("--every", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[str] = Counter()
    for target in TARGETS:
        with tempfile.TemporaryDirectory() as folder:
            check(target, write(Path(folder), target, options.every, counts), counts)
    print(", ".join(f"{name} {number}" for name, number in counts.items()))
    bad = ("complaints of readelf", "complaints of objdump", "listings that differ")
    return int(any(counts[name] for name in bad) or counts["metadata read"] != counts["files"])


if __name__ == "__main__":
    sys.exit(main())
