"""`weft export`: models by file and by function, inputs by name, mistakes in one line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from test.optional import need
from weft import dtypes
from weft.commands.export import example, parse_input
from weft.commands.main import main
from weft.errors import ArgumentError

MODULE = """
from weft import Tensor, nn

layer = nn.Linear(4, 3)


def scores(x):
    return layer(x).softmax()


def inputs():
    return (Tensor.zeros(2, 4),)
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A module with a function, in the working folder."""
    path = tmp_path / "small_model.py"
    path.write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return path


def test_a_function_with_inputs_of_its_module(module: Path, capsys: Any) -> None:
    assert main(["export", "small_model.py:scores", "--to", "c"]) == 0
    assert "scores.c" in capsys.readouterr().out
    assert "const float *x, float *output" in Path("scores.h").read_text()


def test_a_size_that_is_free(module: Path) -> None:
    words = ["--to", "wasm", "--input", "x=float32[n:1:8,4]", "-o", "many.wasm"]
    assert main(["export", "small_model.py:scores", *words]) == 0
    assert "n: number; // 1 to 8" in Path("many.d.ts").read_text()


def test_a_page(module: Path) -> None:
    assert main(["export", "small_model.py:scores", "--to", "web", "--title", "Scores"]) == 0
    assert "<title>Scores</title>" in Path("scores.html").read_text()


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["nothing.onnx"], "nothing.onnx"),
        (["small_model.py:nobody"], "has no function nobody"),
        (["small_model.txt"], "module.py:function"),
        (["small_model.py:scores", "--input", "x=float32(3)"], "an input is NAME=DTYPE"),
        (["small_model.py:scores", "--input", "x=float32[a]"], "a size is a number"),
        (["small_model.py:scores", "--threads", "0"], "threads is a number"),
    ],
)
def test_mistakes_are_one_line(words: list[str], says: str, module: Path, capsys: Any) -> None:
    assert main(["export", *words, "--to", "c"]) == 2
    said = capsys.readouterr().err
    assert says in said and len(said.splitlines()) == 1


def test_inputs_are_parsed() -> None:
    assert parse_input("float32[2,3]") == (None, "float32", [2, 3])
    assert parse_input("in.put=[1]") == ("in.put", None, [1])
    with pytest.raises(ArgumentError):
        parse_input("x")
    assert example("int32", [2, 2]).dtype is dtypes.int32


def test_an_onnx_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    onnx = need("onnx")
    helper = onnx.helper
    kind = onnx.TensorProto.FLOAT
    weight = helper.make_tensor("w", kind, [4, 2], [float(i) for i in range(8)])
    nodes = [
        helper.make_node("MatMul", ["in.put", "w"], ["m"]),
        helper.make_node("Relu", ["m"], ["out"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("in.put", kind, ["N", 4])],
        [helper.make_tensor_value_info("out", kind, ["N", 2])],
        [weight],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset), tmp_path / "small.onnx")
    monkeypatch.chdir(tmp_path)
    assert main(["export", "small.onnx", "--to", "c"]) == 2
    assert "--input in.put=[...]" in capsys.readouterr().err
    assert main(["export", "small.onnx", "--to", "c", "--input", "in.put=[3,4]"]) == 0
    assert "in_put[3][4]" in Path("small.h").read_text()
