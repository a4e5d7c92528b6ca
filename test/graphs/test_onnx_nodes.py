"""Every backend test of the `onnx` package: those of operators, and small models of PyTorch."""

from __future__ import annotations

from pathlib import Path

import pytest

from test.graphs.node_tests import REASONS, cases, run_case
from test.optional import found, need

# version that the counts of docs/onnx.md are for; others have other tests
COUNTED = ("1.19.", 1615)
_PACKAGE = found("onnx")
IS_COUNTED = _PACKAGE is not None and _PACKAGE.__version__.startswith(COUNTED[0])
NODES = sorted(cases("node")) if IS_COUNTED else []
OTHERS = [
    (kind, name)
    for kind in ("simple", "pytorch-converted", "pytorch-operator")
    for name in (sorted(cases(kind)) if IS_COUNTED else [])
]
# each n-th model is called until it is replayed: that costs a capture
REPLAYED = 8


@pytest.mark.parametrize("name", [name for name in NODES if name not in REASONS])
def test_node(name: str) -> None:
    run_case(cases("node")[name], runs=3 if NODES.index(name) % REPLAYED == 0 else 1)


@pytest.mark.parametrize("kind, name", OTHERS)
def test_small_model(kind: str, name: str) -> None:
    run_case(cases(kind)[name])


def test_the_page_names_what_does_not_pass_and_why() -> None:
    page = (Path(__file__).parents[2] / "docs" / "onnx.md").read_text(encoding="utf-8")
    for name, reason in REASONS.items():
        assert f"| `{name}` | {reason} |" in page
    version, count = COUNTED
    assert f"{count - len(REASONS):,} of {count:,}" in page


def test_the_counts_are_those_of_the_package() -> None:
    version, count = COUNTED
    if not need("onnx").__version__.startswith(version):
        pytest.skip(f"onnx is not of version {version}x: .venv/bin/pip install -e '.[onnx]'")
    assert len(NODES) == count and set(REASONS) <= set(NODES)
