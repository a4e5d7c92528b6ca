"""Random programs of floats that round: every result within a bound that is computed beside it.

In: a seed. Out: a `Program` whose text is the same for weft and for `Approximate`, its twin. Only
functions without jumps are used, so that a small error stays one. Otherwise as `programs.py`, whose
programs are exact.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from test.fuzz import steps
from test.fuzz.approximate import Approximate
from test.fuzz.programs import ENVIRONMENT, can_run, first_difference, run_weft
from test.fuzz.world import Program, Statement, World
from weft import Tensor

KINDS = ("float32", "float32", "float32", "float64", "float16")
# what a healthy kernel may be off, in units in the last place of its largest result
UNITS = 16
# values stay small enough for half types
BOUND = 8


def run_twin(statements: list[Statement]) -> dict[str, Any]:
    """Every variable, with its bound."""
    env: dict[str, Any] = {**ENVIRONMENT, "Tensor": Approximate}
    with np.errstate(all="ignore"):
        for statement in statements:
            exec(statement.numpy, env)
    return {k: v for k, v in env.items() if isinstance(v, Approximate)}


def is_closed(program: Program) -> bool:
    """Whether it can run."""
    return can_run(program, run_twin)


def _named(value: Tensor) -> tuple[str, Any]:
    return value.dtype.name, value.numpy()


def difference(program: Program, device: str | None = None) -> str | None:
    """What is further from the truth than it may be, or None."""
    return first_difference(
        run_twin(program.statements),
        lambda: run_weft(program.statements, device, _named),
        lambda found, twin: ~(np.abs(found.astype(np.float64) - twin.value) <= twin.error),
        lambda twin, at: f"{twin.value[at]!r} +- {twin.error[at]:.3g}",
    )


class FloatGenerator(World):
    """Makes one random program of floats."""

    def __init__(self, seed: int, length: int = 10, large: bool = False) -> None:
        super().__init__(seed, large)
        self.length = length
        self.env["Tensor"] = Approximate

    def run(self) -> Program:
        """Data first, then steps of all kinds."""
        for _ in range(self.rng.randint(1, 2)):
            self.data()
        kinds = [self.unary] * 5 + [self.binary] * 5 + [self.movement] * 5 + [self.reduce] * 4
        kinds += [self.matmul, self.conv, self.data, self.cast, self.realize, self.normalise]
        for _ in range(self.length):
            self.rng.choice(kinds)()
        return self.program

    def both(self, text: str) -> None:
        """A new variable; the text is the same on both sides."""
        self.new(text, text)

    def data(self) -> None:
        """Numbers around 1, of which one in eight is a zero."""
        shape = [self.rng.choice(self.sizes) for _ in range(self.rng.randint(1, 4))]
        while np.prod(shape) > self.most:
            shape.pop()
        seed, kind = self.rng.randint(0, 999), self.rng.choice(KINDS)
        numbers = f"np.random.default_rng({seed}).standard_normal({tuple(shape)})"
        zeros = f"(np.random.default_rng({seed}).integers(0, 8, {tuple(shape)}) > 0)"
        self.both(f"Tensor(({numbers} * {zeros}).astype('{kind}'))")

    def unary(self) -> None:
        """A function without jumps."""
        name = self.pick()
        functions = [
            "{x}.clip(-4, 4).exp().clip(-8, 8)",
            "({x}.abs() + 1).log()",
            "({x}.abs() + 1).sqrt()",
            "{x}.sin()",
            "{x}.tanh()",
            "{x}.sigmoid()",
            "{x}.relu()",
            "{x}.square().clip(-8, 8)",
            "-{x}",
            "({x} * 0.3 + 0.7)",
            "{x}.contiguous()",
        ]
        if name is not None:
            self.both(self.rng.choice(functions).format(x=name))

    def binary(self) -> None:
        """Two operands of one dtype."""
        left = self.pick()
        right = None if left is None else self.operand(left)
        if left is None or right is None:
            return
        forms = ["({a} + {b})", "({a} - {b})", "({a} * {b})", "({a} / ({b}.abs() + 1))"]
        forms += ["{a}.maximum({b})"]
        form = self.rng.choice(forms).format(a=left, b=right)
        self.both(form if "maximum" in form else f"{form}.clip(-{BOUND}, {BOUND})")

    def operand(self, name: str, same_dtype: bool = True) -> str | None:
        value = self.value(name)

        def fits(other: Any) -> bool:
            try:
                shape = np.broadcast_shapes(other.shape, value.shape)
            except ValueError:
                return False
            return other.kind == value.kind and int(np.prod(shape)) <= self.most

        return self.pick(fits)

    def movement(self) -> None:
        """A view."""
        name = self.pick()
        if name is not None:
            twin = self.value(name)
            weft, _ = self.rng.choice(steps.MOVES)(self, twin.value)
            # an index of one axis is written differently for NumPy
            if weft is not None:
                self.both(weft.format(x=name))

    def reduce(self) -> None:
        """Along one axis."""
        name = self.pick(lambda v: v.ndim > 0 and v.size > 0)
        if name is None:
            return
        axis = self.rng.randrange(self.value(name).ndim)
        keep = self.rng.random() < 0.5
        kind = self.rng.choice(("sum", "sum", "mean", "max", "softmax", "cumsum"))
        if kind == "softmax":
            self.both(f"{name}.softmax({axis})")
        elif kind == "cumsum":
            self.both(f"{name}.cumsum({axis}).clip(-{BOUND}, {BOUND})")
        else:
            self.both(f"{name}.{kind}({axis}, keepdim={keep}).clip(-{BOUND}, {BOUND})")

    def normalise(self) -> None:
        """What a norm does, over the last axis."""
        name = self.pick(lambda v: v.ndim > 0 and v.size > 0)
        if name is not None:
            centre = f"({name} - {name}.mean(-1, keepdim=True))"
            scale = f"({centre}.square().mean(-1, keepdim=True) + 1).sqrt()"
            self.both(f"({centre} / {scale}).clip(-{BOUND}, {BOUND})")

    def matmul(self) -> None:
        """Of matrices, or stacks of them."""
        left = self.pick(lambda v: v.ndim >= 2 and v.size > 0)
        if left is None:
            return
        a = self.value(left)
        right = self.pick(lambda b: b.ndim == 2 and b.kind == a.kind and b.shape[0] == a.shape[-1])
        if right is not None:
            self.both(f"({left} @ {right}).clip(-{BOUND}, {BOUND})")

    def conv(self) -> None:
        """Of two axes, with exact weights."""
        name = self.pick(lambda v: v.ndim == 4 and v.kind != "float16" and v.size > 0)
        if name is None:
            return
        twin: Any = self.value(name)
        channels, kernel = twin.shape[1], [min(2, size) for size in twin.shape[2:]]
        weight = self.numbers(-2, 3, (self.rng.randint(1, 3), channels, *kernel), twin.kind)
        places = f"stride={self.rng.choice((1, 2))}, padding={self.rng.randint(0, 1)}"
        self.both(f"{name}.conv2d(Tensor({weight}), {places}).clip(-{BOUND}, {BOUND})")

    def cast(self) -> None:
        """Another float."""
        name = self.pick()
        if name is not None:
            kind = self.rng.choice([k for k in KINDS if k != self.value(name).kind])  # type: ignore[attr-defined]
            self.both(f"{name}.cast('{kind}')")

    def realize(self) -> None:
        name = self.pick()
        if name is not None:
            self.emit(f"{name}.realize()", "pass")
