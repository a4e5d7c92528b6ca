"""Convolutions and their transposes against PyTorch: values, gradients, gradients of gradients.

In float64, so that a wrong weight or a missing border shows. The gradient of a convolution is
written down as a rule: strides, gaps, groups and what no window reaches are all part of it.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest

from test.optional import optional
from weft import Tensor, TinyJit, Variable, dtypes

torch = optional("torch")

functional: Any = torch.nn.functional


def signed(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape)


def agree(name: str, x: np.ndarray, w: np.ndarray, twice: bool = True, **options: Any) -> None:
    """Value, gradients of a curved function of it, and gradients of those."""
    tensors = [Tensor(x), Tensor(w)]
    peers = [torch.tensor(a, requires_grad=True) for a in (x, w)]
    found = getattr(tensors[0], name)(tensors[1], **options)
    expected = getattr(functional, name)(*peers, **options)
    weights = signed(*expected.shape, seed=1)
    pairs = [(found, expected)]
    gradients = (found * found * Tensor(weights)).sum().gradient(*tensors)
    wanted = torch.autograd.grad(
        (expected * expected * torch.tensor(weights)).sum(), peers, create_graph=twice
    )
    pairs += zip(gradients, wanted, strict=True)
    if twice:
        again = sum([(g * g).sum() for g in gradients[1:]], (gradients[0] ** 2).sum())
        deeper = again.gradient(*tensors)
        wanted = torch.autograd.grad(sum((g * g).sum() for g in wanted), peers)
        pairs += zip(deeper, wanted, strict=True)
    for left, right in pairs:
        torch.testing.assert_close(torch.as_tensor(left.numpy()), right.detach())


GEOMETRY: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 7, 6), (4, 3, 3, 2), {}),
    "padded": ((2, 2, 6, 6), (4, 2, 3, 3), {"padding": 1}),
    "padded beyond the window": ((1, 2, 4, 4), (2, 2, 2, 2), {"padding": 3}),
    "stride": ((2, 2, 9, 8), (3, 2, 3, 3), {"stride": 2, "padding": 1}),
    "stride that leaves a rest": ((1, 2, 10, 11), (3, 2, 3, 2), {"stride": 3}),
    "stride above the window": ((1, 3, 9, 9), (4, 3, 1, 2), {"stride": (2, 3)}),
    "gaps": ((1, 2, 9, 8), (3, 2, 3, 2), {"dilation": 2, "padding": 2}),
    "gaps and stride": ((1, 2, 11, 10), (3, 2, 3, 2), {"dilation": (2, 3), "stride": (2, 2)}),
    "groups": ((2, 6, 5, 5), (9, 2, 3, 3), {"groups": 3}),
    "depthwise with stride": ((2, 4, 8, 8), (4, 1, 3, 3), {"groups": 4, "stride": 2, "padding": 1}),
}


@pytest.mark.parametrize("case", GEOMETRY)
def test_conv2d(case: str) -> None:
    x, w, options = GEOMETRY[case]
    agree("conv2d", signed(*x), signed(*w, seed=2), **options)


TRANSPOSED: dict[str, tuple[tuple[int, ...], tuple[int, ...], dict[str, Any]]] = {
    "plain": ((2, 3, 4, 5), (3, 4, 3, 2), {}),
    "stride": ((2, 3, 4, 5), (3, 2, 3, 3), {"stride": 2, "padding": 1, "output_padding": 1}),
    "stride above the window": ((1, 2, 4, 3), (2, 3, 2, 1), {"stride": 3, "output_padding": 2}),
    "gaps": ((1, 2, 4, 4), (2, 3, 3, 2), {"dilation": 2, "padding": 1}),
    "gaps and stride": ((1, 2, 4, 3), (2, 3, 3, 2), {"dilation": 3, "stride": 2}),
    "groups": ((1, 6, 4, 4), (6, 2, 3, 3), {"groups": 3, "stride": 2}),
}


@pytest.mark.parametrize("case", TRANSPOSED)
def test_conv_transpose2d(case: str) -> None:
    x, w, options = TRANSPOSED[case]
    agree("conv_transpose2d", signed(*x), signed(*w, seed=2), **options)


@pytest.mark.parametrize("rank", [1, 3])
def test_other_ranks(rank: int) -> None:
    x, w = signed(2, 2, *[6] * rank), signed(3, 2, *[3] * rank, seed=2)
    tensors = [Tensor(x), Tensor(w)]
    peers = [torch.tensor(a, requires_grad=True) for a in (x, w)]
    found = tensors[0].conv2d(tensors[1], stride=2, padding=1)
    expected = getattr(functional, f"conv{rank}d")(*peers, stride=2, padding=1)
    gradients = (found * found).sum().gradient(*tensors)
    wanted = torch.autograd.grad((expected * expected).sum(), peers)
    for left, right in zip([found, *gradients], [expected, *wanted], strict=True):
        torch.testing.assert_close(torch.as_tensor(left.numpy()), right.detach())


@pytest.mark.parametrize("seed", range(6))
def test_random_geometry(seed: int) -> None:
    pick = random.Random(seed)
    groups = pick.choice([1, 1, 2])
    kernel = [pick.randint(1, 4) for _ in range(2)]
    gaps = [pick.randint(1, 2) for _ in range(2)]
    sides = [(k - 1) * d + 1 + pick.randint(0, 6) for k, d in zip(kernel, gaps, strict=True)]
    x = signed(pick.randint(1, 2), groups * pick.randint(1, 3), *sides)
    w = signed(groups * pick.randint(1, 3), x.shape[1] // groups, *kernel, seed=2)
    options = {
        "stride": tuple(pick.randint(1, 3) for _ in range(2)),
        "dilation": tuple(gaps),
        "padding": tuple(pick.randint(0, 2) for _ in range(2)),
        "groups": groups,
    }
    agree("conv2d", x, w, twice=False, **options)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_in_half_out(dtype: str) -> None:
    """Sums are float32's: the gradients are as good as PyTorch's, which adds up so too."""
    x, w = signed(4, 6, 9, 9).astype(np.float32), signed(5, 6, 3, 3, seed=2).astype(np.float32)
    half = getattr(dtypes, dtype)
    tensors = [Tensor(a).cast(half) for a in (x, w)]
    peers = [torch.tensor(a).to(getattr(torch, dtype)).requires_grad_() for a in (x, w)]
    exact = [p.detach().double().requires_grad_() for p in peers]
    found = tensors[0].conv2d(tensors[1], padding=1)
    gradients = found.sum().gradient(*tensors)
    theirs = torch.autograd.grad(functional.conv2d(*peers, padding=1).sum(), peers)
    wanted = torch.autograd.grad(functional.conv2d(*exact, padding=1).sum(), exact)
    assert found.dtype is half
    for left, peer, right in zip(gradients, theirs, wanted, strict=True):
        assert left.dtype is half
        error = np.abs(left.float().numpy() - right.numpy()).max()
        bound = 2 * float((peer.double() - right).abs().max())
        assert error <= max(bound, 2 * torch.finfo(getattr(torch, dtype)).eps * right.abs().max())


def test_a_batch_of_run_time_size() -> None:
    n = Variable("n", 1, 8)
    x, w = signed(8, 2, 6, 6), Tensor(signed(3, 2, 3, 3, seed=2))
    data = Tensor(x)
    for size in (3, 5):
        some = data.shrink(((0, n.bind(size)), None, None, None))
        total = some.conv2d(w, stride=2, padding=1)
        (found,) = (total * total).sum().gradient(w)
        peer = torch.tensor(w.numpy(), requires_grad=True)
        expected = functional.conv2d(torch.tensor(x[:size]), peer, stride=2, padding=1)
        (wanted,) = torch.autograd.grad((expected * expected).sum(), peer)
        torch.testing.assert_close(torch.as_tensor(found.numpy()), wanted)


def test_a_jitted_step() -> None:
    x, w = signed(4, 2, 8, 8).astype(np.float32), signed(3, 2, 3, 3, seed=2).astype(np.float32)

    @TinyJit
    def step(x: Tensor, w: Tensor) -> Tensor:
        return (x.conv2d(w, padding=1, stride=2).relu() ** 2).sum().gradient(w)[0].realize()

    peers = torch.tensor(x), torch.tensor(w, requires_grad=True)
    for scale in (1.0, 2.0, 3.0, 4.0):
        total = functional.conv2d(peers[0] * scale, peers[1], padding=1, stride=2).relu() ** 2
        (wanted,) = torch.autograd.grad(total.sum(), peers[1])
        found = step(Tensor(x * np.float32(scale)), Tensor(w))
        torch.testing.assert_close(torch.as_tensor(found.numpy()), wanted, rtol=1e-4, atol=1e-4)


POOLS: dict[str, dict[str, Any]] = {
    "overlapping": {"kernel_size": 3, "stride": 1, "padding": 1},
    "with steps": {"kernel_size": 3, "stride": 2, "padding": 1},
    "with a rest": {"kernel_size": (3, 2), "stride": (2, 3), "ceil_mode": True},
    "window above the step": {"kernel_size": (4, 5), "stride": (3, 2)},
    "apart": {"kernel_size": 2, "stride": 3},
    "of more windows than one expression takes": {"kernel_size": 9, "stride": 1},
}


@pytest.mark.parametrize("case", POOLS)
@pytest.mark.parametrize("name", ["max_pool2d", "avg_pool2d"])
def test_pools_add_up_what_their_windows_share(name: str, case: str) -> None:
    options = POOLS[case]
    # all different: where several are the greatest, PyTorch gives all to one of them
    x = np.random.default_rng(0).permutation(2 * 2 * 12 * 11).reshape(2, 2, 12, 11) / 64.0
    tensor, peer = Tensor(x), torch.tensor(x, requires_grad=True)
    found = getattr(tensor, name)(**options)
    expected = getattr(functional, name)(peer, **options)
    (gradient,) = (found * found).sum().gradient(tensor)
    (wanted,) = torch.autograd.grad((expected * expected).sum(), peer)
    torch.testing.assert_close(torch.as_tensor(found.numpy()), expected.detach())
    torch.testing.assert_close(torch.as_tensor(gradient.numpy()), wanted)


@pytest.mark.parametrize("case", [case for case in POOLS if case != "with a rest"])
def test_pools_say_where_the_greatest_are(case: str) -> None:
    x = np.random.default_rng(1).permutation(2 * 3 * 12 * 11).reshape(2, 3, 12, 11) / 64.0
    found, places = Tensor(x).max_pool2d(**POOLS[case], return_indices=True)
    options = {**POOLS[case], "return_indices": True}
    expected, wanted = functional.max_pool2d(torch.tensor(x), **options)
    torch.testing.assert_close(torch.as_tensor(found.numpy()), expected)
    np.testing.assert_array_equal(places.numpy(), wanted.numpy())


def test_a_pool_with_gaps() -> None:
    x = np.random.default_rng(0).permutation(2 * 12 * 11).reshape(1, 2, 12, 11) / 64.0
    tensor, peer = Tensor(x), torch.tensor(x, requires_grad=True)
    found = tensor.max_pool2d((3, 2), stride=(2, 1), dilation=(2, 3))
    expected = functional.max_pool2d(peer, (3, 2), (2, 1), 0, (2, 3))
    (gradient,) = (found * found).sum().gradient(tensor)
    (wanted,) = torch.autograd.grad((expected * expected).sum(), peer)
    torch.testing.assert_close(torch.as_tensor(gradient.numpy()), wanted)
