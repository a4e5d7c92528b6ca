"""Building kernels: each element once, over the memory that holds it."""

from __future__ import annotations

from weft import Tensor
from weft.uop.node import UOp
from weft.uop.opset import Ops


def built(tensor: Tensor) -> list[UOp]:
    return [item.kernel for item in tensor.schedule() if item.kernel is not None]


def test_a_kernel_is_stores_of_values_over_ranges() -> None:
    (kernel,) = built(Tensor.empty(4, 8) + 1)
    assert kernel.op is Ops.SINK
    for store in kernel.src:
        assert store.op is Ops.STORE and store.src[0].op is Ops.INDEX
        assert all(axis.op is Ops.RANGE for axis in store.src[2:])
    assert kernel.ranges == frozenset()


def test_the_same_element_is_computed_once() -> None:
    x = Tensor.empty(16)
    y = x.exp()
    (kernel,) = built(y * y + y)
    assert [u.op for u in kernel.toposort()].count(Ops.EXP2) == 1
    assert [u.op for u in kernel.toposort()].count(Ops.LOAD) == 1


def test_padding_is_the_validity_of_a_load() -> None:
    (kernel,) = built(Tensor.empty(6).pad(((1, 1),)) * 2)
    (place,) = [u.src[0] for u in kernel.toposort() if u.op is Ops.LOAD]
    assert len(place.src) == 3 and place.src[2].dtype.kind == "bool"


def test_two_elements_of_one_memory_are_two_loads() -> None:
    x = Tensor.empty(8)
    (kernel,) = built(x[1:] - x[:-1])
    assert [u.op for u in kernel.toposort()].count(Ops.LOAD) == 2
