"""Products of products are one kernel where fragments pass them on, and only there."""

from __future__ import annotations

import pytest

from weft import Context, Tensor, dtypes
from weft.uop.ops import Ops

DEVICE = "PYTHON:sm_90"


def three(length: int = 256, width: int = 32, dtype: str = "bfloat16") -> list[Tensor]:
    shape = (2, length, width)
    return [Tensor.empty(*shape, dtype=dtype, device=DEVICE) for _ in range(3)]


def sizes(*values: Tensor) -> list[int]:
    """Elements of all that the kernels of some values touch."""
    items = values[0].schedule(*values[1:])
    return [u.arg.size for i in items for u in i.kernel.toposort() if u.op is Ops.PARAM]


def test_attention_stores_no_scores() -> None:
    q, k, v = three()
    assert max(sizes(q.scaled_dot_product_attention(k, v, is_causal=True))) == 2 * 256 * 32


def test_scores_that_somebody_wants_are_stored_once() -> None:
    q, k, v = three()
    weights = (q @ k.transpose(-2, -1)).softmax(-1)
    assert sizes(weights, weights @ v).count(2 * 256 * 256) == 2 * 2


def test_projections_stay_products_of_their_own() -> None:
    x, w, _ = three(256, 256)
    q, k, v = [(x @ w).reshape(2, 256, 8, 32).permute(0, 2, 1, 3) + i for i in range(3)]
    found = sizes(q.scaled_dot_product_attention(k, v))
    assert max(found) == 2 * 256 * 256 and len(found) > 4


def test_short_rows_are_stored() -> None:
    """Scores that take less memory than what they are made of cost nothing to keep."""
    q, k, v = three(16, 64)
    assert len(q.scaled_dot_product_attention(k, v).schedule()) == 3


@pytest.mark.parametrize(("knob", "dtype"), [({"USE_TC": 0}, "bfloat16"), ({}, "float32")])
def test_without_fragments_nothing_is_chained(knob: dict[str, int], dtype: str) -> None:
    q, k, v = three(dtype=dtype)
    with Context(**knob):
        assert max(sizes(q.scaled_dot_product_attention(k, v))) == 2 * 256 * 256


def test_gradients_store_rows_and_no_scores() -> None:
    q, k, v = [x.requires_grad_() for x in three()]
    out = q.scaled_dot_product_attention(k, v, is_causal=True)
    out.backward(Tensor.empty(*out.shape, dtype=dtypes.bfloat16, device=DEVICE))
    assert q.grad is not None and k.grad is not None and v.grad is not None
    assert max(sizes(out, q.grad, k.grad, v.grad)) == 2 * 256 * 32


def test_a_matrix_that_one_reader_cannot_compute_is_stored_for_all() -> None:
    q, k, v = three()
    scores = q.matmul(k.transpose(-2, -1), dtype=dtypes.float32)
    found = sizes(scores.cumsum(-1), scores.relu().cast(dtypes.bfloat16) @ v)
    assert 2 * 256 * 256 in found


def test_gradients_of_soft_caps_store_no_scores() -> None:
    """Products whose kernel has many other outputs, which all go with it."""
    q, k, v = [x.requires_grad_() for x in three(256, 64)]
    scores = q.matmul(k.transpose(-2, -1), dtype=dtypes.float32) / 8
    out = (scores.tanh() * 5).softmax(-1).cast(dtypes.bfloat16) @ v
    out.backward(Tensor.empty(*out.shape, dtype=dtypes.bfloat16, device=DEVICE))
    assert q.grad is not None and k.grad is not None and v.grad is not None
    assert max(sizes(out, q.grad, k.grad, v.grad)) == 2 * 256 * 64


def test_a_sum_of_wide_products_is_no_reduction_of_rows() -> None:
    """Gradients of float16 scores are float32, which float16 does not hold: they are stored."""
    q, k, v = [x.requires_grad_() for x in three(256, 32, "float16")]
    out = q.scaled_dot_product_attention(k, v)
    out.backward(Tensor.empty(*out.shape, dtype=dtypes.float16, device=DEVICE))
    assert q.grad is not None
    assert max(sizes(q.grad)) == 2 * 256 * 256
