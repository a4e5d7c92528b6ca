"""The web writer: one page that runs a model on WebGPU, or as WebAssembly where there is none.

In: a captured function and what the page shall show. Out: HTML with everything inside: weights
once, kernels in WGSL, a WebAssembly module, the scripts of `page/`.
Sits over the other writers; `export.web` calls it.
Invariant: a page asks for nothing from anywhere. What WebGPU cannot run is said in the page's
badge, and runs as WebAssembly.
"""

from __future__ import annotations

import base64
import html
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import resources
from typing import Any

from weft.errors import ArgumentError, CompileError
from weft.export.build import build_plan
from weft.export.capture import Captured
from weft.export.gpu_plan import gpu_target, write_gpu
from weft.export.plan import CONSTANT, Plan
from weft.export.write_wasm import WASM, write_wasm_apart
from weft.helpers import round_up

VIEWS = ("draw", "image", "text", "plain")
_ALIGNMENT = 256


@dataclass(frozen=True)
class PageOptions:
    """What a page shows. `scale` multiplies pixels, which are 0 to 1; then `mean` is taken away and
    `std` divided by, channel by channel. `margin` is left around a drawing."""

    title: str
    about: str = ""
    view: str | None = None
    labels: tuple[str, ...] = ()
    scale: float = 1.0
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()
    margin: float | None = None
    prompt: str = ""


@dataclass
class _Weights:
    """The constants of all plans of a page, each once."""

    data: bytearray = field(default_factory=bytearray)
    places: dict[bytes, int] = field(default_factory=dict)

    def place_all(self, plan: Plan) -> dict[int, int]:
        """Where each constant of a plan stands."""
        found = {}
        for number, memory in enumerate(plan.memories):
            if memory.kind != CONSTANT:
                continue
            assert memory.contents is not None
            if memory.contents not in self.places:
                self.places[memory.contents] = len(self.data)
                self.data += memory.contents
                self.data += bytes(round_up(len(self.data), _ALIGNMENT) - len(self.data))
            found[number] = self.places[memory.contents]
        return found


def write_web(captured: Captured, options: PageOptions) -> str:
    """The text of the page."""
    weights = _Weights()
    plan = build_plan(captured, WASM)
    view, labels = _view(plan, options)
    module, segments = write_wasm_apart(plan)
    places = weights.place_all(plan)
    module_weights = [
        [address, places[number], plan.memories[number].nbytes]
        for number, address in segments.items()
    ]
    gpu: dict[str, Any] | None = None
    why_not = ""
    try:
        gpu_build = build_plan(captured, gpu_target())
        gpu_places = weights.place_all(gpu_build)
        gpu = write_gpu(gpu_build, gpu_places, len(weights.data))
    except CompileError as error:
        why_not = str(error)
    margin = options.margin
    if margin is None:
        margin = 4 / 28 if plan.inputs[0].shape[-1:] >= (20,) else 0.0
    page = {
        "view": view,
        "labels": labels,
        "scale": options.scale,
        "mean": options.mean,
        "std": options.std,
        "margin": margin,
        "prompt": options.prompt,
        "isShares": _gives_shares(captured),
        "plan": gpu,
        "whyNot": why_not,
        "module": base64.b64encode(module).decode(),
        "moduleWeights": module_weights,
        "weights": base64.b64encode(bytes(weights.data)).decode(),
    }
    return _page(page, options, plan)


def _gives_shares(captured: Captured) -> bool:
    """Whether the scores of the call that was captured are shares of one."""
    found = captured.results[0][1].numpy()
    return bool(found.min() >= 0 and abs(float(found.sum()) - 1) < 1e-3)


def _view(plan: Plan, options: PageOptions) -> tuple[str, list[str]]:
    """What the page shows: as asked, or by the shapes of what the model takes and gives."""
    view = options.view
    shape = plan.inputs[0].shape
    if view is None:
        is_image = len(plan.inputs) == 1 and len(shape) >= 3 and not plan.sizes
        if is_image and len(plan.outputs) == 1:
            view = {1: "draw", 3: "image"}.get(shape[-3], "plain")
        elif options.labels and len(plan.inputs) == len(plan.sizes) == 1:
            view = "text"
        else:
            view = "plain"
    if view not in VIEWS:
        raise ArgumentError(f"a page is one of {', '.join(VIEWS)}, found {view!r}")
    _check_view(plan, view)
    count = plan.memories[plan.outputs[0].memory].size
    labels = list(options.labels) or [str(number) for number in range(min(count, 1000))]
    is_picture = view == "image" and len(plan.outputs[0].shape) >= 3
    if view != "plain" and not is_picture and len(labels) != count:
        raise ArgumentError(f"the model gives {count} scores, found {len(labels)} labels")
    return view, labels


def _check_view(plan: Plan, view: str) -> None:
    inputs = [(v.shape, plan.memories[v.memory].dtype.kind) for v in plan.inputs]
    wanted = {
        "draw": "one float image [..., 1, height, width]",
        "image": "one float image [..., channels, height, width]",
        "text": "one int token and one size, the position",
    }
    is_good = len(inputs) == 1 and len(plan.outputs) >= 1
    if view in ("draw", "image"):
        shape, kind = inputs[0]
        is_good = is_good and kind == "float" and len(shape) >= 2 and not plan.sizes
        is_good = is_good and all(isinstance(size, int) for size in shape)
    elif view == "text":
        size = plan.memories[plan.inputs[0].memory].size
        is_good = is_good and inputs[0][1] == "int" and size == 1 and len(plan.sizes) == 1
    if not is_good and view != "plain":
        raise ArgumentError(f'a page of the kind "{view}" takes {wanted[view]}; try view="plain"')


def _read(name: str) -> str:
    return (resources.files("weft.export") / "page" / name).read_text(encoding="utf-8")


def _page(page: dict[str, Any], options: PageOptions, plan: Plan) -> str:
    # `</script>` inside of a string would end the script
    data = json.dumps(page).replace("</", "<\\/")
    loader = _read("loader.js").replace("export class", "class").replace("export async", "async")
    scripts = "\n".join([loader, _read("gpu.js"), _read("views.js"), _read("main.js")])
    count = _thousands(plan.weight_bytes)
    footer = f"{len(plan.kernels)} kernels, {count} of weights; written by weft"
    about = f'<p class="about">{html.escape(options.about)}</p>' if options.about else ""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            "<head>",
            '<meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{html.escape(options.title)}</title>",
            f"<style>\n{_read('page.css')}</style>",
            "</head>",
            "<body>",
            "<main>",
            f"<header><h1>{html.escape(options.title)}</h1>"
            '<span class="badge" id="backend">loading</span></header>',
            about,
            '<section class="card" id="card"></section>',
            f"<footer>{footer}</footer>",
            "</main>",
            f'<script type="module">\nconst PAGE = {data};\n{scripts}</script>',
            "</body>",
            "</html>",
            "",
        ]
    )


def _thousands(nbytes: int) -> str:
    return f"{nbytes / 1e6:.1f} MB" if nbytes >= 1e6 else f"{nbytes / 1e3:.0f} kB"


def page_options(
    title: str,
    about: str,
    view: str | None,
    labels: Sequence[str] | None,
    **rest: Any,
) -> PageOptions:
    """Options as users give them."""
    names = tuple([str(label) for label in labels or ()])
    return PageOptions(title, about, view, names, **rest)
