"""The benchmarks can be set up: workloads are the same numbers everywhere, phases add up."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bench import compile as compile_bench
from bench import (
    frameworks,
    in_machine,
    in_weft,
    latency,
    latency_child,
    phases,
    speed,
    table,
    workloads,
)
from bench.rooms import room_changes
from test.optional import need
from weft import GlobalCounters, Tensor, TinyJit, Variable


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


def test_what_is_started_and_compiled_are_workloads() -> None:
    known = workloads.CASES.keys() | workloads.OWN_CASES.keys()
    assert set(latency.STARTS) - {"import", "first"} <= known
    assert compile_bench.PROGRAMS.keys() <= known
    assert {row.what for row in latency.ROWS} <= {*latency.STARTS, *latency.EXTRA}


def test_a_start_says_what_the_processor_did() -> None:
    before = latency_child.cpu_seconds()
    sum(range(10**6))
    assert latency_child.cpu_seconds() > before


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


def test_shapes_of_the_nets() -> None:
    shapes = workloads._mobilenet_shapes()
    count = sum(int(np.prod(shape)) for name, shape in shapes.items() if "running" not in name)
    assert count == 4_231_976
    joined = workloads.unet_convolutions()["up0a"]
    assert joined == (workloads.UNET_WIDTHS[1] + workloads.UNET_WIDTHS[0], workloads.UNET_WIDTHS[0])


def test_bits_of_halves() -> None:
    torch = need("torch")
    values = workloads.normal("some", 1000)
    bits = torch.from_numpy(workloads.halves(values)).view(torch.bfloat16)
    assert torch.equal(bits, torch.from_numpy(values).to(torch.bfloat16))


def test_what_is_kept_in_halves() -> None:
    assert set(workloads.ALONE) <= workloads.HALVES.keys()
    assert workloads.HALVES.keys() <= workloads.CASES.keys() | workloads.OWN_CASES.keys()
    assert set(workloads.HALVES.values()) <= speed.TOLERANCES.keys()
    assert workloads.make("gemv_bfloat16").dtype == "bfloat16"
    assert workloads.make("layernorm_float16").dtype == "float16"


@pytest.mark.parametrize("name", ["int8", "Q4_0", "Q6_K"])
def test_products_with_quantised_weights_are_one_kernel(name: str) -> None:
    module = in_weft.load("weft")
    function, arguments = in_weft.lazy(module, workloads._quantised(name, 64, 512))
    # the weights are put in order once
    assert function(*arguments)[0].realize().shape == (1, 64)
    assert len(function(*arguments)[0].schedule()) == 1


@pytest.mark.parametrize("case", [(0.0, 1e6, "bytes"), (1e9, 1e3, "operations")])
def test_what_the_machine_can_do(case: tuple[float, float, str]) -> None:
    operations, traffic, what = case
    step, _, facts = in_machine.prepare(workloads.Case("", {}, [], {}, operations, traffic))
    step()
    assert facts()["bound by"] == what


def test_the_table_names_the_best_peer_that_is_right() -> None:
    timed = {"median": 2.0, "noisy": False, "error of result": 0.1}
    found = {
        "weft": timed,
        "torch": {**timed, "median": 4.0},
        "jax": {**timed, "median": 1.0, "error of result": 7.0},
        "machine": {"median": 1.0, "noisy": False},
    }
    text = table.table({"speed": {"conv_small": found, "gemv_q4_0": {"weft": timed}}})
    assert "| conv_small | 2.000 | 4.000 (torch) | 2.00 | 1.0 / 1.5 | 50% |" in text
    assert "| gemv_q4_0 | 2.000 | - | - | - | - |" in text
    assert "Geometric mean of 1 ratios: **2.00**" in text


def _small_llama(layers: int) -> workloads.Case:
    sizes: dict[str, Any] = dict(width=32, layers=layers, heads=4, key_heads=2, head_width=8)
    sizes |= dict(hidden=64, vocabulary=50, context=16, position=3, eps=1e-5)
    return workloads._decode(sizes, workloads.fill(workloads._llama_shapes(sizes)))


def test_decoding_takes_as_many_kernels_a_layer_however_many_there_are() -> None:
    module = in_weft.load("weft")
    counts = []
    for layers in (2, 3, 4):
        function, arguments = in_weft.lazy(module, _small_llama(layers))
        GlobalCounters.reset()
        in_weft.realize(function(*arguments))
        counts.append(GlobalCounters.kernel_count)
    assert counts[2] - counts[1] == counts[1] - counts[0] < 25


def test_decoding_is_captured_once_for_all_positions() -> None:
    module = in_weft.load("weft")
    position = Variable("position", 1, 15)
    plain, (token, _) = in_weft.lazy(module, _small_llama(2))
    other, _ = in_weft.lazy(module, _small_llama(2))
    calls = []

    @TinyJit
    def step(token: Tensor, position: Any) -> Tensor:
        calls.append(position)
        return other(token, position)[0].realize()

    for number in range(1, 9):
        here = position.bind(number)
        expected = plain(token, here)[0].numpy()
        np.testing.assert_allclose(step(token, here).numpy(), expected, rtol=1e-4, atol=1e-5)
    assert len(calls) <= 3


def test_changes_of_rooms_are_counted_by_pair() -> None:
    found = room_changes()
    assert found.total() > 1000 and found["uop/rewrite.py", "uop/matcher.py"] > 0
    assert all(there != here for there, here in found)


def test_an_emulator_that_is_not_there_is_said_to_be_so() -> None:
    from bench.amd import measure_tinygrad

    seconds, why = measure_tinygrad("/nowhere/python", 8)
    assert seconds is None and "/nowhere/python" in why
