"""Who moves what: devices of this process, of others, and of everybody."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from weft.collective import Message
from weft.device import Device
from weft.engine import ranks


class Told:
    """Ranks that note what they are asked to exchange: (sender, receiver) of each message."""

    count = 2

    def __init__(self) -> None:
        self.said: list[Any] = []

    def exchange(self, messages: list[Message]) -> None:
        self.said.append([(message.sender, message.receiver) for message in messages])


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> Told:
    told = Told()
    queue = SimpleNamespace(copy=lambda *_: told.said.append("copy"))
    devices = {
        "own": SimpleNamespace(rank=None, is_here=True, queue=queue, ranks=None),
        "mine": SimpleNamespace(rank=0, is_here=True, queue=queue, ranks=told),
        "theirs": SimpleNamespace(rank=1, is_here=False, queue=queue, ranks=told),
    }
    monkeypatch.setattr(type(Device), "__getitem__", lambda self, name: devices[name])
    return told


def pair(target: str, source: str) -> Any:
    return SimpleNamespace(device=target), SimpleNamespace(device=source)


@pytest.mark.parametrize(
    ("target", "source", "wanted"),
    [
        ("own", "mine", [[(0, 0), (0, 1)]]),
        ("own", "theirs", [[(1, 0), (1, 1)]]),
        ("mine", "own", ["copy"]),
        ("theirs", "own", []),
        ("mine", "theirs", [[(1, 0)]]),
        ("theirs", "mine", [[(0, 1)]]),
        ("mine", "mine", ["copy"]),
        ("own", "own", ["copy"]),
    ],
)
def test_messages(target: str, source: str, wanted: list[Any], told: Told) -> None:
    ranks.transfer([pair(target, source)])
    assert told.said == wanted


def test_what_goes_between_processes_is_one_exchange(told: Told) -> None:
    ranks.transfer([pair("mine", "theirs"), pair("mine", "own"), pair("theirs", "mine")])
    assert told.said == ["copy", [(1, 0), (0, 1)]]


def test_what_is_absent_does_nothing() -> None:
    assert ranks.ABSENT([], {}, False, None) is None
