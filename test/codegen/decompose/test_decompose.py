"""The pass: what a renderer names as its own stays, all the rest becomes what it can print."""

from __future__ import annotations

import pytest

from weft.codegen.decompose.decompose import decompose
from weft.dtype import DType, dtypes
from weft.machine import Target
from weft.renderer.base import Renderer
from weft.renderer.c import CRenderer
from weft.renderer.llvmir import LLVMRenderer
from weft.renderer.python import PythonRenderer
from weft.uop.evaluate import takes
from weft.uop.node import UOp
from weft.uop.opset import OPSET, GroupOp, Ops

RENDERERS = [
    LLVMRenderer(),
    LLVMRenderer(Target(has_rounding=False, has_half_conversion=True)),
    CRenderer(),
]
COMPUTED = (*dtypes.ints, dtypes.bool, dtypes.float32, dtypes.float64)
RAW = frozenset({Ops.IDIV, Ops.MOD, Ops.SHL, Ops.SHR})


def value(dtype: DType, slot: int = 0) -> UOp:
    return UOp.param(slot, dtype, 8).index(UOp.const(dtypes.int64, 0)).load()


def node(op: Ops, dtype: DType) -> UOp:
    arity = OPSET[op].arity
    assert isinstance(arity, int)
    sources = [value(dtype, slot) for slot in range(arity)]
    if op is Ops.WHERE:
        sources[0] = value(dtypes.bool, 9)
    result = dtypes.bool if op in GroupOp.Comparison else dtype
    return UOp(op, result, tuple(sources))


@pytest.mark.parametrize("renderer", RENDERERS, ids=repr)
@pytest.mark.parametrize("op", sorted(GroupOp.ALU, key=lambda op: op.name), ids=lambda op: op.name)
def test_every_op_is_printed_or_decomposed(op: Ops, renderer: Renderer) -> None:
    for dtype in COMPUTED:
        if op is Ops.THREEFRY and dtype is not dtypes.uint64 or not takes(op, dtype):
            continue
        for uop in decompose(node(op, dtype), renderer).toposort():
            if uop.op not in GroupOp.ALU:
                continue
            assert renderer.is_native(uop.op) or (uop.op in RAW and uop.tag == "raw"), uop


@pytest.mark.parametrize("renderer", RENDERERS, ids=repr)
def test_every_cast_is_printed_or_decomposed(renderer: Renderer) -> None:
    for source in dtypes.all:
        for target in dtypes.all:
            for uop in decompose(value(source).cast(target), renderer).toposort():
                if uop.op is not Ops.CAST:
                    continue
                before, after = uop.src[0].dtype, uop.dtype
                assert {before, after} <= renderer.native_dtypes
                if before.kind == "float" and after.kind in ("int", "uint"):
                    assert uop.tag == "raw"


def test_a_renderer_with_everything_gets_nothing_decomposed() -> None:
    renderer = PythonRenderer()
    for op in GroupOp.ALU:
        for dtype in COMPUTED:
            if takes(op, dtype):
                before = node(op, dtype)
                assert decompose(before, renderer) is before
    cast = value(dtypes.float32).cast(dtypes.bfloat16)
    assert decompose(cast, renderer) is cast


def test_decomposing_again_changes_nothing() -> None:
    renderer = RENDERERS[0]
    x = value(dtypes.float32)
    once = decompose(x.alu(Ops.POW, x.alu(Ops.SIN)).cast(dtypes.int32), renderer)
    assert decompose(once, renderer) is once
