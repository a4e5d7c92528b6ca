"""The pages of examples/web, trained as they are and used: drawn on, clicked, read.

usage: python -m test.export.examples [NAME ...] [--pages FOLDER] [--pictures FOLDER]
In: the programs of examples/web, or pages that they wrote to FOLDER. Out: a line for each page on
WebGPU and as WebAssembly in a headless chromium, exit code 1 where one does not do what it should;
screenshots, to be looked at before they are kept in docs/export/.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from test.export.pages import DIGITS, Page, open_page
from test.export.test_examples import ROOT

# of drawings that a net of 8 by 8 pixels may take for another
MOST_WRONG = 1


def use_digits(page: Page) -> str:
    """Draw each digit and clear the paper; what was read."""
    read = {}
    for digit, strokes in DIGITS.items():
        page.click("clear")
        assert page.text("answer") == ""
        page.draw(strokes)
        page.wait("document.getElementById('answer').textContent !== ''")
        # the last stroke's answer is there when the queue has come to rest
        page.wait("document.getElementById('time').textContent.endsWith('ms')")
        page.settle("answer")
        read[digit] = page.text("answer")
    wrong = [digit for digit, answer in read.items() if digit != answer]
    assert len(wrong) <= MOST_WRONG, f"drawn: read {read}"
    return f"drawn: read {read}"


def use_gpt(page: Page) -> str:
    """Write without chance: the prompt and what follows, the same again after it."""
    texts = []
    for _ in range(2):
        page.run("document.getElementById('heat').value = 0")
        page.click("write")
        page.wait("document.getElementById('write').disabled === false")
        texts.append(page.text("written"))
    prompt = str(page.run("return document.getElementById('prompt').value"))
    assert texts[0] == texts[1] and len(texts[0]) > len(prompt) + 20, texts
    assert texts[0].startswith(prompt), texts[0]
    page.click("write")
    page.click("stop")
    page.wait("document.getElementById('write').disabled === false")
    page.click("write")
    page.wait("document.getElementById('write').disabled === false")
    return f"{page.text('time')}: {texts[0][:60]!r}"


# read from a copy: chromium warns of a canvas that is read often
PIXELS = """const canvas = document.getElementById(arguments[0]), { width, height } = canvas;
const copy = new OffscreenCanvas(width, height).getContext("2d", { willReadFrequently: true });
copy.drawImage(canvas, 0, 0);
const { data } = copy.getImageData(0, 0, width, height);
return [...data].reduce((sum, value) => sum + value, 0) / data.length;"""


def use_style(page: Page) -> str:
    """Click for the example; then give a file, as one that is dropped."""
    page.click("example")
    page.wait("document.getElementById('time').textContent.endsWith('ms')")
    first = page.run(PIXELS, "after")
    page.run("document.getElementById('time').textContent = ''")
    with tempfile.NamedTemporaryFile(suffix=".png") as file:
        data = page.driver.find_element("id", "after").screenshot_as_png
        file.write(data)
        file.flush()
        page.driver.find_element("id", "file").send_keys(file.name)
        page.wait("document.getElementById('time').textContent.endsWith('ms')")
    second = page.run(PIXELS, "after")
    assert 20 < first < 250 and 20 < second < 250 and first != second, (first, second)
    page.click("example")
    page.settle("time")
    return f"{page.text('time')}, mean pixel {first:.1f}, of another picture {second:.1f}"


USES: dict[str, Any] = {"digits": use_digits, "gpt": use_gpt, "style": use_style}


def train(name: str, folder: Path) -> None:
    """The program as it is."""
    command = [sys.executable, str(ROOT / "examples" / "web" / f"{name}.py"), "--out", str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    subprocess.run(command, check=True, env=environment, timeout=3600)


def main() -> int:
    """Use the pages that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", choices=(*USES, []), help="all of them if left out")
    parser.add_argument("--pages", type=Path, help="pages that are there already")
    parser.add_argument("--pictures", type=Path, help="where screenshots go")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as text:
        for name in options.names or USES:
            folder = options.pages or Path(text)
            if options.pages is None:
                train(name, folder)
            for backend in ("wasm", "webgpu"):
                try:
                    with open_page(folder / f"{name}.html", backend) as page:
                        found = USES[name](page)
                        if options.pictures:
                            options.pictures.mkdir(parents=True, exist_ok=True)
                            page.driver.save_screenshot(
                                str(options.pictures / f"{name}_{backend}.png")
                            )
                        said = page.said()
                        assert not said, said
                except AssertionError as error:
                    failed, found = 1, f"WRONG: {error}"
                print(f"{name:8} {backend:8} {found}", flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
