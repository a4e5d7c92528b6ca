"""Pieces of values: what is cut, joined and looked up by part."""

from __future__ import annotations

from weft.dtype import dtypes
from weft.schedule.parts import (
    boxed,
    buffer_parts,
    joined,
    local,
    pieces,
    reshaped,
    separate_numbers,
    sliced,
)
from weft.uop.layout import Layout, cut_evenly, even_bounds, follow, recut
from weft.uop.node import UOp
from weft.uop.opset import Ops


def test_parts_differ_by_one_at_most() -> None:
    assert even_bounds(7, 3) == (0, 3, 5, 7)
    assert even_bounds(2, 4) == (0, 1, 2, 2, 2)


def test_the_cut_is_followed_through_shapes() -> None:
    layout = cut_evenly((4, 6), 0, 2)
    assert follow(layout, (24,)) == Layout((24,), 0, (0, 12, 24))
    assert follow(layout, (2, 2, 6)) == Layout((2, 2, 6), 0, (0, 1, 2))
    assert follow(layout, (3, 8)) is None
    assert follow(cut_evenly((4, 6), 1, 2), (24,)) is None
    assert follow(cut_evenly((4, 6), 1, 2), (1, 4, 2, 3)) == Layout((1, 4, 2, 3), 2, (0, 1, 2))
    n = UOp.variable("n", 1, 9)
    assert follow(cut_evenly((n, 6), 1, 2), (n, 1, 6)) == Layout((n, 1, 6), 2, (0, 3, 6))
    assert follow(cut_evenly((n, 6), 1, 2), (n * 6,)) is None


def test_another_axis_is_cut_where_one_is_in_the_way() -> None:
    assert recut((3, 8), 2, (1,)) == Layout((3, 8), 0, (0, 2, 3))
    assert recut((3, 8), 2) == Layout((3, 8), 1, (0, 4, 8))
    assert recut((1, 8), 2, (1,)) is None


def test_the_storage_of_each_device_has_the_elements_of_its_part() -> None:
    layout = cut_evenly((5, 2), 0, 2)
    whole = UOp.new_buffer(("CPU:1", "CPU:2"), 10, dtypes.int32, layout)
    parts = buffer_parts(whole)
    assert [part.shape for part in parts] == [(3, 2), (2, 2)]
    assert [part.device for part in parts] == ["CPU:1", "CPU:2"]
    middle = joined(pieces(parts, layout, 2, 4, "CPU:2"), 0)
    assert middle.op is Ops.CAT and middle.shape == (2, 2) and middle.device == "CPU:2"


def test_what_is_whole_stays_as_it_is() -> None:
    value = UOp.new_buffer("CPU", 6, dtypes.int32)
    assert boxed(value, 0, 0, 6) is value
    assert reshaped(value, (6,)) is value
    assert joined([value], 0) is value
    assert sliced(UOp.const(dtypes.int32, 3), cut_evenly((4,), 0, 2), 1).op is Ops.CONST


def test_numbers_that_are_stored_have_a_twin_on_each_device() -> None:
    numbers = UOp(Ops.CONTIGUOUS, dtypes.int32, (UOp(Ops.IOTA, dtypes.int32, (), 4),))
    first, second = (UOp.new_buffer(device, 4, dtypes.int32) for device in ("CPU:1", "CPU:2"))
    one = UOp.sink(first + numbers)
    assert separate_numbers(one, "CPU") is one
    both = separate_numbers(UOp.sink(first + numbers, second + numbers), "CPU")
    stored = [node for node in both.toposort() if node.op is Ops.CONTIGUOUS]
    assert len(stored) == 2 and numbers not in stored


def test_indices_of_another_part_are_outside() -> None:
    layout = cut_evenly((6,), 0, 2)
    for index, wanted in ((0, 6), (3, 0), (5, 2), (-1, 2), (-6, 6)):
        found = local(UOp.const(dtypes.int32, index), layout, 3, 6).simplify()
        assert found.arg == wanted
