"""estimate: operations and bytes of a kernel."""

from __future__ import annotations

from test.codegen.kernel_builder import F32, Axes, kernel, load
from weft.codegen.estimate import estimate
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.resolve import sym_infer


def test_matmul() -> None:
    m, n, k = 3, 5, 7
    o, p, q = [UOp.param(s, F32, size) for s, size in enumerate((m * n, m * k, k * n))]
    a = Axes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    value = (load(p, i * k + r) * load(q, r * n + j)).reduce(Ops.ADD, r)
    operations, touched = estimate(kernel(o.index(i * n + j).store(value, i, j)))
    assert operations == 2 * m * n * k
    assert touched == 4 * (m * n + m * k + k * n)


def test_what_is_the_same_in_a_loop_counts_once() -> None:
    o, p = UOp.param(0, F32, 40), UOp.param(1, F32, 1000)
    a = Axes()
    i, j = a.loop(4), a.loop(10)
    value = load(p, i) * 2 + load(p, i * 10 + j + 50)
    operations, touched = estimate(kernel(o.index(i * 10 + j).store(value, i, j)))
    assert operations == 4 + 40
    assert touched == 4 * (40 + 4 + 40)


def test_symbolic_sizes_give_expressions() -> None:
    o, p = UOp.param(0, F32, 100), UOp.param(1, F32, 100)
    n = UOp.variable("n", 1, 100)
    i = Axes().loop(n)
    operations, touched = estimate(kernel(o.index(i).store(load(p, i) + 1, i)))
    assert sym_infer(operations, {"n": 10}) == 10
    assert sym_infer(touched, {"n": 10}) == 80
