"""Exported WebAssembly: in wasmtime and in node, against weft; the linker against wasm-ld."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.children import Child
from test.export.nets import CASES, Case, seeded
from test.export.test_write_c import assert_near
from test.optional import need, need_program
from weft import Tensor, export
from weft.errors import ExportError
from weft.export import write_wasm
from weft.export.wasm_link import Reader, custom_section, sections_of, signed, unsigned


class WasmModel:
    """A module in wasmtime."""

    def __init__(self, module: bytes) -> None:
        wasmtime = need("wasmtime")
        self.about = json.loads(custom_section(module, "weft") or b"")
        engine = wasmtime.Engine()
        self.store = wasmtime.Store(engine)
        self.instance = wasmtime.Instance(self.store, wasmtime.Module(engine, module), [])
        self.exports = self.instance.exports(self.store)

    def call(self, name: str, *arguments: int) -> Any:
        """An exported function."""
        return self.exports[name](self.store, *arguments)

    def run(self, arrays: Any, sizes: Any, outputs: Any) -> list[np.ndarray]:
        """The outputs of one call."""
        memory = self.exports["memory"]
        for value, array in zip(self.about["inputs"], arrays, strict=True):
            memory.write(self.store, array.tobytes(), value["offset"])
        assert self.call("run", *sizes) == 0
        found = []
        for value, output in zip(self.about["outputs"], outputs, strict=True):
            data = memory.read(self.store, value["offset"], value["offset"] + output.nbytes)
            found.append(np.frombuffer(bytes(data), output.dtype).reshape(output.shape))
        return found


def exported(case: Case, path: Path) -> bytes:
    """The module of a case."""
    return export.wasm(case.function, case.given(), path)[0].read_bytes()


@pytest.mark.parametrize("name", ["digits", "lstm", "gpt"])
def test_a_net_gives_what_weft_gives(name: str, tmp_path: Path) -> None:
    need("wasmtime")
    case = CASES[name]()
    expected = case.expected()
    model = WasmModel(exported(case, tmp_path / f"{name}.wasm"))
    for (arrays, sizes), outputs in zip(case.calls, expected, strict=True):
        for found, output in zip(model.run(arrays, sizes, outputs), outputs, strict=True):
            assert_near(found, output)
    model.call("reset")
    assert_near(model.run(*case.calls[0], expected[0])[0], expected[0][0])


def test_sizes_outside_of_their_bounds_are_a_code(tmp_path: Path) -> None:
    need("wasmtime")
    case = CASES["gpt"]()
    model = WasmModel(exported(case, tmp_path / "gpt.wasm"))
    for size in (-1, 16, 1 << 30, -(1 << 31)):
        assert model.call("run", size) == 2
    assert model.call("run", 15) == 0


def test_random_numbers_and_sines_are_those_of_weft(tmp_path: Path) -> None:
    """Sines of large angles need products that are rounded once, which WebAssembly lacks."""
    need("wasmtime")
    random = seeded(9)

    def noisy(x: Tensor) -> Any:
        return x.sin() + Tensor.rand(6), (x.cast("float64") * 1000).sin()

    x = (random.standard_normal(6) * 1e5).astype(np.float32)
    files = export.wasm(noisy, (Tensor(x),), tmp_path / "noisy.wasm")
    model = WasmModel(files[0].read_bytes())
    outputs = [np.zeros(6, np.float32), np.zeros(6, np.float64)]
    for seed in (None, 3, -1, 1 << 45):
        if seed is not None:
            Tensor.manual_seed(seed)
            model.call("seed", seed)
        first, second = (t.numpy() for t in noisy(Tensor(x)))
        found = model.run([x], [], outputs)
        np.testing.assert_allclose(found[0], first, rtol=0, atol=2e-7)
        np.testing.assert_allclose(found[1], second, rtol=0, atol=1e-15)


NODE = """
import { load } from "./MODEL.js";
const model = await load("./MODEL.wasm");
const calls = JSON.parse(process.argv[2]);
const found = calls.map(({ arrays, sizes }) => {
  const given = {};
  model.inputs.forEach((value, i) => {
    const Kind = value.dtype === "int32" ? Int32Array : Float32Array;
    given[value.name] = new Kind(arrays[i]);
  });
  model.sizes.forEach((size, i) => { given[size.name] = sizes[i]; });
  return Object.values(model.run(given)).map((array) => [...array]);
});
const refused = [];
for (const given of [{}, { token: new Float32Array(1), position: 0 }, { token: new Int32Array(2),
  position: 0 }, { token: new Int32Array(1), position: 16 }, { nobody: 1 }]) {
  try { model.run(given); } catch (error) { refused.push(error.message); }
}
console.log(JSON.stringify({ found, refused }));
"""


def test_the_loader_in_node(tmp_path: Path) -> None:
    node = need_program("node")
    case = CASES["gpt"]()
    expected = case.expected()
    export.wasm(case.function, case.given(), tmp_path / "gpt.wasm")
    (tmp_path / "package.json").write_text('{"type": "module"}')
    (tmp_path / "try.mjs").write_text(NODE.replace("MODEL", "gpt"))
    calls = [
        {"arrays": [a.ravel().tolist() for a in arrays], "sizes": list(sizes)}
        for arrays, sizes in case.calls
    ]
    command = [node, "try.mjs", json.dumps(calls)]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tmp_path) as child:
        out, said = child.communicate()
    assert child.returncode == 0, said
    answer = json.loads(out)
    for found, outputs in zip(answer["found"], expected, strict=True):
        assert_near(np.array(found[0], np.float32).reshape(outputs[0].shape), outputs[0])
    assert len(answer["refused"]) == 5
    assert "position is a whole number from 0 to 15" in answer["refused"][3]
    assert "token: Int32Array;" in (tmp_path / "gpt.d.ts").read_text()


def test_the_linker_places_code_as_wasm_ld_does(tmp_path: Path, monkeypatch: Any) -> None:
    """The same object through both: equal code but for addresses, which differ in places only."""
    linker = need_program("wasm-ld")
    case = CASES["lstm"]()
    kept: list[bytes] = []
    emit = write_wasm._emit
    monkeypatch.setattr(write_wasm, "_emit", lambda *given: kept.append(emit(*given)) or kept[-1])
    ours = exported(case, tmp_path / "lstm.wasm")
    (tmp_path / "lstm.o").write_bytes(kept[0])
    command = [linker, "--no-entry", "--export=run", "--export=reset", "--no-gc-sections"]
    command += ["-o", "theirs.wasm", "lstm.o"]
    with Child(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, cwd=tmp_path) as child:
        said, _ = child.communicate()
    assert child.returncode == 0, said
    theirs = (tmp_path / "theirs.wasm").read_bytes()
    found, reference = dict(sections_of(ours)), dict(sections_of(theirs))
    count = Functions(found[10])
    other = Functions(reference[10])
    assert len(other.sizes) - len(count.sizes) in (0, 1)  # wasm-ld adds a constructor
    assert other.sizes[-len(count.sizes) :] == count.sizes


class Functions:
    """The sizes of the functions of a code section."""

    def __init__(self, body: bytes) -> None:
        reader = Reader(body)
        self.sizes = []
        for _ in range(reader.number()):
            size = reader.number()
            reader.take(size)
            self.sizes.append(size)


@pytest.mark.parametrize("number", [0, 1, 63, 64, 127, 128, 624485, -1, -64, -65, -123456, 2**31])
def test_numbers_are_written_as_the_specification_says(number: int) -> None:
    assert Reader(signed(number)).signed() == number
    assert Reader(signed(number, 5)).signed() == number
    assert len(signed(number, 5)) == 5
    if number >= 0:
        assert Reader(unsigned(number)).number() == number


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(ExportError, match="no WebAssembly module"):
        list(sections_of(b"\x7fELF0000"))
