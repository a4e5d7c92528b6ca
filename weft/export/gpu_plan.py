"""A plan for WebGPU, as JSON: kernels in WGSL, buffers, launches.

In: a plan that was built for WebGPU's target, and where constants stand among the page's weights.
Out: what `page/gpu.js` runs. Sits under `write_web`.
Invariant: within a launch no buffer is bound both to read and to write, which WebGPU refuses:
buffers that kernels write (scratch, states, outputs) are always bound to write.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from weft.codegen.pipeline import lower
from weft.errors import CompileError
from weft.export.plan import (
    CONSTANT,
    INPUT,
    OUTPUT,
    SCRATCH,
    STATE,
    Copy,
    Draw,
    Launch,
    Memory,
    Plan,
    verify,
)
from weft.export.write_wasm import describe, size_tree
from weft.helpers import round_up
from weft.renderer.base import ProgramSpec
from weft.renderer.wgsl import WGSLRenderer
from weft.uop.node import UOp

# the buffers of a page, in order
_BUFFERS = (CONSTANT, STATE, SCRATCH, INPUT, OUTPUT)
# where a binding may begin, on every device
ALIGNMENT = 256


def gpu_target() -> Any:
    """The machine of a browser; vectors of a page are as wide as every device takes."""
    return replace(WGSLRenderer().target)


def write_gpu(plan: Plan, weights: Mapping[int, int], weight_bytes: int) -> dict[str, Any]:
    """The plan as JSON; CompileError where WGSL cannot say what it does."""
    verify(plan)
    return _Writer(plan, weights, weight_bytes).written()


class _Writer:
    def __init__(self, plan: Plan, weights: Mapping[int, int], weight_bytes: int) -> None:
        self.plan = plan
        self.places: dict[int, int] = dict(weights)
        self.sizes = dict.fromkeys(_BUFFERS, 0)
        self.sizes[CONSTANT] = weight_bytes
        self.sizes[SCRATCH], self.sizes[STATE] = plan.arena_bytes, plan.state_bytes
        for number, memory in enumerate(plan.memories):
            if memory.kind in (SCRATCH, STATE):
                self.places[number] = memory.offset
            elif memory.kind in (INPUT, OUTPUT):
                self.places[number] = self.sizes[memory.kind]
                self.sizes[memory.kind] += round_up(memory.nbytes, ALIGNMENT)
        self.specs: dict[int, ProgramSpec] = {}
        self.kernels: dict[tuple[Any, ...], int] = {}
        self.texts: list[dict[str, Any]] = []

    def written(self) -> dict[str, Any]:
        plan = self.plan
        for number, kernel in enumerate(plan.kernels):
            self.specs[number] = lower(kernel.sink, WGSLRenderer())
        steps = [
            self._copy(step) if isinstance(step, Copy) else self._launch(step)
            for step in plan.steps
        ]
        return {
            **describe(plan, self.places),
            "buffers": [round_up(max(1, self.sizes[kind]), ALIGNMENT) for kind in _BUFFERS],
            "inputBuffer": _BUFFERS.index(INPUT),
            "outputBuffer": _BUFFERS.index(OUTPUT),
            "stateBuffer": _BUFFERS.index(STATE),
            "states": [self._state(m) for m in plan.of_kind(STATE)],
            "kernels": self.texts,
            "steps": steps,
        }

    def _state(self, memory: Memory) -> list[Any]:
        contents = memory.contents or b""
        nbytes = round_up(memory.nbytes, 4)
        data = base64.b64encode(contents.ljust(nbytes, b"\0")).decode() if any(contents) else None
        return [memory.offset, data, nbytes]

    def _copy(self, step: Copy) -> dict[str, Any]:
        source, target = self.plan.memories[step.source], self.plan.memories[step.target]
        if source.kind == target.kind:
            raise CompileError("WebGPU does not copy inside of one buffer")
        return {
            "copy": [
                _BUFFERS.index(source.kind),
                self.places[step.source],
                _BUFFERS.index(target.kind),
                self.places[step.target],
                round_up(source.nbytes, 4),
            ]
        }

    def _launch(self, step: Launch) -> dict[str, Any]:
        kernel, spec = self.plan.kernels[step.kernel], self.specs[step.kernel]
        bindings: list[list[int] | None] = [None] * len(step.arguments)
        access = ["-"] * len(step.arguments)
        shifts: dict[int, str] = {}
        for parameter in kernel.parameters:
            number, first = step.arguments[parameter.slot]
            memory = self.plan.memories[number]
            width = memory.dtype.itemsize
            at = self.places[number] + first * width
            # bindings begin at multiples of 256 bytes: what is before is skipped by the kernel
            skipped = at % ALIGNMENT
            if skipped:
                if skipped % 4:
                    raise CompileError(f"{kernel.name} takes {memory.name} from byte {at} on")
                shifts[parameter.slot] = f"{skipped // 4}u" if width < 4 else f"{skipped // width}"
            nbytes = round_up(skipped + parameter.size * width, 4)
            bindings[parameter.slot] = [_BUFFERS.index(memory.kind), at - skipped, nbytes]
            access[parameter.slot] = "r" if memory.kind in (CONSTANT, INPUT) else "w"
        if any(isinstance(value, Draw) for value in step.values):
            raise CompileError("random numbers are drawn in 64 bits, which WebGPU lacks")
        given: dict[str, Any] = dict(zip(kernel.variables, step.values, strict=True))
        letters = "".join(access) + ("r" if given else "")
        groups = [self._groups(size, given) for size in spec.global_size or (1, 1, 1)]
        return {
            "kernel": self._kernel(step.kernel, letters, shifts),
            "bindings": bindings,
            "values": list(step.values),
            "groups": groups,
        }

    def _groups(self, size: Any, given: Mapping[str, Any]) -> Any:
        tree = size_tree(size) if isinstance(size, UOp) else int(size)
        if tree is None:
            raise CompileError(f"the number of groups is {size}, which the page cannot compute")

        def named(part: Any) -> Any:
            if isinstance(part, str) and part in given:
                return given[part]
            if isinstance(part, list):
                return [part[0], *[named(child) for child in part[1:]]]
            return part

        return named(tree)

    def _kernel(self, number: int, letters: str, shifts: Mapping[int, str]) -> int:
        """The kernel with these bindings."""
        key = (number, letters, tuple(sorted(shifts.items())))
        found = self.kernels.get(key)
        if found is None:
            found = self.kernels[key] = len(self.texts)
            name = self.plan.kernels[number].name
            code = WGSLRenderer().render(name, self.specs[number].uops)
            for slot, letter in enumerate(letters):
                if letter == "w":
                    binding = f"@binding({slot}) var<storage, "
                    code = code.replace(f"{binding}read>", f"{binding}read_write>")
            for slot, shift in shifts.items():
                code = _shifted(code, f"data{slot}", shift)
            self.texts.append({"code": code, "entry": name, "access": letters})
        return found


def _shifted(code: str, name: str, shift: str) -> str:
    """The text of a kernel that finds a buffer's elements further on.

    data3[i & 7] -> data3[88 + (i & 7)]
    """
    for match in reversed(list(re.finditer(rf"\b{name}\[", code))):
        start = end = match.end()
        depth = 1
        while depth:
            depth += {"[": 1, "]": -1}.get(code[end], 0)
            end += 1
        code = f"{code[:start]}{shift} + ({code[start : end - 1]}){code[end - 1 :]}"
    return code
