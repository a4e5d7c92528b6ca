"""Sums that collectives ask for: weft's own kernels, over memories of one device.

In: memories, equally large. Out: their sum, in their order, in one of them. Sits on realize.
Invariant: one order of additions, whichever of them the sum goes to: all places have the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from weft.device import Buffer
from weft.dtype import DType
from weft.engine.realize import arguments_of, launch, load_programs
from weft.engine.schedule import prepare_schedule
from weft.uop.node import UOp
from weft.uop.opset import Ops


def add_up(memories: Sequence[Buffer], place: int) -> None:
    """memories[place] = memories[0] + memories[1] + ..."""
    first = memories[place]
    if not first.size:
        return
    prepared, order = _sum_of(first.device, first.size, first.dtype, len(memories), place)
    load_programs(prepared, None)
    buffers = {number: memories[i] for number, i in enumerate(order)}
    for step in prepared.steps:
        launch(step, arguments_of(step, buffers), {})


@lru_cache(maxsize=256)
def _sum_of(
    device: str, size: int, dtype: DType, count: int, place: int
) -> tuple[Any, tuple[int, ...]]:
    """The schedule of a sum, and which memory each of its inputs is."""
    nodes = [UOp.new_buffer(device, size, dtype) for _ in range(count)]
    total = nodes[0]
    for node in nodes[1:]:
        total = total.alu(Ops.ADD, node)
    state = nodes[place].after(nodes[place].store(total))
    prepared, request, _ = prepare_schedule(UOp.sink(state), device)
    return prepared, tuple([nodes.index(node) for node in request.inputs])
