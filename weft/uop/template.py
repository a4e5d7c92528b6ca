"""Graphs that are built once and filled in: a graph with holes for its inputs, and its own storage.

In: a graph over stand-ins for the inputs. Out: the same graph over other inputs, with new storage
wherever it had some. Sits above the nodes, below the Tensor families, whose longer methods would
else spend more time on building graphs than on computing them.
Invariant: a filled graph is what building it again would give; what is derived from shapes and
devices is not derived again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.dtype import DType
from weft.errors import ArgumentError
from weft.helpers import prod
from weft.uop.node import UOp
from weft.uop.opset import Ops


def stand_in(device: str, shape: tuple[int, ...], dtype: DType) -> UOp:
    """A node for an input that is only known by these; nothing can be told from its op."""
    storage = UOp.new_buffer(device, prod(shape), dtype)
    return UOp(Ops.DETACH, dtype, (storage._mop(Ops.RESHAPE, shape),))


def is_copyable(results: Sequence[UOp]) -> bool:
    """Whether a graph may be copied: nothing in it has a tag, which is an identity of its own."""
    return all(node.tag is None for node in UOp(Ops.SINK, src=tuple(results)).toposort())


class Template:
    """A graph with holes: its nodes in order, each with the places of its sources.

    Places count the inputs first, then the storage, then what is the same in every copy (constants
    and what is made of them), then the nodes.
    """

    __slots__ = ("_fixed", "_inputs", "_results", "_rows", "_storage")

    def __init__(self, inputs: Sequence[UOp], results: Sequence[UOp]) -> None:
        holes = set(inputs)
        order = UOp(Ops.SINK, src=tuple(results)).toposort(gate=lambda node: node not in holes)
        order.popitem()
        moving = dict.fromkeys(inputs)
        for node in order:
            if node.op is Ops.BUFFER or any(source in moving for source in node.src):
                moving[node] = None
        storage = [node for node in moving if node.op is Ops.BUFFER and node not in holes]
        built = [node for node in moving if node not in holes and node.op is not Ops.BUFFER]
        needed = dict.fromkeys(source for node in built for source in node.src)
        needed.update(dict.fromkeys(results))
        fixed = [node for node in needed if node not in moving]
        every = (*inputs, *storage, *fixed, *built)
        place = {node: number for number, node in enumerate(every)}
        self._inputs = len(inputs)
        self._storage = [(node.arg.device, node.arg.size, node.dtype) for node in storage]
        self._fixed = fixed
        self._rows = [
            (
                *(node.op, node.dtype, [place[source] for source in node.src]),
                *(node.arg, node.tag, _facts(node)),
            )
            for node in built
        ]
        self._results = [place[node] for node in results]

    def __len__(self) -> int:
        """How many nodes a copy has of its own."""
        return len(self._storage) + len(self._rows)

    def fill(self, inputs: Sequence[UOp], origin: tuple[str, int] | None = None) -> list[UOp]:
        """The results over these inputs; `origin` is the user's line."""
        if len(inputs) != self._inputs:
            raise ArgumentError(f"a template of {self._inputs} inputs got {len(inputs)}")
        nodes = [*inputs, *[UOp.new_buffer(*each) for each in self._storage], *self._fixed]
        append = nodes.append
        for op, dtype, sources, arg, tag, (shape, device) in self._rows:
            node = UOp(op, dtype, tuple([nodes[place] for place in sources]), arg, tag)
            node._shape, node._device = shape, device
            if node.origin is None:
                node.origin = origin
            append(node)
        return [nodes[place] for place in self._results]


def _facts(node: UOp) -> tuple[Any, Any]:
    """What is derived from the sources: the shape (None if it has none) and the device."""
    node.device  # noqa: B018
    if node.op is not Ops.STORE:
        node.shape  # noqa: B018
    return node._shape, node._device
