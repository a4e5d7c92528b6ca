"""A machine with nothing optional: `pytest -p test.bare` refuses to import what weft does not need.

Every package but NumPy, llvmlite and those of pytest is blocked, as if it were not installed. All
tests are collected, which imports every test module; one in `SHARE` of them runs.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import Any

import pytest

NEEDED = {"numpy", "llvmlite"}
# pytest, its workers and timeouts, what those are built of; a plugin that waits for its package
OF_PYTEST = {
    *("pytest", "_pytest", "pluggy", "iniconfig", "packaging", "pygments", "exceptiongroup"),
    *("xdist", "execnet", "pytest_timeout", "_hypothesis_pytestplugin", "_hypothesis_globals"),
}
# How many tests run: enough to meet every folder, few enough for a minute.
SHARE = 16


class Blocked(MetaPathFinder):
    """Finds nothing, loudly, for what lies among the installed packages and is not needed."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if path is not None or name in NEEDED | OF_PYTEST | sys.stdlib_module_names:
            return None
        if _is_installed(name):
            raise ModuleNotFoundError(f"{name} is blocked by test.bare", name=name)
        return None


def _is_installed(name: str) -> bool:
    spec = PathFinder.find_spec(name)
    if spec is None:
        return False
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    return any("site-packages" in place or "dist-packages" in place for place in places)


def block() -> None:
    """From now on in this process. Not on import: every run of the tests imports this file."""
    sys.meta_path.insert(0, Blocked())


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests() -> None:
    """Before the first file of the tests is imported."""
    block()


def pytest_configure(config: pytest.Config) -> None:
    """This plugin takes its package for granted when the run ends."""
    plugin = config.pluginmanager.get_plugin("hypothesispytest")
    if plugin is not None:
        config.pluginmanager.unregister(plugin)


def pytest_collection_modifyitems(config: Any, items: list[pytest.Item]) -> None:
    """Keep a fixed share."""
    kept = [item for item in items if zlib.crc32(item.nodeid.encode()) % SHARE == 0]
    chosen = set(kept)
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = kept
