"""Who moves what: devices of this process, of others, and of everybody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.device import Device
from weft.engine import ranks


class Told:
    """Notes messages."""

    def __init__(self) -> None:
        self.said: list[tuple[Any, ...]] = []

    def __getattr__(self, name: str) -> Any:
        return lambda *args: self.said.append((name, *args[1:]))


@pytest.mark.parametrize(
    ("target", "source", "wanted"),
    [
        ("own", "mine", [("copy",), ("broadcast", 0)]),
        ("own", "theirs", [("broadcast", 1)]),
        ("mine", "own", [("copy",)]),
        ("theirs", "own", []),
        ("mine", "theirs", [("receive", 1)]),
        ("theirs", "mine", [("send", 1)]),
        ("mine", "mine", [("copy",)]),
        ("own", "own", [("copy",)]),
    ],
)
def test_messages(
    target: str, source: str, wanted: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    told = Told()
    queue = SimpleNamespace(copy=lambda *_: told.said.append(("copy",)))
    devices = {
        "own": SimpleNamespace(rank=None, is_here=True, queue=queue, ranks=None),
        "mine": SimpleNamespace(rank=0, is_here=True, queue=queue, ranks=told),
        "theirs": SimpleNamespace(rank=1, is_here=False, queue=queue, ranks=told),
    }
    monkeypatch.setattr(type(Device), "__getitem__", lambda self, name: devices[name])
    ranks.transfer(SimpleNamespace(device=target), SimpleNamespace(device=source))  # type: ignore
    assert told.said == wanted


def test_what_is_absent_does_nothing() -> None:
    assert ranks.ABSENT([], {}, False, None) is None
