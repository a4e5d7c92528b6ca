"""Each module of engine, schedule and codegen has a test of its own name, in the same place."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("engine", "schedule", "codegen")
MODULES = sorted(
    path.relative_to(ROOT / "weft")
    for package in PACKAGES
    for path in (ROOT / "weft" / package).rglob("*.py")
    if path.name != "__init__.py"
)


@pytest.mark.parametrize("module", MODULES, ids=str)
def test_every_module_has_a_test_of_its_name(module: Path) -> None:
    expected = ROOT / "test" / module.parent / f"test_{module.name}"
    assert expected.exists(), f"weft/{module} has no {expected.relative_to(ROOT)}"
    assert "def test_" in expected.read_text(encoding="utf-8")
