"""Launches of known values: results in new memory, kept for the next where nobody holds it."""

from __future__ import annotations

from weft import GlobalCounters, Tensor, dtypes
from weft.engine.launch import Launch, NoLaunch, free_spares, make_launch
from weft.uop.node import UOp


def holes(count: int, size: int = 4) -> list[UOp]:
    return [UOp.new_buffer("CPU", size, dtypes.float32) for _ in range(count)]


def storage(*values: float) -> UOp:
    node = Tensor([float(value) for value in values], device="CPU").realize()._cell.storage
    assert node is not None
    return node


def values_of(view: UOp) -> list[float]:
    found: list[float] = Tensor(view).tolist()
    return found


def test_one_kernel_over_whole_memories() -> None:
    a, b = holes(2)
    launch = make_launch([a * 2 + b], [False], [a, b], "CPU")
    assert isinstance(launch, Launch)
    GlobalCounters.reset()
    ((_, view),) = launch.run([storage(1, 2, 3, 4), storage(1, 1, 1, 1)])
    assert values_of(view) == [3.0, 5.0, 7.0, 9.0] and GlobalCounters.kernel_count == 1


def test_several_kernels_and_results() -> None:
    (a,) = holes(1)
    total = Tensor(a).sum().uop
    launch = make_launch([total, a / total.reshape(1).expand(4)], [False, False], [a], "CPU")
    assert isinstance(launch, Launch)
    made = launch.run([storage(1, 1, 1, 1)])
    assert [values_of(view) for _, view in made] == [4.0, [0.25] * 4]


def test_memory_of_a_result_that_nobody_holds_is_used_again() -> None:
    free_spares()
    (a,) = holes(1)
    launch = make_launch([(a + 1).reshape(2, 2)], [False], [a], "CPU")
    assert isinstance(launch, Launch)
    read = storage(1, 2, 3, 4)
    ((place, view),) = launch.run([read])
    number = place.arg.number
    kept = launch.run([read])
    assert kept[0][0].arg.number != number
    del place, view
    assert launch.run([read])[0][0].arg.number == number
    free_spares()


def test_what_is_not_kernels_over_memory_has_no_launch() -> None:
    (a,) = holes(1)
    assert isinstance(make_launch([a], [False], [a], "CPU"), NoLaunch)
    assert isinstance(make_launch([a + 1, a + 1], [False, False], [a], "CPU"), NoLaunch)
