"""Weights and data of the programs: drawn by NumPy, so that every library gets the same numbers."""

from __future__ import annotations

from typing import Any

import numpy as np


def fill(state: dict[str, Any], seed: int = 0) -> None:
    """Assign to every float parameter numbers that keep activations at about 1."""
    random = np.random.default_rng(seed)
    for name in sorted(state):
        parameter = state[name]
        if not parameter.is_floating_point():
            continue
        values = random.standard_normal(parameter.shape)
        if name.endswith("running_var"):
            values = 1 + 0.5 * np.abs(values)
        elif len(parameter.shape) > 1:
            values = values / np.sqrt(np.prod(parameter.shape[1:]))
        elif name.endswith("weight"):
            values = 1 + 0.1 * values
        else:
            values = 0.1 * values
        made = type(parameter)(values.astype(np.float32), device=parameter.device)
        parameter.assign(made.cast(parameter.dtype)).realize()
