"""The one IR: nodes, patterns, rules. `weft.uop.ops` has the names that users import.

In: ops over nodes. Out: interned nodes, facts about them, graphs rewritten by rules.

    opset, args                      THE op table, one row an op; what ops carry
    infer, bounds, evaluate          shapes, least and greatest values, reference values
    node, text, render               UOp, and how it prints
    pattern, matcher, compile_pattern, rewrite, trace    rules, and watching them
    rules/, symbolic                 the simplifier
    spec, spec_rules, prove, solver  what is legal, and proofs that indices are inside
    template, kernel_graph, scatter  graphs that are filled in, read back, written through indices
    compat*, ops, validate           names that programs for tinygrad know

Invariant: the same contents are the same object, and nothing recurses over a graph.
"""

import importlib
from typing import Any

from weft.uop.opset import GroupOp, Ops

__all__ = ["GroupOp", "Ops"]

# the facades, loaded when they are asked for
_FACADES = ("ops", "spec", "symbolic", "validate")


def __getattr__(name: str) -> Any:
    if name not in _FACADES:
        raise AttributeError(f"module 'weft.uop' has no attribute {name!r}")
    return importlib.import_module(f"weft.uop.{name}")
