"""ONNX models that packages carry, beside ONNX Runtime: the same outputs, and how long they take.

usage: python -m bench.onnx FOLDER [--only NAME] [--rounds N] [--threads N]
In: a folder of wheels (`pip download --no-deps rapidocr-onnxruntime silero-vad magika ddddocr`), or
of .onnx files. Out: for each model the greatest difference to ONNX Runtime's outputs beside the
greatest output, the median times of a call of both, and their ratio (above 1: weft is faster).
Invariant: both take turns, call by call, in one process, with the same inputs and as many threads.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

# sizes of free axes by what a model's file or the axis is called
SIZES = {
    "PP-OCRv4_det": (1, 3, 320, 320),
    "PP-OCRv4_rec": (1, 3, 48, 320),
    "mobile_v2.0_cls": (1, 3, 48, 192),
    "common": (1, 1, 64, 160),
    "standard_v3_3": (1, 2048),
    "silero_vad_16k_sequence": (4, 576),
    "silero_vad": (1, 576),
}
SAMPLE_RATE = 16_000
_TYPES = {"tensor(float)": "float32", "tensor(int64)": "int64", "tensor(int32)": "int32"}


def models(folder: Path, scratch: Path) -> Iterator[tuple[str, Path]]:
    """The models of a folder by name, those in wheels unpacked."""
    for path in sorted(folder.rglob("*.onnx")):
        yield path.stem, path
    for wheel in sorted(folder.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for member in sorted(archive.namelist()):
                if not member.endswith(".onnx"):
                    continue
                target = scratch / member.replace("/", ".")
                target.write_bytes(archive.read(member))
                stem = Path(member).stem
                yield (Path(member).parent.name if stem == "model" else stem), target


def inputs_of(name: str, described: list[Any]) -> dict[str, Any]:
    """Random inputs of a model; a free axis has the size of the table, or 1."""
    generator = np.random.default_rng(0)
    known = next((sizes for part, sizes in SIZES.items() if part in name), ())
    found = {}
    for number, entry in enumerate(described):
        dtype = _TYPES[entry.type]
        if entry.name == "sr":
            found[entry.name] = np.array(SAMPLE_RATE, dtype)
            continue
        wanted = known if number == 0 and len(known) == len(entry.shape) else (1,) * 9
        sizes = [
            size if isinstance(size, int) else other
            for size, other in zip(entry.shape, wanted, strict=False)
        ]
        values = (
            generator.random(sizes) if dtype == "float32" else generator.integers(0, 255, sizes)
        )
        found[entry.name] = values.astype(dtype)
    return found


def difference(mine: list[Any], theirs: list[Any]) -> float:
    """The greatest difference, as a part of the greatest value."""
    worst = 0.0
    for one, other in zip(mine, theirs, strict=True):
        values = np.asarray(one)
        if values.shape != other.shape:
            return math.inf
        scale = float(np.abs(other).max(initial=0)) or 1.0
        apart = np.abs(values.astype(np.float64) - other.astype(np.float64))
        worst = max(worst, float(apart.max(initial=0)) / scale)
    return worst


def measured(name: str, path: Path, rounds: int, threads: int) -> dict[str, float]:
    """Both on one model, in turns."""
    import onnxruntime

    from weft.nn.onnx import OnnxRunner

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 3
    # its threads would spin in weft's turn
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    inputs = inputs_of(name, session.get_inputs())
    names = [output.name for output in session.get_outputs()]
    runner = OnnxRunner(path)
    theirs = session.run(names, inputs)
    for _ in range(3):
        outputs = runner(inputs)
    apart = difference([outputs[each].numpy() for each in names], theirs)
    times: dict[str, list[float]] = {"weft": [], "onnxruntime": []}
    for _ in range(rounds):
        started = time.perf_counter()
        outputs = runner(inputs)
        for each in names:
            outputs[each].numpy()
        times["weft"].append(time.perf_counter() - started)
        started = time.perf_counter()
        session.run(names, inputs)
        times["onnxruntime"].append(time.perf_counter() - started)
    medians = {who: statistics.median(found) for who, found in times.items()}
    return {"apart": apart, **medians, "ratio": medians["onnxruntime"] / medians["weft"]}


def main(arguments: list[str]) -> int:
    """The command."""
    parser = argparse.ArgumentParser(prog="python -m bench.onnx", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args(arguments)
    ratios = []
    print(
        "| model | greatest difference | weft ms | ONNX Runtime ms | ratio |\n|---|---|---|---|---|"
    )
    with tempfile.TemporaryDirectory() as scratch:
        for name, path in models(asked.folder, Path(scratch)):
            if asked.only not in name:
                continue
            try:
                found = measured(name, path, asked.rounds, asked.threads)
            except Exception as error:
                print(f"| {name} | {type(error).__name__}: {str(error)[:120]} | | | |", flush=True)
                continue
            ratios.append(found["ratio"])
            print(
                f"| {name} | {found['apart']:.1e} | {1e3 * found['weft']:.2f} "
                f"| {1e3 * found['onnxruntime']:.2f} | {found['ratio']:.2f} |",
                flush=True,
            )
    if ratios:
        mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
        print(f"geometric mean of {len(ratios)} models: {mean:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
