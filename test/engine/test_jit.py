"""TinyJit: every case against plain execution, over several calls.

A case is a program that takes the decorator: once it gets `TinyJit`, once nothing, and what it
collects must be equal.
"""

from __future__ import annotations

import collections
import copy
import dataclasses
import functools
import gc
import math
import pickle
import threading
import warnings
import weakref
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import pytest

from weft import Context, Device, GlobalCounters, Tensor, TinyJit, UOp, Variable, dtypes, jit
from weft.engine.jit import JitError
from weft.knobs import TRAINING

Decorator = Callable[[Callable[..., Any]], Callable[..., Any]]
CALLS = 6


def numbers(value: Any) -> Any:
    """Whatever a program collected, as plain Python."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, dict):
        return {key: numbers(child) for key, child in value.items()}
    if isinstance(value, (list, tuple)):
        return [numbers(child) for child in value]
    if dataclasses.is_dataclass(value):
        return numbers(vars(value))
    return value


def same(program: Callable[[Decorator], Any], python_runs: int | None = None) -> None:
    """The program gives the same with and without TinyJit; its function ran so many times."""
    runs = []

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def inner(*args: Any, **kwargs: Any) -> Any:
            runs.append(1)
            return function(*args, **kwargs)

        return TinyJit(inner)

    Tensor.manual_seed(3)
    plain = numbers(program(lambda function: function))
    Tensor.manual_seed(3)
    jitted = numbers(program(counted if python_runs is not None else TinyJit))
    assert jitted == plain
    if python_runs is not None:
        assert len(runs) == python_runs


def vector(i: float, n: int = 3) -> Tensor:
    return Tensor([float(i + k) for k in range(n)])


# ------------------------------------------------------------ calls and results
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


class Plain:
    def __init__(self, value: Tensor) -> None:
        self.value = value


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


# ------------------------------------------------------------ numbers
def test_numbers_bools_and_strings_among_the_arguments() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor, n: Any, flag: bool = False, mode: str = "add") -> Tensor:
            y = x * n if mode == "mul" else x + n
            return -y if flag else y

        out = []
        for i in range(CALLS):
            for n in (1, 1.0, True, 2, -0.0, 0.0):
                out.append(f(vector(i), n))
            out.append(f(vector(i), 2, flag=True))
            out.append(f(vector(i), 2, mode="mul"))
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_numbers_of_equal_value_and_other_type_differ() -> None:
    f = TinyJit(lambda x, n: x + n)
    for _ in range(3):
        assert f(Tensor([1, 2]), 1).dtype is dtypes.int32
        assert f(Tensor([1, 2]), 1.0).dtype is dtypes.float32
        assert f(Tensor([True, False]), True).dtype is dtypes.bool
        assert math.copysign(1, (f(Tensor([1.0]), 0.0) * 0 - 0.0).item()) == 1


rate = 1.0
config = type("Config", (), {})()


def scaled(x: Tensor) -> Tensor:
    return x * rate


def test_numbers_in_closures_globals_and_attributes() -> None:
    global rate

    def program(decorate: Decorator) -> Any:
        global rate
        offset = 0.0
        config.power = 1
        config.mode = "plain"
        config.deep = type("Deep", (), {"bias": 1.0})()

        @decorate
        def f(x: Tensor) -> Tensor:
            y = scaled(x) + offset + config.deep.bias
            return y * y if config.mode == "square" else y * config.power

        out = []
        for i in range(CALLS):
            rate = float(i // 2)
            out.append(f(vector(i)))
            offset = 10.0 * (i % 2)
            out.append(f(vector(i)))
            config.power = i % 3
            out.append(f(vector(i)))
            config.mode = "square" if i % 2 else "plain"
            out.append(f(vector(i)))
            config.deep.bias = 5.0 - i % 2
            out.append(f(vector(i)))
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)
    rate = 1.0


class Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor
        self.weight = Tensor([1.0, 2.0, 3.0])

    def __call__(self, x: Tensor) -> Tensor:
        return x * self.weight * self.factor


class Net:
    def __init__(self, factor: float = 1.0) -> None:
        self.layers = [Scale(factor), Scale(2.0)]
        self.last = Scale(3.0)
        self.bias = 0.5

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        final = self.last
        return final(x) + self.bias

    @TinyJit
    def jitted(self, x: Tensor) -> Tensor:
        return self.forward(x)


def test_numbers_in_methods_and_layers() -> None:
    def program(decorate: Decorator) -> Any:
        net = Net()
        f = decorate(net.forward)
        out = []
        for i in range(CALLS):
            out.append(f(vector(i)))
            net.layers[1].factor = float(i // 2)
            out.append(f(vector(i)))
            net.last.factor = float(i // 3)
            out.append(f(vector(i)))
            net.bias = float(i // 2)
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_a_number_that_the_function_itself_changes() -> None:
    def program(decorate: Decorator) -> Any:
        step = 0

        @decorate
        def f(x: Tensor) -> Tensor:
            nonlocal step
            step += 1
            return x / step

        return [f(vector(i)) for i in range(2 * CALLS)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_a_number_that_is_counted_and_set_back_outside() -> None:
    def program(decorate: Decorator) -> Any:
        state = type("State", (), {"step": 0})()

        @decorate
        def f(x: Tensor) -> Tensor:
            state.step += 1
            return x / state.step

        out: list[Any] = []
        for _ in range(5):
            state.step = 0
            for i in range(3):
                out += [f(vector(i)), state.step]
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_hidden_numbers_are_noticed() -> None:
    """A number the JIT does not see changes every run: it is never replayed."""

    def program(decorate: Decorator) -> Any:
        hidden = {"n": 0}

        @decorate
        def f(x: Tensor) -> Tensor:
            hidden["n"] += 1
            return x * hidden["n"]

        return [f(vector(i)) for i in range(2 * CALLS)]

    with pytest.warns(UserWarning, match="without being jitted"):
        same(program)


def test_training_and_other_knobs_are_part_of_a_call() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x: x * 2 if Tensor.training else x + int(TRAINING))
        out = []
        for i in range(CALLS):
            out.append(f(vector(i)))
            with Tensor.train():
                out.append(f(vector(i)))
        return out

    same(program, 4)


def test_data_made_inside_is_compared() -> None:
    def program(decorate: Decorator) -> Any:
        random = np.random.default_rng(0)

        @decorate
        def steady(x: Tensor) -> Tensor:
            return x + Tensor([1.0, 2.0, 3.0])

        @decorate
        def changing(x: Tensor) -> Tensor:
            return x + Tensor(random.random(3).astype(np.float32))

        @decorate
        def written(x: Tensor) -> Tensor:
            y = Tensor([1.0, 2.0, 3.0])
            y += x
            return y

        fs = (steady, changing, written)
        return [[f(vector(i)) for f in fs] for i in range(2 * CALLS)]

    with pytest.warns(UserWarning, match="without being jitted"):
        same(program)


def test_numpy_arrays_as_arguments() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, a: x + Tensor(a))
        arrays = [np.arange(3, dtype=np.float32), np.ones(3, dtype=np.float32)]
        out = []
        for i in range(2 * CALLS):
            out.append(f(vector(i), arrays[i % 2]))
        arrays[0][1] = 7
        return [*out, f(vector(0), arrays[0])]

    same(program)


# ------------------------------------------------------------ methods, nesting
def test_a_method_of_two_instances() -> None:
    nets = [Net(1.0), Net(5.0)]
    for i in range(CALLS):
        for net in nets:
            assert net.jitted(vector(i)).tolist() == net.forward(vector(i)).tolist()
    nets[0].layers[0].factor = 7.0
    nets[1].layers[0].weight = Tensor([3.0, 1.0, 4.0])
    for net in nets:
        assert net.jitted(vector(1)).tolist() == net.forward(vector(1)).tolist()


def test_an_instance_is_not_kept_alive() -> None:
    net = Net()
    for i in range(4):
        net.jitted(vector(i)).realize()
    gone = weakref.ref(net)
    del net
    gc.collect()
    assert gone() is None


def test_copies_of_a_jitted_object() -> None:
    net = Net()
    for i in range(4):
        net.jitted(vector(i)).realize()
    other = copy.deepcopy(net)
    other.layers[0].weight.assign(Tensor([9.0, 9.0, 9.0]))
    for i in range(4):
        assert net.jitted(vector(i)).tolist() == net.forward(vector(i)).tolist()
        assert other.jitted(vector(i)).tolist() == other.forward(vector(i)).tolist()


class Shared:
    __slots__ = ("own",)
    weight = Tensor([1.0, 2.0, 3.0])

    def __init__(self, own: Tensor) -> None:
        self.own = own

    @classmethod
    @TinyJit
    def of_class(cls, x: Tensor) -> Tensor:
        return x * cls.weight

    @staticmethod
    @TinyJit
    def static(x: Tensor) -> Tensor:
        return x + Shared.weight

    @TinyJit
    def method(self, x: Tensor) -> Tensor:
        return x * self.own


def test_methods_of_classes_and_of_slotted_instances() -> None:
    one, two = Shared(vector(1)), Shared(vector(2))
    for i in range(CALLS):
        assert Shared.of_class(vector(i)).tolist() == (vector(i) * Shared.weight).tolist()
        assert Shared.static(vector(i)).tolist() == (vector(i) + Shared.weight).tolist()
        assert one.method(vector(i)).tolist() == (vector(i) * one.own).tolist()
        assert two.method(vector(i)).tolist() == (vector(i) * two.own).tolist()
        if i == 3:
            Shared.weight = vector(5)
            one.own = vector(7)


def test_an_attribute_that_is_jitted() -> None:
    class Model:
        def __init__(self) -> None:
            self.weight = Tensor([1.0, 2.0, 3.0])
            self.call = TinyJit(self.forward)

        def forward(self, x: Tensor) -> Tensor:
            return x * self.weight

    model = Model()
    for i in range(CALLS):
        assert model.call(vector(i)).tolist() == model.forward(vector(i)).tolist()
        model.weight = model.weight + 1


def test_a_jitted_function_inside_another() -> None:
    def program(decorate: Decorator) -> Any:
        factor = 2.0
        inner = decorate(lambda x: x * factor)

        @decorate
        def outer(x: Tensor) -> Tensor:
            return inner(x) + inner(x + 1).realize()

        out = []
        for i in range(CALLS):
            out.append(outer(vector(i)))
            out.append(inner(vector(i)))
        factor = 3.0
        return [*out, outer(vector(1)), inner(vector(1))]

    same(program)


# ------------------------------------------------------------ state
def test_assigns_to_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor, y: Tensor) -> Tensor:
            x.assign(x * 2 + y)
            y += 1
            return x.sum()

        out = []
        x, y = vector(0), vector(1).realize()
        for i in range(CALLS):
            view = x[1:]
            out += [f(x, y), x, y, view * 1]
            if i == 3:
                x = vector(9)
        return out

    same(program)


def test_assigns_to_parts_of_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor, y: Tensor) -> None:
            x[1:3] = y[:2]
            y[0] = x[0] + 1

        out = []
        x, y = vector(0, 5), vector(10, 4)
        for _ in range(CALLS):
            f(x, y)
            out += [x, y]
        base = vector(0, 20).realize()
        for i in range(CALLS):
            f(base[2 * i : 2 * i + 5], y)
            out += [base * 1, y * 1]
        return out

    same(program)


def test_assigns_to_closed_over_state() -> None:
    def program(decorate: Decorator) -> Any:
        total = Tensor.zeros(3)
        count = Tensor([0])

        @decorate
        def f(x: Tensor) -> Tensor:
            total.assign(total + x)
            count.assign(count + 1)
            return total * 2

        out = []
        for i in range(CALLS):
            out += [f(vector(i)), total * 1, count * 1]
        return out

    same(program)


def test_state_is_changed_outside() -> None:
    def program(decorate: Decorator) -> Any:
        weight = vector(1)

        @decorate
        def f(x: Tensor) -> Tensor:
            return x * weight

        out = []
        for i in range(3 * CALLS):
            out.append(f(vector(i)))
            if i % 4 == 1:
                weight.assign(weight + 1)
            if i % 4 == 2:
                weight = weight * 2
            if i % 4 == 3:
                weight.replace(vector(i))
        return out

    same(program)


def test_state_that_comes_to_share_its_memory() -> None:
    def program(decorate: Decorator) -> Any:
        state = vector(0).realize()

        @decorate
        def f(x: Tensor) -> None:
            state.assign(state + x)

        out = []
        for i in range(2 * CALLS):
            other = Tensor(state.uop) if i % 4 == 3 else None
            f(vector(i))
            out += [state * 1, other]
        return out

    same(program)


def test_pending_readers_of_state_are_computed_before() -> None:
    def program(decorate: Decorator) -> Any:
        state = vector(0).realize()

        @decorate
        def f(x: Tensor) -> None:
            state.assign(state + x)

        out = []
        for i in range(CALLS):
            before = state * 10
            f(vector(i))
            out += [before, state * 1]
        return out

    same(program, 2)


def test_state_that_is_rebound() -> None:
    class Recurrent:
        def __init__(self) -> None:
            self.hidden: Any = None
            self.pair: Any = (vector(0), vector(1))
            self.named = {"a": vector(2)}
            self.items = [vector(3), vector(4)]

        def step(self, x: Tensor) -> Tensor:
            if self.hidden is None:
                self.hidden = Tensor.zeros(3)
            self.hidden = (self.hidden * 0.5 + x).realize()
            self.pair = (self.pair[1] + x, self.pair[0])
            self.named["a"] = self.named["a"] + x
            self.items[0], self.items[1] = self.items[1], self.items[0] + 1
            return self.hidden * 2

    def program(decorate: Decorator) -> Any:
        model = Recurrent()
        step = decorate(model.step)
        out = []
        for i in range(2 * CALLS):
            out.append(step(vector(i)))
            out += [model.hidden, *model.pair, model.named["a"], *model.items]
            if i == CALLS:
                model.hidden = vector(100)
        return out

    same(program)


def test_kept_state_does_not_change_under_the_caller() -> None:
    def program(decorate: Decorator) -> Any:
        model = Plain(vector(0))

        @decorate
        def step(x: Tensor) -> None:
            model.value = model.value + x

        kept = []
        for i in range(CALLS):
            step(vector(i))
            kept.append(model.value)
        return kept

    same(program)


def test_a_list_that_grows_is_not_replayed() -> None:
    def program(decorate: Decorator) -> Any:
        history: list[Tensor] = []

        @decorate
        def f(x: Tensor) -> Tensor:
            history.append(x * 2)
            return x + len(history)

        out = [f(vector(i)) for i in range(2 * CALLS)]
        return out + history

    with pytest.warns(UserWarning, match="without being jitted"):
        same(program)


def test_an_argument_that_is_state_in_some_calls() -> None:
    def program(decorate: Decorator) -> Any:
        model = Plain(vector(0))
        items = [vector(1), vector(2)]

        @decorate
        def f(x: Tensor, given: list[Tensor]) -> Tensor:
            given[0] = x + 1
            items[1] = model.value + 1
            model.value.assign(model.value + x)
            return model.value * 2

        out = []
        for i in range(3 * CALLS):
            x = model.value if i % 5 == 4 else vector(i)
            given = items if i % 7 == 6 else [vector(3), vector(4)]
            out += [f(x, given), *given, *items, model.value * 1]
        return out

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_a_tensor_kept_in_an_unseen_place() -> None:
    class Hidden:
        def keep(self, value: Tensor) -> None:
            places[0](value)

    def program(decorate: Decorator) -> Any:
        kept: dict[str, Tensor] = {}

        def store(value: Tensor) -> None:
            kept["value"] = value

        def indirectly(value: Tensor, where: Any = iter) -> None:
            getattr(Secret, "keep")(value)  # noqa: B009

        Secret.keep = staticmethod(store)

        @decorate
        def f(x: Tensor) -> Tensor:
            indirectly(x * 3)
            return x * 2

        out = []
        for i in range(2 * CALLS):
            out += [f(vector(i)), kept["value"]]
        return out

    places: list[Any] = []
    with pytest.warns(UserWarning, match="without being jitted"):
        same(program)


class Secret:
    keep: Any = None


def test_outputs_that_are_inputs_or_state() -> None:
    weight = vector(1)

    @TinyJit
    def f(x: Tensor, y: Tensor) -> Any:
        return x, y[1:], weight, weight.reshape(3, 1), x.reshape(1, 3), Tensor(3.0), Tensor.zeros(2)

    for i in range(CALLS):
        x, y = vector(i).realize(), vector(i + 1).realize()
        a, b, c, d, e, g, h = f(x, y)
        assert a is x and c is weight
        y.assign(Tensor([7.0, 8.0, 9.0]))
        x.assign(Tensor([i + 4.0, 5.0, 6.0]))
        weight.assign(Tensor([i + 1.0, 2.0, 3.0]))
        assert b.tolist() == [8.0, 9.0]
        assert d.tolist() == [[i + 1.0], [2.0], [3.0]]
        assert e.tolist() == [[i + 4.0, 5.0, 6.0]]
        assert g.item() == 3.0 and g.device is None
        h.assign(Tensor([1.0, 2.0]))
        assert h.tolist() == [1.0, 2.0]


def test_outputs_that_share_a_storage() -> None:
    @TinyJit
    def f(x: Tensor) -> Any:
        y = (x * 2).realize()
        return y, y[1:], y.reshape(3, 1)

    for i in range(CALLS):
        y, part, column = f(vector(i))
        y.assign(y + 1)
        expected = [2.0 * (i + k) + 1 for k in range(3)]
        assert y.tolist() == expected
        assert part.tolist() == expected[1:]
        assert column.tolist() == [[v] for v in expected]


def test_equal_outputs_can_be_written_apart() -> None:
    @TinyJit
    def f(x: Tensor) -> Any:
        return x + 1, x + 1

    for i in range(CALLS):
        a, b = f(vector(i))
        a.assign(a * 0)
        assert b.tolist() == vector(i + 1).tolist()


def test_an_input_is_returned_by_a_window() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor) -> Any:
            x += 1
            return x[1:], x

        base = vector(0, 20).realize()
        out = []
        for i in range(CALLS):
            tail, whole = f(base[i : i + 4])
            tail += 10
            out += [tail, whole, base * 1]
        return out

    same(program, 2)


def test_a_window_of_closed_over_state() -> None:
    def program(decorate: Decorator) -> Any:
        base = vector(0, 20).realize()

        @decorate
        def f(x: Tensor) -> Tensor:
            x += 1
            return base.sum() + x

        return [f(base[i : i + 4]) for i in range(CALLS)] + [base]

    same(program)


def test_gradients_and_an_optimiser() -> None:
    def program(decorate: Decorator) -> Any:
        weight = Tensor([[0.5, -0.25], [1.0, 0.75]]).requires_grad_()
        momentum = Tensor.zeros(2, 2)

        @decorate
        def step(x: Tensor, y: Tensor) -> Tensor:
            weight.grad = None
            loss = ((x @ weight - y) ** 2).mean()
            loss.backward()
            momentum.assign(momentum * 0.5 + weight.grad)
            weight.assign(weight.detach() - momentum * 0.125)
            return loss

        out = []
        for i in range(CALLS):
            x = Tensor([[float(i % 3), 1.0], [2.0, float(i % 2)]])
            out += [step(x, x * 2), weight * 1, weight.grad, momentum * 1]
        return out

    same(program)


def test_gradients_accumulate_on_inputs() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor) -> None:
            (x * x).sum().backward()

        x = vector(1).requires_grad_()
        out = []
        for _ in range(CALLS):
            f(x)
            out.append(x.grad)
        return out

    same(program)


# ------------------------------------------------------------ random numbers
def test_random_numbers_are_fresh_and_the_same_as_without() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f(x: Tensor) -> Any:
            return x + Tensor.rand(3), Tensor.randn(2).realize(), Tensor.randint(4)

        out = []
        for i in range(CALLS):
            out += [*f(vector(i)), Tensor.rand(2)]
        return out

    same(program, 2)
    first = TinyJit(lambda: Tensor.rand(4))
    drawn = [tuple(first().tolist()) for _ in range(CALLS)]
    assert len(set(drawn)) == CALLS


def test_a_seed_inside() -> None:
    def program(decorate: Decorator) -> Any:
        @decorate
        def f() -> Any:
            a = Tensor.rand(2)
            Tensor.manual_seed(5)
            return a, Tensor.rand(2)

        return [[f(), Tensor.rand(1)] for _ in range(CALLS)]

    same(program, 2)


def test_random_state_is_drawn_once() -> None:
    def program(decorate: Decorator) -> Any:
        weight = Tensor.rand(3)
        f = decorate(lambda x: x * weight)
        return [f(vector(i)) for i in range(CALLS)] + [weight, Tensor.rand(2)]

    same(program, 2)


# ------------------------------------------------------------ symbolic variables
def test_variables_with_new_values() -> None:
    def program(decorate: Decorator) -> Any:
        data = Tensor(np.arange(32, dtype=np.float32).reshape(8, 4)).realize()
        size = Variable("size", 1, 8)

        @decorate
        def total(x: Tensor) -> Tensor:
            return x.sum(0) + x.max()

        return [total(data[: size.bind(i % 7 + 1)]) for i in range(2 * CALLS)]

    same(program, 2)


def test_variables_as_arguments() -> None:
    def program(decorate: Decorator) -> Any:
        data = vector(0, 8).realize()
        start = Variable("start", 0, 5)

        @decorate
        def f(x: Tensor, at: Any) -> Any:
            return x[at : at + 3] * 2, x + at, at + 1

        out = []
        for i in range(CALLS):
            a, b, c = f(data, start.bind(i % 6))
            assert c.simplify().op is not None
            out += [a, b]
        return out

    same(program, 2)


def test_variables_in_pads_and_reshapes() -> None:
    def program(decorate: Decorator) -> Any:
        data = vector(1, 8).realize()
        size = Variable("size", 1, 8)

        @decorate
        def f(x: Tensor, n: Any) -> Any:
            part = x[:n]
            square = part.reshape(n, 1) + part.reshape(1, n)
            return square.sum(), part.pad(((2, 8 - n),)).sum(), (part * 2).realize().sum()

        return [f(data, size.bind(i % 8 + 1)) for i in range(2 * CALLS)]

    same(program, 2)


def test_a_symbolic_output_is_fed_on() -> None:
    def program(decorate: Decorator) -> Any:
        data = vector(1, 8).realize()
        size = Variable("size", 1, 8)
        double = decorate(lambda x: x * 2)
        total = decorate(lambda x: x.sum())
        out = []
        for i in range(2 * CALLS):
            y = double(data[: size.bind(i % 8 + 1)])
            out += [y, total(y)]
        return out

    same(program)


def test_a_growing_cache() -> None:
    def program(decorate: Decorator) -> Any:
        cache = Tensor.zeros(8, 2).contiguous().realize()
        position = Variable("position", 0, 7)

        @decorate
        def step(x: Tensor, at: Any) -> Tensor:
            cache[at : at + 1] = x.reshape(1, 2)
            return cache[: at + 1].sum(0)

        out = []
        for i in range(8):
            out.append(step(vector(i, 2), position.bind(i)))
        return [*out, cache]

    same(program, 2)


def test_the_value_of_a_variable_used_as_a_number() -> None:
    def program(decorate: Decorator) -> Any:
        size = Variable("size", 1, 8)
        data = vector(1, 8).realize()

        @decorate
        def f(x: Tensor, n: UOp) -> Tensor:
            return x[:n].sum() * n.unbind()[1]

        return [f(data, size.bind(i % 8 + 1)) for i in range(2 * CALLS)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_values_outside_a_variables_bounds_are_refused() -> None:
    size = Variable("size", 1, 8)
    f = TinyJit(lambda x: x.sum())
    data = vector(0, 8).realize()
    for i in (1, 2, 3):
        f(data[: size.bind(i)])
    with pytest.raises(ValueError, match="size takes an int from 1 to 8"):
        f(data[: size.bind(9)])


# ------------------------------------------------------------ errors and knobs
@pytest.mark.parametrize("read", [Tensor.item, Tensor.tolist, Tensor.numpy])
def test_reading_inside_a_capture_is_an_error(read: Callable[[Tensor], Any]) -> None:
    @TinyJit
    def f(x: Tensor) -> Tensor:
        return x * float(np.asarray(read(x.sum())))

    assert f(vector(1)).tolist() == [6.0, 12.0, 18.0]
    for _ in range(2):
        with pytest.raises(JitError, match="reads the values"):
            f(vector(1))
    with Context(JIT=0):
        assert f(vector(1)).tolist() == [6.0, 12.0, 18.0]


def test_reading_a_constant_inside_is_fine() -> None:
    f = TinyJit(lambda x: x * (Tensor(2) + 3).item())
    for i in range(CALLS):
        assert f(vector(i)).tolist() == (vector(i) * 5).tolist()


def test_nothing_to_run() -> None:
    def program(decorate: Decorator) -> Any:
        fs = [
            decorate(lambda: None),
            decorate(lambda x: x),
            decorate(lambda x: x.reshape(1, 3)),
            decorate(lambda x: (Tensor(3), 5, x.shape[0])),
            decorate(lambda x: Tensor.zeros(2)),
            decorate(lambda x: x[:0] + 1),
        ]
        return [[fs[0](), *[f(vector(i)) for f in fs[1:]]] for i in range(CALLS)]

    same(program, 12)


def test_tensors_without_elements() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, y: (x + 1, y.sum(0), x.cat(y)))
        return [f(Tensor([]), Tensor([])) for _ in range(CALLS)]

    same(program, 2)


def test_an_error_leaves_it_uncaptured() -> None:
    fail = [False, True, True, False, False, False, True, False]
    state = vector(0).realize()

    @TinyJit
    def f(x: Tensor, boom: Any) -> Tensor:
        state.assign(state + x)
        if boom[0]():
            raise RuntimeError("boom")
        return x + state

    expected = vector(0)
    for i, broken in enumerate(fail):
        current = [functools.partial(bool, broken)]
        expected = expected + vector(i)
        if broken:
            with pytest.raises(RuntimeError, match="boom"):
                f(vector(i), current)
        else:
            assert f(vector(i), current).tolist() == (expected + vector(i)).tolist()
        assert state.tolist() == expected.tolist()


def test_an_error_in_the_captured_call() -> None:
    broken = True

    @TinyJit
    def f(x: Tensor) -> Tensor:
        if len(runs) == 1:
            runs.append(1)
            raise RuntimeError("boom")
        runs.append(1)
        return x * 2

    runs: list[int] = []
    f(vector(0))
    with pytest.raises(RuntimeError):
        f(vector(0))
    assert f.captured is None and broken
    for i in range(CALLS):
        assert f(vector(i)).tolist() == (vector(i) * 2).tolist()
    assert f.captured is not None and len(runs) < CALLS + 2


def test_jit_0_just_calls() -> None:
    runs = []
    f = TinyJit(lambda x: runs.append(1) or x * 2)
    with Context(JIT=0):
        for i in range(CALLS):
            assert f(vector(i)).tolist() == (vector(i) * 2).tolist()
    assert len(runs) == CALLS


@pytest.mark.parametrize("knobs", [{"JIT": 2}, {"NO_MEMORY_PLANNER": 1}, {"DEBUG": 2}])
def test_other_ways_to_replay(knobs: dict[str, int], capsys: Any) -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x: ((x @ x.T).softmax() @ x, x.sum()))
        return [f(Tensor([[i, 1.0], [2.0, i]])) for i in range(CALLS)]

    with Context(**knobs):
        same(program, 2)


def test_not_a_function() -> None:
    with pytest.raises(JitError, match="takes a function"):
        TinyJit(3)


def test_options_as_decorator() -> None:
    @TinyJit(prune=True)
    def f(x: Tensor) -> Tensor:
        return x + 1

    assert isinstance(f, TinyJit) and f.prune
    assert [f(vector(i)).tolist() for i in range(4)] == [vector(i + 1).tolist() for i in range(4)]


def test_names_and_pickles() -> None:
    f = TinyJit(scaled)
    assert f.__name__ == "scaled" and f.__wrapped__ is scaled
    again = pickle.loads(pickle.dumps(f))
    assert again(vector(1)).tolist() == scaled(vector(1)).tolist()


def test_counters_count_replays() -> None:
    f = TinyJit(lambda x: (x @ x).relu().sum() + x.max())
    x = Tensor([[1.0, 2.0], [3.0, 4.0]])
    counts = []
    for _ in range(4):
        GlobalCounters.reset()
        f(x)
        counter = GlobalCounters
        counts.append((counter.kernel_count, counter.global_ops, counter.global_mem))
    assert counts[0] == counts[1] == counts[2] == counts[3]


def test_memory_is_planned_and_freed() -> None:
    def f(x: Tensor) -> Tensor:
        for _ in range(10):
            x = (x @ x).realize()
        return x

    jitted = TinyJit(f)
    x = Tensor.ones(64, 64).contiguous().realize() / 64
    for _ in range(3):
        jitted(x)
    graph = jitted.captured
    assert len(graph) >= 10
    assert 0 < graph.arena_bytes <= 4 * 64 * 64 * 4
    before = GlobalCounters.mem_used
    graph.free()
    assert GlobalCounters.mem_used == before - graph.arena_bytes
    assert jitted(x).tolist() == f(x).tolist()
    jitted.reset()
    assert jitted.captured is None
    assert jitted(x).tolist() == f(x).tolist()


def test_outputs_are_freed() -> None:
    f = TinyJit(lambda x: x + 1)
    x = Tensor.zeros(1000).contiguous().realize()
    for _ in range(3):
        f(x)
    before = GlobalCounters.mem_used
    for _ in range(10):
        f(x)
    assert GlobalCounters.mem_used == before


def test_inputs_are_not_kept() -> None:
    f = TinyJit(lambda x: x + 1)
    before = GlobalCounters.mem_used
    for _ in range(4):
        f(Tensor.zeros(1000).contiguous().realize())
    gc.collect()
    assert GlobalCounters.mem_used - before < 4000


def test_two_threads_share_a_function() -> None:
    f = TinyJit(lambda x: (x * 2 + 1).sum())
    wrong = []

    def work(start: int) -> None:
        for i in range(start, start + 20):
            if f(vector(i)).item() != sum(2.0 * (i + k) + 1 for k in range(3)):
                wrong.append(i)

    threads = [threading.Thread(target=work, args=(100 * t,)) for t in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.mark.parametrize("device", ["PYTHON", "CPU:1"])
def test_other_devices(device: str) -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, y: ((x * 2 + y).sum(), (x + 1).to(Device.DEFAULT) * 2, y + 1))
        return [f(vector(i).to(device), Tensor.ones(3)) for i in range(CALLS)]

    same(program, 2)


def test_a_null_device() -> None:
    f = TinyJit(lambda x: x * 2)
    for _ in range(4):
        assert f(Tensor.zeros(4, device="NULL").contiguous()).shape == (4,)


# ------------------------------------------------------------ numbers that become parameters
def test_a_number_that_is_only_a_value_becomes_a_parameter() -> None:
    runs = []

    @TinyJit
    def f(x: Tensor, rate: float) -> Tensor:
        runs.append(1)
        return x * (1 - rate) + rate / 2

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for i in range(30):
            rate = 0.1 + i / 7
            assert f(vector(i), rate).tolist() == (vector(i) * (1 - rate) + rate / 2).tolist()
    # eight values of their own, two with a stand-in, and one more to compare with
    assert len(runs) == 11
    assert len(f._entries) == 1


@pytest.mark.parametrize("dtype", [dtypes.half, dtypes.float64, dtypes.int32, dtypes.float32])
def test_a_parameter_is_as_weak_as_the_number(dtype: Any) -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, n: (x + n, n * x, x * (n + 1) - 3, x - n))
        out = []
        for i in range(20):
            found = f(vector(i).cast(dtype), i * 3)
            assert all(t.dtype is dtype for t in found)
            out.append(found)
        return out

    same(program)


def test_numbers_in_closures_become_parameters() -> None:
    def program(decorate: Decorator) -> Any:
        rate = 0.0
        box = Plain(vector(0))
        box.decay = 1.0  # type: ignore[attr-defined]
        runs.clear()

        @decorate
        def f(x: Tensor) -> Tensor:
            runs.append(1)
            return x * rate + box.decay  # type: ignore[attr-defined]

        out = []
        for i in range(20):
            rate = i / 4
            out.append(f(vector(i)))
        for i in range(20):
            box.decay = i / 8  # type: ignore[attr-defined]
            out.append(f(vector(i)))
        return out

    runs: list[int] = []
    same(program)
    assert len(runs) < 40


def test_a_number_that_is_more_than_a_value_is_not_jitted() -> None:
    def program(decorate: Decorator) -> Any:
        state = vector(0)

        @decorate
        def f(x: Tensor, n: int) -> Tensor:
            state.assign(state + 1)
            return x * 2 if n > 5 else x[:n] + 1

        return [[f(vector(i), i % 12), state * 1] for i in range(1, 30)]

    with pytest.warns(UserWarning, match="more than a value"):
        same(program)


@pytest.mark.parametrize(
    "use",
    [
        lambda x, n: x.reshape(n, -1) if n == 1 else x * n,
        lambda x, n: x + sum(range(int(n))),
        lambda x, n: x + math.sqrt(n),
        lambda x, n: x * {1: 2, 2: 3}.get(n, 5),
        lambda x, n: x + len("a" * n),
        lambda x, n: (x + n, n),
        lambda x, n: x + float(f"{n}"),
        lambda x, n: x * (1 if isinstance(n, int) else 7),
    ],
)
def test_uses_of_numbers_that_need_the_number(use: Callable[[Tensor, int], Any]) -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(use)
        return [f(vector(i), i % 13 + 1) for i in range(30)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_a_learning_rate_schedule() -> None:
    def program(decorate: Decorator) -> Any:
        weight = Tensor([0.5, -0.25, 1.0]).requires_grad_()

        @decorate
        def step(x: Tensor, rate: float) -> Tensor:
            weight.grad = None
            loss = (weight * x).sum()
            loss.backward()
            weight.assign(weight.detach() - weight.grad * rate)
            return loss

        return [[step(vector(i), 1 / (i + 1)), weight * 1] for i in range(20)]

    same(program)


def test_a_number_beyond_a_machine_integer() -> None:
    def program(decorate: Decorator) -> Any:
        f = decorate(lambda x, n: x + float(n % 7) if n > 1 << 64 else x + n)
        return [f(vector(1), 2 ** (4 * i)) for i in range(24)]

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        same(program)


def test_a_division_by_zero_is_pythons_error() -> None:
    f = TinyJit(lambda x, n: x * (1 / n))
    for i in range(1, 15):
        assert f(vector(1), i).tolist() == (vector(1) * (1 / i)).tolist()
    with pytest.raises(ZeroDivisionError):
        f(vector(1), 0)
    assert f(vector(1), 4).tolist() == (vector(1) * 0.25).tolist()


# ------------------------------------------------------------ JIT_CHECK
def test_checked_replays() -> None:
    def program(decorate: Decorator) -> Any:
        state = vector(0)
        model = Plain(vector(1))

        @decorate
        def f(x: Tensor) -> Any:
            state.assign(state + x)
            model.value = model.value + 1
            x += 1
            return state * 2, Tensor.rand(2), [model.value.exp()]

        return [[f(vector(i)), state * 1, model.value] for i in range(CALLS)]

    with Context(JIT_CHECK=1):
        same(program)


def test_a_wrong_replay_is_found() -> None:
    hidden = [1.0]

    @TinyJit
    def f(x: Tensor) -> Any:
        return {"y": x * hidden[0]}

    for i in range(3):
        f(vector(i))
    hidden[0] = 2.0
    text = r"the result\['y'\] has the values 1.0 and 2.0"
    with Context(JIT_CHECK=1), pytest.raises(JitError, match=text):
        f(vector(1))
    hidden[0] = 1.0
    with Context(JIT_CHECK=1):
        assert f(vector(1))["y"].tolist() == vector(1).tolist()


# ------------------------------------------------------------ prune
def test_prune_runs_what_does_not_change_once() -> None:
    weight = Tensor([1.0, 2.0, 3.0]).realize()

    def f(x: Tensor) -> Tensor:
        table = (weight * 10).exp2().contiguous() + Tensor.arange(3).contiguous()
        return x + table.realize()

    plain, pruned = TinyJit(f), TinyJit(f, prune=True)
    for i in range(CALLS):
        assert pruned(vector(i)).tolist() == f(vector(i)).tolist()
        plain(vector(i))
    assert len(pruned.captured) == 1 < len(plain.captured)
    counts = []
    for _ in range(2):
        weight.assign(weight + 1).realize()
        for _ in range(2):
            GlobalCounters.reset()
            found = pruned(vector(0))
            counts.append(GlobalCounters.kernel_count)
            assert found.tolist() == f(vector(0)).tolist()
    # what was kept is made again only when the weights have changed
    assert counts[1] == counts[3] == 1 < counts[0] == counts[2]


def test_prune_keeps_what_varies() -> None:
    def program(decorate: Decorator) -> Any:
        state = vector(0)

        def f(x: Tensor) -> Any:
            state.assign(state + 1)
            return x + 1, state * 2, Tensor.rand(2), (Tensor.arange(3) * 3).contiguous() + x

        jitted = TinyJit(f, prune=True) if decorate is TinyJit else f
        return [jitted(vector(i)) for i in range(CALLS)]

    same(program)
