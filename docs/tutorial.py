"""Writes docs/tutorial.md: one expression, followed from Tensor to assembly, with real output.

The target is described here instead of taken from the machine, so that the page is the same
wherever it is made; a test compares it. Only the assembly depends on the installed LLVM.
"""

from __future__ import annotations

import contextlib
import io
import sys
from pathlib import Path

PAGE = Path(__file__).parent / "tutorial.md"
ASSEMBLY_TITLE = "## 7. Assembly"

# text, then code whose output is shown; code of None is text alone
STEPS: list[tuple[str, str | None]] = [
    (
        """# From Tensor to assembly

One expression, and what becomes of it at every stage. Everything below is printed by the code
above it.

## 1. The program

An input, a product, a sum along the rows. `realize()` puts the input into memory; of the rest
nothing has run yet: `y` only knows what it would compute.""",
        """from weft import Tensor

x = Tensor.arange(1024 * 256).reshape(1024, 256).float().contiguous().realize()
y = (x * 2 + 1).sum(axis=1)
print(y)""",
    ),
    (
        """## 2. The graph

`y.uop` is the graph. One node type, `UOp`, is used at every stage. A line is a node: its
number, op, dtype, sources by number, argument, shape, and the line of your program that made
it. The numbers `2` and `1` are constants without a device; they took the dtype of what they
met.""",
        "print(y.uop)",
    ),
    (
        """## 3. The schedule

The graph is cut into kernels. Here there is one: the multiplication and the addition are
computed where the sum needs them. Shapes are gone. A kernel is loops (`RANGE`) and index
arithmetic, and a `REDUCE` is a loop of its own inside them.""",
        """item = y.schedule()[0]
print(item.kernel)""",
    ),
    (
        """## 4. Choosing axes

The kernel is the same for every machine. What differs is how its loops are run, and that is a
list of actions on axes. They are chosen for a target: here one with vectors of 32 bytes and two
cores.""",
        """from weft.codegen.pipeline import lower
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer

target = Target(name="example", cores=2, vector_bytes=32, has_fma=True, has_threads=True)
program = lower(item.kernel, LLVMRenderer(target))
for action in program.applied:
    print(action)""",
    ),
    (
        """Without actions it is two plain loops. `NOOPT=1` does this to a whole program.""",
        """from weft import Context
from weft.renderer.c import CRenderer

with Context(NOOPT=1):
    print(lower(item.kernel, CRenderer()).src)""",
    ),
    (
        """## 5. The linear program

Loops are opened and closed in order, registers (`ACC`) are set and read, vectors are explicit.
From here on nothing is decided any more. Indented lines stand inside a loop.""",
        """from weft.uop.text import nodes_text

print(nodes_text(program.uops))""",
    ),
    (
        """## 6. The text

A renderer prints the linear program. For CPUs that is LLVM IR; the same program could be
printed as C, CUDA C, OpenCL C, Metal or WGSL.""",
        "print(program.src)",
    ),
    (
        f"""{ASSEMBLY_TITLE}

LLVM makes machine code of it, in the process. `DEBUG=7` shows this for every kernel of a
program; here are the instructions of the kernel above for an x86 processor with AVX2.""",
        """import llvmlite.binding as llvm

llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
machine = llvm.Target.from_triple("x86_64-unknown-linux-gnu").create_target_machine(
    cpu="haswell", opt=3
)
print(machine.emit_assembly(llvm.parse_assembly(program.src)))""",
    ),
    (
        """## 8. Running it

Asking for values does all of the above, once, and keeps the result in memory and on disk. The
same expression on other data finds it again.""",
        """assert y.tolist()[:3] == [65536.0, 196608.0, 327680.0]
print(y.tolist()[:3])""",
    ),
    (
        """`DEBUG=2` prints a line per kernel with its time, `DEBUG=4` its text,
`DEBUG=5` the kernel after every pass, `VIZ=1` shows every single rewrite in a browser.
[Architecture](architecture.md) says where each stage lives, [Extending](extending.md) how to
change one.""",
        None,
    ),
]


def page() -> str:
    """The page, made by running its code."""
    namespace: dict[str, object] = {"__name__": "__docs__"}
    parts: list[str] = []
    line = 1
    for text, code in STEPS:
        parts.append(text)
        if code is None:
            continue
        said = io.StringIO()
        # the graph names lines of the program: count as if the blocks were one file
        source = "\n" * (line - 1) + code
        with contextlib.redirect_stdout(said):
            exec(compile(source, "tutorial.py", "exec"), namespace)
        line += code.count("\n") + 1
        parts.append(f"```python\n{code}\n```")
        parts.append(f"```text\n{_tidy(said.getvalue())}\n```")
    return "\n\n".join(parts) + "\n"


def _tidy(output: str) -> str:
    return "\n".join(
        line.replace("\t", "    ").rstrip() for line in output.strip("\n").splitlines()
    )


def without_assembly(text: str) -> str:
    """The part that is the same on every machine and with every LLVM."""
    before, _, rest = text.partition(ASSEMBLY_TITLE)
    return before + rest[rest.index("## 8.") :]


if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    PAGE.write_text(page(), encoding="utf-8")
