"""Every learning-rate schedule against PyTorch's, step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.nn.against_torch import close, numbers, torch
from weft import Tensor, TinyJit, nn
from weft.errors import ArgumentError
from weft.nn import optim, schedule

STEPS = 14
theirs = torch.optim.lr_scheduler


def _sequence(made: Any, optimizer: Any) -> Any:
    parts = [
        made.LinearLR(optimizer, 0.1, total_iters=4),
        made.CosineAnnealingLR(optimizer, 6, 0.01),
        made.ConstantLR(optimizer, 0.01, 100),
    ]
    return made.SequentialLR(optimizer, parts, [4, 10])


ROWS: dict[str, Callable[[Any, Any], Any]] = {
    "constant": lambda made, o: made.ConstantLR(o, 0.25, 5),
    "constant defaults": lambda made, o: made.ConstantLR(o),
    "linear": lambda made, o: made.LinearLR(o, 0.1, 0.8, 6),
    "linear defaults": lambda made, o: made.LinearLR(o),
    "step": lambda made, o: made.StepLR(o, 3, 0.3),
    "multi step": lambda made, o: made.MultiStepLR(o, [2, 5, 9], 0.3),
    "exponential": lambda made, o: made.ExponentialLR(o, 0.7),
    "cosine": lambda made, o: made.CosineAnnealingLR(o, 20, 0.01),
    "cosine and up again": lambda made, o: made.CosineAnnealingLR(o, 5),
    "one cycle": lambda made, o: made.OneCycleLR(o, 0.9, STEPS + 1),
    "one cycle linear": lambda made, o: made.OneCycleLR(
        o, 0.9, STEPS + 1, pct_start=0.5, anneal_strategy="linear", div_factor=5.0
    ),
    "one cycle three": lambda made, o: made.OneCycleLR(
        o, 0.9, STEPS + 1, three_phase=True, final_div_factor=100.0
    ),
    "one cycle of epochs": lambda made, o: made.OneCycleLR(
        o, 0.9, epochs=3, steps_per_epoch=5, base_momentum=0.6, max_momentum=0.9
    ),
    "one cycle of the rate only": lambda made, o: made.OneCycleLR(
        o, 0.9, STEPS + 1, cycle_momentum=False
    ),
    "lambda": lambda made, o: made.LambdaLR(o, lambda t: 1 / (1 + t * 0.5)),
    "sequence": _sequence,
    "sequence with momentum": lambda made, o: made.SequentialLR(
        o,
        [made.LinearLR(o, 0.1, total_iters=3), made.OneCycleLR(o, 0.9, 6), made.ConstantLR(o)],
        [3, 8],
    ),
}


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("name", ROWS)
def test_every_rate(name: str, kind: str) -> None:
    weight = torch.zeros(1, requires_grad=True)
    reference = torch.optim.SGD([weight], 0.3, momentum=0.9)
    wanted = ROWS[name](theirs, reference)
    optimizer = optim.SGD([Tensor(np.zeros(1, dtype=kind))], 0.3, momentum=0.9)
    found = ROWS[name](schedule, optimizer)
    rtol = 1e-12 if kind == "float64" else 1.3e-7
    for step in range(STEPS):
        rate, momentum = (reference.param_groups[0][key] for key in ("lr", "momentum"))
        np.testing.assert_allclose(optimizer.get_momentum(), momentum, rtol=rtol)
        # a cosine ends in the difference of two equal numbers
        np.testing.assert_allclose(optimizer.lr.item(), rate, rtol=rtol, atol=1e-16)
        np.testing.assert_allclose(found.at(step), rate, rtol=rtol, atol=1e-16)
        reference.step()
        wanted.step()
        found.step()


OPTIMIZERS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "sgd": (lambda p: optim.SGD(p, 0.1), lambda p: torch.optim.SGD(p, 0.1)),
    "nesterov": (
        lambda p: optim.SGD(p, 0.1, 0.8, 0.01, nesterov=True),
        lambda p: torch.optim.SGD(p, 0.1, 0.8, weight_decay=0.01, nesterov=True),
    ),
    "adam": (lambda p: optim.Adam(p, 0.1), lambda p: torch.optim.Adam(p, 0.1)),
    "adamw": (lambda p: optim.AdamW(p, 0.1), lambda p: torch.optim.AdamW(p, 0.1)),
}


@pytest.mark.parametrize("kind", OPTIMIZERS)
@pytest.mark.parametrize("name", ROWS)
def test_trajectory_in_float64(name: str, kind: str) -> None:
    """A model trained with the schedule goes where PyTorch's goes; Adam's b1 moves with it."""
    start, data = numbers(4, 3), numbers(8, 4, seed=1)
    ours, theirs_ = Tensor(start), torch.tensor(start, requires_grad=True)
    optimizer, reference = OPTIMIZERS[kind][0]([ours]), OPTIMIZERS[kind][1]([theirs_])
    rates, wanted = ROWS[name](schedule, optimizer), ROWS[name](theirs, reference)
    for step in range(STEPS):
        optimizer.zero_grad()
        reference.zero_grad()
        (Tensor(data) @ ours).tanh().square().mean().backward()
        (torch.tensor(data) @ theirs_).tanh().square().mean().backward()
        optimizer.step()
        rates.step()
        reference.step()
        wanted.step()
        close(ours, theirs_, f"after step {step}")


def test_momentum_is_part_of_the_state() -> None:
    optimizer = optim.AdamW([Tensor([1.0])])
    rates = schedule.OneCycleLR(optimizer, 0.1, 10)
    rates.step()
    state = nn.state.get_state_dict(optimizer)
    assert state["b1"].item() == optimizer.get_momentum() < 0.95
    assert optim.LAMB([Tensor([1.0])], b1=0.5).get_momentum() == 0.5


def test_rates_move_parameters() -> None:
    x = Tensor([1.0])
    optimizer = optim.SGD([x], lr=0.5)
    rates = schedule.StepLR(optimizer, 1, 0.5)
    for wanted in (0.5, 0.25, 0.125):
        x.grad = Tensor([1.0])
        optimizer.step()
        rates.step()
        assert x.item() == wanted


def test_lazy_steps_are_realized_with_the_optimisers() -> None:
    x = Tensor([1.0])
    optimizer = optim.SGD([x], lr=0.5)
    rates = schedule.StepLR(optimizer, 1, 0.5)
    x.grad = Tensor([1.0])
    Tensor.realize(*optimizer.schedule_step(), *rates.schedule_step())
    assert x.item() == 0.5
    assert optimizer.lr.item() == 0.25


def test_counting_goes_on_inside_a_captured_step() -> None:
    x = Tensor([1.0])
    optimizer = optim.SGD([x], lr=0.5)
    rates = schedule.ExponentialLR(optimizer, 0.5)
    plain = optim.SGD([Tensor([1.0])], lr=0.5)
    reference = schedule.ExponentialLR(plain, 0.5)

    def step(factor: Tensor, optimizer: Any, rates: Any) -> Tensor:
        optimizer.zero_grad()
        loss = (optimizer.params[0] * factor).sum().backward()
        changed = [*optimizer.schedule_step(), *rates.schedule_step()]
        return loss.realize(*changed)

    captured = TinyJit(lambda factor: step(factor, optimizer, rates))
    for number in range(6):
        factor = Tensor([float(number)]).realize()
        assert captured(factor).item() == step(factor, plain, reference).item()
        assert x.item() == plain.params[0].item()
        assert optimizer.lr.item() == plain.lr.item() == 0.5 ** (number + 2)


def test_rate_and_momentum_go_on_inside_a_captured_step() -> None:
    """One cycle of AdamW, captured, is the same as without, to the bit."""

    def made() -> Callable[[], Tensor]:
        weight = Tensor(numbers(4, 3).astype("float32"))
        optimizer = optim.AdamW([weight], 0.1)
        rates = schedule.OneCycleLR(optimizer, 0.5, 12)

        def step() -> Tensor:
            optimizer.zero_grad()
            loss = (data @ weight).tanh().square().mean().backward()
            return loss.realize(*optimizer.schedule_step(), *rates.schedule_step())

        return step

    data = Tensor(numbers(8, 4, seed=1).astype("float32")).realize()
    plain, captured = made(), TinyJit(made())
    for _ in range(12):
        assert captured().item() == plain().item()


def test_state_is_the_counter(tmp_path: Path) -> None:
    optimizer = optim.SGD([Tensor([1.0])], lr=0.5)
    rates = schedule.CosineAnnealingLR(optimizer, 10)
    for _ in range(3):
        rates.step()
    state = {"count": rates.count}
    path = tmp_path / "schedule.safetensors"
    nn.state.safe_save(state, path)
    other = schedule.CosineAnnealingLR(optim.SGD([Tensor([1.0])], lr=0.5), 10)
    nn.state.load_state_dict({"count": other.count}, nn.state.safe_load(path), verbose=False)
    rates.step()
    other.step()
    assert other.optimizer.lr.item() == rates.optimizer.lr.item()


def test_mistakes_are_explained() -> None:
    optimizer = optim.SGD([Tensor([1.0])], lr=0.5)
    with pytest.raises(ArgumentError, match="step_size"):
        schedule.StepLR(optimizer, 0)
    with pytest.raises(ArgumentError, match="T_max"):
        schedule.CosineAnnealingLR(optimizer, 0)
    with pytest.raises(ArgumentError, match="linear"):
        schedule.OneCycleLR(optimizer, 1.0, 10, anneal_strategy="cubic")
    with pytest.raises(ArgumentError, match="steps_per_epoch"):
        schedule.OneCycleLR(optimizer, 1.0, epochs=3)
    with pytest.raises(ArgumentError, match="cycle_momentum=False"):
        schedule.OneCycleLR(optim.Optimizer([Tensor([1.0])], 0.1), 1.0, 10)
    with pytest.raises(ArgumentError, match="milestones"):
        schedule.SequentialLR(optimizer, [schedule.ConstantLR(optimizer)], [3])
    with pytest.raises(ArgumentError, match="group"):
        schedule.StepLR(optim.OptimizerGroup(optimizer), 1)
