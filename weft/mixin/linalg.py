"""Linear algebra: dot, matmul, einsum, linear.

In: tensors. Out: products summed over shared axes.
Sits above the engine, one of the Tensor families.
Invariant: a product is a multiplication and a sum; making it fast is the compiler's work.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Self

from weft.dtype import DType, dtypes, least_upper_dtype, to_dtype
from weft.errors import ArgumentError, ShapeError
from weft.helpers import argfix
from weft.mixin.activation import ActivationMixin
from weft.mixin.check import some_text
from weft.mixin.check import tensors as check_tensors
from weft.mixin.dtype import product_dtype
from weft.mixin.movement import same_size


class LinalgMixin(ActivationMixin):
    """Products of tensors."""

    __slots__ = ()

    def dot(self, w: Any, dtype: DType | None = None) -> Self:
        """The product of vectors, matrices, or stacks of them; `dtype` is what it accumulates in.

        >>> Tensor([[1, 2], [3, 4]]).dot(Tensor([5, 6])).tolist()
        [17, 39]
        """
        other = self._operand(w)
        if self.ndim == 0 or other.ndim == 0:
            raise ShapeError(
                f"dot needs at least one axis each, found shapes {self.shape} and {other.shape}; "
                "use * for scalars"
            )
        inner = -min(other.ndim, 2)
        if not same_size(self.shape[-1], other.shape[inner]):
            raise ShapeError(
                f"cannot multiply shapes {self.shape} and {other.shape}: the sizes "
                f"{self.shape[-1]} and {other.shape[inner]} of the summed axes must be equal"
            )
        both = min(self.ndim - 1, other.ndim - 1, 1)
        result = least_upper_dtype(self.dtype, other.dtype)
        # products are as wide as their sum
        wide = product_dtype(result if dtype is None else to_dtype(dtype))
        first = self
        if dtype is not None or wide is not result:
            first, other = self.cast(wide), other.cast(wide)
        left = first.reshape((*self.shape[:-1], *[1] * both, self.shape[-1]))
        right = other.reshape((*other.shape[:-2], *[1] * both, *other.shape[inner:]))
        right = right.transpose(-1, inner)
        return (left * right)._sum_products(dtype, result)

    def _sum_products(self, dtype: DType | None, result: DType) -> Self:
        total = self.sum(-1, dtype=dtype)
        return total if dtype is not None or result in dtypes.weaks else total.cast(result)

    def matmul(self, x: Any, reverse: bool = False, dtype: DType | None = None) -> Self:
        """The matrix product, as `@`.

        >>> (Tensor([[1, 2], [3, 4]]) @ Tensor([[1, 0], [0, 1]])).tolist()
        [[1, 2], [3, 4]]
        """
        return self._operand(x).dot(self, dtype) if reverse else self.dot(x, dtype)

    def __matmul__(self, x: Any) -> Self:
        return self.matmul(x)

    def __rmatmul__(self, x: Any) -> Self:
        return self.matmul(x, True)

    def linear(self, weight: Any, bias: Any = None, dtype: DType | None = None) -> Self:
        """x @ weight + bias; a vector as weight is multiplied elementwise.

        >>> Tensor([1.0, 2.0]).linear(Tensor([[1.0], [2.0]]), Tensor([0.5])).tolist()
        [5.5]
        """
        value = self if dtype is None else self.cast(dtype)
        other = self._operand(weight)
        other = other if dtype is None else other.cast(dtype)
        if bias is None or other.ndim == 1:
            result = value * other if other.ndim == 1 else value.dot(other)
            return result if bias is None else result + bias
        # of half types the sum of products is not rounded before the bias is added
        found = least_upper_dtype(value.dtype, other.dtype)
        wide = product_dtype(found)
        if wide is found:
            return value.dot(other) + bias
        added = self._operand(bias)
        total = value.dot(other, dtype=wide) + added.cast(wide)
        return total.cast(least_upper_dtype(found, added.dtype))

    def outer(self, x: Any) -> Self:
        """All products of two vectors.

        >>> Tensor([1, 2]).outer(Tensor([3, 4])).tolist()
        [[3, 4], [6, 8]]
        """
        return self.flatten().unsqueeze(1) * self._operand(x).flatten()

    # ------------------------------------------------------------ einsum
    @classmethod
    def einsum(cls, formula: str, *operands: Any, dtype: DType | None = None) -> Self:
        """Sums of products over named axes, as NumPy's.

        >>> Tensor.einsum("ij,jk->ik", Tensor([[1, 2]]), Tensor([[3], [4]])).tolist()
        [[11]]
        """
        tensors: Sequence[Any] = argfix(*operands)
        check_tensors("each operand of einsum", tensors)
        formula = some_text("the formula of einsum", formula)
        inputs, output = _parse_einsum(formula, [tensor.ndim for tensor in tensors])
        sizes: dict[str, Any] = {}
        prepared = []
        for names, tensor in zip(inputs, tensors, strict=True):
            for name, size in zip(names, tensor.shape, strict=True):
                if (
                    name in sizes
                    and not same_size(sizes[name], size)
                    and 1
                    not in (
                        sizes[name],
                        size,
                    )
                ):
                    raise ShapeError(
                        f"einsum {formula!r}: axis {name!r} has the sizes {sizes[name]} and {size}"
                    )
                sizes[name] = size if sizes.get(name, 1) == 1 else sizes[name]
            prepared.append(_diagonals(names, tensor))
        order = [*output, *sorted(name for name in sizes if name not in output)]
        product: Any = None
        kind = functools.reduce(least_upper_dtype, [tensor.dtype for tensor in tensors])
        wide = product_dtype(kind)
        for names, tensor in prepared:
            present = [name for name in order if name in names]
            moved = tensor.permute([names.index(name) for name in present])
            shape = [moved.shape[present.index(n)] if n in present else 1 for n in order]
            moved = moved.reshape(shape)
            moved = moved if wide is kind else moved.cast(wide)
            product = moved if product is None else product * moved
        summed = tuple(range(len(output), len(order)))
        if not summed:
            result: Self = product.cast(kind if dtype is None else dtype)
            return result
        total: Self = product.sum(summed, dtype=dtype)
        return total if dtype is not None else total.cast(kind)


_FIRST_SPARE = 0x100


def _parse_einsum(formula: str, ranks: list[int]) -> tuple[list[str], str]:
    """The names of the operands' axes and of the result's; an ellipsis becomes names of its own."""
    text = formula.replace(" ", "")
    left, arrow, right = text.partition("->")
    inputs = left.split(",")
    if len(inputs) != len(ranks):
        raise ArgumentError(
            f"einsum {formula!r} names {len(inputs)} operands, but {len(ranks)} were given"
        )
    for term in (*inputs, *([right] if arrow else [])):
        letters = term.replace("...", "", 1)
        if letters and not (letters.isascii() and letters.isalpha()):
            raise ArgumentError(
                f"einsum {formula!r}: {term!r} is no list of axes: each is one letter, and one "
                "ellipsis (...) may stand for the others"
            )
    # no letters, so they meet no name of the formula
    spare = [chr(_FIRST_SPARE + axis) for axis in range(max(ranks, default=0))]
    filled = []
    widest = 0
    for names, rank in zip(inputs, ranks, strict=True):
        named = len(names.replace("...", ""))
        hidden = rank - named
        if hidden < 0 or (hidden > 0 and "..." not in names):
            raise ShapeError(
                f"einsum {formula!r}: {names!r} names {named} axes, but the operand has {rank}"
            )
        # aligned at their last axes, as in broadcasting
        filled.append(names.replace("...", "".join(spare[:hidden][::-1])))
        widest = max(widest, hidden)
    dots = "".join(spare[:widest][::-1])
    if arrow:
        output = right.replace("...", dots)
    else:
        joined = "".join(names.replace("...", "") for names in inputs)
        output = dots + "".join(sorted(c for c in set(joined) if joined.count(c) == 1))
    known = set("".join(filled))
    if len(set(output)) != len(output) or not set(output) <= known:
        raise ArgumentError(
            f"einsum {formula!r}: the result's axes must be different and named on the left"
        )
    return filled, output


def _diagonals(names: str, tensor: Any) -> tuple[str, Any]:
    """An operand without repeated names: a repeated one is the diagonal of its axes."""
    while len(set(names)) != len(names):
        name = next(c for c in names if names.count(c) > 1)
        first = names.index(name)
        second = names.index(name, first + 1)
        tensor = tensor.diagonal(dim1=first, dim2=second)
        names = "".join(c for i, c in enumerate(names) if i not in (first, second)) + name
    return names, tensor
