"""Random programs of half types whose every result is known to the bit.

In: a seed. Out: a `Program` whose text is the same for weft and for `Half`, its twin of NumPy
arrays. Each method rounds once, so that what is compared, sorted or looked for is the same number
wherever it is computed. Otherwise as `programs.py`, whose numbers are whole.
Invariant: only methods with one correct result are used: what IEEE rounds, choices, places, and
sums of whole numbers that float32 holds.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from test.fuzz import programs, steps
from test.fuzz.floats import FloatGenerator
from test.fuzz.programs import can_run
from test.fuzz.world import Program, Statement
from test.optional import optional
from weft import Tensor

ml_dtypes = optional("ml_dtypes")

KINDS = ("float16", "bfloat16")
# sums of whole numbers are exact in float32 as long as they are below
EXACT_SUM = 1 << 24


def array_of(kind: str, values: np.ndarray) -> np.ndarray:
    """Numbers rounded once to a dtype that NumPy has, or `ml_dtypes`."""
    if values.dtype.kind != "f":
        return values.astype(_numpy(kind))
    # float64 would be rounded twice on some ways to bfloat16
    return values.astype(np.float32).astype(_numpy(kind))


def _numpy(kind: str) -> Any:
    return ml_dtypes.bfloat16 if kind == "bfloat16" else np.dtype(kind)


class Half:
    """An array and the name of its dtype; methods named as weft's, each of which rounds once."""

    def __init__(self, values: np.ndarray, kind: str) -> None:
        self.kind = kind
        self.value = array_of(kind, np.asarray(values))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size

    @property
    def is_half(self) -> bool:
        return self.kind in KINDS

    def wide(self) -> np.ndarray:
        """In float32, in which one op of half types is exact enough to be rounded once more."""
        return self.value.astype(np.float32) if self.is_half else self.value

    def _same(self, values: np.ndarray) -> Half:
        return Half(values, self.kind)

    def _number(self, other: Any) -> np.ndarray:
        # a number takes the dtype first, and is rounded by that
        return other.wide() if isinstance(other, Half) else Half(other, self.kind).wide()

    # ------------------------------------------------------------ what IEEE rounds
    def __add__(self, other: Any) -> Half:
        return self._same(self.wide() + self._number(other))

    def __sub__(self, other: Any) -> Half:
        return self._same(self.wide() - self._number(other))

    def __mul__(self, other: Any) -> Half:
        return self._same(self.wide() * self._number(other))

    def __truediv__(self, other: Any) -> Half:
        return self._same(self.wide() / self._number(other))

    def square(self) -> Half:
        return self._same(self.wide() * self.wide())

    def sqrt(self) -> Half:
        return self._same(np.sqrt(self.wide()))

    def reciprocal(self) -> Half:
        return self._same(np.float32(1) / self.wide())

    # ------------------------------------------------------------ what is exact
    def __neg__(self) -> Half:
        return self._same(-self.wide())

    def abs(self) -> Half:
        return self._same(np.abs(self.wide()))

    def relu(self) -> Half:
        return self._same(np.maximum(self.wide(), np.float32(0)))

    def floor(self) -> Half:
        return self._same(np.floor(self.wide()))

    def ceil(self) -> Half:
        return self._same(np.ceil(self.wide()))

    def round(self) -> Half:
        return self._same(np.round(self.wide()))

    def trunc(self) -> Half:
        return self._same(np.trunc(self.wide()))

    def maximum(self, other: Any) -> Half:
        return self._same(np.maximum(self.wide(), self._number(other)))

    def minimum(self, other: Any) -> Half:
        return self._same(np.minimum(self.wide(), self._number(other)))

    def clip(self, low: float, high: float) -> Half:
        return self.maximum(low).minimum(high)

    def contiguous(self) -> Half:
        return self

    def realize(self) -> Half:
        return self

    def cast(self, kind: str) -> Half:
        return Half(self.wide(), kind)

    # ------------------------------------------------------------ choices
    def eq(self, other: Any) -> Half:
        return Half(self.wide() == self._number(other), "bool")

    def __lt__(self, other: Any) -> Half:
        return Half(self.wide() < self._number(other), "bool")

    def __le__(self, other: Any) -> Half:
        return Half(self.wide() <= self._number(other), "bool")

    def where(self, chosen: Half, other: Half) -> Half:
        return chosen._same(np.where(self.value, chosen.wide(), other.wide()))

    # ------------------------------------------------------------ along an axis
    def max(self, axis: int, keepdim: bool = False) -> Half:
        return self._same(self.wide().max(axis, keepdims=keepdim))

    def min(self, axis: int, keepdim: bool = False) -> Half:
        return self._same(self.wide().min(axis, keepdims=keepdim))

    def argmax(self, axis: int, keepdim: bool = False) -> Half:
        return Half(self.wide().argmax(axis, keepdims=keepdim), "int32")

    def argmin(self, axis: int, keepdim: bool = False) -> Half:
        return Half(self.wide().argmin(axis, keepdims=keepdim), "int32")

    def sum(self, axis: int, keepdim: bool = False) -> Half:
        return self._summed(self.wide().astype(np.float64).sum(axis, keepdims=keepdim))

    def _summed(self, total: np.ndarray) -> Half:
        """Of a half type it is rounded once, at its end; bools and ints are counted."""
        return self._same(total) if self.is_half else Half(total, "int32")

    def mean(self, axis: int, keepdim: bool = False) -> Half:
        total = self.wide().astype(np.float64).sum(axis, keepdims=keepdim).astype(np.float32)
        return self._same(total / np.float32(self.shape[axis]))

    def any(self, axis: int, keepdim: bool = False) -> Half:
        return Half((self.wide() != 0).any(axis, keepdims=keepdim), "bool")

    def cumsum(self, axis: int) -> Half:
        return self._same(self.wide().astype(np.float64).cumsum(axis))

    def values_sorted(self, axis: int, descending: bool = False) -> Half:
        rising = np.sort(self.wide(), axis)
        return self._same(np.flip(rising, axis) if descending else rising)

    def __matmul__(self, other: Half) -> Half:
        return self._same(self.wide().astype(np.float64) @ other.wide().astype(np.float64))

    # ------------------------------------------------------------ movement
    def __getitem__(self, index: Any) -> Half:
        if isinstance(index, Half):
            index = index.value
        return self._same(self.wide()[index])

    def reshape(self, *shape: Any) -> Half:
        return self._same(self.wide().reshape(*shape))

    def permute(self, *order: Any) -> Half:
        return self._same(self.wide().transpose(*order))

    def flip(self, axis: Any) -> Half:
        return self._same(np.flip(self.wide(), axis))

    def expand(self, *shape: Any) -> Half:
        return self._same(np.broadcast_to(self.wide(), shape[0] if len(shape) == 1 else shape))

    def pad(self, pairs: Any, value: float = 0.0) -> Half:
        return self._same(np.pad(self.wide(), pairs, constant_values=value))

    def cat(self, other: Half, dim: int) -> Half:
        return self._same(np.concatenate([self.wide(), other.wide()], dim))

    def is_summable(self) -> bool:
        """Whether every sum of its elements is a whole number that float32 holds."""
        values = self.wide().astype(np.float64)
        if not np.isfinite(values).all() or (values != np.trunc(values)).any():
            return False
        return bool(np.abs(values).sum() < EXACT_SUM)


def values_sorted(x: Tensor, axis: int, descending: bool = False) -> Tensor:
    """weft's sort without the places, which NumPy orders in another way where values are equal."""
    return x.sort(axis, descending)[0]


def run_twin(statements: list[Statement]) -> dict[str, Half]:
    """Every variable of the program on NumPy."""
    env: dict[str, Any] = {"np": np, "Half": Half, "Tensor": _TwinOfTensor}
    with np.errstate(all="ignore"):
        for statement in statements:
            exec(statement.numpy, env)
    return {k: v for k, v in env.items() if isinstance(v, Half)}


class _TwinOfTensor:
    """What a program asks of the class."""

    @staticmethod
    def realize(*tensors: Half) -> None:
        """Nothing is lazy here."""


def run_weft(statements: list[Statement], device: str | None = None) -> dict[str, Any]:
    """Every variable of the program on weft, half types in float32, which holds them."""
    return programs.run_weft(statements, device, _named, Half=_tensor, values_sorted=values_sorted)


def _named(value: Tensor) -> tuple[str, Any]:
    kind = value.dtype.name
    return kind, (value.float() if kind in KINDS else value).numpy()


def _tensor(values: np.ndarray, kind: str) -> Tensor:
    """What a twin is made from, as a tensor of its dtype in memory."""
    made = array_of(kind, values)
    wide = made.astype(np.float32) if kind in KINDS else made
    return Tensor(wide).cast(kind).contiguous().realize()


def is_closed(program: Program) -> bool:
    """Whether it can run."""
    return can_run(program, run_twin)


def _wrong(found: Any, twin: Half) -> Any:
    """Zeros have no sign here, and one NaN is as good as another."""
    wanted = twin.wide()
    return (found != wanted) & ((found == found) | (wanted == wanted))


def difference(program: Program, device: str | None = None) -> str | None:
    """What is another number than NumPy's, or None."""
    return programs.first_difference(
        run_twin(program.statements),
        lambda: run_weft(program.statements, device),
        _wrong,
        lambda twin, at: repr(twin.wide()[at]),
    )


class HalfGenerator(FloatGenerator):
    """Makes one random program of half types."""

    def __init__(self, seed: int, length: int = 12, large: bool = False) -> None:
        super().__init__(seed, length, large)
        self.env.update({"Half": Half, "Tensor": _TwinOfTensor})

    def run(self) -> Program:
        """Data first, then steps of all kinds."""
        self.kind = self.rng.choice(KINDS)
        for _ in range(self.rng.randint(1, 3)):
            self.data()
        kinds = [self.unary] * 5 + [self.binary] * 7 + [self.scalar] * 3 + [self.movement] * 5
        kinds += [self.reduce] * 5 + [self.sum] * 2 + [self.compare] * 3 + [self.choose] * 3
        kinds += [self.greatest] * 3 + [self.sort, self.matmul, self.data, self.cast, self.take]
        kinds += [self.realize, self.cat]
        for _ in range(self.length):
            self.rng.choice(kinds)()
        if self.rng.random() < 0.3:
            self.together()
        return self.program

    def half(self, accept: Any = lambda v: True) -> str | None:
        """Some variable of a half type."""
        return self.pick(lambda v: v.is_half and accept(v))  # type: ignore[attr-defined]

    def data(self) -> None:
        """Numbers around 1 and far from it, or whole ones, of which some are equal."""
        shape = [self.rng.choice(self.sizes) for _ in range(self.rng.randint(1, 3))]
        while np.prod(shape) > self.most:
            shape.pop()
        seed = self.rng.randint(0, 999)
        source = f"np.random.default_rng({seed})"
        size = tuple(shape)
        numbers = self.rng.choice(
            (
                f"{source}.standard_normal({size})",
                f"{source}.integers(-8, 9, {size}).astype(np.float64)",
                f"{source}.standard_normal({size}) * np.exp2({source}.integers(-12, 12, {size}))",
            )
        )
        self.both(f"Half({numbers}, '{self.kind}')")

    def unary(self) -> None:
        """A function with one correct result."""
        name = self.half()
        forms = ["-{x}", "{x}.abs()", "{x}.relu()", "{x}.square()", "{x}.abs().sqrt()"]
        forms += ["({x}.abs() + 1).reciprocal()", "{x}.floor()", "{x}.ceil()", "{x}.round()"]
        forms += ["{x}.trunc()", "{x}.contiguous()", "{x}.clip(-2.0, 3.0)"]
        if name is not None:
            self.both(self.rng.choice(forms).format(x=name))

    def binary(self) -> None:
        """Two operands of one dtype."""
        left = self.half()
        right = None if left is None else self.operand(left)
        if left is None or right is None:
            return
        forms = ["({a} + {b})", "({a} + {b})", "({a} - {b})", "({a} * {b})"]
        forms += ["({a} / ({b}.abs() + 1))", "{a}.maximum({b})", "{a}.minimum({b})"]
        self.both(self.rng.choice(forms).format(a=left, b=right))

    def scalar(self) -> None:
        """A number, which takes the tensor's dtype."""
        name = self.half()
        number = self.rng.choice((0.1, 0.3, 3.0, -7.0, 1.1, 100.0, 1e-3))
        if name is not None:
            op = self.rng.choice("+-*/")
            self.both(f"({name} {op} {number})")

    def compare(self) -> None:
        """A bool for each element."""
        left = self.half()
        right = None if left is None else self.operand(left)
        if left is not None and right is not None:
            form = self.rng.choice(("{a}.eq({b})", "({a} < {b})", "({a} <= {b})"))
            self.both(form.format(a=left, b=right))

    def greatest(self) -> None:
        """Where a value is the greatest of its row: it is there, whatever was fused."""
        name = self.half(lambda v: v.ndim > 0 and v.size > 0)
        if name is not None:
            axis = self.rng.randrange(self.value(name).ndim)
            kind = self.rng.choice(("max", "min"))
            self.both(f"{name}.eq({name}.{kind}({axis}, keepdim=True))")

    def choose(self) -> None:
        """One of two values."""
        name = self.half()
        other = None if name is None else self.operand(name)
        if name is None or other is None:
            return
        shape = np.broadcast_shapes(self.value(name).shape, self.value(other).shape)
        condition = self.pick(lambda v: v.kind == "bool" and v.shape == shape)  # type: ignore[attr-defined]
        if condition is not None:
            self.both(f"{condition}.where({name}, {other})")

    def reduce(self) -> None:
        """Extremes and their places."""
        name = self.half(lambda v: v.ndim > 0 and v.size > 0)
        if name is not None:
            axis = self.rng.randrange(self.value(name).ndim)
            kind = self.rng.choice(("max", "min", "argmax", "argmax", "argmin", "any"))
            self.both(f"{name}.{kind}({axis}, keepdim={self.rng.random() < 0.5})")

    def sum(self) -> None:
        """Of whole numbers, or of bools."""

        def fits(v: Any) -> bool:
            return v.ndim > 0 and v.size > 0 and v.kind != "int32" and v.is_summable()

        name = self.pick(fits)
        if name is None:
            return
        axis = self.rng.randrange(self.value(name).ndim)
        keep = self.rng.random() < 0.5
        kind = "sum"
        if self.value(name).is_half:  # type: ignore[attr-defined]
            kind = self.rng.choice(("sum", "sum", "mean", "cumsum"))
        rest = f"{axis}" if kind == "cumsum" else f"{axis}, {keep}"
        self.both(f"{name}.{kind}({rest})")

    def sort(self) -> None:
        """The values of an axis in order."""
        name = self.half(lambda v: v.ndim > 0 and v.size > 0 and not np.isnan(v.wide()).any())
        if name is not None:
            arguments = f"{self.rng.randrange(self.value(name).ndim)}, {self.rng.random() < 0.5}"
            self.new(f"values_sorted({name}, {arguments})", f"{name}.values_sorted({arguments})")

    def movement(self) -> None:
        """A view."""
        name = self.pick()
        if name is None:
            return
        twin: Any = self.value(name)
        weft, _ = self.rng.choice(steps.MOVES)(self, twin.wide())
        if weft is not None:
            self.both(weft.format(x=name))

    def take(self) -> None:
        """Rows at places that were found."""
        name = self.half(lambda v: v.ndim > 0 and v.size > 0)
        if name is None:
            return
        size = self.value(name).shape[0]

        def is_place(v: Any) -> bool:
            return v.kind == "int32" and v.size > 0 and bool((v.value < size).all())

        places = self.pick(is_place)
        if places is not None:
            rows = self.value(places).size * self.value(name).size // size
            if rows <= self.most:
                self.both(f"{name}[{places}]")

    def matmul(self) -> None:
        """Of whole numbers."""
        left = self.half(lambda v: v.ndim == 2 and v.size > 0 and v.is_summable())
        if left is None:
            return
        a: Any = self.value(left)

        def fits(b: Any) -> bool:
            if b.kind != a.kind or b.ndim != 2 or b.shape[0] != a.shape[1] or not b.is_summable():
                return False
            return bool((np.abs(a.wide()) @ np.abs(b.wide())).max(initial=0) < EXACT_SUM)

        right = self.pick(fits)
        if right is not None:
            self.both(f"({left} @ {right})")

    def cat(self) -> None:
        """Two tensors along an axis."""
        name = self.half(lambda v: v.ndim > 0)
        if name is not None:
            axis = self.rng.randrange(self.value(name).ndim)
            self.both(f"{name}.cat({name} + 1.0, dim={axis})")

    def cast(self) -> None:
        """The other half type, float32 and back, or a bool as a number."""
        name = self.pick(lambda v: v.kind in ("bool", *KINDS))  # type: ignore[attr-defined]
        if name is not None:
            middle = self.rng.choice(("float32", *KINDS))
            self.both(f"{name}.cast('{middle}').cast('{self.kind}')")

    def together(self) -> None:
        """All that is there in one schedule."""
        self.emit(f"Tensor.realize({', '.join(self.names)})", "pass")
