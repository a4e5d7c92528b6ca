"""docs/api.md is what `python docs/api.py` writes, and names every public method."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from types import ModuleType

from weft import Tensor

DOCS = Path(__file__).parent.parent.parent / "docs"


def _generator() -> ModuleType:
    found = importlib.util.spec_from_file_location("weft_docs_api", DOCS / "api.py")
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


def test_reference_is_current() -> None:
    page = _generator().api_page()
    assert (DOCS / "api.md").read_text(encoding="utf-8") == page, "run python docs/api.py"


def test_reference_has_every_method() -> None:
    text = (DOCS / "api.md").read_text(encoding="utf-8")
    named = set(re.findall(r"^#### `(\w+)", text, re.MULTILINE))
    missing = [name for name in dir(Tensor) if not name.startswith("_") and name not in named]
    assert not missing, f"docs/api.md does not name {missing}"
