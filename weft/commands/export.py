"""`weft export MODEL --to c|wasm|web`: a model as files that run without weft.

What comes in: an ONNX file, or `module.py:function` with the shapes of its inputs. What goes out:
files. Where it sits: with the other commands, over `weft.export`.
The one invariant: what is written is what `weft.export` writes for the same function.
"""

from __future__ import annotations

import argparse
import importlib.util
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from weft import Tensor, Variable, dtypes, export
from weft.dtype import to_dtype
from weft.errors import ArgumentError
from weft.nn.onnx import OnnxRunner

NAME = "export"
HELP = "Write a model as C, as WebAssembly, or as a web page."
_SUFFIXES = {"c": ".c", "wasm": ".wasm", "web": ".html"}
_INPUT = re.compile(r"(?:([^=]+)=)?(\w+)?\[([^\]]*)\]")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command line of `weft export`."""
    parser.add_argument("model", help="an ONNX file, or module.py:function")
    parser.add_argument("--to", choices=tuple(_SUFFIXES), required=True, help="what to write")
    parser.add_argument("-o", "--output", help="the file; the model's name here if left out")
    parser.add_argument(
        "--input",
        action="append",
        default=[],
        metavar="NAME=DTYPE[SIZES]",
        help="what the function takes, in order, as x=float32[1,3,224,224]; a size n:1:8 may be "
        "any number from 1 to 8. Of ONNX files: the sizes that the file leaves open, as x=[4,16]",
    )
    parser.add_argument("--march", choices=("native",), help="C: vectors of this machine")
    parser.add_argument(
        "--threads", type=int, default=1, help="C, WASM: threads that share kernels"
    )
    parser.add_argument("--weights", choices=("inline", "file"), help="C: where weights are")
    parser.add_argument("--view", choices=("draw", "image", "text", "plain"), help="web: the page")
    parser.add_argument("--labels", help="web: a file with a label on each line")
    parser.add_argument("--title", help="web: the page's title")


def run(args: argparse.Namespace) -> int:
    """Write the files and name them."""
    given = [parse_input(text) for text in args.input]
    function, inputs, stem = load_model(args.model, given)
    path = Path(args.output or f"{stem}{_SUFFIXES[args.to]}")
    options: dict[str, Any] = {}
    if args.to == "c":
        options = {"march": args.march, "threads": args.threads, "weights": args.weights}
        written = export.c(function, inputs, path, **options)
    elif args.to == "wasm":
        written = export.wasm(function, inputs, path, threads=args.threads)
    else:
        labels = Path(args.labels).read_text().splitlines() if args.labels else None
        written = export.web(
            function, inputs, path, view=args.view, labels=labels, title=args.title
        )
    for file in written:
        print(f"{file}  {file.stat().st_size:,} bytes")
    return 0


# ------------------------------------------------------------ inputs
def parse_input(text: str) -> tuple[str | None, str | None, list[Any]]:
    """Name, dtype and sizes: `x=float32[n:1:8,16]`; a size is a number or a Variable.

    >>> parse_input("x=float32[2,3]")
    ('x', 'float32', [2, 3])
    """
    found = _INPUT.fullmatch(text.replace(" ", ""))
    if found is None:
        raise ArgumentError(f"an input is NAME=DTYPE[SIZES], as x=float32[1,8], found {text!r}")
    sizes: list[Any] = []
    for part in filter(None, found[3].split(",")):
        pieces = part.split(":")
        try:
            if len(pieces) == 1:
                sizes.append(int(part))
                continue
            name, low, high = pieces
            sizes.append(Variable(name, int(low), int(high)))
        except ValueError as error:
            raise ArgumentError(
                f"a size is a number, or NAME:LEAST:MOST, found {part!r} in {text!r}"
            ) from error
    return found[1], found[2], sizes


def example(dtype: Any, sizes: list[Any]) -> Any:
    """A tensor of these sizes to call a function with; a Variable alone where there are none."""
    bound: dict[str, Any] = {}
    shape, largest = [], []
    for size in sizes:
        if isinstance(size, int):
            shape.append(size)
            largest.append(size)
        else:
            value = bound.setdefault(size.arg.name, size.bind(size.arg.hi))
            shape.append(value)
            largest.append(size.arg.hi)
    data = Tensor(np.zeros(largest, dtype=bool)).cast(to_dtype(dtype or dtypes.float32))
    if not bound:
        return data
    return data.contiguous().realize().shrink(tuple((0, size) for size in shape))


# ------------------------------------------------------------ models
def load_model(
    text: str, given: list[tuple[str | None, str | None, list[Any]]]
) -> tuple[Callable[..., Any], Any, str]:
    """A function, inputs to call it with, and a name."""
    file, colon, name = text.rpartition(":")
    if colon and file.endswith(".py"):
        return _from_module(Path(file), name, given)
    path = Path(text)
    if path.suffix != ".onnx":
        raise ArgumentError(f"a model is a file .onnx, or module.py:function, found {text}")
    return _from_onnx(path, given)


def _from_module(
    path: Path, name: str, given: list[tuple[str | None, str | None, list[Any]]]
) -> tuple[Callable[..., Any], Any, str]:
    if not path.is_file():
        raise ArgumentError(f"the file {path} is not there")
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    sys.path.insert(0, str(path.parent.resolve()))
    spec.loader.exec_module(module)
    function: Any = module
    for part in name.split("."):
        function = getattr(function, part, None)
    if not callable(function):
        raise ArgumentError(f"{path} has no function {name}")
    inputs: Any = [example(dtype, sizes) for _, dtype, sizes in given]
    if not inputs:
        # the module may say itself what its function takes
        inputs = getattr(module, "inputs", None)
        inputs = inputs() if callable(inputs) else inputs
    if inputs is None:
        raise ArgumentError(
            f"say what {name} takes: --input x=float32[1,8], or `inputs`, a tuple of Tensors, in "
            f"{path.name}"
        )
    return function, inputs, name.rpartition(".")[2]


def _from_onnx(
    path: Path, given: list[tuple[str | None, str | None, list[Any]]]
) -> tuple[Callable[..., Any], Any, str]:
    model = OnnxRunner(path)
    asked = {name: (dtype, sizes) for name, dtype, sizes in given}
    for name in asked:
        if name not in model.graph_inputs:
            raise ArgumentError(
                f"the model takes {', '.join(model.graph_inputs)}, found --input {name}"
            )
    inputs: dict[str, Any] = {}
    for name, value in model.graph_inputs.items():
        dtype, sizes = asked.get(name, (None, list(getattr(value, "shape", ()) or ())))
        if not all(isinstance(size, int) and size > 0 for size in sizes if name not in asked):
            raise ArgumentError(
                f"the input {name} has the shape {tuple(sizes)}, with sizes that the file leaves "
                f"open; give them: --input {name}=[...]"
            )
        inputs[name] = example(dtype or value.dtype, sizes)

    def function(**inputs: Tensor) -> dict[str, Any]:
        return model(inputs)

    return function, inputs, path.stem
