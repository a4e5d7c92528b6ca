"""weft: a tensor compiler with a neural-net library on top.

In: nothing. Out: the public names, which users import from here. Sits above every other room but
the applications. Invariant: importing it loads neither llvmlite nor numpy.
"""

from weft.device import Device
from weft.dtype import dtypes
from weft.engine.jit import TinyJit, jit
from weft.function import function
from weft.helpers import GlobalCounters, fetch
from weft.knobs import Context, getenv
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
