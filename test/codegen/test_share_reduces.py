"""Reductions over the threads of a group go through memory that they share."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.gpu_builder import GPUAxes, normal, run, zeros
from test.codegen.kernel_builder import const, count, kernel, load, params
from weft.uop.node import UOp
from weft.uop.opset import Ops


@pytest.mark.parametrize("size", [1, 2, 16, 64, 96, 256])
def test_a_group_reduces_through_shared_memory(size: int) -> None:
    x, out = normal(3, 2 * size), zeros(3)
    o, p = params(out, x)
    a = GPUAxes()
    i, r, g = a.grid(3), a.reduce(2), a.group(size)
    total = load(p, i * (2 * size) + r * size + g).reduce(Ops.ADD, r, g)
    spec = run(kernel(o.index(i).store(total, i)), out, x)
    np.testing.assert_allclose(out, x.sum(1), rtol=1e-4, atol=1e-5)
    assert spec.local_size == (size, 1, 1)
    assert count(spec.uops, Ops.BARRIER) == (0 if size == 1 else 1 if size <= 32 else 2)


@pytest.mark.parametrize("op", [Ops.ADD, Ops.MAX, Ops.MUL])
def test_groups_of_two_axes_and_outputs_in_the_same_group(op: Ops) -> None:
    x, out = normal(4, 3, 5, 6), zeros(4)
    o, p = params(out, x)
    a = GPUAxes()
    i, r, g, h = a.local(4), a.reduce(3), a.group(5), a.group(6)
    total = load(p, ((i * 3 + r) * 5 + g) * 6 + h).reduce(op, r, g, h)
    spec = run(kernel(o.index(i).store(total, i)), out, x)
    function = {Ops.ADD: np.sum, Ops.MAX: np.max, Ops.MUL: np.prod}[op]
    np.testing.assert_allclose(out, function(x, axis=(1, 2, 3)), rtol=1e-4)
    assert spec.local_size == (120, 1, 1)


def test_group_reductions_with_copies_in_registers_and_lanes() -> None:
    """Column sums: four lanes and two copies of outputs for every thread."""
    x, out = normal(32, 3, 2, 4), zeros(3, 2, 4)
    o, p = params(out, x)
    a = GPUAxes()
    i, u, v, r, g = a.grid(3), a.upcast(2), a.vector(4), a.reduce(4), a.group(8)
    index = (i * 2 + u) * 4 + v
    total = load(p, (r * 8 + g) * 24 + index).reduce(Ops.ADD, r, g)
    spec = run(kernel(o.index(index).store(total, i, u, v)), out, x)
    np.testing.assert_allclose(out, x.sum(0), rtol=1e-5, atol=1e-5)
    assert any([u.op is Ops.STORE and u.src[1].dtype.count == 4 for u in spec.uops])


def test_threads_serve_reductions_and_outputs() -> None:
    """A softmax: the group that reduces a row then writes it."""
    x, out = normal(5, 96), zeros(5, 96)
    o, p = params(out, x)
    a = GPUAxes()
    i, j, m = a.grid(5), a.loop(3), a.local(32)
    r, g, s, h = a.reduce(3), a.group(32), a.reduce(3), a.group(32)
    most = load(p, i * 96 + r * 32 + g).reduce(Ops.MAX, r, g)

    def power(index: UOp) -> UOp:
        return (load(p, i * 96 + index) - most).alu(Ops.EXP2)

    total = power(s * 32 + h).reduce(Ops.ADD, s, h)
    store = o.index(i * 96 + j * 32 + m).store(power(j * 32 + m) / total, i, j, m)
    spec = run(kernel(store), out, x)
    powers = np.exp2(x - x.max(1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(1, keepdims=True), rtol=1e-5)
    assert spec.local_size == (32, 1, 1) and count(spec.uops, Ops.BARRIER) == 2


def test_reductions_over_the_same_elements_share_their_barrier() -> None:
    x, sums, squares = normal(3, 64), zeros(3), zeros(3)
    f, s, p = params(sums, squares, x)
    a = GPUAxes()
    i, r, g = a.grid(3), a.reduce(4), a.group(16)
    value = load(p, i * 64 + r * 16 + g)
    spec = run(
        kernel(
            f.index(i).store(value.reduce(Ops.ADD, r, g), i),
            s.index(i).store((value * value).reduce(Ops.ADD, r, g), i),
        ),
        *(sums, squares, x),
    )
    np.testing.assert_allclose(sums, x.sum(1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(squares, (x * x).sum(1), rtol=1e-5)
    assert count(spec.uops, Ops.BARRIER) == 1
    # one loop over the elements, one over the parts
    assert count(spec.uops, Ops.RANGE) == 2


def test_a_group_reduction_inside_a_loop_has_two_barriers() -> None:
    """max over i of the sum over j: the parts of one sum are read before those of the next come."""
    x, out = normal(6, 16), zeros(1)
    o, p = params(out, x)
    a = GPUAxes()
    i, g = a.reduce(6), a.group(16)
    total = load(p, i * 16 + g).reduce(Ops.ADD, g).reduce(Ops.MAX, i)
    spec = run(kernel(o.index(const(0)).store(total)), out, x)
    np.testing.assert_allclose(out[0], x.sum(1).max(), rtol=1e-5)
    assert count(spec.uops, Ops.BARRIER) == 2


def test_group_reductions_inside_each_other() -> None:
    x, out = normal(4, 8), zeros(1)
    o, p = params(out, x)
    a = GPUAxes()
    g, h = a.group(4), a.group(8)
    total = load(p, g * 8 + h).reduce(Ops.ADD, h).reduce(Ops.MAX, g)
    run(kernel(o.index(const(0)).store(total)), out, x)
    np.testing.assert_allclose(out[0], x.sum(1).max(), rtol=1e-5)
