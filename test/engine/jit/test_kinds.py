"""Kinds of Python objects: what attributes show, and the contents of raw memory."""

from __future__ import annotations

import array
import ctypes
import enum
import functools
import threading
from typing import Any

import numpy as np
import pytest

from weft import Tensor
from weft.engine.jit.kinds import (
    Records,
    attributes_of,
    functions_in,
    hides_state,
    is_python_class,
    is_record,
    is_user_class,
    raw_memory_of,
)


class Plain:
    def __init__(self) -> None:
        self.x = 1

    @property
    def double(self) -> int:
        return self.x * 2

    @staticmethod
    def static() -> int:
        return 1


class Color(enum.Enum):
    RED = 1


class HiddenList(list[int]):
    pass


def test_classes_that_show_what_they_hold() -> None:
    for kind in (Plain, Color, HiddenList, ValueError):
        assert not hides_state(kind), kind
    assert is_python_class(Plain) and is_user_class(Plain)
    assert not is_python_class(int) and not is_user_class(dict)
    assert hides_state(type(iter([]))) and hides_state(type(threading.Lock()))


def test_attributes_are_read_without_running_code() -> None:
    class Odd:
        def __getattribute__(self, name: str) -> Any:
            if name == "__class__":
                return Odd
            raise RuntimeError(name)

    assert attributes_of(Plain()) == {"x": 1}
    assert attributes_of(Odd()) == {} and attributes_of(3) is None
    local = threading.local()
    local.here = 2
    assert attributes_of(local) == {"here": 2}


def test_functions_behind_descriptors() -> None:
    names = [functions_in(Plain.__dict__[name])[0].__name__ for name in ("double", "static")]
    assert names == ["double", "static"] and functions_in(3) == []
    cached = functools.cached_property(lambda self: 1)
    assert functions_in(cached) == [cached.func] and functions_in(Plain().__init__)


@pytest.mark.parametrize(
    "value",
    [
        bytearray(b"abc"),
        array.array("d", [1.0, 2.0]),
        (ctypes.c_int * 3)(1, 2, 3),
        np.arange(6.0),
        np.arange(5000),
        np.arange(6.0).reshape(2, 3).T,
    ],
    ids=["bytearray", "array", "ctypes", "small", "large", "turned"],
)
def test_changes_of_raw_memory_are_seen(value: Any) -> None:
    memory = raw_memory_of(value)
    assert memory is not None and memory.is_in(value)
    same = raw_memory_of(value)
    assert same is not None and same.token == memory.token
    if isinstance(value, np.ndarray):
        value[-1] += 1
    else:
        value[-1] = 7
    assert not memory.is_in(value)
    other = raw_memory_of(value)
    assert other is not None and other.token != memory.token


def test_memory_of_another_shape_is_another() -> None:
    memory = raw_memory_of(np.arange(6))
    assert memory is not None and not memory.is_in(np.arange(6).reshape(2, 3))
    assert not memory.is_in(np.arange(6).astype(np.int32)) and raw_memory_of([1, 2]) is None


def test_records_are_data_that_only_arrays_can_change() -> None:
    image = np.zeros((2, 3), dtype=np.float32)
    assert is_record((image, 1, ("text", None)))
    assert not is_record([image])
    assert not is_record((np.array([object()]), 1))
    assert not is_record((Tensor([1.0]), 1))
    records = Records([(image, 1), (image.copy(), 1.0)])
    assert records.token != Records([(image, 1), (image.copy(), 1)]).token
    assert records.token != Records([(image.T, 1), (image.copy(), 1.0)]).token
    assert records.are_same()
    image[1, 2] = 1.0
    assert not records.are_same()
    image[1, 2] = 0.0
    assert records.are_same()
    image.resize((3, 2), refcheck=False)
    assert not records.are_same()
