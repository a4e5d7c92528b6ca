"""Three hundred kernels as LLVM IR, for what links and runs code objects.

In: nothing. Out: (name, IR) of kernels that differ in type, operation and form: straight, looped,
reduced through local memory, with a table of constants, with a call. llvmlite compiles them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator
from typing import Any

import llvmlite.binding as llvm

FLOATS = {"half": "half", "float": "float", "double": "double"}
INTEGERS = {"i16": "i16", "i32": "i32", "i64": "i64"}
FLOAT_OPERATIONS = (
    "fadd",
    "fmul",
    "fsub",
    "fdiv",
    "minnum",
    "maxnum",
    "fma",
    "sqrt",
    "floor",
    "fabs",
)
INTEGER_OPERATIONS = ("add", "mul", "sub", "and", "or", "xor", "shl", "lshr", "udiv", "smax")
FORMS = ("straight", "loop", "local", "table", "call")

_FRAME = """
target triple = "amdgcn-amd-amdhsa"
@shared = internal addrspace(3) global [64 x {type}] poison, align 16
@table = internal unnamed_addr addrspace(4) constant [4 x {type}] zeroinitializer
declare i32 @llvm.amdgcn.workitem.id.x()
declare i32 @llvm.amdgcn.workgroup.id.x()
declare void @llvm.amdgcn.s.barrier()
{declaration}
define internal {type} @helper({type} %a, {type} %b) noinline {{
  {apply_a_b}
  ret {type} %r
}}
define amdgpu_kernel void @{name}(ptr addrspace(1) %out, ptr addrspace(1) %in, i32 %n) {{
entry:
  %lane = call i32 @llvm.amdgcn.workitem.id.x()
  %group = call i32 @llvm.amdgcn.workgroup.id.x()
  %base = mul i32 %group, 64
  %index = add i32 %base, %lane
  %from = getelementptr {type}, ptr addrspace(1) %in, i32 %index
  %a = load {type}, ptr addrspace(1) %from
{body}
}}
"""
_STORE = """  %to = getelementptr {type}, ptr addrspace(1) %out, i32 %index
  store {type} %r, ptr addrspace(1) %to
  ret void"""
_BODIES = {
    "straight": "  %b = load {type}, ptr addrspace(1) %in\n  {apply}\n{store}",
    "loop": """  br label %again
again:
  %i = phi i32 [0, %entry], [%next, %again]
  %b = phi {type} [%a, %entry], [%r, %again]
  {apply}
  %next = add i32 %i, 1
  %more = icmp ult i32 %next, %n
  br i1 %more, label %again, label %done
done:
{store}""",
    "local": """  %mine = getelementptr [64 x {type}], ptr addrspace(3) @shared, i32 0, i32 %lane
  store {type} %a, ptr addrspace(3) %mine
  call void @llvm.amdgcn.s.barrier()
  %other = xor i32 %lane, 1
  %theirs = getelementptr [64 x {type}], ptr addrspace(3) @shared, i32 0, i32 %other
  %b = load {type}, ptr addrspace(3) %theirs
  {apply}
{store}""",
    "table": """  %low = and i32 %lane, 3
  %entry_at = getelementptr [4 x {type}], ptr addrspace(4) @table, i32 0, i32 %low
  %b = load {type}, ptr addrspace(4) %entry_at
  {apply}
{store}""",
    "call": """  %b = load {type}, ptr addrspace(1) %in
  %r = call {type} @helper({type} %a, {type} %b)
{store}""",
}


def _apply(operation: str, kind: str) -> tuple[str, str]:
    """The line that computes %r, and the declaration that it needs."""
    suffix = {"half": "f16", "float": "f32", "double": "f64"}.get(kind, kind)
    call = f"@llvm.{operation}.{suffix}"
    if operation in ("minnum", "maxnum", "smax"):
        return (
            f"%r = call {kind} {call}({kind} %a, {kind} %b)",
            f"declare {kind} {call}({kind}, {kind})",
        )
    if operation == "fma":
        arguments = f"{kind} %a, {kind} %b, {kind} %a"
        return (
            f"%r = call {kind} {call}({arguments})",
            f"declare {kind} {call}({kind}, {kind}, {kind})",
        )
    if operation in ("sqrt", "floor", "fabs"):
        lines = f"%s = fadd {kind} %a, %b\n  %r = call {kind} {call}({kind} %s)"
        return lines, f"declare {kind} {call}({kind})"
    return f"%r = {operation} {kind} %a, %b", ""


def kernels() -> Iterator[tuple[str, str]]:
    """(name, IR) of all 300."""
    floats = itertools.product(FLOATS, FLOAT_OPERATIONS, FORMS)
    integers = itertools.product(INTEGERS, INTEGER_OPERATIONS, FORMS)
    for kind, operation, form in itertools.chain(floats, integers):
        name = f"{form}_{operation}_{kind}"
        apply, declaration = _apply(operation, kind)
        store = _STORE.format(type=kind)
        body = _BODIES[form].format(type=kind, apply=apply, store=store)
        values = {"type": kind, "name": name, "declaration": declaration, "body": body}
        yield name, _FRAME.format(apply_a_b=apply, **values)


@functools.cache
def machine(target: str) -> Any:
    """llvmlite's code generator of a target."""
    llvm.initialize_all_targets()
    llvm.initialize_all_asmprinters()
    found = llvm.Target.from_triple("amdgcn-amd-amdhsa")
    return found.create_target_machine(cpu=target, opt=2, reloc="pic")


def compiled(ir: str, target: str) -> bytes:
    """The relocatable object of a module."""
    return bytes(machine(target).emit_object(llvm.parse_assembly(ir)))
