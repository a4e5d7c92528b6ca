"""Decompositions of matrices: qr, svd, newton_schulz.

In: tensors whose last two axes are matrices. Out: orthogonal and triangular factors.
Sits above the engine, one of the Tensor families.
Invariant: everything is a composition of other methods, over any axes before the last two. A step
reads its number from memory, so that all steps of a size run the same kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Self

from weft.dtype import computing_dtype, dtypes
from weft.engine import host_calls
from weft.errors import ArgumentError, DTypeError, ShapeError
from weft.mixin.check import described, real_number, whole_number
from weft.mixin.movement import is_int
from weft.mixin.once import built_once
from weft.mixin.resize import ResizeMixin
from weft.uop.args import FunctionArg
from weft.uop.node import UOp
from weft.uop.opset import Ops

# how many rounds of a tournament are computed at once: fewer calls, but more to schedule
_ROUNDS = 7
# rows and columns up to which LAPACK gains nothing from threads
_SMALL = 256


class DecomposeMixin(ResizeMixin):
    """Methods on matrices."""

    __slots__ = ()

    def newton_schulz(self, steps: int, params: Sequence[float], eps: float = 1e-07) -> Self:
        """Matrices towards orthogonal ones: `steps` times an odd polynomial of them.

        With params (a, b, c) a step is a*X + b*(X @ X.T) @ X + c*(X @ X.T) @ (X @ X.T) @ X. The
        matrix is divided by its norm plus `eps` first.

        >>> x = Tensor([[2.0, 0.0], [0.0, 1.0]]).newton_schulz(8, (1.5, -0.5))
        >>> (x @ x.T).round().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
        """
        self._check_matrices("newton_schulz")
        steps = whole_number("steps", steps, least=0)
        if not isinstance(params, (tuple, list)) or not params:
            raise ArgumentError(
                "newton_schulz needs a sequence of at least one coefficient, found "
                f"{described(params)}"
            )
        params = [real_number("each of params", factor) for factor in params]
        value = self.cast(computing_dtype(self.dtype))
        value = value / (value.square().sum((-2, -1), keepdim=True).sqrt() + eps)
        rows, columns = self.shape[-2:]
        # the smaller of the two squares
        tall = is_int(rows) and is_int(columns) and rows > columns
        value = value.transpose(-2, -1) if tall else value
        for _ in range(steps):
            square = value @ value.transpose(-2, -1)
            term = value
            total = value * params[0]
            for factor in params[1:]:
                term = square @ term
                total = total + term * factor
            value = total
        value = value.transpose(-2, -1) if tall else value
        return value.cast(self.dtype if dtypes.is_float(self.dtype) else value.dtype)

    def qr(self) -> tuple[Self, Self]:
        """Matrices as Q @ R: Q is square and orthogonal, R has zeros below its diagonal.

        LAPACK computes it where the host reads the device's memory, else kernels do.

        >>> q, r = Tensor([[3.0, 1.0], [4.0, 2.0]]).qr()
        >>> (q @ r).round().tolist()
        [[3.0, 1.0], [4.0, 2.0]]
        """
        rows, columns = self._check_matrices("qr")
        value = self.cast(computing_dtype(self.dtype))
        if 0 in self.shape:
            q, r = value._qr_factors()
            return q.cast(self._factor_dtype()), r.cast(self._factor_dtype())
        results = [((*self.shape[:-1], rows), value.dtype), (self.shape, value.dtype)]
        nodes = (value.uop, *value._by_host("qr", results, _host_qr, _kernel_qr))
        count, axis = min(rows, columns), self.ndim - 1
        head, r = [self._from_uop(_marked_qr(number, nodes, type(self))) for number in range(2)]
        q = head
        if rows > count:
            tail = self._from_uop(nodes[1])._slice(axis, count, rows)
            tail = tail._with_rule("qr", (head,), _completion_gradient, (type(self),))
            q = head.cat(tail, dim=-1)
        return q.cast(self._factor_dtype()), r.cast(self._factor_dtype())

    def _by_host(
        self,
        name: str,
        results: Sequence[tuple[tuple[int, ...], Any]],
        compute: Callable[..., Any],
        kernels: Callable[..., Any],
        *static: Any,
    ) -> list[UOp]:
        """Factors of matrices by a function of the host or by kernels."""
        inputs = (self.contiguous().uop,)
        return host_calls.call(name, inputs, results, compute, kernels, (type(self), *static))

    def _qr_factors(self) -> tuple[Self, Self]:
        """Q and R by kernels."""
        rows, columns = self.shape[-2:]
        value = self
        batch = value.shape[:-2]
        ones = self.eye(rows, dtype=value.dtype).expand((*batch, rows, rows))
        # what turns the matrix into R turns the unit matrix into the transpose of Q
        both = value.cat(ones, dim=-1).contiguous()
        numbers = self._iota(max(1, rows))
        numbers = (numbers if self.device is None else numbers.to(self.device)).contiguous()
        for step in range(min(rows - 1, columns)):
            both = both._reflected(numbers._slice(0, step, step + 1))
        first, second = both.split([columns, rows], dim=-1)
        below = self._iota(rows).unsqueeze(1).gt(self._iota(columns))
        triangle = below.where(first._constant(0), first)
        return second.transpose(-2, -1), triangle

    @built_once
    def _reflected(self, step: Self) -> Self:
        """A Householder reflection that puts zeros below element (step, step) of matrices."""
        rows = self.shape[-2]
        places = self._iota(rows)
        column = self._take({self.ndim - 1: step}).squeeze(-1)
        column = places.ge(step).where(column, column._constant(0))
        here = places.eq(step)
        # divided by its greatest element, so that its squares neither overflow nor vanish
        greatest = column.abs().max(-1, keepdim=True)
        scaled = column / greatest.eq(0).where(greatest._constant(1), greatest)
        squares = scaled.square().sum(-1, keepdim=True)
        own = here.where(scaled, scaled._constant(0)).sum(-1, keepdim=True)
        # as LAPACK has it: where zeros are below already, nothing is reflected
        below = places.gt(step).where(column, column._constant(0))
        is_zero = below.abs().max(-1, keepdim=True).eq(0)
        length = is_zero.where(squares._constant(1), squares).sqrt()
        length = own.lt(0).where(-length, length)
        mirror = here.where(scaled + length, scaled)
        # |mirror|^2 / 2
        half = is_zero.where(squares._constant(1), squares + own * length)
        mirror = is_zero.where(mirror._constant(0), mirror).contiguous()
        factors = (mirror.unsqueeze(-1) * self).sum(-2, keepdim=True)
        change = mirror.unsqueeze(-1) * (factors / half.unsqueeze(-1)).contiguous()
        return (self - change).contiguous()

    def svd(self, full_matrices: bool = True) -> tuple[Self, Self, Self]:
        """Matrices as U @ diag(S) @ V: U and V are orthogonal, S is not negative and descends.

        With `full_matrices` U and V are square, else as small as they can be. The greatest element
        of each row of V is positive. LAPACK computes it where the host reads the device's memory.
        Elsewhere, and in what a TinyJit captures, kernels do: they iterate, which runs now.

        >>> u, s, v = Tensor([[3.0, 0.0], [0.0, -4.0]]).svd()
        >>> s.tolist()
        [4.0, 3.0]
        """
        rows, columns = self._check_matrices("svd")
        if rows == 0 or columns == 0:
            return self._empty_svd(full_matrices)
        value = self.cast(computing_dtype(self.dtype))
        count = min(rows, columns)
        left, right = (rows, columns) if full_matrices else (count, count)
        shapes = [(rows, left), (count,), (right, columns)]
        results = [((*self.shape[:-2], *shape), value.dtype) for shape in shapes]
        factors = value._by_host("svd", results, _host_svd, _kernel_svd, bool(full_matrices))
        raw = _with_signs(*[self._from_uop(factor) for factor in factors])
        nodes = (value.uop, *[factor.uop for factor in raw])
        marked = [self._from_uop(_marked(number, nodes, type(self))) for number in range(3)]
        u, s, v = [factor.cast(self._factor_dtype()) for factor in marked]
        return u, s, v

    def _empty_svd(self, full_matrices: bool) -> tuple[Self, Self, Self]:
        """Of a matrix without elements: nothing, and unit matrices of the sizes asked for."""
        batch, (rows, columns) = self.shape[:-2], self.shape[-2:]
        dtype = self._factor_dtype()
        left = self.eye(rows, rows if full_matrices else 0, dtype=dtype)
        right = self.eye(columns if full_matrices else 0, columns, dtype=dtype)
        return (
            left.expand((*batch, *left.shape)),
            self.zeros(*batch, 0, dtype=dtype),
            right.expand((*batch, *right.shape)),
        )

    def _svd_factors(self, full_matrices: bool) -> tuple[Self, Self, Self]:
        """U, S and V without a gradient."""
        rows, columns = self.shape[-2:]
        if rows < columns:
            u, s, v = self.transpose(-2, -1)._svd_factors(full_matrices)
            return v.transpose(-2, -1), s, u.transpose(-2, -1)
        q, r = self.qr()
        turned, right = r._slice(r.ndim - 2, 0, columns)._orthogonal_columns()
        lengths = turned._column_lengths()
        s, order = lengths.sort(-1, descending=True)
        order = order.unsqueeze(-2).expand(turned.shape).contiguous()
        turned, right = turned.gather(-1, order), right.gather(-1, order)
        # orthogonal columns, and where a length is 0 whatever completes them
        inner, sides = turned.contiguous().qr()
        signs = sides.diagonal(dim1=-2, dim2=-1).lt(0).where(-1.0, 1.0).cast(self.dtype)
        inner = inner * signs.unsqueeze(-2)
        head, tail = q.split([columns, rows - columns], dim=-1)
        left = head @ inner
        if full_matrices and rows > columns:
            left = left.cat(tail, dim=-1)
        return left, s, right.transpose(-2, -1)

    def _column_lengths(self) -> Self:
        """The Euclidean norms of columns, without overflow."""
        greatest = self.abs().max(-2, keepdim=True)
        safe = greatest.eq(0).where(greatest._constant(1), greatest)
        return ((self / safe).square().sum(-2, keepdim=True).sqrt() * greatest).squeeze(-2)

    def _orthogonal_columns(self) -> tuple[Self, Self]:
        """Square matrices times rotations that make their columns orthogonal; and the rotations.

        One-sided Jacobi: columns are paired as players of a tournament, each round turns all pairs
        at once, and after size-1 rounds everybody has met everybody. A few rounds at a time are
        computed now: the next ones find their schedule and kernels ready.
        """
        size = self.shape[-1]
        even = size + size % 2
        ones = self.eye(size, dtype=self.dtype).expand(self.shape)
        table = self.cat(ones, dim=-2)
        if even != size:
            grow = [(0, 0)] * (self.ndim - 1) + [(0, 1)]
            table = table._pad_zeros(grow)
        table = table.contiguous().realize()
        for number in range(1, _sweeps(even, self.dtype) * max(1, even - 1) + 1):
            table = table._played_round(size)
            if number % _ROUNDS == 0:
                table = table.realize()
        table = table._slice(table.ndim - 1, 0, size)
        first, second = table.split([size, size], dim=-2)
        return first, second

    @built_once
    def _played_round(self, size: int) -> Self:
        """Column i of the first half meets column i of the second; then all but one move on."""
        axis = self.ndim - 1
        half = self.shape[-1] // 2
        left, right = self.split([half, half], dim=axis)
        cosine, sine = _rotation(left._slice(axis - 1, 0, size), right._slice(axis - 1, 0, size))
        new_left = left * cosine - right * sine
        new_right = left * sine + right * cosine
        if half == 1:
            return new_left.cat(new_right, dim=axis).contiguous()
        first = new_left._slice(axis, 0, 1)
        stay = new_left._slice(axis, 1, half - 1)
        down = new_left._slice(axis, half - 1, half)
        up = new_right._slice(axis, 0, 1)
        rest = new_right._slice(axis, 1, half)
        return first.cat(up, stay, rest, down, dim=axis).contiguous()

    def _factor_dtype(self) -> Any:
        return self.dtype if dtypes.is_float(self.dtype) else computing_dtype(self.dtype)

    def _check_matrices(self, name: str) -> tuple[Any, Any]:
        if self.ndim < 2:
            raise ShapeError(f"{name} takes matrices, found shape {self.shape}")
        if not all(is_int(size) for size in self.shape):
            raise ShapeError(f"{name} takes known sizes, found {self.shape}")
        if self.dtype is dtypes.bool:
            raise DTypeError(f"{name} takes numbers, found {self.dtype}")
        return self.shape[-2], self.shape[-1]


def _rotation(left: Any, right: Any) -> tuple[Any, Any]:
    """Cosine and sine of the angle that makes two columns orthogonal."""
    a = left.square().sum(-2, keepdim=True)
    b = right.square().sum(-2, keepdim=True)
    c = (left * right).sum(-2, keepdim=True)
    # already orthogonal, as exactly as their lengths are known
    done = c.abs().le((a * b).sqrt() * 1e-30)
    zeta = (b - a) / done.where(c._constant(1), c * 2)
    tangent = zeta.lt(0).where(-1.0, 1.0) / (zeta.abs() + (zeta * zeta + 1).sqrt())
    tangent = done.where(tangent._constant(0), tangent.cast(left.dtype))
    cosine = (tangent * tangent + 1).rsqrt().contiguous()
    return cosine, (cosine * tangent).contiguous()


def _sweeps(size: int, dtype: Any) -> int:
    """How often all pairs must meet: convergence is quadratic, and slower to begin for many."""
    base = 6 if dtype.itemsize <= 4 else 8
    return base + max(0, math.ceil(math.log2(max(2, size))) - 2)


def _with_signs(u: Any, s: Any, v: Any) -> tuple[Any, Any, Any]:
    """U and V with the greatest element of each row of V positive: of (u, v) and (-u, -v) one is
    chosen, so that all ways to compute them agree."""
    count, axis = s.shape[-1], u.ndim - 1
    inner = v._slice(axis - 1, 0, count)
    place = inner.abs().argmax(-1, keepdim=True)
    signs = inner.gather(-1, place).lt(0).where(-1.0, 1.0).cast(v.dtype).squeeze(-1)
    to_left = signs._pad_constant([(0, 0)] * (axis - 1) + [(0, u.shape[-1] - count)], 1.0)
    to_right = signs._pad_constant([(0, 0)] * (axis - 1) + [(0, v.shape[-2] - count)], 1.0)
    return u * to_left.unsqueeze(-2), s, v * to_right.unsqueeze(-1)


# ------------------------------------------------------------ by the host, and by kernels
def _host_qr(arrays: Sequence[Any], cls: Any) -> Any:
    import numpy

    with _few_threads(arrays[0]):
        return numpy.linalg.qr(arrays[0], mode="complete")


def _kernel_qr(nodes: Sequence[UOp], cls: Any) -> list[UOp]:
    return [factor.contiguous().uop for factor in cls._from_uop(nodes[0])._qr_factors()]


def _few_threads(array: Any) -> AbstractContextManager[None]:
    """What a small matrix is best decomposed in."""
    return host_calls.one_thread() if max(array.shape[-2:]) <= _SMALL else nullcontext()


def _host_svd(arrays: Sequence[Any], cls: Any, full_matrices: bool) -> Any:
    import numpy

    try:
        with _few_threads(arrays[0]):
            return numpy.linalg.svd(arrays[0], full_matrices=full_matrices)
    except numpy.linalg.LinAlgError:
        # not finite: the kernels say what is nan
        return None


def _kernel_svd(nodes: Sequence[UOp], cls: Any, full_matrices: bool) -> list[UOp]:
    factors = cls._from_uop(nodes[0])._svd_factors(full_matrices)
    return [factor.contiguous().uop for factor in factors]


# ------------------------------------------------------------ the gradient of qr
def _marked_qr(number: int, nodes: tuple[UOp, ...], cls: type) -> UOp:
    """The first columns of Q, as many as R has rows that are not zero, or R, as a function of the
    matrix. Its rule needs both."""
    factor = nodes[1 + number]
    if number == 0:
        count = min(nodes[0].shape[-2:])
        factor = factor.shrink((*[None] * (len(factor.shape) - 1), (0, count)))
    arg = FunctionArg("qr", _qr_gradient, (number, cls))
    return UOp(Ops.FUNCTION, factor.dtype, (factor, *nodes), arg)


def _qr_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """What the matrix gets from Q or R. Of columns that depend on others nothing is finite.

    With M = R @ gR.T - gQ.T @ Q, and L its lower triangle mirrored to the upper one, the columns
    that R's square part is of get (gQ + Q @ L) @ R^-T. Columns beyond that square are Q @ R2: they
    get Q @ gR2, and Q gets A2 @ gR2.T. The factors are marked again, for the gradient of this one.
    """
    number, cls = static
    nodes = node.src[1:]
    q, r = [cls._from_uop(_marked_qr(i, nodes, cls)) for i in range(2)]
    value, outer = cls._from_uop(nodes[0]), cls._from_uop(gradient)
    count, columns, axis = q.shape[-1], r.shape[-1], q.ndim - 1
    square = r._slice(axis - 1, 0, count)._slice(axis, 0, count)
    rest = None
    if number == 0:
        to_q = outer
        inner = -(to_q.transpose(-2, -1) @ q)
    else:
        outer = outer._slice(axis - 1, 0, count).triu()
        first = outer._slice(axis, 0, count)
        inner = square @ first.transpose(-2, -1)
        to_q = None
        if columns > count:
            beyond = outer._slice(axis, count, columns)
            rest = q @ beyond
            to_q = value._slice(axis, count, columns) @ beyond.transpose(-2, -1)
            inner = inner - to_q.transpose(-2, -1) @ q
    mirrored = inner.tril() + inner.tril(-1).transpose(-2, -1)
    total = q @ mirrored
    total = (total if to_q is None else to_q + total) @ _triangle_inverse(square).transpose(-2, -1)
    if columns > count:
        rest = rest if rest is not None else value._slice(axis, count, columns)._constant(0)
        total = total.cat(rest.expand((*total.shape[:-1], columns - count)), dim=-1)
    return (total.uop, None, None)


def _completion_gradient(
    gradient: UOp, node: UOp, static: tuple[Any, ...]
) -> tuple[UOp | None, ...]:
    """What the first columns of Q get from those that complete it.

    Q is a product of reflections, I - V T V.T, and its first columns Q1 decide V and T. So those
    that complete it are E2 + (E1 - Q1) W.T @ Q21.T where W = (I - Q11)^-1, E1 and E2 are columns of
    the unit matrix and Q11 above Q21 is Q1.
    """
    (cls,) = static
    q, outer = cls._from_uop(node.src[1]), cls._from_uop(gradient)
    rows, count = q.shape[-2:]
    top, bottom = q.split([count, rows - count], dim=-2)
    apart = q.eye(count, dtype=q.dtype) - top
    factor, triangle = apart.qr()
    inverse = _triangle_inverse(triangle) @ factor.transpose(-2, -1)
    moved = inverse.transpose(-2, -1) @ bottom.transpose(-2, -1)
    change = q.eye(rows, count, dtype=q.dtype) - q
    to_change = outer @ moved.transpose(-2, -1)
    to_moved = change.transpose(-2, -1) @ outer
    to_bottom = (inverse @ to_moved).transpose(-2, -1)
    to_inverse = (to_moved @ bottom).transpose(-2, -1)
    to_top = inverse.transpose(-2, -1) @ to_inverse @ inverse.transpose(-2, -1)
    return ((to_top.cat(to_bottom, dim=-2) - to_change).uop,)


def _triangle_inverse(triangle: Any) -> Any:
    """The inverses of upper triangles, by blocks that double: of two beside each other, A and C
    with B between, it is A^-1 and C^-1 with -A^-1 B C^-1. A zero on the diagonal counts as inf.
    """
    size = triangle.shape[-1]
    row, column = triangle._iota(size).unsqueeze(1), triangle._iota(size)
    is_zero = row.ne(column) | triangle.eq(0)
    result = is_zero.where(triangle._constant(0), 1 / is_zero.where(1, triangle))
    step = 1
    while step < size:
        is_between = (row // step + 1).eq(column // step) & (row // step % 2).eq(0)
        between = is_between.where(triangle, triangle._constant(0))
        result = (result - result @ between @ result).contiguous()
        step *= 2
    return result


# ------------------------------------------------------------ the gradient of svd
def _marked(number: int, nodes: tuple[UOp, ...], cls: type) -> UOp:
    """Factor `number` of svd, as a function of the matrix. Its rule needs all the factors."""
    factor = nodes[1 + number]
    arg = FunctionArg("svd", _svd_gradient, (number, cls))
    return UOp(Ops.FUNCTION, factor.dtype, (factor, *nodes), arg)


def _svd_gradient(gradient: UOp, node: UOp, static: tuple[Any, ...]) -> tuple[UOp | None, ...]:
    """What the matrix gets from U, S or V. Where singular values are equal, nothing is finite.

    The factors are marked again, so that the gradient of this gradient is right as well.
    """
    number, cls = static
    nodes = node.src[1:]
    u, s, v = [cls._from_uop(_marked(i, nodes, cls)) for i in range(3)]
    outer = cls._from_uop(gradient)
    count = s.shape[-1]
    axis = u.ndim - 1
    u = u._slice(axis, 0, count)
    v = v._slice(axis - 1, 0, count)
    if number == 1:
        return (((u * outer.unsqueeze(-2)) @ v).uop, None, None, None)
    if number == 2:
        # A.T = V.T S U.T, so V.T has the place of U there
        turned = outer._slice(axis - 1, 0, count).transpose(-2, -1)
        part = _side_gradient(turned, v.transpose(-2, -1), s, u.transpose(-2, -1))
        return (part.transpose(-2, -1).uop, None, None, None)
    return (_side_gradient(outer._slice(axis, 0, count), u, s, v).uop, None, None, None)


def _side_gradient(outer: Any, u: Any, s: Any, v: Any) -> Any:
    """What a matrix gets from the gradient of its U."""
    projected = u.transpose(-2, -1) @ outer
    squares = s.square()
    apart = squares.unsqueeze(-2) - squares.unsqueeze(-1)
    size = s.shape[-1]
    same = u._iota(size).unsqueeze(1).eq(u._iota(size))
    apart = same.where(apart._constant(1), apart)
    inner = (projected - projected.transpose(-2, -1)) / apart * s.unsqueeze(-2)
    result = u @ inner @ v
    if u.shape[-2] > size:
        beyond = outer - u @ projected
        result = result + (beyond / s.unsqueeze(-2)) @ v
    return result
