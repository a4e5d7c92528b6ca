"""When a value is right: the tolerances of the project, and nothing looser.

In: what was found, the exact value in float64. Out: nothing, or an AssertionError that says where.
Sits beside `row.py`, below the tests.
Invariant: a value is right within the defaults of `torch.testing.assert_close` for its dtype, or
within 4*eps*sqrt(K)*sum|terms| for a reduction of K terms, or if it is no worse than twice
PyTorch's own error. Ints and bools are right when they are equal.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from test.methods.row import Array, numpy_type
from test.optional import optional

ml_dtypes = optional("ml_dtypes")

# dtype: (relative, absolute)
TOLERANCES = {
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "float32": (1.3e-6, 1e-5),
    "float64": (1e-7, 1e-7),
}


def assert_right(
    found: Array,
    wanted: Array,
    dtype: str,
    terms: tuple[int, Any] | None = None,
    peer_error: Callable[[], float] | None = None,
) -> None:
    """`found`, a result of this dtype, has the values of `wanted` as nearly as it must."""
    assert found.shape == wanted.shape, f"shape {found.shape}, not {wanted.shape}"
    if dtype not in TOLERANCES:
        np.testing.assert_array_equal(found, wanted)
        return
    exact = wanted.astype(np.float64)
    value = found.astype(np.float64)
    with np.errstate(all="ignore"):
        # beyond the greatest value of its dtype a result is infinite
        rounded = exact.astype(numpy_type(dtype)).astype(np.float64)
        same = (value == rounded) | (np.isnan(value) & np.isnan(exact))
        relative, absolute = TOLERANCES[dtype]
        error = np.where(same, 0.0, np.abs(value - exact))
        allowed = np.broadcast_to(absolute + relative * np.abs(exact), exact.shape)
        if terms is not None:
            count, total = terms
            epsilon = float(ml_dtypes.finfo(numpy_type(dtype)).eps)
            allowed = np.maximum(allowed, 4 * epsilon * np.sqrt(count) * np.abs(total))
        # an infinite or missing value is right only if it is the same
        wrong = ~same & ~(np.isfinite(exact) & (error <= allowed))
    if not wrong.any():
        return
    if peer_error is not None and np.max(error) <= 2 * peer_error():
        return
    worst = int(np.argmax(np.where(wrong, np.nan_to_num(error, nan=np.inf), -1.0)))
    at = np.unravel_index(worst, error.shape)
    raise AssertionError(
        f"{int(wrong.sum())} of {wrong.size} values in {dtype} are wrong; at {tuple(map(int, at))} "
        f"it is {value[at]!r}, not {exact[at]!r}: off by {error[at]:.3g}, {allowed[at]:.3g} allowed"
    )
