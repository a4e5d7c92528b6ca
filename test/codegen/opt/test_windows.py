"""Windows: short sums over neighbours that overlap."""

from __future__ import annotations

from test.codegen.kernel_builder import Axes, load
from weft import dtypes
from weft.codegen.opt.survey import Body, nests_of
from weft.codegen.opt.tile import plain_tile
from weft.codegen.opt.windows import fitting_tile, is_window
from weft.machine import Target
from weft.uop.node import UOp
from weft.uop.opset import Ops


def sums(step: int, terms: int) -> Body:
    """sum over r of x[i * step + r]."""
    a = Axes()
    i, r = a.loop(64), a.reduce(terms)
    out, x = UOp.param(0, dtypes.float32, 64), UOp.param(1, dtypes.float32, 64 * step + terms)
    store = out.index(i).store(load(x, i * step + r).reduce(Ops.ADD, r), i)
    body: Body = nests_of([store], Target())[0].bodies[0]
    return body


def test_neighbours_share_elements_only_where_they_overlap() -> None:
    assert is_window(sums(1, 3)) and is_window(sums(2, 3))
    assert not is_window(sums(8, 8)) and not is_window(sums(1, 1000))


def test_a_small_tile_stays_as_it_is() -> None:
    body = sums(1, 3)
    tile = plain_tile(body, body.around[-1], 8, Target())
    assert fitting_tile(body, tile) == tile
