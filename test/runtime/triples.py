"""Kernels of the corpus as object files for systems that are not this one.

`python -m test.runtime.triples` makes all of them and prints what each system's objects need from
outside; test_object_file.py asks the same. Nothing is run: what an object needs and the process
lacks would end it.
"""

from __future__ import annotations

import functools
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from test.renderer.corpus import PROGRAMS, cases_of
from weft.codegen.pipeline import lower
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer
from weft.runtime.llvm import llvm_binding
from weft.runtime.object_file import object_symbols
from weft.uop.node import UOp


@dataclass(frozen=True)
class System:
    """A triple, a processor and what code for it may need from outside."""

    triple: str
    cpu: str
    features: str
    target: Target
    allowed: frozenset[str] = frozenset()


_WINDOWS = frozenset({"_fltused", "__chkstk"})


def _target(vector_bytes: int, registers: int = 16, **facts: Any) -> Target:
    return Target(
        vector_bytes=vector_bytes, vector_registers=registers, cores=4, has_threads=True, **facts
    )


_ARM = _target(16, 32, has_fma=True, has_half_conversion=True)
SYSTEMS = (
    System(
        "x86_64-pc-windows-msvc",
        "x86-64-v3",
        "",
        _target(32, has_fma=True, has_half_conversion=True, has_max=False),
        _WINDOWS,
    ),
    # where there is no instruction a product and a sum that round once are a function of libm
    System(
        "x86_64-pc-linux-gnu",
        "x86-64",
        "",
        _target(16, has_max=False, has_rounding=False),
        frozenset({"fmaf"}),
    ),
    System("arm64-apple-macosx14", "apple-m1", "", _ARM),
    System("aarch64-pc-windows-msvc", "generic", "", _ARM, _WINDOWS),
    System("aarch64-unknown-linux-gnu", "neoverse-n1", "", _ARM),
    System("riscv64-unknown-linux-gnu", "generic-rv64", "+m,+a,+f,+d,+c", _target(0, has_fma=True)),
)


@functools.cache
def _machine(system: System) -> Any:
    binding = llvm_binding()
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    target = binding.Target.from_triple(system.triple)
    return target.create_target_machine(
        cpu=system.cpu, features=system.features, opt=2, reloc="pic"
    )


def object_of(kernel: UOp, system: System, name: str | None = None) -> bytes:
    """The object file of a kernel."""
    renderer = LLVMRenderer(system.target)
    spec = lower(kernel, renderer)
    source = spec.src if name is None else renderer.render(name, spec.uops)
    machine = _machine(system)
    head = f'target triple = "{system.triple}"\ntarget datalayout = "{machine.target_data}"\n'
    module = llvm_binding().parse_assembly(head + source)
    code: bytes = machine.emit_object(module)
    return code


def needed_by(names: Iterable[str], system: System) -> Counter[str]:
    """What the kernels of some programs need from outside, and how many of them do."""
    found: Counter[str] = Counter()
    for name in names:
        for case in cases_of(name):
            found.update(object_symbols(object_of(case.kernel, system)).needed)
    return found


if __name__ == "__main__":
    failed = False
    for each in SYSTEMS:
        needed = needed_by(PROGRAMS, each)
        failed = failed or not each.allowed.issuperset(needed)
        print(f"{each.triple}: {dict(needed) or 'nothing'}", flush=True)
    sys.exit(failed)
