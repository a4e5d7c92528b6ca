"""live.py: objects are there as long as somebody else holds them."""

from __future__ import annotations

import gc

from weft.engine.live import LiveSet


class Thing:
    pass


def test_objects_come_in_the_order_they_were_added() -> None:
    found: LiveSet[Thing] = LiveSet()
    things = [Thing() for _ in range(5)]
    for thing in things:
        found.add(thing)
    assert list(found) == things and len(found) == 5


def test_the_end_of_an_object_takes_its_entry_along() -> None:
    found: LiveSet[Thing] = LiveSet()
    kept, lost = Thing(), Thing()
    found.add(kept)
    found.add(lost)
    del lost
    gc.collect()
    assert list(found) == [kept] and len(found) == 1


def test_objects_may_end_while_they_are_looked_at() -> None:
    found: LiveSet[Thing] = LiveSet()
    things = [Thing() for _ in range(3)]
    for thing in things:
        found.add(thing)
    seen = 0
    del thing
    for _ in found:
        seen += 1
        things.clear()
    assert 1 <= seen < 3


def test_one_is_removed_before_its_end_and_only_once() -> None:
    found: LiveSet[Thing] = LiveSet()
    thing = Thing()
    found.add(thing)
    found.remove(thing)
    found.remove(thing)
    assert not len(found)
