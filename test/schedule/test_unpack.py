"""Unpack: products that compute an operand out of less memory."""

from __future__ import annotations

import pytest

from weft import Tensor, dtypes
from weft.schedule.unpack import MOST_PANEL_USES
from weft.uop.opset import Ops

# tensor cores read what is stored narrow
pytestmark = pytest.mark.device("CPU")


def kernels(rows: int, packed: bool = True) -> list[list[Ops]]:
    """A product with weights of bytes (or floats) and a scale, for so many rows."""
    x = Tensor.empty(rows, 256)
    stored = Tensor.empty(256, 256, dtype=dtypes.uint8 if packed else dtypes.float32)
    weights = (stored.cast(dtypes.float32) - 128.0) * 0.5
    items = (x @ weights.T).schedule()
    return [[node.op for node in item.kernel.toposort()] for item in items]


def test_a_product_unpacks_its_weights_in_its_tile_or_in_panels() -> None:
    assert len(kernels(2)) == len(kernels(512)) == 1


def test_weights_of_very_many_rows_are_unpacked_before() -> None:
    assert len(kernels(4 * MOST_PANEL_USES)) == 2


def test_what_is_as_large_as_its_source_is_not_unpacked() -> None:
    assert len(kernels(512, packed=False)) == 2
