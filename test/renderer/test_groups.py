"""Every op in every language of GPUs: printed for every dtype that the language has, and right.

Values are checked where the text can run: OpenCL on all dtypes, WGSL on integers (what it does with
NaN, infinities and denormals is left open).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from test import test_op_table as table
from test.renderer.corpus import Case
from test.renderer.golden_kernels import RENDERERS
from test.renderer.launch import run_opencl, run_wgsl
from weft.codegen.pipeline import lower
from weft.dtype import DType, bits_of, dtypes, value_of_bits
from weft.errors import CompileError
from weft.renderer.base import ProgramSpec, Renderer
from weft.renderer.opencl import OpenCLRenderer
from weft.renderer.wgsl import WGSLRenderer
from weft.uop.args import KernelInfo
from weft.uop.evaluate import takes
from weft.uop.node import UOp
from weft.uop.opset import GroupOp, Ops

# Units in the last place that a function of an OpenCL device may be off.
ULPS = {Ops.SIN: 4, Ops.POW: 16, Ops.EXP2: 3, Ops.LOG2: 3}
Run = Callable[[Case, ProgramSpec], list[bytes]]


@pytest.mark.parametrize("kind", RENDERERS, ids=lambda kind: str(kind.name))
@table.each_alu_case
def test_every_op_is_printed_or_refused(kind: type[Renderer], op: Ops, dtype: DType) -> None:
    renderer = kind()
    result, sources = table.signature(op, dtype)
    try:
        spec = lower(table.kernel(op, result, sources, 64), renderer)
    except CompileError as error:
        assert f"{renderer.name} has no dtypes." in str(error)
        asked = str(error).split(", which")[0].rpartition(".")[2]
        assert getattr(dtypes, asked).itemsize == 8
        return
    left = [
        uop
        for uop in spec.uops
        if uop.op in GroupOp.Elementwise and not table.printed(uop, renderer)
    ]
    assert not left


def bytes_of(values: list[Any], dtype: DType) -> bytes:
    return b"".join(bits_of(v, dtype).to_bytes(dtype.itemsize, "little") for v in values)


def values_of(contents: bytes, dtype: DType) -> list[Any]:
    step = dtype.itemsize
    parts = [contents[at : at + step] for at in range(0, len(contents), step)]
    return [value_of_bits(int.from_bytes(part, "little"), dtype) for part in parts]


def check_ops(dtype: DType, ops: list[Ops], renderer: Renderer, run: Run) -> None:
    """All ops on all pairs of edge values, in one kernel; a third operand is the first again."""
    pairs = list(itertools.product(table.edge_values(dtype), repeat=2))
    firsts, seconds = [list(column) for column in zip(*pairs, strict=True)]
    choices = [bool(place % 3) for place in range(len(pairs))]
    inputs = [(firsts, dtype), (seconds, dtype), (choices, dtypes.bool)]
    index = UOp.range(len(pairs), 0)
    loads = [
        UOp.param(len(ops) + place, kind, len(pairs)).index(index).load()
        for place, (_, kind) in enumerate(inputs)
    ]
    results, stores, operands = [], [], []
    for slot, op in enumerate(ops):
        result, sources = table.signature(op, dtype)
        places = [2, 0, 1] if op is Ops.WHERE else [0, 1, 0][: len(sources)]
        value = UOp(op, result, tuple([loads[place] for place in places]))
        stores.append(UOp.param(slot, result, len(pairs)).index(index).store(value, index))
        results.append(result)
        operands.append([inputs[place][0] for place in places])
    ast = UOp.sink(*stores, arg=KernelInfo("ops"))
    spec = lower(ast, renderer)
    before = [bytes(len(pairs) * result.itemsize) for result in results]
    before += [bytes_of(values, kind) for values, kind in inputs]
    kinds = (*results, *[kind for _, kind in inputs])
    found = run(Case("ops", ast, tuple(before), (), {}, kinds), spec)
    for op, result, columns, contents in zip(ops, results, operands, found, strict=False):
        sources = table.signature(op, dtype)[1]
        rows = zip(*columns, values_of(contents, result), strict=True)
        for *values, value in rows:
            expected = table.reference(op, result, values, sources)
            close = op in ULPS and table.ulps(value, expected, result) <= ULPS[op]
            if op is Ops.MULADD and renderer.target.has_fma:
                # its row: rounded twice, or once where the target can
                expected = table.reference(Ops.MULACC, result, values, sources)
            assert close or table.same(value, expected), f"{op.name} {values}: {value}"


def ops_on(dtype: DType) -> list[Ops]:
    return [op for op in sorted(GroupOp.ALU, key=str) if takes(op, dtype)]


@pytest.mark.parametrize("dtype", dtypes.all, ids=str)
def test_ops_have_the_values_of_the_table_in_opencl(dtype: DType) -> None:
    ops = ops_on(dtype)
    for first in range(0, len(ops), 6):
        check_ops(dtype, ops[first : first + 6], OpenCLRenderer(), run_opencl)


@pytest.mark.parametrize(
    "dtype", [d for d in (dtypes.bool, *dtypes.ints) if d.itemsize <= 4], ids=str
)
def test_ops_have_the_values_of_the_table_in_wgsl(dtype: DType) -> None:
    ops = ops_on(dtype)
    for first in range(0, len(ops), 5):
        check_ops(dtype, ops[first : first + 5], WGSLRenderer(), run_wgsl)
