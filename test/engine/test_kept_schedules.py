"""Schedules on disk: a second process schedules nothing, and no entry leads out of its memories."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from test.engine.keeping import forget, said_by, start
from test.optional import need
from weft import Device, Tensor, TinyJit, Variable, dtypes
from weft.engine import kept, kept_schedules, schedule
from weft.engine.prepared import Request
from weft.engine.schedule import describe
from weft.errors import IndexingError
from weft.helpers import diskcache_get, diskcache_put
from weft.knobs import Context
from weft.uop.node import UOp

hypothesis = need("hypothesis")
given = hypothesis.given
st = hypothesis.strategies

LEAST_NODES = kept_schedules.LEAST_NODES


@pytest.fixture
def cache(cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Every graph is large enough."""
    monkeypatch.setattr(kept_schedules, "LEAST_NODES", 1)
    return cache


@pytest.fixture
def scheduled(monkeypatch: pytest.MonkeyPatch) -> list[UOp]:
    """The graphs that were scheduled, and not found."""
    found: list[UOp] = []
    make = schedule.make_schedule

    def make_schedule(sink: UOp, *args: Any) -> Any:
        found.append(sink)
        return make(sink, *args)

    monkeypatch.setattr(schedule, "make_schedule", make_schedule)
    return found


def numbers(*shape: int, seed: int = 0) -> np.ndarray[Any, Any]:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


# ------------------------------------------------------------ programs whose schedules are kept
def network() -> list[Any]:
    x, w = Tensor(numbers(8, 3, 12, 12)), Tensor(numbers(5, 3, 3, 3, seed=1))
    y = x.conv2d(w, padding=1).relu().max_pool2d((2, 2))
    return [y.softmax(1).numpy(), y.layernorm().sum((1, 2)).numpy()]


def gradients() -> list[Any]:
    x, w = Tensor(numbers(6, 4)), Tensor(numbers(4, 4, seed=1), requires_grad=True)
    (x @ w).tanh().square().sum().backward()
    assert w.grad is not None
    return [w.grad.numpy()]


def writes() -> list[Any]:
    x = Tensor(numbers(4, 5)).contiguous().realize()
    old = x * 2
    x.assign(x + 1).realize()
    x[1:3] = x[0:2] + old[2:4]
    return [x.numpy(), old.numpy()]


def constants() -> list[Any]:
    table = Tensor([3, 1, 2, 0, 5, 4, 7, 6] * 8)
    return [(table + Tensor.arange(64))[::3].numpy(), Tensor(numbers(64))[table].numpy()]


def several_results() -> list[Any]:
    x = Tensor(numbers(7, 9))
    first, second = x.sort(1)
    Tensor.realize(first, second)
    return [first.numpy(), second.numpy(), x.cumsum(0).numpy(), Tensor(numbers(0, 4)).sum().numpy()]


def random_draws() -> list[Any]:
    Tensor.manual_seed(3)
    return [Tensor.rand(50).numpy(), Tensor.randn(20).numpy(), Tensor.rand(50).dropout().numpy()]


def variables() -> list[Any]:
    data = Tensor(numbers(64)).realize()
    found = []
    for value in (5, 17):
        size = Variable("size", 1, 64).bind(value)
        found.append((data[:size].sum() * 2).numpy())
    return found


def in_a_jit() -> list[Any]:
    @TinyJit
    def step(x: Tensor) -> Tensor:
        return (x @ x.T).relu().sum(1).realize()

    return [step(Tensor(numbers(6, 6, seed=i)).realize()).numpy() for i in range(4)]


PROGRAMS = (
    network, gradients, writes, constants, several_results, random_draws, variables, in_a_jit,
)  # fmt: skip


@pytest.mark.parametrize("program", PROGRAMS)
def test_what_is_kept_is_not_scheduled_again(
    cache: Path, scheduled: list[UOp], program: Callable[[], list[Any]]
) -> None:
    first = program()
    assert scheduled
    scheduled.clear()
    forget()
    again = program()
    assert scheduled == []
    for one, other in zip(first, again, strict=True):
        np.testing.assert_array_equal(one, other)


CODE = """
import sys
from weft import Tensor
from weft.engine import schedule
if sys.argv[1:] == ["known"]:
    def make_schedule(*args): raise SystemExit("a graph was scheduled that should be known")
    schedule.make_schedule = make_schedule
x = Tensor.arange(12).reshape(3, 4).float()
for _ in range(12):
    x = (x @ x.T).softmax(0) @ x
print(x.tolist())
"""


def test_a_second_process_schedules_nothing_large(cache: Path) -> None:
    first, second = [said_by(start(cache, CODE, *which)) for which in ((), ("known",))]
    assert first == second


# ------------------------------------------------------------ what must not be found
def key_of(value: Tensor) -> str | None:
    return kept_schedules.key_of(describe(UOp.sink(value.uop), "CPU"), "CPU")


def test_another_graph_is_another_key(cache: Path) -> None:
    x, y = Tensor(numbers(4, 4)).realize(), Tensor(numbers(4, 4, seed=1)).realize()
    values = [x + 0.0, x + -0.0, x + float("nan"), x + 1, x + 1.5, x.cast(dtypes.int32) + 1]
    values += [x + x, x + y, x @ y, x @ x, x.T + y, x.sum(0), x.sum(1), x.max(0), x.double() + 1]
    values += [Tensor([True]) & True, Tensor([1], dtype=dtypes.uint8) + 1]
    keys = [key_of(value) for value in values]
    assert None not in keys
    assert len(set(keys)) == len(keys)
    # other memory of the same kind, and what only gradients see, is the same schedule
    assert key_of(y + y) == key_of(x + x)
    assert key_of((y + y).detach().detach()) == key_of((x + x).detach().detach())


def test_the_key_has_knobs_targets_and_code(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = Tensor(numbers(4, 4)).realize() + 1
    keys = [key_of(x)]
    for knobs in ({"NOOPT": 1}, {"SPLIT_REDUCEOP": 0}, {"NO_MEMORY_PLANNER": 1}):
        with Context(**knobs):
            keys.append(key_of(x))
    monkeypatch.setattr(kept, "own_code", lambda: "another version of weft")
    keys.append(key_of(x))
    assert None not in keys
    assert len(set(keys)) == len(keys)


@pytest.mark.parametrize(
    "knobs",
    [{"SCACHE": 0}, {"CCACHE": 0}, {"DEBUG": 3}, {"CHECK_NAN": 1}, {"VALIDATE": 1}, {"SPEC": 1}],
)
def test_who_needs_kernels_schedules(cache: Path, knobs: dict[str, int]) -> None:
    with Context(**knobs):
        assert key_of(Tensor(numbers(4, 4)).realize() + 1) is None


def test_functions_and_paths_are_not_keys(cache: Path, tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(numbers(8).tobytes())
    stored = Tensor.empty(8, device=f"DISK:{path}", dtype=dtypes.float32)
    assert key_of(stored.to("CPU") + 1) is None
    strange = UOp(stored.uop.op, dtypes.float32, (), (len,))
    assert not kept_schedules._is_plain(strange.arg)


def test_small_graphs_are_scheduled(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_schedules, "LEAST_NODES", LEAST_NODES)
    assert key_of(Tensor(numbers(4, 4)).realize() + 1) is None


def test_conditions_are_asked_every_time(cache: Path, scheduled: list[UOp]) -> None:
    data = Tensor(numbers(64)).realize()

    def four(first: int) -> Any:
        start = Variable("start", 0, 63).bind(first)
        return (data[start : start + 4] + 1).numpy()

    np.testing.assert_allclose(four(10), numbers(64)[10:14] + 1)
    assert scheduled
    scheduled.clear()
    for _ in range(2):
        forget()
        with pytest.raises(IndexingError, match=r"from 62 to 66 of an axis of 64.*start = 62"):
            four(62)
        np.testing.assert_allclose(four(60), numbers(64)[60:] + 1)
    assert scheduled == []


@pytest.mark.parametrize(
    "part", [{"graph": "0: PARAM float32 ()"}, {"graph": "0: CONST"}, {"text": "x"}, "x", 1.5, None]
)
def test_a_condition_on_something_else_is_no_entry(cache: Path, part: Any) -> None:
    data = Tensor(numbers(64)).realize()
    start = Variable("start", 0, 63).bind(10)
    key, head, request = entry_in(lambda: data[start : start + 4] + 1)
    assert kept_schedules.load(key, request, [None] * len(request.key)) is not None
    (condition,) = head["conditions"]
    for i in range(3):
        bad = changed(head, ("conditions", 0, i), part)
        diskcache_put("schedules", key, json.dumps(bad).encode() + b"\n")
        assert kept_schedules.load(key, request, [None] * len(request.key)) is None
    other = {"graph": condition[0]["graph"].replace("start", "other")}
    bad = changed(head, ("conditions", 0, 0), other)
    diskcache_put("schedules", key, json.dumps(bad).encode() + b"\n")
    assert kept_schedules.load(key, request, [None] * len(request.key)) is None


# ------------------------------------------------------------ damage
def entry_in(program: Callable[[], Tensor]) -> tuple[str, dict[str, Any], Request]:
    """The one entry that a program keeps: its key, what stands in it, and who asks for it."""
    asked: list[tuple[str, Request]] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_schedules, "load", lambda key, request, _: asked.append((key, request)))
        program().realize()
    ((key, request),) = asked
    head = diskcache_get("schedules", key)
    assert isinstance(head, bytes)
    return key, json.loads(head.partition(b"\n")[0]), request


def matrices(x: Tensor | None = None) -> Tensor:
    x = Tensor(numbers(6, 6)).realize() if x is None else x
    return ((x @ x).relu().contiguous() @ x).softmax(1).contiguous().sum(0)


def test_programs_that_are_gone_are_made_again(cache: Path, scheduled: list[UOp]) -> None:
    first = matrices().numpy()
    for entry in (cache / "cache" / "kernels").rglob("*"):
        if entry.is_file():
            entry.unlink()
    scheduled.clear()
    forget()
    np.testing.assert_array_equal(matrices().numpy(), first)
    assert scheduled


def changed(head: Any, path: tuple[Any, ...], value: Any) -> Any:
    copy = json.loads(json.dumps(head))
    place = copy
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return copy


def numbers_in(head: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where in an entry something stands."""
    items: Any = ()
    if isinstance(head, dict):
        items = head.items()
    elif isinstance(head, list):
        items = enumerate(head)
    for name, part in items:
        if isinstance(part, (dict, list)):
            yield from numbers_in(part, (*path, name))
        else:
            yield (*path, name)


def test_what_is_not_an_entry_is_scheduled(cache: Path, scheduled: list[UOp]) -> None:
    first = matrices().numpy()
    forget()
    x = Tensor(numbers(6, 6)).realize()
    key, head, request = entry_in(lambda: matrices(x))
    bad: list[Any] = [b"", b"{}", b"[]", b"null", b"{", b"\xff", [1], {"inputs": 1}]
    for path in numbers_in(head):
        bad += [changed(head, path, value) for value in (-1, 1 << 40, 1.5, True, "x", [], None)]
    for entry in bad:
        raw = entry if isinstance(entry, bytes) else json.dumps(entry).encode() + b"\n"
        diskcache_put("schedules", key, raw)
        forget()
        found = kept_schedules.load(key, request, [None] * len(request.key))
        if found is None:
            continue
        # what was changed does not decide which memory is touched
        sizes = [node.arg.size for node in request.inputs] + [memory.size for memory in found.made]
        for step in found.steps:
            assert all(o + n <= sizes[memory] for memory, o, n in step.arguments)
        for memory in found.made:
            if memory.offset is not None:
                nbytes = memory.size * memory.dtype.itemsize
                assert memory.offset + nbytes <= found.arenas[memory.device]
    diskcache_put("schedules", key, b"no entry at all")
    scheduled.clear()
    forget()
    np.testing.assert_array_equal(matrices().numpy(), first)
    assert scheduled


@given(st.binary(max_size=64))
def test_any_bytes_are_no_entry(data: bytes) -> None:
    request = describe(UOp.sink((Tensor([1.0]) + 1).uop), "CPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kept_schedules, "diskcache_get", lambda *_: data)
        assert kept_schedules.load("key", request, []) is None


def test_a_kept_schedule_names_the_lines_of_this_program(
    cache: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(lines: str) -> list[str]:
        names: dict[str, Any] = {"Tensor": Tensor, "x": Tensor(numbers(8, 8)).realize()}
        forget()
        capsys.readouterr()
        with Context(DEBUG=2):
            exec(compile(lines, "somewhere.py", "exec"), names)
        return re.findall(r"somewhere\.py:\d+", capsys.readouterr().out)

    first = run("y = (x @ x).contiguous()\nz = (y + 1).realize()")
    assert "somewhere.py:1" in first
    moved = run("\n\n\ny = (x @ x).contiguous()\n\nz = (y + 1).realize()")
    shifted = {"somewhere.py:1": "somewhere.py:4", "somewhere.py:2": "somewhere.py:6"}
    assert moved == [shifted[place] for place in first]


def test_devices_are_opened_for_their_targets(cache: Path) -> None:
    assert kept_schedules._targets({"CPU"}) is not None
    assert kept_schedules._targets({("CPU", "CPU:1")}) is None
    assert Device["CPU"].compiler.cachekey is not None
