"""Calls that look alike are run once: whatever a method can read is part of the key."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import Context, Device, GlobalCounters, Tensor, TinyJit, Variable, dtypes
from weft.engine import forms
from weft.errors import ArgumentError, ShapeError


@pytest.fixture(autouse=True)
def at_first_sight() -> Any:
    with Context(CALL_CACHE=2, SPEC=0):
        yield


def array(*shape: int) -> Any:
    return np.arange(math.prod(shape), dtype=np.float32).reshape(shape) + 1


def stored(*shape: int) -> Tensor:
    return Tensor(array(*shape)).realize()


def is_deferred(tensor: Tensor) -> bool:
    return tensor._cell._node is None


def test_a_call_that_was_made_before_is_not_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    method = Tensor._combined
    monkeypatch.setattr(Tensor, "_combined", lambda *args: calls.append(1) or method(*args))
    for number in range(4):
        result = stored(3, 7) + stored(3, 7)
        assert is_deferred(result)
        np.testing.assert_array_equal(result.numpy(), 2 * array(3, 7))
        assert len(calls) <= 1, number


def test_the_second_call_is_remembered_unless_asked_earlier() -> None:
    with Context(CALL_CACHE=1):
        assert [is_deferred(stored(5, 3) * stored(5, 3)) for _ in range(3)] == [False, True, True]
    with Context(CALL_CACHE=0):
        assert not is_deferred(stored(5, 3) * stored(5, 3))


def test_the_same_storage_twice_is_another_call() -> None:
    a, b = stored(4), stored(4)
    for left, right in ((a, b), (a, a), (b, a)):
        assert (left - right * 2).tolist() == (array(4) - array(4) * 2).tolist()
        assert (left * right).gradient(left, gradient=Tensor.ones(4))[0].tolist() == (
            (2 if left is right else 1) * array(4)
        ).tolist()


@pytest.mark.parametrize("numbers", [(1, 1.0, True), (0.0, -0.0), (2, 2.5)])
def test_numbers_that_are_equal_but_not_the_same(numbers: tuple[Any, ...]) -> None:
    x = Tensor([1, 2, 3], dtype=dtypes.int8).realize()
    y = stored(3)
    for number in numbers * 2:
        assert (x * number).dtype is (Tensor([1], dtype=dtypes.int8) * number).dtype
        found = 1.0 / (y * number)
        with np.errstate(divide="ignore"):
            expected = np.float32(1.0) / (array(3) * np.float32(number))
        np.testing.assert_array_equal(found.numpy(), expected)


def test_nan_and_other_arguments_that_no_key_holds() -> None:
    x = stored(3)
    for _ in range(3):
        assert all(math.isnan(n) for n in (x + math.nan).tolist())
        assert x[np.array([2, 0])].tolist() == [3.0, 1.0]
        assert x[[0, 1]].tolist() == [1.0, 2.0]
        assert x[None, 1:].tolist() == [[2.0, 3.0]]


@pytest.mark.parametrize(
    "knob", [{"DEFAULT_FLOAT": "float16"}, {"NO_GRAD": 1}, {"TRAINING": 1}, {"WINO": 1}]
)
def test_every_knob_is_part_of_the_key(knob: dict[str, Any]) -> None:
    x = Tensor([1, 2, 3]).realize()
    w = stored(3)
    before = x.mean().dtype, (w * 2).sum().gradient(w)[0].tolist()
    with Context(**knob):
        inside = x.mean().dtype, (w * 2).sum()
        assert x.mean().dtype is inside[0]
    assert (x.mean().dtype, (w * 2).sum().gradient(w)[0].tolist()) == before
    if "NO_GRAD" in knob:
        assert inside[1].gradient(w)[0].tolist() == [0.0, 0.0, 0.0]
    if "DEFAULT_FLOAT" in knob:
        assert inside[0] is dtypes.float16


def test_the_default_device_is_part_of_the_key() -> None:
    x = stored(3)
    assert [(x + 1).device for _ in range(2)] == [Device.DEFAULT] * 2
    with Context(DEV="PYTHON"):
        y = stored(3)
        assert (y + 1).device == "PYTHON" and (y + 1).tolist() == [2.0, 3.0, 4.0]
    assert (x + 1).tolist() == [2.0, 3.0, 4.0]


def test_watched_runs_see_every_graph(capsys: pytest.CaptureFixture[str]) -> None:
    x = stored(3)
    for _ in range(2):
        (x + 1).realize()
    with Context(DEBUG=2):
        (x + 1).realize()
    assert "kernel" in capsys.readouterr().out or GlobalCounters.kernel_count
    with Context(SPEC=1):
        assert not is_deferred(x + 1)


def test_a_value_that_waits_is_found_by_gradients_of_what_was_made_of_it() -> None:
    for _ in range(3):
        x = stored(3)
        h = x * 2
        y = (h * h).sum()
        found = y.gradient(h, x)
        assert [g.tolist() for g in found] == [[4.0, 8.0, 12.0], [8.0, 16.0, 24.0]]


def test_a_value_that_is_realized_before_what_was_made_of_it_is_not_computed_again() -> None:
    for _ in range(3):
        x = stored(8, 8)
        h = (x @ x).contiguous()
        y = h.sum()
        z = h.max()
        h.realize()
        GlobalCounters.reset()
        Tensor.realize(y, z)
        assert GlobalCounters.global_ops < 8 * 8 * 8
        assert y.gradient(h)[0].tolist() == np.ones((8, 8)).tolist()


def test_gradients_pass_memory_of_calls_that_were_looked_up() -> None:
    for _ in range(3):
        x = stored(3)
        y = (x * x).realize()
        z = (y * 3).sum().realize()
        assert z.gradient(x)[0].tolist() == [6.0, 12.0, 18.0]
        z.backward()
        assert x.grad is not None and x.grad.tolist() == [6.0, 12.0, 18.0]


def test_an_overwritten_storage_is_an_error_and_no_wrong_gradient() -> None:
    for _ in range(3):
        x = stored(3)
        y = (x * x).realize()
        x.assign(Tensor([5.0, 5.0, 5.0])).realize()
        with pytest.raises(ArgumentError, match="overwritten"):
            y.sum().backward()


def test_what_waits_reads_a_storage_as_it_was_before_a_write() -> None:
    for _ in range(3):
        x = stored(3)
        y = x * 10
        x += 1
        assert x.tolist() == [2.0, 3.0, 4.0]
        assert y.tolist() == [10.0, 20.0, 30.0]


def test_a_value_that_waits_can_be_written_to() -> None:
    for _ in range(3):
        y = stored(3) * 10
        z = y + 1
        y += 1
        y[0] = 7.0
        assert y.tolist() == [7.0, 21.0, 31.0]
        assert z.tolist() == [11.0, 21.0, 31.0]


def test_views_of_what_waits() -> None:
    for _ in range(3):
        y = stored(2, 3) @ stored(3, 4)
        view = y.T[1:3]
        assert view.shape == (2, 2) and view.dtype is dtypes.float32
        np.testing.assert_array_equal(view.numpy(), (array(2, 3) @ array(3, 4)).T[1:3])
        view += 1
        np.testing.assert_array_equal(y.numpy()[:, 0], (array(2, 3) @ array(3, 4))[:, 0])


def test_random_numbers_are_drawn_each_time() -> None:
    x = stored(64)
    with Tensor.train():
        drawn = [x.dropout(0.5).tolist() for _ in range(3)]
    assert drawn[0] != drawn[1] != drawn[2]


def test_symbolic_sizes_are_simply_called() -> None:
    x = stored(8)
    size = Variable("size", 1, 8)
    for bound in (3, 5, 3):
        assert x[: size.bind(bound)].sum().item() == array(8)[:bound].sum()


def test_errors_are_those_of_the_call() -> None:
    for _ in range(3):
        with pytest.raises(ShapeError, match="broadcast|shape"):
            stored(2) + stored(3)
        with pytest.raises(TypeError):
            stored(2).reshape(nothing=1)


def test_a_captured_function_sees_graphs() -> None:
    x = stored(4)
    f = TinyJit(lambda x: (x * 2 + 1).realize())
    assert [f(Tensor(array(4) * i).realize()).tolist() for i in range(4)] == [
        (array(4) * i * 2 + 1).tolist() for i in range(4)
    ]
    assert (x * 2 + 1).tolist() == (array(4) * 2 + 1).tolist()


def test_long_chains_end_in_graphs() -> None:
    x = stored(3)
    for _ in range(2):
        y = x
        for _ in range(1000):
            y = y + 1
        assert y.tolist() == [1001.0, 1002.0, 1003.0]


def test_many_values_that_are_held() -> None:
    x = stored(3)
    held = [x]
    for _ in range(100):
        held.append(held[-1] + 1)
    assert held[-1].tolist() == [101.0, 102.0, 103.0]
    assert held[50].tolist() == [51.0, 52.0, 53.0]


@pytest.mark.parametrize("drop", [forms.clear_forms, lambda: None])
def test_memory_returns_when_tensors_die(drop: Callable[[], None]) -> None:
    forms.clear_forms()
    gc.collect()
    before = GlobalCounters.mem_used
    for _ in range(3):
        t = stored(64, 64)
        y = (t @ t).relu().realize()
        assert GlobalCounters.mem_used >= before + 2 * 64 * 64 * 4
        del t, y
        drop()
        gc.collect()
        assert GlobalCounters.mem_used == before
