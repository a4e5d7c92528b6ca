"""A kernel has no more buffers than its device takes: what is too wide is cut into several."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from test.fuzz.programs import Generator, difference
from weft import Device, Tensor, Variable
from weft.engine import realize
from weft.engine import schedule as engine_schedule
from weft.engine.schedule import clear_schedules, machine_of
from weft.machine import Target, generic
from weft.renderer.wgsl import WEBGPU
from weft.schedule import pipeline
from weft.schedule.pipeline import Schedule, ScheduleItem, make_schedule


@pytest.fixture
def narrow(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[ScheduleItem]]:
    """Kernels with at most as many buffers as WebGPU takes; what was scheduled."""
    seen: list[ScheduleItem] = []

    def machine(device: object) -> Target:
        return replace(machine_of(device), max_buffers=WEBGPU.max_buffers)

    def watched(*args: object) -> Schedule:
        made = pipeline.make_schedule(*args)  # type: ignore[arg-type]
        seen.extend(item for item in made.items if item.kernel is not None)
        return made

    clear_schedules()
    monkeypatch.setattr(engine_schedule, "machine_of", machine)
    monkeypatch.setattr(realize, "machine_of", machine)
    monkeypatch.setattr(engine_schedule, "make_schedule", watched)
    yield seen
    clear_schedules()


def widest(items: list[ScheduleItem]) -> int:
    return max(len(item.arguments) for item in items)


def arrays(count: int, *shape: int) -> list[np.ndarray]:
    random = np.random.default_rng(count)
    return [random.integers(-9, 10, shape).astype(np.float32) for _ in range(count)]


def test_a_long_sum_is_cut(narrow: list[ScheduleItem]) -> None:
    parts = arrays(30, 6, 5)
    total = Tensor(parts[0]).realize() * 2
    for part in parts[1:]:
        total = total + Tensor(part).realize()
    np.testing.assert_array_equal(total.numpy(), parts[0] + sum(parts))
    assert widest(narrow) <= 8
    # 30 of them, 7 at a time and what came out of those before
    assert len(narrow) <= 6


def test_a_balanced_tree_is_cut(narrow: list[ScheduleItem]) -> None:
    parts = arrays(32, 12)
    level = [Tensor(part).realize() for part in parts]
    while len(level) > 1:
        level = [a * b + 1 for a, b in zip(level[::2], level[1::2], strict=True)]
    expected = parts
    while len(expected) > 1:
        expected = [a * b + 1 for a, b in zip(expected[::2], expected[1::2], strict=True)]
    np.testing.assert_allclose(level[0].numpy(), expected[0], rtol=1e-6)
    assert widest(narrow) <= 8


def test_a_join_of_many_parts_is_cut(narrow: list[ScheduleItem]) -> None:
    parts = arrays(40, 3, 4)
    joined = Tensor.cat(*[Tensor(part).realize() for part in parts], dim=1) + 1
    np.testing.assert_array_equal(joined.numpy(), np.concatenate(parts, axis=1) + 1)
    assert widest(narrow) <= 8


def test_reductions_of_many_operands_are_cut(narrow: list[ScheduleItem]) -> None:
    parts = arrays(12, 8, 9)
    total = Tensor(parts[0]).realize()
    for part in parts[1:]:
        total = (total + Tensor(part).realize()).relu()
    mean = total.sum(1)
    expected = parts[0]
    for part in parts[1:]:
        expected = np.maximum(expected + part, 0)
    np.testing.assert_array_equal(mean.numpy(), expected.sum(1))
    assert widest(narrow) <= 8


def test_several_results_are_not_merged_beyond_the_limit(narrow: list[ScheduleItem]) -> None:
    parts = arrays(20, 16)
    tensors = [Tensor(part).realize() for part in parts]
    results = [tensor * 2 + tensors[0] for tensor in tensors]
    results[0].realize(*results[1:])
    for part, result in zip(parts, results, strict=True):
        np.testing.assert_array_equal(result.numpy(), part * 2 + parts[0])
    assert widest(narrow) <= 8


def test_writes_in_place_are_cut(narrow: list[ScheduleItem]) -> None:
    parts = arrays(12, 10)
    target = Tensor(parts[0]).realize()
    value = target
    for part in parts[1:]:
        value = value + Tensor(part).realize()
    target.assign(value)
    np.testing.assert_array_equal(target.numpy(), sum(parts))
    assert widest(narrow) <= 8


def test_a_variable_needs_a_place_as_well(narrow: list[ScheduleItem]) -> None:
    parts = arrays(9, 10)
    n = Variable("n", 1, 10).bind(4)
    total = Tensor(parts[0]).realize()[:n]
    for part in parts[1:]:
        total = total + Tensor(part).realize()[:n]
    np.testing.assert_array_equal(total.numpy(), sum(parts)[:4])
    assert widest(narrow) <= 7


def test_random_programs_within_the_limit(narrow: list[ScheduleItem]) -> None:
    for seed in range(4000, 4030):
        assert difference(Generator(seed, 12).run()) is None, seed
    assert widest(narrow) <= 8


def test_the_limit_is_the_device_s() -> None:
    most = Device["CPU"].renderer.target.max_buffers
    assert machine_of("CPU").max_buffers == most
    assert machine_of(("CPU", "PYTHON")).max_buffers <= most


def test_a_narrow_program_is_what_it_was_without_a_limit() -> None:
    x = Tensor(np.ones((4, 4), np.float32)).realize()
    y = (x @ x).relu().sum()
    sink = y.uop.sink()
    kernels = [
        [item.kernel for item in make_schedule(sink, -1 << 40, "CPU", machines).items]
        for machines in (generic, lambda device: Target(max_buffers=8))
    ]
    assert kernels[0] == kernels[1]
