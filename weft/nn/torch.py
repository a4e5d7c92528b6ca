"""PyTorch beside weft: its tensors seen as Tensors, the weights of its modules taken over.

In: tensors and modules of PyTorch, known here by what they can do; PyTorch is never imported. Out:
Tensors. Sits beside `nn.state`, on Tensor's DLPack. For the other direction PyTorch has a function
of its own: `torch.from_dlpack(tensor)` shares the memory of a Tensor.
Invariant: memory of the host is shared, not copied; a model that takes over weights has its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from weft.errors import ArgumentError
from weft.nn.state import load_state_dict
from weft.tensor import Tensor

__all__ = ["from_torch", "load_module", "state_dict"]


def from_torch(tensor: Any) -> Tensor:
    """The memory of a PyTorch tensor as a Tensor; from another device than the CPU it is copied.

    `from_torch(torch.ones(2)).tolist()` is `[1.0, 1.0]`.

    >>> from_torch([1.0])
    Traceback (most recent call last):
    weft.errors.ArgumentError: from_torch takes a PyTorch tensor, found a list
    """
    if not all(hasattr(tensor, name) for name in ("detach", "cpu", "__dlpack__")):
        raise ArgumentError(f"from_torch takes a PyTorch tensor, found a {type(tensor).__name__}")
    return Tensor.from_dlpack(tensor.detach().cpu())


def state_dict(module: Any) -> dict[str, Tensor]:
    """The state of a PyTorch module, or the state dict itself, as Tensors by the same names.

    `list(state_dict(torch.nn.Linear(2, 3)))` is `['weight', 'bias']`.

    >>> state_dict({})
    {}
    """
    found = module.state_dict() if hasattr(module, "state_dict") else module
    if not isinstance(found, Mapping):
        raise ArgumentError(
            f"state_dict takes a PyTorch module or its state dict, found a {type(module).__name__}"
        )
    return {name: from_torch(value) for name, value in found.items() if hasattr(value, "detach")}


def load_module(model: Any, module: Any, strict: bool = True) -> list[Tensor]:
    """Gives a model of weft the weights of a PyTorch module with the same names, and returns them.

    `load_module(nn.Linear(2, 3), torch.nn.Linear(2, 3))` makes both compute the same.

    >>> load_module({}, {})
    []
    """
    return load_state_dict(model, state_dict(module), strict=strict, verbose=False)
