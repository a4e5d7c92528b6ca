"""The schedule as a whole: kernels in order, with names, memory and devices."""

from __future__ import annotations

from weft import Context, Tensor
from weft.schedule.pipeline import Schedule, make_schedule
from weft.uop.node import UOp
from weft.uop.opset import Ops


def scheduled(tensor: Tensor) -> Schedule:
    return make_schedule(UOp.sink(tensor.uop), 1 << 40, "CPU")


def test_kernels_come_after_what_they_read() -> None:
    x = Tensor.empty(64, 64)
    first, second = scheduled(x @ x @ x).items
    assert first.arguments[0].memory in [argument.memory for argument in second.arguments[1:]]


def test_a_schedule_is_the_same_for_the_same_graph() -> None:
    x = Tensor.empty(32, 32)
    both = [scheduled(x.softmax(1) @ x).items for _ in range(2)]
    keys = [[item.kernel.key for item in items if item.kernel is not None] for items in both]
    assert keys[0] == keys[1] and len(keys[0]) >= 1


def test_every_pass_is_verified_when_asked() -> None:
    with Context(SPEC=2):
        x = Tensor.empty(8, 8)
        (item,) = (x + x.sum(1, keepdim=True)).schedule()
        assert item.kernel is not None and item.kernel.op is Ops.SINK
        assert item.ast is item.kernel
