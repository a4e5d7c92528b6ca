"""A share of the damaged plans, weights, modules and calls of `python -m test.export.mutations`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from test.export import mutations
from test.optional import need_program


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> mutations.Built:
    """The tiny net in C, under the sanitizers."""
    need_program("cc")
    return mutations.build(mutations.tiny(), tmp_path_factory.mktemp("mutations"))


def test_changed_plans_are_refused_or_whole(tmp_path: Path, monkeypatch: Any) -> None:
    need_program("cc")
    monkeypatch.setattr(mutations, "MOST_BUILT", 1)
    found = mutations.try_plans(mutations.tiny(), 200, 1, tmp_path)
    assert not mutations.wrong(found) and found["refused"] > 50 and found["run"], found


@pytest.mark.xdist_group("export mutations")
def test_damaged_weights_are_refused(built: mutations.Built) -> None:
    found = mutations.try_weights(built, 150, 2)
    assert not mutations.wrong(found) and len(found) == 1, found


@pytest.mark.xdist_group("export mutations")
def test_wrong_calls_are_codes(built: mutations.Built) -> None:
    found = mutations.try_calls(built, 20_000, 3)
    # all codes but those of memory and of weights
    assert not mutations.wrong(found) and len(found) == 6, found


def test_damaged_modules_are_errors_of_the_loader(tmp_path: Path) -> None:
    need_program("node")
    found = mutations.try_modules(mutations.tiny(), 100, 4, tmp_path)
    assert not mutations.wrong(found) and found.total() == 100, found


def test_wrong_inputs_are_errors_of_the_loader(tmp_path: Path) -> None:
    need_program("node")
    found = mutations.try_inputs(mutations.tiny(), 5000, 5, tmp_path)
    assert not mutations.wrong(found) and found["an answer"], found
