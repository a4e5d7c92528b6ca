"""Exported pages in a real browser: drawn on, clicked, read.

In: a page. Out: `open_page`, a headless chromium in which a page is ready; `draw`, strokes of a
pointer; `served`, a folder over HTTP. SwiftShader is the GPU where there is none.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

from test.optional import need, need_program

PATIENCE = 120.0
FLAGS = {
    "wasm": (),
    "webgpu": ("--enable-unsafe-webgpu", "--use-webgpu-adapter=swiftshader"),
}
Stroke = list[list[float]]


def arc(x: float, y: float, wide: float, high: float, start: float, stop: float) -> Stroke:
    """Points of an ellipse, from one angle to another."""
    angles = [start + (stop - start) * i / 24 for i in range(25)]
    return [[x + wide * math.sin(a), y - high * math.cos(a)] for a in angles]


# how people draw them, in parts of the paper
DIGITS: dict[str, list[Stroke]] = {
    "0": [arc(0.5, 0.5, 0.2, 0.3, 0, 2 * math.pi)],
    "1": [[[0.4, 0.3], [0.52, 0.2], [0.52, 0.8]]],
    "3": [arc(0.48, 0.35, 0.16, 0.15, -1.2, 3.1) + arc(0.48, 0.65, 0.18, 0.16, 0, 4.2)],
    "4": [[[0.55, 0.2], [0.3, 0.58], [0.72, 0.58]], [[0.58, 0.4], [0.58, 0.82]]],
    "7": [[[0.3, 0.22], [0.7, 0.22], [0.45, 0.8]]],
}


class Page:
    """A page that is open."""

    def __init__(self, driver: Any) -> None:
        self.driver = driver

    def run(self, script: str, *arguments: Any) -> Any:
        """A script's value."""
        return self.driver.execute_script(script, *arguments)

    def text(self, name: str) -> str:
        """What an element says."""
        return str(self.run("return document.getElementById(arguments[0]).textContent", name))

    def click(self, name: str) -> None:
        """On an element."""
        self.driver.find_element("id", name).click()

    def wait(self, expression: str) -> Any:
        """Until an expression is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.run(f"return {expression}")
            if found:
                return found
            time.sleep(0.1)
        raise AssertionError(f"{expression} is not true: {self.text('backend')}, {self.said()}")

    def settle(self, name: str) -> None:
        """Until an element says the same for a while."""
        end = time.monotonic() + PATIENCE
        before, same = self.text(name), 0
        while same < 5 and time.monotonic() < end:
            time.sleep(0.1)
            now = self.text(name)
            before, same = now, same + 1 if now == before else 0

    def said(self) -> list[str]:
        """Warnings and errors of the browser."""
        log = self.driver.get_log("browser")
        return [entry["message"] for entry in log if entry["level"] in ("WARNING", "SEVERE")]

    def draw(self, strokes: list[Stroke]) -> None:
        """With a pointer, on the paper."""
        self.run(
            """
            const paper = document.getElementById("paper"), box = paper.getBoundingClientRect();
            const send = (kind, x, y) => paper.dispatchEvent(new PointerEvent(kind, {
              clientX: box.left + x * box.width, clientY: box.top + y * box.height,
              bubbles: true, pointerId: 1 }));
            for (const stroke of arguments[0]) {
              stroke.forEach(([x, y], i) => send(i ? "pointermove" : "pointerdown", x, y));
              send("pointerup", ...stroke.at(-1));
            }""",
            strokes,
        )


@contextmanager
def browser(backend: str = "wasm") -> Iterator[Any]:
    """A headless chromium of one's own."""
    chrome = need("selenium.webdriver.chrome.webdriver")
    options = need("selenium.webdriver.chrome.options").Options()
    options.binary_location = need_program("chromium", "chromium-browser")
    fixed = ("--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--hide-scrollbars")
    for flag in (*fixed, "--window-size=1100,900", *FLAGS[backend]):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = need("selenium.webdriver.chrome.service").Service(need_program("chromedriver"))
    driver = chrome.WebDriver(options=options, service=service)
    try:
        yield driver
    finally:
        driver.quit()


@contextmanager
def open_page(path: Path, backend: str) -> Iterator[Page]:
    """A page, ready, in a browser of its own."""
    with browser(backend) as driver:
        driver.get(f"{path.as_uri()}#{backend}")
        page = Page(driver)
        assert page.wait("document.body.dataset.ready") == backend
        yield page


ISOLATION = {
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Embedder-Policy": "require-corp",
}


@contextmanager
def served(folder: Path, headers: Mapping[str, str]) -> Iterator[str]:
    """The address of a folder's files, sent with these headers."""

    class Handler(SimpleHTTPRequestHandler):
        def end_headers(self) -> None:
            for name, value in headers.items():
                self.send_header(name, value)
            super().end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
    thread = Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(30)
