"""Graphs survive being written down, and a failing rewrite says where it left its graph."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from test.codegen.opt.kernels import KERNELS
from weft import Tensor
from weft.codegen.opt import Opt, OptOps
from weft.codegen.opt.actions import apply_opt
from weft.dtype import dtypes
from weft.errors import DataError, RewriteError, ShapeError
from weft.knobs import Context
from weft.uop.matcher import PatternMatcher
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.pattern import UPat
from weft.uop.reproduce import graph_rows, load_graph, parse_rows, save_graph
from weft.uop.rewrite import graph_rewrite


@pytest.mark.parametrize("make", KERNELS, ids=lambda make: make.__name__)
def test_kernels_come_back_as_the_same_object(make: object) -> None:
    ast, _ = make(random.Random(0), 5)  # type: ignore[operator]
    assert parse_rows(graph_rows(ast)) is ast


def test_tensor_graphs_and_odd_constants() -> None:
    x = Tensor.arange(6).reshape(2, 3).contiguous().realize()
    graph = ((x * 2).permute(1, 0).sum(0) + 0.5).uop.sink()
    assert parse_rows(graph_rows(graph)) is graph
    for value in (float("inf"), float("nan"), -0.0, 1e-45, 0.1):
        number = UOp.const(dtypes.float32, value)
        assert parse_rows(graph_rows(number)) is number
    vector = UOp.const(dtypes.int32.vec(4), 3)
    assert parse_rows(graph_rows(vector)) is vector


def test_what_has_no_form_becomes_text() -> None:
    ast, _ = KERNELS[0](random.Random(0), 5)
    ast = apply_opt(ast, Opt(OptOps.SPLIT, (0,), 1))
    assert parse_rows(graph_rows(ast)).src == ast.src


def test_broken_text_is_refused() -> None:
    with pytest.raises(DataError, match="node 0 of a saved graph"):
        parse_rows("import os")
    with pytest.raises(DataError, match="found none"):
        parse_rows("# only a comment\n")


def fail_on_product(node: UOp) -> UOp:
    raise ZeroDivisionError("on purpose")


def refuse_product(node: UOp) -> UOp:
    raise ShapeError("on purpose")


def failing(rule: object) -> PatternMatcher:
    return PatternMatcher([(UPat(Ops.MUL, name="node"), rule)])  # type: ignore[list-item]


def saved_by(error: BaseException) -> UOp:
    (note,) = [note for note in error.__notes__ if "saved" in note]
    found = re.search(r"saved in (\S+\.graph);", note)
    assert found is not None
    return load_graph(found[1])


def test_a_rule_that_raises_names_itself_and_the_file() -> None:
    graph = (UOp.range(4, 0) * 3 + 1).sink()
    with pytest.raises(RewriteError, match="rule fail_on_product .* applied to") as caught:
        graph_rewrite(graph, failing(fail_on_product), name="test pass")
    assert saved_by(caught.value) is graph


def test_errors_of_weft_keep_their_kind() -> None:
    graph = (UOp.range(4, 0) * 3).sink()
    with pytest.raises(ShapeError, match="on purpose") as caught:
        graph_rewrite(graph, failing(refuse_product), name="test pass")
    assert any("rule refuse_product" in note for note in caught.value.__notes__)
    assert saved_by(caught.value) is graph


def test_endless_rewrites_are_saved_too() -> None:
    turn = PatternMatcher(
        [(UPat(Ops.ADD, name="node"), lambda node: node.with_src(node.src[::-1]))]
    )
    graph = (UOp.variable("a", 0, 3) + UOp.variable("b", 0, 3)).sink()
    with pytest.raises(RewriteError, match="does not come to rest") as caught:
        graph_rewrite(graph, turn)
    assert saved_by(caught.value) is graph


def test_the_innermost_rewrite_saves_its_graph() -> None:
    inner = (UOp.range(4, 0) * 3).sink()

    def rewrite_inside(node: UOp) -> UOp:
        return graph_rewrite(inner, failing(fail_on_product))

    outer = (UOp.range(5, 1) * 7).sink()
    with pytest.raises(RewriteError) as caught:
        graph_rewrite(outer, failing(rewrite_inside))
    assert saved_by(caught.value) is inner


def test_a_folder_that_cannot_be_written_is_no_second_error(tmp_path: Path) -> None:
    # nobody makes a folder below a file, not even who may write everywhere
    (tmp_path / "file").write_text("")
    with Context(WEFT_CACHE=str(tmp_path / "file" / "nowhere")):
        assert save_graph(UOp.const(dtypes.int32, 1), "title") is None
