"""All nets through all writers: `python -m test.export.whole [NET ...] [--large]`.

In: the nets of nets.py. Out: a line for each net and each way to run it, with the greatest
difference to weft's outputs; exit code 1 where one is beyond the tolerance of test_write_c.py.
C with gcc, clang and tcc, with vectors of any machine and of this machine, with threads, and under
the sanitizers; WebAssembly in wasmtime and node (with threads too), and in chromium as a page,
which also runs on WebGPU. What is not installed is left out, and said. `--large` adds ResNet-18
and MobileNet as they are.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from test.export.building import CModel
from test.export.nets import CASES, LARGE, Case
from test.export.pages import open_page
from test.export.test_examples import SHORT, run_short
from test.export.test_write_c import SANITIZE, TOLERANCE, run_program
from test.export.test_write_wasm import WasmModel
from weft import export

Outputs = list[list[np.ndarray]]
# float32 in another order and with other roundings, and what WGSL allows exp and division
GPU_TOLERANCE = 1e-3


def in_c(
    case: Case, expected: Outputs, folder: Path, compiler: str, flags: Any, **options: Any
) -> Outputs:
    """What C gives, call after call."""
    source, _, *more = export.c(case.function, case.given(), folder / "model.c", **options)
    model = CModel(source, [], expected[0], compiler, flags, more[0] if more else None)
    assert model.code == 0
    found = [model.run(*call) for call in case.calls]
    model.close()
    return found


def sanitized(case: Case, expected: Outputs, folder: Path) -> Outputs:
    """The first call, as a program under the sanitizers."""
    source, _, *more = export.c(case.function, case.given(), folder / "model.c")
    program = folder / "program"
    command = ["cc", "-std=c11", *SANITIZE, str(source), "-o", str(program), "-lm"]
    subprocess.run(command, check=True, timeout=1200)
    arrays, sizes = case.calls[0]
    words = [str(path) for path in more]
    for number, array in enumerate(arrays):
        path = folder / f"{number}.bin"
        path.write_bytes(array.tobytes())
        words.append(str(path))
    code, out, said = run_program([str(program), *words, *map(str, sizes)])
    assert (code, said) == (0, ""), said
    found, at = [], 0
    for output in expected[0]:
        data = out[at : at + output.nbytes]
        found.append(np.frombuffer(data, output.dtype).reshape(output.shape))
        at += output.nbytes
    return [found]


def in_wasmtime(case: Case, expected: Outputs, folder: Path) -> Outputs:
    """What the module gives in wasmtime."""
    files = export.wasm(case.function, case.given(), folder / "model.wasm")
    model = WasmModel(files[0].read_bytes())
    return [model.run(*call, expected[0]) for call in case.calls]


_SCRIPT = """
const kinds = { float32: Float32Array, int32: Int32Array };
const all = async (model, calls) => {
  const found = [];
  for (const { arrays, sizes } of calls) {
    const given = {};
    model.inputs.forEach(({ name, dtype }, i) => { given[name] = new kinds[dtype](arrays[i]); });
    model.sizes.forEach(({ name }, i) => { given[name] = sizes[i]; });
    const out = await model.run(given);
    found.push(model.outputs.map(({ name }) => [...out[name]]));
  }
  return found;
};
"""


def _calls(case: Case) -> list[dict[str, Any]]:
    return [
        {"arrays": [a.ravel().tolist() for a in arrays], "sizes": list(sizes)}
        for arrays, sizes in case.calls
    ]


def _shaped(found: Any, expected: Outputs) -> Outputs:
    return [
        [np.array(a, o.dtype).reshape(o.shape) for a, o in zip(arrays, outputs, strict=True)]
        for arrays, outputs in zip(found, expected, strict=True)
    ]


def in_node(case: Case, expected: Outputs, folder: Path, threads: int = 1) -> Outputs:
    """What the loader gives in node."""
    export.wasm(case.function, case.given(), folder / "model.wasm", threads=threads)
    (folder / "package.json").write_text('{"type": "module"}')
    (folder / "calls.json").write_text(json.dumps(_calls(case)))
    script = f"""import {{ load }} from "./model.js";
    import {{ readFileSync }} from "node:fs";
    {_SCRIPT}
    const model = await load("./model.wasm", {{ threads: {threads} }});
    console.log(JSON.stringify(await all(model, JSON.parse(readFileSync("calls.json")))));"""
    (folder / "try.mjs").write_text(script)
    done = subprocess.run(
        ["node", "try.mjs"], cwd=folder, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return _shaped(json.loads(done.stdout), expected)


def in_page(case: Case, expected: Outputs, folder: Path, backend: str) -> Outputs:
    """What the page gives in chromium."""
    [path] = export.web(case.function, case.given(), folder / "model.html", view="plain")
    with open_page(path, backend) as page:
        page.driver.set_script_timeout(600)
        script = f"{_SCRIPT} const done = arguments[1]; all(model, arguments[0]).then(done);"
        found = page.driver.execute_async_script(script, _calls(case))
    return _shaped(found, expected)


def ways(case: Case, expected: Outputs, is_large: bool) -> Iterator[tuple[str, str, Any, float]]:
    """(name, program it needs, function of a folder, tolerance)"""

    def c(compiler: str, *flags: str, **options: Any) -> Callable[[Path], Outputs]:
        return lambda folder: in_c(case, expected, folder, compiler, flags, **options)

    yield "C gcc", "gcc", c("gcc", "-O2"), TOLERANCE
    yield "C clang", "clang", c("clang", "-O2"), TOLERANCE
    yield "C tcc", "tcc", c("tcc"), TOLERANCE
    yield "C gcc native", "gcc", c("gcc", "-O2", "-march=native", march="native"), TOLERANCE
    yield "C gcc 3 threads", "gcc", c("gcc", "-O2", "-pthread", threads=3), TOLERANCE
    if not is_large:
        yield "C sanitized", "cc", lambda folder: sanitized(case, expected, folder), TOLERANCE
    yield "WASM wasmtime", "", lambda folder: in_wasmtime(case, expected, folder), TOLERANCE
    yield "WASM node", "node", lambda folder: in_node(case, expected, folder), TOLERANCE
    yield "WASM 3 threads", "node", lambda folder: in_node(case, expected, folder, 3), TOLERANCE
    if not is_large:
        for backend, tolerance in (("wasm", TOLERANCE), ("webgpu", GPU_TOLERANCE)):
            name = f"chromium {backend}"
            yield name, "chromedriver", _page(case, expected, backend), tolerance


def _page(case: Case, expected: Outputs, backend: str) -> Callable[[Path], Outputs]:
    return lambda folder: in_page(case, expected, folder, backend)


def main() -> int:
    """Run the nets that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("nets", nargs="*")
    parser.add_argument("--large", action="store_true")
    options = parser.parse_args()
    known = {**CASES, **LARGE}
    failed = 0
    for name in options.nets or ({**CASES, **LARGE} if options.large else CASES):
        case = known[name]()
        expected = case.expected()
        for way, program, run, tolerance in ways(case, expected, name in LARGE):
            if program and shutil.which(program) is None:
                print(f"{name:18} {way:18} left out: {program} is not installed", flush=True)
                continue
            with tempfile.TemporaryDirectory() as folder:
                try:
                    found = run(Path(folder))
                except Exception as error:  # noqa: BLE001
                    failed += 1
                    print(
                        f"{name:18} {way:18} {type(error).__name__}: {str(error)[:300]}", flush=True
                    )
                    continue
            worst = 0.0
            for outputs, wanted in zip(found, expected, strict=False):
                for a, b in zip(outputs, wanted, strict=True):
                    assert np.isfinite(b).all()
                    largest = max(1e-6, float(np.abs(b).max()))
                    worst = max(worst, float(np.abs(a - b).max()) / largest)
            is_good = worst <= tolerance
            failed += not is_good
            print(f"{name:18} {way:18} {worst:.1e} {'' if is_good else 'WRONG'}", flush=True)
    for name in () if options.nets else SHORT:
        with tempfile.TemporaryDirectory() as folder:
            run_short(name, Path(folder))
            print(f"examples/web/{name}.py writes its page", flush=True)
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
