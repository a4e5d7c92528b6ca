"""Barriers around the fills of shared memory: each of them is needed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from test.codegen.gpu_builder import GPUAxes, normal, run, stage, tiled_matmul, zeros
from test.codegen.kernel_builder import count, interpret, kernel, load, params
from weft.errors import CompileError, RaceError, SpecError
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.prove import prove_barriers


def without_barrier(uops: Sequence[UOp], place: int) -> list[UOp]:
    """The program without its barrier number `place`: a mistake that a compiler might make."""
    barriers = [u for u in uops if u.op is Ops.BARRIER]
    return [u for u in uops if u is not barriers[place]]


def test_a_dropped_barrier_after_a_fill_is_caught() -> None:
    sink, out, x, y = tiled_matmul(8, 4)
    spec = run(sink, out, x, y)
    with pytest.raises(SpecError, match="is read before it is written|a race in kernel test"):
        interpret(without_barrier(spec.uops, 1), [out, x, y])
    with pytest.raises(SpecError, match="with no BARRIER between them"):
        prove_barriers(without_barrier(spec.uops, 1), "test")


def test_a_dropped_barrier_before_a_fill_is_caught() -> None:
    """The first threads overwrite what the others still need."""
    sink, out, x, y = tiled_matmul(8, 4)
    spec = run(sink, out, x, y)
    with pytest.raises(RaceError, match="element . of shared memory .* no barrier of a group"):
        interpret(without_barrier(spec.uops, 0), [zeros(8, 8), x, y])
    with pytest.raises(SpecError, match="with no BARRIER between them"):
        prove_barriers(without_barrier(spec.uops, 0), "test")


def test_every_barrier_of_a_group_reduction_is_needed() -> None:
    x, out = normal(2, 64), zeros(2)
    o, p = params(out, x)
    a = GPUAxes()
    i, g = a.grid(2), a.group(64)
    spec = run(kernel(o.index(i).store(load(p, i * 64 + g).reduce(Ops.ADD, g), i)), out, x)
    for place in range(count(spec.uops, Ops.BARRIER)):
        with pytest.raises(SpecError, match="read before it is written|a race in kernel test"):
            interpret(without_barrier(spec.uops, place), [out, x])


def test_a_barrier_that_only_some_threads_reach_is_refused() -> None:
    """A shared stage in a loop whose rounds depend on the thread."""
    x, out = normal(8, 4), zeros(8)
    o, p = params(out, x)
    a = GPUAxes()
    j = a.local(8)
    r, f = a.reduce(j + 1), a.loop(4)
    row = stage(load(p, r * 4 + f), f)
    value = row.index(j % 4).load().reduce(Ops.ADD, r)
    with pytest.raises(CompileError, match="cannot differ along axis .0,., which the threads"):
        run(kernel(o.index(j).store(value, j)), out, x)
