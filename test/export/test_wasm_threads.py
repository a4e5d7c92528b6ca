"""WebAssembly that several threads share: workers of node and of a browser over one memory."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.children import Child
from test.export.nets import seeded
from test.export.pages import ISOLATION, browser, served
from test.export.test_write_c import assert_near
from test.optional import need, need_program
from weft import Tensor, export
from weft.errors import ArgumentError
from weft.export.wasm_link import custom_section, sections_of

THREADS = 4


class Layers:
    """Products large enough to share, one after another, and a count of calls."""

    def __init__(self) -> None:
        random = seeded(21)
        shapes = ((96, 160), (160, 128))
        self.weights = [
            Tensor(random.standard_normal(shape, np.float32)).realize() for shape in shapes
        ]
        self.calls = Tensor([3.0]).contiguous().realize()

    def step(self, x: Tensor) -> Any:
        """Two layers; and how often it was called, plus 3."""
        for weight in self.weights:
            x = (x @ weight).relu().contiguous()
        self.calls.assign(self.calls + 1)
        return {"scores": x, "calls": self.calls * 1}


@pytest.fixture(scope="module")
def layers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[float], np.ndarray]:
    """A folder with the module, an input, and what comes out."""
    folder = tmp_path_factory.mktemp("threads")
    net = Layers()
    x = seeded(22).standard_normal((64, 96), np.float32)
    export.wasm(net.step, (Tensor(x),), folder / "layers.wasm", threads=THREADS)
    (folder / "package.json").write_text('{"type": "module"}')
    return folder, x.ravel().tolist(), net.step(Tensor(x))["scores"].numpy()


# how often it runs with each number of threads; what comes out must be the same to the bit
SCRIPT = """
const several = async (load, url, input) => {
  const found = { threads: [], equal: true, calls: [] };
  const given = { x: new Float32Array(input) };
  for (const threads of [1, 3, 4]) {
    const model = await load(url, { threads });
    found.threads.push(model.threads);
    for (let i = 0; i < 50; i++) {
      const { scores, calls } = model.run(given);
      found.scores ??= [...scores];
      found.equal &&= scores.every((score, j) => score === found.scores[j]);
      found.last = calls[0];
    }
    found.calls.push(found.last);
    model.close();
    // alone, from the beginning
    model.reset();
    found.calls.push(model.run(given).calls[0], model.threads);
  }
  found.chosen = (await load(url)).threads;
  found.refused = [];
  for (const threads of [0, 5, 1.5, "2"]) {
    try { await load(url, { threads }); } catch (error) { found.refused.push(error.message); }
  }
  return found;
};
"""


def check(found: dict[str, Any], expected: np.ndarray) -> None:
    """What the script found is right."""
    assert found["threads"] == [1, 3, 4] and found["equal"]
    assert_near(np.array(found["scores"], np.float32).reshape(expected.shape), expected)
    assert found["calls"] == [53, 4, 1] * 3
    assert 1 <= found["chosen"] <= THREADS
    assert len(found["refused"]) == 4
    assert "exported for 1 to 4 threads, found 5" in found["refused"][1]


@pytest.mark.xdist_group("export threads")
def test_workers_of_node_share_kernels(layers: Any) -> None:
    folder, x, expected = layers
    node = need_program("node")
    (folder / "x.json").write_text(json.dumps(x))
    # it ends by itself though the last model was not closed
    script = f"""import {{ load }} from "./layers.js";
    import {{ readFileSync }} from "node:fs";
    {SCRIPT}
    const x = JSON.parse(readFileSync("x.json"));
    console.log(JSON.stringify(await several(load, "./layers.wasm", x)));"""
    (folder / "try.mjs").write_text(script)
    with Child(
        [node, "try.mjs"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder
    ) as child:
        out, said = child.communicate()
    assert child.returncode == 0, said
    check(json.loads(out), expected)


@pytest.mark.xdist_group("export threads")
def test_workers_of_a_browser_share_kernels(layers: Any) -> None:
    """In a page that is isolated from others; in one that is not there is one thread, or a
    refusal that names the headers."""
    need("selenium")
    folder, x, expected = layers
    (folder / "page.html").write_text(
        f"""<!doctype html><script type="module">
        import {{ load }} from "./layers.js";
        {SCRIPT}
        globalThis.several = (x) => several(load, "./layers.wasm", x);
        globalThis.load = load;</script>"""
    )
    run = "const [x, done] = arguments; several(x).then(done, (e) => done(String(e)));"
    alone = """const [done] = arguments;
    const run = async () => {
      const model = await load("./layers.wasm");
      const { calls } = model.run({ x: new Float32Array(64 * 96) });
      const why = await load("./layers.wasm", { threads: 2 }).catch((error) => error.message);
      return { threads: model.threads, calls: calls[0], why };
    };
    run().then(done, (e) => done(String(e)));"""
    with browser() as driver:
        driver.set_script_timeout(120)
        with served(folder, ISOLATION) as address:
            driver.get(f"{address}/page.html")
            found = driver.execute_async_script(run, x)
        assert isinstance(found, dict), found
        check(found, expected)
        with served(folder, {}) as address:
            driver.get(f"{address}/page.html")
            found = driver.execute_async_script(alone)
    assert isinstance(found, dict), found
    assert found["threads"] == 1 and found["calls"] == 4
    assert "Cross-Origin-Opener-Policy" in found["why"]


def test_a_shared_module_fills_its_memory_on_request(layers: Any) -> None:
    """Instances of workers must not write the state of the beginning over that of a call: no data
    of theirs is active."""
    module = (layers[0] / "layers.wasm").read_bytes()
    about = json.loads(custom_section(module, "weft") or b"")
    assert about["threads"] == THREADS and about["pages"] * 65536 > THREADS * about["stack"]
    [data] = [body for number, body in sections_of(module) if number == 11]
    assert data[1] == 1  # the first segment: passive
    [imported] = [body for number, body in sections_of(module) if number == 2]
    assert imported.startswith(b"\x01\x03env\x06memory\x02\x03")
    assert "threads?: number" in (layers[0] / "layers.d.ts").read_text()


def test_numbers_of_threads_that_are_none_are_refused(tmp_path: Path) -> None:
    for threads in (0, 257, 1.5, True):
        with pytest.raises(ArgumentError, match="threads is a number from 1 to 256"):
            export.wasm(lambda x: x + 1, (Tensor.ones(3),), tmp_path / "x.wasm", threads=threads)
