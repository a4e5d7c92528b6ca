"""Scope: the names that executed code mentions, together."""

from __future__ import annotations

import functools
from typing import Any

from weft.engine.jit.scope import Scope, root_codes


def reads(config: Any) -> Any:
    return config.width + helper(config)


def helper(config: Any) -> Any:
    config.seen = True
    return config.table["depth"]


def scope_of(*functions: Any) -> Scope:
    codes: dict[Any, Any] = {}
    for function in functions:
        codes.update(root_codes(function))
    return Scope(codes)


def test_names_of_all_functions_count() -> None:
    scope = scope_of(reads, helper)
    assert {"width", "table", "depth"} <= scope.loaded
    assert "seen" in scope.stored and "seen" not in scope.loaded
    assert not scope.is_dynamic and not scope.is_by_name


def test_computed_names_make_a_scope_dynamic() -> None:
    assert scope_of(lambda config, name: getattr(config, name)).is_dynamic
    assert scope_of(lambda config: vars(config)).is_dynamic
    assert scope_of(lambda: globals()["x"]).is_by_name
    assert scope_of(lambda f, xs: list(map(f, xs))).calls_unseen


def test_names_may_be_added() -> None:
    scope = scope_of(reads)
    assert scope.add_names({"unheard_of"}) and not scope.add_names({"unheard_of"})
    assert "unheard_of" in scope.loaded and "unheard_of" in scope.opened


def test_closed_over_names_are_loaded_or_only_stored() -> None:
    seen, written = 1, 2

    def function() -> int:
        nonlocal written
        written = 3
        return seen

    scope = scope_of(function)
    assert scope.free_names(function.__code__) == ({"seen"}, {"written"})


def test_the_code_behind_callables() -> None:
    class Model:
        def __call__(self) -> int:
            return 1

    assert root_codes(functools.partial(reads, 1)).keys() == {reads.__code__}
    assert root_codes(Model()).keys() == {Model.__call__.__code__}
    assert root_codes(Model().__call__).keys() == {Model.__call__.__code__}
    assert root_codes(len) == {}
