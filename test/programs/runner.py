"""Runs a program of this folder with tinygrad or, only its import changed, with weft.

    python -m test.programs.runner gpt2              # both, and how far each result differs
    python -m test.programs.runner --record gpt2     # writes what tinygrad gives to expected/

In: the name of a program. Out: its module-level `results`, named NumPy arrays.
Invariant: nothing of the program's text changes but the first name of what it imports.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

FOLDER = Path(__file__).parent
EXPECTED = FOLDER / "expected"
PEER = "tinygrad"
# what a record keeps of each result: so many of its numbers, evenly spaced
KEPT = 24
# tinygrad compiles with clang, on one machine after the other slowly
PEER_SECONDS = 1200

Array = np.ndarray[Any, Any]


def names() -> list[str]:
    """Every program: the files that import the peer."""
    found = (path for path in FOLDER.glob("*.py") if _imports(path.read_text(encoding="utf-8")))
    return sorted(path.stem for path in found)


def _imports(source: str) -> list[ast.Import | ast.ImportFrom]:
    """The import statements of the peer."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.ImportFrom):
            modules = [node.module or ""]
        elif isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        else:
            continue
        if any(module.split(".")[0] == PEER for module in modules):
            found.append(node)
    return found


def with_import_of(source: str, library: str) -> str:
    """The program with the peer's name replaced in its import statements, and nowhere else."""
    lines = source.splitlines()
    for node in _imports(source):
        assert node.end_lineno is not None
        for number in range(node.lineno - 1, node.end_lineno):
            lines[number] = lines[number].replace(PEER, library)
    return "\n".join(lines) + "\n"


def execute(name: str, library: str) -> dict[str, Array]:
    """The results of a program with a library, in this process."""
    path = FOLDER / f"{name}.py"
    source = with_import_of(path.read_text(encoding="utf-8"), library)
    namespace: dict[str, Any] = {"__name__": "__main__", "__file__": str(path)}
    exec(compile(source, str(path), "exec"), namespace)
    return {key: np.asarray(value) for key, value in namespace["results"].items()}


def execute_peer(name: str) -> dict[str, Array]:
    """The results of a program with tinygrad, in a process of its own on its CPU device."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "results.npz"
        command = [sys.executable, "-m", "test.programs.runner", "--into", str(file), name]
        done = subprocess.run(
            command,
            cwd=FOLDER.parent.parent,
            env={**os.environ, "DEV": "CPU", "PARALLEL": "0"},
            capture_output=True,
            text=True,
            timeout=PEER_SECONDS,
        )
        if done.returncode:
            raise RuntimeError(f"{name} fails with {PEER}:\n{done.stderr[-4000:]}")
        with np.load(file) as stored:
            return dict(stored)


# ------------------------------------------------------------ what is kept of results
def summary(values: Array) -> dict[str, Any]:
    """Shape, dtype, and some of the numbers."""
    flat = values.ravel()
    places = np.unique(np.linspace(0, max(flat.size - 1, 0), KEPT).astype(int))
    kept = flat[places] if flat.size else flat
    if values.dtype.kind == "f":
        numbers: list[Any] = [float(f"{number:.9g}") for number in kept.astype(np.float64)]
    else:
        numbers = kept.tolist()
    return {"dtype": str(values.dtype), "shape": list(values.shape), "values": numbers}


def recorded(name: str) -> dict[str, dict[str, Any]]:
    """What tinygrad gave when the program was recorded."""
    text = (EXPECTED / f"{name}.json").read_text(encoding="utf-8")
    found: dict[str, dict[str, Any]] = json.loads(text)
    return found


def record(name: str, results: dict[str, Array]) -> None:
    """Write them down."""
    EXPECTED.mkdir(exist_ok=True)
    rows = [f"  {json.dumps(key)}: {json.dumps(summary(v))}" for key, v in results.items()]
    text = "{\n" + ",\n".join(rows) + "\n}\n"
    (EXPECTED / f"{name}.json").write_text(text, encoding="utf-8")


def difference(found: Array, wanted: Array) -> float:
    """The greatest one, in parts of the greatest number."""
    if found.shape != wanted.shape or not wanted.size:
        return 0.0 if found.shape == wanted.shape else float("inf")
    ours, theirs = found.astype(np.float64), wanted.astype(np.float64)
    largest = float(np.abs(theirs).max())
    return float(np.abs(ours - theirs).max()) / (largest or 1.0)


def main() -> None:
    """Both, side by side."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("programs", nargs="*", metavar="program")
    parser.add_argument("--record", action="store_true", help="write what tinygrad gives")
    parser.add_argument("--into", help="run with tinygrad and store the results in this file")
    arguments = parser.parse_args()
    chosen = arguments.programs or names()
    if arguments.into:
        np.savez(arguments.into, **execute(chosen[0], PEER))
        return
    for name in chosen:
        theirs = execute_peer(name)
        if arguments.record:
            record(name, theirs)
        ours = execute(name, "weft")
        print(name)
        for key, wanted in theirs.items():
            found = ours[key]
            same = "" if (found.dtype, found.shape) == (wanted.dtype, wanted.shape) else " DIFFERS"
            what = f"{wanted.dtype} {wanted.shape} / {found.dtype} {found.shape}{same}"
            print(f"  {key:24s} {difference(found, wanted):9.2e}  {what}")


if __name__ == "__main__":
    main()
