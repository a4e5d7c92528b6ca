"""Axes of the hardware: how many groups along x and y a launch is given."""

from __future__ import annotations

import pytest

from weft.codegen.bind_axes import _flat
from weft.uop.node import UOp
from weft.uop.opset import Ops

_LIMITS = ((1 << 31) - 1, 65535, 65535)


def sizes_of(total: int, limits: tuple[int, ...] = _LIMITS) -> dict[str, int]:
    numbers = _flat(total, "gidx", limits)
    specials = [u for u in UOp.sink(numbers.flat).toposort() if u.op is Ops.SPECIAL]
    return {u.arg: int(u.src[0].vmax) for u in specials}


@pytest.mark.parametrize("total", [1 << 38, 3 * (1 << 33), (1 << 31) - 1, 1 << 31])
def test_a_launch_that_x_cannot_number_has_whole_rows(total: int) -> None:
    sizes = sizes_of(total)
    product = 1
    for size in sizes.values():
        product *= size
    assert product == total
    assert sizes["gidx0"] <= _LIMITS[0] and sizes.get("gidx1", 1) <= _LIMITS[1]


def test_a_prime_number_of_groups_has_a_last_row_that_is_not_full() -> None:
    total = (1 << 61) - 1 >> 20  # no small divisor
    sizes = sizes_of(total | 1)
    assert sizes["gidx0"] * sizes["gidx1"] >= total


def test_small_limits() -> None:
    assert sizes_of(12, (5, 5, 5)) == {"gidx0": 4, "gidx1": 3}
    assert sizes_of(13, (5, 5, 5)) == {"gidx0": 5, "gidx1": 3}
