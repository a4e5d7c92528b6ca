"""`weft run MODEL.onnx`: what a model takes and gives, or its outputs for given inputs.

What comes in: an ONNX file, and inputs as files of NumPy. What goes out: text, and outputs as
files of NumPy. Where it sits: with the other commands. The one invariant: nothing in the files is
executed, neither in the model nor in the arrays.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy

from weft.errors import ArgumentError, DataError, MissingFileError
from weft.graphs.arrays import describe
from weft.nn.onnx import OnnxRunner, OnnxValue
from weft.tensor import Tensor

NAME = "run"
HELP = "Run an ONNX model, or say what it takes and gives."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `weft run`."""
    parser.add_argument("model", help="an ONNX file")
    parser.add_argument(
        "--input", action="append", default=[], metavar="NAME=FILE.npy", help="an input"
    )
    parser.add_argument(
        "--output", action="append", default=[], metavar="NAME=FILE.npy", help="where to write one"
    )


def run(args: argparse.Namespace) -> int:
    """Describe the model, or run it."""
    runner = OnnxRunner(args.model)
    inputs = {name: _load(path) for name, path in _pairs("--input", args.input).items()}
    outputs = _pairs("--output", args.output)
    for name in outputs:
        if name not in runner.graph_outputs:
            known = ", ".join(runner.graph_outputs)
            raise ArgumentError(f"--output {name}: the model has no such output; it has {known}")
    if not inputs and any(not value.is_optional for value in runner.graph_inputs.values()):
        _describe(runner)
        return 0
    for name, value in runner(inputs).items():
        print(f"{name}: {describe(value)}")
        if name in outputs:
            _save(outputs[name], name, value)
    return 0


def _describe(runner: OnnxRunner) -> None:
    versions = ", ".join(f"{d or 'ai.onnx'} {v}" for d, v in runner.opsets.items())
    made = f", made by {runner.producer}" if runner.producer else ""
    print(f"{len(runner.graph.nodes)} nodes, {versions}{made}")
    for kind, values in (("input", runner.graph_inputs), ("output", runner.graph_outputs)):
        for name, value in values.items():
            print(f"{kind}  {name}: {_text(value)}")


def _text(value: OnnxValue) -> str:
    shape = "?" if value.shape is None else ", ".join(str(size or "?") for size in value.shape)
    kind = f"{value.onnx_type.name.lower()}[{shape}]"
    kind = f"sequence of {kind}" if value.is_sequence else kind
    return f"optional {kind}" if value.is_optional else kind


def _pairs(option: str, texts: list[str]) -> dict[str, Path]:
    found = {}
    for text in texts:
        name, equals, path = text.partition("=")
        if not name or not equals or not path:
            raise ArgumentError(f"{option} {text}: NAME=FILE.npy is wanted")
        found[name] = Path(path)
    return found


def _load(path: Path) -> Any:
    try:
        array = numpy.load(path, allow_pickle=False)
    except FileNotFoundError as error:
        raise MissingFileError(f"there is no file {path}") from error
    except (OSError, ValueError, EOFError) as error:
        raise DataError(f"{path} is no array of NumPy: {error}") from error
    if not isinstance(array, numpy.ndarray):
        raise DataError(f"{path} holds several arrays; give each in a file of its own")
    return array


def _save(path: Path, name: str, value: Any) -> None:
    if not isinstance(value, Tensor):
        raise DataError(f"the output {name} is {describe(value)}; only tensors are written")
    try:
        with path.open("wb") as file:
            numpy.save(file, value.numpy(), allow_pickle=False)
    except OSError as error:
        raise ArgumentError(f"cannot write {path}: {error.strerror or error}") from error
