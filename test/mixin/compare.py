"""How the tests of the families compare values: against a reference in float64, with the tolerances
of `torch.testing.assert_close` for the dtype of the result."""

from __future__ import annotations

from typing import Any

import numpy as np

from weft import Tensor

TOLERANCES = {"float16": (1e-3, 1e-5), "float32": (1.3e-6, 1e-5), "float64": (1e-7, 1e-7)}


def check(found: Tensor, wanted: Any) -> None:
    """`found` has the shape and, within the tolerance of its dtype, the values of `wanted`."""
    wanted = np.asarray(wanted)
    values = found.numpy()
    assert tuple(found.shape) == wanted.shape, f"shape {found.shape}, not {wanted.shape}"
    if values.dtype.name not in TOLERANCES:
        np.testing.assert_array_equal(values, wanted)
        return
    rtol, atol = (1.6e-2, 1e-5) if found.dtype.name == "bfloat16" else TOLERANCES[values.dtype.name]
    np.testing.assert_allclose(values, wanted, rtol=rtol, atol=atol)


def random(*shape: int, low: float = -2.0, high: float = 2.0, seed: int = 0) -> Any:
    """Reproducible float32 data."""
    generator = np.random.default_rng(seed)
    return generator.uniform(low, high, shape).astype(np.float32)
