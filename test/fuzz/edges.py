"""One method at a time, over values and shapes at the edge, beside PyTorch.

In: a seed. Out: a call as text and its operands, and a report if weft's result is another one than
PyTorch's. What PyTorch refuses is not compared.
Where it sits: beside `programs.py`, whose programs are long and whose values are tame.
Invariant: the text of a call is the same for both libraries but for the names in `SPELLED`.
"""

from __future__ import annotations

import random
import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np

from test.optional import optional
from weft import Tensor

torch = optional("torch")

NAN, INF = float("nan"), float("inf")
FLOATS = (
    *(0.0, -0.0, 1.0, -1.0, 0.5, -0.5, 1.5, 2.0, -2.5, 3.5, 4.0, 0.99, 1.01, 1e-8, 100.0, -100.0),
    *(NAN, INF, -INF, 1e-40, -1e-40, 1e30, -1e30),
)
WHOLE = (0, 1, -1, 2, -2, 3, 5, 7, -7, 100, 127, -128)
DTYPES = ("float32", "float64", "float16", "int64", "int32", "int8", "uint8", "bool")
SHAPES: tuple[tuple[int, ...], ...] = (
    *((), (0,), (1,), (3,), (5,)),
    *((2, 3), (2, 1, 3), (0, 3), (2, 0), (1, 1), (4, 1)),
)
# of halves and of functions that both approximate
TOLERANCE = {"float16": 4e-3}
NEAR, LEAST = 5e-6, 1e-37

UNARY = (
    "abs acos acosh asin asinh atan atanh bitwise_not ceil cos cosh erf exp exp2 floor isfinite "
    "isinf isnan log log10 log2 logical_not neg reciprocal relu round rsqrt sigmoid sign sin sinh "
    "sqrt square tan tanh trunc"
).split()
ACTIVATIONS = (
    "celu elu hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu6 silu softplus"
).split()
BINARY = (
    "add sub mul div pow maximum minimum eq ne lt gt le ge copysign logaddexp bitwise_and "
    "bitwise_or bitwise_xor isclose"
).split()
REDUCE = "sum prod max min mean var std any all argmax argmin logsumexp".split()
SCAN = "cumsum cumprod cummax cummin logcumsumexp softmax log_softmax".split()
MOVE = (
    "x.flip({a})",
    "x.roll({n}, {a})",
    "x.unsqueeze({a})",
    "x.squeeze({a})",
    "x.squeeze()",
    "x.transpose({a}, {b})",
    "x.repeat_interleave(2, {a})",
    "x.tril({n})",
    "x.triu({n})",
    "x.diagonal({n})",
    "x.reshape(-1)",
    "list(x.split(2, {a}))",
    "list(x.chunk(3, {a}))",
    "x.clamp(0, 2)",
    "x.nonzero()",
    "x.sort({a}, descending={k})[0]",
    "x.sort({a}, stable=True)[1]",
)
# what PyTorch calls a method of weft's, around the same arguments
SPELLED = {", stable=True": ""}


@dataclass(frozen=True)
class Call:
    """A text over x and y, and what they are."""

    text: str
    operands: dict[str, np.ndarray]
    tolerance: float

    def source(self) -> str:
        """The call and its operands as code."""
        given = [f"{name} = {value!r}" for name, value in self.operands.items()]
        return "\n".join([*given, self.text])


def make_call(seed: int) -> Call:
    """The call of a seed."""
    rng = random.Random(seed)
    dtype, shape = rng.choice(DTYPES), rng.choice(SHAPES)
    operands = {"x": _data(rng, dtype, shape)}
    # PyTorch does not look at the axis of an empty tensor
    rank = max(1, len(shape))
    axis, other = [rng.randint(-rank, rank - 1) for _ in range(2)]
    kind = rng.randrange(6)
    if kind == 0:
        text = f"x.{rng.choice(UNARY)}()"
    elif kind == 1:
        text = f"activation({rng.choice(ACTIVATIONS)!r}, x)"
    elif kind == 2:
        near = shape if rng.random() < 0.6 else rng.choice([(), (1,), shape[-1:]])
        operands["y"] = _data(rng, dtype if rng.random() < 0.7 else rng.choice(DTYPES), near)
        text = f"x.{rng.choice(BINARY)}(y)"
    elif kind == 3:
        name = rng.choice(REDUCE)
        text = f"reduced({name!r}, x, {axis}, {rng.random() < 0.5})"
        if name != "logsumexp" and rng.random() < 0.3:
            text = f"x.{name}()"
    elif kind == 4:
        text = f"x.{rng.choice(SCAN)}({axis})"
    else:
        choice = {"a": axis, "b": other, "n": rng.randint(-3, 3), "k": rng.random() < 0.5}
        text = rng.choice(MOVE).format(**choice)
    kinds = {str(value.dtype) for value in operands.values()}
    return Call(text, operands, max([TOLERANCE.get(k, NEAR) for k in kinds]))


def _data(rng: random.Random, dtype: str, shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    if dtype.startswith("float"):
        values = [rng.choice(FLOATS) for _ in range(count)]
    elif dtype == "bool":
        values = [rng.random() < 0.5 for _ in range(count)]
    else:
        values = [abs(n) if dtype == "uint8" else n for n in rng.choices(WHOLE, k=count)]
    with np.errstate(over="ignore"):
        return np.array(values, dtype=np.float64).reshape(shape).astype(dtype)


# ------------------------------------------------------------ both libraries
def run_weft(call: Call) -> list[np.ndarray]:
    """The results of a call."""
    names: dict[str, Any] = {name: Tensor(value) for name, value in call.operands.items()}
    names["activation"] = lambda name, x: getattr(x, name)()
    names["reduced"] = lambda name, x, axis, keep: getattr(x, name)(axis, keepdim=keep)
    text = call.text
    for theirs, ours in SPELLED.items():
        text = text.replace(theirs, ours)
    return _arrays(eval(text, names), lambda t: t.numpy())


def run_torch(call: Call) -> list[np.ndarray]:
    """The same in PyTorch."""

    def method(name: str, x: Any) -> Any:
        return getattr(torch.nn.functional, name)(x)

    def reduced(name: str, x: Any, axis: int, keep: bool) -> Any:
        found = getattr(x, name)(dim=axis, keepdim=keep)
        return found.values if name in ("max", "min") else found

    names: dict[str, Any] = {name: torch.tensor(v) for name, v in call.operands.items()}
    names |= {"activation": method, "reduced": reduced}
    return _arrays(eval(call.text, names), lambda t: t.numpy())


def _arrays(found: Any, array: Any) -> list[np.ndarray]:
    parts = found if isinstance(found, (tuple, list)) else [found]
    return [np.asarray(array(part)) for part in parts]


def check_seed(seed: int) -> str | None:
    """What differs, with the code that shows it."""
    call = make_call(seed)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = run_torch(call)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return None
    try:
        found = run_weft(call)
    except Exception as error:  # noqa: BLE001
        return f"seed {seed}: {type(error).__name__}: {error}\n{call.source()}"
    if len(found) == len(wanted) and all(map(_is_same, found, wanted, [call.tolerance] * 99)):
        return None
    if _is_meant(call):
        return None
    return f"seed {seed}: {found}, PyTorch has {wanted}\n{call.source()}"


def _is_same(found: np.ndarray, wanted: np.ndarray, tolerance: float) -> bool:
    if found.shape != wanted.shape:
        return False
    if "f" not in (found.dtype.kind, wanted.dtype.kind):
        return bool((found == wanted).all())
    with np.errstate(all="ignore"):
        pair = [array.astype(np.float64) for array in (found, wanted)]
        return bool(np.isclose(*pair, rtol=tolerance, atol=LEAST, equal_nan=True).all())


def _is_meant(call: Call) -> bool:
    """Of halves PyTorch says that the sign of nan is 0, of floats that it is nan; the squares of
    a deviation it computes in float64, where those of 1e30 are no infinity."""
    x = call.operands["x"].astype(np.float64)
    if "std" in call.text or "var" in call.text:
        return bool((np.abs(x) > 1e18).any())
    return call.text == "x.sign()" and bool(np.isnan(x).any())
