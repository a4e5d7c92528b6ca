"""shuffle: lanes apart in memory are read and written in rows, and every lane is the right one."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.kernel_builder import Axes, const, interpret, kernel, load, params
from test.codegen.opt.kernels import numbers, run_plain, zeros
from weft.codegen.expand import expand
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.opt import Opt, OptOps
from weft.codegen.pipeline import lower
from weft.codegen.shuffle import squares
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.llvmir import LLVMRenderer
from weft.renderer.python import PythonRenderer
from weft.uop.args import AxisType
from weft.uop.node import UOp
from weft.uop.opset import Ops

WIDE = Target("wide", vector_bytes=64, vector_registers=32)


def run_as_it_is(ast: UOp, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """What the arrays hold after the kernel, with the axes that it has."""
    found = [array.copy() for array in arrays]
    with Context(SPEC=2, NOOPT=1):
        interpret(lower(ast, PythonRenderer(WIDE)).uops, found)
    return found


def computes_the_same(sink: UOp, arrays: list[np.ndarray]) -> UOp:
    """The expanded kernel, after its program was compared with the plain one's."""
    found = run_as_it_is(sink, arrays)
    plain = sink.substitute(
        {
            u: u.replace(arg=type(u.arg)(u.arg.number, AxisType.LOOP))
            for u in sink.toposort()
            if u.op is Ops.RANGE and u.arg.kind in (AxisType.VECTOR, AxisType.UPCAST)
        }
    )
    for left, right in zip(found, run_plain(plain, arrays), strict=True):
        np.testing.assert_array_equal(left, right)
    return expand(sink, in_rows=True)


def loads(sink: UOp) -> list[UOp]:
    return [u for u in sink.toposort() if u.op is Ops.LOAD]


def is_in_rows(nodes: list[UOp]) -> bool:
    """No access has an address per lane."""
    return all(u.src[0].src[1].dtype.count == 1 for u in nodes)


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("step", [2, 3, 4])
def test_lanes_a_few_apart_are_picked_from_rows(step: int, lanes: int) -> None:
    arrays = [zeros(2 * lanes), numbers(2 * lanes * step)]
    # not one element more than the last lane reads
    arrays[1] = arrays[1][: (2 * lanes - 1) * step + 1]
    out, x = params(*arrays)
    a = Axes()
    i, v = a.loop(2), a.vector(lanes)
    at = i * lanes + v
    result = computes_the_same(kernel(out.index(at).store(load(x, at * step), i, v)), arrays)
    assert is_in_rows(loads(result)) and len(loads(result)) == step


def test_lanes_far_apart_are_gathered() -> None:
    arrays = [zeros(8), numbers(100)]
    out, x = params(*arrays)
    v = Axes().vector(8)
    result = computes_the_same(kernel(out.index(v).store(load(x, v * 11), v)), arrays)
    assert not is_in_rows(loads(result))


def test_lanes_that_may_be_missing_are_gathered() -> None:
    """Between two lanes that are there may be memory that is not."""
    arrays = [zeros(8), numbers(16)]
    out, x = params(*arrays)
    v = Axes().vector(8)
    inside = load(x, v * 2 - 2, (v > 0) & (v < 7))
    result = computes_the_same(kernel(out.index(v).store(inside, v)), arrays)
    assert not is_in_rows(loads(result))


@pytest.mark.parametrize("lanes", [4, 8, 16])
@pytest.mark.parametrize("copies", [4, 6, 8, 16, 21])
def test_a_turned_load_reads_rows(copies: int, lanes: int) -> None:
    width = 40
    arrays = [zeros(copies * lanes), numbers(lanes * width)]
    out, x = params(*arrays)
    a = Axes()
    u, v = a.upcast(copies), a.vector(lanes)
    value = load(x, v * width + u + 3)
    result = computes_the_same(kernel(out.index(u * lanes + v).store(value, u, v)), arrays)
    rows = [n for n in loads(result) if n.src[0].src[1].dtype.count == 1]
    assert len(rows) >= lanes
    # what is left over when squares are cut
    assert len(loads(result)) - len(rows) <= 3


@pytest.mark.parametrize("lanes", [4, 16])
@pytest.mark.parametrize("copies", [2, 5, 8, 14])
def test_a_turned_store_writes_rows(copies: int, lanes: int) -> None:
    width = 40
    arrays = [zeros(lanes * width), numbers(copies * lanes)]
    out, x = params(*arrays)
    a = Axes()
    u, v = a.upcast(copies), a.vector(lanes)
    store = out.index(v * width + u).store(load(x, u * lanes + v), u, v)
    result = computes_the_same(kernel(store), arrays)
    scattered = [s for s in result.src if s.src[0].src[1].dtype.count > 1]
    assert len(scattered) == copies % 2


def test_rows_that_would_overlap_are_not_squares() -> None:
    """Neighbours 2 apart in lanes that are 3 apart: rows of 2, never of 4."""
    arrays = [zeros(40), numbers(8 * 8)]
    out, x = params(*arrays)
    a = Axes()
    u, v = a.upcast(3), a.vector(8)
    result = computes_the_same(kernel(out.index(v * 3 + u).store(load(x, u * 8 + v), u, v)), arrays)
    assert {s.src[1].dtype.count for s in result.src} == {2, 8}
    assert squares([], 8) == []


def test_a_shuffle_is_one_instruction() -> None:
    out, x = params(zeros(16), numbers(31))
    v = Axes().vector(16)
    with Context(NOOPT=1):
        text = lower(kernel(out.index(v).store(load(x, v * 2), v)), LLVMRenderer(WIDE)).src
    assert text.count("shufflevector") == 1
    assert "extractelement" not in text and "insertelement" not in text


@pytest.mark.parametrize("kernel_size", [2, 3, 4])
def test_a_panel_of_weights_is_filled_in_squares(kernel_size: int) -> None:
    """The summed axes are one run in memory: together they are cut, however short the last is."""
    rows, inner, columns = 3, 8, 32
    arrays = [
        zeros(rows, columns),
        numbers(rows, inner * kernel_size),
        numbers(columns, inner * kernel_size),
    ]
    out, x, w = params(*arrays)
    a = Axes()
    i, j, c, k = a.loop(rows), a.loop(columns), a.reduce(inner), a.reduce(kernel_size)
    at = c * kernel_size + k
    length = inner * kernel_size
    total = (load(x, i * length + at) * load(w, j * length + at)).reduce(Ops.ADD, c, k)
    ast = kernel(out.index(i * columns + j).store(total, i, j))
    expected = run_plain(ast, arrays)
    for opt in (
        Opt(OptOps.VECTOR, j.arg.number, 16),
        Opt(OptOps.STAGE, 2, (c.arg.number, k.arg.number, (*j.arg.number, 1))),
    ):
        ast = apply_opt(ast, opt, WIDE)
    stage = next(u for u in ast.toposort() if u.op is Ops.STAGE)
    assert [u.arg.kind for u in stage.src[1:]] == [
        AxisType.LOOP,
        AxisType.UPCAST,
        AxisType.VECTOR,
    ]
    found = run_as_it_is(ast, arrays)
    np.testing.assert_array_equal(found[0], expected[0])


def test_constants_stay_what_they_are() -> None:
    """A store of one number to places apart needs no rows of it."""
    arrays = [zeros(64)]
    (out,) = params(*arrays)
    a = Axes()
    u, v = a.upcast(4), a.vector(8)
    computes_the_same(kernel(out.index(v * 8 + u).store(const(3).cast(out.dtype), u, v)), arrays)
