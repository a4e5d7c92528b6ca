"""Kernels of every shape that the optimiser knows, with exact data: sums of small whole numbers do
not round.

In: a source of random sizes. Out: a kernel AST and its arrays, the outputs first. Shared by the
optimiser's tests.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

import numpy as np

from test.codegen.kernel_builder import Axes, const, interpret, kernel, load, params
from test.optional import STRICTEST
from weft import Device, Tensor
from weft.codegen.pipeline import KERNEL_PASSES, lower
from weft.dtype import dtypes
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.python import PythonRenderer
from weft.uop.node import UOp
from weft.uop.opset import Ops

Case = tuple[UOp, list[np.ndarray]]


def numbers(*shape: int, dtype: type = np.float32) -> np.ndarray:
    """Small whole numbers, the same for the same shape."""
    count = int(np.prod(shape))
    values = (np.arange(count) * 7919 % 23) - 11
    return values.astype(dtype).reshape(shape)


def zeros(*shape: int, dtype: type = np.float32) -> np.ndarray:
    # not zeros: what is never written shows
    return np.full(shape, 77, dtype)


def add(pick: random.Random, big: int) -> Case:
    rows, columns = pick.randint(1, big), pick.randint(1, big)
    arrays = [zeros(rows, columns), numbers(rows, columns), numbers(rows, columns) + 1]
    out, x, y = params(*arrays)
    a = Axes()
    i, j = a.loop(rows), a.loop(columns)
    at = i * columns + j
    return kernel(out.index(at).store(load(x, at) + load(y, at), i, j)), arrays


def bias(pick: random.Random, big: int) -> Case:
    rows, columns = pick.randint(1, big), pick.randint(1, big)
    arrays = [zeros(rows, columns), numbers(rows, columns), numbers(columns)]
    out, x, y = params(*arrays)
    a = Axes()
    i, j = a.loop(rows), a.loop(columns)
    return kernel(
        out.index(i * columns + j).store(load(x, i * columns + j) * load(y, j), i, j)
    ), arrays


def transpose(pick: random.Random, big: int) -> Case:
    rows, columns = pick.randint(1, big), pick.randint(1, big)
    arrays = [zeros(rows, columns), numbers(columns, rows)]
    out, x = params(*arrays)
    a = Axes()
    i, j = a.loop(rows), a.loop(columns)
    return kernel(out.index(i * columns + j).store(load(x, j * rows + i), i, j)), arrays


def in_place(pick: random.Random, big: int) -> Case:
    """Two outputs, one of them read: no element may be done twice."""
    size = pick.randint(1, big * 4)
    arrays = [numbers(size), numbers(size) + 3, numbers(size) * 2]
    weight, moment, grad = params(*arrays)
    i = Axes().loop(size)
    new = load(moment, i) + load(grad, i) * 2.0
    return kernel(
        moment.index(i).store(new, i), weight.index(i).store(load(weight, i) - new, i)
    ), arrays


def in_place_rows(pick: random.Random, big: int) -> Case:
    """A whole that is read and written, over two axes that stay two."""
    rows, columns = pick.randint(1, 6), pick.randint(1, big)
    arrays = [numbers(rows, columns), numbers(columns)]
    x, y = params(*arrays)
    a = Axes()
    i, j = a.loop(rows), a.loop(columns)
    at = i * columns + j
    return kernel(x.index(at).store(load(x, at) * 2.0 + load(y, j), i, j)), arrays


def positions(pick: random.Random, big: int) -> Case:
    """Axes as values, and an index that divides."""
    size = pick.randint(1, big)
    inner = pick.choice([3, 4, 16])
    arrays = [zeros(size * inner, dtype=np.int32), numbers(inner, size, dtype=np.int32)]
    out, x = params(*arrays)
    i = Axes().loop(size * inner)
    value = load(x, (i % inner) * size + i // inner) + i.cast(dtypes.int32)
    return kernel(out.index(i).store(value, i)), arrays


def heads(pick: random.Random, big: int) -> Case:
    """(head, row, d) written as (row, head*d): lanes stay inside a head."""
    rows, count, width = pick.randint(1, 5), pick.randint(1, 3), pick.choice([4, 16, 24])
    arrays = [zeros(rows, count * width), numbers(count, rows, width)]
    out, x = params(*arrays)
    a = Axes()
    i, j = a.loop(rows), a.loop(count * width)
    index = (j // width) * (rows * width) + i * width + j % width
    return kernel(out.index(i * (count * width) + j).store(load(x, index) * 2.0, i, j)), arrays


def matmul(pick: random.Random, big: int) -> Case:
    m, n, k = pick.randint(1, big), pick.randint(1, big), pick.randint(1, big)
    batch = pick.choice([1, 1, 2])
    swap_left, swap_right = pick.random() < 0.4, pick.random() < 0.4
    arrays = [zeros(batch, m, n), numbers(batch, m, k), numbers(batch, k, n), numbers(n)]
    out, x, y, b = params(*arrays)
    a = Axes()
    g, i, j, r = a.loop(batch), a.loop(m), a.loop(n), a.reduce(k)
    left = g * (m * k) + (r * m + i if swap_left else i * k + r)
    right = g * (k * n) + (j * k + r if swap_right else r * n + j)
    total = (load(x, left) * load(y, right)).reduce(Ops.ADD, r)
    if pick.random() < 0.5:
        total = (total + load(b, j)).maximum(0.0)
    return kernel(out.index(g * (m * n) + i * n + j).store(total, g, i, j)), arrays


def half_matmul(pick: random.Random, big: int) -> Case:
    """Weights of a narrower type: the staged panel holds what is computed with."""
    m, n, k = pick.randint(1, big), pick.randint(1, big), pick.randint(1, big)
    arrays = [zeros(m, n), numbers(m, k), numbers(n, k, dtype=np.float16)]
    out, x, y = params(*arrays)
    a = Axes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    weight = load(y, j * k + r).cast(dtypes.float32)
    total = (load(x, i * k + r) * weight).reduce(Ops.ADD, r)
    return kernel(out.index(i * n + j).store(total, i, j)), arrays


def two_sums(pick: random.Random, big: int) -> Case:
    """Two results of one loop over two operands, with reuse."""
    m, n, k = pick.randint(1, big), pick.randint(1, big), pick.randint(1, big)
    arrays = [zeros(m, n), numbers(m, k), numbers(k, n), numbers(k, n) + 2]
    out, x, y, z = params(*arrays)
    a = Axes()
    i, j, r = a.loop(m), a.loop(n), a.reduce(k)
    left = load(x, i * k + r)
    first = (left * load(y, r * n + j)).reduce(Ops.ADD, r)
    second = (left * load(z, r * n + j)).reduce(Ops.ADD, r)
    return kernel(out.index(i * n + j).store(first * second, i, j)), arrays


def rows(pick: random.Random, big: int) -> Case:
    """A softmax in whole numbers: maximum, sum of a function of it, and the row again."""
    count, size = pick.randint(1, 6), pick.randint(1, big * 4)
    arrays = [zeros(count, size), numbers(count, size)]
    out, x = params(*arrays)
    a = Axes()
    i, j, r, s = a.loop(count), a.loop(size), a.reduce(size), a.reduce(size)
    top = load(x, i * size + r).reduce(Ops.MAX, r)

    def spread(at: UOp) -> UOp:
        return (load(x, i * size + at) - top) * 2.0 + 1.0

    total = spread(s).reduce(Ops.ADD, s)
    return kernel(out.index(i * size + j).store(spread(j) + total, i, j)), arrays


def costly_rows(pick: random.Random, big: int) -> Case:
    """The same with a division, which is worth keeping for the outputs."""
    count, size = pick.randint(1, 6), pick.randint(1, big * 2)
    arrays = [zeros(count, size, dtype=np.int32), numbers(count, size, dtype=np.int32)]
    out, x = params(*arrays)
    a = Axes()
    i, j, r, s = a.loop(count), a.loop(size), a.reduce(size), a.reduce(size)
    top = load(x, i * size + r).reduce(Ops.MAX, r)

    def spread(at: UOp) -> UOp:
        return ((load(x, i * size + at) - top) * 5) // 3

    total = spread(s).reduce(Ops.ADD, s)
    return kernel(out.index(i * size + j).store(spread(j) * total, i, j)), arrays


def channels(pick: random.Random, big: int) -> Case:
    """A batchnorm in whole numbers: the reduction depends on the second output axis only."""
    n, c, w = pick.randint(1, 4), pick.randint(1, 5), pick.randint(1, big)
    arrays = [zeros(n, c, w), numbers(n, c, w)]
    out, x = params(*arrays)
    a = Axes()
    i, j, k, r, s = a.loop(n), a.loop(c), a.loop(w), a.reduce(n), a.reduce(w)
    total = load(x, (r * c + j) * w + s).reduce(Ops.ADD, r, s)
    value = load(x, (i * c + j) * w + k) + total
    return kernel(out.index((i * c + j) * w + k).store(value, i, j, k)), arrays


def row_sums(pick: random.Random, big: int) -> Case:
    count, size = pick.randint(1, 6), pick.randint(1, big * 8)
    arrays = [zeros(count), numbers(count, size)]
    out, x = params(*arrays)
    a = Axes()
    i, r = a.loop(count), a.reduce(size)
    op = pick.choice([Ops.ADD, Ops.MAX])
    return kernel(out.index(i).store(load(x, i * size + r).reduce(op, r), i)), arrays


def column_sums(pick: random.Random, big: int) -> Case:
    count, size = pick.randint(1, big * 4), pick.randint(1, big)
    arrays = [zeros(size), numbers(count, size)]
    out, x = params(*arrays)
    a = Axes()
    j, r = a.loop(size), a.reduce(count)
    return kernel(out.index(j).store(load(x, r * size + j).reduce(Ops.ADD, r), j)), arrays


def total(pick: random.Random, big: int) -> Case:
    """No output axis at all, two reduce axes that become one."""
    count, size = pick.randint(1, big), pick.randint(1, big)
    arrays = [zeros(1), numbers(count, size)]
    out, x = params(*arrays)
    a = Axes()
    r, s = a.reduce(count), a.reduce(size)
    value = load(x, r * size + s).reduce(Ops.ADD, r, s)
    return kernel(out.index(const(0)).store(value)), arrays


def convolution(pick: random.Random, big: int) -> Case:
    n, ci, co, size, k = pick.randint(1, 2), pick.randint(1, 4), pick.randint(1, 9), big, 3
    size = pick.randint(1, max(size, 4))
    arrays = [zeros(n, co, size, size), numbers(n, ci, size, size), numbers(co, ci, k, k)]
    out, x, w = params(*arrays)
    a = Axes()
    b, o, y, z = a.loop(n), a.loop(co), a.loop(size), a.loop(size)
    c, p, q = a.reduce(ci), a.reduce(k), a.reduce(k)
    row, column = y + p - 1, z + q - 1
    inside = (row >= 0) & (row < size) & (column >= 0) & (column < size)
    pixel = load(x, ((b * ci + c) * size + row) * size + column, inside)
    weight = load(w, ((o * ci + c) * k + p) * k + q)
    value = (pixel * weight).reduce(Ops.ADD, c, p, q)
    at = ((b * co + o) * size + y) * size + z
    return kernel(out.index(at).store(value, b, o, y, z)), arrays


def pooling(pick: random.Random, big: int) -> Case:
    n, size = pick.randint(1, 4), pick.randint(1, big)
    arrays = [zeros(n, size, size), numbers(n, 2 * size, 2 * size)]
    out, x = params(*arrays)
    a = Axes()
    b, y, z, p, q = a.loop(n), a.loop(size), a.loop(size), a.reduce(2), a.reduce(2)
    at = (b * (2 * size) + y * 2 + p) * (2 * size) + z * 2 + q
    value = load(x, at).reduce(Ops.MAX, p, q)
    return kernel(out.index((b * size + y) * size + z).store(value, b, y, z)), arrays


def two_nests(pick: random.Random, big: int) -> Case:
    """Outputs of different sizes, one nest after another."""
    first, second = pick.randint(1, big * 4), pick.randint(1, big * 4)
    arrays = [zeros(first), zeros(second), numbers(first), numbers(second)]
    out, other, x, y = params(*arrays)
    a = Axes()
    i, j = a.loop(first), a.loop(second)
    return kernel(
        out.index(i).store(load(x, i) * 3.0, i), other.index(j).store(load(y, j) + 1.0, j)
    ), arrays


def lookup(pick: random.Random, big: int) -> Case:
    """Rows chosen at run time."""
    count, size, width = pick.randint(1, 6), pick.randint(1, 9), pick.randint(1, big)
    chosen = np.abs(numbers(count, dtype=np.int32)) % size
    arrays = [zeros(count, width), numbers(size, width), chosen]
    out, table, index = params(*arrays)
    a = Axes()
    i, j = a.loop(count), a.loop(width)
    row = load(index, i).cast(dtypes.weakint)
    inside = (row >= 0) & (row < size)
    value = load(table, row * width + j, inside)
    return kernel(out.index(i * width + j).store(value + 1.0, i, j)), arrays


KERNELS: list[Callable[[random.Random, int], Case]] = [
    add, bias, transpose, in_place, in_place_rows, positions, heads, matmul, half_matmul,
    two_sums, rows, costly_rows, channels, row_sums, column_sums, total, convolution, pooling,
    two_nests, lookup,
]  # fmt: skip


def run_plain(
    ast: UOp, arrays: Sequence[np.ndarray], values: Sequence[int] = ()
) -> list[np.ndarray]:
    """What the arrays hold after the kernel as it stands."""
    return run_for(ast, arrays, None, values)


def run_for(
    ast: UOp,
    arrays: Sequence[np.ndarray],
    target: Target | None,
    values: Sequence[int] = (),
) -> list[np.ndarray]:
    """What the arrays hold after the kernel, optimised for a target unless that is None."""
    copies = [array.copy() for array in arrays]
    with Context(SPEC=STRICTEST, NOOPT=0 if target else 1):
        program = lower(ast, PythonRenderer(target))
    interpret(program.uops, copies, values)
    return copies


def prepared(tensor: Tensor) -> UOp:
    """The last kernel of a tensor, as the search sees it."""
    ast = tensor.schedule()[-1].kernel
    assert ast is not None
    for step in KERNEL_PASSES:
        if step.name == "optimise":
            break
        ast = step.run(ast, Device["CPU"].renderer)
    return ast
