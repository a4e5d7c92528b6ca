"""What code mentions, in every version of Python alike."""

from __future__ import annotations

from typing import Any

from weft.engine.jit.bytecode import mentions_of, nested_codes

config: Any = None
calls = 0


def test_names_by_how_they_are_used() -> None:
    outer: Any = None

    def f(x: Any) -> Any:
        global calls
        calls += 1
        config.log.append(x)
        config.table[x] = outer.rate
        config.last = getattr(outer, "mode")  # noqa: B009
        first, _ = config, 1
        return first.items_

    found = mentions_of(f.__code__)
    assert found.loaded_globals == {"config", "getattr"}
    assert found.stored_globals == {"calls"}
    assert found.loaded_free == {"outer"}
    assert {"log", "table", "rate", "items_"} <= found.loaded_attributes
    assert found.stored_attributes == {"last"}
    assert "mode" in found.strings
    # what is only added or written to is not looked into
    assert {"log", "table"}.isdisjoint(found.opened) and {"rate", "items_"} <= found.opened


def test_local_names_are_not_mentioned() -> None:
    def f(rate: Any) -> Any:
        log = rate.log
        return log

    found = mentions_of(f.__code__)
    assert not found.loaded_globals and found.loaded_attributes == {"log"}


def test_imports() -> None:
    def f() -> Any:
        from os import environ

        return environ

    found = mentions_of(f.__code__)
    assert found.imported == {"os"} and "environ" in found.loaded_attributes


def test_code_inside_of_code() -> None:
    def f(values: Any) -> Any:
        return sorted(values, key=lambda v: (lambda: v)())

    assert len(list(nested_codes(f.__code__))) == 2


def test_a_value_that_is_put_into_a_container_may_be_looked_into() -> None:
    def f(table: Any, key: Any) -> None:
        table[key] = config.rows
        config.columns[key] = 1

    found = mentions_of(f.__code__)
    assert "rows" in found.opened and "columns" not in found.opened
