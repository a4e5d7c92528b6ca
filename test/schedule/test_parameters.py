"""parameters.py: kernels that differ in their memory alone are one kernel."""

from __future__ import annotations

from typing import Any

from weft import Tensor
from weft.uop.opset import Ops


def only(x: Tensor) -> Any:
    (item,) = x.schedule()
    return item


def test_equal_kernels_over_other_storages_are_the_same() -> None:
    a, b = Tensor.empty(32), Tensor.empty(32)
    assert only(a + 1).kernel is only(b + 1).kernel
    assert only(a + 1).arguments != only(b + 1).arguments


def test_a_constant_offset_belongs_to_the_argument() -> None:
    x = Tensor.empty(96)
    first, second = only(x[16:48] + 1), only(x[48:80] + 1)
    assert first.kernel is second.kernel
    assert [each.arguments[1].offset for each in (first, second)] == [16, 48]
    assert first.arguments[1].size == 32


def test_a_guarded_read_keeps_its_whole_memory() -> None:
    x = Tensor.empty(32)
    item = only(x[8:16].pad((1, 1)) + 1)
    assert (item.arguments[1].offset, item.arguments[1].size) == (0, 32)


def test_outputs_come_first_and_each_memory_once() -> None:
    x, y = Tensor.empty(8), Tensor.empty(8)
    item = only(x * y + x)
    params = sorted({u.arg.slot for u in item.kernel.toposort() if u.op is Ops.PARAM})
    assert params == [0, 1, 2] and len(item.arguments) == 3


def test_names_say_reductions_and_sizes() -> None:
    x = Tensor.empty(4, 6)
    assert only(x + 1).kernel.arg.name.startswith("E_")
    assert only(x.sum(1)).kernel.arg.name == "r_4_6"
