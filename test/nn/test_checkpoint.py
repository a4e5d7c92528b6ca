"""Checkpoints in parts: whole or not there, on any number of devices, the same numbers after."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import Tensor, nn
from weft.errors import ArgumentError, DataError
from weft.nn.formats.safetensors import safe_load


def devices(count: int) -> tuple[str, ...]:
    return tuple([f"CPU:{i + 1}" for i in range(count)])


class Training:
    """A model with dropout, and its optimiser, on so many devices (0: one, not cut)."""

    def __init__(self, count: int) -> None:
        Tensor.manual_seed(5)
        self.layers = [nn.Linear(6, 8), nn.Linear(8, 3)]
        self.model: Any = lambda x: (
            self.layers[1](self.layers[0](x).relu().dropout(0.3)).square().mean()
        )
        if count:
            parameters = nn.state.get_parameters(self.layers)
            for parameter in parameters:
                parameter.shard_(devices(count), 0)
        self.count = count
        self.optimizer = nn.optim.AdamW(nn.state.get_parameters(self.layers), lr=0.05)

    @property
    def state(self) -> dict[str, Any]:
        return {"layers": self.layers, "optimizer": self.optimizer}

    def run(self, first: int, last: int) -> list[float]:
        losses = []
        with Tensor.train():
            for step in range(first, last):
                data = np.random.default_rng(step).standard_normal((4, 6)).astype(np.float32)
                x = Tensor(data)
                if self.count:
                    x = x.shard(devices(self.count))
                self.optimizer.zero_grad()
                loss = self.model(x).backward()
                self.optimizer.step()
                losses.append(loss.item())
        return losses


@pytest.mark.parametrize(("before", "after"), [(0, 0), (3, 3), (3, 2), (2, 0), (0, 3)])
def test_training_goes_on_as_if_nothing_had_happened(
    tmp_path: Path, before: int, after: int
) -> None:
    whole = Training(before).run(0, 6)
    first = Training(before)
    assert first.run(0, 3) == whole[:3]
    nn.checkpoint.save(tmp_path, 3, first.state, {"seen": 12})
    second = Training(after)
    Tensor.manual_seed(99)
    found = nn.checkpoint.resume(tmp_path, second.state)
    assert found is not None and (found.step, found.note) == (3, {"seen": 12})
    if after:
        weight = second.layers[0].weight
        assert weight.uop.axis == 0 and len(weight.uop.bounds) == after
    rest = second.run(3, 6)
    if before == after:
        assert rest == whole[3:]
    np.testing.assert_allclose(rest, whole[3:], rtol=1e-5)


def test_each_device_has_a_file_with_its_part(tmp_path: Path) -> None:
    data = np.arange(10, dtype=np.float32).reshape(5, 2)
    cut = Tensor(data).shard(devices(2), 0)
    nn.checkpoint.save(tmp_path, 0, {"cut": cut, "whole": Tensor(data).to(devices(2))})
    names = sorted([path.name for path in (tmp_path / "0").iterdir()])
    assert names == ["CPU-1.safetensors", "CPU-2.safetensors", "index.json"]
    second = safe_load(tmp_path / "0" / "CPU-2.safetensors")
    assert np.array_equal(second["cut"].numpy(), data[3:]) and "whole" not in second
    found = nn.checkpoint.load(tmp_path)
    assert found is not None
    assert np.array_equal(found.tensors["cut"].numpy(), data)
    assert np.array_equal(found.tensors["whole"].numpy(), data)


def test_what_was_not_finished_is_not_there(tmp_path: Path) -> None:
    state = {"x": Tensor([1.0, 2.0])}
    assert nn.checkpoint.resume(tmp_path, state) is None
    for step in range(4):
        nn.checkpoint.save(tmp_path, step, state)
    assert nn.checkpoint.steps(tmp_path) == [2, 3]
    (tmp_path / "3").rename(tmp_path / "3.part")
    assert nn.checkpoint.steps(tmp_path) == [2]
    nn.checkpoint.save(tmp_path, 2, {"x": Tensor([3.0, 4.0])})
    assert sorted([path.name for path in tmp_path.iterdir()])[0] == "2"
    found = nn.checkpoint.load(tmp_path)
    assert found is not None and found.tensors["x"].tolist() == [3.0, 4.0]


def test_what_is_refused(tmp_path: Path) -> None:
    nn.checkpoint.save(tmp_path, 1, {"x": Tensor([1.0])})
    with pytest.raises(ArgumentError, match=r"no step 5; it has \[1\]"):
        nn.checkpoint.load(tmp_path, 5)
    with pytest.raises(ArgumentError, match="at least 0"):
        nn.checkpoint.save(tmp_path, -1, {})
    (tmp_path / "1" / "index.json").write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="is no checkpoint"):
        nn.checkpoint.load(tmp_path)


def test_an_old_step_loses_its_name_before_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = {"x": Tensor([1.0])}
    for step in range(2):
        nn.checkpoint.save(tmp_path, step, state)

    def die(path: Path, ignore_errors: bool) -> None:
        raise KeyboardInterrupt

    # found by test.parallel.kills: a rank that died in the middle left a step without a file
    monkeypatch.setattr(shutil, "rmtree", die)
    with pytest.raises(KeyboardInterrupt):
        nn.checkpoint.save(tmp_path, 2, state)
    assert nn.checkpoint.steps(tmp_path) == [1, 2]
