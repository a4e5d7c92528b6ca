"""decide.py: what is computed inside its consumers, and what is stored: each choice by itself."""

from __future__ import annotations

from weft import Tensor
from weft.uop.opset import Ops


def kernels(*values: Tensor) -> list[list[Ops]]:
    """The ops of each kernel of a schedule."""
    first, *others = values
    return [[node.op for node in item.kernel.toposort()] for item in first.schedule(*others)]


def test_a_value_with_one_reader_is_computed_inside_of_it() -> None:
    x = Tensor.empty(64, 64)
    (ops,) = kernels(((x + 1) * 2).sqrt().sum(1))
    assert ops.count(Ops.STORE) == 1 and Ops.REDUCE in ops


def test_a_reduction_that_each_row_needs_once_is_inlined() -> None:
    x = Tensor.empty(512, 256)
    assert len(kernels(x - x.mean(1, keepdim=True))) == 1
    assert len(kernels(x.softmax(1))) == 1


def test_a_product_takes_what_follows_element_by_element() -> None:
    a, b = Tensor.empty(64, 64), Tensor.empty(64, 64)
    assert len(kernels((a @ b + 1).relu())) == 1


def test_a_product_that_another_product_reads_is_stored() -> None:
    a, b, c = (Tensor.empty(64, 64) for _ in range(3))
    assert len(kernels(a @ b @ c)) == 2


def test_a_cheap_value_of_two_kernels_is_computed_twice() -> None:
    x = Tensor.empty(64, 64)
    cheap = x + 1
    found = kernels(cheap.sum(0), cheap.sum(1))
    assert sum(ops.count(Ops.STORE) for ops in found) == 2


def test_a_whole_sum_that_all_elements_need_is_stored_before() -> None:
    x = Tensor.empty(256, 256)
    found = kernels(x / x.sum())
    # parts of it at least: no element sums up all the others
    assert len(found) > 1 and Ops.REDUCE in found[0]


def test_what_is_asked_for_is_stored_and_read_from_there() -> None:
    x = Tensor.empty(64)
    middle = x.exp()
    found = kernels(middle, middle + 1)
    assert sum(ops.count(Ops.STORE) for ops in found) == 2
    assert sum(ops.count(Ops.EXP2) for ops in found) <= 2


def test_a_long_chain_is_cut_where_a_kernel_is_full() -> None:
    x = Tensor.empty(16)
    for _ in range(3000):
        x = x.sin() + 1
    found = kernels(x)
    assert 1 < len(found) < 100
