"""record.py: a recorder hears of its own thread, while it is installed."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from weft import Tensor
from weft.engine import record
from weft.uop.node import UOp


class Listener:
    def __init__(self) -> None:
        self.heard: list[str] = []
        self.random_slots: list[Any] = []
        self.pasts: list[Any] = []

    def before_realize(self, sink: UOp) -> None:
        self.heard.append("realize")

    def before_execute(self, prepared: Any, request: Any) -> None:
        self.heard.append("execute")

    def after_execute(self, nodes: dict[int, UOp]) -> None:
        self.heard.append("done")

    def drew(self, slot: int, words: int, key: tuple[int, int]) -> None:
        self.heard.append(f"drew {words}")

    def seeded(self, seed: int) -> None:
        self.heard.append(f"seed {seed}")

    def refuse(self, what: str) -> None:
        raise PermissionError(what)


def test_what_is_realized_is_told_in_order() -> None:
    listener = Listener()
    x = Tensor([1.0, 2.0]).realize()
    with record.recording(listener):
        (x + 1).realize()
    (x + 2).realize()
    assert listener.heard == ["realize", "execute", "done"]


def test_random_numbers_and_seeds_are_told() -> None:
    listener = Listener()
    with record.recording(listener):
        Tensor.manual_seed(3)
        Tensor.rand(4)
    assert listener.heard == ["seed 3", "drew 4"]


def test_reading_values_is_refused() -> None:
    with record.recording(Listener()), pytest.raises(PermissionError, match="reads the values"):
        Tensor([1.0, 2.0]).tolist()


def test_other_threads_are_not_heard() -> None:
    listener = Listener()
    with record.recording(listener):
        other = threading.Thread(target=lambda: (Tensor([1.0]) + 1).realize())
        other.start()
        other.join(60)
        assert record.active() is listener
    assert listener.heard == [] and record.active() is None


def test_nobody_listens_within_a_block_of_none() -> None:
    listener = Listener()
    x = Tensor([1.0]).realize()
    with record.recording(listener), record.recording(None):
        assert (x + 1).tolist() == [2.0]
    assert listener.heard == []


def test_listeners_are_counted_also_after_an_error() -> None:
    before = record.listeners
    with pytest.raises(KeyError), record.recording(Listener()):
        assert record.listeners == before + 1
        raise KeyError
    assert record.listeners == before
