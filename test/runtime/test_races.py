"""The interpreter as a GPU: groups and threads in random order, and the races that it must find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.codegen.kernel_builder import interpret
from weft import Context, Device, Tensor
from weft.codegen.opt import gpu
from weft.device import Buffer
from weft.dtype import dtypes
from weft.engine.schedule import clear_schedules
from weft.errors import DeviceError, RaceError
from weft.renderer.python import PythonRenderer
from weft.runtime.interpreter import Interpreter
from weft.runtime.ops_python import PythonDevice
from weft.runtime.steps import view_memory
from weft.schedule import place
from weft.uop.args import OVERLAPPING, LocalArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

i64, f32 = dtypes.int64, dtypes.float32
out, x = UOp.param(0, f32, 8), UOp.param(1, f32, 8)


def special(name: str, size: int) -> UOp:
    return UOp(Ops.SPECIAL, i64, (const(size),), name)


def const(value: Any, dtype: Any = i64) -> UOp:
    return UOp.const(dtype, value)


GROUP, THREAD = special("gidx0", 2), special("lidx0", 4)
PLACE = GROUP * const(4) + THREAD
BARRIER = UOp(Ops.BARRIER, dtypes.void)


def run(*stores: UOp) -> list[np.ndarray]:
    """The effects, one after another, over 8 zeros and 0, 1, 2 ...; BARRIER stands for itself."""
    lines: dict[UOp, None] = {}
    for store in stores:
        lines.update(store.toposort())
    arrays = [np.zeros(8, np.float32), np.arange(8, dtype=np.float32)]
    interpret(list(lines), arrays)
    return arrays


def test_every_item_runs_once_in_whatever_order() -> None:
    found = run(out.index(PLACE).store(x.index(PLACE).load() + const(1.0, f32)))
    assert found[0].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


def test_the_order_depends_on_the_seed_and_on_nothing_else() -> None:
    """What is written last by all shows who ran last; only races see it, so it is declared."""
    uops = list(out.index(PLACE).store(x.index(PLACE).load()).toposort())

    def order(seed: int) -> list[int]:
        seen: list[int] = []

        class Seen(list[float]):
            def __setitem__(self, place: Any, value: Any) -> None:
                seen.append(place)

        memory = view_memory(memoryview(np.zeros(8, np.float32)).cast("B"), f32, 8)
        Interpreter("test", uops).run({0: Seen([0.0] * 8), 1: memory}, [], seed=seed)
        return seen

    assert order(1) == order(1) and sorted(order(1)) == list(range(8))
    assert len({tuple(order(seed)) for seed in range(6)}) > 3


@pytest.mark.parametrize(
    ("where", "who"),
    [
        (
            THREAD,
            r"thread (\d) of group \d and written by line \d+ .STORE float32. of thread \1 of",
        ),
        (GROUP, r"thread \d of group (\d) and written by line \d+ .STORE float32. of thread \d of"),
    ],
)
def test_two_writes_to_one_element_are_a_race(where: UOp, who: str) -> None:
    with pytest.raises(RaceError, match=rf"element \d of buffer 0 .float32. is written by .*{who}"):
        run(out.index(where).store(x.index(PLACE).load()))


def test_writes_of_equal_values_are_a_race_unless_they_are_declared() -> None:
    same = THREAD + GROUP * const(0)
    store = out.index(THREAD).store(x.index(same).load())
    with pytest.raises(RaceError, match="no barrier of the launch stands between"):
        run(store)
    assert run(store.rtag(OVERLAPPING))[0].tolist() == [0, 1, 2, 3, 0, 0, 0, 0]
    with pytest.raises(RaceError):
        run(out.index(THREAD).store(x.index(PLACE).load()).rtag(OVERLAPPING))


def test_reading_what_another_group_writes_is_a_race() -> None:
    other = (const(7) + PLACE * const(-1)).alu(Ops.MOD, const(8))
    with pytest.raises(RaceError, match="written by .* and read by line .*LOAD float32"):
        run(x.index(PLACE).store(x.index(other).load()))
    with pytest.raises(RaceError, match="written by .* and read by"):
        run(x.index(PLACE).store(const(1.0, f32)), out.index(PLACE).store(x.index(other).load()))


def test_a_barrier_orders_the_threads_of_a_group_and_no_others() -> None:
    shared = UOp(Ops.LOCAL, f32, (), LocalArg(0, 4, "shared"))
    fill = shared.index(THREAD).store(x.index(PLACE).load())
    mirror = const(3) + THREAD * const(-1)
    back = out.index(PLACE).store(shared.index(mirror).load())
    assert run(fill, BARRIER, back)[0].tolist() == [3, 2, 1, 0, 7, 6, 5, 4]
    own = x.index(PLACE).store(const(5.0, f32))
    near = out.index(PLACE).store(x.index(GROUP * const(4) + mirror).load())
    assert run(own, BARRIER, near)[0].tolist() == [5.0] * 8
    far = out.index(PLACE).store(x.index(const(7) + PLACE * const(-1)).load())
    with pytest.raises(RaceError, match="no barrier of the launch"):
        run(own, BARRIER, far)


def test_one_item_may_touch_its_element_again() -> None:
    again = x.index(PLACE).store(x.index(PLACE).load() + const(1.0, f32))
    assert run(again)[1].tolist() == [1, 2, 3, 4, 5, 6, 7, 8]


# ------------------------------------------------------------ the device
def test_a_name_or_a_knob_chooses_the_machine() -> None:
    assert Device["PYTHON:sm_90"].renderer.target.has_local
    assert not Device["PYTHON"].renderer.target.has_local
    with Context(PYTHON_TARGET="opencl"):
        assert PythonDevice("PYTHON").arch == "interpreter of opencl"
        assert PythonDevice("PYTHON:2").arch == "interpreter of opencl"
    with pytest.raises(DeviceError, match="'sm_1'; it knows those of sm_90, metal, opencl"):
        PythonDevice("PYTHON:sm_1")


def test_a_race_names_the_line_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    """Computed indices that repeat, taken for distinct ones, as a compiler might by mistake."""
    monkeypatch.setattr(place, "writes_apart", lambda store: True)
    monkeypatch.setattr(gpu, "writes_apart", lambda store: True)
    clear_schedules()
    target = Tensor.zeros(4, device="PYTHON:sm_90").contiguous().realize()
    values = Tensor(np.arange(8, dtype=np.float32), device="PYTHON:sm_90").realize()
    target[Tensor.arange(8) // 2] = values
    with (
        Context(SPEC=0),  # the solver would find it first
        pytest.raises(RaceError, match=r"the kernel computes line \d+ of .*test_races.py"),
    ):
        target.realize()
    clear_schedules()


def test_memories_that_overlap_are_watched_together() -> None:
    """Two views of one buffer, an element apart: what one group writes another one reads."""
    uops = list(out.index(PLACE).store(x.index(PLACE).load()).toposort())
    device = Device["PYTHON:sm_90"]
    program = device.runtime("copy", PythonRenderer().render("copy", uops).encode())
    whole = Buffer("PYTHON:sm_90", 16, f32).copyin(np.arange(16, dtype=np.float32).tobytes())
    program([whole.view(8, f32, 0), whole.view(8, f32, 32)])
    with pytest.raises(RaceError, match="of the bytes of buffers 0 and 1"):
        program([whole.view(8, f32, 0), whole.view(8, f32, 4)])
