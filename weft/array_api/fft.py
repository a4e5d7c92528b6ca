"""The extension `fft` of the array API: discrete Fourier transforms as products and moves.

In: Arrays. Out: Arrays; complex ones are pairs of tensors.
Sits above the families of the namespace.
Invariant: everything is an expression of tensors: lazy, on any device, differentiable. A length is
split into factors (J. Cooley, J. Tukey, 1965); what is left is a product with a matrix of roots of
unity, or for a long prime a convolution of a length that has factors (L. Bluestein, 1970).
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

from weft.array_api import pairs, types
from weft.array_api.array import Array, as_array, dtype_name, unary
from weft.array_api.creation import on_device
from weft.array_api.manipulation import moveaxis, normal_axes, normal_axis, roll
from weft.array_api.pairs import Pair
from weft.dtype import DType
from weft.errors import ArgumentError, DTypeError
from weft.tensor import Tensor

# lengths up to which a product with a matrix is as fast as splitting
_DIRECT = 32
# primes up to which a product with a matrix is no more work than a convolution
_LONGEST_PRIME = 256
_NORMS = ("backward", "ortho", "forward")


def _checked(x: Any, what: str, real: bool = False) -> Array:
    array = as_array(x, what)
    wanted = ("float",) if real else ("float", "complex")
    if array.dtype.kind not in wanted:
        names = "real floating-point" if real else "floating-point"
        raise DTypeError(f"{what} takes arrays of a {names} dtype, found {dtype_name(array.dtype)}")
    return array


def _scale(norm: str, n: int, inverse: bool) -> float:
    """What a transform of n elements is multiplied by."""
    if norm not in _NORMS:
        raise ArgumentError(f"a transform has norm {', '.join(_NORMS)}, found {norm!r}")
    if norm == "ortho":
        return 1 / math.sqrt(n)
    return 1 / n if (norm == "backward") == inverse else 1.0


def _fitted(array: Array, n: int, place: int) -> Array:
    """An axis cut, or filled up with zeros, to n elements."""
    if n < 1:
        raise ArgumentError(f"a transform has at least one element, found n = {n}")
    size = array.shape[place]
    if size >= n:
        return array if size == n else array[(*[slice(None)] * place, slice(0, n), ...)]
    padding = [(0, n - size if axis == place else 0) for axis in range(array.ndim)]
    return array.each(lambda part: part.pad(padding))


# ------------------------------------------------------------ the transform of a last axis
@functools.lru_cache(maxsize=256)
def _roots(n: int, rows: int, columns: int, sign: int, dtype: DType) -> Pair:
    """exp(sign * 2 pi i * row * column / n) for each row and column, rounded once."""
    import numpy

    powers = numpy.outer(numpy.arange(rows, dtype=object), numpy.arange(columns, dtype=object)) % n
    return _unit_circle(powers, n, sign, dtype)


def _unit_circle(powers: Any, n: int, sign: int, dtype: DType) -> Pair:
    """exp(sign * 2 pi i * power / n), with exact zeros and ones at quarters."""
    import numpy

    angle = powers.astype(numpy.float64) * (sign * 2 * math.pi / n)
    cosine, sine = numpy.cos(angle), numpy.sin(angle)
    quarters = (4 * powers).astype(numpy.float64) / n
    on_axis = quarters == numpy.floor(quarters)
    parts = [numpy.where(on_axis, numpy.round(part), part) for part in (cosine, sine)]
    return Tensor(parts[0], dtype=dtype).realize(), Tensor(parts[1], dtype=dtype).realize()


def clear_roots() -> None:
    """Forget all roots of unity that were computed."""
    _roots.cache_clear()


def _like(constant: Pair, z: Pair) -> Pair:
    """A constant where the value is."""
    device = z[0].device
    return constant if device is None else (constant[0].to(device), constant[1].to(device))


def _transformed(z: Pair, sign: int) -> Pair:
    """The transform of the last axis, without a factor."""
    n = z[0].shape[-1]
    first = _factor(n)
    if first == n:
        return _by_matrix(z, sign) if n <= _LONGEST_PRIME else _by_convolution(z, sign)
    second = n // first
    batch = z[0].shape[:-1]
    # element j1 * second + j2 goes to k1 + first * k2: transform j1, turn, transform j2
    split = [part.reshape((*batch, first, second)).transpose(-2, -1) for part in z]
    inner = _transformed((split[0], split[1]), sign)
    turned = pairs.multiply(inner, _like(_roots(n, second, first, sign, z[0].dtype), z))
    flat = [part.contiguous().transpose(-2, -1) for part in turned]
    outer = _transformed((flat[0], flat[1]), sign)
    done = [part.transpose(-2, -1).reshape((*batch, n)) for part in outer]
    return done[0], done[1]


def _factor(n: int) -> int:
    """A factor of n to begin with: as many as a product takes at once, or a prime."""
    if n <= _DIRECT:
        return n
    for size in range(_DIRECT, 1, -1):
        if n % size == 0:
            return size
    for size in range(_DIRECT + 1, math.isqrt(n) + 1):
        if n % size == 0:
            return size
    return n


def _by_matrix(z: Pair, sign: int) -> Pair:
    """A product with the matrix of all roots."""
    n = z[0].shape[-1]
    if n == 1:
        return z
    cosine, sine = _like(_roots(n, n, n, sign, z[0].dtype), z)
    real = z[0] @ cosine - z[1] @ sine
    imaginary = z[0] @ sine + z[1] @ cosine
    return real.contiguous(), imaginary.contiguous()


def _by_convolution(z: Pair, sign: int) -> Pair:
    """jk = (j*j + k*k - (k-j)**2) / 2: a transform is a convolution with a chirp."""
    n = z[0].shape[-1]
    length = 1 << (2 * n - 1).bit_length()
    chirp = _like(_chirp(n, sign, z[0].dtype), z)
    kernel = pairs.conjugate(chirp)
    # both sides of the chirp, the negative one from behind
    around = [
        part.cat(part.zeros(length - 2 * n + 1, dtype=part.dtype), part[1:].flip(0))
        for part in kernel
    ]
    spectrum = _transformed((around[0].contiguous(), around[1].contiguous()), -1)
    padding = [(0, 0)] * (z[0].ndim - 1) + [(0, length - n)]
    turned = pairs.multiply(z, chirp)
    padded = _transformed((turned[0].pad(padding), turned[1].pad(padding)), -1)
    both = pairs.multiply(padded, spectrum)
    back = _transformed((both[0].contiguous(), both[1].contiguous()), 1)
    cut = back[0][..., :n] / length, back[1][..., :n] / length
    return pairs.multiply(cut, chirp)


@functools.lru_cache(maxsize=64)
def _chirp(n: int, sign: int, dtype: DType) -> Pair:
    """exp(sign * pi i * j * j / n), rounded once."""
    import numpy

    places = numpy.arange(n, dtype=object)
    return _unit_circle((places * places) % (2 * n), 2 * n, sign, dtype)


def _along(array: Array, n: int | None, axis: int, norm: str, inverse: bool, what: str) -> Array:
    """One transform along an axis."""
    place = normal_axis(axis, array.ndim, what)
    count = array.shape[place] if n is None else n.__index__()
    fitted = moveaxis(_fitted(array, count, place), place, -1)
    whole = fitted.with_dtype(types.complex_of(fitted._re.dtype))
    found = _transformed((whole.parts[0], whole.parts[1]), 1 if inverse else -1)
    factor = _scale(norm, count, inverse)
    scaled = found if factor == 1.0 else (found[0] * factor, found[1] * factor)
    return moveaxis(Array._of(*scaled), -1, place)


# ------------------------------------------------------------ complex
def fft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The transform along an axis, cut or filled up to n elements.

    >>> import weft.array_api as xp
    >>> xp.fft.fft(xp.asarray([1.0, 0.0, 0.0, 0.0]))
    Array([1.+0.j, 1.+0.j, 1.+0.j, 1.+0.j], dtype=complex64)
    """
    return _along(_checked(x, "fft"), n, axis, norm, False, "fft")


def ifft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `fft`."""
    return _along(_checked(x, "ifft"), n, axis, norm, True, "ifft")


def _sizes_and_axes(
    array: Array, s: Sequence[int] | None, axes: Sequence[int] | None, what: str
) -> list[tuple[int, int]]:
    if axes is None:
        count = array.ndim if s is None else len(s)
        places = tuple(range(array.ndim - count, array.ndim))
    else:
        places = normal_axes(tuple(axes), array.ndim, what)
    sizes = [array.shape[place] for place in places] if s is None else list(s)
    if len(sizes) != len(places):
        raise ArgumentError(f"{what}: {len(sizes)} sizes for {len(places)} axes")
    return list(zip(sizes, places, strict=True))


def fftn(
    x: Array,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Array:
    """The transform along several axes."""
    array = _checked(x, "fftn")
    for size, place in _sizes_and_axes(array, s, axes, "fftn"):
        array = _along(array, size, place, norm, False, "fftn")
    return array


def ifftn(
    x: Array,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Array:
    """The inverse of `fftn`."""
    array = _checked(x, "ifftn")
    for size, place in _sizes_and_axes(array, s, axes, "ifftn"):
        array = _along(array, size, place, norm, True, "ifftn")
    return array


# ------------------------------------------------------------ real
def rfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The first half of the transform of real numbers: the other is its conjugate."""
    array = _checked(x, "rfft", real=True)
    place = normal_axis(axis, array.ndim, "rfft")
    count = array.shape[place] if n is None else n
    found = _along(array, count, place, norm, False, "rfft")
    return found[(*[slice(None)] * place, slice(0, count // 2 + 1), ...)]


def irfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `rfft`: n real numbers."""
    array = _checked(x, "irfft")
    place = normal_axis(axis, array.ndim, "irfft")
    count = 2 * (array.shape[place] - 1) if n is None else n.__index__()
    if count < 1:
        raise ArgumentError(f"irfft gives at least one element, found n = {count}")
    half = _fitted(array, count // 2 + 1, place)
    half = moveaxis(half.with_dtype(types.complex_of(half._re.dtype)), place, -1)
    mirrored = (count - 1) // 2
    real, imaginary = half.parts
    whole = Array._of(
        real.cat(real[..., 1 : mirrored + 1].flip(-1), dim=-1),
        imaginary.cat(imaginary[..., 1 : mirrored + 1].flip(-1).neg(), dim=-1),
    )
    found = _along(whole, None, -1, norm, True, "irfft")
    return moveaxis(Array._of(found.parts[0]), -1, place)


def rfftn(
    x: Array,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Array:
    """The transform of real numbers along several axes; the last one is a half."""
    array = _checked(x, "rfftn", real=True)
    *others, (size, last) = _sizes_and_axes(array, s, axes, "rfftn")
    found = rfft(array, n=size, axis=last, norm=norm)
    for count, place in others:
        found = _along(found, count, place, norm, False, "rfftn")
    return found


def irfftn(
    x: Array,
    /,
    *,
    s: Sequence[int] | None = None,
    axes: Sequence[int] | None = None,
    norm: str = "backward",
) -> Array:
    """The inverse of `rfftn`."""
    array = _checked(x, "irfftn")
    *others, (size, last) = _sizes_and_axes(array, s, axes, "irfftn")
    for count, place in others:
        array = _along(array, count, place, norm, True, "irfftn")
    return irfft(array, n=None if s is None else size, axis=last, norm=norm)


_OPPOSITE = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def hfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The transform of what is its own conjugate from behind: real numbers."""
    if norm not in _OPPOSITE:
        raise ArgumentError(f"a transform has norm {', '.join(_NORMS)}, found {norm!r}")
    array = unary("conj", _checked(x, "hfft"))
    return irfft(array, n=n, axis=axis, norm=_OPPOSITE[norm])


def ihfft(x: Array, /, *, n: int | None = None, axis: int = -1, norm: str = "backward") -> Array:
    """The inverse of `hfft`."""
    if norm not in _OPPOSITE:
        raise ArgumentError(f"a transform has norm {', '.join(_NORMS)}, found {norm!r}")
    return unary("conj", rfft(_checked(x, "ihfft", True), n=n, axis=axis, norm=_OPPOSITE[norm]))


# ------------------------------------------------------------ frequencies
def _frequency_dtype(dtype: Any, what: str) -> DType:
    chosen = types.default_float() if dtype is None else types.to_array_dtype(dtype)
    if not isinstance(chosen, DType) or chosen.kind != "float":
        raise DTypeError(f"{what} gives floats, not {chosen}")
    return chosen


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of a transform of n elements at distances d."""
    chosen = _frequency_dtype(dtype, "fftfreq")
    places = Tensor.arange(n, dtype="int64")
    signed = places.le((n - 1) // 2).where(places, places - n)
    return on_device(Array._of((signed.cast("float64") / (n * d)).cast(chosen)), device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: Any = None) -> Array:
    """The frequencies of the half of a transform of n real elements at distances d."""
    chosen = _frequency_dtype(dtype, "rfftfreq")
    places = Tensor.arange(n // 2 + 1, dtype="int64").cast("float64")
    return on_device(Array._of((places / (n * d)).cast(chosen)), device)


def fftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """With frequency 0 in the middle."""
    array = _checked(x, "fftshift")
    places = _shift_axes(axes, array, "fftshift")
    return roll(array, tuple(array.shape[place] // 2 for place in places), axis=places)


def ifftshift(x: Array, /, *, axes: int | Sequence[int] | None = None) -> Array:
    """The inverse of `fftshift`."""
    array = _checked(x, "ifftshift")
    places = _shift_axes(axes, array, "ifftshift")
    return roll(array, tuple(-(array.shape[place] // 2) for place in places), axis=places)


def _shift_axes(axes: Any, array: Array, what: str) -> tuple[int, ...]:
    return normal_axes(
        axes if axes is None or isinstance(axes, int) else tuple(axes), array.ndim, what
    )


__all__ = [
    "fft", "fftfreq", "fftn", "fftshift", "hfft", "ifft", "ifftn", "ifftshift", "ihfft", "irfft",
    "irfftn", "rfft", "rfftfreq", "rfftn",
]  # fmt: skip
