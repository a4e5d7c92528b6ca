"""Waves over time in a real browser, of launches that an emulated device traced."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.viz.browser import Page, key, require_browser, serving, start_browser
from weft import Device, Tensor
from weft.amd.trace import read_recorded
from weft.viz.recording import recording
from weft.viz.trace_file import TraceReader, TraceWriter

DEVICE = "AMD:gfx1100"
# where a picture is wanted of the page
PICTURES = os.environ.get("VIZ_PICTURES", "")


def product() -> None:
    rng = np.random.default_rng(0)
    x, y = [Tensor(rng.random((64, 64), np.float32), device=DEVICE) for _ in range(2)]
    (x @ y).relu().realize()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("traces") / "waves.weft"
    with recording(path):
        product()
        product()
    return path


def test_a_trace_holds_counters_and_threads(recorded: Path) -> None:
    agent: Any = Device[DEVICE].agent  # type: ignore[attr-defined]
    assert not agent.watchers and not agent.traces_threads
    reader = TraceReader(recorded)
    (row,) = reader.index["threads"]
    assert row["traced"] and row["launches"] == 2
    counters = row["counters"]
    assert counters["bytes_written"] == 64 * 64 * 4 and counters["occupancy"] > 0
    shown = reader.read("threads/0.json")
    reader.close()
    assert len(shown["waves"]) == counters["waves"]
    assert len(shown["times"]) == len(shown["at"])
    assert len(shown["at"]) == counters["instructions"] - counters["waves"]
    assert len(list(read_recorded(recorded))) == 4


def test_minus_two_saves_counters_and_opens_nothing(tmp_path: Path) -> None:
    path = tmp_path / "saved.weft"
    code = "from weft import Tensor; print((Tensor([1.0, 2.0]) + 1).tolist())"
    environment = {**os.environ, "DEVICE": "AMD", "VIZ": "-2", "VIZ_TRACE": str(path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0 and done.stdout == "[2.0, 3.0]\n"
    assert f"the trace is {path}" in done.stderr
    reader = TraceReader(path)
    assert reader.index["threads"][0]["counters"]["bytes_written"] == 8
    assert reader.index["units"] == []
    reader.close()


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    require_browser()
    started = start_browser()
    yield started
    started.quit()


@pytest.fixture
def page(driver: Any, recorded: Path) -> Iterator[Page]:
    with serving(recorded) as server:
        shown = Page(driver, server)
        shown.open("#/waves/0")
        shown.wait("document.querySelector('#waves')?.dataset.ready === '0'")
        yield shown
        assert shown.errors() == []


def zoom_in(page: Page, times: int) -> None:
    for _ in range(times):
        page.run("document.querySelector('.zoom button + button').click()")


def line_now(page: Page) -> str:
    return page.text('.wave-line[data-now="yes"] .what')


def test_the_instruction_of_a_moment_is_beside_the_code(page: Page) -> None:
    assert page.text(".wave-facts").count("waves") >= 1
    shown = page.run("return fetch('api/threads/0').then((r) => r.json())")
    first = shown["waves"][0][4]
    assert line_now(page) == shown["lines"][shown["at"][first]]
    for step in range(1, 12):
        page.run("document.querySelector('.waves-area canvas').focus()")
        page.press(key("ARROW_RIGHT"))
        page.wait("document.querySelector('#waves').dataset.cycle === arguments[0]",
                  str(shown["times"][first + step]))  # fmt: skip
        assert line_now(page) == shown["lines"][shown["at"][first + step]]


def test_a_click_on_the_canvas_finds_the_wave(page: Page) -> None:
    """Where a wave is drawn, a click selects it and the instruction that it stands at."""
    shown = page.run("return fetch('api/threads/0').then((r) => r.json())")
    page.run("""
const canvas = document.querySelector(".waves-area canvas");
const box = canvas.getBoundingClientRect();
const at = { clientX: box.left + 84 + (box.width - 84) / 2, clientY: box.top + 38, bubbles: true };
for (const kind of ["pointerdown", "pointerup"])
    canvas.dispatchEvent(new PointerEvent(kind, { ...at, pointerId: 1 }));
""")
    found = page.run("return {...document.querySelector('#waves').dataset}")
    wave = shown["waves"][int(found["wave"])]
    cycle = int(found["cycle"])
    assert wave[2] <= cycle <= wave[3] and cycle > 0
    issued = range(wave[4], wave[4] + wave[5])
    at = next(i for i in issued if shown["times"][i] == cycle)
    assert shown["at"][at] == int(found["line"])


def test_a_line_of_the_code_leads_to_when_it_ran(page: Page) -> None:
    shown = page.run("return fetch('api/threads/0').then((r) => r.json())")
    line = next(n for n, text in enumerate(shown["lines"]) if text.startswith("s_waitcnt"))
    page.click(f'.wave-line[data-line="{line}"]')
    assert page.run("return document.querySelector('#waves').dataset.line") == str(line)
    if PICTURES:
        page.size(1440, 860)
        zoom_in(page, 3)
        page.wait("document.querySelector('#waves').dataset.width")
        page.driver.save_screenshot(str(Path(PICTURES) / "waves.png"))


def test_a_hundred_thousand_instructions_are_drawn(
    driver: Any, recorded: Path, tmp_path: Path
) -> None:
    """As many as a long launch has, zoomed from all of them to a few."""
    reader = TraceReader(recorded)
    index, shown = reader.index, reader.read("threads/0.json")
    timeline = reader.read("timeline.json")
    reader.close()
    count = 128
    size = 1000
    shown["waves"] = [[w % 4, w // 4 % 16, w // 64 * 9000, w // 64 * 9000 + 8999, w * size, size]
                      for w in range(count)]  # fmt: skip
    shown["times"] = [w // 64 * 9000 + 8 * i for w in range(count) for i in range(size)]
    shown["at"] = [i % len(shown["lines"]) for _ in range(count) for i in range(size)]
    path = tmp_path / "long.weft"
    writer = TraceWriter(path)
    writer.write("threads/0.json", shown)
    writer.write("timeline.json", timeline)
    writer.write("index.json", index)
    writer.close()
    with serving(path) as server:
        page = Page(driver, server)
        page.open("#/waves/0")
        page.wait("document.querySelector('#waves')?.dataset.ready === '0'")
        assert "128,000 instructions" in page.text(".waves .toolbar")
        zoom_in(page, 12)
        width = float(page.wait("document.querySelector('#waves').dataset.width"))
        assert width < 200
        if PICTURES:
            page.driver.save_screenshot(str(Path(PICTURES) / "waves_long.png"))
        assert page.errors() == []
