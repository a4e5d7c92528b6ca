"""The decorator `function`: a function of tensors as a unit of the graph.

In: a Python function, method or callable object of tensors, and if wanted a rule that gives its
gradient. Out: a function that builds the same graph, says which tensors it is a function of, and
whose gradient is what was given.
Sits right above Tensor, for users and for methods whose gradient is better written down.
Invariant: values are not touched. What is computed is what the function computes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar, overload

from weft.dtype import dtypes
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


@dataclass(frozen=True)
class _Unit:
    """What a decorated function was asked to be."""

    name: str
    precompile: bool
    precompile_backward: bool
    allow_implicit: bool
    grad_fxn: Callable[..., Any] | None
    gradient: Callable[..., Any] | None


@overload
def function(fxn: Called) -> Called: ...
@overload
def function(
    fxn: None = None,
    *,
    precompile: bool = False,
    precompile_backward: bool = False,
    allow_implicit: bool = False,
    grad_fxn: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Callable[[Called], Called]: ...
def function(
    fxn: Any = None,
    *,
    precompile: bool = False,
    precompile_backward: bool = False,
    allow_implicit: bool = False,
    grad_fxn: Callable[..., Any] | None = None,
    gradient: Callable[..., Any] | None = None,
    name: str | None = None,
) -> Any:
    """A function of tensors as a unit: its inputs are its arguments, its results Tensors.

    Memory that it reads must come with its arguments (a Tensor, containers of them, or an object
    such as `self` that has them) unless `allow_implicit`. Arguments that it does not use have a
    gradient of zeros. With `precompile` its inputs and results are stored, so that its kernels are
    the same wherever it is called; with `precompile_backward` so are the gradients of its inputs.

    A gradient of its own comes as `gradient(gradient, *arguments)` over Tensors: it gets the
    gradient of the result and what the function was called with, and returns the gradient (or None)
    of each argument that is a Tensor. If the function returns several tensors, the first argument
    is a tuple with None for those that have none. Or as `grad_fxn(gradient, call)` over UOps, where
    `call.src[1:]` are the inputs (`grad_fxn(*gradients, call=call)` for several results).

    >>> @function(gradient=lambda gradient, x: gradient)
    ... def rounded(x):
    ...     return x.round()
    >>> x = Tensor([1.4, 2.6])
    >>> y = rounded(x)
    >>> y.sum().gradient(x)[0].tolist()
    [1.0, 1.0]
    """
    if fxn is None:
        return functools.partial(
            function,
            precompile=precompile,
            precompile_backward=precompile_backward,
            allow_implicit=allow_implicit,
            grad_fxn=grad_fxn,
            gradient=gradient,
            name=name,
        )
    rules = [rule for rule in (grad_fxn, gradient) if rule is not None]
    if not callable(fxn) or not all(callable(rule) for rule in rules) or len(rules) > 1:
        raise ArgumentError(
            f"function takes a function and at most one rule for its gradient, found {fxn!r} and "
            f"{rules!r}"
        )
    called = str(name or getattr(fxn, "__name__", type(fxn).__name__))
    unit = _Unit(called, precompile, precompile_backward, allow_implicit, grad_fxn, gradient)

    @functools.wraps(fxn)
    def call(*args: Any, **kwargs: Any) -> Any:
        return _call(fxn, unit, args, kwargs)

    return call


def _call(
    fxn: Callable[..., Any], unit: _Unit, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """The results of a function, checked and marked."""
    if unit.precompile or unit.precompile_backward:
        args = tuple([_stored(unit, value) for value in args])
        kwargs = {key: _stored(unit, value) for key, value in kwargs.items()}
    inputs = [(tensor, tensor.uop) for tensor in _tensors_in((args, kwargs))]
    result = fxn(*args, **kwargs)
    outputs = list(_results_in(unit, result))
    body = _body([output.uop for output in outputs], {node for _, node in inputs})
    if not unit.allow_implicit:
        _refuse_implicit(unit, body, [node for _, node in inputs])
    if unit.gradient is not None or unit.grad_fxn is not None:
        return _with_gradient(result, unit, args, kwargs)
    unused = [node for tensor, node in inputs if node not in body and dtypes.is_float(tensor.dtype)]

    def marked(output: Tensor) -> Tensor:
        if unused:
            # the value is among its own inputs: the gradient passes on to it
            arg = FunctionArg(unit.name, _pass_on)
            node = UOp(Ops.FUNCTION, output.dtype, (output.uop, output.uop, *unused), arg)
            output = Tensor._from_uop(node)
        return output.contiguous() if unit.precompile else output

    return _mapped(result, marked) if unused or unit.precompile else result


def _stored(unit: _Unit, value: Any) -> Any:
    """An input as a precompiled function takes it."""
    if not isinstance(value, Tensor):
        return value
    stored = value.contiguous() if unit.precompile else value
    floats = unit.precompile_backward and dtypes.is_float(stored.dtype)
    return stored.contiguous_backward() if floats else stored


def _pass_on(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """To the value itself; the inputs that it does not use get nothing."""
    return (gradient, *[None] * (len(node.src) - 2))


def _tensors_in(value: Any) -> Iterator[Tensor]:
    """The tensors in arguments: themselves, in containers, in the attributes of objects."""
    pending, seen = [value], set()
    while pending:
        item = pending.pop()
        if isinstance(item, Tensor):
            yield item
            continue
        if id(item) in seen or isinstance(item, (type, str, bytes, int, float, UOp)):
            continue
        seen.add(id(item))
        if isinstance(item, Mapping):
            pending.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            pending.extend(item)
        elif not callable(item) or not hasattr(item, "__code__"):
            pending.extend(getattr(item, "__dict__", {}).values())


def _results_in(unit: _Unit, result: Any) -> Iterator[Tensor]:
    """The tensors that a function returned; an error for anything else."""
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, Mapping):
        for part in result.values():
            yield from _results_in(unit, part)
    elif isinstance(result, (list, tuple)):
        for part in result:
            yield from _results_in(unit, part)
    else:
        raise ArgumentError(
            f"{unit.name} must return Tensors, found a {type(result).__name__}; call it without "
            "the decorator for other results"
        )


def _mapped(result: Any, change: Callable[[Tensor], Tensor]) -> Any:
    if isinstance(result, Tensor):
        return change(result)
    if isinstance(result, Mapping):
        return {key: _mapped(part, change) for key, part in result.items()}
    parts = [_mapped(part, change) for part in result]
    return type(result)(*parts) if hasattr(result, "_fields") else type(result)(parts)


def _body(outputs: Sequence[UOp], inputs: set[UOp]) -> set[UOp]:
    """The nodes of a function: from its results down to its inputs."""
    seen: set[UOp] = set()
    pending = list(outputs)
    while pending:
        node = pending.pop()
        if node not in seen:
            seen.add(node)
            if node not in inputs:
                pending.extend(node.src)
    return seen


def _refuse_implicit(unit: _Unit, body: set[UOp], inputs: Sequence[UOp]) -> None:
    """An error if memory is read that did not come with the arguments."""
    known = set(inputs)
    read = [node for node in body if node.op is Ops.BUFFER and node not in known]
    if not read:
        return
    # the arguments may be expressions of it
    known = _body(inputs, set())
    implicit = [node for node in read if node not in known]
    if implicit:
        sizes = ", ".join(f"{node.dtype} of {node.shape}" for node in implicit[:4])
        raise ArgumentError(
            f"function {unit.name} reads {len(implicit)} buffers that did not come with its "
            f"arguments ({sizes}); pass them to it, or say allow_implicit=True"
        )


def _with_gradient(result: Any, unit: _Unit, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """The result, marked with the rule and the inputs it is a function of."""
    inputs: list[Tensor] = []
    plain = tuple([_static(value, inputs) for value in args])
    named = tuple([(key, _static(value, inputs)) for key, value in kwargs.items()])
    outputs = result if isinstance(result, (tuple, list)) else (result,)
    nodes = tuple([tensor.uop for tensor in inputs])
    marked = []
    several = len(outputs) if isinstance(result, (tuple, list)) else None
    for number, output in enumerate(outputs):
        if not isinstance(output, Tensor):
            raise ArgumentError(
                f"{unit.name} has a gradient of its own and must return Tensors, found a "
                f"{type(output).__name__}"
            )
        if unit.grad_fxn is not None:
            kinds = tuple([(part.dtype, part.shape) for part in outputs])
            arg = FunctionArg(unit.name, _call_node_rule, (unit.grad_fxn, number, several, kinds))
        else:
            static = (unit.gradient, number, several, plain, named)
            arg = FunctionArg(unit.name, _call_rule, static)
        node = UOp(Ops.FUNCTION, output.dtype, (output.uop, *nodes), arg)
        stored = Tensor._from_uop(node)
        marked.append(stored.contiguous() if unit.precompile else stored)
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


def _call_node_rule(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """The user's rule over nodes; of several results the others have a gradient of zeros."""
    grad_fxn, number, several, kinds = static
    if several is None:
        found = grad_fxn(gradient, node)
    else:
        zeros = [UOp.const(dtype, 0).expand(shape) for dtype, shape in kinds]
        found = grad_fxn(*zeros[:number], gradient, *zeros[number + 1 :], call=node)
    inputs = [Tensor._from_uop(source) for source in node.src[1:]]
    parts = found if isinstance(found, (tuple, list)) else (found,)
    if len(parts) != len(inputs):
        raise ArgumentError(
            f"the gradient of {node.arg.name} returned {len(parts)} gradients, it must return one "
            f"(or None) for each of the {len(inputs)} tensors it was called with"
        )
    parts = [Tensor._from_uop(part) if isinstance(part, UOp) else part for part in parts]
    return tuple([_checked(part, own, node) for part, own in zip(parts, inputs, strict=True)])


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
