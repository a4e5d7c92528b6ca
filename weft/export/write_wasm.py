"""The WebAssembly writer: a plan as one module with its weights, and a loader in JavaScript.

In: a plan. Out: the bytes of a module that imports nothing (one for threads: its memory); what it
takes and gives is written in
its section "weft", where the loader reads it.
Sits above `wasm_code` and `wasm_link`; `export.wasm` calls it.
Invariant: a module touches no memory but its own, at addresses that are fixed when it is written.
"""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from importlib import resources
from typing import Any

from weft.codegen.pipeline import lower
from weft.dtype import DType, dtypes
from weft.errors import CompileError
from weft.export.plan import CONSTANT, Launch, Plan, Value, verify
from weft.export.wasm_code import Addresses, fixed_data, fma_ir, frame_ir, place_all
from weft.export.wasm_link import Layout, link
from weft.machine import Target
from weft.renderer.base import ProgramSpec
from weft.renderer.llvmir import LLVMRenderer
from weft.uop.node import UOp
from weft.uop.opset import Ops

TRIPLE = "wasm32-unknown-unknown"
FEATURES = "+simd128,+bulk-memory,+sign-ext,+nontrapping-fptoint,+mutable-globals"
WASM = Target(
    name="wasm32",
    vector_bytes=16,
    vector_registers=16,
    has_fma=False,
    l2=1 << 20,
    stack_bytes=256 << 10,
)
STACK = 1 << 20
_KINDS = {
    dtypes.bool: "bool",
    dtypes.int8: "int8",
    dtypes.uint8: "uint8",
    dtypes.int16: "int16",
    dtypes.uint16: "uint16",
    dtypes.int32: "int32",
    dtypes.uint32: "uint32",
    dtypes.int64: "int64",
    dtypes.uint64: "uint64",
    dtypes.float16: "float16",
    dtypes.float32: "float32",
    dtypes.float64: "float64",
}


def wasm_target(threads: int = 1) -> Target:
    """A machine that so many threads share."""
    return replace(WASM, has_threads=threads > 1, cores=threads)


def write_wasm(plan: Plan, threads: int = 1) -> bytes:
    """The module of a plan that was built for `wasm_target(threads)`. One for several threads
    imports its memory, which is shared."""
    return _write(plan, True, threads)[0]


def write_wasm_apart(plan: Plan) -> tuple[bytes, dict[int, int]]:
    """The module without its constants, and the address at which each of them belongs."""
    module, places = _write(plan, False, 1)
    numbers = [n for n, memory in enumerate(plan.memories) if memory.kind == CONSTANT]
    return module, {number: places.memories[number] for number in numbers}


def _write(plan: Plan, has_constants: bool, threads: int) -> tuple[bytes, Addresses]:
    verify(plan)
    renderer = LLVMRenderer(wasm_target(threads))
    specs: dict[int, ProgramSpec] = {}
    texts = []
    for number, kernel in enumerate(plan.kernels):
        spec = specs[number] = lower(kernel.sink, renderer)
        texts.append(_own_fma(renderer.render(kernel.name, spec.uops)))
    slots = {
        position: len(step.arguments) + len(step.values)
        for position, step in enumerate(plan.steps)
        if isinstance(step, Launch)
    }
    places = place_all(plan, slots)
    texts.append(frame_ir(plan, specs, places, threads))
    exports = ["run", "reset", *(["seed"] if plan.events else [])]
    exports += ["work"] if threads > 1 else []

    def customs(pages: int) -> dict[str, bytes]:
        about = describe(plan, places.memories)
        if threads > 1:
            about |= {"threads": threads, "pages": pages, "stack": STACK}
        return {"weft": json.dumps(about).encode()}

    data = fixed_data(plan, places, has_constants)
    features = FEATURES + (",+atomics" if threads > 1 else "")
    layout = Layout(places.end, STACK, threads)
    return link(_emit(texts, features), exports, layout, data, customs), places


_FMA = re.compile(r"@llvm\.fma\.(\w+)")


def _own_fma(text: str) -> str:
    """IR that calls functions of its own where LLVM would call libm."""
    kinds = set(_FMA.findall(text))
    if not kinds:
        return text
    kept = [
        line for line in text.splitlines() if not line.startswith("declare") or "fma" not in line
    ]
    return "\n".join([*[_FMA.sub(r"@weft.fma.\1", line) for line in kept], *fma_ir(kinds), ""])


def _emit(texts: list[str], features: str = FEATURES) -> bytes:
    """One object of several modules of IR."""
    try:
        binding = importlib.import_module("llvmlite.binding")
    except ImportError as error:
        raise CompileError(
            f"WebAssembly is compiled by llvmlite, which is not there: {error}"
        ) from error
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    machine = binding.Target.from_triple(TRIPLE).create_target_machine(
        cpu="generic", features=features, opt=2, reloc="static"
    )
    head = f'target triple = "{TRIPLE}"\ntarget datalayout = "{machine.target_data}"\n'
    try:
        whole = binding.parse_assembly(head + texts[-1])
        for text in texts[:-1]:
            whole.link_in(binding.parse_assembly(head + text))
        whole.verify()
        return bytes(machine.emit_object(whole))
    except RuntimeError as error:
        raise CompileError(f"LLVM does not take the code for WebAssembly: {error}") from error


# ------------------------------------------------------------ the loader
_ARRAYS = {
    "bool": "Uint8Array",
    "float16": "Uint16Array",
    "int64": "BigInt64Array",
    "uint64": "BigUint64Array",
}


def loader_text() -> str:
    """The loader of every module, in JavaScript."""
    return (resources.files("weft.export") / "page" / "loader.js").read_text()


def types_text(plan: Plan) -> str:
    """What the loader of this module gives, for TypeScript."""

    def array(value: Value) -> str:
        kind = dtype_name(plan.memories[value.memory].dtype)
        return _ARRAYS.get(kind) or f"{kind.capitalize()}Array"

    taken = [f"  {value.name}: {array(value)};" for value in plan.inputs]
    taken += [f"  {size.name}: number; // {size.low} to {size.high}" for size in plan.sizes]
    given = [f"  {value.name}: {array(value)};" for value in plan.outputs]
    return "\n".join(
        [
            f"// What {plan.name} takes and gives, written by weft.",
            "export interface Inputs {",
            *taken,
            "}",
            "export interface Outputs {",
            *given,
            "}",
            "export class Model {",
            "  readonly name: string;",
            "  run(given: Inputs): Outputs;",
            "  reset(): void;",
            "  seed(seed: number | bigint): void;",
            "  readonly threads: number;",
            "  close(): void;",
            "}",
            "export function load(",
            "  source: string | URL | ArrayBuffer | Uint8Array | Response | WebAssembly.Module,",
            "  options?: { threads?: number },",
            "): Promise<Model>;",
            "",
        ]
    )


# ------------------------------------------------------------ what a module says of itself
def describe(plan: Plan, places: dict[int, int]) -> dict[str, Any]:
    """Names, dtypes, shapes and places, as JSON."""
    return {
        "name": plan.name,
        "inputs": [_value(plan, value, places) for value in plan.inputs],
        "outputs": [_value(plan, value, places) for value in plan.outputs],
        "sizes": [{"name": s.name, "low": s.low, "high": s.high} for s in plan.sizes],
        "kernels": len(plan.kernels),
    }


def _value(plan: Plan, value: Value, places: dict[int, int]) -> dict[str, Any]:
    memory = plan.memories[value.memory]
    return {
        "name": value.name,
        "dtype": dtype_name(memory.dtype),
        "shape": [size_tree(size) for size in value.shape],
        "offset": places.get(value.memory, 0),
        "count": memory.size,
    }


def dtype_name(dtype: DType) -> str:
    """What JavaScript is told of a dtype; narrow floats that it lacks are their bits."""
    return _KINDS.get(dtype) or {1: "uint8", 2: "uint16"}[dtype.itemsize]


_TREE = {Ops.ADD: "+", Ops.MUL: "*", Ops.IDIV: "/", Ops.MOD: "%", Ops.MAX: "max", Ops.NEG: "-"}


def size_tree(value: Any) -> Any:
    """A size as JSON: a number, a name, or ["+", x, y]; null where it is anything else."""
    if isinstance(value, int):
        return value
    found: dict[UOp, Any] = {}
    for node in value.toposort():
        if node.op is Ops.CONST:
            found[node] = int(node.arg)
        elif node.op is Ops.VARIABLE:
            found[node] = node.arg.name
        elif node.op in _TREE and all(found[s] is not None for s in node.src):
            found[node] = [_TREE[node.op], *[found[s] for s in node.src]]
        else:
            found[node] = None
    return found[value]
