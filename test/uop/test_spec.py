"""type_verify: legal graphs pass, and each way to break one is named in the text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from weft.dtype import ConstFloat, dtypes
from weft.errors import SpecError
from weft.uop.args import (
    AxisType,
    BufferArg,
    KernelInfo,
    LocalArg,
    RangeArg,
    ReduceArg,
    StageArg,
    VariableArg,
)
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops
from weft.uop.spec import (
    Spec,
    kernel_spec,
    program_spec,
    tensor_spec,
    total_program_spec,
    type_verify,
)

x = Variable("x", 0, 10)
f32, i32 = dtypes.float32, dtypes.int32
BUFFER = UOp(Ops.BUFFER, f32, (), BufferArg(-7, 6, "CPU"))
OTHER = UOp(Ops.BUFFER, f32, (), BufferArg(-8, 6, "CPU:1"))
MATRIX = UOp(Ops.RESHAPE, f32, (BUFFER,), (2, 3))


def refused(graph: UOp | Sequence[UOp], spec: Spec, words: str) -> None:
    with pytest.raises(SpecError) as caught:
        type_verify(graph, spec, "a_pass")
    text = str(caught.value)
    assert text.startswith("SPEC ISSUE") and "after pass 'a_pass'" in text
    assert words in text.splitlines()[0], text
    # the node is shown
    assert len(text.splitlines()) > 1


# ------------------------------------------------------------ what every stage shares
@pytest.mark.parametrize(
    "node, words",
    [
        (UOp(Ops.ADD, f32, (BUFFER,)), "ADD takes 2 sources, found 1"),
        (UOp(Ops.GATHER, f32, (BUFFER,), (0,)), "GATHER takes 2 to any number of sources"),
        (UOp(Ops.ADD, i32, (BUFFER, BUFFER)), "source 0 of ADD of dtype dtypes.int"),
        (UOp(Ops.ADD, f32, (BUFFER, x)), "source 1 of ADD"),
        (UOp(Ops.CMPLT, f32, (BUFFER, BUFFER)), "CMPLT gives dtypes.bool"),
        (UOp(Ops.WHERE, f32, (BUFFER, BUFFER, BUFFER)), "source 0 of WHERE"),
        (UOp(Ops.SINK, f32, (BUFFER,)), "SINK has no value, so dtype void"),
        (UOp(Ops.CAST, dtypes.void, (BUFFER,)), "CAST has a value, so not dtype void"),
        (UOp(Ops.IDIV, f32, (BUFFER, BUFFER)), "IDIV is on dtypes of kind int uint"),
        (UOp(Ops.SIN, dtypes.weakint, (x,)), "SIN is on dtypes of kind float"),
        (UOp(Ops.AND, f32, (BUFFER, BUFFER)), "AND is on dtypes of kind int uint bool"),
        (UOp(Ops.NEG, f32, (BUFFER,), 3), "NEG has no arg, found 3"),
        (UOp(Ops.CONST, i32, (), "one"), "the arg of CONST is a number"),
        (UOp(Ops.CONST, i32, (), 2**40), "a constant of dtypes.int is 0 here"),
        (UOp(Ops.CONST, dtypes.bool, (), 7), "a constant of dtypes.bool is True here"),
        (UOp(Ops.CONST, i32.vec(4), (), 1), "CONST is scalar"),
        (UOp(Ops.CONST, i32, (), ConstFloat(123457.0)), "use UOp.const"),
        (UOp(Ops.VARIABLE, i32, (), VariableArg("v", 3, 1)), "VariableArg with lo <= hi"),
        (UOp(Ops.VARIABLE, i32, (), ("v", 1, 3)), "the arg of VARIABLE is VariableArg"),
        (UOp(Ops.PERMUTE, f32, (MATRIX,), (0, 0)), "a permutation of the axes"),
        (UOp(Ops.FLIP, f32, (MATRIX,), (1, 0)), "a bool per axis"),
        (UOp(Ops.REDUCE_AXIS, f32, (MATRIX,), ReduceArg(Ops.ADD, (1, 0))), "ascending axes"),
        (UOp(Ops.REDUCE_AXIS, f32, (MATRIX,), ReduceArg(Ops.SIN, (0,))), "found Ops.SIN"),
        (UOp(Ops.COPY, f32, (MATRIX,), 3), "the arg of COPY is a device"),
        (UOp(Ops.RANGE, dtypes.weakint, (x,), RangeArg((0,), AxisType.LOOP)), "RANGE is not part"),
    ],
)
def test_one_node(node: UOp, words: str) -> None:
    refused(node, tensor_spec, words)


# ------------------------------------------------------------ tensor graphs
def test_a_legal_tensor_graph() -> None:
    total = UOp(Ops.REDUCE_AXIS, f32, (MATRIX * 2.0,), ReduceArg(Ops.ADD, (1,)))
    wide = UOp(Ops.EXPAND, f32, (total,), (2, 3))
    flat = UOp(Ops.RESHAPE, f32, (MATRIX + wide,), (6,))
    type_verify(UOp(Ops.STORE, dtypes.void, (BUFFER, flat)).sink())
    type_verify(UOp(Ops.RESHAPE, f32, (BUFFER, x.bind(2)), (None, 3)))


@pytest.mark.parametrize(
    "node, words",
    [
        (UOp(Ops.RESHAPE, f32, (BUFFER,), (4, 2)), "RESHAPE keeps the number of elements"),
        (UOp(Ops.RESHAPE, f32, (BUFFER,), (None, 3)), "each symbolic part"),
        (UOp(Ops.RESHAPE, f32, (BUFFER, x), (2, 3)), "each symbolic part"),
        (UOp(Ops.EXPAND, f32, (MATRIX,), (4, 3)), "EXPAND repeats axes of size 1"),
        (UOp(Ops.EXPAND, f32, (MATRIX,), (2, 2, 3)), "EXPAND keeps the number of axes"),
        (UOp(Ops.PERMUTE, f32, (MATRIX,), (0, 2, 1)), "PERMUTE"),
        (UOp(Ops.PAD, f32, (MATRIX,), ((-1, 0), (0, 0))), "PAD adds"),
        (UOp(Ops.PAD, f32, (MATRIX,), ((1, 0),)), "PAD"),
        (UOp(Ops.SHRINK, f32, (MATRIX,), ((0, 2), (1, 9))), "SHRINK keeps a part"),
        (UOp(Ops.STRIDE, f32, (MATRIX,), (0, 1)), "a positive int per axis"),
        (UOp(Ops.CAT, f32, (MATRIX, BUFFER), 0), "CAT needs equal shapes but for axis 0"),
        (UOp(Ops.GATHER, f32, (MATRIX, BUFFER), (0,)), "GATHER's indices are ints"),
        (UOp(Ops.REDUCE_AXIS, f32, (MATRIX,), ReduceArg(Ops.ADD, (5,))), "folds axes below 2"),
        (UOp(Ops.IOTA, i32, ()), "IOTA has its size"),
        (MATRIX + BUFFER, "ADD needs operands of one shape"),
        (BUFFER + OTHER, "different devices"),
        (UOp(Ops.STORE, dtypes.void, (BUFFER + 1, BUFFER)), "STORE writes to a view of a BUFFER"),
        (UOp(Ops.STORE, dtypes.void, (BUFFER, MATRIX)), "STORE writes a value of shape (6,)"),
        (UOp(Ops.STORE, dtypes.void, (BUFFER, BUFFER.cast(i32))), "STORE writes dtypes.float"),
    ],
)
def test_tensor_graphs(node: UOp, words: str) -> None:
    refused(node, tensor_spec, words)


def test_a_long_graph_is_verified_without_recursion() -> None:
    node = BUFFER
    for _ in range(20_000):
        node = UOp(Ops.NEG, f32, (node,))
    type_verify(node)


# ------------------------------------------------------------ kernels
OUT, SRC = UOp.param(0, f32, 10), UOp.param(1, f32, 40)
R0, R1 = UOp.range(10, 0), UOp.range(4, 1, AxisType.REDUCE)
VALUE = SRC.index(R0 * 4 + R1, R0 < 9).load()


def kernel(value: UOp, *ranges: UOp, place: UOp | None = None) -> UOp:
    store = (OUT.index(R0) if place is None else place).store(value, *ranges)
    return store.sink(arg=KernelInfo("k"))


def test_legal_kernels() -> None:
    type_verify(kernel(VALUE.reduce(Ops.ADD, R1), R0), kernel_spec)
    stage = UOp(Ops.STAGE, f32, (VALUE, R1), StageArg(0))
    row = stage.index(UOp.range(4, 2)).load().reduce(Ops.MAX, UOp.range(4, 2))
    type_verify(kernel(row, R0), kernel_spec)
    symbolic = UOp.range(x, 0)
    type_verify(kernel(R0.cast(f32), R0), kernel_spec)
    type_verify(kernel(R0.cast(f32), R0).substitute({R0: symbolic}), kernel_spec)


@pytest.mark.parametrize(
    "graph, words",
    [
        (kernel(VALUE.reduce(Ops.ADD, R1)), "r0 stays open"),
        (kernel(VALUE, R0), "r1 stays open"),
        (kernel(VALUE.reduce(Ops.ADD, R1), R0, R0), "closes a RANGE twice"),
        (kernel(VALUE.reduce(Ops.ADD, x), R0), "REDUCE closes RANGEs, found VARIABLE"),
        (kernel(VALUE.reduce(Ops.ADD, R1).cast(i32), R0), "STORE writes dtypes.float"),
        (kernel(R0.cast(f32).broadcast(4), R0), "VECTORIZE is not part of a kernel"),
        (kernel(BUFFER, R0), "BUFFER is not part of a kernel"),
        (kernel(R0.cast(f32), R0, place=OUT), "STORE writes an INDEX of a PARAM"),
        (R0.cast(f32), "a kernel is a SINK with KernelInfo"),
        (R0.sink(arg=KernelInfo("k")), "a kernel's SINK keeps STOREs, found RANGE"),
        (
            kernel(VALUE.reduce(Ops.ADD, R1), R0).replace(arg=None),
            "a kernel is a SINK with KernelInfo",
        ),
        (
            kernel(VALUE.reduce(Ops.ADD, R1).substitute({R1: UOp.range(5, 0)}), R0),
            "two different RANGEs have the number (0,)",
        ),
        (kernel(UOp(Ops.LOAD, i32, (SRC.index(R0),)).cast(f32), R0), "LOAD gives its INDEX's"),
        (kernel(SRC.index(R0.cast(f32)).load(), R0), "INDEX needs an int index"),
        (kernel(SRC.index(R0, R0).load(), R0), "INDEX needs a bool valid"),
        (kernel((SRC + 1.0).index(R0).load(), R0), "INDEX is into memory"),
        (
            kernel(
                UOp(Ops.STAGE, f32, (VALUE, R1, UOp.range(x, 2)), StageArg(0)).index(R0).load(), R0
            ),
            "its RANGEs but the first have constant sizes",
        ),
        (
            kernel(UOp.param(2, dtypes.weakfloat, 4).index(R0).load().cast(f32), R0),
            "memory holds numbers of a strong dtype",
        ),
    ],
)
def test_kernels(graph: UOp, words: str) -> None:
    refused(graph, kernel_spec, words)


# ------------------------------------------------------------ linear programs
def const(value: Any, dtype: Any = i32) -> UOp:
    return UOp.const(dtype, value)


def loop(size: int, number: int, kind: AxisType = AxisType.LOOP) -> UOp:
    return UOp(Ops.RANGE, i32, (const(size),), RangeArg((number,), kind))


def end(axis: UOp) -> UOp:
    return UOp(Ops.END, dtypes.void, (axis,))


def with_sources(*effects: UOp) -> list[UOp]:
    """The effects in order, each preceded by what it needs and is not there yet."""
    order: dict[UOp, None] = {}
    for effect in effects:
        for node in effect.toposort(gate=lambda u: u not in order):
            order.setdefault(node)
    return list(order)


L0, L1 = loop(10, 0), loop(4, 1, AxisType.REDUCE)
ACC = UOp(Ops.ACC, f32, (const(0.0, f32),), 0)
INNER = UOp(Ops.LOAD, f32, (ACC, L1))
SUM = UOp(Ops.ACC_SET, dtypes.void, (ACC, INNER + SRC.index(L0 * 4 + L1).load()))
RESULT = OUT.index(L0).store(UOp(Ops.LOAD, f32, (ACC, end(L1))))
ROW_SUM = with_sources(OUT, SRC, L0, ACC, L1, SUM, end(L1), RESULT, end(L0))


def test_a_legal_program() -> None:
    type_verify(ROW_SUM)
    # constants may stand anywhere, or nowhere
    type_verify([node for node in ROW_SUM if node.op is not Ops.CONST])


def test_a_legal_program_with_vectors() -> None:
    lanes = UOp(Ops.VECTORIZE, i32.vec(4), tuple(const(i) for i in range(4)))
    gather = UOp(Ops.LOAD, f32.vec(4), (SRC.index(lanes),))
    consecutive = UOp(Ops.LOAD, f32.vec(4), (SRC.index(const(0), lanes < lanes),))
    chosen = (gather < consecutive).where(gather, consecutive)
    type_verify(
        with_sources(OUT.index(const(0)).store(chosen), OUT.index(const(8)).store(chosen.gep(1)))
    )
    half = UOp.param(2, dtypes.float16, 4)
    widened = half.index(const(0)).load().cast(f32) + 1.0
    type_verify(with_sources(half.index(const(1)).store(widened.cast(dtypes.float16))))


HALF = UOp.param(2, dtypes.float16, 4).index(const(0)).load()
V4 = UOp(Ops.LOAD, f32.vec(4), (SRC.index(const(0)),))
LOCAL = UOp(Ops.LOCAL, f32, (), LocalArg(0, 16))
THREAD = loop(4, 7, AxisType.THREAD)
UPCAST = loop(4, 8, AxisType.UPCAST)


@pytest.mark.parametrize(
    "program, words",
    [
        ([L0, const(10), end(L0), end(L0)], "a node stands in a program once"),
        ([L0], "RANGE is never closed"),
        ([L0, L1, end(L0), end(L1)], "END closes the block opened last, which is r1"),
        ([end(L0)], "END closes the block opened last, which is nothing"),
        ([-L0, L0, end(L0)], "RANGE is used before it is defined"),
        ([L0, -L0, end(L0), (-L0).neg()], "NEG is used outside the loop it is defined in"),
        ([L0, end(L0), -L0], "RANGE is used outside the loop"),
        (with_sources(L0, THREAD, end(THREAD), end(L0)), "THREAD axis is the outermost"),
        (with_sources(UPCAST, end(UPCAST)), "axes of type UPCAST are written out"),
        (with_sources(x), "a program has no weak dtypes"),
        (with_sources(HALF + HALF), "half types are computed in float32"),
        (with_sources(L0, L0 // const(3)), 'IDIV is decomposed or proven safe, then tagged "raw"'),
        (with_sources(V4.gep(0).cast(i32)), 'CAST is decomposed or proven safe, then tagged "raw"'),
        (with_sources(OUT.index(const(0)).store(V4, L0)), "its loops are RANGE and END"),
        (with_sources(OUT.index(const(0)).store(V4.cast(i32.vec(4)).rtag("raw"))), "STORE is of"),
        (
            with_sources(UOp(Ops.LOAD, f32.vec(4), (SRC.index(const(0).broadcast(2)),))),
            "has a index of 1 or 4 lanes",
        ),
        (with_sources(UOp(Ops.LOAD, f32, (LOCAL,))), "LOAD goes through an INDEX"),
        (with_sources(UOp(Ops.LOAD, f32, (ACC, const(1)))), "LOAD(ACC, RANGE or END)"),
        (with_sources(UOp(Ops.ACC_SET, dtypes.void, (ACC, const(1)))), "ACC_SET of a register"),
        (with_sources(UOp(Ops.ACC_SET, dtypes.void, (LOCAL, const(1)))), "ACC_SET sets an ACC"),
        (
            with_sources(ACC, UOp(Ops.ACC, f32, (const(1.0, f32),), 0)),
            "two registers have the number 0",
        ),
        (with_sources(UOp(Ops.VECTORIZE, f32.vec(4), (const(1.0, f32),) * 3)), "VECTORIZE of"),
        (with_sources(UOp(Ops.GEP, f32, (V4,), (4,))), "GEP takes lanes below 4"),
        (with_sources(UOp(Ops.GEP, f32, (V4, V4), (8,))), "GEP takes lanes below 8"),
        (with_sources(UOp(Ops.GEP, f32, (V4, V4.gep(0)), (0,))), "two vectors of one dtype"),
        (with_sources(UOp(Ops.GEP, f32, (V4,), (0, 1))), "GEP of (0, 1)"),
        (with_sources(UOp(Ops.CAST, i32, (V4,))), "CAST keeps the lanes"),
        (with_sources(UOp(Ops.ADD, f32, (V4, const(1.0, f32)))), "source 0 of ADD"),
        (with_sources(BUFFER), "BUFFER is not part of a program"),
        (with_sources(UOp(Ops.REDUCE, f32, (V4.gep(0), L0), Ops.ADD)), "REDUCE is not part"),
    ],
)
def test_programs(program: list[UOp], words: str) -> None:
    refused(program, program_spec, words)


def test_the_interpreter_also_takes_total_ops() -> None:
    place = UOp.param(3, i32, 10)
    program = with_sources(L0, place.index(L0).store(L0 // const(3)), end(L0))
    type_verify(program, total_program_spec)
    refused(program, program_spec, "IDIV")
