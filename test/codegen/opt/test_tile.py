"""Tile: copies in registers, counted against the target."""

from __future__ import annotations

import random

import pytest

from test.codegen.opt.kernels import matmul
from weft.codegen.opt.survey import nests_of, volume
from weft.codegen.opt.tile import best_tile, lanes_of, most_sums, plain_tile
from weft.helpers import prod
from weft.machine import Target


@pytest.mark.parametrize("registers", [8, 16, 32])
def test_a_tile_of_a_product_costs_less_and_fits(registers: int) -> None:
    target = Target(vector_bytes=32, vector_registers=registers, has_fma=True)
    ast, _ = matmul(random.Random(2), 64)
    (nest,) = nests_of(list(ast.src), target)
    body = nest.bodies[0]
    vector = body.around[-1]
    lanes = lanes_of(vector, body.items, target)
    tile = best_tile(body, vector, lanes, target)
    assert tile.cost <= plain_tile(body, vector, lanes, target).cost
    assert prod(tile.choice.copies.values()) <= registers
    assert most_sums(target) == registers // 2 and volume(body.axes) > 1


def test_lanes_are_those_of_a_register_or_of_the_axis() -> None:
    target = Target(vector_bytes=32)
    ast, _ = matmul(random.Random(2), 64)
    (nest,) = nests_of(list(ast.src), target)
    body = nest.bodies[0]
    for axis in body.axes:
        lanes = lanes_of(axis, body.items, target)
        assert lanes in (1, 2, 4, 8) and lanes <= volume([axis])
