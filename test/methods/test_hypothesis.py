"""Random calls of every family of methods, against the references of the table.

In the suite a fixed, small share; METHODS_EXAMPLES=2000 in the environment draws as many new ones
per family. A bug that is found here becomes a named test at the end of this file.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest

from test.methods import strategies
from test.methods.differences import check_gradient
from test.methods.run import check_values
from test.methods.strategies import Call
from test.optional import need
from weft import Tensor

hypothesis = need("hypothesis")
HealthCheck = hypothesis.HealthCheck
given = hypothesis.given
settings = hypothesis.settings
st = hypothesis.strategies

ASKED = os.environ.get("METHODS_EXAMPLES")
SETTINGS = settings(
    max_examples=int(ASKED or 12),
    # the suite always tries the same ones; by hand they are new every time
    derandomize=ASKED is None,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
SEEDS = st.integers(0, 99).map(str)


def family(strategy: st.SearchStrategy[Call]) -> Callable[..., Any]:
    """A test of one family."""

    @SETTINGS
    @given(strategy, SEEDS)
    def check(call: Call, seed: str) -> None:
        row, asked, dtype = call
        check_values(row, asked, dtype, "CPU", seed)

    return check


test_unary = family(strategies.unary())
test_binary = family(strategies.binary())
test_choice = family(strategies.choice())
test_reduction = family(strategies.reduction())
test_along = family(strategies.along())
test_movements = family(strategies.movements())
test_joins = family(strategies.joins())
test_reads = family(strategies.reads())
test_writes = family(strategies.writes())
test_placed = family(strategies.placed())
test_orders = family(strategies.orders())
test_products = family(strategies.products())
test_convolution = family(strategies.convolution())
test_pooling = family(strategies.pooling())


@SETTINGS
@given(strategies.differentiable(), SEEDS)
def test_gradients(call: Call, seed: str) -> None:
    row, asked, _ = call
    check_gradient(row, asked, seed)


# ------------------------------------------------------------ found here
@pytest.mark.parametrize("reduce", ["sum", "prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [True, False])
def test_scatter_of_nothing_keeps_everything(reduce: str, include_self: bool) -> None:
    """A write of no elements had no kernel, which those that wait for it did not know."""
    x = Tensor([2.0, 3.0], dtype="float64")
    places, values = Tensor([], dtype="int32"), Tensor([], dtype="float64")
    result = x.scatter_reduce(0, places, values, reduce, include_self=include_self)
    assert result.sum().gradient(x)[0].tolist() == [1.0, 1.0]
    assert result.tolist() == [2.0, 3.0]
