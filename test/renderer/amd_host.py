"""Kernels for AMD's GPUs, run by the host: the same LLVM IR, with stand-ins for the machine.

The names of the machine's intrinsics are replaced by those of NVPTX, for which `nvptx_host.py` has
stand-ins. Products of fragments cannot run.
"""

from __future__ import annotations

import re
from dataclasses import replace

from test.renderer import nvptx_host
from test.renderer.corpus import Case
from weft.renderer.base import ProgramSpec


def can_run(source: str) -> bool:
    """Whether the host can stand in for the machine."""
    return "@llvm.amdgcn.wmma" not in source and "@llvm.amdgcn.mfma" not in source


def run_on_host(case: Case, spec: ProgramSpec) -> list[bytes]:
    """The contents of the buffers after a run."""
    text = spec.src.replace('target triple = "amdgcn-amd-amdhsa"\n', "")
    text = text.replace("amdgpu_kernel ", "ptx_kernel ")
    text = text.replace("@llvm.amdgcn.workgroup.id.", "@llvm.nvvm.read.ptx.sreg.ctaid.")
    text = text.replace("@llvm.amdgcn.workitem.id.", "@llvm.nvvm.read.ptx.sreg.tid.")
    text = text.replace("@llvm.amdgcn.s.barrier()", "@llvm.nvvm.barrier0()")
    text = text.replace("@llvm.amdgcn.exp2.f32(", "@llvm.nvvm.ex2.approx.ftz.f(")
    text = re.sub(r"(?m)^  fence .*\n|^!llvm\.module\.flags.*\n", "", text)
    text = text.replace(", addrspace(5)", "").replace("ptr addrspace(5)", "ptr")
    return nvptx_host.run_on_host(case, replace(spec, src=text))
