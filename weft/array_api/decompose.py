"""Factors, inverses and determinants of matrices by LAPACK, with their gradients.

In: Arrays whose last two axes are matrices. Out: Arrays.
Sits below the namespace `linalg`. LAPACK is NumPy's and runs on the host when the function is
called (docs/decisions/0025), but for `qr` and `svd` of real matrices, which are Tensor's and lazy.
Invariant: a result of real matrices is differentiable; the rules are expressions of results, so
that they are differentiable again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.array_api.array import Array, from_numpy, to_numpy
from weft.engine.host_calls import one_thread
from weft.errors import DataError
from weft.tensor import Tensor
from weft.uop.node import UOp

# rows and columns up to which LAPACK gains nothing from threads
_SMALL = 256


def by_lapack(name: str, compute: Callable[..., Any], *arrays: Array) -> list[Array]:
    """Results of a function of NumPy, where the first array lives."""
    import numpy

    values = [to_numpy(array) for array in arrays]
    try:
        if max(values[0].shape[-2:]) <= _SMALL:
            with one_thread():
                found = compute(numpy, *values)
        else:
            found = compute(numpy, *values)
    except numpy.linalg.LinAlgError as error:
        raise DataError(f"{name} of this matrix: {error}") from None
    results = found if isinstance(found, tuple) else (found,)
    kind = values[0].dtype
    fitting = [
        numpy.asarray(each, each.dtype if each.dtype.kind != kind.kind else kind)
        for each in results
    ]
    return [from_numpy(each, arrays[0]._re.device) for each in fitting]


def _ruled(result: Array, name: str, inputs: tuple[Array, ...], rule: Callable[..., Any]) -> Array:
    """A real result with its gradient to real inputs."""
    if any(array.dtype.kind != "float" for array in (result, *inputs)):
        return result
    return Array._of(result._re._with_rule(name, [each._re for each in inputs], rule, ()))


def _tensors(gradient: UOp, node: UOp) -> list[Tensor]:
    """The gradient, the result and the inputs of a rule."""
    return [Tensor._from_uop(each) for each in (gradient, node, *node.src[1:])]


def inverse(x: Array) -> Array:
    """The inverse of matrices."""
    (result,) = by_lapack("inv", lambda numpy, a: numpy.linalg.inv(a), x)
    return _ruled(result, "inv", (x,), _inverse_gradient)


def _inverse_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    outer, inverted, _ = _tensors(gradient, node)
    turned = inverted.transpose(-2, -1)
    return ((turned @ outer @ turned).neg().uop,)


def solution(a: Array, b: Array) -> Array:
    """What matrices a have to be multiplied by to give b."""
    (result,) = by_lapack("solve", lambda numpy, x, y: numpy.linalg.solve(x, y), a, b)
    if a.dtype.kind != "float" or a.ndim != 2 or b.ndim > 2:
        return result
    return _ruled(result, "solve", (a, b, inverse(a)), _solution_gradient)


def _solution_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    outer, found, _, _, inverted = _tensors(gradient, node)
    of_b = inverted.transpose(-2, -1) @ outer
    rows, columns = (of_b.unsqueeze(-1), found.unsqueeze(-1)) if of_b.ndim == 1 else (of_b, found)
    return (rows @ columns.transpose(-2, -1)).neg().uop, of_b.uop, None


def determinant(x: Array) -> Array:
    """The determinants of matrices."""
    (result,) = by_lapack("det", lambda numpy, a: numpy.asarray(numpy.linalg.det(a)), x)
    if x.dtype.kind != "float" or not x.size:
        return result
    try:
        inverted = inverse(x)
    except DataError:
        return result  # of a singular matrix: it has a value, but no gradient here
    return _ruled(result, "det", (x, inverted), _determinant_gradient)


def _determinant_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    outer, found, _, inverted = _tensors(gradient, node)
    share = (outer * found).unsqueeze(-1).unsqueeze(-1)
    return (share * inverted.transpose(-2, -1)).uop, None


def sign_and_log(x: Array) -> tuple[Array, Array]:
    """The sign of a determinant and the logarithm of its magnitude."""
    sign, logarithm = by_lapack(
        "slogdet", lambda numpy, a: tuple(map(numpy.asarray, numpy.linalg.slogdet(a))), x
    )
    if x.dtype.kind != "float" or not x.size:
        return sign, logarithm
    try:
        inverted = inverse(x)
    except DataError:
        return sign, logarithm
    return sign, _ruled(logarithm, "slogdet", (x, inverted), _logarithm_gradient)


def _logarithm_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    outer, _, _, inverted = _tensors(gradient, node)
    return (outer.unsqueeze(-1).unsqueeze(-1) * inverted.transpose(-2, -1)).uop, None


def triangle(x: Array) -> Array:
    """The lower triangles L of matrices that are L @ L.mT; only their lower halves are read."""
    (result,) = by_lapack("cholesky", lambda numpy, a: numpy.linalg.cholesky(a), x)
    if x.dtype.kind != "float":
        return result
    return _ruled(result, "cholesky", (x, inverse(result)), _triangle_gradient)


def _triangle_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    """I. Murray, "Differentiation of the Cholesky decomposition" (2016), equation 10."""
    outer, lower, _, inverted = _tensors(gradient, node)
    inner = (lower.transpose(-2, -1) @ outer).tril()
    size = lower.shape[-1]
    inner = inner * (1 - Tensor.eye(size, dtype=lower.dtype) * 0.5)
    whole = inverted.transpose(-2, -1) @ inner @ inverted
    return ((whole + whole.transpose(-2, -1)) * 0.5).uop, None


def eigenvalues(x: Array) -> tuple[Array, Array]:
    """Eigenvalues and eigenvectors of Hermitian matrices, of which the lower halves are read."""

    def compute(numpy: Any, a: Any) -> Any:
        found = numpy.linalg.eigh(a)
        return found.eigenvalues, found.eigenvectors

    values, vectors = by_lapack("eigh", compute, x)
    if x.dtype.kind != "float":
        return values, vectors
    ruled = _ruled(values, "eigvalsh", (x, vectors), _eigenvalue_gradient)
    return ruled, _ruled(vectors, "eigh", (x, values), _eigenvector_gradient)


def _eigenvalue_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    outer, _, _, vectors = _tensors(gradient, node)
    return ((vectors * outer.unsqueeze(-2)) @ vectors.transpose(-2, -1)).uop, None


def _eigenvector_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[Any, ...]:
    outer, vectors, _, values = _tensors(gradient, node)
    gaps = values.unsqueeze(-2) - values.unsqueeze(-1)
    same = gaps.eq(0)
    shares = same.where(0, same.where(gaps._constant(1), gaps).reciprocal())
    inner = shares * (vectors.transpose(-2, -1) @ outer)
    whole = vectors @ inner @ vectors.transpose(-2, -1)
    return ((whole + whole.transpose(-2, -1)) * 0.5).uop, None
