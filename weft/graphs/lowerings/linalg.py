"""Products of matrices, einsum and determinants.

In: Tensors. Out: Tensors. A family of the table of lowerings.
Invariant: a product has the type of its operands.
"""

from __future__ import annotations

from typing import Any

from weft.dtype import computing_dtype
from weft.graphs.table import lowers, refuse
from weft.tensor import Tensor


@lowers("MatMul")
def matmul(a: Tensor, b: Tensor) -> Tensor:
    return a.matmul(b)


@lowers("Gemm")
def gemm(
    a: Tensor,
    b: Tensor,
    c: Tensor | None = None,
    *,
    alpha: float = 1.0,
    beta: float = 1.0,
    broadcast: int = 1,
    transA: int = 0,  # noqa: N803
    transB: int = 0,  # noqa: N803
) -> Tensor:
    if a.ndim != 2 or b.ndim != 2:
        raise refuse(f"matrices are wanted, found {a.shape} and {b.shape}")
    left = a.transpose() if transA else a
    right = b.transpose() if transB else b
    product = left.matmul(right)
    product = product if alpha == 1 else (product * alpha).cast(a.dtype)
    if c is None or beta == 0:
        return product
    return (product + (c if beta == 1 else c * beta)).cast(a.dtype)


@lowers("Einsum", since=12)
def einsum(*operands: Tensor, equation: str) -> Tensor:
    return Tensor.einsum(equation, *operands)


@lowers("Det", since=11)
def determinant(x: Tensor) -> Tensor:
    """The product of the pivots of an elimination that takes the largest pivot of each column."""
    size = x.shape[-1]
    if x.ndim < 2 or x.shape[-2] != size:
        raise refuse(f"square matrices are wanted, found {x.shape}")
    rest = x.cast(computing_dtype(x.dtype))
    total: Any = None
    for step in range(size):
        column = rest[..., :, 0]
        best = column.abs().argmax(-1, keepdim=True)
        rows = Tensor.arange(size - step)
        chosen = rows.eq(best).unsqueeze(-1)
        pivot_row = chosen.where(rest, 0).sum(-2, keepdim=True)
        pivot = pivot_row[..., 0, 0]
        # the first row takes the place of the chosen one, which changes the sign
        swapped = chosen.where(rest[..., 0:1, :], rest)[..., 1:, :]
        moved = best.squeeze(-1).ne(0)
        factor = moved.where(-pivot, pivot)
        total = factor if total is None else total * factor
        if step + 1 < size:
            scale = pivot.eq(0).where(1, pivot).unsqueeze(-1).unsqueeze(-1)
            rest = (swapped - swapped[..., :, 0:1] / scale * pivot_row)[..., :, 1:].contiguous()
    return total.cast(x.dtype)
