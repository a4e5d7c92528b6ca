"""The GPU heuristic: threads, groups and tiles, and whole programs that compute the same."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from test.codegen.gpu_builder import GPU, GPUAxes, normal, run, zeros
from test.codegen.kernel_builder import kernel, load, params
from test.fuzz.programs import Generator, difference
from test.renderer.corpus import cases_of, check_contents
from weft import Device
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.heuristic import optimise
from weft.codegen.opt.opt import OptOps
from weft.codegen.pipeline import lower
from weft.knobs import Context
from weft.renderer.python import PythonRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.steps import view_memory
from weft.uop.node import UOp
from weft.uop.opset import Ops


def applied(sink: UOp) -> list[OptOps]:
    better = optimise(sink, GPU)
    # what is recorded gives the same kernel again
    again = sink
    for opt in better.arg.applied:
        again = apply_opt(again, opt, GPU)
    assert again.src == better.src
    return [opt.op for opt in better.arg.applied]


def test_elementwise_gets_lanes_and_threads() -> None:
    x, out = normal(32, 64), zeros(32, 64)
    o, p = params(out, x)
    a = GPUAxes()
    i, j = a.loop(32), a.loop(64)
    sink = kernel(o.index(i * 64 + j).store(load(p, i * 64 + j) + 1.0, i, j))
    assert applied(sink) == [OptOps.MERGE, OptOps.VECTOR, OptOps.LOCAL]
    spec = run(sink, out, x, optimised=True)
    np.testing.assert_array_equal(out, x + 1)
    assert spec.local_size == (256, 1, 1) and spec.global_size == (2, 1, 1)


def test_long_rows_are_reduced_by_groups() -> None:
    x, out = normal(4, 512), zeros(4)
    o, p = params(out, x)
    a = GPUAxes()
    i, r = a.loop(4), a.reduce(512)
    sink = kernel(o.index(i).store(load(p, i * 512 + r).reduce(Ops.ADD, r), i))
    assert applied(sink) == [OptOps.GROUP]
    spec = run(sink, out, x, optimised=True)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-4)
    assert spec.global_size == (4, 1, 1) and spec.local_size == (128, 1, 1)


def test_short_rows_are_a_thread_each() -> None:
    x, out = normal(200, 6), zeros(200)
    o, p = params(out, x)
    a = GPUAxes()
    i, r = a.loop(200), a.reduce(6)
    sink = kernel(o.index(i).store(load(p, i * 6 + r).reduce(Ops.ADD, r), i))
    assert applied(sink) == [OptOps.LOCAL]
    run(sink, out, x, optimised=True)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(("m", "n", "k"), [(64, 64, 32), (33, 40, 20), (16, 16, 16), (70, 129, 7)])
def test_products_run_in_tiles(m: int, n: int, k: int) -> None:
    x, y, out = normal(m, k), normal(k, n), zeros(m, n)
    o, p, q = params(out, x, y)
    a = GPUAxes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    product = load(p, i * k + r) * load(q, r * n + j)
    sink = kernel(o.index(i * n + j).store(product.reduce(Ops.ADD, r), i, j))
    found = applied(sink)
    assert (found.count(OptOps.STAGE) == 2) == (k >= 16)
    run(sink, out, x, y, optimised=True)
    np.testing.assert_allclose(out, x @ y, rtol=1e-4, atol=1e-4)


CORPUS = (
    *("elementwise", "narrow_integers", "padded", "sum_rows", "sum_columns", "sum_all", "argmax"),
    *("cumulated", "softmax", "layernorm", "matmul", "matmul_turned", "matmul_batches", "conv"),
    *("attention", "gather", "scatter", "random", "half", "assign", "adam", "variable"),
    *("variable_rows", "several_nests", "cast_from_float32"),
)


@pytest.mark.parametrize("lanes", [0, 16])
@pytest.mark.parametrize("name", CORPUS)
def test_programs_compute_the_same_on_groups(name: str, lanes: int) -> None:
    renderer = PythonRenderer(replace(GPU, vector_bytes=lanes))
    for case in cases_of(name):
        with Context(SPEC=1):
            spec = lower(case.kernel, renderer)
        contents = [bytearray(some) for some in case.before]
        memory = {
            param.arg.slot: view_memory(
                memoryview(contents[param.arg.slot]), param.dtype, param.arg.size
            )
            for param in spec.params
        }
        values = [case.values[v.arg.name] for v in spec.variables]
        Interpreter(case.name, spec.uops).run(memory, values)
        check_contents(case, spec, [bytes(some) for some in contents])


def test_random_programs_compute_the_same_on_groups() -> None:
    device = "PYTHON:7"
    Device[device].renderer = PythonRenderer(GPU)
    with Context(SPEC=1):
        for seed in range(40):
            found = difference(Generator(seed, 10, False).run(), device)
            assert found is None, f"seed {seed}: {found}"
