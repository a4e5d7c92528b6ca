"""Gradient clipping: bounds on the gradients before an optimiser's step.

In: parameters with gradients. Out: the same parameters, their gradients made smaller where they
exceed the bound. Sits under the optimisers, which pass its names on.
Invariant: nothing is computed here; a clipped gradient is an expression.
"""

from __future__ import annotations

from collections.abc import Iterable

from weft.dtype import computing_dtype
from weft.errors import ArgumentError
from weft.tensor import Tensor


def _with_gradients(parameters: Tensor | Iterable[Tensor]) -> list[tuple[Tensor, Tensor]]:
    given = [parameters] if isinstance(parameters, Tensor) else list(parameters)
    return [(param, param.grad) for param in given if param.grad is not None]


def get_total_norm(tensors: Iterable[Tensor], norm_type: float = 2.0) -> Tensor:
    """The norm of all elements of all tensors together.

    >>> get_total_norm([Tensor([3.0]), Tensor([4.0])]).item()
    5.0
    """
    power = float(norm_type)
    if power <= 0:
        raise ArgumentError(f"a norm has a positive power, or inf, found {norm_type}")
    total: Tensor | None = None
    for tensor in tensors:
        size = tensor.cast(computing_dtype(tensor.dtype)).abs()
        if power == float("inf"):
            part = size.max()
            total = part if total is None else total.maximum(part.to(total.device))
        else:
            part = (size.square() if power == 2 else size.pow(power)).sum()
            total = part if total is None else total + part.to(total.device)
    if total is None:
        return Tensor([0.0]).sum()
    if power == float("inf"):
        return total
    return total.sqrt() if power == 2 else total.pow(1 / power)


def clip_grad_norm_(
    parameters: Tensor | Iterable[Tensor], max_norm: float, norm_type: float = 2.0
) -> Tensor:
    """Scales all gradients together so that their norm is at most max_norm; the norm before.

    >>> x = Tensor([3.0, 4.0])
    >>> loss = (x * x).sum().backward()
    >>> norm = clip_grad_norm_([x], 1.0)
    >>> norm.item(), [round(n, 4) for n in x.grad.tolist()]
    (10.0, [0.6, 0.8])
    """
    found = _with_gradients(parameters)
    # read by every gradient: computed once
    norm = get_total_norm([gradient for _, gradient in found], norm_type).detach().contiguous()
    scale = (max_norm / (norm + 1e-6)).minimum(1.0)
    for param, gradient in found:
        clipped = gradient * scale.to(gradient.device).cast(gradient.dtype)
        param.grad = clipped.requires_grad_(False)
    return norm


def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float) -> None:
    """Cuts each element of each gradient to at most clip_value and at least its negative.

    >>> x = Tensor([3.0, 0.25])
    >>> loss = (x * x).sum().backward()
    >>> clip_grad_value_([x], 1.0)
    >>> x.grad.tolist()
    [1.0, 0.5]
    """
    for param, gradient in _with_gradients(parameters):
        param.grad = gradient.clip(-clip_value, clip_value).requires_grad_(False)
