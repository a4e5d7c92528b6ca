"""Exported models beside weft itself and ONNX Runtime: the same outputs, and how long a call takes.

usage: python -m bench.export [NET ...] [--rounds N] [--small]
In: the nets of test/export/nets.py, with random weights. Out: for each net the greatest difference
to weft's outputs, the fastest call of each on one thread, and its ratio to weft's (1.3: it takes
1.3 times as long). C is built here (`gcc`, `clang`: march="native"; "any machine": 16-byte
vectors), WebAssembly runs in wasmtime and in node (there also on two threads); what is not
installed is left out.
Invariant: all take turns, call by call, in one process (node: a process of its own, at the end).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

# one thread for all, before weft looks
os.environ.setdefault("NUM_CPU_THREADS", "1")

from bench.export_onnx import onnx_session  # noqa: E402
from test.export.building import CModel  # noqa: E402
from test.export.nets import CASES, LARGE, Case  # noqa: E402
from test.export.test_write_wasm import WasmModel  # noqa: E402
from weft import TinyJit, export  # noqa: E402

NETS = {**{name: CASES[name] for name in ("digits", "lstm", "gpt")}, **LARGE}
SMALL = CASES
NODE = """
import { load } from "./model.js";
import { readFileSync } from "node:fs";
const model = await load("./model.wasm", { threads: Number(process.argv[3]) });
const given = JSON.parse(readFileSync("./given.json"));
for (const { name, dtype } of model.inputs) {
  const Kind = { float32: Float32Array, int32: Int32Array }[dtype];
  given[name] = new Kind(given[name]);
}
let best = Infinity;
for (let i = 0; i < Number(process.argv[2]); i++) {
  const started = performance.now();
  model.run(given);
  best = Math.min(best, performance.now() - started);
}
console.log(best / 1000);
model.close();
"""


class Runner:
    """One way to run a net: what a call gives, and its fastest call so far."""

    def __init__(self, name: str, call: Callable[[], list[np.ndarray]]) -> None:
        self.name, self.call, self.best = name, call, float("inf")
        self.first = call()

    def turn(self) -> None:
        """One more call."""
        started = time.perf_counter()
        self.call()
        self.best = min(self.best, time.perf_counter() - started)


def in_weft(case: Case) -> Runner:
    """The function, jitted."""
    jit = TinyJit(case.function)
    given = case.given()
    given[0].realize()

    def call() -> list[np.ndarray]:
        out = jit(*given)
        outs = out if isinstance(out, (tuple, list)) else [out]
        return [t.numpy() for t in outs]

    for _ in range(4):
        call()
    case.reset()
    found = Runner("weft", call)
    # what is exported next begins where this one did
    case.reset()
    return found


def in_c(case: Case, outputs: list[np.ndarray], folder: Path, compiler: str, flags: Any) -> Runner:
    """Built and loaded."""
    native = "-march=native" in flags
    folder = folder / f"{compiler}{len(flags)}"
    folder.mkdir()
    march = "native" if native else None
    source, _, *more = export.c(case.function, case.given(), folder / "model.c", march=march)
    model = CModel(source, [], outputs, compiler, flags, more[0] if more else None)
    arrays, sizes = case.calls[0]
    return Runner(
        f"C {compiler} {'native' if native else 'any machine'}", lambda: model.run(arrays, sizes)
    )


def in_wasmtime(case: Case, outputs: list[np.ndarray], module: bytes) -> Runner:
    """The module in wasmtime."""
    model = WasmModel(module)
    arrays, sizes = case.calls[0]
    return Runner("WASM wasmtime", lambda: model.run(arrays, sizes, outputs))


def in_node(case: Case, folder: Path, rounds: int, threads: int = 1) -> float:
    """The fastest call in node, in seconds."""
    export.wasm(case.function, case.given(), folder / "model.wasm", threads=threads)
    names = [p for p in case.function.__code__.co_varnames if p != "self"]
    arrays, sizes = case.calls[0]
    given: dict[str, Any] = dict(zip(names, [a.ravel().tolist() for a in arrays], strict=False))
    given |= {v.arg.name: n for v, n in zip(case.variables, sizes, strict=True)}
    (folder / "given.json").write_text(json.dumps(given))
    (folder / "try.mjs").write_text(NODE)
    (folder / "package.json").write_text('{"type": "module"}')
    command = ["node", "try.mjs", str(rounds), str(threads)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=600)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(done.stdout)


def measure(name: str, case: Case, rounds: int) -> None:
    """The rows of one net."""
    expected = case.expected()[0]
    with tempfile.TemporaryDirectory() as text:
        folder = Path(text)
        runners = [in_weft(case)]
        for compiler, more in (("gcc", ()), ("clang", ("-mprefer-vector-width=512",))):
            if shutil.which(compiler):
                flags = ("-O2", "-march=native", *more)
                runners.append(in_c(case, expected, folder, compiler, flags))
        runners.append(in_c(case, expected, folder, "cc", ("-O2",)))
        files = export.wasm(case.function, case.given(), folder / "model.wasm")
        try:
            runners.append(in_wasmtime(case, expected, files[0].read_bytes()))
        except BaseException as error:  # noqa: BLE001  # pytest's skip is no Exception
            print(f"  wasmtime is left out: {error}")
        session = onnx_session(name, case)
        if session is not None:
            runners.append(Runner("ONNX Runtime", session))
        for _ in range(rounds):
            for runner in runners:
                runner.turn()
        rows = [(r.name, r.best, difference(r.first, expected)) for r in runners]
        if shutil.which("node"):
            rows.append(("WASM node", in_node(case, folder, rounds), None))
            rows.append(("WASM node, 2 threads", in_node(case, folder, rounds, 2), None))
    own = rows[0][1]
    for label, best, error in rows:
        shown = "" if error is None else f"  difference {error:.1e}"
        print(f"  {label:24} {1e3 * best:10.3f} ms  {best / own:6.2f} x{shown}", flush=True)


def difference(found: list[np.ndarray], expected: list[np.ndarray]) -> float:
    """The greatest, beside the greatest output."""
    pairs = zip(found, expected, strict=True)
    return max(float(np.abs(a - b).max() / max(1e-9, np.abs(b).max())) for a, b in pairs)


def main() -> int:
    """Measure the nets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="*", help=f"of {', '.join({**NETS, **SMALL})}; all")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--small", action="store_true", help="small nets only")
    options = parser.parse_args()
    known = {**NETS, **SMALL}
    for name in options.nets or (SMALL if options.small else NETS):
        if name not in known:
            parser.error(f"{name} is none of {', '.join(known)}")
        print(name, flush=True)
        measure(name, known[name](), options.rounds)
    return 0


if __name__ == "__main__":
    sys.exit(main())
