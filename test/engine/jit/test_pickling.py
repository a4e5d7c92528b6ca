"""Functions as data: by name where they can be imported, else with what they read."""

from __future__ import annotations

import math
import os.path
import pickle
from typing import Any

import pytest

from weft.engine.jit.pickling import Carried, carried, given
from weft.errors import JitError

FACTOR = 3


def there_and_back(value: Any) -> Any:
    return given(pickle.loads(pickle.dumps(carried(value))))


def importable(x: int) -> int:
    return x + 1


def test_what_can_be_imported_goes_by_its_name() -> None:
    assert there_and_back(importable) is importable
    assert there_and_back(math) is math and there_and_back(os.path) is os.path


def test_closures_defaults_and_globals_go_along() -> None:
    offset = 10

    def inner(x: int, y: int = 5, *, z: int = 7) -> int:
        """Adds."""
        return x * FACTOR + y + z + offset

    restored = there_and_back(inner)
    assert restored is not inner and restored(1) == 25 and restored.__doc__ == "Adds."
    assert restored(1, 0, z=0) == 13


def test_a_function_may_mention_itself() -> None:
    def count(n: int) -> int:
        return 0 if n == 0 else 1 + count(n - 1)

    assert there_and_back(count)(4) == 4


def test_functions_in_containers_and_methods() -> None:
    double = lambda x: 2 * x  # noqa: E731
    restored = there_and_back({"f": [double], "n": (1,)})
    assert restored["f"][0](4) == 8 and restored["n"] == (1,)


def test_code_of_another_version_is_refused() -> None:
    data = carried(lambda: 1)
    assert isinstance(data, Carried)
    data.state["version"] = (2, 7)
    with pytest.raises(JitError, match="Python 2.7"):
        given(data)
