"""Drafts: ranges of a kernel to be, and uses of values inside."""

from __future__ import annotations

from weft import dtypes
from weft.schedule.draft import Demand, Draft, size_of, volume
from weft.schedule.index import ZERO
from weft.uop.args import AxisType
from weft.uop.node import UOp, Variable
from weft.uop.opset import Ops


def draft() -> Draft:
    return Draft(UOp.const(dtypes.float32, 0.0), 0, "CPU")


def test_axes_of_one_element_need_no_range() -> None:
    some = draft()
    some.open((4, 1, 8))
    assert [size_of(axis) for axis in some.ranges] == [4, 8] and some.index[1] is ZERO
    (more,) = some.new_index((3,), AxisType.REDUCE)
    assert more.arg.number == (2,) and volume(some.ranges) == 32


def test_tiles_have_two_ranges() -> None:
    some = draft()
    some.open((16,), {0: 4})
    assert [size_of(axis) for axis in some.ranges] == [4, 4]
    outer, inner = some.ranges
    assert some.index == ((outer * 4 + inner),)


def test_sizes_of_the_run_count_as_their_greatest() -> None:
    assert size_of(UOp.range(Variable("n", 1, 100), 0)) == 100


def test_a_demand_depends_on_the_ranges_of_its_element() -> None:
    some = draft()
    some.open((4, 8))
    i, j = some.ranges
    demand = Demand(some, (i, ZERO), None, frozenset(some.ranges), summed=True)
    assert demand.depends == {i}
    moved = demand.at((j,), j < 3)
    assert moved.depends == {j} and moved.key != demand.key and moved.summed
    factor = demand.below(Ops.MUL)
    assert factor.is_factor and not factor.summed and not factor.below(Ops.ADD).is_factor
