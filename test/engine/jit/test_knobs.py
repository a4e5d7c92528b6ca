"""TinyJit: errors, knobs, memory, threads, devices, checked replays, pruning."""

from __future__ import annotations

import functools
import gc
import pickle
import threading
import types
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.engine.jit.jitting import CALLS, Decorator, Plain, same, vector
from weft import Context, Device, GlobalCounters, Tensor, TinyJit
from weft.engine import realize
from weft.engine.jit import JitError, graph_class


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


def test_an_error_in_the_captured_call(monkeypatch: pytest.MonkeyPatch) -> None:
    runs: list[int] = []

    @TinyJit
    def f(x: Tensor) -> Tensor:
        runs.append(1)
        return x * 2

    def fails(*_: Any) -> Any:
        raise RuntimeError("boom")

    f(vector(0))
    x = vector(0).realize()
    with monkeypatch.context() as patch, pytest.raises(RuntimeError):
        patch.setattr(realize, "prepare_schedule", fails)
        f(x)
    assert f.captured is None
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


def scaled(x: Tensor) -> Tensor:
    return x * 3


def test_names_and_pickles() -> None:
    f = TinyJit(scaled)
    assert f.__name__ == "scaled" and f.__wrapped__ is scaled
    again = pickle.loads(pickle.dumps(f))
    assert again(vector(1)).tolist() == scaled(vector(1)).tolist()


def test_a_function_that_nobody_can_import_goes_with_what_it_reads() -> None:
    weight = Tensor([2.0, 3.0]).realize()

    def inner(x: Tensor) -> Tensor:
        return x * weight

    def countdown(x: Tensor, times: int = 2) -> Tensor:
        return inner(x) if times == 0 else countdown(x + 1, times - 1)

    f = TinyJit(lambda x, k=1.0: countdown(x).add(k), prune=True)
    expected = [f(vector(i)[:2]).tolist() for i in range(4)]
    data = pickle.dumps(f)
    del f
    again = pickle.loads(data)
    assert isinstance(again, TinyJit) and again.prune and again.cnt == 0
    assert [again(vector(i)[:2]).tolist() for i in range(4)] == expected
    assert again.cnt == 2 and len(again.captured) == 1
    # it is the value that went, not the memory
    weight.assign(Tensor([0.0, 0.0])).realize()
    assert again(vector(1)[:2]).tolist() == expected[1]
    twice = pickle.loads(pickle.dumps(again))
    assert twice(vector(1)[:2]).tolist() == expected[1]


def test_what_was_captured_can_be_looked_at() -> None:
    f = TinyJit(lambda x: ((x + 1).contiguous() * 2).sum())
    for _ in range(3):
        f(Tensor.ones(5000).contiguous().realize())
    calls = f.captured.linear.src
    assert len(calls) == len(f.captured) and all(len(call.src) >= 3 for call in calls)
    f.captured.free_intermediates()
    assert f(Tensor.ones(5000).contiguous().realize()).item() == 20000.0
    f.note = "mine"
    assert f.note == "mine" and graph_class("CPU") is Device["CPU"].graph


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
    before, spare = GlobalCounters.mem_used, graph.spare_bytes
    assert 0 < spare <= 2 * 64 * 64 * 4
    graph.free()
    assert GlobalCounters.mem_used == before - graph.arena_bytes - spare
    assert graph.spare_bytes == 0
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
    assert GlobalCounters.mem_used - before - f.captured.spare_bytes < 4000


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
        thread.join(300)
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


def test_a_wrong_replay_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    hidden = types.SimpleNamespace(factor=1.0)

    @TinyJit
    def f(x: Tensor) -> Any:
        return {"y": x * hidden.factor}

    for i in range(3):
        f(vector(i))
    # guards that do not see a change
    found = f._watch.now(())
    monkeypatch.setattr(f._watch, "now", lambda _: found)
    monkeypatch.setattr(found, "is_current", lambda: True)
    hidden.factor = 2.0
    text = r"the result\['y'\] has the values 1.0 and 2.0"
    with Context(JIT_CHECK=1), pytest.raises(JitError, match=text):
        f(vector(1))
    hidden.factor = 1.0
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
