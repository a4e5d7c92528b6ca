"""A graph cut into segments: what weft runs together, and between them what PyTorch runs.

In: the nodes of a graph, and which of them are left to PyTorch. Out: segments in order. Sits below
`plan`.
Invariant: a segment reads only what segments before it have written, and inputs of the graph are
written after all that reads them.
"""

from __future__ import annotations

import operator
from collections.abc import Container, Sequence
from dataclasses import dataclass, field

import torch
from torch.fx import Node

from weft.torch.lower import name_of, value_of

_MUTATIONS = ("copy_.default", "copy_")


@dataclass
class Segment:
    """Nodes of weft's (`nodes`, which read `inputs`, and of whose values `outputs` are read by
    others, and `writes` go to inputs of the graph), then nodes of PyTorch's (`theirs`)."""

    nodes: list[Node] = field(default_factory=list)
    inputs: list[Node] = field(default_factory=list)
    outputs: list[Node] = field(default_factory=list)
    writes: list[tuple[Node, Node]] = field(default_factory=list)
    theirs: list[Node] = field(default_factory=list)


def is_mutation(node: Node) -> bool:
    """Whether a node writes to an input of the graph."""
    return node.op == "call_function" and name_of(node.target) in _MUTATIONS


def cut(nodes: Sequence[Node], left: Container[Node], wanted: Container[Node]) -> list[Segment]:
    """The segments of a graph whose `wanted` values come out."""
    stages = _stages(nodes, left)
    segments = [Segment() for _ in range(max(stages.values(), default=-1) + 1)]
    for node in nodes:
        segment = segments[stages[node]]
        if _is_theirs(node, left):
            segment.theirs.append(node)
        elif is_mutation(node):
            target, source = node.args[:2]
            assert isinstance(target, Node) and isinstance(source, Node)
            segment.writes.append((target, source))
        else:
            segment.nodes.append(node)
    for segment in segments:
        _connect(segment, wanted)
    return segments


def _is_theirs(node: Node, left: Container[Node]) -> bool:
    """A node that PyTorch runs, or a part of what such a node gives."""
    return node in left or (node.target is operator.getitem and node.args[0] in left)


def _stages(nodes: Sequence[Node], left: Container[Node]) -> dict[Node, int]:
    """When each node runs: in a stage, what weft runs comes before what PyTorch runs."""
    stages: dict[Node, int] = {}
    has_theirs = False
    for node in nodes:
        is_theirs = _is_theirs(node, left)
        has_theirs = has_theirs or is_theirs
        before = [source for source in node.all_input_nodes if source in stages]
        stages[node] = max(
            [stages[s] + (_is_theirs(s, left) and not is_theirs) for s in before], default=0
        )
    if has_theirs:
        last = max(stages.values()) + 1
        for node in nodes:
            if is_mutation(node):
                stages[node] = last
    return stages


def _connect(segment: Segment, wanted: Container[Node]) -> None:
    """What a segment reads and what is read of it; what nobody needs is dropped."""
    inside = set(segment.nodes)
    segment.outputs = [
        node
        for node in segment.nodes
        if isinstance(value_of(node), torch.Tensor)
        and (node in wanted or any(_reads(user, inside) for user in node.users))
    ]
    pending = [*segment.outputs, *[source for _, source in segment.writes]]
    needed: set[Node] = set()
    inputs: dict[Node, None] = dict.fromkeys([target for target, _ in segment.writes])
    while pending:
        node = pending.pop()
        if node in needed:
            continue
        needed.add(node)
        if node in inside:
            pending.extend(node.all_input_nodes)
        elif isinstance(value_of(node), torch.Tensor):
            inputs.setdefault(node)
    segment.nodes = [node for node in segment.nodes if node in needed]
    segment.inputs = list(inputs)


def _reads(user: Node, inside: set[Node]) -> bool:
    """Whether a node outside of a segment needs a value of it; writes of its own do not."""
    return user.op == "call_function" and user not in inside and not is_mutation(user)
