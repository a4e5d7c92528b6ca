"""The fast path: a call like the last one, recognised at a glance.

In: the arguments of a call. Out: the memory they are, if the call is one of the kind that was
replayed last. Sits under `jit`, beside `arguments`, which takes any call apart.
Invariant: it answers only where taking the call apart would lead to the same graph.

After a kernel that reads more than the caches hold, the interpreter's own objects have to come from
memory as well: every object that a call looks at then takes as long as hundreds of instructions.
"""

from __future__ import annotations

from typing import Any

from weft.device import Buffer
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.graph import CapturedGraph
from weft.engine.jit.guards import Guards
from weft.tensor import Tensor
from weft.uop.opset import Ops


class FastPath:
    """A kind of call: its graph, and what has to be as it was.

    Only for calls whose arguments are tensors alone, each the whole of a storage of its own, and
    for graphs that read nothing else and write new memory alone.
    """

    __slots__ = ("_guards", "_numbers", "_structures", "graph", "knobs")

    def __init__(
        self,
        graph: CapturedGraph,
        knobs: Any,
        guards: Guards,
        arguments: Arguments,
    ) -> None:
        self.graph = graph
        self.knobs = knobs
        self._guards = guards
        self._numbers = guards.numbers
        self._structures = [found.structure for found in arguments.descriptions]

    @staticmethod
    def fits(graph: CapturedGraph, arguments: Arguments) -> bool:
        """Whether calls like this one may be recognised so."""
        return arguments.is_stored and graph.is_plain

    def memory(self, args: tuple[Any, ...]) -> list[Buffer] | None:
        """The memory of the arguments; None if they are not of this kind, or it takes a closer
        look to know."""
        structures = self._structures
        if len(args) != len(structures):
            return None
        found: list[Buffer] = []
        for tensor, structure in zip(args, structures, strict=True):
            if type(tensor) is not Tensor or tensor._moves or tensor.grad is not None:
                return None
            node = tensor._cell._value
            shape = None
            if node.op is Ops.RESHAPE and len(node.src) == 1:
                shape = node.arg
                node = node.src[0]
            held = node.held
            if node.op is not Ops.BUFFER or held is None or held.buffer is None:
                return None
            # several cells: some of them may have ended, which only a walk over them tells
            if held.is_shared or len(held.cells) != 1 or held.buffer in found:
                return None
            facts = node.arg
            # as `describe` has it: no moves, and memory that is not shared
            seen = (node.dtype, facts.device, facts.size, shape, (), False, tensor.requires_grad)
            if seen != structure:
                return None
            found.append(held.buffer)
        guards = self._guards
        if guards.is_current() and (
            guards.numbers is self._numbers or guards.numbers == self._numbers
        ):
            return found
        return None
