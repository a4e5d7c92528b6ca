"""Random tensor programs with a NumPy twin for every statement.

What comes in: a seed. What goes out: a `Program`, whose statements run on weft and on NumPy. All
numbers are small integers (also in floats), so that every result is exact and must be equal to
the last bit. A failing program is shrunk to few statements and prints as code that can be run.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

DTYPES = ("float32", "int32", "int64", "uint8", "bool", "float64", "int8", "float16")
LIMIT = 64


@dataclass
class Statement:
    """The same step in both worlds."""

    weft: str
    numpy: str


@dataclass
class Program:
    """Statements; `outputs` are the names compared at the end."""

    seed: int
    statements: list[Statement] = field(default_factory=list)

    def source(self) -> str:
        """The weft side as a script."""
        lines = ["import numpy as np", "from weft import Tensor, dtypes"]
        return "\n".join([*lines, *[s.weft for s in self.statements]])


def run_numpy(statements: list[Statement]) -> dict[str, Any]:
    """The reference: every variable's final value."""
    env: dict[str, Any] = {"np": np}
    with np.errstate(all="ignore"):
        for statement in statements:
            exec(statement.numpy, env)
    return {k: v for k, v in env.items() if isinstance(v, np.ndarray)}


def run_weft(statements: list[Statement], device: str | None = None) -> dict[str, Any]:
    """Every variable's final value, computed by weft."""
    from weft import Context, Device, Tensor, dtypes

    before = Device.DEFAULT
    if device is not None:
        Device.DEFAULT = device
    try:
        env: dict[str, Any] = {"np": np, "Tensor": Tensor, "dtypes": dtypes, "Context": Context}
        for statement in statements:
            exec(statement.weft, env)
        return {k: v.numpy() for k, v in env.items() if isinstance(v, Tensor)}
    finally:
        Device.DEFAULT = before


def difference(program: Program, device: str | None = None) -> str | None:
    """What differs between weft and NumPy, or None."""
    expected = run_numpy(program.statements)
    try:
        found = run_weft(program.statements, device)
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    for name, value in expected.items():
        if name not in found:
            continue
        other = found[name]
        if other.shape != value.shape or other.dtype != value.dtype:
            return f"{name}: {other.dtype}{other.shape} instead of {value.dtype}{value.shape}"
        if not np.array_equal(other, value, equal_nan=value.dtype.kind == "f"):
            places = np.argwhere(np.asarray(other != value))
            first = tuple(places[0].tolist()) if len(places) else ()
            what = f"{other[first]!r} instead of {value[first]!r} at {first}"
            return f"{name}: {len(places)} of {value.size} elements differ, {what}"
    return None


def shrink(program: Program, fails: Callable[[Program], bool]) -> Program:
    """Leave out statements as long as it still fails."""
    statements = program.statements
    size = max(1, len(statements) // 2)
    while size >= 1:
        start = 0
        while start < len(statements):
            shorter = Program(program.seed, statements[:start] + statements[start + size :])
            if _is_closed(shorter) and fails(shorter):
                statements = shorter.statements
            else:
                start += size
        size //= 2
    return Program(program.seed, statements)


def _is_closed(program: Program) -> bool:
    try:
        run_numpy(program.statements)
    except Exception:
        return False
    return True


class Generator:
    """Makes one random program; knows every variable through its NumPy twin."""

    def __init__(self, seed: int, length: int = 12, large: bool = False) -> None:
        # large enough for vectors, tiles, tails and threads
        self.sizes = (1, 3, 8, 16, 17, 33, 64, 100) if large else (1, 2, 3, 4, 5, 7)
        self.most = 200_000 if large else 4000
        self.rng = random.Random(seed)
        self.program = Program(seed)
        self.env: dict[str, Any] = {"np": np}
        self.names: list[str] = []
        self.views: dict[str, str] = {}
        self.length = length

    def run(self) -> Program:
        """Data first, then steps of all kinds."""
        for _ in range(self.rng.randint(1, 3)):
            self._data()
        steps = [
            (self._unary, 3),
            (self._binary, 6),
            (self._movement, 7),
            (self._reduce, 3),
            (self._matmul, 1),
            (self._cat, 1),
            (self._where, 2),
            (self._cast, 2),
            (self._assign, 3),
            (self._realize, 2),
            (self._data, 1),
            (self._constant, 1),
        ]
        kinds = [step for step, weight in steps for _ in range(weight)]
        for _ in range(self.length):
            self.rng.choice(kinds)()
        return self.program

    # ------------------------------------------------------------ helpers
    def _value(self, name: str) -> np.ndarray:
        value: np.ndarray = self.env[name]
        return value

    def _emit(self, weft: str, numpy: str, name: str | None = None) -> None:
        with np.errstate(all="ignore"):
            exec(numpy, self.env)
        self.program.statements.append(Statement(weft, numpy))
        if name is not None:
            self.names.append(name)

    def _new(self, weft: str, numpy: str) -> str:
        name = f"v{len(self.names)}"
        self._emit(f"{name} = {weft}", f"{name} = {numpy}", name)
        return name

    def _pick(self, accept: Callable[[np.ndarray], bool] = lambda v: True) -> str | None:
        good = [n for n in self.names if accept(self._value(n))]
        return self.rng.choice(good[-6:] if self.rng.random() < 0.8 else good) if good else None

    def _bounded(self, weft: str, numpy: str, dtype: np.dtype[Any]) -> str:
        """Keep numbers small, so that everything stays exact."""
        if dtype.kind == "b":
            return self._new(weft, numpy)
        low = 0 if dtype.kind == "u" else -LIMIT
        return self._new(
            f"({weft}).clip({low}, {LIMIT})",
            f"np.clip({numpy}, np.array({low}, '{dtype}'), np.array({LIMIT}, '{dtype}'))",
        )

    # ------------------------------------------------------------ steps
    def _data(self) -> None:
        shape = [self.rng.choice(self.sizes) for _ in range(self.rng.randint(0, 4))]
        while np.prod(shape) > self.most:
            shape.pop()
        dtype = self.rng.choice(DTYPES)
        low = 0 if dtype in ("bool", "uint8") else -9
        high = 2 if dtype == "bool" else 10
        seed = self.rng.randint(0, 999)
        numbers = f"np.random.default_rng({seed}).integers({low}, {high}, {tuple(shape)})"
        array = f"{numbers}.astype('{dtype}')"
        self._new(f"Tensor({array})", f"np.asarray({array})")

    def _constant(self) -> None:
        shape = tuple(self.rng.choice((1, 2, 3, 5)) for _ in range(self.rng.randint(0, 3)))
        dtype = self.rng.choice(("float32", "int32", "bool"))
        kind = self.rng.choice(("zeros", "ones", "arange", "full"))
        if kind == "arange":
            n = self.rng.randint(1, 9)
            self._new(f"Tensor.arange({n})", f"np.arange({n}, dtype='int32')")
        elif kind == "full":
            self._new(
                f"Tensor.full({shape}, 3, dtype=dtypes.{dtype})",
                f"np.full({shape}, 3, dtype='{dtype}')",
            )
        else:
            self._new(
                f"Tensor.{kind}(*{shape}, dtype=dtypes.{dtype})",
                f"np.{kind}({shape}, dtype='{dtype}')",
            )

    def _unary(self) -> None:
        name = self._pick(lambda v: v.dtype.kind in "if")
        if name is None:
            return
        weft, numpy = self.rng.choice(
            [
                ("-{x}", "-{x}"),
                ("{x}.abs()", "np.abs({x})"),
                ("{x}.relu()", "np.maximum({x}, 0)"),
                ("{x}.square()", "np.square({x})"),
                ("{x}.sign()", "np.sign({x})"),
            ]
        )
        self._bounded(weft.format(x=name), numpy.format(x=name), self._value(name).dtype)

    def _operand(self, name: str) -> str | None:
        """A variable that broadcasts with `name`, of the same dtype."""
        value = self._value(name)

        def fits(other: np.ndarray) -> bool:
            if other.dtype != value.dtype:
                return False
            pairs = zip(reversed(other.shape), reversed(value.shape), strict=False)
            return all(a == b or 1 in (a, b) for a, b in pairs)

        return self._pick(fits)

    def _binary(self) -> None:
        left = self._pick()
        if left is None:
            return
        right = self._operand(left)
        kind = self._value(left).dtype.kind
        if right is None or np.broadcast(self._value(left), self._value(right)).size > self.most:
            return
        if kind == "b":
            op = self.rng.choice(("&", "|", "^"))
            self._new(f"{left} {op} {right}", f"{left} {op} {right}")
            return
        choices = ["+", "*", "-", "max", "min", "<", "==", "!=", ">="]
        choices += ["//", "%", "&", "|", "^"] if kind in "iu" else []
        op = self.rng.choice(choices)
        dtype = self._value(left).dtype
        if op in ("max", "min"):
            self._new(f"{left}.{op}imum({right})", f"np.{op}imum({left}, {right})")
        elif op in ("<", "==", "!=", ">="):
            self._new(f"({left} {op} {right})", f"({left} {op} {right})")
        else:
            self._bounded(f"({left} {op} {right})", f"({left} {op} {right})", dtype)

    def _where(self) -> None:
        left = self._pick()
        right = self._operand(left) if left is not None else None
        if left is None or right is None:
            return
        both = np.broadcast(self._value(left), self._value(right)).shape
        condition = self._pick(lambda v: v.dtype.kind == "b" and v.shape == both)
        if condition is not None:
            self._new(
                f"{condition}.where({left}, {right})", f"np.where({condition}, {left}, {right})"
            )

    def _cast(self) -> None:
        name = self._pick()
        if name is None:
            return
        dtype = self.rng.choice(DTYPES)
        value = self._value(name)
        if value.dtype.kind == "f" and dtype == "uint8":
            dtype = "int32"
        if dtype == value.dtype:
            return
        self._new(f"{name}.cast(dtypes.{dtype})", f"{name}.astype('{dtype}')")

    def _reduce(self) -> None:
        name = self._pick(lambda v: v.ndim > 0 and v.size > 0 and v.dtype.kind != "b")
        if name is None:
            return
        value = self._value(name)
        axes = tuple(a for a in range(value.ndim) if self.rng.random() < 0.5) or (0,)
        keep = self.rng.random() < 0.4
        if self.rng.random() < 0.5:
            op = self.rng.choice(("max", "min"))
            self._new(
                f"{name}.{op}({axes}, keepdim={keep})",
                f"np.{op}({name}, axis={axes}, keepdims={keep})",
            )
            return
        kinds = {"int8": "int32", "uint8": "uint32"}
        out = kinds.get(str(value.dtype), str(value.dtype))
        self._bounded(
            f"{name}.sum({axes}, keepdim={keep}).cast(dtypes.{value.dtype})",
            f"np.sum({name}, axis={axes}, keepdims={keep}, dtype='{out}').astype('{value.dtype}')",
            value.dtype,
        )

    def _matmul(self) -> None:
        left = self._pick(lambda v: v.ndim == 2 and v.dtype == np.float32)
        if left is None:
            return
        inner = self._value(left).shape[1]
        right = self._pick(lambda v: v.ndim == 2 and v.dtype == np.float32 and v.shape[0] == inner)
        if right is not None:
            self._bounded(f"({left} @ {right})", f"({left} @ {right})", np.dtype("float32"))

    def _cat(self) -> None:
        name = self._pick(lambda v: v.ndim > 0 and v.size < self.most / 4)
        if name is None:
            return
        value = self._value(name)
        axis = self.rng.randrange(value.ndim)
        others = [n for n in self.names if self._same_but(value, self._value(n), axis)]
        parts = [name, *self.rng.choices(others, k=self.rng.randint(1, 2))]
        joined = ", ".join(parts)
        self._new(f"Tensor.cat({joined}, dim={axis})", f"np.concatenate([{joined}], axis={axis})")

    @staticmethod
    def _same_but(a: np.ndarray, b: np.ndarray, axis: int) -> bool:
        if a.dtype != b.dtype or a.ndim != b.ndim:
            return False
        return all(
            i == axis or m == n for i, (m, n) in enumerate(zip(a.shape, b.shape, strict=True))
        )

    def _movement(self) -> None:
        name = self._pick()
        if name is None:
            return
        value = self._value(name)
        weft, numpy = self.rng.choice(_MOVES)(self.rng, value)
        if weft is not None:
            self._new(weft.format(x=name), numpy.format(x=name))

    def _assign(self) -> None:
        """Write through a view of a variable; the twin writes through the same NumPy view."""
        name = self._pick(lambda v: v.ndim > 0 and v.size > 0)
        if name is None or not self._value(name).flags.writeable:
            return
        value = self._value(name)
        index = _random_index(self.rng, value.shape)
        part = value[eval(f"np.s_[{index}]")]
        source = self._pick(lambda v: v.dtype == value.dtype and v.shape == part.shape)
        if source is not None and self.rng.random() < 0.7:
            self._emit(f"{name}[{index}] = {source}", f"{name}[{index}] = {source}.copy()")
        else:
            number = 1 if value.dtype.kind == "b" else self.rng.randint(0, 5)
            number_text = "True" if value.dtype.kind == "b" else str(number)
            self._emit(f"{name}[{index}] = {number_text}", f"{name}[{index}] = {number_text}")

    def _realize(self) -> None:
        name = self._pick()
        if name is not None:
            self._emit(f"{name}.realize()", "pass")


def _random_index(rng: random.Random, shape: tuple[int, ...]) -> str:
    parts = []
    for size in shape:
        start = rng.randrange(size)
        stop = rng.randint(start + 1, size)
        step = rng.choice((1, 1, 1, 2))
        parts.append(f"{start}:{stop}:{step}" if rng.random() < 0.7 else ":")
    return ", ".join(parts)


Move = tuple[str | None, str]


def _permute(rng: random.Random, v: np.ndarray) -> Move:
    order = list(range(v.ndim))
    rng.shuffle(order)
    if not order:
        return None, ""
    return f"{{x}}.permute({tuple(order)})", f"{{x}}.transpose({tuple(order)})"


def _reshape(rng: random.Random, v: np.ndarray) -> Move:
    rest, shape = v.size, []
    for prime in (2, 3, 5, 7, 11, 17):
        while rest > 1 and rest % prime == 0:
            shape.append(prime)
            rest //= prime
    if rest > 1 or v.size == 0:
        return None, ""
    rng.shuffle(shape)
    merged: list[int] = []
    for factor in shape:
        if merged and rng.random() < 0.5:
            merged[-1] *= factor
        else:
            merged.append(factor)
    if rng.random() < 0.3:
        merged.insert(rng.randint(0, len(merged)), 1)
    # weft's reshape is always a view; NumPy's only sometimes, and then they would differ on writes
    if not np.shares_memory(v.reshape(merged), v):
        return None, ""
    return f"{{x}}.reshape({tuple(merged)})", f"{{x}}.reshape({tuple(merged)})"


def _expand(rng: random.Random, v: np.ndarray) -> Move:
    shape = tuple(rng.choice((2, 3)) if s == 1 and rng.random() < 0.7 else s for s in v.shape)
    if rng.random() < 0.3:
        shape = (2, *shape)
    if np.prod(shape) > max(3000, 2 * v.size):
        return None, ""
    return f"{{x}}.expand({shape})", f"np.broadcast_to({{x}}, {shape})"


def _pad(rng: random.Random, v: np.ndarray) -> Move:
    pads = tuple((rng.randint(0, 2), rng.randint(0, 2)) for _ in v.shape)
    if not pads:
        return None, ""
    return f"{{x}}.pad({pads})", f"np.pad({{x}}, {pads})"


def _slice(rng: random.Random, v: np.ndarray) -> Move:
    if 0 in v.shape or not v.ndim:
        return None, ""
    index = _random_index(rng, v.shape)
    return f"{{x}}[{index}]", f"{{x}}[{index}]"


def _flip(rng: random.Random, v: np.ndarray) -> Move:
    axes = tuple(a for a in range(v.ndim) if rng.random() < 0.5)
    return (f"{{x}}.flip({axes})", f"np.flip({{x}}, {axes})") if axes else (None, "")


def _integer(rng: random.Random, v: np.ndarray) -> Move:
    if not v.ndim or 0 in v.shape:
        return None, ""
    at = rng.randrange(-v.shape[0], v.shape[0])
    return f"{{x}}[{at}]", f"{{x}}[{at}, ...]"


_MOVES = [_permute, _reshape, _expand, _pad, _slice, _flip, _integer]
