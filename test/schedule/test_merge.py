"""merge.py: stores over the same ranges that read the same data share a kernel."""

from __future__ import annotations

from weft import Tensor
from weft.uop.opset import Ops


def stores(*values: Tensor) -> list[int]:
    """How many STOREs each kernel has."""
    first, *others = values
    return [
        sum(node.op is Ops.STORE for node in item.kernel.toposort())
        for item in first.schedule(*others)
    ]


def test_two_values_of_one_memory_share_a_kernel() -> None:
    x = Tensor.empty(64)
    assert stores(x + 1, x * 2) == [2]


def test_mean_and_variance_of_rows_share_a_kernel() -> None:
    x = Tensor.empty(512, 64)
    assert stores(x.mean(1), x.square().mean(1)) == [2]


def test_one_that_reads_the_other_comes_after_it() -> None:
    x = Tensor.empty(512, 512)
    first = x.sum(0)
    assert stores(first, x @ first) == [1, 1]


def test_an_update_that_overwrites_what_it_reads_shares_a_kernel() -> None:
    weight, momentum, slope = (Tensor.empty(64).contiguous().realize() for _ in range(3))
    new = momentum * 0.9 + slope
    momentum.assign(new)
    weight.assign(weight - new * 0.1)
    assert stores(weight, momentum) == [2]


def test_values_are_the_same_as_one_by_one() -> None:
    x = Tensor.arange(12).reshape(3, 4).float().contiguous().realize()
    together = [x.sum(1), x.max(1), (x * x).sum(1)]
    Tensor.realize(*together)
    wanted = [[6.0, 22.0, 38.0], [3.0, 7.0, 11.0], [14.0, 126.0, 366.0]]
    assert [value.tolist() for value in together] == wanted
