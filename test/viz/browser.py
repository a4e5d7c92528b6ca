"""A real browser for the tests: Debian's chromium, driven through its own driver by selenium."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from test.optional import need, need_program, optional
from weft.viz.server import Server
from weft.viz.trace_file import TraceReader

by = optional("selenium.webdriver.common.by")
keys = optional("selenium.webdriver.common.keys")

# How long a page may take before a test gives up; nothing is asserted about how long it took.
PATIENCE = 60.0


def require_browser() -> None:
    """Skip where there is none."""
    need("selenium")
    need_program("chromium", "chromium-browser")
    need_program("chromedriver")


def start_browser() -> Any:
    """A browser without a window."""
    chrome = need("selenium.webdriver.chrome.webdriver")
    options = need("selenium.webdriver.chrome.options").Options()
    options.binary_location = need_program("chromium", "chromium-browser")
    # the sandbox needs rights that containers lack; the page is our own
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument("--hide-scrollbars")
    options.add_argument("--window-size=1280,800")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = need("selenium.webdriver.chrome.service").Service(need_program("chromedriver"))
    return chrome.WebDriver(options=options, service=service)


@contextmanager
def serving(path: Path) -> Iterator[Server]:
    """A trace, served."""
    reader = TraceReader(path)
    with Server(reader) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join(300)
    reader.close()


class Page:
    """The viewer as a reader sees it."""

    def __init__(self, driver: Any, server: Any) -> None:
        self.driver = driver
        self.server = server

    def open(self, hash_: str = "") -> None:
        """A fresh page."""
        self.driver.get("about:blank")
        self.driver.get_log("browser")
        self.driver.get(self.server.url + hash_)
        self.wait("document.documentElement.dataset.ready === 'yes'")

    def run(self, script: str, *arguments: Any) -> Any:
        """A script's value."""
        return self.driver.execute_script(script, *arguments)

    def wait(self, expression: str, *arguments: Any) -> Any:
        """Until an expression is true."""
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = self.run(f"return {expression}", *arguments)
            if found:
                return found
            time.sleep(0.03)
        raise AssertionError(f"never true on the page: {expression}")

    def go(self, hash_: str) -> None:
        """Another view."""
        self.run("location.hash = arguments[0]", hash_)

    def text(self, selector: str) -> str:
        """What an element says."""
        return str(self.wait(f"document.querySelector({selector!r})?.innerText"))

    def texts(self, selector: str) -> list[str]:
        """What all such elements say."""
        script = "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)"
        return list(self.run(script, selector))

    def click(self, selector: str) -> None:
        """As with the mouse."""
        self.wait(f"document.querySelector({selector!r}) !== null")
        self.driver.find_element(by.By.CSS_SELECTOR, selector).click()

    def press(self, *keys: str) -> None:
        """Keys, to whatever has the focus."""
        self.driver.switch_to.active_element.send_keys(*keys)

    def graph(self, side: str = "after") -> dict[str, str]:
        """What the shown graph says about itself, once it is laid out."""
        self.wait("document.querySelector('.graphs')?.dataset.ready")
        script = "return {...document.querySelector(`.graph[data-side=${arguments[0]}]`).dataset}"
        return dict(self.run(script, side))

    def at_step(self, place: str, side: str = "after") -> dict[str, str]:
        """The graph once this place (`pass/rewrite/step`) is shown."""
        wanted = f"{place}/{side}"
        self.wait("document.querySelector('.graphs')?.dataset.ready === arguments[0]", wanted)
        return self.graph("after" if side == "split" else side)

    def errors(self) -> list[str]:
        """What the browser complained about."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def size(self, width: int, height: int) -> None:
        """As large as a window."""
        metrics = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)

    def prefer(self, scheme: str) -> None:
        """What the reader's system prefers: light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [feature]})


def key(name: str) -> str:
    """A key without a letter, by name."""
    return str(getattr(keys.Keys, name))
