"""Kernels that somebody wrote in machine code, as steps between those of schedules.

In: a `MachineKernel` and the BUFFERs of its tensors. Out: new BUFFERs with what it wrote.
Sits beside realize, which runs the steps and tells a recorder of them; `Tensor.custom_kernel` calls
it.
Invariant: nothing that exists is overwritten. What the code writes to is memory of its own, filled
with the tensor's values before it runs, so that whoever reads those values still finds them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from weft.contracts import ProgramFacts
from weft.device import Device
from weft.engine.prepared import Memory, Prepared, Request, Step
from weft.engine.programs import Runner
from weft.engine.realize import execute
from weft.engine.storage import memory_of
from weft.errors import ArgumentError
from weft.machine import MachineKernel
from weft.uop.node import UOp

_runners: dict[tuple[MachineKernel, str, int], Runner] = {}
_MOST = 256


def check_code(kernel: MachineKernel, count: int, devices: Sequence[Any]) -> str:
    """The device that runs a kernel over so many tensors, or an error that says why none does."""
    if len(set(devices)) != 1 or not isinstance(devices[0], str):
        found = ", ".join(dict.fromkeys(map(str, devices)))
        raise ArgumentError(f"{kernel.name} runs on one device, but its tensors are on {found}")
    if count != kernel.buffers:
        raise ArgumentError(
            f"{kernel.name} has {kernel.buffers} arguments, but {count} tensors are given"
        )
    wrong = [slot for slot in kernel.writes if not 0 <= slot < count]
    if wrong or not kernel.writes:
        raise ArgumentError(
            f"{kernel.name} writes to tensors {list(kernel.writes)}; those of {count} are "
            f"numbered 0 to {count - 1}, and at least one is written"
        )
    device = str(devices[0])
    arch = Device[device].arch
    if arch != kernel.target:
        raise ArgumentError(
            f"{kernel.name} is machine code for {kernel.target}, but its tensors are on {device}"
            + (f", which runs {arch}" if arch else "")
        )
    return device


def run_code(
    kernel: MachineKernel,
    tensors: Sequence[UOp],
    device: str,
    origin: tuple[str, int] | None = None,
) -> dict[int, UOp]:
    """The BUFFER of each tensor that the kernel writes, after it ran over BUFFERs."""
    facts = tuple([(node.arg.size, node.dtype) for node in tensors])
    runner = _runner(kernel, device, sum([size * dtype.itemsize for size, dtype in facts]))
    # what was never filled need not be copied
    empty = {slot for slot in kernel.writes if memory_of(tensors[slot]) is None}
    inputs = [node for slot, node in enumerate(tensors) if slot not in empty]
    numbers = {slot: inputs.index(node) for slot, node in enumerate(tensors) if slot not in empty}
    made: list[Memory] = []
    steps: list[Step] = []
    places = dict(numbers)
    for slot in kernel.writes:
        size, dtype = facts[slot]
        places[slot] = len(inputs) + len(made)
        made.append(Memory(size, dtype, device, None))
        if slot in numbers:
            copy = ((places[slot], 0, size), (numbers[slot], 0, size))
            steps.append(Step(copy, device, None, True, origin))
    arguments = tuple([(places[slot], 0, size) for slot, (size, _) in enumerate(facts)])
    steps.append(Step(arguments, device, None, False, origin, runner))
    results = [places[slot] for slot in kernel.writes]
    prepared = Prepared(len(inputs), made, steps, results, [], [], {})
    digest = hashlib.sha256(kernel.code).digest()
    key = ("machine code", kernel.name, digest, kernel.groups, kernel.threads, kernel.writes, facts)
    found = execute(prepared, Request(key, inputs, sink=UOp.sink(*tensors)))
    return {slot: node for slot, node in zip(kernel.writes, found, strict=True) if node is not None}


def _runner(kernel: MachineKernel, device: str, nbytes: int) -> Runner:
    key = (kernel, device, nbytes)
    found = _runners.get(key)
    if found is None:
        facts = ProgramFacts(
            name=kernel.name,
            buffer_count=kernel.buffers,
            mem=nbytes,
            global_size=kernel.groups,
            local_size=kernel.threads,
            layout=tuple([("buffer", slot) for slot in range(kernel.buffers)]),
        )
        program = Device[device].load(facts, kernel.code)
        if len(_runners) >= _MOST:
            _runners.pop(next(iter(_runners)))
        found = _runners[key] = Runner(kernel.name, program, device, (), 0, nbytes)
    return found
