"""Functions with a gradient of their own: the decorator `function`.

In: a Python function of tensors, and a function that gives its gradient. Out: a function that
builds the same graph, but whose gradient is what was given.
Sits right above Tensor, for users and for methods whose gradient is better written down.
Invariant: values are not touched. What is computed is what the function computes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from weft.errors import ArgumentError
from weft.tensor import Tensor
from weft.uop.args import FunctionArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

Called = TypeVar("Called", bound=Callable[..., Any])


@dataclass(frozen=True)
class _Place:
    """Where an argument that is a Tensor stood: its number among the inputs."""

    number: int


class _Same:
    """An argument without a hash, equal to itself only."""

    def __init__(self, value: Any) -> None:
        self.value = value


@overload
def function(fxn: Called) -> Called: ...
@overload
def function(
    fxn: None = None, *, grad_fxn: Callable[..., Any] | None = None
) -> Callable[[Called], Called]: ...
def function(fxn: Any = None, *, grad_fxn: Callable[..., Any] | None = None) -> Any:
    """A function of tensors whose gradient is given by another function.

    `grad_fxn(gradient, *arguments)` gets the gradient of the result and what the function was
    called with, and returns the gradient (or None) of each argument that is a Tensor. If the
    function returns several tensors, `gradient` is a tuple with None for those that have none.

    >>> @function(grad_fxn=lambda gradient, x: gradient)
    ... def rounded(x):
    ...     return x.round()
    >>> x = Tensor([1.4, 2.6])
    >>> y = rounded(x)
    >>> y.sum().gradient(x)[0].tolist()
    [1.0, 1.0]
    """
    if fxn is None:
        return functools.partial(function, grad_fxn=grad_fxn)
    if not callable(fxn) or not (grad_fxn is None or callable(grad_fxn)):
        raise ArgumentError(f"function takes functions, found {fxn!r} and grad_fxn {grad_fxn!r}")
    if grad_fxn is None:
        return fxn

    @functools.wraps(fxn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _with_gradient(fxn(*args, **kwargs), grad_fxn, fxn.__name__, args, kwargs)

    return call


def _with_gradient(
    result: Any,
    grad_fxn: Callable[..., Any],
    name: str,
    args: Sequence[Any],
    kwargs: dict[str, Any],
) -> Any:
    """The result, marked with the rule and the inputs it is a function of."""
    inputs: list[Tensor] = []
    plain = tuple([_static(value, inputs) for value in args])
    named = tuple([(key, _static(value, inputs)) for key, value in kwargs.items()])
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    nodes = tuple([tensor.uop for tensor in inputs])
    marked = []
    for number, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            raise ArgumentError(f"{name} must return Tensors, found a {type(output).__name__}")
        several = len(outputs) if isinstance(result, (tuple, list)) else None
        arg = FunctionArg(name, _call_rule, (grad_fxn, number, several, plain, named))
        node = UOp(Ops.FUNCTION, output.dtype, (output.uop, *nodes), arg)
        marked.append(Tensor._from_uop(node))
    return type(result)(marked) if isinstance(result, (tuple, list)) else marked[0]


def _static(value: Any, inputs: list[Tensor]) -> Any:
    """An argument as part of a node's arg: tensors by their numbers."""
    if isinstance(value, Tensor):
        inputs.append(value)
        return _Place(len(inputs) - 1)
    try:
        hash(value)
    except TypeError:
        return _Same(value)
    return value


def _call_rule(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """The user's rule over tensors, its results checked."""
    grad_fxn, number, several, plain, named = static
    inputs = [Tensor._from_uop(source) for source in node.src[1:]]

    def given(value: Any) -> Any:
        if isinstance(value, _Place):
            return inputs[value.number]
        return value.value if isinstance(value, _Same) else value

    seed: Any = Tensor._from_uop(gradient)
    if several is not None:
        seed = tuple([seed if i == number else None for i in range(several)])
    found = grad_fxn(seed, *map(given, plain), **{key: given(value) for key, value in named})
    parts = found if isinstance(found, (tuple, list)) else (found,)
    if len(parts) != len(inputs):
        raise ArgumentError(
            f"the gradient of {node.arg.name} returned {len(parts)} gradients, it must return one "
            f"(or None) for each of the {len(inputs)} tensors it was called with"
        )
    return tuple([_checked(part, own, node) for part, own in zip(parts, inputs, strict=True)])


def _checked(part: Any, own: Tensor, node: UOp) -> UOp | None:
    if part is None:
        return None
    if not isinstance(part, Tensor) or (part.shape and part.shape != own.shape):
        found = part.shape if isinstance(part, Tensor) else type(part).__name__
        raise ArgumentError(
            f"the gradient of {node.arg.name} returned {found} for an argument of shape "
            f"{own.shape}; it must be a Tensor of that shape"
        )
    return part.cast(own.dtype).expand(own.shape).uop
