"""What NVIDIA's assembler says about kernels, and the budgets that they stay inside.

`python -m test.renderer.ptxas` writes `golden/ptxas_sm_90.json` anew (the extra `cuda-test` brings
the assembler); look at the difference before you keep it. A budget is the registers of a thread, in
steps of 8, as they are given to threads, bytes of its stack and of what is spilled to it, and bytes
of shared memory. Kernels of the corpus have none: they depend on the machine that records them.
"""

from __future__ import annotations

import functools
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from test.children import Child
from test.optional import found, need_program, skip
from test.renderer.corpus import PROGRAMS, cases_of
from test.renderer.large_kernels import LARGE, kernels_of
from weft.codegen.pipeline import lower
from weft.renderer.base import ProgramSpec, Target
from weft.renderer.cuda import SM_90
from weft.renderer.nvptx import NVPTXRenderer
from weft.runtime.nvptx import emit_ptx

BUDGETS = Path(__file__).parent / "golden" / "ptxas_sm_90.json"
STEP = 8
_FACTS = {
    "registers": r"Used (\d+) registers",
    "stack": r"(\d+) bytes stack frame",
    "spills": r"(\d+) bytes spill stores",
    "shared": r"(\d+) bytes smem",
}


@functools.cache
def find_ptxas() -> str:
    """The assembler, from its package or a toolkit; skips whoever asks where there is none."""
    nvidia = found("nvidia")
    for folder in [] if nvidia is None else nvidia.__path__:
        for path in sorted(Path(folder).rglob("bin/ptxas")):
            return str(path)
    return need_program("ptxas")


def assemble(text: bytes, arch: str) -> dict[str, int]:
    """Facts of the kernel; an AssertionError with the assembler's messages where it refuses."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "kernel.ptx")
        source.write_bytes(text)
        if b".target sm_90a" in text:
            arch = "sm_90a"
        command = [find_ptxas(), "-v", f"-arch={arch}", str(source), "-o", str(source) + ".cubin"]
        with Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            said, _ = child.communicate()
    assert child.returncode == 0, f"{said}\n{text.decode()}"
    # products that wait for each other, where they could go on
    assert "Potential Performance Loss" not in said, said
    kernel = said[said.index("Compiling entry function") :]
    facts = {}
    for name, pattern in _FACTS.items():
        match = re.search(pattern, kernel)
        facts[name] = int(match[1]) if match else 0
    return facts


def specs_of(name: str, target: Target = SM_90) -> Iterator[tuple[str, ProgramSpec]]:
    """The kernels of a program of either corpus for a chip, each with a name."""
    renderer = NVPTXRenderer(target)
    if name in PROGRAMS:
        for case in cases_of(name):
            yield case.name, lower(case.kernel, renderer)
    else:
        for number, kernel in enumerate(kernels_of(name)):
            yield f"{name}_{number}", lower(kernel, renderer)


def budget_of(facts: dict[str, int]) -> list[int]:
    registers = -(-facts["registers"] // STEP) * STEP
    return [registers, facts["stack"], facts["spills"], facts["shared"]]


def budgets() -> dict[str, list[int]]:
    kept: dict[str, list[int]] = json.loads(BUDGETS.read_text())
    return kept


def write_budgets() -> None:
    if found("nvidia") is None:
        skip("nvidia")
    lines = []
    for name in LARGE:
        for kernel, spec in specs_of(name):
            budget = budget_of(assemble(emit_ptx(spec.src, SM_90.name), SM_90.name))
            lines.append(f"  {json.dumps(kernel)}: {json.dumps(budget)}")
    BUDGETS.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    write_budgets()
