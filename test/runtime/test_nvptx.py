"""LLVM IR to PTX: what is refused, and how; many threads at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from weft.errors import CompileError
from weft.runtime.nvptx import emit_ptx, emitter_version

KERNEL = """target triple = "nvptx64-nvidia-cuda"
define ptx_kernel void @k(i64 %at, float %x) {
  %place = inttoptr i64 %at to ptr addrspace(1)
  %y = fadd float %x, 1.0
  store float %y, ptr addrspace(1) %place
  ret void
}
"""


@pytest.mark.parametrize("arch", ["sm_75", "sm_80", "sm_89", "sm_90", "sm_90a", "sm_100"])
def test_ptx_is_for_the_chip_that_was_asked_for(arch: str) -> None:
    text = emit_ptx(KERNEL, arch).decode()
    assert f".target {arch}" in text and ".visible .entry k(" in text


def test_what_is_no_ir_is_refused_with_llvms_words() -> None:
    with pytest.raises(CompileError, match="(?s)expected instruction opcode.*DEBUG=4"):
        emit_ptx(KERNEL.replace("fadd", "addf"), "sm_90")


def test_ir_that_does_not_verify_is_refused() -> None:
    with pytest.raises(CompileError, match="(?s)LLVM refuses the IR of a kernel"):
        emit_ptx(KERNEL.replace("%y = fadd float %x, 1.0", "%y = fadd float %y, 1.0"), "sm_90")


def test_an_unknown_chip_is_refused() -> None:
    with pytest.raises(CompileError, match="PTX for 'gfx942' was asked for"):
        emit_ptx(KERNEL, "gfx942")


def test_many_threads_emit_the_same() -> None:
    alone = emit_ptx(KERNEL, "sm_90")
    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(lambda _: emit_ptx(KERNEL, "sm_90"), range(40))) == {alone}


def test_the_version_names_llvm_and_its_passes() -> None:
    assert emitter_version().startswith("llvm") and "-O" in emitter_version()
