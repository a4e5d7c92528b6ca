"""`weft run`: describes a model, runs it on arrays, and refuses what is wrong in one line."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from test.graphs.models import affine
from weft.commands.main import main


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "affine.onnx"
    path.write_bytes(affine())
    return path


def test_without_inputs_it_says_what_the_model_takes(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", str(model)]) == 0
    said = capsys.readouterr().out
    assert "2 nodes, ai.onnx 17" in said
    assert "input  x: float[rows, 3]" in said and "output  y: float[rows, 2]" in said


def test_outputs_are_written(model: Path, tmp_path: Path) -> None:
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "x.npy", x)
    given, wanted = f"x={tmp_path / 'x.npy'}", f"y={tmp_path / 'y.npy'}"
    assert main(["run", str(model), "--input", given, "--output", wanted]) == 0
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), x @ np.ones((3, 2)) + [1, 2])


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--input", "x"], "NAME=FILE.npy is wanted"),
        (["--input", "x=absent.npy"], "there is no file absent.npy"),
        (["--output", "z=z.npy"], "the model has no such output; it has y"),
    ],
)
def test_a_mistake_is_one_line(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    assert main(["run", str(model), *arguments]) == 2
    assert said in capsys.readouterr().err


def test_a_file_that_is_no_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "x.onnx"
    path.write_bytes(b"not a model at all")
    assert main(["run", str(path)]) == 2
    assert "weft run: " in capsys.readouterr().err
