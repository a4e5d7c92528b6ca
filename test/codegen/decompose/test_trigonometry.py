"""SIN against wider floats, from denormals to the largest numbers."""

from __future__ import annotations

import numpy as np
import pytest

from test.codegen.decompose.harness import (
    PLAIN,
    WIDER,
    alu,
    any_bits,
    compute,
    f32,
    f64,
    interpret,
    random,
    worst_ulp,
)
from test.codegen.decompose.test_transcendental import edges
from weft.codegen.decompose.decompose import decompose
from weft.dtype import DType, dtypes, to_numpy_dtype
from weft.renderer.base import Renderer
from weft.renderer.c import CRenderer
from weft.uop.node import UOp
from weft.uop.opset import Ops

COUNT = 200_000
both = pytest.mark.parametrize("dtype", [f32, f64], ids=lambda d: d.name)
LIMIT = {f32: 0.51, f64: 1.15}


def error(x: np.ndarray, dtype: DType, renderer: Renderer = PLAIN) -> float:
    with np.errstate(all="ignore"):
        expected = np.sin(x.astype(WIDER[dtype]))
    return worst_ulp(compute(alu(Ops.SIN), [x], [dtype], renderer), expected)


@both
def test_sin(dtype: DType) -> None:
    kind = to_numpy_dtype(dtype)
    huge = 127 if dtype is f32 else 1023
    parts = [
        edges(dtype),
        any_bits(dtype, COUNT),
        random.uniform(-10, 10, COUNT),
        random.uniform(-(2**20), 2**20, COUNT),
        np.exp2(random.uniform(18, huge, COUNT)),
        # both sides of where the reduction changes
        2.0**19 * (1 + random.normal(0, 1e-6, 1000)),
        2.0**20 * (1 + random.normal(0, 1e-6, 1000)),
    ]
    x = np.concatenate([part.astype(kind) for part in parts])
    assert error(x, dtype) < LIMIT[dtype]


@both
def test_near_multiples_of_half_pi(dtype: DType) -> None:
    """Where the reduction cancels most: the nearest floats to n * pi/2, and their neighbours."""
    exact = np.arange(1, COUNT).astype(np.longdouble) * np.longdouble(np.pi) / 2
    far = np.exp2(random.uniform(20, 60, COUNT)).astype(np.longdouble) * np.longdouble(np.pi) / 2
    x = np.concatenate([exact, far]).astype(to_numpy_dtype(dtype))
    x = np.concatenate([x, np.nextafter(x, np.inf, dtype=x.dtype)])
    assert error(x, dtype) < LIMIT[dtype]


def test_the_worst_cases_of_float64() -> None:
    """6381956970095103 * 2**797 is the double nearest to a multiple of pi/2 (Muller's book)."""
    x = np.array(
        [6381956970095103.0 * 2.0**797, 5.319372648326541e255, -1e22, 1.7976931348623157e308]
    )
    assert error(x, f64) < 0.8


@both
def test_other_renderers(dtype: DType) -> None:
    x = np.concatenate([edges(dtype), any_bits(dtype, 20_000)])
    assert error(x, dtype, CRenderer()) < LIMIT[dtype]
    interpret(alu(Ops.SIN), [x[:300].copy()], [dtype])


@both
def test_bounds_remove_the_large_reduction(dtype: DType) -> None:
    """An angle that is known to be small needs few bits of 2/pi."""
    small = UOp.variable("n", 0, 100, dtypes.int32).cast(dtype)
    unknown = UOp.param(0, dtype, 1).index(UOp.const(dtypes.weakint, 0)).load()
    sizes = [len(decompose(x.alu(Ops.SIN), PLAIN).toposort()) for x in (small, unknown)]
    assert sizes[0] + 30 < sizes[1]
