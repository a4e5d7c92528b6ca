"""Values that the host computes: as lazy as others, once each, and kernels wherever it may not."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from weft import Context, GlobalCounters, Tensor, TinyJit, dtypes
from weft.engine import host_calls
from weft.uop.node import UOp
from weft.uop.opset import Ops

# the host computes only where it shares the memory
pytestmark = pytest.mark.device("CPU")
CALLS: list[str] = []


@pytest.fixture(autouse=True)
def none_yet() -> None:
    CALLS.clear()


def halves(arrays: Sequence[Any], may: bool) -> Any:
    CALLS.append("host")
    return np.divmod(arrays[0], 2) if may else None


def kernel_halves(nodes: Sequence[UOp], may: bool) -> list[UOp]:
    CALLS.append("kernels")
    value = Tensor(nodes[0])
    return [(value // 2).contiguous().uop, (value % 2).contiguous().uop]


def divided(value: Tensor, may: bool = True) -> tuple[Tensor, Tensor]:
    """A half rounded down and the rest, of ints."""
    results = [(value.shape, value.dtype)] * 2
    first, second = host_calls.call("halves", (value.uop,), results, halves, kernel_halves, (may,))
    return Tensor(first), Tensor(second)


def ints(*values: int) -> Tensor:
    return Tensor(list(values)).realize()


def test_nothing_runs_before_a_value_is_wanted_and_then_once_for_all_results() -> None:
    first, second = divided(ints(5, 8))
    assert not CALLS and first.shape == (2,) and first.dtype is dtypes.int32
    assert (first + 1).tolist() == [3, 5]
    assert second.tolist() == [1, 0] and first.tolist() == [2, 4]
    assert CALLS == ["host"]


def test_what_is_written_down_again_is_computed_again() -> None:
    x = ints(5, 8)
    kept = divided(x)
    assert [t.tolist() for t in kept] == [[2, 4], [1, 0]]
    assert [t.tolist() for t in divided(x)] == [[2, 4], [1, 0]]
    assert CALLS == ["host"] * 2


def test_a_call_counts_as_a_launch() -> None:
    x = ints(5, 8)
    GlobalCounters.reset()
    Tensor.realize(*divided(x))
    assert GlobalCounters.kernel_count == 1 and GlobalCounters.global_mem == 16


def test_calls_of_calls_and_of_pending_values() -> None:
    x = ints(40, 83)
    half, rest = divided(x + 1)
    quarter, _ = divided(half + rest)
    eighth, _ = divided(quarter.flip(0))
    assert eighth.tolist() == [10, 5]
    assert CALLS == ["host"] * 3
    assert half.tolist() == [20, 42] and len(CALLS) == 3


def test_no_kernels_where_kernels_are_not_asked_for() -> None:
    half, _ = divided(ints(40, 83))
    assert not [item for item in (half + 1).schedule() if item.kernel is None]
    assert CALLS == ["kernels"]
    assert (half + 1).tolist() == [21, 42]


def test_where_the_host_declines_kernels_compute_it() -> None:
    half, rest = divided(ints(5, 8), may=False)
    assert (half + rest).tolist() == [3, 4]
    assert CALLS == ["host", "kernels"]


@pytest.mark.parametrize("knob", ["HOST_CALLS", "CHECK_OOB", "CHECK_NAN", "VALIDATE"])
def test_knobs_that_want_kernels_get_them(knob: str) -> None:
    half, rest = divided(ints(5, 8))
    with Context(**{knob: int(knob != "HOST_CALLS")}):
        assert (half + rest).tolist() == [3, 4]
    assert CALLS == ["kernels"]


def test_other_devices_have_kernels_from_the_start() -> None:
    x = Tensor([5, 8], device="PYTHON")
    half, rest = divided(x)
    assert CALLS == ["kernels"]
    assert all(node.op is not Ops.HOST for node in half.uop.toposort())
    assert (half + rest).tolist() == [3, 4]


def test_a_failing_call_leaves_its_value_pending() -> None:
    def fail(arrays: Sequence[Any], may: bool) -> Any:
        if len(CALLS) < 1:
            CALLS.append("failed")
            raise MemoryError("no room")
        return halves(arrays, may)

    x = ints(5, 8)
    results = [(x.shape, x.dtype)] * 2
    half = Tensor(host_calls.call("fail", (x.uop,), results, fail, kernel_halves, (True,))[0])
    with pytest.raises(MemoryError, match="no room"):
        half.realize()
    assert half.tolist() == [2, 4]


# ------------------------------------------------------------ writes
def test_a_call_reads_what_was_there_when_it_was_written_down() -> None:
    x = ints(5, 8)
    before, _ = divided(x)
    x.assign(x + 10)
    after, _ = divided(x)
    x.assign(x + 10)
    x.realize()
    assert [t.tolist() for t in (before, after, x)] == [[2, 4], [7, 9], [25, 28]]


@pytest.mark.parametrize("by_host", [0, 1])
def test_a_write_of_a_call_of_a_write_happens_once(by_host: int) -> None:
    x, y = ints(40, 80), ints(0, 0)
    with Context(HOST_CALLS=by_host):
        half, _ = divided(x)
        x.assign(half + 1)
        y.assign(divided(x)[0] + y)
        seen = x * 1
        assert y.tolist() == [10, 20]
        assert x.tolist() == [21, 41] and seen.tolist() == [21, 41]
        assert y.tolist() == [10, 20]


def test_a_reader_of_what_a_write_destroys_that_needs_the_call_of_that_write() -> None:
    x = ints(40, 80)
    old = x + 0
    x.assign(x + 2)
    half, _ = divided(x)
    both = old + half
    del old
    assert half.tolist() == [21, 41]
    assert both.tolist() == [61, 121] and x.tolist() == [42, 82]


def test_part_of_a_tensor_is_written_with_a_call_of_the_whole() -> None:
    x = ints(4, 6, 8)
    x[1:] = divided(x)[0][:2]
    assert x.tolist() == [4, 2, 3]


# ------------------------------------------------------------ captures
def test_a_capture_has_kernels_and_computes_what_it_is_given() -> None:
    @TinyJit
    def step(x: Tensor) -> tuple[Tensor, Tensor]:
        half, rest = divided(x + 1)
        return half.realize(), (rest + half).realize()

    for number in range(6):
        half, total = step(ints(number, 3 * number))
        wanted = np.array([number, 3 * number]) + 1
        assert half.tolist() == (wanted // 2).tolist()
        assert total.tolist() == (wanted // 2 + wanted % 2).tolist()
    assert step.captured is not None


def test_state_of_a_capture_that_calls_write() -> None:
    x, total = ints(1000, 600), ints(0, 0)

    @TinyJit
    def step() -> Tensor:
        x.assign(divided(x)[0])
        total.assign(total + divided(x)[0])
        return total.realize()

    wanted, value = np.zeros(2, int), np.array([1000, 600])
    for _ in range(6):
        value = value // 2
        wanted += value // 2
        assert step().tolist() == wanted.tolist()
        assert x.tolist() == value.tolist()


def test_a_call_that_was_pending_before_the_capture() -> None:
    x = ints(5, 8)
    step = TinyJit(lambda y, pending: (y + pending).realize())
    for number in range(5):
        x.assign(x + 2).realize()
        wanted = (np.array([5, 8]) + 2 * (number + 1)) // 2 + number
        assert step(ints(number, number), divided(x)[0]).tolist() == wanted.tolist()


def test_results_of_one_call_are_captured_once() -> None:
    @TinyJit
    def step(x: Tensor) -> list[Tensor]:
        return [factor.realize() for factor in x.qr()]

    for number in range(4):
        array = np.random.default_rng(number).standard_normal((5, 3)).astype(np.float32)
        q, r = [factor.numpy() for factor in step(Tensor(array).realize())]
        np.testing.assert_allclose(q @ r, array, atol=1e-5)
    # three reflections of a few kernels each, not six
    assert step.captured is not None and len(step.captured) <= 24


def test_threads_of_the_library_are_as_they_were() -> None:
    found = host_calls._blas_threads()
    if found is None:
        pytest.skip("this NumPy has no OpenBLAS of its own")
    count, before = found[0], found[0]()
    with pytest.raises(ZeroDivisionError), host_calls.one_thread():
        assert count() == 1
        raise ZeroDivisionError
    assert count() == before


def test_a_long_sort_of_a_long_sort_reads_memory() -> None:
    array = np.random.default_rng(0).integers(0, 99, 1500).astype(np.int32)
    found = Tensor(array).realize()
    for _ in range(30):
        found = (found * 7 % 101).sort()[0].flip(0)
        array = np.sort(array * 7 % 101)[::-1]
    assert found.tolist() == array.tolist()
