"""How the tests of layers and optimisers compare with PyTorch.

The reference is PyTorch in float64. weft runs in float64, where it must agree to rounding, and in
float32, within the tolerances of `torch.testing.assert_close` for the dtype.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from test.optional import need
from weft import Context, Tensor, nn

torch = need("torch")

TOLERANCES = {"float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def close(found: Tensor, wanted: Any, what: str = "") -> None:
    """`found` has the shape and, within the tolerance of its dtype, the values of `wanted`."""
    values = found.numpy()
    reference = wanted.detach().numpy()
    assert values.shape == reference.shape, f"{what}: shape {values.shape}, not {reference.shape}"
    rtol, atol = TOLERANCES[values.dtype.name]
    np.testing.assert_allclose(values, reference, rtol=rtol, atol=atol, err_msg=what)


def numbers(*shape: int, seed: int = 0) -> Any:
    """The same normal numbers every time."""
    return np.random.default_rng(seed).standard_normal(shape)


def pair(ours: Callable[[], Any], theirs: Callable[[], Any], dtype: str) -> tuple[Any, Any]:
    """A layer of each, weft's with the parameters of PyTorch's, which keep their names."""
    torch.manual_seed(0)
    reference = theirs().double()
    with torch.no_grad():
        for number, parameter in enumerate(reference.parameters()):
            # initial ones and zeros would hide a parameter that is not used
            noise = numbers(*parameter.shape, seed=100 + number)
            parameter.add_(torch.tensor(noise) * 0.1)
    with Context(DEFAULT_FLOAT=dtype):
        layer = ours()
    state = {name: value.numpy() for name, value in reference.state_dict().items()}
    found = nn.state.get_state_dict(layer)
    assert set(found) == set(state)
    for name, tensor in found.items():
        assert tensor.shape == state[name].shape, name
        tensor.replace(Tensor(state[name], dtype=tensor.dtype).realize())
    return layer, reference


def outputs(result: Any) -> list[Any]:
    """The tensors of a result that may be nested tuples."""
    if isinstance(result, tuple):
        return [part for item in result for part in outputs(item)]
    return [] if result is None else [result]


def tensors(arrays: list[Any], dtype: str) -> tuple[list[Tensor], list[Any]]:
    """The inputs for each side; whole numbers stay whole."""
    ours, theirs = [], []
    for array in arrays:
        array = np.asarray(array)
        is_float = array.dtype.kind == "f"
        ours.append(Tensor(array.astype(dtype) if is_float else array).realize())
        theirs.append(torch.tensor(array, requires_grad=is_float))
    return ours, theirs


def compare(layer: Any, reference: Any, arrays: list[Any], dtype: str, **options: Any) -> None:
    """Results, and gradients of inputs and parameters, of one call."""
    ours, theirs = tensors(arrays, dtype)
    state = nn.state.get_state_dict(layer)
    reference.zero_grad()
    for tensor in state.values():
        tensor.grad = None
    mine = {k: Tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    other = {k: torch.tensor(v) if isinstance(v, np.ndarray) else v for k, v in options.items()}
    found, wanted = outputs(layer(*ours, **mine)), outputs(reference(*theirs, **other))
    assert len(found) == len(wanted)
    loss, expected = Tensor(0.0), torch.zeros(())
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        weights = numbers(*b.shape, seed=50 + number)
        loss = loss + (a * Tensor(weights.astype(dtype))).sum()
        expected = expected + (b * torch.tensor(weights)).sum()
    loss.backward()
    expected.backward()
    gradients = [t.grad for t in [*ours, *state.values()] if t.grad is not None]
    Tensor.realize(*found, *gradients)
    for number, (a, b) in enumerate(zip(found, wanted, strict=True)):
        close(a, b, f"result {number}")
    for number, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        if b.grad is not None:
            close(a.grad, b.grad, f"gradient of input {number}")
    parameters = dict(reference.named_parameters())
    for name, tensor in state.items():
        if name in parameters and parameters[name].grad is not None:
            assert tensor.grad is not None, f"{name} has no gradient"
            close(tensor.grad, parameters[name].grad, f"gradient of {name}")
