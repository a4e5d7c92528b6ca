"""Passes: each is a value with a name, seen by watchers and verified under SPEC=2."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from weft import Context
from weft.dtype import dtypes
from weft.errors import SpecError
from weft.uop import passes
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.passes import Pass, watching
from weft.uop.spec import tensor_spec

ONE = UOp.const(dtypes.int32, 1)


def test_a_watcher_sees_what_goes_in_and_what_comes_out() -> None:
    seen: list[tuple[str, UOp, UOp]] = []

    @contextlib.contextmanager
    def watcher(name: str, why: str, before: UOp) -> Iterator[SimpleNamespace]:
        stage = SimpleNamespace(after=None)
        yield stage
        seen.append((name, before, stage.after))

    double = Pass("double", lambda graph, context: graph * context, "for the test")
    with watching(watcher):
        result = double(ONE, 2)
    assert seen == [("double", ONE, result)] and not passes.watchers
    assert double(ONE, 2) is result and len(seen) == 1


def test_a_step_that_makes_an_illegal_graph_is_named() -> None:
    # an addition of one source
    broken = UOp(Ops.ADD, dtypes.int32, (ONE,))
    step = Pass("break", lambda graph, context: UOp.sink(broken), "for the test", tensor_spec)
    with Context(SPEC=2), pytest.raises(SpecError, match="break"):
        step(UOp.sink(ONE), None)
