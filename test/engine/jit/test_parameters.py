"""TinyJit: numbers, bools and strings, compared at every call; those that become parameters."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.engine.jit.jitting import CALLS, Decorator, Net, Plain, same, vector
from weft import Tensor, TinyJit, dtypes
from weft.knobs import TRAINING


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


def test_numbers_and_strings_in_containers() -> None:
    def program(decorate: Decorator) -> Any:
        config = {"rate": 2.0, "mode": "plain", "nested": {"power": 1}}
        table, pair = [1.0, 2.0], (1, 2)

        @decorate
        def f(x: Tensor) -> Tensor:
            y = x * config["rate"] + table[1] + sum(pair)
            for each in table:
                y = y + each
            for value in config["nested"].values():
                y = y * value
            return -y if config.get("mode") == "minus" else y

        out = []
        for i in range(CALLS):
            out.append(f(vector(i)))
            config["rate"] = float(i // 2)
            out.append(f(vector(i)))
            table[1] = 2.0 + i % 2
            out.append(f(vector(i)))
            config["mode"] = "minus" if i % 2 else "plain"
            out.append(f(vector(i)))
            config["nested"] = {"power": 1 + i % 3}
            out.append(f(vector(i)))
            pair = (i % 2, 2)
        return out

    same(program)


def test_a_list_that_is_only_added_to_is_not_compared() -> None:
    log: list[int] = []

    def program(decorate: Decorator) -> Any:
        log.clear()

        @decorate
        def f(x: Tensor) -> Tensor:
            log.append(1)
            return x * 2

        return [f(vector(i)) for i in range(CALLS)]

    same(program)
    assert len(log) == 2


def test_numbers_of_objects_in_containers() -> None:
    def program(decorate: Decorator) -> Any:
        nets, named = [Net(1.0), Net(2.0)], {"a": Net(3.0)}

        @decorate
        def f(x: Tensor) -> Tensor:
            first = nets[0]
            x = nets[1].forward(x) + named["a"].bias + first.bias
            return first.last(x)

        out = []
        for i in range(CALLS):
            out.append(f(vector(i)))
            nets[1].bias = float(i // 2)
            out.append(f(vector(i)))
            named["a"].bias = 2.0 + i % 2
            nets[0].last.factor = float(i % 3)
            out.append(f(vector(i)))
            nets.reverse()
            out.append(f(vector(i)))
        return out

    same(program)


class Twice:
    def __call__(self, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def five_times(x: Tensor) -> Tensor:
        return x * 5


def test_functions_and_classes_that_are_replaced() -> None:
    def program(decorate: Decorator) -> Any:
        activation: Callable[[Tensor], Tensor] = Tensor.relu
        layer: Any = types.SimpleNamespace(kind=Twice, norm=Tensor.neg)

        @decorate
        def f(x: Tensor) -> Tensor:
            kind = layer.kind
            x = kind.five_times(x) if isinstance(kind, type) else kind(x)
            return activation(layer.norm(x))

        out = []
        for i in range(CALLS):
            out.append(f(vector(i)))
            activation = (Tensor.relu, Tensor.abs, Tensor.neg)[i % 3]
            out.append(f(vector(i)))
            layer.kind = Twice() if i % 2 else Twice
            out.append(f(vector(i)))
            layer.norm = Tensor.abs if i % 2 else Tensor.neg
            out.append(f(vector(i)))
        return out

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
