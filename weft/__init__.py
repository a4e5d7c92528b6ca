"""weft: a tensor compiler with a neural-net library on top.

In: nothing. Out: the public names, which users import from here. Sits above every other room but
the applications; docs/architecture.md leads through the rooms, from `tensor` (what a user holds) by
`uop` (the IR), `schedule`, `codegen`, `renderer` to `runtime`, all driven by `engine`.
Invariant: importing it loads neither llvmlite nor numpy.
"""

import importlib
from typing import TYPE_CHECKING, Any

from weft.compat_uop import give_methods
from weft.device import Device
from weft.dtype import dtypes
from weft.function import function
from weft.helpers import GlobalCounters, fetch
from weft.knobs import PROFILE, VIZ, Context, getenv
from weft.tensor import Tensor
from weft.uop.node import UOp, Variable

__version__ = "0.1.0"
__all__ = [
    "Context",
    "Device",
    "GlobalCounters",
    "Tensor",
    "TinyJit",
    "UOp",
    "Variable",
    "dtypes",
    "fetch",
    "function",
    "getenv",
    "jit",
]

if TYPE_CHECKING:
    from weft import nn as nn
    from weft.engine.jit import TinyJit, jit

# What not every program needs is loaded when it is asked for: name -> module, of which it is a part
# unless it is the module itself.
_LATER = {"TinyJit": "weft.engine.jit", "jit": "weft.engine.jit", "nn": "weft.nn"}


def __getattr__(name: str) -> Any:
    if name not in _LATER:
        raise AttributeError(f"module 'weft' has no attribute {name!r}")
    module = importlib.import_module(_LATER[name])
    found = module if module.__name__ == f"weft.{name}" else getattr(module, name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_LATER})


give_methods()

if VIZ:
    # by name, as devices are: nobody imports the viewer
    importlib.import_module("weft.viz.recording").start()
elif PROFILE:
    importlib.import_module("weft.viz.profiling").start()
