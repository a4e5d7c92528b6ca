"""The survey: facts of every value in one walk."""

from __future__ import annotations

from weft import Tensor
from weft.schedule.survey import Survey, max_elements
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops


def survey(*tensors: Tensor) -> Survey:
    return Survey(UOp.sink(*[tensor.uop for tensor in tensors]), set())


def test_sources_come_first_and_elements_are_counted() -> None:
    x = Tensor.empty(4, 8)
    value = (x + 1).sum(1)
    found = survey(value)
    assert all(found.position[s] < found.position[u] for u in found.order for s in u.src)
    assert found.elements[value.uop] == 4 and found.elements[(x + 1).uop] == 32
    assert found.reduces[value.uop] and not found.reduces[(x + 1).uop]


def test_costs_add_up_and_movement_is_free() -> None:
    x = Tensor.empty(16)
    found = survey(x.exp() * 2, x.flip(0), x + 1)
    assert found.cost[x.flip(0).uop] == found.cost[x.uop]
    assert found.cost[x.exp().uop] > found.cost[(x + 1).uop] > 0
    assert found.own_cost(x.flip(0).uop) == 0


def test_products_with_reuse_are_heavy_and_sums_are_not() -> None:
    a, b = Tensor.empty(64, 64), Tensor.empty(64, 64)
    product, total = a @ b, a.sum(1)
    found = survey(product, total)
    heavy = [u for u in found.heavy if u.op is Ops.REDUCE_AXIS]
    assert len(heavy) == 1 and heavy[0] in product.uop.toposort()


def test_constants_read_nothing() -> None:
    ones = Tensor.ones(8)
    found = survey(ones + 1, Tensor.empty(8) + ones)
    assert found.constant[(ones + 1).uop] and found.read_bytes[(ones + 1).uop] == 0


def test_elements_of_a_symbolic_shape_are_its_most() -> None:
    assert max_elements((4, Variable("n", 1, 10))) == 40
