"""Printing: listings, expressions, and that neither fails nor grows without bound."""

from __future__ import annotations

import random

import pytest

from weft.dtype import dtypes
from weft.uop.args import AxisType, BufferArg, KernelInfo, ReduceArg
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops
from weft.uop.resolve import sym_infer
from weft.uop.text import arg_text, expression_text, graph_text, nodes_text

x = Variable("x", 0, 10)
y = Variable("y", 0, 3)
r0, r1 = UOp.range(10, 0), UOp.range(4, 1)
p0, p1 = UOp.param(0, dtypes.float32, 10), UOp.param(1, dtypes.float32, 40)


@pytest.mark.parametrize(
    "node, text",
    [
        (r0 * 4 + r1 < 10, "r0*4+r1<10"),
        ((r0 * 4 + r1 - 3) // 2 % (x + 5), "(r0*4+r1-3)//2%(x+5)"),
        (x - y, "x-y"),
        (x - (y + 1), "x-(y+1)"),
        (x + y.neg().neg(), "x+--y"),
        (x * -3, "x*-3"),
        (-(x + y) * 2, "-(x+y)*2"),
        ((x + y) + x, "x+y+x"),
        (x + (y + x), "x+(y+x)"),
        ((r0 < 3) & (r1 < 2), "(r0<3)&(r1<2)"),
        ((x < 3).logical_not(), "not x<3"),
        ((x < 3).where(x, y) * 2, "(x if x<3 else y)*2"),
        (x.maximum(y), "max(x, y)"),
        (x.ne(3), "x!=3"),
        (x << 2 | y & 1, "x<<2|y&1"),
        (x.cast(dtypes.float32), "float32(x)"),
        (p0.index(r0).load(), "p0[r0]"),
        (p0.index(r0, r0 < 3).load() * 2.0, "p0[r0 if r0<3]*2.0"),
        (p1.index(r0 * 4 + r1).load().reduce(Ops.ADD, r1), "reduce_add(p1[r0*4+r1], r1)"),
        (UOp.range(3, (0, 1)), "r0_1"),
        (x.bind(3) + 1, "(x=3)+1"),
        (x.cast(dtypes.float32).broadcast(4), "float32x4(float32(x))"),
        (UOp.const(dtypes.float32, float("inf")), "inf"),
        (UOp.const(dtypes.bool, True), "True"),
    ],
)
def test_expressions(node: UOp, text: str) -> None:
    assert expression_text(node) == text == node.text()


def test_expressions_are_python() -> None:
    rng = random.Random(1)
    names = {"x": 7, "y": 2, "max": max}
    for _ in range(300):
        nodes = [x, y, x.const_like(3), x.const_like(-2)]
        for _ in range(8):
            a, b = rng.choice(nodes), rng.choice(nodes)
            nodes.append(
                rng.choice(
                    [a + b, a - b, a * b, -a, a // 3, a % 5, a & b, a | b, a ^ b, a.maximum(b)]
                    + [(a < b).where(a, b), a << 1, a >> 1]
                )
            )
        node = nodes[-1]
        assert eval(node.text(), {}, names) == sym_infer(node, {"x": 7, "y": 2})


def test_long_expressions_are_cut() -> None:
    node = x
    for _ in range(2000):
        node = node + node
    assert len(node.text()) < 5000 and "..." in node.text()
    assert expression_text(x * 1000 + y, 5) == "...+y"
    assert expression_text(x + y, 2) == "x+..."


def test_listing() -> None:
    value = p1.index(r0 * 4 + r1).load().reduce(Ops.ADD, r1)
    kernel = p0.index(r0).store(value, r0).sink(arg=KernelInfo("row_sum"))
    lines = str(kernel).splitlines()
    assert lines == graph_text(kernel).splitlines()
    assert len(lines) == len(kernel.toposort())
    assert lines[0].split() == ["0", "PARAM", "float32", "slot", "0", "of", "10"]
    assert lines[2].split() == ["2", "RANGE", "weakint", "(1)", "r0", "LOOP"]
    assert lines[-1].split() == [str(len(lines) - 1), "SINK", f"({len(lines) - 2})", "row_sum"]


def test_listing_shows_shape_tag_and_origin() -> None:
    buffer = UOp(Ops.BUFFER, dtypes.float32, (), BufferArg(-5, 6, "CPU"))
    node = UOp(Ops.RESHAPE, dtypes.float32, (buffer,), (2, 3)).rtag("seen")
    node.origin = ("/home/user/model.py", 12)
    assert str(node).splitlines() == [
        "0  BUFFER       float32                 #-5 of 6 on CPU",
        "1  RESHAPE      float32    (0)          (2, 3)  [2, 3]  tag='seen'  # model.py:12",
    ]


def test_a_program_is_indented_by_its_loops() -> None:
    size = UOp.const(dtypes.int32, 4)
    loop = UOp(Ops.RANGE, dtypes.int32, (size,), r0.arg)
    program = [size, loop, -loop, UOp(Ops.END, dtypes.void, (loop,))]
    lines = nodes_text(program).splitlines()
    assert lines[2].startswith("2    NEG") and lines[3].startswith("3  END")


def test_shared_nodes_are_listed_once() -> None:
    node = x
    for _ in range(100):
        node = node + node
    assert len(graph_text(node).splitlines()) == 101


def test_long_listings_are_cut_with_a_note() -> None:
    node = x
    for _ in range(100_000):
        node = UOp(Ops.NEG, dtypes.weakint, (node,))
    lines = graph_text(node, 100).splitlines()
    assert len(lines) == 101
    assert "... 99901 nodes are not shown ..." in lines
    assert lines[-1].startswith("100000  NEG")


def test_broken_nodes_are_printed_all_the_same() -> None:
    broken = UOp(Ops.PERMUTE, dtypes.float32, (p0,), (3, 4, 5))
    assert "shape ?" in graph_text(broken)
    UOp(Ops.ADD).text()
    UOp(Ops.CMPLT, dtypes.bool, (x,)).text()
    UOp(Ops.CAST, dtypes.float32).text()
    graph_text(UOp(Ops.CAT, dtypes.float32, (), None))


def test_args_in_few_words() -> None:
    assert arg_text(None) == ""
    assert arg_text(ReduceArg(Ops.ADD, (0, 2))) == "ADD over 0, 2"
    assert arg_text(BufferArg(3, 16, ("CPU", "CPU:1"))) == "#3 of 16 on (CPU, CPU:1)"
    assert arg_text(UOp.range(3, 2, AxisType.UNROLL).arg) == "r2 UNROLL"
    assert arg_text(Ops.MAX) == "MAX"


def test_a_size_of_a_shape_reads_as_an_expression() -> None:
    size = UOp.variable("n", 1, 8)
    bound = size.bind(3)
    assert repr((size, size * 2 + 1, bound, 4)) == "(n, n*2+1, n=3, 4)"
    assert str(bound) == "n=3" and f"{bound * 4} elements" == "(n=3)*4 elements"
    # an index of a kernel and a number are nodes like all others
    assert "RANGE" in str(UOp.range(4, 0) * 2) and repr(UOp.const(dtypes.weakint, 3))[:4] == "UOp("
