"""Whole models under TinyJit: captured, replayed, and equal to plain execution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from test.engine.test_jit import CALLS, Decorator, same
from weft import Tensor, nn


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
