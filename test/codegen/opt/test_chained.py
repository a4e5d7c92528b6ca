"""Chained products in fragments: right in the interpreter of the GPU, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from weft import Tensor
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.chained import ChainTiling
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.pipeline import KERNEL_PASSES, lower
from weft.dtype import DType, dtypes
from weft.knobs import Context
from weft.renderer.cuda import SM_90
from weft.renderer.python import PythonRenderer
from weft.uop.chained import find_chain
from weft.uop.node import UOp
from weft.uop.opset import Ops

DEVICE = "PYTHON:sm_90"
HALF, BRAIN = dtypes.float16, dtypes.bfloat16
Array = np.ndarray[Any, Any]


def numbers(*shape: int, seed: int = 0) -> Array:
    """Numbers that bfloat16 holds."""
    found = np.random.default_rng((seed, *shape)).standard_normal(shape)
    return np.round(found * 64) / 64


def given(array: Array, dtype: DType = BRAIN) -> Tensor:
    return Tensor(array.astype(np.float32), device=DEVICE).cast(dtype).realize()


def softmax(scores: Array) -> Array:
    with np.errstate(invalid="ignore"):
        powers = np.exp(scores - scores.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def check(
    found: Tensor, scores: Array, value: Array, dtype: DType = BRAIN, weigh: Any = softmax
) -> None:
    """One kernel that stores no scores, and the value within the rounding of weights and output."""
    items = found.schedule()
    assert len(items) == 1
    memories = [u for u in items[0].kernel.toposort() if u.op is Ops.PARAM]
    sizes = [u.arg.size for u in memories if u.dtype is not dtypes.bool]
    assert max(sizes) < scores.size
    assert lower(items[0].kernel, PythonRenderer(SM_90)).applied[0].op is OptOps.CHAIN
    weights = weigh(scores)
    wanted = weights @ value
    bound = (2.0**-10 if dtype is HALF else 2.0**-7) * (np.abs(weights) @ np.abs(value))
    got = found.cast(dtypes.float32).numpy()
    assert np.array_equal(np.isnan(got), np.isnan(wanted))
    assert np.all(np.isnan(wanted) | (np.abs(got - wanted) <= bound))


def arrays(rows: int = 70, keys: int = 70, width: int = 16, heads: int = 1) -> list[Array]:
    shapes = ((heads, rows, width), (heads, keys, width), (heads, keys, width))
    return [numbers(*shape, seed=i) for i, shape in enumerate(shapes)]


# ------------------------------------------------------------ right
@pytest.mark.parametrize("dtype", [HALF, BRAIN], ids=str)
def test_attention_is_one_kernel(dtype: DType) -> None:
    q, k, v = arrays()
    x, y, z = [given(a, dtype) for a in (q, k, v)]
    check(x.scaled_dot_product_attention(y, z), q @ k.swapaxes(-1, -2) / 4, v, dtype)


def test_causal_attention_is_proven_and_right() -> None:
    q, k, v = arrays(150, 150)
    x, y, z = [given(a) for a in (q, k, v)]
    scores = np.where(np.tri(150, dtype=bool), q @ k.swapaxes(-1, -2) / 4, -np.inf)
    with Context(SPEC=2):
        check(x.scaled_dot_product_attention(y, z, is_causal=True), scores, v)


def test_rows_without_any_key_are_none_and_others_are_not() -> None:
    q, k, v = arrays(20, 140)
    mask = np.random.default_rng(3).random((20, 140)) > 0.4
    mask[5], mask[6, :130] = False, False
    x, y, z = [given(a) for a in (q, k, v)]
    scores = np.where(mask, q @ k.swapaxes(-1, -2) / 4, -np.inf)
    found = x.scaled_dot_product_attention(y, z, attn_mask=Tensor(mask, device=DEVICE).realize())
    check(found, scores, v)


def test_what_is_no_number_stays_that_in_its_row_alone() -> None:
    q, k, v = arrays(20, 140)
    q[0, 3, 2], q[0, 4, 1] = np.nan, np.inf
    x, y, z = [given(a) for a in (q, k, v)]
    with np.errstate(invalid="ignore"):
        scores = q @ k.swapaxes(-1, -2) / 4
    got = x.scaled_dot_product_attention(y, z).cast(dtypes.float32).numpy()
    assert np.isnan(got[0, 3:5]).all() and not np.isnan(np.delete(got, [3, 4], 1)).any()
    assert np.isnan(softmax(scores) @ v)[0, 3:5].all()


VARIANTS: dict[str, tuple[Callable[..., Tensor], Callable[..., Array], Any]] = {
    "bias": (
        lambda q, k, v: q.scaled_dot_product_attention(k, v, attn_mask=_bias()),
        lambda s: s / 4 + (np.arange(70) - np.arange(70)[:, None]) * 0.25,
        softmax,
    ),
    "soft cap": (
        lambda q, k, v: (
            ((q.matmul(k.transpose(-2, -1), dtype=dtypes.float32) / 8).tanh() * 3)
            .softmax(-1)
            .cast(BRAIN)
            @ v
        ),
        lambda s: np.tanh(s / 8) * 3,
        softmax,
    ),
    "no softmax": (
        lambda q, k, v: q.matmul(k.transpose(-2, -1), dtype=dtypes.float32).relu().cast(BRAIN) @ v,
        lambda s: s,
        lambda s: np.maximum(s, 0),
    ),
}


def _bias() -> Tensor:
    at = Tensor.arange(70, device=DEVICE).cast(dtypes.float32)
    return (at.reshape(1, 70) - at.reshape(70, 1)) * 0.25


@pytest.mark.parametrize("name", VARIANTS)
def test_variants_that_a_user_writes(name: str) -> None:
    compute, scored, weigh = VARIANTS[name]
    q, k, v = arrays()
    found = compute(*[given(a) for a in (q, k, v)])
    check(found, scored(q @ k.swapaxes(-1, -2)), v, weigh=weigh)


def test_scores_that_were_rounded_stay_rounded() -> None:
    """Of two that differ by less than their dtype holds, both have the same weight."""
    q, k = np.full((1, 70, 16), 1.0), np.full((1, 70, 16), 16.0)
    k[0, 7, 0] += 0.5  # 256.5 is 256 in bfloat16
    v = numbers(1, 70, 16)
    x, y, z = [given(a) for a in (q, k, v)]
    got = ((x @ y.transpose(-2, -1)).softmax(-1) @ z).cast(dtypes.float32).numpy()
    np.testing.assert_allclose(got, np.broadcast_to(v.mean(1, keepdims=True), got.shape), atol=4e-3)


def test_heads_in_groups_and_other_layouts() -> None:
    q, k, v = numbers(1, 40, 4, 16), numbers(1, 40, 2, 16, seed=1), numbers(1, 40, 2, 16, seed=2)
    x, y, z = [given(a).permute(0, 2, 1, 3) for a in (q, k, v)]
    found = x.scaled_dot_product_attention(y, z, is_causal=True, enable_gqa=True)
    q, k, v = [a.swapaxes(1, 2) for a in (q, k.repeat(2, 2), v.repeat(2, 2))]
    scores = np.where(np.tri(40, dtype=bool), q @ k.swapaxes(-1, -2) / 4, -np.inf)
    check(found, scores, v)


@pytest.mark.parametrize("tiling", [(1, 1, 1, 1), (2, 2, 1, 3), (1, 2, 2, 2)])
def test_tilings_agree(tiling: tuple[int, int, int, int]) -> None:
    q, k, v = arrays(40, 72, 24)
    x, y, z = [given(a) for a in (q, k, v)]
    kernel = optimised_until(x.scaled_dot_product_attention(y, z).schedule()[0].kernel)
    chain = find_chain(kernel.src[0], SM_90.fragments)
    assert chain is not None
    better = apply_opt(kernel, ChainTiling(*tiling).opt(chain.key), SM_90)
    axes = [u for u in better.toposort() if u.op is Ops.RUNNING]
    assert bool(axes) == (72 > 16 * tiling[2])


def optimised_until(kernel: UOp) -> UOp:
    """The kernel as the optimiser gets it."""
    for step in KERNEL_PASSES:
        if step.name == "optimise":
            break
        kernel = step(kernel, PythonRenderer(SM_90))
    return kernel


def test_gradients() -> None:
    """Against the formulas in float64, within the rounding of what is stored."""
    q, k, v = arrays(36, 36)
    seed = numbers(1, 36, 16, seed=7)
    x, y, z = [given(a).requires_grad_() for a in (q, k, v)]
    x.scaled_dot_product_attention(y, z, is_causal=True).backward(given(seed))
    scores = np.where(np.tri(36, dtype=bool), q @ k.swapaxes(-1, -2) / 4, -np.inf)
    weights = softmax(scores)
    slope = seed @ v.swapaxes(-1, -2)
    slope = weights * (slope - (weights * slope).sum(-1, keepdims=True)) / 4
    wanted = (slope @ k, slope.swapaxes(-1, -2) @ q, weights.swapaxes(-1, -2) @ seed)
    for tensor, expected in zip((x, y, z), wanted, strict=True):
        assert tensor.grad is not None
        got = tensor.grad.cast(dtypes.float32).numpy()
        np.testing.assert_allclose(got, expected, atol=2.0**-6 * np.abs(expected).max())


# ------------------------------------------------------------ refused
def test_what_is_refused_says_why() -> None:
    q, k, v = [given(a) for a in arrays(40, 40)]
    kernel = optimised_until(q.scaled_dot_product_attention(k, v).schedule()[0].kernel)
    product = (q @ k.transpose(-2, -1)).schedule()[0].kernel
    for ast, arg, reason in (
        (kernel, (1, 1), "needs warps"),
        (kernel, (4, 8, 256, 2), "need"),
        (kernel, (64, 1, 1, 2), "threads"),
        (optimised_until(product), (1, 1, 1, 1), "no chain"),
    ):
        with pytest.raises(OptError, match=reason):
            apply_opt(ast, Opt(OptOps.CHAIN, 0, arg), SM_90)
