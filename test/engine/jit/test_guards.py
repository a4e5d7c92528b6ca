"""State that a jitted function reads in odd ways: right after every change of it, or warned of."""

from __future__ import annotations

import abc
import array
import collections
import contextvars
import ctypes
import dataclasses
import enum
import functools
import importlib
import itertools
import operator
import os
import queue
import random
import sys
import threading
import time
import types
import warnings
import weakref
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest

from weft import Tensor, TinyJit

factor = 1.0
settings = {"rate": 1.0}


class Config:
    shared = 1.0

    def __init__(self, x: float = 1.0) -> None:
        self.x = x
        self.inner: Any = None

    @property
    def twice(self) -> float:
        return self.x * 2

    @functools.cached_property
    def kept(self) -> float:
        return self.x

    def method(self) -> float:
        return self.x

    def __getitem__(self, name: str) -> float:
        return float(getattr(self, name))

    def __iter__(self) -> Iterator[float]:
        yield self.x

    def __float__(self) -> float:
        return self.x


class Forwarding:
    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


class Slotted:
    __slots__ = ("x",)

    def __init__(self) -> None:
        self.x = 1.0


class Described:
    """A descriptor with a state of its own."""

    def __init__(self) -> None:
        self.state = 1.0

    def __get__(self, instance: Any, owner: Any = None) -> float:
        return self.state


descriptor = Described()


class WithDescriptor:
    value = descriptor


@dataclasses.dataclass
class Data:
    x: float = 1.0


class Pair(NamedTuple):
    left: float
    right: Any


class Mode(enum.Enum):
    SLOW = 1.0
    FAST = 2.0


def helper(config: Any) -> Any:
    return config.x


def with_default(options: Any = [1.0]) -> Any:  # noqa: B006
    return options[0]


Read = tuple[Callable[[], Any], Callable[[float], Any]]
READS: dict[str, Callable[[], Read]] = {}


def read(function: Callable[[], Read]) -> Callable[[], Read]:
    READS[function.__name__] = function
    return function


def of_config(name: str, reading: Callable[[Config], Any]) -> None:
    """A way to read `x` of a configuration that is closed over."""

    def make() -> Read:
        config = Config()
        return lambda: reading(config), lambda value: setattr(config, "x", value)

    READS[name] = make


NAME = "x"
of_config("helper", lambda config: helper(config))
of_config("getattr", lambda config: getattr(config, "x"))  # noqa: B009
of_config("getattr_of_a_name", lambda config: getattr(config, NAME))
of_config("getattr_of_a_computed_name", lambda config: getattr(config, "".join(["", "x"])))
of_config("vars", lambda config: vars(config)["x"])
of_config("dict_of_object", lambda config: config.__dict__["x"])
of_config("element_of_a_list", lambda config: [config][0].x)
of_config("element_of_a_dict", lambda config: {"k": config}["k"].x)
of_config("attrgetter", lambda config: operator.attrgetter("x")(config))
of_config("methodcaller", lambda config: operator.methodcaller("method")(config))
of_config("property", lambda config: config.twice)
of_config("method", lambda config: config.method())
of_config("unbound_method", lambda config: Config.method(config))
of_config("getitem", lambda config: config["x"])
of_config("iteration", lambda config: next(iter(config)))
of_config("star", lambda config: (lambda *a: a[0])(*config))
of_config("double_star", lambda config: dict(**vars(config))["x"])
of_config("float", lambda config: float(config))
of_config("walrus", lambda config: (found := config).x + found.x)
of_config("comprehension", lambda config: sum([c.x for c in (config, config)]))
of_config("generator", lambda config: sum(c.x for c in (config,)))
of_config("map", lambda config: sum(map(lambda c: c.x, [config])))
of_config("partial", lambda config: functools.partial(helper, config)())
of_config("sorted", lambda config: sorted([config], key=lambda c: c.x)[0].x)
of_config("super_object", lambda config: object.__getattribute__(config, "x"))
of_config("match", lambda config: matched(config))
of_config("forwarding", lambda config: Forwarding(config).x)
of_config("eval", lambda config: eval("config.x", {"config": config}))
of_config("condition", lambda config: 1.0 if config.x > 2 else 0.0)
of_config("replace", lambda config: dataclasses.replace(Data(), x=config.x).x)
of_config("conditional_pair", lambda config: unpacked(config))
of_config("exception", lambda config: raised(config))


def matched(config: Any) -> Any:
    match config:
        case Config(x=found):
            return found
    return 0.0


def unpacked(config: Any) -> Any:
    found, _ = config, 1
    return found.x


def raised(config: Any) -> Any:
    try:
        raise KeyError(config)
    except KeyError as error:
        return error.args[0].x


@read
def environ() -> Read:
    os.environ["WEFT_TEST_X"] = "1.0"
    return lambda: float(os.environ["WEFT_TEST_X"]), set_environ


def set_environ(value: float) -> None:
    os.environ["WEFT_TEST_X"] = str(value)


@read
def environ_get() -> Read:
    return lambda: float(os.environ.get("WEFT_TEST_Y", "1.0")), lambda value: os.environ.update(
        WEFT_TEST_Y=str(value)
    )


@read
def getenv() -> Read:
    return lambda: float(os.getenv("WEFT_TEST_Z") or 1.0), lambda value: os.environ.update(
        WEFT_TEST_Z=str(value)
    )


@read
def global_names() -> Read:
    def change(value: float) -> None:
        global factor
        factor = value

    return lambda: globals()["factor"], change


@read
def module_in_sys_modules() -> Read:
    module = types.ModuleType("weft_test_module")
    module.x = 1.0  # type: ignore[attr-defined]
    sys.modules["weft_test_module"] = module
    return lambda: sys.modules["weft_test_module"].x, lambda value: setattr(module, "x", value)


@read
def imported_module() -> Read:
    module = types.ModuleType("weft_test_imported")
    module.x = 1.0  # type: ignore[attr-defined]
    sys.modules["weft_test_imported"] = module
    return (
        lambda: importlib.import_module("weft_test_imported").x,
        lambda value: setattr(module, "x", value),
    )


@read
def replaced_module() -> Read:
    def put(value: float) -> None:
        module = types.ModuleType("weft_test_replaced")
        module.x = value  # type: ignore[attr-defined]
        sys.modules["weft_test_replaced"] = module

    def reading() -> Any:
        # as `import weft_test_replaced` would, which looks like a package that may be absent
        return __import__("weft_test_replaced").x

    put(1.0)
    return reading, put


@read
def mutated_default() -> Read:
    def change(value: float) -> None:
        assert with_default.__defaults__ is not None
        with_default.__defaults__[0][0] = value

    return lambda: with_default(), change


@read
def partial_with_a_list() -> Read:
    values = [1.0]
    bound = functools.partial(operator.getitem, values)
    return lambda: bound(0), lambda value: values.__setitem__(0, value)


@read
def class_attribute() -> Read:
    return lambda: Config().shared, lambda value: setattr(Config, "shared", value)


@read
def replaced_method() -> Read:
    class Own(Config):
        def method(self) -> float:
            return 1.0

    own = Own()
    return lambda: own.method(), lambda value: setattr(Own, "method", lambda self: value)


@read
def slots() -> Read:
    slotted = Slotted()
    return lambda: [slotted][0].x, lambda value: setattr(slotted, "x", value)


@read
def descriptor_state() -> Read:
    owner = WithDescriptor()
    return lambda: owner.value, lambda value: setattr(descriptor, "state", value)


@read
def named_tuple_with_a_list() -> Read:
    pair = Pair(1.0, [1.0])
    return lambda: pair.right[0], lambda value: pair.right.__setitem__(0, value)


@read
def dataclass_as_dict() -> Read:
    data = Data()
    return lambda: dataclasses.asdict(data)["x"], lambda value: setattr(data, "x", value)


@read
def dataclass_fields() -> Read:
    data = Data()
    return (
        lambda: [getattr(data, field.name) for field in dataclasses.fields(data)][0],
        lambda value: setattr(data, "x", value),
    )


@read
def attribute_that_appears() -> Read:
    config = Config()
    return (
        lambda: config.extra if hasattr(config, "extra") else 1.0,  # type: ignore[attr-defined]
        lambda value: setattr(config, "extra", value),
    )


@read
def getter_from_outside() -> Read:
    slotted, getter = Slotted(), operator.attrgetter("x")
    return lambda: getter([slotted][0]), lambda value: setattr(slotted, "x", value)


@read
def method_caller_from_outside() -> Read:
    config, caller = Config(), operator.methodcaller("method")
    return lambda: caller([config][0]), lambda value: setattr(config, "x", value)


@read
def simple_namespace() -> Read:
    space = types.SimpleNamespace(inner=types.SimpleNamespace(x=1.0))
    return lambda: vars(space)["inner"].x, lambda value: setattr(space.inner, "x", value)


@read
def replaced_object() -> Read:
    config = Config()
    config.inner = Config()
    return lambda: helper(config.inner), lambda value: setattr(config, "inner", Config(value))


@read
def enumerated_list() -> Read:
    values = [1.0, 2.0]
    return (
        lambda: sum(i * v for i, v in enumerate(values, 1)),
        lambda value: values.__setitem__(1, value),
    )


@read
def long_list() -> Read:
    values = [1.0] * 5000
    return lambda: sum(values), lambda value: values.__setitem__(4000, value)


@read
def length_of_a_list() -> Read:
    values: list[Any] = [None]
    return lambda: float(len(values)), lambda value: values.append(None)


@read
def views_of_a_dict() -> Read:
    values = {"a": 1.0}
    view = values.values()
    return lambda: sum(list(view)), lambda value: values.update(a=value)


@read
def key_of_a_dict() -> Read:
    values = {"a": 1.0}
    return (
        lambda: 2.0 if "b" in values else 1.0,
        lambda value: values.update(b=value),
    )


@read
def set_of_numbers() -> Read:
    values = {1.0}
    return lambda: sum(values), lambda value: values.add(value)


@read
def double_ended_queue() -> Read:
    values = collections.deque([1.0, 2.0])
    return lambda: values[0], lambda value: values.appendleft(value)


@read
def ordered_dict() -> Read:
    values = collections.OrderedDict(a=1.0, b=2.0)
    return lambda: next(iter(values.values())), lambda value: values.move_to_end("a")


@read
def default_dict() -> Read:
    values: dict[str, float] = collections.defaultdict(float)
    return lambda: values["a"], lambda value: values.update(a=value)


@read
def chain_map() -> Read:
    first: dict[str, float] = {}
    values = collections.ChainMap(first, {"a": 1.0})
    return lambda: values["a"], lambda value: first.update(a=value)


@read
def typed_array() -> Read:
    values = array.array("d", [1.0])
    return lambda: values[0], lambda value: values.__setitem__(0, value)


@read
def byte_array() -> Read:
    values = bytearray(b"\x01")
    view = memoryview(values)
    return lambda: float(view[0]), lambda value: values.__setitem__(0, int(value))


@read
def number_for_c() -> Read:
    number = ctypes.c_double(1.0)
    return lambda: number.value, lambda value: setattr(number, "value", value)


@read
def weak_reference() -> Read:
    config = Config()
    reference = weakref.ref(config)

    def reading() -> Any:
        found = reference()
        assert found is not None
        return found.x

    return reading, lambda value: setattr(config, "x", value)


@read
def context_variable() -> Read:
    variable = contextvars.ContextVar("variable", default=1.0)
    return lambda: variable.get(), lambda value: variable.set(value)


@read
def thread_local() -> Read:
    local = threading.local()
    local.x = 1.0
    return lambda: local.x, lambda value: setattr(local, "x", value)


@read
def cached_function() -> Read:
    config = Config()

    @functools.lru_cache
    def cached(scale: float) -> float:
        return config.x * scale

    def change(value: float) -> None:
        config.x = value
        cached.cache_clear()

    return lambda: cached(2.0), change


@read
def cached_property() -> Read:
    config = Config()

    def change(value: float) -> None:
        config.x = value
        vars(config).pop("kept", None)

    return lambda: config.kept, change


@read
def enumeration() -> Read:
    config = types.SimpleNamespace(mode=Mode.SLOW)
    return (
        lambda: config.mode.value,
        lambda value: setattr(config, "mode", Mode.FAST),
    )


@read
def rebound_by_nonlocal() -> Read:
    value = 1.0

    def change(new: float) -> None:
        nonlocal value
        value = new

    def inner() -> float:
        return value

    return lambda: [inner][0](), change


@read
def closure_in_a_list() -> Read:
    def make(value: float) -> Callable[[], float]:
        return lambda: value

    functions = [make(1.0)]
    return lambda: functions[0](), lambda value: functions.__setitem__(0, make(value))


@read
def replaced_function() -> Read:
    space = types.SimpleNamespace(function=lambda: 1.0)
    return (
        lambda: space.function(),
        lambda value: setattr(space, "function", lambda: value),
    )


@read
def numpy_array() -> Read:
    values = np.array([1.0, 2.0])
    return lambda: float(values[0]), lambda value: values.__setitem__(0, value)


@read
def numpy_array_as_a_tensor() -> Read:
    values = np.array([1.0])
    return lambda: Tensor(values).sum(), lambda value: values.__setitem__(0, value)


@read
def numpy_scalar() -> Read:
    space = types.SimpleNamespace(x=np.float64(1.0))
    return lambda: float(space.x), lambda value: setattr(space, "x", np.float64(value))


@read
def kept_by_a_loop() -> Read:
    configs = [Config(), Config()]

    def reading() -> Any:
        total = 0.0
        for config in configs[::-1]:
            total += config.x
        return total

    return reading, lambda value: setattr(configs[1], "x", value)


# What cannot be followed: the function runs without being jitted, and says so once.
REFUSED: dict[str, Callable[[], Read]] = {}


def refused(function: Callable[[], Read]) -> Callable[[], Read]:
    REFUSED[function.__name__] = function
    return function


@refused
def counter() -> Read:
    count = itertools.count()
    return lambda: 0.0 * next(count), lambda value: None


@refused
def cycle() -> Read:
    values = itertools.cycle([1.0, 1.0, 1.0, 1.0, 2.0])
    return lambda: next(values), lambda value: None


@refused
def outer_generator() -> Read:
    values = (value for value in [1.0] * 6 + [2.0] * 20)
    return lambda: next(values), lambda value: None


@refused
def random_number() -> Read:
    random.seed(3)
    return lambda: float(random.random() < 0.8), lambda value: None


@refused
def random_generator() -> Read:
    generator = random.Random(3)
    return lambda: float(generator.random() < 0.8), lambda value: None


@refused
def numpy_random() -> Read:
    generator = np.random.default_rng(3)
    return lambda: float(generator.random() < 0.8), lambda value: None


@refused
def clock() -> Read:
    return lambda: float(time.time() > 1e30), lambda value: None


@refused
def clock_by_partial() -> Read:
    bound = functools.partial(time.time)
    return lambda: float(bound() > 1e30), lambda value: None


@refused
def file() -> Read:
    return lambda: float(len(open(__file__).name) > 0), lambda value: None  # noqa: SIM115


@refused
def c_queue() -> Read:
    waiting: queue.SimpleQueue[float] = queue.SimpleQueue()
    for value in [1.0] * 6 + [2.0] * 20:
        waiting.put(value)
    return lambda: waiting.get(timeout=1), lambda value: None


def outcomes(make: Callable[[], Read], decorate: Callable[[Any], Any]) -> tuple[list[Any], Any]:
    """Six calls, a change, six calls, another one."""
    reading, change = make()

    def function(x: Tensor) -> Tensor:
        return x * reading()

    decorated = decorate(function)
    found = []
    for value in (None, 3.0, 5.0):
        if value is not None:
            change(value)
        found += [decorated(Tensor([1.0, 2.0])).tolist() for _ in range(6)]
    return found, decorated


def restored(make: Callable[[], Read]) -> None:
    """State of the module as it is for the first reader of it."""
    global factor
    factor, Config.shared, descriptor.state = 1.0, 1.0, 1.0
    assert with_default.__defaults__ is not None
    with_default.__defaults__[0][0] = 1.0
    for name in ("WEFT_TEST_X", "WEFT_TEST_Y", "WEFT_TEST_Z"):
        os.environ.pop(name, None)


@pytest.mark.parametrize("name", READS)
def test_a_read_is_never_stale(name: str) -> None:
    make = READS[name]
    restored(make)
    expected, _ = outcomes(make, lambda function: function)
    restored(make)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found, jitted = outcomes(make, TinyJit)
    restored(make)
    assert found == expected
    assert jitted.captured is not None or any("without being" in str(w.message) for w in said)
    assert len({str(values) for values in found}) > 1


@pytest.mark.parametrize("name", sorted(set(READS) - {"eval"}))
def test_a_read_that_can_be_followed_is_replayed(name: str) -> None:
    make = READS[name]
    restored(make)
    _, jitted = outcomes(make, TinyJit)
    restored(make)
    assert jitted.captured is not None and jitted._waiting == 0


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_followed_is_refused_with_one_warning(name: str) -> None:
    expected, _ = outcomes(REFUSED[name], lambda function: function)
    with pytest.warns(UserWarning, match="runs without being jitted: it (calls|reads)") as said:
        found, jitted = outcomes(REFUSED[name], TinyJit)
    assert found == expected
    assert jitted.captured is None
    assert len([w for w in said if "being jitted" in str(w.message)]) == 1


def test_abstract_classes_and_computed_names_are_followed() -> None:
    class Base(abc.ABC):
        scale = 1.0

        @abc.abstractmethod
        def rate(self) -> float: ...

    class Own(Base):
        def rate(self) -> float:
            return float(getattr(self, "".join(["sc", "ale"])))

    own = Own()
    step = TinyJit(lambda x: x * own.rate())
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert [step(Tensor([1.0])).item() for _ in range(4)] == [1.0] * 4
        Base.scale = 2.0
        assert [step(Tensor([1.0])).item() for _ in range(4)] == [2.0] * 4
    assert step.captured is not None


@pytest.mark.parametrize("kind", [list, tuple, collections.deque])
def test_records_of_a_data_set_are_compared_as_a_whole(kind: Any) -> None:
    samples = kind([(np.full(2, i, dtype=np.float32), i % 10, ("a", b"b")) for i in range(3000)])
    extra = [0.0]

    @TinyJit
    def step(x: Tensor) -> Tensor:
        image, label, _ = samples[7]
        return (x * label + float(image[1]) + len(samples) + extra[0]).realize()

    def wanted() -> float:
        return float(samples[7][1] + samples[7][0][1] + len(samples) + extra[0])

    x = Tensor([1.0]).realize()
    for _ in range(4):
        assert step(x).tolist() == [wanted()]
    assert step.captured is not None
    # one check for all of them, not some for each
    assert len(step._watch.now(())._checks) < 200
    samples[7][0][1] = 50.0
    assert step(x).tolist() == [wanted()]
    samples[2999][0][0] = -1.0
    assert step(x).tolist() == [wanted()]
    if kind is not tuple:
        samples[7] = (samples[7][0], 3, ("a", b"b"))
        assert step(x).tolist() == [wanted()]
        samples.append(samples[0])
        assert step(x).tolist() == [wanted()]
    extra[0] = 2.0
    assert step(x).tolist() == [wanted()]
