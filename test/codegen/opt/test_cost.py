"""The cost model: what it says of choices that are known to differ."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.opt.test_heuristic import WIDE, applied, product
from weft.codegen.opt.cost import Choice, Proposal, body_cost, cheapest
from weft.codegen.opt.opt import OptOps
from weft.codegen.opt.share import slowest_core
from weft.codegen.opt.survey import nests_of


def test_of_equal_proposals_the_first_is_taken() -> None:
    first, second = Proposal([], 2.0), Proposal([], 2.0)
    assert cheapest([Proposal([], 3.0), first, second]) is first


def test_lanes_in_the_order_of_memory_cost_less_than_lanes_apart() -> None:
    (nest,) = nests_of(list(product(64, 64, 64).src), WIDE)
    body = nest.bodies[0]
    rows, columns = nest.outputs
    in_order, apart = Choice(columns, 16, {}), Choice(rows, 16, {})
    assert body_cost(body, in_order, WIDE) < body_cost(body, apart, WIDE)


@pytest.mark.parametrize("rows", [1, 2, 8, 16])
def test_a_large_matrix_is_swept_over_if_rows_of_it_are_summed(rows: int) -> None:
    """Pieces of rows that no prefetcher follows cost more than sums that go to L1 and back."""
    assert [o for o in applied(product(rows, 4096, 4096)) if o.op is OptOps.SWEEP]


def test_one_panel_for_each_core_is_cut_so_that_a_late_core_matters_less() -> None:
    """Sixteen panels on sixteen cores: one round each, and all wait for the last."""
    times = [slowest_core(16, parts, 171, 0.01, 16, WIDE) for parts in range(1, 65)]
    best = 1 + int(np.argmin(times))
    assert best > 1 and times[best - 1] < times[0]
    # but what is staged anew for each part is not for nothing
    assert np.argmin([slowest_core(16, parts, 171, 1.0, 16, WIDE) for parts in range(1, 65)]) == 0
