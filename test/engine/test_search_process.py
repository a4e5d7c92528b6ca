"""The process that tries candidates: answers, deaths, new beginnings."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from weft import Device
from weft.engine import search_process
from weft.engine.search_process import Lost, TryingProcess

ECHO = """
import json, os, sys
for line in sys.stdin:
    request = json.loads(line)
    if request["ask"] == "die":
        os._exit(7)
    if request["ask"] == "sleep":
        import time
        time.sleep(60)
    print(json.dumps({"target": "echo", **request["with"]}), flush=True)
"""


@pytest.fixture
def start(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], TryingProcess]]:
    monkeypatch.setattr(search_process, "PROGRAM", ECHO)
    made: list[TryingProcess] = []

    def make() -> TryingProcess:
        made.append(TryingProcess(Device.DEFAULT, 1))
        return made[-1]

    yield make
    for process in made:
        process.end()


def test_requests_are_answered_in_order(start: Callable[[], TryingProcess]) -> None:
    process = start()
    assert [process.ask("echo", 30.0, number=i)["number"] for i in range(3)] == [0, 1, 2]


def test_a_process_that_dies_is_replaced(start: Callable[[], TryingProcess]) -> None:
    process = start()
    with pytest.raises(Lost, match="code 7"):
        process.ask("die", 30.0)
    assert process.ask("echo", 30.0, number=5)["number"] == 5


def test_a_late_answer_is_no_answer(start: Callable[[], TryingProcess]) -> None:
    process = start()
    process.ask("echo", 30.0)
    with pytest.raises(Lost, match="no answer in 0.2 seconds"):
        process.ask("sleep", 0.2)
    assert process.ask("echo", 30.0, number=6)["number"] == 6
