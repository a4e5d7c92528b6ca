"""PyTorch's programs on weft: `torch.compile(model, backend="weft")`.

Importing this registers the backend; where weft is installed, PyTorch finds it without that.
`report()` says what was compiled, and what was left to PyTorch.
"""

from weft.errors import UnsupportedError

try:
    import torch as _torch  # noqa: F401
except ImportError as error:
    raise UnsupportedError("weft.torch compiles PyTorch's programs: pip install torch") from error

from weft.torch.backend import register, weft_backend
from weft.torch.counts import Report, report, reset

__all__ = ["Report", "report", "reset", "weft_backend"]

register()
