"""Again: a call like the last one, recognised at a glance.

In: the arguments of a call. Out: the memory they are, if the call is one of the kind that was
replayed last. Sits under `jit`, beside `jit_arguments`, which takes any call apart.
Invariant: it answers only where taking the call apart would lead to the same graph.

After a kernel that reads more than the caches hold, the interpreter's own objects have to come from
memory as well: every object that a call looks at then takes as long as hundreds of instructions.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.device import Buffer, Device
from weft.engine.jit_arguments import Arguments
from weft.engine.jit_graph import CapturedGraph
from weft.engine.jit_names import Chain, values_of
from weft.engine.jit_values import Values
from weft.tensor import Tensor
from weft.uop.opset import Ops


class Again:
    """A kind of call: its graph, and what has to be as it was.

    Only for calls whose arguments are tensors alone, each the whole of a storage of its own, and
    for graphs that read nothing else and write new memory alone.
    """

    __slots__ = ("_chains", "_kinds", "_place", "_values", "graph", "knobs")

    def __init__(
        self,
        graph: CapturedGraph,
        knobs: Any,
        chains: Sequence[Chain],
        values: Values,
        arguments: Arguments,
    ) -> None:
        self.graph = graph
        self.knobs = knobs
        # names in the function, and what they meant
        self._chains = chains
        self._values = values
        self._place = Device.DEFAULT
        self._kinds = [
            (dtype, place, size, shape, requires_grad)
            for dtype, place, size, shape, _, _, requires_grad in [
                found.structure for found in arguments.descriptions
            ]
        ]

    @staticmethod
    def fits(graph: CapturedGraph, arguments: Arguments) -> bool:
        """Whether calls like this one may be recognised so."""
        if not arguments.is_stored or not graph.is_plain:
            return False
        return not any([found.structure[5] for found in arguments.descriptions])

    def has_names(self) -> bool:
        """Whether the names in the function mean the same as then."""
        roots = values_of(self._chains)
        values = self._values
        if values.are_those_of(roots):
            return True
        # in containers that are looked into anything may have changed
        found = Values(self._chains, roots)
        return found.structure == values.structure and found.numbers == values.numbers

    def memory(self, args: tuple[Any, ...]) -> list[Buffer] | None:
        """The memory of the arguments; None if they are not of this kind, or it takes a closer
        look to know."""
        kinds = self._kinds
        if len(args) != len(kinds) or Device.DEFAULT != self._place:
            return None
        found: list[Buffer] = []
        for tensor, (dtype, place, size, shape, requires_grad) in zip(args, kinds, strict=True):
            if type(tensor) is not Tensor or tensor._moves or tensor.grad is not None:
                return None
            node = tensor._cell._value
            reshaped = None
            if node.op is Ops.RESHAPE and len(node.src) == 1:
                reshaped = node.arg
                node = node.src[0]
            if node.op is not Ops.BUFFER or node.dtype is not dtype or reshaped != shape:
                return None
            facts = node.arg
            if facts.size != size or facts.device != place:
                return None
            held = node.held
            # several cells: some of them may have ended, which only a walk over them tells
            if held is None or held.buffer is None or held.is_shared or len(held.cells) != 1:
                return None
            if tensor.requires_grad is not requires_grad or held.buffer in found:
                return None
            found.append(held.buffer)
        return found
