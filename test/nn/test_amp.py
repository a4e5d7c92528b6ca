"""Mixed precision: which dtypes layers compute in, and loss scaling against PyTorch's rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.nn.against_torch import numbers, torch
from weft import Tensor, TinyJit, dtypes, nn
from weft.errors import ArgumentError, DTypeError
from weft.nn import amp, optim


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_layers_compute_in_half(kind: str) -> None:
    x = Tensor(numbers(2, 3, 8).astype("float32"))
    image = Tensor(numbers(2, 3, 6, 6).astype("float32"))
    with amp.autocast(kind):
        for result in (
            nn.Linear(8, 4)(x),
            nn.Conv1d(3, 4, 3)(x),
            nn.Conv2d(3, 4, 3)(image),
            nn.ConvTranspose2d(3, 4, 3)(image),
            nn.LSTM(8, 4)(x)[0],
            nn.GRUCell(8, 4)(x[0]),
            nn.MultiheadAttention(8, 2)(x, x, x)[0],
        ):
            assert result.dtype.name == kind
        assert nn.LayerNorm(8)(x).dtype is dtypes.float32
        with amp.autocast(enabled=False):
            assert nn.Linear(8, 4)(x).dtype is dtypes.float32
    assert nn.Linear(8, 4)(x).dtype is dtypes.float32


def test_values_are_those_of_pytorchs_autocast() -> None:
    """A layer in bfloat16 is as close to the truth as PyTorch's."""
    reference = torch.nn.Linear(64, 32)
    layer = nn.Linear(64, 32)
    for name, tensor in nn.state.get_state_dict(layer).items():
        tensor.replace(Tensor(reference.state_dict()[name].numpy()).realize())
    data = numbers(8, 64).astype("float32")
    with torch.autocast("cpu", torch.bfloat16):
        wanted = reference(torch.tensor(data)).float().detach().numpy()
    with amp.autocast(dtypes.bfloat16):
        found = layer(Tensor(data)).float().numpy()
    truth = reference.double()(torch.tensor(data).double()).detach().numpy()
    assert np.abs(found - truth).max() <= 2 * np.abs(wanted - truth).max()


def test_gradients_reach_wide_parameters() -> None:
    layer = nn.Linear(8, 4)
    with amp.autocast("float16"):
        layer(Tensor(numbers(2, 8).astype("float32"))).float().square().sum().backward()
    assert layer.weight.grad is not None
    assert layer.weight.grad.dtype is dtypes.float32


def test_scaled_step_is_the_plain_step() -> None:
    """Powers of two scale without rounding: the parameters are equal to the bit."""
    values = numbers(5).astype("float32")
    results = []
    for scaler in (amp.GradScaler(), amp.GradScaler(enabled=False)):
        x = Tensor(values)
        optimizer = optim.Adam([x], lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            scaler.scale((x.sin() * x).sum()).backward()
            scaler.step(optimizer)
            scaler.update()
        results.append(x.numpy())
    np.testing.assert_array_equal(results[0], results[1])


def test_overflow_skips_and_shrinks_as_pytorchs() -> None:
    """The same gradients, some infinite, give the same parameters, states and scales."""
    values = numbers(3)
    ours = Tensor(values.astype("float32"))
    theirs = torch.tensor(values.astype("float32"), requires_grad=True)
    optimizer, reference = optim.Adam([ours], 0.1), torch.optim.Adam([theirs], 0.1)
    options: dict[str, Any] = {"init_scale": 1024.0, "growth_interval": 2}
    scaler = amp.GradScaler(**options)
    wanted = torch.amp.GradScaler("cpu", **options)
    for factor in (1.0, float("inf"), 2.0, float("nan"), 1.0, 1.0, 3.0, 1.0, float("-inf"), 1.0):
        optimizer.zero_grad()
        reference.zero_grad()
        scaler.scale((ours * factor).sum()).backward()
        wanted.scale((theirs * factor).sum()).backward()
        scaler.step(optimizer)
        wanted.step(reference)
        scaler.update()
        wanted.update()
        assert scaler.get_scale() == wanted.get_scale()
        np.testing.assert_allclose(ours.numpy(), theirs.detach().numpy(), rtol=1.3e-6, atol=1e-5)


def test_unscaled_gradients_can_be_clipped() -> None:
    x = Tensor([3.0, 4.0])
    optimizer, scaler = optim.SGD([x], lr=1.0), amp.GradScaler()
    scaler.scale((x * x).sum() / 2).backward()
    scaler.unscale_(optimizer)
    norm = optim.clip_grad_norm_(optimizer.params, 1.0)
    assert norm.item() == 5.0
    scaler.step(optimizer)
    np.testing.assert_allclose(x.numpy(), [2.4, 3.2], rtol=1e-5)
    with pytest.raises(ArgumentError, match="once"):
        scaler.unscale_(optimizer)


def test_several_optimisers_share_a_scale() -> None:
    a, b = Tensor([1.0]), Tensor([1.0])
    first, second = optim.SGD([a], lr=0.5), optim.SGD([b], lr=0.5)
    scaler = amp.GradScaler(init_scale=8.0)
    scaler.scale((a * a + b * float("inf")).sum()).backward()
    scaler.step(first)
    scaler.step(second)
    scaler.update()
    assert (a.item(), b.item(), scaler.get_scale()) == (0.0, 1.0, 4.0)


def test_scale_adapts_inside_a_captured_step() -> None:
    x = Tensor([1.0])
    optimizer = optim.SGD([x], lr=0.25)
    scaler = amp.GradScaler(init_scale=8.0, growth_interval=2)

    @TinyJit
    def step(factor: Tensor) -> Tensor:
        optimizer.zero_grad()
        loss = scaler.scale((x * factor).sum()).backward()
        changed = [*scaler.schedule_step(optimizer), *scaler.schedule_update()]
        return loss.realize(*changed)

    scales, values = [], []
    for factor in (1.0, 1.0, float("inf"), 1.0, 1.0, float("nan"), 1.0):
        step(Tensor([factor]).realize())
        scales.append(scaler.get_scale())
        values.append(x.item())
    assert scales == [8.0, 16.0, 8.0, 8.0, 16.0, 8.0, 8.0]
    assert values == [0.75, 0.5, 0.5, 0.25, 0.0, 0.0, -0.25]


def test_small_gradients_survive_in_half() -> None:
    """What float16 rounds to 0 without a scale, it keeps with one."""
    for scaler, survives in ((amp.GradScaler(), True), (amp.GradScaler(enabled=False), False)):
        x = Tensor([1.0])
        optimizer = optim.SGD([x], lr=1.0)
        half = x.half() * 1e-4
        scaler.scale((half.float() * 1e-5).sum()).backward()
        assert x.grad is not None
        if scaler.enabled:
            scaler.unscale_(optimizer)
        assert (x.grad.item() != 0) == survives


def test_mistakes_are_explained() -> None:
    with pytest.raises(DTypeError, match="bfloat16"):
        amp.autocast("float32")
    with pytest.raises(ArgumentError, match="growth_factor"):
        amp.GradScaler(growth_factor=0.5)
    with pytest.raises(ArgumentError, match="after step"):
        amp.GradScaler().update()
    with pytest.raises(ArgumentError, match="backward"):
        amp.GradScaler().unscale_(optim.SGD([Tensor([1.0])]))


def test_a_jitted_step_with_a_scaler_is_replayed() -> None:
    def losses(decorate: Any) -> list[float]:
        layer = nn.Linear(4, 2)
        layer.weight.assign(Tensor.arange(8).reshape(2, 4) * 0.1)
        layer.bias.assign(Tensor.zeros(2))
        optimizer, scaler = optim.SGD([layer.weight, layer.bias], lr=0.1), amp.GradScaler()

        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = layer(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return loss

        jitted = decorate(step)
        with Tensor.train():
            found = [jitted(Tensor([[float(i), 1.0, 2.0, 3.0]])).item() for i in range(6)]
        if isinstance(jitted, TinyJit):
            assert jitted._waiting == 0
        return found

    np.testing.assert_allclose(losses(TinyJit), losses(lambda function: function), rtol=1e-5)
