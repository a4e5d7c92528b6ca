"""Kernels written as LLVM IR, run in the emulator on NumPy arrays."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from weft.amd.link import link
from weft.runtime.amd.aql import Dispatch
from weft.runtime.amd.emulated import EmulatedAgent
from weft.runtime.amd.emulator import Launch
from weft.runtime.amdgcn import emit_object

_UNUSED = " ".join(
    f'"amdgpu-no-{name}"'
    for name in ("dispatch-ptr", "queue-ptr", "dispatch-id", "implicitarg-ptr", "heap-ptr")
)


def module(body: str, parameters: str, threads: int, before: str = "", facts: str = "") -> str:
    """A kernel `k`; %x is its thread's number in the group, %g its group's."""
    return f"""target triple = "amdgcn-amd-amdhsa"
{before}
define amdgpu_kernel void @k({parameters}) #0 {{
entry:
  %x = call i32 @llvm.amdgcn.workitem.id.x()
  %g = call i32 @llvm.amdgcn.workgroup.id.x()
{body}
}}
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
attributes #0 = {{ nounwind "amdgpu-flat-work-group-size"="{threads},{threads}" {_UNUSED} {facts} }}
!llvm.module.flags = !{{!1}}
!1 = !{{i32 1, !"amdhsa_code_object_version", i32 500}}
"""


class Bench:
    """An agent with the arrays of a test in its memory."""

    def __init__(self, arch: str, budget: int = 1 << 40) -> None:
        self.agent = EmulatedAgent(arch, budget)
        self.kept: list[Any] = []

    def dispatch(
        self, source: str, arrays: Sequence[np.ndarray], groups: int, threads: int
    ) -> tuple[Dispatch, list[int]]:
        """A packet of the kernel `k` over arrays that are copied to the agent."""
        kernel = self.agent.load("k", link(emit_object(source, self.agent.arch)))
        self.kept.append(kernel)
        addresses = []
        for array in arrays:
            address = self.agent.allocate(array.nbytes)
            self.agent.copy_in(address, memoryview(array.tobytes()))
            addresses.append(address)
        contents = struct.pack(f"<{len(addresses)}Q", *addresses)
        contents += bytes(max(0, kernel.kernarg_bytes - len(contents)))
        arguments = self.agent.arguments(contents)
        packet = Dispatch(
            (threads, 1, 1), (groups * threads, 1, 1), kernel.handle, arguments,
            kernel.private_bytes, kernel.group_bytes,
        )  # fmt: skip
        return packet, addresses

    def run(
        self, source: str, arrays: Sequence[np.ndarray], groups: int = 1, threads: int = 32
    ) -> list[np.ndarray]:
        """The arrays after a launch."""
        packet, addresses = self.dispatch(source, arrays, groups, threads)
        self.agent.wait(self.agent.submit(packet, "k"))
        found = []
        for array, address in zip(arrays, addresses, strict=True):
            contents = bytearray(array.nbytes)
            self.agent.copy_out(memoryview(contents), address)
            found.append(np.frombuffer(contents, array.dtype).reshape(array.shape))
        return found

    def prepared(
        self, source: str, arrays: Sequence[np.ndarray], groups: int = 1, threads: int = 32
    ) -> tuple[Launch, list[int]]:
        """A launch that was not run yet."""
        packet, addresses = self.dispatch(source, arrays, groups, threads)
        handle = self.agent.handles[packet.kernel_object]
        return self.agent.prepare(handle.loaded, "k", packet), addresses


POINTER = "ptr addrspace(1)"
ADD = module(
    f"""  %t = mul i32 %g, 48
  %n = add i32 %t, %x
  %i = zext i32 %n to i64
  %p = getelementptr float, {POINTER} %a, i64 %i
  %q = getelementptr float, {POINTER} %b, i64 %i
  %r = getelementptr float, {POINTER} %c, i64 %i
  %u = load float, {POINTER} %p
  %v = load float, {POINTER} %q
  %w = fadd float %u, %v
  store float %w, {POINTER} %r
  ret void""",
    f"{POINTER} %a, {POINTER} %b, {POINTER} %c",
    48,
)
