"""What the gradient of every differentiable row stores: about what the method itself does.

A gradient of the size of all products, where the method only stores their sums, would be right and
take gigabytes. Sizes are bytes of the memories that the steps of a schedule read and write.
"""

from __future__ import annotations

import numpy as np
import pytest

from test.methods.row import Case, Row, tensors_of
from test.methods.run import names
from test.methods.test_gradients import PLANS
from weft import Tensor

# the largest memory of a gradient, in largest memories of the method
MOST = 2


def largest(*values: Tensor) -> int:
    """Bytes of the largest memory of a schedule."""
    first, *others = values
    arguments = [argument for item in first.schedule(*others) for argument in item.arguments]
    return max([each.size * each.memory.dtype.itemsize for each in arguments], default=0)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(("row", "asked"), PLANS, ids=names(PLANS))
def test_gradients_store_no_more_than_a_method(row: Row, asked: Case, dtype: str) -> None:
    if dtype not in row.dtypes:
        pytest.skip(f"{row.name} takes no {dtype}")
    arrays = asked.arrays(row.name, dtype)
    tensors = tensors_of(arrays, asked, dtype, "CPU")
    results = [result for result in row.run(tensors, asked) if result.is_floating_point()]
    inputs = [tensor for tensor in tensors if tensor.is_floating_point()]
    total = sum((result.cast("float32").sum() for result in results), Tensor(0.0))
    gradients = total.gradient(*inputs)
    own = [tensor.nbytes() for tensor in (*inputs, *results)]
    least = max(largest(*results), *own)
    # sums of half types are float32
    wide = 4 // inputs[0].element_size()
    # what is small is stored as whole vectors or blocks
    limit = max(MOST * wide * least, 64)
    assert largest(*gradients) <= limit, np.shape(arrays[0])
