"""Whole models under TinyJit: captured, replayed, and equal to plain execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from test.engine.jit.jitting import CALLS, Decorator, same
from weft import Context, Tensor, nn


def image(i: int) -> Tensor:
    return Tensor.arange(2 * 3 * 6 * 6).reshape(2, 3, 6, 6).float() / (50.0 + i)


class Block:
    """A convolution and its norm, whose counter of batches is read by nobody in evaluation."""

    def __init__(self) -> None:
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.norm = nn.BatchNorm(3)

    def __call__(self, x: Tensor) -> Tensor:
        return (self.norm(self.conv(x)) + x).relu()


def test_unused_state_in_memory_does_not_keep_a_model_from_replay() -> None:
    def program(decorate: Decorator) -> list[Any]:
        block = Block()
        for tensor in nn.state.get_state_dict(block).values():
            tensor.replace(tensor.contiguous().realize())
        step: Callable[..., Any] = decorate(lambda x: block(x))
        return [step(image(i)).tolist() for i in range(CALLS)]

    same(program, python_runs=2)


OPTIMISERS = ("SGD", "Adam", "AdamW", "LAMB", "LARS", "Muon")


@pytest.mark.parametrize("name", OPTIMISERS)
@pytest.mark.filterwarnings("error")
def test_a_step_of_an_optimiser_is_replayed(name: str) -> None:
    def program(decorate: Decorator) -> list[Any]:
        Tensor.manual_seed(1)
        model = nn.Sequential(nn.Linear(4, 3, bias=False), Tensor.relu, nn.Linear(3, 2, bias=False))
        optimiser = getattr(nn.optim, name)(nn.state.get_parameters(model), lr=0.125)

        @decorate
        @Tensor.train()
        def step(x: Tensor) -> Tensor:
            optimiser.zero_grad()
            loss = model(x).square().sum().backward()
            return loss.realize(*optimiser.schedule_step())

        losses = [step(Tensor.arange(8).reshape(2, 4) / 8.0 + i).item() for i in range(CALLS)]
        return [losses, [p.tolist() for p in nn.state.get_parameters(model)]]

    with Context(NOOPT=1):
        same(program, python_runs=2)


@pytest.mark.filterwarnings("error")
def test_a_training_step_of_a_convnet_is_replayed() -> None:
    """Gradients of convolutions look at the weights through tensors of their own for a moment."""

    def program(decorate: Decorator) -> list[Any]:
        Tensor.manual_seed(2)
        block, last = Block(), nn.Linear(27, 2)
        parameters = [*nn.state.get_parameters(block), *nn.state.get_parameters(last)]
        optimiser = nn.optim.Adam(parameters, lr=0.0625)

        @decorate
        def step(x: Tensor, y: Tensor) -> Tensor:
            with Tensor.train():
                optimiser.zero_grad()
                hidden = block(x).max_pool2d().dropout(0.25).flatten(1)
                loss = last(hidden).sparse_categorical_crossentropy(y).backward()
                return loss.realize(*optimiser.schedule_step())

        labels = Tensor([0, 1]).realize()
        losses = [step(image(i).realize(), labels).item() for i in range(CALLS)]
        return [losses, block.norm.running_mean.tolist(), last.weight.tolist()]

    with Context(NOOPT=1):
        same(program, python_runs=2)
