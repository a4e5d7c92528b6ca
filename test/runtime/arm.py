"""The corpus on aarch64, under qemu: `python -m test.runtime.arm [programs ...]`.

Each kernel becomes an object by llvmlite's own backend, is linked with a few instructions that call
it and write its memory out, and runs under `qemu-aarch64-static`. Needs the Debian packages
qemu-user-static and binutils-aarch64-linux-gnu; without them it says so and does nothing.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from test.renderer.corpus import PROGRAMS, Case, cases_of, check_contents
from test.runtime.triples import SYSTEMS, object_of
from weft.codegen.pipeline import lower
from weft.renderer.base import ProgramSpec
from weft.renderer.llvmir import LLVMRenderer

TOOLS = ("qemu-aarch64-static", "aarch64-linux-gnu-as", "aarch64-linux-gnu-ld")
PACKAGES = "qemu-user-static binutils-aarch64-linux-gnu"
ARM = next(system for system in SYSTEMS if system.triple.startswith("aarch64-unknown-linux"))
LIMIT = 300
# kernels may read a vector beyond the last element that counts
SLACK = 64

# Calls the kernel with its arguments and all of its axis, writes the memory to standard output.
MAIN = """
.globl _start
.text
_start:
  adrp x0, args
  add x0, x0, :lo12:args
  mov x1, #0
  ldr x2, ={threads}
  bl kernel
  adrp x19, memory
  add x19, x19, :lo12:memory
  ldr x20, ={nbytes}
again:
  mov x0, #1
  mov x1, x19
  mov x2, x20
  mov x8, #64
  svc #0
  cmp x0, #0
  ble done
  add x19, x19, x0
  subs x20, x20, x0
  b.gt again
done:
  mov x0, #0
  mov x8, #93
  svc #0
  .ltorg
.data
.balign 64
memory:
  .incbin "memory.bin"
.balign 64
args:
{arguments}
"""


def missing() -> list[str]:
    """The tools that are not there."""
    return [tool for tool in TOOLS if shutil.which(tool) is None]


def run_arm(case: Case, spec: ProgramSpec, folder: Path) -> list[bytes]:
    """The contents of the buffers after a run."""
    (folder / "kernel.o").write_bytes(object_of(case.kernel, ARM, "kernel"))
    contents, starts = b"", []
    for some in case.before:
        starts.append(len(contents))
        contents += some + bytes(-len(some) % 64 + SLACK)
    (folder / "memory.bin").write_bytes(contents)
    words = [f"memory + {start}" for start in starts[: spec.buffer_count]]
    words += [str(case.values[v.arg.name]) for v in spec.variables]
    arguments = "\n".join([f"  .quad {word}" for word in words])
    text = MAIN.format(threads=spec.threads_n, nbytes=len(contents), arguments=arguments)
    (folder / "main.s").write_text(text)
    for command in (
        ["aarch64-linux-gnu-as", "main.s", "-o", "main.o"],
        ["aarch64-linux-gnu-ld", "-static", "main.o", "kernel.o", "-o", "program"],
    ):
        subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=LIMIT)
    done = subprocess.run(
        ["qemu-aarch64-static", "./program"], cwd=folder, capture_output=True, timeout=LIMIT
    )
    if done.returncode:
        raise RuntimeError(f"{case.name} ends with {done.returncode}: {done.stderr[:200]!r}")
    return [
        done.stdout[start : start + len(some)]
        for start, some in zip(starts, case.before, strict=True)
    ]


def main(names: list[str]) -> int:
    """Runs the programs; how many kernels were wrong."""
    absent = missing()
    if absent:
        print(f"skipped: {', '.join(absent)} not installed: apt-get install {PACKAGES}")
        return 0
    right = wrong = 0
    with tempfile.TemporaryDirectory(prefix="weft-arm-") as folder:
        for name in names or PROGRAMS:
            for case in cases_of(name):
                spec = lower(case.kernel, LLVMRenderer(ARM.target))
                try:
                    check_contents(case, spec, run_arm(case, spec, Path(folder)))
                    right += 1
                except (AssertionError, RuntimeError, subprocess.SubprocessError) as error:
                    wrong += 1
                    print(f"{case.name}: {error}")
    print(f"aarch64 under qemu: {right} kernels right, {wrong} wrong")
    return wrong


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
