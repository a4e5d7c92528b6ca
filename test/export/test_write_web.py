"""Exported pages: what is in them, and what they do in a browser, on WebGPU and as WebAssembly."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.export.nets import CASES, seeded
from test.export.pages import open_page
from test.optional import need, need_program
from weft import Tensor, Variable, export
from weft.errors import ArgumentError
from weft.export.gpu_plan import _shifted


class Images:
    """Which quarter of an image is brightest: a net whose answers are known without training."""

    def __init__(self) -> None:
        kernel = np.ones((1, 1, 4, 4), np.float32) / 16
        self.kernel = Tensor(kernel).realize()

    def __call__(self, image: Tensor) -> Tensor:
        return (image.conv2d(self.kernel, stride=4).flatten(1) * 8).softmax()


class Counter:
    """The next token is the one before, plus one; and what it saw is in its state."""

    def __init__(self, tokens: int) -> None:
        self.tokens = tokens
        self.seen = Tensor.zeros(8).contiguous().realize()

    def step(self, token: Tensor, position: Any) -> Tensor:
        self.seen[position : position + 1].assign(token.reshape(1).float())
        last = self.seen[position : position + 1]
        numbers = Tensor.arange(self.tokens).float()
        wanted = (last + 1).reshape(1, 1)
        return -((numbers.reshape(1, -1) - wanted) ** 2) * 50


def contents(path: Path) -> dict[str, Any]:
    """The data of a page."""
    text = path.read_text()
    data = text[text.index("const PAGE = ") + 13 :].split(";\n", 1)[0]
    return dict(json.loads(data.replace("<\\/", "</")))


def test_a_page_holds_everything_and_weights_once(tmp_path: Path) -> None:
    case = CASES["digits"]()
    [path] = export.web(case.function, case.given(), tmp_path / "digits.html", title="<Digits>")
    text = path.read_text()
    assert "&lt;Digits&gt;" in text and "http" not in text.replace("http://www.w3", "")
    page = contents(path)
    assert page["view"] == "draw" and page["labels"] == list("0123456789") and page["isShares"]
    assert page["whyNot"] == "" and len(page["plan"]["kernels"]) >= 3
    weights = sum(memory[2] for memory in page["moduleWeights"])
    assert len(page["weights"]) * 3 // 4 < 2 * weights


def test_views_follow_shapes_and_wrong_ones_are_refused(tmp_path: Path) -> None:
    given = (Tensor.zeros(1, 3, 8, 8),)

    def redraw(image: Tensor) -> Tensor:
        return image * 0.5

    [path] = export.web(redraw, given, tmp_path / "redraw.html")
    assert contents(path)["view"] == "image"
    [path] = export.web(lambda x, y: x + y, (Tensor.ones(3), Tensor.ones(3)), tmp_path / "add.html")
    assert contents(path)["view"] == "plain"
    for view, says in (("film", "a page is one of"), ("text", "takes one int token")):
        with pytest.raises(ArgumentError, match=says):
            export.web(redraw, given, tmp_path / "x.html", view=view)
    with pytest.raises(ArgumentError, match="4 scores, found 2 labels"):
        export.web(Images(), (Tensor.zeros(1, 1, 8, 8),), tmp_path / "x.html", labels=["a", "b"])


def test_what_webgpu_lacks_runs_as_webassembly(tmp_path: Path) -> None:
    [path] = export.web(
        lambda x: x + Tensor.rand(4), (Tensor.zeros(4),), tmp_path / "noise.html", view="plain"
    )
    page = contents(path)
    assert page["plan"] is None and page["whyNot"]


def test_kernels_find_elements_further_on() -> None:
    text = "x = data1[i & 7] + data11[j]; data1[data1[2]] = 0;"
    expected = "x = data1[8 + (i & 7)] + data11[j]; data1[8 + (data1[8 + (2)])] = 0;"
    assert _shifted(text, "data1", "8") == expected


# ------------------------------------------------------------ in a browser
def need_browser() -> None:
    """Skip where there is none."""
    need("selenium")
    need_program("chromium", "chromium-browser")
    need_program("chromedriver")


PIXELS = """const canvas = document.getElementById(arguments[0]), pixels = [];
const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
for (let i = 0; i < data.length; i += 4) pixels.push([...data.slice(i, i + 4)]);
return pixels;"""


@pytest.mark.parametrize("backend", ["wasm", "webgpu"])
def test_a_page_in_a_browser(backend: str, tmp_path: Path) -> None:
    """Draw in one corner, and the net says which; the same numbers as weft; then a text model, and
    one of images."""
    need_browser()
    images = Images()
    corners = ["top left", "top right", "bottom left", "bottom right"]
    [path] = export.web(
        images.__call__, (Tensor.zeros(1, 1, 8, 8),), tmp_path / "corner.html", labels=corners
    )
    random = seeded(11)
    data = random.random((1, 1, 8, 8), np.float32)
    with open_page(path, backend) as page:
        page.draw([[[0.1, 0.1], [0.9, 0.1], [0.9, 0.9]]])
        page.wait("document.getElementById('answer').textContent === 'top right'")
        page.click("clear")
        assert page.text("answer") == ""
        found = page.run(
            "const given = {[model.inputs[0].name]: new Float32Array(arguments[0])};"
            "return Promise.resolve(model.run(given)).then((out) => [...out.output]);",
            data.ravel().tolist(),
        )
        expected = images(Tensor(data)).numpy().ravel()
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
        assert page.said() == []
        counter = Counter(6)
        position = Variable("position", 0, 7)
        given = (Tensor([0]).int(), position.bind(2))
        [path] = export.web(
            counter.step, given, tmp_path / "count.html", labels=list("abcdef"), prompt="ab"
        )
        page.driver.get(f"{path.as_uri()}#{backend}")
        assert page.wait("document.body.dataset.ready") == backend
        page.run("document.getElementById('heat').value = 0")
        page.click("write")
        page.wait("document.getElementById('written').textContent.length >= 8")
        assert page.text("written").startswith("abcdef")
        assert page.said() == []
        # an image in, an image out: half as bright as the one that is dropped
        given = (Tensor.zeros(1, 3, 8, 8),)
        [path] = export.web(lambda image: image * 0.5, given, tmp_path / "dim.html")
        page.driver.get(f"{path.as_uri()}#{backend}")
        assert page.wait("document.body.dataset.ready") == backend
        page.click("example")
        page.wait("document.getElementById('time').textContent.endsWith('ms')")
        before, after = (np.array(page.run(PIXELS, name)) for name in ("before", "after"))
        assert before[:, :3].max() > 100
        np.testing.assert_allclose(after[:, :3], before[:, :3] * 0.5, atol=1)
        assert page.said() == []
