"""`weft plan`: what it predicts beside what the schedule moves and computes."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from test.parallel.training import GPT, Size, train
from weft import GlobalCounters, nn
from weft.commands.main import main
from weft.commands.plan import Kind, Shape, plan, sent_by_all_reduce
from weft.engine import realize
from weft.schedule.all_reduce import LARGE

SIZE = Size(layers=2, symbols=128, context=16, width=64)
SHAPE = Shape(**dataclasses.asdict(SIZE))
KIND = Kind(1e12, 1e9, 1e9)
DEVICES = ("CPU:1", "CPU:2")


def test_parameters_are_those_of_the_model() -> None:
    assert SHAPE.parameters == sum([int(p.numel()) for p in nn.state.get_parameters(GPT(SIZE))])


@pytest.mark.parametrize("way", ["data", "tensor", "pipeline"])
def test_bytes_and_flops_are_those_of_a_step(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent = 0
    before = realize.transfer

    def counted(pairs: Any) -> None:
        nonlocal sent
        for target, source in pairs:
            if target.device in DEVICES and source.device in DEVICES:
                sent += target.nbytes
        before(pairs)

    monkeypatch.setattr(realize, "transfer", counted)
    started = GlobalCounters.global_ops
    train(way, DEVICES, SIZE, 1, jitted=False)
    cost = next(cost for cost in plan(SHAPE, KIND, 2) if cost.way == way)
    assert sent / 2 == pytest.approx(cost.sent, rel=0.01)
    # beside products there are norms, the optimiser, and the first values of the weights
    computed = (GlobalCounters.global_ops - started) / 2
    assert cost.flops * 0.9 < computed < cost.flops * 2


def test_large_sums_are_made_by_pieces() -> None:
    assert sent_by_all_reduce(8, 4) == 24
    assert sent_by_all_reduce(LARGE, 4) == 1.5 * LARGE
    assert sent_by_all_reduce(LARGE, 2) == LARGE


def test_what_does_not_fit_comes_last(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--devices", "64", "--layers", "96", "--width", "8192"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "64 devices" in lines[0]
    assert [line.endswith("does not fit") for line in lines[2:]] == sorted(
        [line.endswith("does not fit") for line in lines[2:]]
    )
    assert "data" in "".join([line for line in lines if line.endswith("does not fit")])
    assert main(["plan", "--devices", "0"]) == 2
