"""Public names of tinygrad's API: written down from an installed one, looked up in weft.

    python -m test.programs.names    # writes names.json (needs tinygrad)

In: the places below. Out: for each place the public names that it has there.
Where it sits: beside `expressions.py`. Invariant: names that a module only imports do not
count; those of a class count whoever defines them.
"""

from __future__ import annotations

import importlib
import inspect
import json
from pathlib import Path
from typing import Any

RECORD = Path(__file__).parent / "names.json"
PEER = "tinygrad"
MODULES = ("", "helpers", "dtype", "nn", "nn.state", "nn.optim", "nn.datasets", "uop.ops")
CLASSES = (
    *("tensor.Tensor", "uop.ops.UOp", "uop.ops.Ops", "uop.ops.GroupOp", "uop.ops.PatternMatcher"),
    *("dtype.dtypes", "dtype.DType", "device.Buffer", "device.Device", "device.Compiled"),
    *("helpers.GlobalCounters", "helpers.Context", "helpers.ContextVar", "helpers.tqdm"),
    *(
        "codegen.opt.Opt",
        "codegen.opt.OptOps",
        "renderer.Renderer",
        "nn.BatchNorm",
        "nn.optim.LAMB",
    ),
)


def names_of(place: str, library: str) -> list[str]:
    """The public names of a module or a class."""
    if place in MODULES:
        module = importlib.import_module(f"{library}.{place}".rstrip("."))
        found = {name: getattr(module, name) for name in dir(module)}
        return sorted(
            n for n, v in found.items() if _is_own(n, v, f"{library}.{place}".rstrip("."))
        )
    return sorted(name for name in dir(thing(place, library)) if not name.startswith("_"))


def thing(place: str, library: str) -> Any:
    """A module, or what a dotted name of one means."""
    if place in MODULES:
        return importlib.import_module(f"{library}.{place}".rstrip("."))
    module, _, name = place.rpartition(".")
    return getattr(importlib.import_module(f"{library}.{module}"), name)


def _is_own(name: str, value: Any, module: str) -> bool:
    if name.startswith("_") or inspect.ismodule(value):
        return False
    home = getattr(value, "__module__", None)
    if module == PEER:
        return True
    if isinstance(value, (int, dict, tuple, str)) or home is None:
        return name.isupper()
    return home == module or (type(value).__name__ == "ContextVar" and module.endswith("helpers"))


def main() -> None:
    """Write them down."""
    rows = [f"{json.dumps(p)}: {json.dumps(names_of(p, PEER))}" for p in (*MODULES, *CLASSES)]
    RECORD.write_text("{\n" + ",\n".join(rows) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
