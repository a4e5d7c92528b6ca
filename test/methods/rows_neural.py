"""What neural nets are made of: products, attention, losses.

In: shapes and arguments. Out: `ROWS`.
Sits above `row.py`. Invariant: sums of products are within the bound for their terms.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from test.methods.row import FLOATS, Input, Row, case, given
from test.optional import optional
from weft import dtypes

scipy = optional("scipy")

Function = Callable[..., Any]
WITH_INTS = (*FLOATS, "int32", "int8", "int64")


# ------------------------------------------------------------ products
def product_terms(function: Function, count: Function) -> Function:
    """The terms of a product: the same function of the sizes of its factors."""

    def terms(*arrays: Any, **kwargs: Any) -> tuple[int, Any]:
        sizes = [np.abs(a) for a in arrays]
        return count(*arrays), function(*sizes, **kwargs)

    return terms


def _dot(x: Any, y: Any, dtype: Any = None, reverse: bool = False) -> Any:
    wide = np.float64 if x.dtype.kind == "f" else np.int64
    left, right = (y, x) if reverse else (x, y)
    product = np.matmul(left.astype(wide), right.astype(wide))
    return product if x.dtype.kind == "f" else product.astype(dtype.name if dtype else x.dtype)


def _linear(x: Any, weight: Any, bias: Any = 0.0, dtype: Any = None) -> Any:
    return (x * weight if weight.ndim == 1 else x @ weight) + bias


PRODUCTS = (((5, 35), (35, 7)), ((4,), (4,)), ((3, 4), (4,)), ((4,), (4, 3)), ((2, 3, 4), (4, 5)),
            ((2, 1, 3, 4), (5, 4, 2)), ((0, 4), (4, 3)), ((3, 0), (0, 2)), ((1, 1), (1, 1)),
            ((17, 33), (33, 18)))  # fmt: skip
PRODUCT_CASES = tuple(case(a, b) for a, b in PRODUCTS)
LAST = product_terms(_dot, lambda x, y, **kwargs: max(1, x.shape[-1]))


def _einsum(*operands: Any, formula: str, dtype: Any = None) -> Any:
    return np.einsum(formula, *operands)


def _newton_schulz(x: Any, steps: int, params: Any, eps: float = 1e-7) -> Any:
    value = x / (np.sqrt((x * x).sum((-2, -1), keepdims=True)) + eps)
    tall = x.shape[-2] > x.shape[-1]
    value = np.swapaxes(value, -1, -2) if tall else value
    for _ in range(steps):
        gram = value @ np.swapaxes(value, -1, -2)
        total, power = np.zeros_like(value), value
        for factor in params:
            total, power = total + factor * power, gram @ power
        value = total
    return np.swapaxes(value, -1, -2) if tall else value


def _orthonormal(size: int, x: Any) -> Any:
    return np.broadcast_to(np.eye(size), (*x.shape[:-2], size, size))


def _qr_call(x: Any) -> Any:
    q, r = x.qr()
    return q @ r, q.transpose(-1, -2) @ q, r.tril(-1)


def _qr(x: Any) -> Any:
    q, r = np.linalg.qr(x, mode="complete")
    return x, _orthonormal(q.shape[-1], x), np.zeros(r.shape)


def _svd_call(x: Any, **kwargs: Any) -> Any:
    u, s, v = x.svd(**kwargs)
    k = s.shape[-1]
    joined = (u[..., :k] * s.unsqueeze(-2)) @ v[..., :k, :]
    return joined, s, u.transpose(-1, -2) @ u, v @ v.transpose(-1, -2)


def _svd(x: Any, full_matrices: bool = True) -> Any:
    u, s, v = np.linalg.svd(x, full_matrices=full_matrices)
    return x, s, _orthonormal(u.shape[-1], x), _orthonormal(v.shape[-2], x)


MATRICES = (case((5, 5)), case((6, 4)), case((3, 5)), case((2, 3, 3)), case((1, 1)))

LINEAR = (
    Row("dot", _dot, PRODUCT_CASES, WITH_INTS, terms=LAST),
    Row("matmul", _dot, (*PRODUCT_CASES, case((4, 3), (2, 4), reverse=True)), WITH_INTS,
        terms=LAST),
    *[
        Row(name, _dot, (case((3, 9), (9, 5), dtype=dtypes.float32),), ("float16", "bfloat16"),
            lambda dtype: "float32", terms=LAST)
        for name in ("dot", "matmul")
    ],
    Row("dot", _dot, (case((3, 9), (9, 5), dtype=dtypes.int64),), ("int8", "int32"),
        lambda dtype: "int64", gradient=False),
    Row(
        "linear",
        _linear,
        (
            case((5, 35), (35, 7), (7,)),
            case((2, 3, 4), (4, 5)),
            case((4,), (4, 3), (3,)),
            case((3, 4), (4,), (4,)),
            case((0, 4), (4, 3), (3,)),
        ),
        FLOATS,
        terms=product_terms(_linear, lambda x, *rest: max(1, x.shape[-1] + 1)),
    ),
    Row("linear", _linear, (case((3, 9), (9, 5), (5,), dtype=dtypes.float64),), ("float32",),
        lambda dtype: "float64"),
    Row("outer", np.outer, (case((7,), (9,)), case((1,), (3,)), case((0,), (3,))), WITH_INTS),
    Row(
        "einsum",
        _einsum,
        tuple(
            case(*shapes, formula=formula)
            for formula, *shapes in (
                ("ij,jk->ik", (5, 35), (35, 7)),
                ("ij->ji", (3, 4)),
                ("ij->", (3, 4)),
                ("ii->i", (4, 4)),
                ("ii", (4, 4)),
                ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
                ("bij,bjk->bik", (2, 3, 4), (2, 4, 5)),
                ("i,j", (3,), (4,)),
                ("ij,ij->i", (3, 4), (3, 4)),
                ("...ij,...jk->...ik", (2, 3, 4), (4, 5)),
                ("ab,b", (3, 4), (4,)),
                ("ijk->kij", (2, 0, 3)),
                (",i->i", (), (3,)),
            )
        ),
        FLOATS,
        call=lambda *tensors, formula, **kwargs: tensors[0].einsum(formula, *tensors, **kwargs),
        terms=product_terms(_einsum, lambda *arrays: max(1, max(a.size for a in arrays))),
        elsewhere={"operands": "the tensors", "formula": "given by the call"},
    ),
    Row(
        "einsum",
        _einsum,
        (case((3, 9), (9, 5), formula="ij,jk->ik", dtype=dtypes.float32),),
        ("float16",),
        lambda dtype: "float32",
        call=lambda *tensors, formula, **kwargs: tensors[0].einsum(formula, *tensors, **kwargs),
        terms=product_terms(_einsum, lambda *arrays: 9),
    ),
    Row(
        "newton_schulz",
        _newton_schulz,
        (
            case((4, 5), steps=2, params=(1.5, -0.5)),
            case((6, 3), steps=1, params=(2.0, -1.5, 0.5)),
            case((2, 3, 3), steps=3, params=(1.5, -0.5), eps=0.1),
        ),
        ("float32", "float64"),
    ),
    Row("qr", _qr, MATRICES, ("float32", "float64"), call=_qr_call),
    Row("svd", _svd, (*MATRICES, case((6, 4), full_matrices=False),
                      case((3, 5), full_matrices=False)),
        ("float32", "float64"), call=_svd_call, gradient=False),
)  # fmt: skip


# ------------------------------------------------------------ attention
def _attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    is_causal: bool = False,
    enable_gqa: bool = False,
) -> Any:
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = np.repeat(key, times, -3), np.repeat(value, times, -3)
    scores = query @ np.swapaxes(key, -1, -2) / math.sqrt(query.shape[-1])
    if is_causal:
        scores = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -np.inf)
    if attn_mask is not None:
        if attn_mask.dtype == bool:
            scores = np.where(attn_mask, scores, -np.inf)
        else:
            scores = scores + attn_mask
    return scipy.special.softmax(scores, -1) @ value


def _attention_terms(query: Any, key: Any, value: Any, *mask: Any, **kw: Any) -> tuple[int, Any]:
    count = key.shape[-2] + query.shape[-1]
    return count, _attention(query, key, np.abs(value), *mask, **kw)


MASK = given(np.tri(5, 6, 1, dtype=bool), "bool")
NEURAL = (
    Row(
        "scaled_dot_product_attention",
        _attention,
        (
            case((2, 3, 7, 8), (2, 3, 7, 8), (2, 3, 7, 8)),
            case((3, 5, 4), (3, 6, 4), (3, 6, 2)),
            case((2, 5, 4), (2, 5, 4), (2, 5, 4), is_causal=True),
            case((1, 4, 5, 8), (1, 2, 5, 8), (1, 2, 5, 8), enable_gqa=True),
            case((2, 5, 4), (2, 6, 4), (2, 6, 4), MASK),
            case((2, 5, 4), (2, 6, 4), (2, 6, 4), (5, 6)),
            case((1, 1, 4), (1, 1, 4), (1, 1, 4)),
        ),
        FLOATS,
        terms=_attention_terms,
        elsewhere={"dropout_p": "the check of dropout"},
    ),
)


# ------------------------------------------------------------ losses
def _folded(loss: Any, reduction: str) -> Any:
    return {"none": lambda: loss, "sum": loss.sum, "mean": loss.mean}[reduction]()


def _bce(p: Any, y: Any, reduction: str = "mean") -> Any:
    yes, no = np.maximum(np.log(p), -100), np.maximum(np.log(1 - p), -100)
    return _folded(-(y * yes + (1 - y) * no), reduction)


def _bce_logits(x: Any, y: Any, pos_weight: Any = 1.0, reduction: str = "mean") -> Any:
    return _folded(pos_weight * y * np.logaddexp(0, -x) + (1 - y) * np.logaddexp(0, x), reduction)


def _cross_entropy(x: Any, y: Any, reduction: str = "mean", label_smoothing: float = 0.0) -> Any:
    axis = 1 if x.ndim > 1 else 0
    classes = x.shape[axis]
    if y.ndim == x.ndim - 1:
        y = np.moveaxis(np.eye(classes)[y], -1, axis)
    target = y * (1 - label_smoothing) + label_smoothing / classes
    logs = scipy.special.log_softmax(x, axis)
    return _folded(-(logs * target).sum(axis), reduction)


def _nll(
    x: Any, y: Any, weight: Any = None, ignore_index: int | None = None, reduction: str = "mean"
) -> Any:
    axis = 1 if x.ndim > 1 else 0
    each = np.ones(y.shape) if weight is None else weight[y]
    each = each if ignore_index is None else np.where(y == ignore_index, 0.0, each)
    picked = np.take_along_axis(x, np.expand_dims(y, axis), axis).squeeze(axis)
    loss = -picked * each
    return loss.sum() / each.sum() if reduction == "mean" else _folded(loss, reduction)


def _sparse(
    x: Any,
    y: Any,
    ignore_index: int = -1,
    label_smoothing: float = 0.0,
    reduction: str = "mean",
) -> Any:
    logs = scipy.special.log_softmax(x, -1)
    counted = y != ignore_index
    picked = np.take_along_axis(logs, np.where(counted, y, 0)[..., None], -1)[..., 0]
    loss = -np.where(counted, picked * (1 - label_smoothing) + logs.mean(-1) * label_smoothing, 0)
    return loss.sum() / counted.sum() if reduction == "mean" else _folded(loss, reduction)


CLASSES = given([0, 4, 2, 1, 1, 3], "int32")
IMAGE = given(np.arange(2 * 3 * 4).reshape(2, 3, 4) % 5, "int32")
REDUCTIONS: tuple[dict[str, Any], ...] = ({}, {"reduction": "sum"}, {"reduction": "none"})
UNIT = Input((6, 5), 0.01, 0.99)

LOSSES = (
    Row(
        "binary_crossentropy",
        _bce,
        (
            *[case(UNIT, UNIT, **kw) for kw in REDUCTIONS],
            case(given([0.0, 1.0, 0.0, 1.0]), given([0.0, 1.0, 1.0, 0.0])),
        ),
        FLOATS,
    ),
    Row(
        "binary_crossentropy_logits",
        _bce_logits,
        (
            *[case(Input((6, 5), -20, 20), UNIT, **kw) for kw in REDUCTIONS],
            case(Input((6, 5), -9, 9), UNIT, Input((5,), 0.5, 3)),
        ),
        FLOATS,
        call=lambda x, y, *weight, **kw: x.binary_crossentropy_logits(
            y, pos_weight=weight[0] if weight else None, **kw
        ),
        elsewhere={"pos_weight": "given by the call"},
    ),
    Row(
        "cross_entropy",
        _cross_entropy,
        (
            *[case((6, 5), CLASSES, **kw) for kw in REDUCTIONS],
            case((6, 5), CLASSES, label_smoothing=0.1),
            case((2, 5, 3, 4), IMAGE),
            case((6, 5), UNIT, label_smoothing=0.2),
            case((5,), given(3, "int32")),
        ),
        FLOATS,
    ),
    Row(
        "sparse_categorical_crossentropy",
        _sparse,
        (
            *[case((6, 5), CLASSES, **kw) for kw in REDUCTIONS],
            case((6, 5), CLASSES, label_smoothing=0.1),
            case((2, 3, 4, 5), IMAGE),
            case((6, 5), CLASSES, ignore_index=1),
            case((3, 5), given([1, -1, 2], "int32"), label_smoothing=0.1),
            case((3, 5), given([1, -1, 2], "int32"), reduction="none"),
        ),
        FLOATS,
    ),
    Row(
        "nll_loss",
        _nll,
        (
            *[case(Input((6, 5), -4, 0), CLASSES, **kw) for kw in REDUCTIONS],
            case(Input((6, 5), -4, 0), CLASSES, Input((5,), 0.5, 2)),
            case(Input((6, 5), -4, 0), CLASSES, Input((5,), 0.5, 2), ignore_index=4),
            case((6, 5), CLASSES, ignore_index=1, reduction="sum"),
            case((2, 5, 3, 4), IMAGE),
            case((5,), given(3, "int32")),
        ),
        FLOATS,
    ),
)

ROWS = (*LINEAR, *NEURAL, *LOSSES)
