"""A product between two pieces of arithmetic over the same columns is one kernel of panels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import Context, Tensor
from weft.uop.ops import Ops

Array = np.ndarray[Any, Any]
# of devices that keep panels in fast memory of a core
pytestmark = pytest.mark.device("CPU")


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def chain(x: Any, u: Any, stack: Any) -> Any:
    """Three rows of each column, mixed by a matrix, summed up to one."""
    v = stack([x, x * 2 + 1, x - 3])
    v = v.reshape((3 * x.shape[0], x.shape[1]))
    m = u @ v
    half = m.shape[0] // 2
    return m[:half] * m[half:]


@pytest.mark.parametrize(
    ("columns", "kernels"), [(64, 1), (40, 1), (21, 1), (9, 1), (7, 3)], ids=str
)
def test_chain_is_one_kernel(columns: int, kernels: int) -> None:
    x, u = numbers(20, columns), numbers(128, 60)
    found = chain(Tensor(x).realize(), Tensor(u).realize(), lambda rows: Tensor.stack(*rows))
    items = [item.kernel for item in found.schedule()]
    assert len(items) == kernels
    stages = [u for u in items[-1].toposort() if u.op is Ops.STAGE]
    assert len(stages) == (2 if kernels == 1 else 0)
    exact = chain(x.astype(np.float64), u.astype(np.float64), np.stack)
    with Context(SPEC=2):
        result = found.numpy()
    np.testing.assert_allclose(result, exact, rtol=2e-4, atol=2e-3)


def test_products_that_somebody_else_wants_are_stored() -> None:
    x, u = Tensor(numbers(20, 64)).realize(), Tensor(numbers(128, 60)).realize()
    v = Tensor.stack(x, x * 2 + 1, x - 3).reshape(60, 64)
    m = u @ v
    result = m[:64] * m[64:]
    Tensor.realize(result, m)
    np.testing.assert_allclose(result.numpy(), (m[:64] * m[64:]).numpy())


def test_what_only_grows_is_not_staged() -> None:
    """A product that is repeated by what comes after is stored once."""
    x, u = Tensor(numbers(20, 64)).realize(), Tensor(numbers(64, 20)).realize()
    m = u @ (x * 2 + 1)
    result = Tensor.stack(m + 1, m * 2, m - 1)
    for item in result.schedule():
        assert not any(node.op is Ops.STAGE for node in item.kernel.toposort())


def test_what_is_added_to_storage_is_added_once() -> None:
    """Panels overlap where their width does not divide: in place they would add twice."""
    x, u = numbers(20, 21), numbers(128, 60)
    total = Tensor(np.ones((64, 21), np.float32)).contiguous().realize()
    found = chain(Tensor(x).realize(), Tensor(u).realize(), lambda rows: Tensor.stack(*rows))
    total.assign(total + found).realize()
    exact = 1 + chain(x.astype(np.float64), u.astype(np.float64), np.stack)
    np.testing.assert_allclose(total.numpy(), exact, rtol=2e-4, atol=2e-3)
