"""Target, Renderer and ProgramSpec."""

from __future__ import annotations

import pickle

import pytest

from weft.dtype import dtypes
from weft.errors import CompileError
from weft.machine import Target
from weft.renderer.base import (
    ProgramSpec,
    Renderer,
    program_params,
    program_variables,
)
from weft.uop.node import UOp
from weft.uop.opset import Ops


def test_targets_are_values() -> None:
    target = Target("here", cores=2, index_dtype=dtypes.int32, features=("avx2",))
    assert pickle.loads(pickle.dumps(target)) == target
    assert pickle.loads(pickle.dumps(target)).index_dtype is dtypes.int32
    assert hash(target) == hash(Target("here", 2, index_dtype=dtypes.int32, features=("avx2",)))


def test_a_bare_renderer_lacks_everything_and_says_so() -> None:
    renderer = Renderer()
    assert not renderer.is_native(Ops.ADD)
    assert dtypes.bfloat16 in renderer.supported_dtypes()
    with pytest.raises(CompileError, match="cannot print"):
        renderer.render("k", [])


def test_arguments_are_ordered() -> None:
    uops = [
        UOp.variable("b", 0, 3),
        UOp.param(2, dtypes.float32, 4),
        UOp.variable("a", 0, 3),
        UOp.param(0, dtypes.int8, 4),
    ]
    params = program_params(uops)
    assert [p.arg.slot for p in params] == [0, 2]
    assert [v.arg.name for v in program_variables(uops)] == ["a", "b"]
    assert ProgramSpec("k", "", uops, params, (0,), (2,)).buffer_count == 3
    assert ProgramSpec("k", "", [], (), (), ()).buffer_count == 0
