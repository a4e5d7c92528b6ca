"""migrating.md: every name in it exists, on both sides, none is left out, and its code runs."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import weft
from test.optional import need
from weft import Tensor, nn

torch = need("torch")

PATH = Path(__file__).parent.parent / "docs" / "migrating.md"
PAGE = PATH.read_text(encoding="utf-8")
NAME = re.compile(r"^(torch|tinygrad|weft|nn|Tensor)(\.\w+)*$")


def rows() -> list[tuple[str, str, str]]:
    """(there, here, the line) of the tables, for lines whose cells hold a name."""
    found = []
    for line in PAGE.splitlines():
        cells = [cell.strip().strip("`") for cell in line.split("|")[1:-1]]
        if line.startswith("| `"):
            found.append((cells[0], cells[1], line))
    return found


def listed(heading: str) -> list[str]:
    """The names of the paragraph after a mark."""
    paragraph = PAGE.split(f"<!-- {heading} -->\n")[1].split("\n\n")[0]
    return [name for name in re.findall(r"`(\w+)`", paragraph) if name != "Lazy"]


def resolve(name: str) -> Any:
    """What a dotted name means."""
    roots = {"torch": torch, "weft": weft, "nn": nn, "Tensor": Tensor}
    first, *rest = name.split(".")
    if first == "tinygrad":
        roots["tinygrad"] = need("tinygrad")
        for module in ("nn.state", "nn.optim", "nn.datasets", "helpers"):
            need(f"tinygrad.{module}")
    value = roots[first]
    for part in rest:
        value = getattr(value, part)
    return value


def test_rows_are_found() -> None:
    assert len(rows()) > 150


@pytest.mark.parametrize("row", rows(), ids=[row[0] for row in rows()])
def test_both_sides_of_a_row_exist(row: tuple[str, str, str]) -> None:
    there, here, line = row
    resolve(there)
    if here:
        resolve(here)
    for name in re.findall(r"`([\w.]+)`", line):
        if NAME.match(name):
            resolve(name)


def test_names_in_the_text_exist() -> None:
    for name in re.findall(r"`([\w.]+)`", PAGE):
        if NAME.match(name) and not name.startswith("tinygrad"):
            resolve(name)


def public(thing: Any) -> set[str]:
    return {name for name in dir(thing) if not name.startswith("_")}


OURS = public(Tensor)
METHODS = OURS & public(torch.Tensor)
FUNCTIONS = (OURS - METHODS) & public(torch)
FUNCTIONALS = (OURS - METHODS - FUNCTIONS) & public(torch.nn.functional)


@pytest.mark.parametrize(
    ("heading", "wanted"),
    [
        ("same methods", METHODS),
        ("same functions", FUNCTIONS),
        ("same functionals", FUNCTIONALS),
    ],
)
def test_lists_of_the_same_names_are_complete(heading: str, wanted: set[str]) -> None:
    names = listed(heading)
    assert names == sorted(names) and set(names) == wanted


def subclasses(place: Any, base: type) -> set[str]:
    found = {name: getattr(place, name) for name in public(place)}
    return {n for n, c in found.items() if inspect.isclass(c) and issubclass(c, base)}


@pytest.mark.parametrize(
    ("prefix", "theirs", "lists"),
    [
        ("torch.nn", subclasses(torch.nn, torch.nn.Module), ("same layers", "missing layers")),
        (
            "torch.optim",
            subclasses(torch.optim, torch.optim.Optimizer),
            ("missing optimisers",),
        ),
        (
            "torch.optim.lr_scheduler",
            subclasses(torch.optim.lr_scheduler, torch.optim.lr_scheduler.LRScheduler),
            ("missing schedules",),
        ),
    ],
)
def test_every_class_of_pytorch_is_mentioned(
    prefix: str, theirs: set[str], lists: tuple[str, ...]
) -> None:
    mentioned = {name for heading in lists for name in listed(heading)}
    tables = {row[0] for row in rows()}
    missing = {
        name
        for name in theirs - mentioned
        if f"{prefix}.{name}" not in tables and not name.startswith("Lazy")
    }
    assert not missing
    absent = {name for heading in lists if "missing" in heading for name in listed(heading)}
    place = {"torch.nn": nn, "torch.optim": nn.optim}.get(prefix, nn.schedule)
    assert not {name for name in absent if hasattr(place, name)}, "no longer missing"


def test_every_layer_of_weft_is_mentioned() -> None:
    names = set(re.findall(r"\b\w+\b", PAGE))
    for module in (nn, nn.optim, nn.schedule, nn.state, nn.torch):
        assert set(module.__all__) <= names, module.__name__


def test_methods_that_tinygrad_has_alone() -> None:
    tinygrad = need("tinygrad")
    theirs = {name for name in public(tinygrad.Tensor) if not name.startswith("_")}
    tables = {row[0].rsplit(".", 1)[1] for row in rows() if row[0].startswith("tinygrad.Tensor.")}
    assert theirs - OURS - tables == set(listed("missing in tinygrad"))


X = np.random.default_rng(0).standard_normal((2, 8, 6, 4)).astype("float32")
F = torch.nn.functional
CLAIMS: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any]]] = {
    "gelu": (lambda x: x.gelu(), lambda x: F.gelu(x, approximate="tanh")),
    "prelu": (lambda x: (x > 0).where(x, x * 0.3), lambda x: F.prelu(x, torch.tensor([0.3]))),
    "tanhshrink": (lambda x: x - x.tanh(), F.tanhshrink),
    "glu": (
        lambda x: (lambda a, b: a * b.sigmoid())(*x.chunk(2, -1)),
        lambda x: F.glu(x, -1),
    ),
    "softmax 2d": (lambda x: x.softmax(1), torch.nn.Softmax2d()),
    "max pool 1d": (
        lambda x: x[:, :, :, 0].max_pool2d((3,)),
        lambda x: F.max_pool1d(x[:, :, :, 0], 3),
    ),
    "avg pool 3d": (
        lambda x: x.unsqueeze(1).avg_pool2d((3, 3, 3)),
        lambda x: F.avg_pool3d(x.unsqueeze(1), 3),
    ),
    "adaptive pool": (
        lambda x: x.mean((2, 3)),
        lambda x: torch.nn.AdaptiveAvgPool2d(1)(x)[:, :, 0, 0],
    ),
    "pixel shuffle": (
        lambda x: x.rearrange("b (c i j) h w -> b c (h i) (w j)", i=2, j=2),
        torch.nn.PixelShuffle(2),
    ),
    "channel shuffle": (
        lambda x: x.rearrange("b (g c) h w -> b (c g) h w", g=2),
        torch.nn.ChannelShuffle(2),
    ),
    "cosine similarity": (
        lambda x: (x.normalize() * (x + 1).normalize()).sum(1),
        lambda x: F.cosine_similarity(x, x + 1),
    ),
    "nearest": (
        lambda x: x.interpolate((12, 8), mode="nearest"),
        torch.nn.UpsamplingNearest2d((12, 8)),
    ),
    "bilinear": (
        lambda x: x.interpolate((12, 8), align_corners=True),
        torch.nn.UpsamplingBilinear2d((12, 8)),
    ),
    "linear": (
        lambda x: x.linear(Tensor(X[0, :3, 0]).T, Tensor([1.0, 2.0, 3.0])),
        lambda x: F.linear(x, torch.tensor(X[0, :3, 0]), torch.tensor([1.0, 2.0, 3.0])),
    ),
    "layer norm": (lambda x: x.layernorm(), lambda x: F.layer_norm(x, (4,))),
    "max of an axis": (lambda x: x.max(1), lambda x: x.max(1).values),
    "remainder": (lambda x: x % 0.5, lambda x: torch.remainder(x, 0.5)),
    "cross entropy": (
        lambda x: x[:, :, 0, 0].cross_entropy(Tensor([1, 7])),
        lambda x: F.cross_entropy(x[:, :, 0, 0], torch.tensor([1, 7])),
    ),
    "divergence": (
        lambda x: (lambda p, q: (p * (p.log() - q)).sum(-1).mean())(
            x.softmax(-1), (x * 2).log_softmax(-1)
        ),
        lambda x: F.kl_div((x * 2).log_softmax(-1), x.softmax(-1), reduction="none").sum(-1).mean(),
    ),
}


@pytest.mark.parametrize("name", CLAIMS)
def test_what_the_notes_say_is_true(name: str) -> None:
    ours, theirs = CLAIMS[name]
    wanted = theirs(torch.tensor(X)).numpy()
    found = ours(Tensor(X)).numpy()
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, rtol=1.3e-6, atol=1e-5)
