"""All nets of `bench.torch_nets` through `torch.compile`, forward and backward, against eager.

    python -m test.torch.nets [NAME ...]

compares every net in both modes, and counts graphs with dynamo's own. The suite runs a share.
"""

from __future__ import annotations

import copy
import sys
from typing import Any

from test.optional import need

torch = need("torch")

from bench.torch_nets import NETS  # noqa: E402
from weft.torch import report, reset  # noqa: E402


def compiled(function: Any, **options: Any) -> Any:
    """The function on weft."""
    return torch.compile(function, backend="weft", **options)


def with_batch(inputs: tuple[Any, ...], size: int, axis: int) -> tuple[Any, ...]:
    """Inputs with another size along an axis."""
    return tuple(
        torch.cat([x] * -(-size // x.shape[axis]), axis).narrow(axis, 0, size).contiguous()
        for x in inputs
    )


def results(model: Any, function: Any, inputs: tuple[Any, ...], is_training: bool) -> list[Any]:
    """Outputs, and with training also gradients and what the model keeps."""
    if not is_training:
        with torch.no_grad():
            found = function(*inputs)
            return list(found) if isinstance(found, tuple) else [found]
    found = function(*inputs)
    outputs = list(found) if isinstance(found, tuple) else [found]
    loss = sum((y * torch.linspace(0.5, 1.5, y.numel()).view(y.shape)).sum() for y in outputs)
    loss.backward()
    gradients = [parameter.grad for parameter in model.parameters()]
    return [*[y.detach() for y in outputs], *gradients, *model.buffers()]


def compare(name: str, is_training: bool) -> None:
    """One net: values within twice the error that eager itself has, as many graphs as dynamo."""
    torch.manual_seed(0)
    torch._dynamo.config.allow_rnn = True
    model, inputs = NETS[name](True)
    model.train(is_training)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    mine, exact = copy.deepcopy(model), copy.deepcopy(model).double()
    expected = results(model, model, inputs, is_training)
    wide = tuple(x.double() if x.is_floating_point() else x for x in inputs)
    truth = results(exact, exact, wide, is_training)
    reset()
    found = results(mine, compiled(mine), inputs, is_training)
    assert len(found) == len(expected)
    for a, b, c in zip(found, expected, truth, strict=True):
        if b is None or not b.is_floating_point():
            assert b is None or torch.equal(a, b)
            continue
        assert a.dtype == b.dtype and a.shape == b.shape and a.stride() == b.stride()
        bound = 2 * (b.double() - c).abs().max() + 1e-5 * (1 + c.abs().max())
        error = (a.double() - c).abs().max()
        assert error <= bound, f"{name}: an error of {error}, eager's allows {bound}"
    made = report()
    assert not made.left_to_torch, made
    torch._dynamo.reset()
    theirs = torch._dynamo.explain(model)(*inputs).graph_count
    assert made.graphs == theirs * (1 + is_training), (made.graphs, theirs)


def main(names: list[str]) -> None:
    for name in names or NETS:
        for is_training in (False, True):
            torch._dynamo.reset()
            compare(name, is_training)
        print(name, "as eager, forward and backward", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
