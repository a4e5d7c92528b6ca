"""Random products of matrices on the interpreter of a GPU with tensor cores.

usage: python -m test.fuzz.products [--seconds S] [--first SEED]

Operands are views of arrays (transposed, sliced, with steps, padded, flipped, expanded) of every
dtype that fragments hold, with something done to them before and to the result after. Numbers are
small integers, so that every order of summing gives the same; NumPy says what.
"""

from __future__ import annotations

import argparse
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from weft import Tensor
from weft.dtype import DType, dtypes
from weft.knobs import Context

DEVICE = "PYTHON:sm_90"
_DTYPES = (dtypes.float16, dtypes.bfloat16, dtypes.fp8e5m2, dtypes.int8, dtypes.float32)
# what sums are made in, where results of the dtype would round or wrap
_WIDE = {dtypes.fp8e5m2: dtypes.float32, dtypes.int8: dtypes.int32}
_VIEWS = ("plain", "turned", "sliced", "stepped", "padded", "flipped", "shared")


@dataclass
class Operand:
    """An array, and how a matrix is seen in it."""

    view: str
    batch: tuple[int, ...]
    rows: int
    columns: int

    def array(self, generator: np.random.Generator) -> np.ndarray:
        rows, columns = self.rows, self.columns
        shapes = {
            "turned": (*self.batch, columns, rows),
            "sliced": (*self.batch, rows + 3, columns + 5),
            "stepped": (*self.batch, 2 * rows, columns),
            "padded": (*self.batch, rows - 3, columns - 2),
            "shared": (rows, columns),
        }
        shape = shapes.get(self.view, (*self.batch, rows, columns))
        return generator.integers(-2, 3, shape).astype(np.float32)

    def seen(self, value: Any) -> Any:
        """The matrix, of an array or a Tensor."""
        is_array = isinstance(value, np.ndarray)
        whole = (*self.batch, self.rows, self.columns)
        if self.view == "turned":
            return value.swapaxes(-1, -2) if is_array else value.transpose(-1, -2)
        if self.view == "sliced":
            return value[..., 2 : 2 + self.rows, 4 : 4 + self.columns]
        if self.view == "stepped":
            return value[..., ::2, :]
        if self.view == "padded":
            widths = (*[(0, 0)] * len(self.batch), (1, 2), (2, 0))
            return np.pad(value, widths) if is_array else value.pad(widths)
        if self.view == "flipped":
            return value[..., ::-1, :] if is_array else value.flip(-2)
        if self.view == "shared":
            return np.broadcast_to(value, whole) if is_array else value.expand(*whole)
        return value


def _relu(value: Any) -> Any:
    return np.maximum(value, 0) if isinstance(value, np.ndarray) else value.relu()


def _turn(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.swapaxes(-1, -2)
    return value.transpose(-1, -2).contiguous()


_BEFORE: tuple[Callable[[Any], Any], ...] = (lambda x: x, _relu, lambda x: -x)
_AFTER: tuple[Callable[[Any, Any, Any], Any], ...] = (
    lambda c, bias, other: c,
    lambda c, bias, other: _relu(c + bias),
    lambda c, bias, other: c + other,
    lambda c, bias, other: _turn(c),
    lambda c, bias, other: c * 2 - 1,
)


def check(seed: int) -> str | None:
    """What is wrong with the product of a seed; None: nothing."""
    chance, generator = random.Random(seed), np.random.default_rng(seed)
    dtype: DType = chance.choice(_DTYPES)
    rows, columns = [chance.choice([16, 17, 20, 24, 31, 32, 33, 40]) for _ in range(2)]
    terms = chance.choice([16, 18, 30, 32, 33, 48, 64, 70])
    batch = chance.choice([(), (), (2,), (3,)])
    left = Operand(chance.choice(_VIEWS), batch, rows, terms)
    right = Operand(chance.choice(_VIEWS), batch, terms, columns)
    before, after = chance.choice(_BEFORE), chance.choice(_AFTER)
    wide = _WIDE.get(dtype, dtype)
    arrays = [left.array(generator), right.array(generator)]
    arrays += [
        generator.integers(-2, 3, shape).astype(np.float32)
        for shape in ((columns,), (*batch, rows, columns))
    ]

    def compute(x: Any, y: Any, bias: Any, other: Any) -> Any:
        x, y = before(left.seen(x)), right.seen(y)
        if not isinstance(x, np.ndarray):
            x, y = x.cast(wide), y.cast(wide)
        return after(x @ y, bias, other)

    kinds = (dtype, dtype, wide, wide)
    spec = 1 if chance.random() < 0.8 else 2
    with Context(SPEC=spec, ALLOW_TF32=int(dtype is dtypes.float32), PYTHON_SEED=seed):
        inputs = [
            Tensor(array, device=DEVICE).cast(kind).realize()
            for array, kind in zip(arrays, kinds, strict=True)
        ]
        found = compute(*inputs).cast(dtypes.float32).numpy()
    wanted = Tensor(compute(*arrays), device="CPU").cast(wide).cast(dtypes.float32).numpy()
    if np.array_equal(found, wanted):
        return None
    what = f"{dtype} {rows}x{columns}x{terms} {batch} {left.view} {right.view}"
    return f"seed {seed}: {what}: {np.abs(found - wanted).max()} off"


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--first", type=int, default=0)
    options = parser.parse_args()
    end = time.monotonic() + options.seconds
    seed, wrong = options.first, 0
    while time.monotonic() < end:
        complaint = check(seed)
        if complaint is not None:
            wrong += 1
            print(complaint, flush=True)
        seed += 1
    print(f"{seed - options.first} products, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
