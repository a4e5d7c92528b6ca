"""The benchmarks can be set up: workloads are the same numbers everywhere, phases add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import frameworks, in_weft, latency, phases, speed, workloads


def test_a_name_always_gives_the_same_numbers() -> None:
    first, second = workloads.make("mnist_train"), workloads.make("mnist_train")
    assert first.name == "mnist_train" and first.weights.keys() == second.weights.keys()
    for one, other in zip(first.inputs, second.inputs, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("depth", [18, 50])
def test_shapes_of_resnets(depth: int) -> None:
    shapes = workloads._resnet_shapes(depth)
    count = sum(int(np.prod(shape)) for name, shape in shapes.items() if "running" not in name)
    assert count == {18: 11_689_512, 50: 25_557_032}[depth]


def test_environment_of_a_framework(monkeypatch: Any) -> None:
    monkeypatch.delenv("BENCH_DEV", raising=False)
    found = frameworks.environment("weft@WINO=1", threads=2, cache="/nowhere")
    assert (found["WINO"], found["NUM_CPU_THREADS"], found["DEV"]) == ("1", "2", "CPU")
    assert found["XDG_CACHE_HOME"] == "/nowhere"


def test_tables() -> None:
    quick = {"median": 1.0, "best": 0.5, "noisy": False, "error of result": 0.1, "kernels": 3}
    slow = {**quick, "median": 2.0, "error of result": 2.0}
    cells = speed.row("case", {"weft": quick, "torch": slow}, ["weft", "torch"])
    assert cells[5] == "0.50 (1.00)" and "torch is wrong" in cells[-1]
    runs: latency.Runs = {("import", "weft", "cold"): [{"import": 0.1}, {"error": "timeout"}]}
    assert "| import | 0.100 s | 0.120 s | 0.060 s |" in latency.table(runs, ["weft"])
    linear = latency.schedule_table({"64": 0.064, "128": 0.128, "process": 1.0})
    assert linear.count("| 1000.0 |") == 2


def test_phases_of_a_step() -> None:
    module = in_weft.load("weft")
    function, arguments = in_weft.lazy(module, workloads.lstm(3))
    found = phases.compile_step(function, arguments)
    assert found.kernels >= found.distinct > 0 and found.operations > 0
    assert set(found.seconds) == {"graph", "schedule", "optimise", "lower", "render", "llvm"}
    assert all(seconds >= 0 for seconds in found.seconds.values())
