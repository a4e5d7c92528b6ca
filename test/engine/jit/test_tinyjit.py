"""TinyJit: arguments and results of every form, against plain execution over several calls."""

from __future__ import annotations

import collections
import dataclasses
import warnings
from typing import Any, NamedTuple

import numpy as np
import pytest

from test.engine.jit.jitting import CALLS, Decorator, Plain, same, vector
from weft import Tensor, TinyJit, dtypes, jit


def test_first_call_runs_second_captures_then_replays() -> None:
    seen: list[int] = []

    @TinyJit
    def double(x: Tensor) -> Tensor:
        seen.append(1)
        return x * 2

    assert double.captured is None
    for i in range(CALLS):
        assert double(vector(i)).tolist() == (vector(i) * 2).tolist()
        assert len(seen) == min(i + 1, 2)
        assert (double.captured is not None) == (i >= 1)
    assert len(double.captured) == 1


def test_a_counter_in_the_function_does_not_prevent_replays() -> None:
    calls = 0

    @TinyJit
    def double(x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        return x * 2

    for i in range(CALLS):
        double(vector(i)).realize()
    assert calls == 2


def test_jit_is_another_name() -> None:
    assert jit is TinyJit


def test_an_output_that_is_kept_does_not_change() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x: x * 2 + 1)
        return [f(vector(i)) for i in range(CALLS)]

    same(program, 2)


def test_an_output_is_fed_back() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x: x * 2 + 1)
        x = vector(0)
        kept = []
        for _ in range(CALLS):
            x = f(x)
            kept.append(x)
        return kept

    same(program, 2)


def test_one_of_several_outputs_is_fed_back() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def step(x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
            return y + 1, x * 2

        x, y = vector(0), vector(5)
        kept = []
        for _ in range(CALLS):
            x, y = step(x, y)
            kept += [x, y]
        return kept

    same(program, 2)


def test_the_same_tensor_twice() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, y: x * 2 + y)
        out = []
        for i in range(2 * CALLS):
            x = vector(i)
            out.append(f(x, x if i % 2 else vector(2 * i)))
        return out

    same(program, 4)


def test_the_same_storage_in_two_views() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, y: x * 2 + y)
        out = []
        for i in range(2 * CALLS):
            x = vector(i, 4)
            out.append(f(x[:2], x[2:] if i % 2 else vector(2 * i, 2)))
        return out

    same(program)


def test_the_same_storage_under_two_tensors() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor, y: Tensor) -> Tensor:
            x += 1
            return x * 10 + y

        out = []
        for i in range(CALLS):
            base = vector(i, 4).realize()
            whole = base.reshape(2, 2)
            out += [f(base, whole.reshape(4)), base, whole]
        return out

    same(program, 2)


def test_constants_as_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, c: x * c)
        out = []
        for i in range(CALLS):
            out.append(f(vector(i), Tensor(2.0)))
            out.append(f(vector(i), Tensor(3)))
            out.append(f(vector(i).cast(dtypes.half), Tensor(0.5)))
            assert out[-1].dtype is dtypes.half
        return out

    same(program)


def test_deviceless_tensors_as_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, c: x + c)
        out = []
        for i in range(CALLS):
            out.append(f(vector(i), Tensor.full((3,), float(i))))
            out.append(f(Tensor.arange(3), Tensor.eye(3)))
            out.append(f(Tensor.ones(3), Tensor.zeros(3)))
        return out

    same(program)


def test_unrealized_tensors_as_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, y: x @ y)
        return [f(vector(i) * 2 + 1, vector(i).sin().relu()) for i in range(CALLS)]

    same(program, 2)


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


@dataclasses.dataclass
class Box:
    value: Tensor
    scale: float = 1.0
    inner: Any = None


@dataclasses.dataclass(frozen=True)
class Frozen:
    value: Tensor


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value: Tensor) -> None:
        self.value = value


def test_tensors_in_structures() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(a: list[Any], b: dict[str, Any], c: Any, d: Any, e: Any, g: Any) -> Any:
            total = a[0] + a[1]["x"] + b["y"][0] + c.first + d.value * d.scale + e.value + g.value
            return {
                "list": [total, [total * 2]],
                "pair": Pair(total + 1, total + 2),
                "box": Box(total + 3, 7.0, [total + 4]),
                "object": vars(Plain(total + 5)),
                "number": 5,
                "text": "hello",
                "none": None,
                ("odd", 1): (),
            }

        out = []
        for i in range(CALLS):
            pair = Pair(vector(i + 3), vector(0))
            box = Box(vector(i + 4), 2.0)
            rest = (Plain(vector(i + 5)), Slotted(vector(1)))
            found = f([vector(i), {"x": vector(i + 1)}], {"y": (vector(2),)}, pair, box, *rest)
            assert isinstance(found["pair"], Pair)
            assert isinstance(found["box"], Box)
            out.append({str(key): value for key, value in found.items()})
        return out

    same(program, 2)


def test_objects_come_out_new_each_time() -> None:
    @TinyJit
    def f(x: Tensor) -> Any:
        return [x], {"x": x + 1}, Box(x + 2), Plain(x + 3), Slotted(x + 4), Frozen(x + 5)

    results = [f(vector(i)) for i in range(CALLS)]
    for i, (a, b, c, d, e, g) in enumerate(results):
        assert a[0].tolist() == vector(i).tolist()
        assert b["x"].tolist() == vector(i + 1).tolist()
        found = [part.value.tolist() for part in (c, d, e, g)]
        assert found == [vector(i + k).tolist() for k in (2, 3, 4, 5)]
    for one, other in zip(results[2:], results[3:], strict=False):
        assert all(x is not y for x, y in zip(one, other, strict=True))
    results[3][0].append(1)
    results[3][1]["y"] = 1
    again = f(vector(9))
    assert len(again[0]) == 1 and list(again[1]) == ["x"]


def test_shared_parts_of_a_result_stay_shared() -> None:
    @TinyJit
    def f(x: Tensor) -> Any:
        y = x + 1
        part = [y]
        loop: list[Any] = [part]
        loop.append(loop)
        return part, part, y, loop, collections.deque([y], maxlen=3)

    for i in range(CALLS):
        a, b, y, loop, queue = f(vector(i))
        assert a is b and a[0] is y and loop[0] is a and loop[1] is loop
        assert queue[0] is y and queue.maxlen == 3
        assert y.tolist() == vector(i + 1).tolist()


def test_keywords_in_any_order() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor, y: Tensor, *, z: Tensor, scale: float = 2.0) -> Tensor:
            return x + y * 10 + z * 100 * scale

        out = []
        for i in range(CALLS):
            x, y, z = vector(i), vector(i + 1), vector(i + 2)
            out.append(f(x, y, z=z))
            out.append(f(z=z, y=y, x=x))
            out.append(f(x, z=z, y=y, scale=2.0))
        return out

    same(program, 2)


def test_variable_arguments() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(*parts: Tensor, **named: Tensor) -> Any:
            return [*parts, *named.values()][0] + sum(named.values(), Tensor(0))

        out = []
        for i in range(CALLS):
            out.append(f(vector(i), a=vector(i + 1), b=vector(i + 2)))
            out.append(f(b=vector(i), a=vector(i + 1)))
            out.append(f(a=vector(i + 1), b=vector(i)))
        return out

    same(program)


def test_given_one_by_one_or_in_containers() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(*parts: Any, **named: Any) -> Any:
            return [vector(len(parts)) + len(named), parts, named]

        out = []
        for i in range(CALLS):
            x, y = vector(i), vector(i + 1)
            out.append([f(x, a=y), f((x,), {"a": y}), f(x, y), f((x, y)), f()])
        return out

    same(program)


def test_a_call_that_does_not_fit_is_pythons_error() -> None:
    f = TinyJit(lambda x, y: x + y)
    with pytest.raises(TypeError):
        f(vector(0))
    with pytest.raises(TypeError):
        f(vector(0), y=vector(1), z=3)


def test_views_at_different_offsets() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x: x.sum(1) * 2)
        data = Tensor(np.arange(64, dtype=np.float32).reshape(16, 4)).realize()
        return [f(data[i : i + 2]) for i in range(2 * CALLS)]

    same(program, 2)


def test_views_of_other_kinds() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x: x * 2 + 1)
        data = Tensor(np.arange(64, dtype=np.float32).reshape(8, 8)).realize()
        out = []
        for i in range(CALLS):
            out.append(f(data[i % 3 : i % 3 + 2, 1:3]))
            out.append(f(data.T[i % 2 : i % 2 + 2]))
            out.append(f(data.flip(0)[:2, ::2]))
            out.append(f(data[:, :1].expand(8, 3)))
            out.append(f(data[i].reshape(2, 4)))
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_another_shape_or_dtype_is_another_capture() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x: x * 2 + x.sum())
        out = []
        for i in range(CALLS):
            for n in (2, 3):
                out.append(f(vector(i, n)))
                out.append(f(vector(i, n).cast(dtypes.int32)))
                out.append(f(vector(i, n).reshape(1, n)))
        return out

    same(program, 12)


def test_captures_are_bounded_and_warned_about() -> None:
    f = TinyJit(lambda x: x + 1)
    with pytest.warns(UserWarning, match="different ways"):
        for n in range(1, 60):
            for _ in range(2):
                f(vector(0, n))
    assert len(f._entries) <= 32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for n in range(1, 10):
            assert f(vector(0, n)).tolist() == vector(1, n).tolist()
