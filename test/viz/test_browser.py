"""The viewer in a real browser: what a reader does, asserted on what is on the page.

Skipped where there is no chromium; `make test-browser` asks for one.
"""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlparse

import pytest

from test.children import Child
from test.viz import program
from test.viz.browser import Page, key, require_browser, serving, start_browser
from test.viz.made_up import EVIL, make_trace
from weft.codegen import pipeline
from weft.viz.recording import recording

ROOT = Path(__file__).resolve().parent.parent.parent
# where `make screenshots` wants the pictures
PICTURES = os.environ.get("VIZ_PICTURES", "")


@pytest.fixture(scope="module")
def driver() -> Iterator[Any]:
    require_browser()
    started = start_browser()
    yield started
    started.quit()


@pytest.fixture(scope="module")
def served(driver: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    path = tmp_path_factory.mktemp("traces") / "program.weft"
    with recording(path):
        program.main(4)
    with serving(path) as server:
        yield Page(driver, server)


@pytest.fixture
def page(served: Page) -> Iterator[Page]:
    served.open()
    served.run("localStorage.clear()")
    yield served
    assert served.errors() == []


def open_matmul(page: Page) -> None:
    """The kernel of `x @ weights`, found as a reader would: by its line."""
    line = next(
        number
        for number, text in enumerate(Path(program.__file__).read_text().splitlines(), 1)
        if "@ weights" in text
    )
    page.click("#filter")
    page.press(f"program.py:{line}")
    page.wait("document.querySelector('.sidebar-foot').dataset.shown === '1'")
    page.click(".row.kernel")
    page.graph()


def test_the_overview_says_what_ran(page: Page) -> None:
    text = page.text(".overview")
    for part in ("launches", "distinct programs", "Slowest kernels", "@ weights"):
        assert part in text
    assert len(page.texts(".row.kernel")) >= 4
    assert "kernels" in page.text(".sidebar-foot")


def test_nothing_is_loaded_from_elsewhere(page: Page) -> None:
    open_matmul(page)
    page.go("#/timeline")
    page.wait("document.getElementById('timeline')?.dataset.launches")
    names = page.run("return performance.getEntriesByType('resource').map((r) => r.name)")
    assert {urlparse(name).netloc for name in names} == {f"127.0.0.1:{page.server.server_port}"}
    blocked = page.run(
        "return fetch('http://127.0.0.2:9/').then(() => 'loaded', () => 'refused')",
    )
    assert blocked == "refused"
    page.errors()


def test_a_kernel_shows_its_line_its_passes_and_its_optimisations(page: Page) -> None:
    open_matmul(page)
    assert "y = (x @ weights).relu()" in page.text("#source-line")
    passes = [text.splitlines()[0] for text in page.texts(".step.pass")]
    expected = [step.name for step in (*pipeline.KERNEL_PASSES, *pipeline.PROGRAM_PASSES)]
    assert passes == expected[: len(passes)] and len(passes) > 8
    assert page.texts(".opt")
    page.click("#source-line summary")
    assert "return y.softmax().realize()" in page.text(".popover")


def test_keys_walk_through_the_steps(page: Page) -> None:
    open_matmul(page)
    steps = page.run("return [...document.querySelectorAll('.step.rule')].map((e) => e.hash)")
    assert steps
    page.go(steps[0])
    place = "/".join(steps[0].split("/")[-3:])
    graph = page.at_step(place)
    assert int(graph["changed"]) >= 1
    rule, *rest = page.text(".step.rule.selected").splitlines()
    card = page.text(".step-card")
    assert rule in card and "→" in card and f"{rest[0]}" in card and ".py:" in rest[0]
    page.press(key("ARROW_LEFT"))
    page.wait("!location.hash.endsWith(arguments[0])", place)
    number = place.split("/")[0]
    page.at_step(f"{number}/-1/0")
    assert page.text(".step.selected").splitlines()[0] in page.text(".step-card")
    page.press(key("ARROW_RIGHT"))
    page.at_step(place)
    page.press(key("SHIFT"), key("ARROW_RIGHT"))
    page.press(key("ARROW_DOWN"))
    page.wait("document.querySelectorAll('.row.selected').length === 1")


def test_before_and_after_side_by_side(page: Page) -> None:
    open_matmul(page)
    where = page.run("return document.querySelector('.graphs').dataset.ready").rsplit("/", 1)[0]
    page.press("s")
    page.at_step(where, "split")
    captions = "[...document.querySelectorAll('.graph:not([hidden]) .graph-caption')]"
    assert page.run(f"return {captions}.map((e) => e.innerText)") == ["Before", "After"]
    before, after = page.graph("before"), page.graph("after")
    assert int(before["nodes"]) > 3 and int(after["nodes"]) > 3
    page.press("b")
    page.at_step(where, "before")
    page.press("b")
    page.at_step(where, "after")


def test_search_finds_and_shows_nodes(page: Page) -> None:
    open_matmul(page)
    page.press("/")
    page.press("reduce")
    page.wait("/found/.test(document.getElementById('found').innerText)")
    assert page.text("#found") != "nothing found"
    page.press(key("ENTER"))
    assert "REDUCE" in page.text(".inspector")
    assert "sources" in page.text(".inspector") and "used by" in page.text(".inspector")
    page.press("zzz")
    page.wait("document.getElementById('found').innerText === 'nothing found'")
    page.press(key("ESCAPE"))
    page.press(key("ESCAPE"))
    page.wait("document.querySelector('.inspector').hidden")


def test_repeats_fold_and_unfold(page: Page) -> None:
    open_matmul(page)
    expand = next(i for i, step in enumerate(pipeline.PROGRAM_PASSES) if step.name == "expand")
    place = f"{len(pipeline.KERNEL_PASSES) + expand}"
    base = page.run("return location.hash.split('/').slice(0, 3).join('/')")
    page.go(f"{base}/graph/{place}")
    folded = page.at_step(f"{place}/-1/0")
    assert int(folded["boxes"]) < int(folded["nodes"])
    boxes = "document.querySelector('.graph[data-side=after]').dataset.boxes"
    page.press("c")
    page.wait(f"Number({boxes}) > arguments[0]", int(folded["boxes"]))
    page.press("c")
    page.wait(f"{boxes} === arguments[0]", folded["boxes"])
    page.press("l")
    page.wait(f"Number({boxes}) > arguments[0]", int(folded["boxes"]))
    page.press("l")
    page.wait(f"{boxes} === arguments[0]", folded["boxes"])
    page.press("/")
    page.press("ADD")
    for _ in range(20):
        page.press(key("ENTER"))
        if page.texts("#expand"):
            break
    assert "alike" in page.text("#expand")
    page.press(key("ESCAPE"))
    page.click("#expand")
    page.wait(f"Number({boxes}) > arguments[0]", int(folded["boxes"]))


def test_lines_fold_and_unfold(page: Page) -> None:
    page.go("#/schedule/0")
    plain = page.graph()
    assert page.run("return document.getElementById('toggle-lines').ariaPressed") == "false"
    boxes = "Number(document.querySelector('.graph[data-side=after]').dataset.boxes)"
    page.press("g")
    page.wait(f"{boxes} < arguments[0]", int(plain["boxes"]))
    folded = int(page.graph()["boxes"])
    assert folded < int(plain["boxes"]) / 3
    page.press("/")
    page.press("THREEFRY")
    page.press(key("ENTER"))
    # the box has the name of its line; the node that was looked for is shown
    assert page.text(".inspector-head strong") == "THREEFRY"
    assert "nodes of this line" in page.text("#expand")
    page.press(key("ESCAPE"))
    page.click("#expand")
    page.wait(f"{boxes} > arguments[0]", folded)
    page.press("g")
    page.wait(f"{boxes} === arguments[0]", int(plain["boxes"]))


def test_groups_of_lines_never_make_a_circle(driver: Any) -> None:
    """Over random graphs: each node is in one group, and groups stand after what they read."""
    rng = random.Random(7)
    code = (ROOT / "weft" / "viz" / "page" / "lines.js").read_text()
    driver.get("about:blank")
    for count in [*range(1, 30), 200, 200, 1000]:
        sources = [
            sorted(
                {rng.randrange(node) for _ in range(rng.choice((0, 1, 1, 2, 3)))} if node else ()
            )
            for node in range(count)
        ]
        graph = {
            "op": [0] * count,
            "origin": [rng.choice((-1, 0, 1, 2, node // 9)) for node in range(count)],
            "src": sources,
        }
        hidden = [not read and rng.random() < 0.5 for read in sources]
        groups = driver.execute_script(f"{code}\nreturn lineGroups(...arguments)", graph, hidden)
        place = {node: number for number, group in enumerate(groups) for node in group}
        assert sorted(place) == [node for node in range(count) if not hidden[node]]
        assert sum(map(len, groups)) == len(place)
        for node, number in place.items():
            assert all(place[read] <= number for read in sources[node] if not hidden[read])


def test_zoom_by_keys_and_wheel(page: Page) -> None:
    open_matmul(page)
    scale = "document.querySelector('.graph[data-side=after]').dataset.scale"
    page.press("+")
    first = float(page.wait(scale))
    page.press("-")
    page.wait(f"Number({scale}) < arguments[0]", first)
    page.run(
        "document.querySelector('.graph[data-side=after] canvas').dispatchEvent("
        "new WheelEvent('wheel', {deltaY: -400, cancelable: true}))"
    )
    page.wait(f"Number({scale}) > arguments[0]", first)


def test_code_side_by_side_with_one_colour_per_axis(page: Page) -> None:
    open_matmul(page)
    page.press("3")
    page.wait("document.querySelectorAll('.code-line').length > 20")
    titles = page.texts(".pane-title")
    assert titles == ["Program", "LLVM IR", "Assembly"]
    assert "for r" in page.text("#pane-program")
    assert "define void" in page.text("#pane-source")
    assert page.text("#pane-assembly").count("\n") > 10
    chips = page.texts(".chip")
    assert any("reduce" in chip for chip in chips)
    colours = page.run(
        "const name = arguments[0]; const seen = {};"
        "for (const e of document.querySelectorAll(`[data-axis='${name}']`))"
        "  seen[e.closest('.pane')?.id ?? 'chips'] = getComputedStyle(e).color;"
        "return seen",
        chips[0].split()[0],
    )
    assert {"chips", "pane-program", "pane-source"} <= set(colours)
    assert len(set(colours.values())) == 1


def test_back_from_the_code_the_steps_are_listed(page: Page) -> None:
    open_matmul(page)
    steps = page.texts(".step")
    page.press("3")
    page.wait("document.querySelectorAll('.code-line').length > 20")
    page.press("2")
    page.wait("document.querySelectorAll('.step').length > 8")
    assert page.texts(".step") == steps


def test_a_reader_may_go_on_before_a_view_is_there(page: Page) -> None:
    """Views that were left while they were opening neither fail nor come back."""
    ways = ["#/item/0", "#/item/1/graph/0", "#/item/1/graph/1", "#/item/1/code", "#/timeline"]
    for last in ("#/item/1/graph/1", "#/item/1/code", "#/timeline", "#/item/2", "#/overview"):
        page.run(
            "for (const one of arguments[0]) {"
            "  location.hash = one;"
            "  dispatchEvent(new HashChangeEvent('hashchange'));"
            "  for (const key of ['ArrowRight', 's', 's', '+'])"
            "    dispatchEvent(new KeyboardEvent('keydown', { key }));"
            "}",
            [*ways, last],
        )
        shown = {"timeline": ".timeline", "overview": ".overview", "code": ".code-line"}
        wanted = shown.get(last.rsplit("/", 1)[-1], ".graphs[data-ready]")
        page.wait(f"document.querySelectorAll('#main {wanted}').length > 0")
        page.go(last)
        page.wait("location.hash === arguments[0]", last)
        assert page.texts("#main h1, #main .error") in ([], ["Timeline"], page.texts("h1.mono"))


def test_the_timeline_has_lanes_and_leads_to_kernels(page: Page) -> None:
    page.press("4")
    lanes = page.wait("document.getElementById('timeline')?.dataset.lanes").split("|")
    assert lanes == ["Compiler", "CPU", "CPU memory"]
    assert int(page.run("return document.getElementById('timeline').dataset.launches")) > 5
    page.press("+")
    page.wait("document.querySelector('.timeline-area').dataset.width")
    page.press("f")
    # somewhere in the lane of the device there is a kernel
    page.run(
        "const canvas = document.querySelector('.timeline canvas');"
        "const { left, top } = canvas.getBoundingClientRect();"
        "const tip = document.querySelector('.tip');"
        "for (let x = 130; x < canvas.clientWidth; x += 1) {"
        "  for (let y = 60; y < 180; y += 12) {"
        "    const place = { clientX: left + x, clientY: top + y };"
        "    canvas.dispatchEvent(new PointerEvent('pointermove', place));"
        "    if (tip.innerText.includes('Click to open')) return;"
        "} }"
    )
    assert "Click to open" in page.text(".tip")


def test_themes_follow_the_system_and_the_button(page: Page) -> None:
    background = "getComputedStyle(document.body).backgroundColor"
    page.prefer("light")
    light = page.run(f"return {background}")
    page.prefer("dark")
    page.wait(f"{background} !== arguments[0]", light)
    page.click("#theme")
    page.wait(f"{background} === arguments[0]", light)
    page.open()
    assert page.run(f"return {background}") == light
    page.run("localStorage.clear()")
    page.prefer("light")


def test_every_kernel_and_schedule_opens(page: Page) -> None:
    hashes = page.run("return [...document.querySelectorAll('#kernels a')].map((e) => e.hash)")
    assert len(hashes) > 6
    for one in hashes:
        page.go(one)
        page.wait("document.querySelector('.row.selected')?.hash === arguments[0]", one)
        page.wait("document.querySelector('.graphs')?.dataset.ready")
        assert int(page.graph()["nodes"]) > 0
    assert not page.texts(".error")


def test_help_lists_the_keys(page: Page) -> None:
    page.press("?")
    page.wait("document.getElementById('help').open")
    assert "fold repeated subgraphs" in page.text("#help")
    page.press(key("ESCAPE"))


def test_wrong_addresses_lead_back(page: Page) -> None:
    page.go("#/item/99999")
    page.wait("location.hash === '#/overview'")
    page.go("#/item/0/graph/77/88/99")
    page.wait("document.querySelector('.step-card .error') !== null")
    page.errors()


# ------------------------------------------------------------ made-up traces


def test_text_of_a_trace_is_never_markup(driver: Any, tmp_path: Path) -> None:
    with serving(make_trace(tmp_path / "evil.weft", kernels=60, name=EVIL)) as server:
        page = Page(driver, server)
        page.open()
        for one in (
            "#/overview",
            "#/item/0",
            "#/item/0/graph/0/0/1",
            "#/item/0/code",
            "#/timeline",
        ):
            page.go(one)
            page.wait("document.querySelectorAll('#main *').length > 5")
            page.wait("!document.querySelector('.empty')")
            injected = "document.querySelectorAll('img, #main script, [onerror]').length"
            assert page.run(f"return {injected}") == 0
            assert page.run("return window.pwned") is None
        page.go("#/item/0")
        assert "onerror" in page.text(".title-line")
        assert page.errors() == []


def test_five_thousand_kernels_and_ten_thousand_nodes(driver: Any, tmp_path: Path) -> None:
    path = make_trace(tmp_path / "large.weft", kernels=5000, nodes=10_000, steps=2000)
    with serving(path) as server:
        page = Page(driver, server)
        page.open()
        assert "5,000 kernels" in page.text(".sidebar-foot")
        assert len(page.texts("#kernels a")) < 60
        page.run(
            "const list = document.getElementById('kernels'); list.scrollTop = list.scrollHeight"
        )
        page.wait("document.querySelector('#kernels a[data-item=\"4999\"]') !== null")
        page.click("#filter")
        page.press("kernel_4321")
        page.wait("document.querySelector('.sidebar-foot').dataset.shown === '1'")
        page.click(".row.kernel")
        graph = page.graph()
        assert int(graph["nodes"]) > 9_900 and graph["engine"] == "layers"
        assert len(page.texts(".step")) < 60
        page.press("c")
        page.press("+")
        page.press("f")
        page.press("/")
        page.press("kernel")
        page.wait("/found/.test(document.getElementById('found').innerText)")
        page.press(key("ENTER"))
        assert "ADD" in page.text(".inspector") or "MUL" in page.text(".inspector")
        page.press(key("ESCAPE"))
        page.press("4")
        page.wait("document.getElementById('timeline')?.dataset.launches === '5000'")
        assert page.errors() == []


def test_a_program_that_computed_nothing(driver: Any, tmp_path: Path) -> None:
    with recording(tmp_path / "nothing.weft"):
        pass
    with serving(tmp_path / "nothing.weft") as server:
        page = Page(driver, server)
        page.open()
        assert "Nothing was computed" in page.text("#main")
        page.press("2")
        page.press("4")
        page.wait("document.getElementById('timeline') !== null")
        assert page.errors() == []


def test_a_server_that_is_gone_is_said_to_be(driver: Any, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "weft", "viz", str(make_trace(tmp_path / "gone.weft"))]
    with Child(command, cwd=ROOT, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None
        url = running.stdout.readline().split()[-1]
        page = Page(driver, SimpleNamespace(url=url))
        page.open()
        running.terminate()
    page.go("#/item/0")
    page.wait("document.getElementById('main').innerText.includes('weft viz')")


# ------------------------------------------------------------ ResNet-50


@pytest.mark.timeout(3600)
def test_a_training_step_of_resnet_50(driver: Any, tmp_path: Path) -> None:
    path = tmp_path / "resnet.weft"
    # this is about what is shown of a program, not about proofs of its kernels
    environment = {**os.environ, "VIZ": "-1", "VIZ_TRACE": str(path), "SPEC": "0"}
    command = [sys.executable, "-m", "test.viz.resnet", "64"]
    subprocess.run(command, cwd=ROOT, env=environment, check=True, timeout=1800)
    with serving(path) as server:
        page = Page(driver, server)
        page.open()
        assert "loss.backward()" in page.text(".overview")
        schedules = page.run(
            "return fetch('api/index').then((r) => r.json()).then((i) => i.schedules)"
        )
        largest = max(range(len(schedules)), key=lambda number: schedules[number]["count"])
        assert schedules[largest]["count"] > 200
        passes = page.run(
            f"return fetch('api/unit/{schedules[largest]['unit']}').then((r) => r.json())"
        )
        # the page opens at the first pass that changes something
        first = [found["same"] for found in passes].index(False)
        page.go(f"#/schedule/{largest}")
        whole = page.at_step(f"{first}/-1/0")
        assert int(whole["nodes"]) > 3000
        # sixteen blocks of some lines, and their gradients
        assert int(whole["boxes"]) < 600
        for step in range(3):
            page.press(key("ARROW_RIGHT"))
            page.at_step(f"{first}/0/{step}")
            assert ".py:" in page.text(".step.rule.selected")
            assert "→" in page.text(".change")
        page.press("/")
        page.press("REDUCE_AXIS")
        page.wait("/\\d found/.test(document.getElementById('found').innerText)")
        page.press(key("ENTER"))
        assert "REDUCE_AXIS" in page.text(".inspector")
        page.press(key("ESCAPE"))
        page.click("#nav-overview")
        page.click(".bars a")
        page.graph()
        page.press("3")
        page.wait("document.querySelectorAll('.code-line').length > 20")
        page.press("4")
        page.wait("Number(document.getElementById('timeline')?.dataset.launches) > 200")
        assert page.errors() == []
        if PICTURES:
            take_pictures(page, largest, Path(PICTURES))


# a kernel that took a while, with some steps to show, and not too large for a picture
PICTURED = """
return fetch('api/index').then((r) => r.json()).then((index) => {
  const units = new Map(index.units.map((unit) => [unit.key, unit]));
  const fits = index.items.map((item, number) => ({ ...item, number, unit: units.get(item.key) }))
    .filter(({ unit, name }) => name.startsWith('r_') && unit?.steps > 2 && unit.nodes < 3000);
  return fits.reduce((best, item) => (item.seconds > best.seconds ? item : best)).number;
})"""


def take_pictures(page: Page, schedule: int, folder: Path) -> None:
    """The views of the documentation, in both sizes and both themes."""
    folder.mkdir(parents=True, exist_ok=True)
    for width, height in ((1280, 800), (1920, 1080)):
        for scheme in ("light", "dark"):
            page.size(width, height)
            page.prefer(scheme)
            page.open()
            kernel = page.run(PICTURED)
            page.go(f"#/item/{kernel}")
            page.graph()
            page.wait("document.querySelector('.step.rule') !== null")
            base = page.run("return location.hash")
            steps = page.run("return [...document.querySelectorAll('.step.rule')].at(1).hash")
            for name, place in (
                ("overview", "#/overview"),
                ("rewrites", steps),
                ("code", f"{base}/code"),
                ("schedule", f"#/schedule/{schedule}"),
                ("timeline", "#/timeline"),
            ):
                page.go(place)
                if name in ("rewrites", "schedule"):
                    page.wait("document.querySelector('.graphs')?.dataset.ready")
                page.run("return new Promise((done) => setTimeout(done, 1500))")
                page.driver.save_screenshot(str(folder / f"{name}-{width}-{scheme}.png"))
