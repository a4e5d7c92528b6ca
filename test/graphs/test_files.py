"""Files from strangers: what is read, what is refused, and what an error says."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.graphs import models
from test.graphs.models import FLOAT, INT64, Graph, external, model, node, number, tensor, text
from weft import dtypes
from weft.errors import DataError, DTypeError, MissingKeyError, ShapeError, UnsupportedError
from weft.nn.onnx import Domain, OnnxDataType, OnnxPBParser, OnnxRunner, OpSetId, onnx_ops

VALUES = np.arange(6, dtype=np.float32).reshape(2, 3)


def with_external(entries: dict[str, str], shape: tuple[int, ...] = (2, 3)) -> bytes:
    """A model that gives back a constant from another file."""
    return model(
        Graph(
            [],
            [("y", FLOAT, list(shape))],
            [node("Identity", ["w"], ["y"])],
            [external("w", shape, entries)],
        )
    )


def load(folder: Path, entries: dict[str, str], **settings: Any) -> Any:
    path = folder / "model.onnx"
    path.write_bytes(with_external(entries))
    return OnnxRunner(path, **settings)({})["y"]


# ------------------------------------------------------------ data beside the model
def test_data_beside_the_model(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "w.bin").write_bytes(b"head" + VALUES.tobytes())
    found = load(tmp_path, {"location": "inner/w.bin", "offset": "4", "length": "24"})
    assert (found.numpy() == VALUES).all()


@pytest.mark.parametrize("location", ["../w.bin", "/etc/passwd", "", "inner/../../w.bin", "a\0b"])
def test_data_outside_of_the_folder_is_refused(tmp_path: Path, location: str) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    with pytest.raises(DataError, match="lies in"):
        load(folder, {"location": location})


def test_a_link_does_not_lead_outside(tmp_path: Path) -> None:
    folder = tmp_path / "models"
    folder.mkdir()
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    (folder / "w.bin").symlink_to(tmp_path / "w.bin")
    with pytest.raises(DataError, match="outside of"):
        load(folder, {"location": "w.bin"})
    (folder / "away").symlink_to(tmp_path)
    with pytest.raises(DataError, match="outside of"):
        load(folder, {"location": "away/w.bin"})
    assert (load(folder, {"location": "w.bin"}, data_root=tmp_path).numpy() == VALUES).all()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for location in ("pipe", "."):
        with pytest.raises(DataError, match="no file"):
            load(tmp_path, {"location": location})
    with pytest.raises(DataError, match="lies in"):
        load(tmp_path, {"location": "absent"})


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "1"},
        {"offset": "-4"},
        {"offset": "99999999999999999999"},
        {"length": "20"},
        {"length": "x"},
    ],
)
def test_ranges_that_are_not_there_are_refused(tmp_path: Path, entries: dict[str, str]) -> None:
    (tmp_path / "w.bin").write_bytes(VALUES.tobytes())
    with pytest.raises(DataError):
        load(tmp_path, {"location": "w.bin", **entries})


def test_bytes_have_no_folder() -> None:
    with pytest.raises(DataError, match="give the model as a path"):
        OnnxRunner(with_external({"location": "w.bin"}))


def test_large_weights_stay_on_disk(tmp_path: Path) -> None:
    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    data = model(
        Graph(
            [("x", FLOAT, [1, 64])],
            [("y", FLOAT, [1, 64])],
            [node("MatMul", ["x", "w"], ["y"])],
            [tensor("w", weights)],
        )
    )
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    runner = OnnxRunner(path)
    stored = runner.graph.constants["w"]
    assert stored.inline is None and str(stored.stored.device).startswith("DISK")
    x = np.ones((1, 64), dtype=np.float32)
    np.testing.assert_allclose(runner({"x": x})["y"].numpy(), x @ weights, rtol=1e-4, atol=1e-5)


# ------------------------------------------------------------ sizes that lie
def test_a_tensor_has_the_bytes_that_it_claims() -> None:
    huge = number(1, 1 << 40) + number(2, FLOAT) + text(8, "w") + text(9, b"1234")
    graph = Graph([], [("w", FLOAT, None)], [], [huge])
    with pytest.raises(DataError, match="takes 4398046511104 bytes, found 4"):
        OnnxRunner(model(graph))
    many = b"".join(number(1, 1 << 31) for _ in range(4)) + number(2, FLOAT) + text(8, "w")
    with pytest.raises(DataError, match="more elements than exist"):
        OnnxRunner(model(Graph([], [("w", FLOAT, None)], [], [many])))


def test_graphs_inside_of_graphs_have_an_end() -> None:
    inner = Graph([], [("y", FLOAT, None)], [node("Constant", [], ["y"], value_int=1)])
    for _ in range(300):
        inner = Graph([], [("y", FLOAT, None)], [node("If", ["c"], ["y"], then_branch=inner)], [])
    with pytest.raises(DataError, match="nested|inside of each other"):
        OnnxRunner(model(inner))


def test_functions_that_double_are_refused() -> None:
    functions = b""
    for level in range(60):
        inner = f"f{level + 1}"
        body = text(7, node(inner, ["a"], ["b"], "own")) + text(7, node(inner, ["b"], ["c"], "own"))
        head = text(1, f"f{level}") + text(4, "a") + text(5, "c") + text(10, "own")
        functions += text(25, head + body + text(9, text(1, "own") + number(2, 1)))
    graph = Graph([("x", FLOAT, [1])], [("y", FLOAT, None)], [node("f0", ["x"], ["y"], "own")])
    with pytest.raises(DataError, match="written out"):
        OnnxRunner(model(graph, {"": 17, "own": 1}, functions))


def test_a_loop_that_never_ends_is_refused() -> None:
    body = Graph(
        [("i", INT64, []), ("go", 9, []), ("s", FLOAT, [])],
        [("go2", 9, []), ("s2", FLOAT, [])],
        [node("Identity", ["go"], ["go2"]), node("Identity", ["s"], ["s2"])],
    )
    graph = Graph(
        [("x", FLOAT, [])], [("y", FLOAT, None)], [node("Loop", ["", "", "x"], ["y"], body=body)]
    )
    with pytest.raises(DataError, match="max_turns"):
        OnnxRunner(model(graph), max_turns=200)({"x": np.float32(1)})


def test_patterns_cannot_take_exponential_time() -> None:
    graph = Graph(
        [("x", 8, [1])],
        [("y", 9, None)],
        [node("RegexFullMatch", ["x"], ["y"], pattern="(a+)+b")],
    )
    with pytest.raises(DataError, match="repeats repeats"):
        OnnxRunner(model(graph, {"": 20}))({"x": np.array(["a" * 40], dtype=object)})


# ------------------------------------------------------------ errors
def test_an_error_names_the_node_and_what_it_was_given() -> None:
    graph = Graph(
        [("x", FLOAT, [2, 3]), ("y", FLOAT, [4, 5])],
        [("z", FLOAT, None)],
        [node("MatMul", ["x", "y"], ["z"])],
    )
    with pytest.raises(ShapeError, match=r"node 0 \(MatMul\), opset 17, with inputs 'x' = float32"):
        OnnxRunner(model(graph))({"x": np.ones((2, 3), "f"), "y": np.ones((4, 5), "f")})


@pytest.mark.parametrize(
    "made, said",
    [
        (node("Relux", ["x"], ["y"]), "the operator Relux of ai.onnx has no lowering"),
        (node("Relu", ["x"], ["y"], "elsewhere"), "the domain 'elsewhere'"),
        (node("Gelu", ["x"], ["y"]), "Gelu of ai.onnx exists from version 20 on, found 17"),
        (node("Relu", ["x"], ["y"], tempo=3), "has the attribute 'tempo'; known are"),
        (node("Relu", ["x", "x"], ["y"]), "takes 1 to 1 inputs, found 2"),
        (node("Cast", ["x"], ["y"]), "lacks the attribute 'to'"),
        (node("Cast", ["x"], ["y"], to=77), "77 is no element type"),
        (node("Split", ["x"], ["y"], axis=9), "axis 9 of a tensor with 1 axes"),
    ],
)
def test_a_wrong_node_is_explained(made: bytes, said: str) -> None:
    graph = Graph([("x", FLOAT, [2])], [("y", FLOAT, None)], [made])
    with pytest.raises((DataError, UnsupportedError)) as caught:
        OnnxRunner(model(graph))({"x": np.ones(2, "f")})
    assert said in str(caught.value)


def test_a_value_that_nothing_gives() -> None:
    graph = Graph([], [("y", FLOAT, None)], [node("Relu", ["x"], ["y"])])
    with pytest.raises(DataError, match="takes 'x', which no input"):
        OnnxRunner(model(graph))


def test_wrong_inputs_are_explained() -> None:
    runner = OnnxRunner(models.affine())
    with pytest.raises(MissingKeyError, match=r"'x' \(float\[rows, 3\]\) is missing"):
        runner({})
    with pytest.raises(MissingKeyError, match="no input 'z'"):
        runner({"z": np.ones((1, 3), "f")})
    with pytest.raises(DTypeError, match="float64, but the model takes float32"):
        runner({"x": np.ones((1, 3))})
    with pytest.raises(ShapeError, match="size 4 on axis 1, but the model takes 3"):
        runner({"x": np.ones((1, 4), "f")})


# ------------------------------------------------------------ names of other programs
def test_the_parser_gives_the_fields_of_the_format() -> None:
    parsed = OnnxPBParser(models.affine()).parse()
    assert parsed["ir_version"] == 8
    assert [one["op_type"] for one in parsed["graph"]["node"]] == ["MatMul", "Add"]
    assert parsed["opset_import"] == [{"domain": "", "version": 17}]


def test_names() -> None:
    assert OnnxDataType.BFLOAT16.to_dtype() is dtypes.bfloat16
    assert OnnxDataType(1) is OnnxDataType.FLOAT
    assert Domain.from_onnx(None) is Domain.ONNX
    assert OpSetId(Domain.ONNX, 13) in onnx_ops["Softmax"]
    described = OnnxRunner(models.affine()).graph_inputs["x"]
    assert described.shape == ("rows", 3) and described.dtype is dtypes.float32
    assert not described.is_optional and not described.is_sequence
