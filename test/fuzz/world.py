"""What a random program is made of, and what its steps may ask for.

In: a random generator. Out: a `World`: the statements so far, and every variable through its NumPy
twin. The steps (`steps.py`, `structures.py`) are functions of a world that add statements.
Invariant: after each step the twin of every variable holds small whole numbers (also in floats),
so that whatever is computed from them is exact.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from test.fuzz import twins

DTYPES = (
    "float32",
    "int32",
    "int64",
    "uint8",
    "bool",
    "float64",
    "int8",
    "float16",
    "int16",
    "uint32",
)
LIMIT = 64


@dataclass
class Statement:
    """The same step in both worlds."""

    weft: str
    numpy: str


@dataclass
class Program:
    """Statements; every tensor that they leave is compared at the end."""

    seed: int
    statements: list[Statement] = field(default_factory=list)

    def source(self) -> str:
        """The weft side as a script."""
        lines = ["import numpy as np", "from weft import Tensor, Variable, dtypes"]
        return "\n".join([*lines, *[s.weft for s in self.statements]])


class World:
    """The program so far; names of variables, each with its NumPy twin."""

    def __init__(self, seed: int, large: bool = False) -> None:
        # large enough for vectors, tiles, tails and threads
        self.sizes = (1, 3, 8, 16, 17, 33, 64, 100) if large else (1, 2, 3, 4, 5, 7)
        self.most = 200_000 if large else 4000
        self.rng = random.Random(seed)
        self.program = Program(seed)
        self.env: dict[str, Any] = {"np": np, "twins": twins}
        self.names: list[str] = []
        self.count = 0

    def value(self, name: str) -> np.ndarray:
        """The twin of a variable."""
        found: np.ndarray = self.env[name]
        return found

    def emit(self, weft: str, numpy: str) -> None:
        """Add a statement, and execute its twin."""
        with np.errstate(all="ignore"):
            exec(numpy, self.env)
        self.program.statements.append(Statement(weft, numpy))

    def new(self, weft: str, numpy: str, used_again: bool = True) -> str:
        """A new variable; one that is not used again is only compared."""
        name = f"v{self.count}"
        self.count += 1
        self.emit(f"{name} = {weft}", f"{name} = {numpy}")
        if used_again:
            self.names.append(name)
        return name

    def pick(self, accept: Callable[[np.ndarray], bool] = lambda v: True) -> str | None:
        """Some variable, mostly one of the last."""
        good = [n for n in self.names if accept(self.value(n))]
        return self.rng.choice(good[-6:] if self.rng.random() < 0.8 else good) if good else None

    def bounded(self, weft: str, numpy: str, dtype: np.dtype[Any] | str) -> str:
        """A new variable whose numbers are kept small."""
        dtype = np.dtype(dtype)
        if dtype.kind == "b":
            return self.new(weft, numpy)
        low = 0 if dtype.kind == "u" else -LIMIT
        return self.new(
            f"({weft}).clip({low}, {LIMIT})",
            f"np.clip({numpy}, np.array({low}, '{dtype}'), np.array({LIMIT}, '{dtype}'))",
        )

    def operand(self, name: str, same_dtype: bool = True) -> str | None:
        """A variable that broadcasts with `name`."""
        value = self.value(name)

        def fits(other: np.ndarray) -> bool:
            if same_dtype and other.dtype != value.dtype:
                return False
            pairs = zip(reversed(other.shape), reversed(value.shape), strict=False)
            return all(a == b or 1 in (a, b) for a, b in pairs)

        found = self.pick(fits)
        if found is not None and np.broadcast(value, self.value(found)).size > self.most:
            return None
        return found

    def numbers(self, low: int, high: int, shape: tuple[int, ...], dtype: str) -> str:
        """The text of an array of random numbers."""
        seed = self.rng.randint(0, 999)
        return f"np.random.default_rng({seed}).integers({low}, {high}, {shape}).astype('{dtype}')"

    def index(self, shape: tuple[int, ...]) -> str:
        """The text of a basic index: slices with steps."""
        parts = []
        for size in shape:
            start = self.rng.randrange(size)
            stop = self.rng.randint(start + 1, size)
            step = self.rng.choice((1, 1, 1, 2))
            parts.append(f"{start}:{stop}:{step}" if self.rng.random() < 0.7 else ":")
        return ", ".join(parts)


Step = Callable[[World], None]
