"""Which code a run executes, and which C functions it calls."""

from __future__ import annotations

import cProfile
import datetime
import gc
import math
import operator
import os
import random
import sys
import time
from typing import Any

import pytest

from weft import Tensor
from weft.engine.jit.observe import Observed, impurity_of, is_internal, is_library


def helper(x: Any) -> Any:
    return x


def names(observed: Observed) -> set[str]:
    return {code.co_name for code in observed.codes}


def test_frames_of_the_user_and_of_libraries_that_work_for_it() -> None:
    observed = Observed()

    def f() -> Any:
        list(map(helper, [1]))
        return os.environ.get("PATH")

    with observed.watching():
        f()
    assert {"f", "helper", "get", "__getitem__"} <= names(observed)
    assert observed.impure is None


def test_the_own_work_of_weft_is_not_followed() -> None:
    observed = Observed()
    with observed.watching():
        (Tensor([1.0, 2.0]) + 1).realize()
    # what the test itself leaves
    assert names(observed) <= {"__exit__"}


def test_an_impure_call_is_named() -> None:
    observed = Observed()

    def f() -> float:
        return time.monotonic()

    with observed.watching():
        f()
    assert observed.impure == "time.monotonic"


@pytest.mark.parametrize("function", [len, math.sqrt, operator.add, "a".join, {}.get, [].append])
def test_pure_functions(function: Any) -> None:
    assert impurity_of(function) is None


@pytest.mark.parametrize(
    "function", [time.time, random.random, os.getcwd, open, datetime.datetime.now, os.urandom]
)
def test_impure_functions(function: Any) -> None:
    assert impurity_of(function) is not None


def test_whose_a_module_is() -> None:
    assert is_internal("weft.engine.realize") and not is_internal("weft.nn.optim")
    assert is_library("os.path") and is_library("numpy.linalg")
    assert not is_library("weft.nn.optim") and not is_library("__main__")


def test_another_profiler_goes_on_afterwards() -> None:
    def other(*_: Any) -> None:
        pass

    sys.setprofile(other)
    try:
        with Observed().watching():
            assert sys.getprofile() is not other
        assert sys.getprofile() is other
    finally:
        sys.setprofile(None)


def test_a_native_profiler_goes_on_afterwards() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        observed = Observed()
        with observed.watching():
            helper(1)
        helper(2)
    finally:
        profiler.disable()
    assert "helper" in names(observed)
    assert any("helper" in str(entry.code) for entry in profiler.getstats())


def test_what_the_collector_calls_is_not_of_the_program() -> None:
    """Other libraries have callbacks that it calls in the midst of anything."""
    observed = Observed()

    def collected(phase: str, info: Any) -> None:
        helper(time.time())

    gc.callbacks.append(collected)
    try:
        with observed.watching():
            gc.collect()
    finally:
        gc.callbacks.remove(collected)
    assert not {"collected", "helper"} & names(observed)
    assert observed.impure is None
