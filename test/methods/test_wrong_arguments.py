"""Whatever a method is given, it works or says in the user's terms why not.

Every parameter of every public method gets things that do not belong there, one at a time. What is
raised must be a WeftError: Python's own complaint would come from code that the user never saw.
Nothing is computed, only written down.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from weft import Tensor
from weft.errors import WeftError

# these take functions, memory or nothing that could be wrong, or compute
UNTRIED = {"sequential", "from_blob", "callify", "custom_kernel", "realize", "schedule", "svd"}


class Strange:
    """Of no use to anybody."""


def wrong() -> list[Any]:
    """Things that fit few parameters."""
    return ["text", None, -7, 2.5, float("nan"), Strange(), [], [1, "a"], (1, 2, 3, 4, 5, 6, 7)]


def owners() -> list[Tensor]:
    return [Tensor(np.ones((3, 4), np.float32)), Tensor(np.ones((3, 4), np.int32)), Tensor(2.0)]


def names() -> Iterator[str]:
    for name in dir(Tensor):
        static = inspect.getattr_static(Tensor, name)
        is_method = inspect.isfunction(static) or isinstance(static, classmethod)
        if is_method and not name.startswith("_") and name not in UNTRIED:
            yield name


def calls(name: str) -> Iterator[tuple[Any, tuple[Any, ...], dict[str, Any]]]:
    """(owner, arguments, named arguments), each wrong in one place or throughout."""
    of_class = isinstance(inspect.getattr_static(Tensor, name), classmethod)
    parameters = list(inspect.signature(getattr(Tensor, name)).parameters.values())
    parameters = parameters if of_class else parameters[1:]
    places = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
    empty = inspect.Parameter.empty
    needed = [p for p in parameters if p.default is empty and p.kind in places]
    optional = [p.name for p in parameters if p.default is not empty]
    for owner in [Tensor] if of_class else owners():
        for value in wrong():
            if needed:
                yield owner, (value,) * len(needed), {}
            for others in (1, (2, 2), Tensor(np.ones((3, 4), np.float32))):
                for place in range(len(needed) if len(needed) > 1 else 0):
                    given = [others] * len(needed)
                    given[place] = value
                    yield owner, tuple(given), {}
                for option in optional:
                    yield owner, (others,) * len(needed), {option: value}


@pytest.mark.parametrize("name", list(names()))
def test_wrong_arguments_are_refused_in_the_users_terms(name: str) -> None:
    for owner, args, kwargs in calls(name):
        try:
            getattr(owner, name)(*args, **kwargs)
        except WeftError as error:
            assert str(error)
        except Exception as error:
            shown = [repr(argument)[:60] for argument in args]
            raise AssertionError(f"{name}({shown}, {kwargs}): {error!r}") from error
