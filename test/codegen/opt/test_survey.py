"""Survey: what a nest does in each of its loops."""

from __future__ import annotations

import random

from test.codegen.kernel_builder import Axes, kernel, load
from test.codegen.opt.kernels import matmul
from weft import Variable, dtypes
from weft.codegen.opt.survey import USUAL_SIZE, extent, nests_of, volume
from weft.machine import Target
from weft.uop.node import UOp


def test_a_product_has_a_body_for_its_sum_and_one_for_its_stores() -> None:
    ast, _ = matmul(random.Random(11), 9)
    (nest,) = nests_of(list(ast.src), Target())
    first, last = nest.bodies
    assert first.is_reduction and not last.is_reduction
    assert len(first.loads) == 2 and volume(first.own) == extent(first.own[0])
    steps = [item.steps[first.own[0]] for item in first.loads if item.steps]
    assert 1 in steps
    assert first.weight() > 0 and all(first.reuse(item) >= 1 for item in first.loads)


def test_elementwise_kernels_have_one_body() -> None:
    i = Axes().loop(64)
    out, x = UOp.param(0, dtypes.float32, 64), UOp.param(1, dtypes.float32, 64)
    (nest,) = nests_of([out.index(i).store(load(x, i) + 1.0, i)], Target())
    (body,) = nest.bodies
    assert body.own == (i,) and body.axes == (i,) and body.items[-1].nbytes == 256
    assert kernel(nest.stores[0]).src == tuple(nest.stores)


def test_sizes_of_the_run_count_as_usual_ones() -> None:
    n = Variable("n", 1, 1 << 20)
    assert extent(UOp.range(n, 0)) == USUAL_SIZE and extent(UOp.range(5, 0)) == 5
    assert extent(UOp.range(Variable("m", 1, 8), 0)) == 8
