"""The extension `linalg` of the array API.

In: Arrays whose last two axes are matrices, or vectors. Out: Arrays.
Sits above the families of the namespace; decompositions are in `decompose`.
Invariant: axes before the matrices are a batch, of which each matrix is treated alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

from weft.array_api import decompose, statistics, types
from weft.array_api.array import (
    Array,
    as_array,
    broadcast_shapes,
    dtype_name,
    product,
    scalar,
    together,
    unary,
)
from weft.array_api.creation import eye
from weft.array_api.manipulation import (
    broadcast_to,
    matrix_transpose,
    moveaxis,
    normal_axes,
    normal_axis,
    permute_dims,
    reshape,
)
from weft.array_api.searching import where
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.helpers import prod


class EighResult(NamedTuple):
    """What `eigh` gives."""

    eigenvalues: Array
    eigenvectors: Array


class QRResult(NamedTuple):
    """What `qr` gives."""

    Q: Array
    R: Array


class SlogdetResult(NamedTuple):
    """What `slogdet` gives."""

    sign: Array
    logabsdet: Array


class SVDResult(NamedTuple):
    """What `svd` gives."""

    U: Array
    S: Array
    Vh: Array


def _matrices(x: Any, what: str, square: bool = False) -> Array:
    array = as_array(x, what)
    if array.dtype.kind not in ("float", "complex"):
        raise DTypeError(
            f"{what} takes arrays of a floating-point dtype, found {dtype_name(array.dtype)}"
        )
    if array.ndim < 2:
        raise ShapeError(f"{what} takes matrices, found shape {array.shape}")
    if square and array.shape[-1] != array.shape[-2]:
        raise ShapeError(f"{what} takes square matrices, found shape {array.shape}")
    return array


def _adjoint(x: Array) -> Array:
    """Transposed and conjugated."""
    return unary("conj", x.mT)


# ------------------------------------------------------------ products
def matmul(x1: Array, x2: Array, /) -> Array:
    """The matrix product."""
    return product(x1, x2)


def outer(x1: Array, x2: Array, /) -> Array:
    """All products of the elements of two vectors."""
    first, second = as_array(x1, "outer"), as_array(x2, "outer")
    if first.ndim != 1 or second.ndim != 1:
        raise ShapeError(f"outer takes vectors, found shapes {first.shape} and {second.shape}")
    return first[:, None] * second[None, :]


def vecdot(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Sums of products of vectors along an axis, the first of which is conjugated."""
    first, second = together("vecdot", as_array(x1, "vecdot"), as_array(x2, "vecdot"))
    if first.dtype.kind == "bool":
        raise DTypeError("vecdot takes arrays of a numeric dtype, found bool")
    place = axis.__index__()
    if not -min(first.ndim, second.ndim) <= place < 0 and not (first.ndim == second.ndim > place):
        raise ArgumentError(f"vecdot: axis {axis} of shapes {first.shape} and {second.shape}")
    if first.shape[place] != second.shape[place]:
        raise ShapeError(f"vecdot: vectors of shapes {first.shape} and {second.shape}")
    first, second = moveaxis(first, place, -1), moveaxis(second, place, -1)
    terms = unary("conj", first) * second
    return statistics.sum(terms, axis=-1, dtype=terms.dtype)


def tensordot(
    x1: Array, x2: Array, /, *, axes: int | tuple[Sequence[int], Sequence[int]] = 2
) -> Array:
    """Sums of products over axes of both: the last and first so many, or those that are named."""
    first, second = together("tensordot", as_array(x1, "tensordot"), as_array(x2, "tensordot"))
    if first.dtype.kind == "bool":
        raise DTypeError("tensordot takes arrays of a numeric dtype, found bool")
    if isinstance(axes, int):
        if not 0 <= axes <= min(first.ndim, second.ndim):
            raise ArgumentError(f"tensordot over {axes} axes of {first.shape} and {second.shape}")
        left = tuple(range(first.ndim - axes, first.ndim))
        right = tuple(range(axes))
    else:
        left = normal_axes(tuple(axes[0]), first.ndim, "tensordot")
        right = normal_axes(tuple(axes[1]), second.ndim, "tensordot")
    sizes = [first.shape[place] for place in left]
    if sizes != [second.shape[place] for place in right]:
        raise ShapeError(f"tensordot: axes {axes} of {first.shape} and {second.shape} differ")
    rows = tuple(place for place in range(first.ndim) if place not in left)
    columns = tuple(place for place in range(second.ndim) if place not in right)
    shape = (*[first.shape[p] for p in rows], *[second.shape[p] for p in columns])
    count = int(prod(sizes))
    height = int(prod([first.shape[place] for place in rows]))
    width = int(prod([second.shape[place] for place in columns]))
    one = reshape(permute_dims(first, (*rows, *left)), (height, count))
    other = reshape(permute_dims(second, (*right, *columns)), (count, width))
    return reshape(product(one, other), shape)


def cross(x1: Array, x2: Array, /, *, axis: int = -1) -> Array:
    """Vector products of vectors of three elements."""
    first, second = together("cross", as_array(x1, "cross"), as_array(x2, "cross"))
    if first.dtype.kind == "bool":
        raise DTypeError("cross takes arrays of a numeric dtype, found bool")
    shape = broadcast_shapes(first.shape, second.shape)
    place = normal_axis(axis, min(first.ndim, second.ndim), "cross") - min(first.ndim, second.ndim)
    if first.shape[place] != 3 or second.shape[place] != 3:
        raise ShapeError(f"cross takes vectors of 3, found {first.shape} and {second.shape}")
    a, b = [moveaxis(broadcast_to(each, shape), place, 0) for each in (first, second)]
    turns = [(1, 2), (2, 0), (0, 1)]
    lines = [a[i, ...] * b[j, ...] - a[j, ...] * b[i, ...] for i, j in turns]
    stacked = [lines[0].parts[k].stack(lines[1].parts[k], lines[2].parts[k]) for k in _count(a)]
    return moveaxis(Array._of(*stacked), 0, place)


def _count(array: Array) -> range:
    return range(len(array.parts))


def matrix_power(x: Array, n: int, /) -> Array:
    """Square matrices multiplied n times by themselves; of a negative n their inverses."""
    base = _matrices(x, "matrix_power", square=True)
    if n < 0:
        base, n = inv(base), -n
    unit = eye(base.shape[-1], dtype=base.dtype)
    result = broadcast_to(unit, base.shape)
    while n:
        result = product(result, base) if n & 1 else result
        n >>= 1
        base = product(base, base) if n else base
    return result


# ------------------------------------------------------------ parts of matrices
def diagonal(x: Array, /, *, offset: int = 0) -> Array:
    """Diagonals of matrices, `offset` above the main one."""
    array = as_array(x, "diagonal")
    if array.ndim < 2:
        raise ShapeError(f"diagonal takes matrices, found shape {array.shape}")
    rows, columns = array.shape[-2:]
    down, right = max(0, -offset), max(0, offset)
    size = max(0, min(rows - down, columns - right))
    if not size:
        return array.each(lambda part: part.zeros(*array.shape[:-2], 0, dtype=part.dtype))
    square = array[..., down : down + size, right : right + size]
    return square.each(lambda part: part.diagonal(dim1=-2, dim2=-1))


def trace(x: Array, /, *, offset: int = 0, dtype: Any = None) -> Array:
    """Sums of diagonals."""
    return statistics.sum(diagonal(x, offset=offset), axis=-1, dtype=dtype)


# ------------------------------------------------------------ decompositions
def cholesky(x: Array, /, *, upper: bool = False) -> Array:
    """Triangles of positive definite matrices, whose product with their adjoints these are."""
    lower = decompose.triangle(_matrices(x, "cholesky", square=True))
    return _adjoint(lower) if upper else lower


def qr(x: Array, /, *, mode: str = "reduced") -> QRResult:
    """Matrices as Q @ R: Q has orthonormal columns, R zeros below its diagonal."""
    array = _matrices(x, "qr")
    if mode not in ("reduced", "complete"):
        raise ArgumentError(f'qr has mode "reduced" or "complete", found {mode!r}')
    if array.dtype.kind == "complex":
        found = decompose.by_lapack("qr", lambda np, a: tuple(np.linalg.qr(a, mode=mode)), array)
        return QRResult(*found)
    q, r = array.tensor.qr()
    count = min(array.shape[-2:])
    if mode == "reduced":
        q, r = q[..., :count], r[..., :count, :]
    return QRResult(Array._of(q), Array._of(r))


def svd(x: Array, /, *, full_matrices: bool = True) -> SVDResult:
    """Matrices as U @ diag(S) @ Vh: U and Vh are unitary, S is not negative and descends."""
    array = _matrices(x, "svd")
    if array.dtype.kind == "complex":
        found = decompose.by_lapack(
            "svd", lambda np, a: tuple(np.linalg.svd(a, full_matrices=full_matrices)), array
        )
        return SVDResult(*found)
    return SVDResult(*[Array._of(part) for part in array.tensor.svd(full_matrices)])


def svdvals(x: Array, /) -> Array:
    """Singular values, the greatest first."""
    return svd(_matrices(x, "svdvals"), full_matrices=False).S


def eigh(x: Array, /) -> EighResult:
    """Eigenvalues, the least first, and eigenvectors of Hermitian matrices."""
    return EighResult(*decompose.eigenvalues(_matrices(x, "eigh", square=True)))


def eigvalsh(x: Array, /) -> Array:
    """Eigenvalues of Hermitian matrices, the least first."""
    return decompose.eigenvalues(_matrices(x, "eigvalsh", square=True))[0]


def det(x: Array, /) -> Array:
    """Determinants."""
    return decompose.determinant(_matrices(x, "det", square=True))


def slogdet(x: Array, /) -> SlogdetResult:
    """Signs of determinants and logarithms of their magnitudes."""
    return SlogdetResult(*decompose.sign_and_log(_matrices(x, "slogdet", square=True)))


def inv(x: Array, /) -> Array:
    """Inverse matrices."""
    return decompose.inverse(_matrices(x, "inv", square=True))


def solve(x1: Array, x2: Array, /) -> Array:
    """What matrices x1 have to be multiplied by to give x2, a vector or matrices."""
    matrices = _matrices(x1, "solve", square=True)
    first, second = together("solve", matrices, as_array(x2, "solve"))
    if not second.ndim or second.shape[-1 if second.ndim == 1 else -2] != first.shape[-1]:
        raise ShapeError(f"solve: shapes {first.shape} and {second.shape} do not fit")
    return decompose.solution(first, second)


def pinv(x: Array, /, *, rtol: Any = None) -> Array:
    """Pseudo-inverses; singular values below rtol times the greatest count as 0."""
    array = _matrices(x, "pinv")
    if not array.size:
        shape = (*array.shape[:-2], array.shape[-1], array.shape[-2])
        return array.each(lambda part: part.zeros(*shape, dtype=part.dtype))
    u, s, vh = svd(array, full_matrices=False)
    keep = s > _threshold(array, s, rtol)[..., None]
    one = scalar(1.0, s.dtype)
    inverted = where(keep, one / where(keep, s, one), scalar(0.0, s.dtype))
    left = _adjoint(vh) * inverted.with_dtype(array.dtype)[..., None, :]
    return product(left, _adjoint(u))


def matrix_rank(x: Array, /, *, rtol: Any = None) -> Array:
    """How many singular values are above rtol times the greatest."""
    array = _matrices(x, "matrix_rank")
    if not array.size:
        return statistics.count_nonzero(array, axis=(-2, -1))
    values = svdvals(array)
    return statistics.count_nonzero(values > _threshold(array, values, rtol)[..., None], axis=-1)


def _threshold(array: Array, values: Array, rtol: Any) -> Array:
    """What counts as 0 among singular values."""
    greatest = statistics.max(values, axis=-1)
    if rtol is None:
        rtol = max(array.shape[-2:]) * types.float_info(values.dtype).eps
    factor = rtol.with_dtype(values.dtype) if isinstance(rtol, Array) else float(rtol)
    return greatest * factor


# ------------------------------------------------------------ norms
def vector_norm(
    x: Array,
    /,
    *,
    axis: int | tuple[int, ...] | None = None,
    keepdims: bool = False,
    ord: float = 2,
) -> Array:
    """Norms of vectors along axes; None takes all elements as one vector."""
    array = as_array(x, "vector_norm")
    if array.dtype.kind not in ("float", "complex"):
        raise DTypeError(f"vector_norm takes floats or complex numbers, found {array.dtype}")
    size = unary("abs", array)
    places = normal_axes(axis, array.ndim, "vector_norm")
    over: dict[str, Any] = {"axis": places, "keepdims": keepdims}
    if ord == 0:
        return statistics.count_nonzero(size, **over).with_dtype(size.dtype)
    if ord == math.inf:
        return statistics.max(size, **over)
    if ord == -math.inf:
        return statistics.min(size, **over)
    if ord == 1:
        return statistics.sum(size, **over)
    if ord == 2:
        return _length(size, places, keepdims)
    return statistics.sum(size ** float(ord), **over) ** (1.0 / float(ord))


def _length(size: Array, places: tuple[int, ...], keepdims: bool) -> Array:
    """The Euclidean norm, scaled so that squares neither overflow nor vanish."""
    if not places or any(size.shape[place] == 0 for place in places):
        total = statistics.sum(size * size, axis=places, keepdims=keepdims)
        return size if not places else unary("sqrt", total)
    greatest = statistics.max(size, axis=places, keepdims=True)
    part = greatest.tensor.detach()
    usual = part.gt(0) & part.isfinite()
    scale = Array._of(usual.where(part, part._constant(1)))
    ratio = size / scale
    total = unary("sqrt", statistics.sum(ratio * ratio, axis=places, keepdims=True)) * scale
    if keepdims:
        return total
    shape = tuple(n for place, n in enumerate(size.shape) if place not in places)
    return reshape(total, shape)


def matrix_norm(x: Array, /, *, keepdims: bool = False, ord: Any = "fro") -> Array:
    """Norms of matrices: "fro", "nuc", and of order 1, 2, inf and their negatives."""
    array = _matrices(x, "matrix_norm")
    if ord == "fro":
        return vector_norm(array, axis=(-2, -1), keepdims=keepdims)
    if ord in (1, -1, math.inf, -math.inf):
        summed = -2 if abs(ord) == 1 else -1
        sums = statistics.sum(unary("abs", array), axis=summed, keepdims=True)
        pick = statistics.max if ord > 0 else statistics.min
        return pick(sums, axis=(-2, -1), keepdims=keepdims)
    if ord not in ("nuc", 2, -2):
        raise ArgumentError(
            f'matrix_norm has ord "fro", "nuc", 1, -1, 2, -2, inf, -inf, found {ord!r}'
        )
    values = svdvals(array)
    choices = {"nuc": statistics.sum, 2: statistics.max, -2: statistics.min}
    found: Array = choices[ord](values, axis=-1)
    return found[..., None, None] if keepdims else found


__all__ = [
    "cholesky", "cross", "det", "diagonal", "eigh", "eigvalsh", "inv", "matmul", "matrix_norm",
    "matrix_power", "matrix_rank", "matrix_transpose", "outer", "pinv", "qr", "slogdet", "solve",
    "svd", "svdvals", "tensordot", "trace", "vecdot", "vector_norm",
]  # fmt: skip
