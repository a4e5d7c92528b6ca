"""Rotary positions: frequencies in all their scalings, and the rotation.

In: the sizes of a model, positions, vectors of heads. Out: cosines and sines, turned vectors.
Between `config` and `model`. Invariant: frequencies are computed on the host in float64, once.

Sources: Su et al., "RoFormer" (2021); Peng et al., "YaRN" (2023); Ding et al., "LongRoPE" (2024);
the smooth interpolation of Llama 3.1's published configuration.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from weft.dtype import dtypes
from weft.llm.config import RopeScaling
from weft.tensor import Tensor

Array = np.ndarray[Any, Any]


def frequencies(dim: int, theta: float, scaling: RopeScaling, factors: Array | None) -> Array:
    """Radians a position, one for each pair."""
    plain = theta ** -(np.arange(0, dim, 2, dtype=np.float64) / dim)
    if factors is not None:
        return plain / np.asarray(factors, np.float64)
    if scaling.kind == "linear":
        return plain / scaling.factor
    if scaling.kind == "llama3":
        return _llama3(plain, scaling)
    if scaling.kind == "yarn":
        return _yarn(plain, dim, theta, scaling)
    return plain


def _llama3(plain: Array, scaling: RopeScaling) -> Array:
    turns = scaling.original_context * plain / (2 * math.pi)
    low, high = scaling.low_factor, scaling.high_factor
    kept = np.clip((turns - low) / (high - low), 0.0, 1.0)
    return kept * plain + (1 - kept) * plain / scaling.factor


def _yarn(plain: Array, dim: int, theta: float, scaling: RopeScaling) -> Array:
    def pair_of(turns: float) -> float:
        ratio = scaling.original_context / (turns * 2 * math.pi)
        return dim * math.log(ratio) / (2 * math.log(theta))

    low = max(math.floor(pair_of(scaling.fast_turns)), 0)
    high = min(math.ceil(pair_of(scaling.slow_turns)), dim - 1)
    ramp = np.clip((np.arange(dim // 2) - low) / max(high - low, 0.001), 0.0, 1.0)
    return plain / scaling.factor * ramp + plain * (1 - ramp)


def attention_factor(scaling: RopeScaling, max_context: int) -> float:
    """What cosines and sines are multiplied by."""
    if scaling.attention_factor is not None and scaling.kind != "yarn":
        return scaling.attention_factor
    if scaling.kind == "yarn" and scaling.factor > 1:
        given = 1.0 if scaling.attention_factor is None else scaling.attention_factor
        return given * (0.1 * math.log(scaling.factor) + 1.0)
    if scaling.kind == "longrope" and scaling.original_context:
        stretch = max_context / scaling.original_context
        if stretch > 1:
            return math.sqrt(1 + math.log(stretch) / math.log(scaling.original_context))
    return 1.0


def precompute_freqs_cis(
    dim: int,
    end: int,
    theta: float = 10000.0,
    scaling: RopeScaling | None = None,
    factors: Array | None = None,
) -> Tensor:
    """Cosines and sines of `end` positions: (end, dim), the cosines first.

    >>> precompute_freqs_cis(4, 3).shape
    (3, 4)
    """
    scaling = scaling or RopeScaling()
    angles = np.outer(np.arange(end), frequencies(dim, theta, scaling, factors))
    table = np.concatenate([np.cos(angles), np.sin(angles)], axis=1)
    return Tensor((table * attention_factor(scaling, end)).astype(np.float32))


def apply_rope(x: Tensor, freqs_cis: Tensor, halves: bool = True) -> Tensor:
    """Vectors (..., length, width) turned by their positions' angles (length, rotated).

    Pairs are (i, i + rotated / 2), or neighbours; what is beyond `rotated` stays.
    """
    rotated = freqs_cis.shape[-1]
    turned, rest = x[..., :rotated].cast(dtypes.float32), x[..., rotated:]
    cos, sin = freqs_cis.chunk(2, dim=-1)
    if halves:
        a, b = turned.chunk(2, dim=-1)
        result = (a * cos - b * sin).cat(b * cos + a * sin, dim=-1)
    else:
        pairs = turned.reshape(*turned.shape[:-1], rotated // 2, 2)
        a, b = pairs[..., 0], pairs[..., 1]
        result = (a * cos - b * sin).stack(b * cos + a * sin, dim=-1).flatten(-2)
    result = result.cast(x.dtype)
    return result.cat(rest, dim=-1) if rest.shape[-1] else result
