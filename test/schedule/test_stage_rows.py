"""Attention is one kernel without a stored matrix of scores, and computes what the formula says."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import Context, Tensor, dtypes
from weft.engine.schedule import machine_of
from weft.schedule.stage_rows import ROWS
from weft.uop.ops import AxisType, Ops

Array = np.ndarray[Any, Any]
# of devices that keep rows in fast memory of a core
pytestmark = pytest.mark.device("CPU")


def numbers(*shape: int) -> Array:
    return np.random.default_rng(shape).standard_normal(shape).astype(np.float32)


def softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def attention(q: Array, k: Array, v: Array, bias: Any = 0.0) -> Array:
    q, k, v = (x.astype(np.float64) for x in (q, k, v))
    return softmax(q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1]) + bias) @ v


def causal(rows: int, columns: int) -> Array:
    return np.where(np.tri(rows, columns, dtype=bool), 0.0, -np.inf)


def check(found: Tensor, expected: Array, kernels: int = 1) -> list[Any]:
    items = [item.kernel for item in found.schedule()]
    assert len(items) == kernels
    with Context(SPEC=2):
        np.testing.assert_allclose(found.numpy(), expected, rtol=2e-5, atol=2e-6)
    return items


@pytest.mark.parametrize("length", [16, 17, 40, 64])
def test_attention_is_one_kernel(length: int) -> None:
    arrays = [numbers(2, 3, length, 8) + i for i in range(3)]
    q, k, v = (Tensor(a).realize() for a in arrays)
    (kernel,) = check(q.scaled_dot_product_attention(k, v), attention(*arrays))
    biggest = max(u.arg.size for u in kernel.toposort() if u.op is Ops.PARAM)
    assert biggest == arrays[0].size


@pytest.mark.parametrize(("rows", "columns"), [(16, 16), (40, 40), (20, 50), (50, 20)])
def test_causal_attention_ends_its_loops_at_the_row(rows: int, columns: int) -> None:
    arrays = [numbers(2, rows, 8), numbers(2, columns, 8), numbers(2, columns, 8) + 1]
    q, k, v = (Tensor(a).realize() for a in arrays)
    found = q.scaled_dot_product_attention(k, v, is_causal=True)
    (kernel,) = check(found, attention(*arrays, causal(rows, columns)))
    ends = [
        u
        for u in kernel.toposort()
        if u.op is Ops.RANGE and u.arg.kind is AxisType.REDUCE and u.src[0].op is not Ops.CONST
    ]
    # with one tile of rows there is one end
    assert bool(ends) == (rows > ROWS)


def test_masks() -> None:
    arrays = [numbers(2, 3, 24, 8) + i for i in range(3)]
    q, k, v = (Tensor(a).realize() for a in arrays)
    bias = numbers(24, 24)
    mask = numbers(2, 1, 24, 24) > -1
    check(
        q.scaled_dot_product_attention(k, v, attn_mask=Tensor(bias).realize()),
        attention(*arrays, bias),
    )
    check(
        q.scaled_dot_product_attention(k, v, attn_mask=Tensor(mask).realize()),
        attention(*arrays, np.where(mask, 0.0, -np.inf)),
    )


def test_heads_that_share_keys_and_heads_inside_of_a_matrix() -> None:
    q, k, v = numbers(1, 4, 24, 8), numbers(1, 2, 24, 8), numbers(1, 2, 24, 8) + 1
    tensors = [Tensor(a).realize() for a in (q, k, v)]
    wide = [a.repeat(2, 1) for a in (k, v)]
    check(
        tensors[0].scaled_dot_product_attention(tensors[1], tensors[2], enable_gqa=True),
        attention(q, *wide),
    )
    x = numbers(2, 24, 24)
    whole = Tensor(x).realize()
    heads = whole.reshape(2, 24, 3, 8).transpose(1, 2)
    parts = x.reshape(2, 24, 3, 8).swapaxes(1, 2)
    joined = heads.scaled_dot_product_attention(heads, heads).transpose(1, 2).reshape(2, 24, 24)
    check(joined, attention(parts, parts, parts).swapaxes(1, 2).reshape(2, 24, 24))


NORMALS: dict[str, tuple[Callable[[Any], Any], Callable[[Array], Array]]] = {
    "softmax": (lambda s: s.softmax(-1), softmax),
    "log_softmax": (lambda s: s.log_softmax(-1), lambda s: np.log(softmax(s))),
    "less its mean": (
        lambda s: s - s.mean(-1, keepdim=True),
        lambda s: s - s.mean(-1, keepdims=True),
    ),
    "divided by its norm": (
        lambda s: s / (s * s).sum(-1, keepdim=True).sqrt(),
        lambda s: s / np.sqrt((s * s).sum(-1, keepdims=True)),
    ),
}


@pytest.mark.parametrize("name", NORMALS)
def test_rows_may_be_normalised_in_any_way(name: str) -> None:
    ours, theirs = NORMALS[name]
    q, k, v = numbers(2, 33, 8), numbers(2, 40, 8), numbers(2, 40, 5)
    x, y, z = (Tensor(a).realize() for a in (q, k, v))
    found = ours(x @ y.transpose(-1, -2)) @ z
    scores = q.astype(np.float64) @ k.swapaxes(-1, -2)
    assert len(found.schedule()) == 1
    expected = theirs(scores) @ v
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [dtypes.float16, dtypes.bfloat16])
def test_halves(dtype: Any) -> None:
    x = Tensor(numbers(2, 24, 8)).cast(dtype).realize()
    found = x.scaled_dot_product_attention(x, x, is_causal=True)
    assert len(found.schedule()) == 1
    exact = x.cast(dtypes.float32).numpy()
    expected = attention(exact, exact, exact, causal(24, 24))
    # scores and weights are rounded to the dtype, as the formula says
    np.testing.assert_allclose(
        found.cast(dtypes.float32).numpy(),
        expected,
        atol=0.05 if dtype is dtypes.bfloat16 else 6e-3,
    )


def test_what_is_wanted_is_stored() -> None:
    q, k, v = (Tensor(numbers(2, 24, 8) + i).realize() for i in range(3))
    weights = (q @ k.transpose(-1, -2)).softmax(-1)
    result = weights @ v
    Tensor.realize(weights, result)
    np.testing.assert_allclose(weights.numpy().sum(-1), 1.0, rtol=1e-5)
    np.testing.assert_allclose(result.numpy(), weights.numpy() @ v.numpy(), rtol=1e-4, atol=1e-5)


def test_few_rows_and_long_rows_are_stored() -> None:
    few = [Tensor.empty(2, 4, 8), Tensor.empty(2, 64, 8), Tensor.empty(2, 64, 8)]
    long = [Tensor.empty(32, 8), Tensor.empty(1 << 18, 8), Tensor.empty(1 << 18, 8)]
    for q, k, v in (few, long):
        assert len(q.scaled_dot_product_attention(k, v).schedule()) > 1


def test_a_device_without_room_for_rows_stores_them() -> None:
    room = machine_of("CPU").row_room
    assert room > 0 and machine_of(("CPU", "CPU:1")).row_room == room


def test_gradients_of_attention_are_those_of_the_formula() -> None:
    arrays = [numbers(1, 20, 8) + i for i in range(3)]
    tensors = [Tensor(a, requires_grad=True) for a in arrays]
    tensors[0].scaled_dot_product_attention(*tensors[1:], is_causal=True).sum().backward()
    step = 1e-4
    for tensor, array in zip(tensors, arrays, strict=True):
        direction = numbers(*array.shape)
        change = [
            attention(*[a + s * direction if a is array else a for a in arrays], causal(20, 20))
            for s in (step, -step)
        ]
        expected = (change[0] - change[1]).sum() / (2 * step)
        assert tensor.grad is not None
        np.testing.assert_allclose((tensor.grad.numpy() * direction).sum(), expected, rtol=2e-3)
