"""The backend tests that come with the `onnx` package: a model, inputs and outputs each.

`python -m test.graphs.node_tests` runs all of them and prints how many pass, and the table of the
others for docs/onnx.md; `--kind simple` and the like run its other collections.
"""

from __future__ import annotations

import argparse
import functools
import re
from pathlib import Path
from typing import Any

import numpy as np

from test.optional import found, need
from weft import Tensor
from weft.dtype import from_numpy_dtype
from weft.nn.onnx import OnnxRunner

# what NumPy's extensions hold and weft gives in a wider type, and how all are compared
HELD = {
    "int4": "int8",
    "uint4": "uint8",
    "int2": "int8",
    "uint2": "uint8",
    "float4_e2m1fn": "float32",
    "float8_e8m0fnu": "float32",
}
NO_NUMPY = re.compile("bfloat16|float8_.*")

_RANDOM = "the expected numbers are those of one unseeded run of NumPy's generator"
_WRAPS = "the expected values wrap around where the operator is defined to saturate"
_ZERO = "the expected value of 0 / 0 is nan; later versions of onnx expect 0, as weft gives"
_NOISE = "the expected imaginary parts are rounding errors of 2e-7; weft's are below 1e-14"
# Every test that does not pass, and why. None is left out.
REASONS = {
    **{
        f"test_bernoulli{name}": _RANDOM
        for name in ("", "_expanded", "_double", "_double_expanded", "_seed", "_seed_expanded")
    },
    **{
        f"test_qlinearmatmul_{name}": _WRAPS
        for name in ("2D_int8_float16", "2D_int8_float32", "3D_int8_float16", "3D_int8_float32")
    },
    "test_dft_inverse": _NOISE,
    "test_l2normalization_axis_0": _ZERO,
    "test_dft_inverse_opset19": _NOISE,
    "test_adam_multiple": "computed with epsilon 0.01, which the node does not have",
}


@functools.cache
def cases(kind: str = "node") -> dict[str, Any]:
    """The tests of a kind by name; none where `onnx` is not installed."""
    loader = found("onnx.backend.test.loader")
    return {} if loader is None else {one.name: one for one in loader.load_model_tests(kind=kind)}


def _decode(stored: Any, described: Any) -> Any:
    """A value of a test as NumPy has it: the package gives bytes, messages or arrays."""
    onnx, helper = need("onnx"), need("onnx.numpy_helper")
    convert = {
        onnx.SequenceProto: helper.to_list,
        onnx.OptionalProto: helper.to_optional,
        onnx.TensorProto: helper.to_array,
    }
    if isinstance(stored, bytes):
        kind = described.type.WhichOneof("value")
        kinds = {"sequence_type": onnx.SequenceProto, "optional_type": onnx.OptionalProto}
        message = kinds.get(kind, onnx.TensorProto)()
        message.ParseFromString(stored)
        stored = message
    return convert[type(stored)](stored) if type(stored) in convert else stored


def _parts(case: Any) -> tuple[Any, Any, list[tuple[list[Any], list[Any]]]]:
    """The model as a message, what OnnxRunner takes, and the values of each set of data."""
    if case.model_dir is None:
        sets = [(list(inputs), list(outputs)) for inputs, outputs in case.data_sets]
        return case.model, case.model.SerializeToString(), sets
    folder = Path(case.model_dir)
    sets = []
    for data in sorted(folder.glob("test_data_set_*")):
        inputs, outputs = (
            [data / f"{kind}_{i}.pb" for i in range(len(list(data.glob(f"{kind}_*.pb"))))]
            for kind in ("input", "output")
        )
        sets.append(([p.read_bytes() for p in inputs], [p.read_bytes() for p in outputs]))
    path = folder / "model.onnx"
    return need("onnx").load(path), path, sets


def run_case(case: Any, runs: int = 1) -> None:
    """Runs one test as often as asked; fails where the outputs are not the expected ones."""
    model, data, sets = _parts(case)
    runner = OnnxRunner(data)
    constants = {one.name for one in model.graph.initializer}
    for stored_inputs, stored_outputs in sets:
        described = list(model.graph.input)
        if len(stored_inputs) < len(described):
            # old models name their constants among the inputs, and give no values for them
            described = [one for one in described if one.name not in constants]
        inputs = {
            one.name: _decode(value, one)
            for value, one in zip(stored_inputs, described, strict=False)
        }
        for _ in range(runs):
            results = runner(inputs)
            assert list(results) == [one.name for one in model.graph.output]
            for value, one in zip(stored_outputs, model.graph.output, strict=True):
                compare(results[one.name], _decode(value, one), case.rtol, case.atol)


def compare(got: Any, want: Any, rtol: float, atol: float) -> None:
    """Structure, types, shapes and values."""
    if want is None:
        assert got is None
        return
    if isinstance(want, list):
        assert isinstance(got, list) and len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            compare(one, other, rtol, atol)
        return
    array = np.asarray(want)
    if array.dtype == object or array.dtype.kind in "US":
        assert got.dtype == object and got.shape == array.shape
        assert got.reshape(-1).tolist() == [str(text) for text in array.reshape(-1)]
        return
    name = array.dtype.name
    held = np.dtype(HELD[name]) if name in HELD else array.dtype
    assert isinstance(got, Tensor) and got.dtype is from_numpy_dtype(held)
    assert got.shape == array.shape
    wide = array.astype("float32" if NO_NUMPY.fullmatch(name) else held)
    np.testing.assert_allclose(got.numpy(), wide, rtol=rtol, atol=atol)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kind", default="node")
    parser.add_argument("--runs", type=int, default=1, help="calls of each model")
    parser.add_argument("--only", default="", help="tests whose names contain this")
    options = parser.parse_args()
    chosen = {n: c for n, c in cases(options.kind).items() if options.only in n}
    failed = {}
    for name, case in sorted(chosen.items()):
        try:
            run_case(case, options.runs)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {error}"
    passed = len(chosen) - len(failed)
    print(f"onnx {need('onnx').__version__}, {options.kind}: {passed} of {len(chosen)} pass")
    for name, error in failed.items():
        text = " ".join(error.split())
        print(f"| `{name}` | {REASONS.get(name, 'NEW: ' + text[:300])} |")


if __name__ == "__main__":
    main()
