"""Arrays that know how far from the truth a computation in floats may end up.

In: what the method names of weft say, on float64 values and bounds of their errors. Out: the same,
for what comes out. Stands in for `Tensor` when a random program of floats runs on NumPy.
Invariant: `error` bounds the distance of any good implementation in the value's dtype from the
exact result: half a unit for what IEEE rounds, a few units for functions, 4 eps sqrt(K) sum|terms|
for a reduction of K terms, and what the errors of the operands become.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from test.fuzz import twins

# what is computed here in float64 rounds as well, so the unit of that counts twice
EPS = {"float64": 2.0**-51, "float32": 2.0**-23, "float16": 2.0**-10}
# below these numbers the unit no longer shrinks
LEAST = {"float64": 2.0**-1074, "float32": 2.0**-149, "float16": 2.0**-24}
# half types are computed in float32, and rounded
COMPUTED = {"float64": "float64", "float32": "float32", "float16": "float32"}
# units that functions may be off
UNITS = 4


class Approximate:
    """A value, a bound of its error, and the dtype that it is rounded to."""

    def __init__(self, value: Any, error: Any = 0.0, dtype: str | None = None) -> None:
        array = np.asarray(value)
        self.kind = str(array.dtype) if dtype is None else dtype
        self.value = array.astype(np.float64)
        self.error = np.broadcast_to(np.asarray(error, np.float64), self.value.shape)
        self.dtype = np.dtype(self.kind)

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    @property
    def ndim(self) -> int:
        return self.value.ndim

    @property
    def size(self) -> int:
        return self.value.size

    def _rounded(self, value: np.ndarray, error: np.ndarray, units: float = 0.5) -> Approximate:
        """A result, with the error of being computed and rounded."""
        size = np.abs(value) + error
        own = units * EPS[COMPUTED[self.kind]] * size
        if self.kind == "float16":
            own = own + 0.5 * EPS[self.kind] * size
        return Approximate(value, error + own + LEAST[self.kind], self.kind)

    def _moved(self, value: np.ndarray, error: np.ndarray) -> Approximate:
        """Elements at other places."""
        return Approximate(value, error, self.kind)

    # ------------------------------------------------------------ elementwise
    def __add__(self, other: Any) -> Approximate:
        y = _operand(other, self.kind)
        return self._rounded(self.value + y.value, self.error + y.error)

    def __sub__(self, other: Any) -> Approximate:
        return self + -_operand(other, self.kind)

    def __neg__(self) -> Approximate:
        return self._moved(-self.value, self.error)

    def __mul__(self, other: Any) -> Approximate:
        y = _operand(other, self.kind)
        error = np.abs(self.value) * y.error + np.abs(y.value) * self.error + self.error * y.error
        return self._rounded(self.value * y.value, error)

    def __truediv__(self, other: Any) -> Approximate:
        y = _operand(other, self.kind)
        quotient = self.value / y.value
        error = (self.error + np.abs(quotient) * y.error) / (np.abs(y.value) - y.error)
        return self._rounded(quotient, error, 3.0)

    def exp(self) -> Approximate:
        value = np.exp(self.value)
        # the exponent is scaled first, and that rounds
        return self._rounded(value, value * np.expm1(self.error), UNITS + np.abs(self.value).max())

    def log(self) -> Approximate:
        """Of what is 1 or more."""
        return self._rounded(np.log(self.value), self.error / (self.value - self.error), UNITS)

    def sqrt(self) -> Approximate:
        """Of what is 1 or more."""
        value = np.sqrt(self.value)
        return self._rounded(value, self.error / np.sqrt(self.value - self.error), 1.0)

    def sin(self) -> Approximate:
        return self._steady(np.sin(self.value))

    def tanh(self) -> Approximate:
        return self._steady(np.tanh(self.value))

    def sigmoid(self) -> Approximate:
        return self._steady(1 / (1 + np.exp(-self.value)))

    def _steady(self, value: np.ndarray) -> Approximate:
        """A function of slope 1 at most and values of 1 at most, made of several ops."""
        units = 3 * UNITS * EPS[COMPUTED[self.kind]]
        return self._rounded(value, self.error + units)

    def relu(self) -> Approximate:
        return self._moved(np.maximum(self.value, 0), self.error)

    def abs(self) -> Approximate:
        return self._moved(np.abs(self.value), self.error)

    def square(self) -> Approximate:
        return self * self

    def clip(self, low: float, high: float) -> Approximate:
        return self._moved(np.clip(self.value, low, high), self.error)

    def maximum(self, other: Approximate) -> Approximate:
        error = np.maximum(*np.broadcast_arrays(self.error, other.error))
        return self._moved(np.maximum(self.value, other.value), error)

    def cast(self, dtype: str) -> Approximate:
        error = self.error + 0.5 * EPS[dtype] * (np.abs(self.value) + self.error) + LEAST[dtype]
        return Approximate(self.value, error, dtype)

    # ------------------------------------------------------------ reductions
    def _summed(self, value: Any, error: Any, size: Any, count: int) -> Approximate:
        own = 4 * EPS[COMPUTED[self.kind]] * math.sqrt(count) * (size + error)
        return self._rounded(np.asarray(value), np.asarray(error + own))

    def sum(self, axis: int, keepdim: bool = False) -> Approximate:
        value, error, size = (
            np.sum(part, axis=axis, keepdims=keepdim)
            for part in (self.value, self.error, np.abs(self.value))
        )
        return self._summed(value, error, size, self.shape[axis])

    def mean(self, axis: int, keepdim: bool = False) -> Approximate:
        return self.sum(axis, keepdim) / float(self.shape[axis])

    def max(self, axis: int, keepdim: bool = False) -> Approximate:
        value = np.max(self.value, axis=axis, keepdims=keepdim)
        return self._moved(value, np.max(self.error, axis=axis, keepdims=keepdim))

    def cumsum(self, axis: int) -> Approximate:
        value, error, size = (
            np.cumsum(part, axis=axis) for part in (self.value, self.error, np.abs(self.value))
        )
        return self._summed(value, error, size, self.shape[axis])

    def softmax(self, axis: int) -> Approximate:
        powers = (self - self.max(axis, keepdim=True)).exp()
        return powers / powers.sum(axis, keepdim=True)

    def __matmul__(self, other: Approximate) -> Approximate:
        x, y = np.abs(self.value), np.abs(other.value)
        error = x @ other.error + self.error @ y + self.error @ other.error
        return self._summed(self.value @ other.value, error, x @ y, self.shape[-1])

    def conv2d(self, weight: Approximate, stride: int = 1, padding: int = 0) -> Approximate:
        """Of exact weights."""
        places = (1, stride, 1, padding)
        size = np.abs(weight.value)
        value = twins.conv(self.value, weight.value, *places)
        error = twins.conv(np.array(self.error), size, *places)
        reach = twins.conv(np.abs(self.value), size, *places)
        return self._summed(value, error, reach, int(np.prod(weight.shape[1:])))

    # ------------------------------------------------------------ movement
    def permute(self, order: tuple[int, ...]) -> Approximate:
        return self._moved(self.value.transpose(order), self.error.transpose(order))

    def reshape(self, shape: tuple[int, ...]) -> Approximate:
        return self._moved(self.value.reshape(shape), self.error.reshape(shape))

    def expand(self, shape: tuple[int, ...]) -> Approximate:
        return self._moved(np.broadcast_to(self.value, shape), np.broadcast_to(self.error, shape))

    def pad(self, pads: tuple[tuple[int, int], ...]) -> Approximate:
        return self._moved(np.pad(self.value, pads), np.pad(self.error, pads))

    def flip(self, axes: tuple[int, ...]) -> Approximate:
        return self._moved(np.flip(self.value, axes), np.flip(self.error, axes))

    def __getitem__(self, index: Any) -> Approximate:
        return self._moved(self.value[index], self.error[index])

    def contiguous(self) -> Approximate:
        return self


def _operand(other: Any, kind: str) -> Approximate:
    """A number has the dtype of its neighbour, or of what that is computed in."""
    if isinstance(other, Approximate):
        return other
    return Approximate(float(other), 0.5 * EPS[kind] * abs(other), kind)
