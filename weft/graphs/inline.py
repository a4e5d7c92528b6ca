"""Calls of functions that a model defines, replaced by the functions' nodes; constants apart.

In: a `Model`. Out: its graph, in which every node is an operator. Sits between `model` and `run`.
Invariant: every value inside of a call has a name of its own, and a function that calls itself,
or calls that double at every level, are refused instead of written out.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from weft.errors import DataError
from weft.graphs.model import Function, Graph, Model, Node, Reference, StoredTensor

_MOST_NODES = 200_000
_DEEPEST = 100


def inline_functions(model: Model) -> Graph:
    """The graph of the model without calls of its own functions."""
    if not model.functions:
        return model.graph
    return _Inliner(model).graph(model.graph, {}, None, 0)


def lift_constants(graph: Graph) -> Graph:
    """The graph with tensors of Constant nodes among its constants, which are loaded once.

    w = Constant(value=...); y = Conv(x, w)  ->  constants {w: ...}; y = Conv(x, w)
    """
    constants = dict(graph.constants)
    nodes = []
    for node in graph.nodes:
        value = node.attributes.get("value")
        is_constant = node.op_type == "Constant" and node.domain in ("", "ai.onnx")
        if is_constant and isinstance(value, StoredTensor) and len(node.attributes) == 1:
            (name,) = node.outputs if len(node.outputs) == 1 else ("",)
            if name and name not in graph.inputs and name not in constants:
                constants[name] = value
                continue
        nodes.append(replace(node, attributes=_lifted(node.attributes)))
    return replace(graph, nodes=nodes, constants=constants)


def _lifted(attributes: dict[str, Any]) -> dict[str, Any]:
    found = {}
    for key, value in attributes.items():
        if isinstance(value, Graph):
            value = lift_constants(value)
        elif isinstance(value, list) and value and isinstance(value[0], Graph):
            value = [lift_constants(one) for one in value]
        found[key] = value
    return found


class _Inliner:
    def __init__(self, model: Model) -> None:
        self.functions = model.functions
        self.calls = 0
        self.nodes = 0

    def graph(
        self, graph: Graph, names: dict[str, str], function: Function | None, depth: int
    ) -> Graph:
        """A graph of the model or of an attribute; `names` renames what comes from outside."""
        own = {*graph.inputs, *graph.constants}
        inner = {old: new for old, new in names.items() if old not in own}
        nodes = [n for node in graph.nodes for n in self.node(node, inner, function, depth)]
        return Graph(graph.name, nodes, graph.constants, graph.inputs, graph.outputs)

    def node(
        self, node: Node, names: dict[str, str], function: Function | None, depth: int
    ) -> list[Node]:
        """A node with its inputs renamed, or the nodes of the function that it calls."""
        self.nodes += 1
        if self.nodes > _MOST_NODES or depth > _DEEPEST:
            raise DataError(
                f"{node}: written out, the functions of this model are more than {_MOST_NODES} "
                f"nodes, or {_DEEPEST} calls deep"
            )
        renamed = replace(
            node,
            inputs=tuple(names.get(name, name) for name in node.inputs),
            attributes={
                key: self.attribute(value, names, function, depth)
                for key, value in node.attributes.items()
            },
            opsets=node.opsets if function is None else function.opsets,
        )
        domain = "" if node.domain == "ai.onnx" else node.domain
        found = self.functions.get((domain, node.op_type, node.overload))
        if found is None:
            return [renamed]
        return self.call(renamed, found, depth)

    def attribute(
        self, value: Any, names: dict[str, str], function: Function | None, depth: int
    ) -> Any:
        if isinstance(value, Graph):
            return self.graph(value, names, function, depth)
        if isinstance(value, list) and value and isinstance(value[0], Graph):
            return [self.graph(one, names, function, depth) for one in value]
        return value

    def call(self, node: Node, function: Function, depth: int) -> list[Node]:
        """The nodes of a function, with the names and attributes of one call."""
        if len(node.inputs) > len(function.inputs) or len(node.outputs) > len(function.outputs):
            raise DataError(
                f"{node} has {len(node.inputs)} inputs and {len(node.outputs)} outputs; the "
                f"function takes {len(function.inputs)} and gives {len(function.outputs)}"
            )
        self.calls += 1
        prefix = f"{node.name or node.op_type}#{self.calls}/"
        names = dict.fromkeys(function.inputs, "")
        names |= dict(zip(function.inputs, node.inputs, strict=False))
        results = {
            inner: outer
            for inner, outer in zip(function.outputs, node.outputs, strict=False)
            if outer
        }
        given = {**function.defaults, **node.attributes}
        made: list[Node] = []
        for one in function.nodes:
            bound = _bind(one, given, {"": ""})
            outputs = tuple(results.get(n, prefix + n) if n else "" for n in one.outputs)
            for part in self.node(replace(bound, outputs=outputs), names, function, depth + 1):
                made.append(part)
            names |= dict(zip(one.outputs, outputs, strict=True))
        # an output that is an input passes through
        for inner, outer in results.items():
            if inner in function.inputs:
                made.append(Node("Identity", "", prefix, (names[inner],), (outer,), {}))
        return made


def _bind(node: Node, given: dict[str, Any], seen: dict[str, str]) -> Node:
    """A node whose references to the function's attributes are replaced by their values."""
    attributes: dict[str, Any] = {}
    for key, value in node.attributes.items():
        if isinstance(value, Reference):
            if value.name in given:
                attributes[key] = given[value.name]
        elif isinstance(value, Graph):
            bound = [_bind(one, given, seen) for one in value.nodes]
            attributes[key] = replace(value, nodes=bound)
        else:
            attributes[key] = value
    return replace(node, attributes=attributes)
