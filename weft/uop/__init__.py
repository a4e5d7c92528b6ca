"""The one IR: nodes, patterns, rules. `weft.uop.ops` has the names that users import."""

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
