"""A call like the last one is recognised at a glance, and no other call is taken for one."""

from __future__ import annotations

import contextvars

import numpy as np
import pytest

from weft import Context, Device, Tensor, TinyJit, dtypes
from weft.engine.jit import fast_path, launches
from weft.engine.jit.fast_path import FastPath
from weft.knobs import TRAINING


@pytest.fixture
def glances(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """Of each call that is looked at, whether it was recognised."""
    seen: list[bool] = []
    memory = FastPath.memory

    def watched(self: FastPath, args: tuple[object, ...]) -> object:
        found = memory(self, args)
        seen.append(found is not None)
        return found

    monkeypatch.setattr(fast_path.FastPath, "memory", watched)
    return seen


@pytest.fixture
def large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every graph passes for one that touches more memory than the caches hold."""
    monkeypatch.setattr(launches, "LARGE_BYTES", 0)


def numbers(start: int, count: int = 6) -> Tensor:
    return Tensor(np.arange(start, start + count, dtype=np.float32)).realize()


def ready(function: TinyJit, *args: Tensor) -> None:
    for _ in range(4):
        function(*args)


def test_other_tensors_of_the_same_kind(glances: list[bool]) -> None:
    function = TinyJit(lambda a, b: (a - b).sum())
    ready(function, numbers(0), numbers(1))
    glances.clear()
    assert function(numbers(5), numbers(1)).item() == 24
    assert function(numbers(1), numbers(5)).item() == -24
    assert glances == [True, True]


def test_writes_to_memory_of_its_own(glances: list[bool]) -> None:
    """A scatter makes the storage that it writes to; what the caller holds is only read."""
    places = Tensor(np.array([0, 2, 2, 5, 1, 0], np.int32)).realize()
    function = TinyJit(lambda x, v: x.scatter_reduce(0, places, v, "sum").realize())
    start = numbers(10)
    plain = TinyJit(lambda x, at, v: x.scatter_reduce(0, at, v, "sum").realize())
    for _ in range(4):
        function(start, numbers(0))
        plain(start, places, numbers(0))
    glances.clear()
    results = [plain(start, places, numbers(i)) for i in range(3)]
    assert glances == [True] * 3
    for i, result in enumerate(results):
        expected = np.arange(10, 16, dtype=np.float32)
        np.add.at(expected, [0, 2, 2, 5, 1, 0], np.arange(i, i + 6))
        np.testing.assert_array_equal(result.numpy(), expected)
        np.testing.assert_array_equal(function(start, numbers(i)).numpy(), expected)
    np.testing.assert_array_equal(start.numpy(), np.arange(10, 16))


def test_results_of_earlier_calls_stay(glances: list[bool]) -> None:
    function = TinyJit(lambda a: a * 2)
    ready(function, numbers(0))
    glances.clear()
    results = [function(numbers(i)) for i in range(5)]
    assert [r.numpy()[0] for r in results] == [0, 2, 4, 6, 8]
    assert all(glances)


def test_a_result_goes_in_again() -> None:
    function = TinyJit(lambda a: a + 1)
    x = numbers(0)
    for _ in range(10):
        x = function(x)
    assert x.tolist() == [10, 11, 12, 13, 14, 15]


@pytest.mark.parametrize(
    "other",
    [
        lambda: (numbers(0, 4), numbers(1, 4)),
        lambda: (numbers(0).reshape(2, 3), numbers(1).reshape(2, 3)),
        lambda: (numbers(0).cast(dtypes.float64).realize(), numbers(1)),
        lambda: (numbers(0, 12)[3:9], numbers(1)),
        lambda: (numbers(0) + 1, numbers(1)),
        lambda: (Tensor(2.0), numbers(1)),
        lambda: (3.0, numbers(1)),
    ],
)
def test_another_kind(other: object) -> None:
    def plain(a, b):
        return (a * 2 + b).sum(), (a * b).reshape(-1)

    function = TinyJit(plain)
    ready(function, numbers(0), numbers(1))
    for _ in range(4):
        for make in (other, lambda: (numbers(2), numbers(3))):
            args = make()
            found, wanted = function(*args), plain(*args)
            for one, two in zip(found, wanted, strict=True):
                np.testing.assert_array_equal(one.numpy(), two.numpy())


def test_one_tensor_twice() -> None:
    function = TinyJit(lambda a, b: a - b)
    ready(function, numbers(0), numbers(1))
    x = numbers(3)
    for _ in range(4):
        assert function(x, x).tolist() == [0] * 6
        assert function(x, numbers(1)).tolist() == [2] * 6


def test_knobs_and_names() -> None:
    factor = 2

    def scaled(a: Tensor) -> Tensor:
        return a * factor if Tensor.training else a

    function = TinyJit(scaled)
    x = numbers(1)
    for _ in range(3):
        with Context(TRAINING=1):
            ready(function, x)
            assert function(x).tolist()[0] == 2
        ready(function, x)
        assert function(x).tolist()[0] == 1
    with Context(TRAINING=1):
        ready(function, x)
        factor = 5
        assert function(x).tolist()[0] == 5


def test_knobs_set_inside_of_contexts() -> None:
    function = TinyJit(lambda a: a * 2 if Tensor.training else a)
    x = numbers(1)
    with Context(TRAINING=0):
        ready(function, x)
        # as an asynchronous task has it: the same contexts, set apart from then on
        task = contextvars.copy_context()
        with Context(DEBUG=0):
            TRAINING.value = 1
            assert function(x).tolist()[0] == 2
        ready(function, x)
        assert function(x).tolist()[0] == 2
        assert task.run(lambda: function(x).tolist()[0]) == 1
        assert function(x).tolist()[0] == 2
    assert function(x).tolist()[0] == 1


def test_another_default_device() -> None:
    function = TinyJit(lambda a: ((a + 1).realize(), Tensor.ones(2).contiguous().realize()))
    x = numbers(1)
    before = Device.DEFAULT
    ready(function, x)
    Device.DEFAULT = "PYTHON"
    try:
        assert function(x)[1].device == "PYTHON"
    finally:
        Device.DEFAULT = before
    assert function(x)[1].device == before


def test_memory_given_back() -> None:
    function = TinyJit(lambda a: (a.contiguous() + 1).contiguous().sum())
    ready(function, numbers(0))
    function.captured.free()
    assert function(numbers(0)).item() == 21
    assert function(numbers(1)).item() == 27
    function.reset()
    assert function(numbers(2)).item() == 33


def test_a_tensor_that_waits_for_its_gradient() -> None:
    function = TinyJit(lambda a: a * 2)
    ready(function, numbers(0))
    x = Tensor([1.0, 2, 3, 4, 5, 6], requires_grad=True).realize()
    for _ in range(4):
        result = function(x)
    assert result.tolist() == [2, 4, 6, 8, 10, 12]
    assert result.requires_grad is TinyJit(lambda a: a * 2)(x).requires_grad


def test_containers_that_are_looked_into(glances: list[bool]) -> None:
    config = {"factor": 2, "names": ["a"]}

    def scaled(a: Tensor) -> Tensor:
        return a * config["factor"] if config["names"][0] == "a" else a

    function = TinyJit(scaled)
    x = numbers(1)
    ready(function, x)
    glances.clear()
    assert function(x).tolist()[0] == 2 and glances == [True]
    for value in (3, 3.5, True, 2):
        config["factor"] = value
        for _ in range(4):
            found, wanted = function(x), scaled(x)
            assert found.dtype is wanted.dtype and found.tolist() == wanted.tolist()
    config["names"][0] = "b"
    for _ in range(4):
        assert function(x).tolist()[0] == 1
    config["names"] = ["a"]
    assert function(x).tolist()[0] == 2


@pytest.mark.usefixtures("large")
def test_kernels_begin_before_there_is_a_result(glances: list[bool]) -> None:
    function = TinyJit(lambda a, b: ((a @ b).relu().contiguous(), (a - b).sum(0)))
    a, b = [Tensor.rand(160, 160).realize() for _ in range(2)]
    ready(function, a, b)
    glances.clear()
    for x, y in ((a, b), (b, a), (a + 1, b)):
        product, sums = function(x.realize(), y)
        expected = np.maximum(x.numpy() @ y.numpy(), 0)
        np.testing.assert_allclose(product.numpy(), expected, rtol=1e-4)
        np.testing.assert_allclose(sums.numpy(), (x.numpy() - y.numpy()).sum(0), atol=1e-4)
    assert all(glances)


@pytest.mark.usefixtures("large")
def test_an_interruption_while_kernels_run(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was begun is finished: the next call finds memory and workers as after any other."""
    function = TinyJit(lambda a: (a * 2).contiguous().sum())
    x = Tensor.ones(300, 300).contiguous().realize()
    ready(function, x)

    def interrupted(*_: object) -> Tensor:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(function.captured, "_maker", interrupted)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                function(x)
    assert [function(x).item() for _ in range(3)] == [180000.0] * 3


def test_defaults_that_a_call_leaves_out_are_read_from_the_function(glances: list[bool]) -> None:
    def scaled(x: Tensor, factor: float = 2.0, *, shift: float = 1.0) -> Tensor:
        return x * factor + shift

    function = TinyJit(scaled)
    x = Tensor([1.0, 2.0, 3.0]).realize()
    ready(function, x)
    glances.clear()
    assert [function(x).tolist() for _ in range(2)] == [[3.0, 5.0, 7.0]] * 2 and all(glances)
    scaled.__defaults__ = (10.0,)
    assert function(x).tolist() == [11.0, 21.0, 31.0]
    scaled.__kwdefaults__["shift"] = 5.0
    assert function(x).tolist() == [15.0, 25.0, 35.0]
    assert function(x, 3.0).tolist() == [8.0, 11.0, 14.0]
    assert function(x=x, factor=1.0, shift=0.0).tolist() == [1.0, 2.0, 3.0]
    with pytest.raises(TypeError):
        function(x, 1.0, 2.0)


def test_a_function_of_any_number_of_tensors_with_a_default(glances: list[bool]) -> None:
    function = TinyJit(lambda *tensors, take=sum: take(tensors))
    x = Tensor([1.0, 2.0, 3.0]).realize()
    y = Tensor([4.0, 5.0, 6.0]).realize()
    ready(function, x, y)
    glances.clear()
    assert function(x, y).tolist() == [5.0, 7.0, 9.0] and all(glances)
    assert function(x, y, take=lambda pair: pair[0] - pair[1]).tolist() == [-3.0] * 3
