"""Normalisations, dropout, attention and losses against PyTorch in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from test.mixin.compare import check, random
from test.optional import optional
from weft import Tensor, dtypes
from weft.errors import ArgumentError, DTypeError, ShapeError

torch = optional("torch")
F = optional("torch.nn.functional")


def wide(data: Any) -> Any:
    return torch.tensor(data, dtype=torch.float64)


def test_layernorm() -> None:
    data = random(3, 4, 5)
    check(Tensor(data).layernorm(), F.layer_norm(wide(data), (5,)).numpy())
    check(Tensor(data).layernorm((1, 2)), F.layer_norm(wide(data), (4, 5)).numpy())
    assert Tensor(data).half().layernorm().dtype is dtypes.float16


def test_batchnorm() -> None:
    data, weight, bias = random(2, 3, 4, 4), random(3), random(3, seed=1)
    mean, variance = random(3, seed=2), random(3, low=0.5, high=2, seed=3)
    wanted = F.batch_norm(
        wide(data), wide(mean), wide(variance), wide(weight), wide(bias), eps=1e-3
    )
    invstd = (Tensor(variance) + 1e-3).rsqrt()
    found = Tensor(data).batchnorm(Tensor(weight), Tensor(bias), Tensor(mean), invstd)
    check(found, wanted.numpy())


def test_dropout() -> None:
    ones = Tensor.ones(2000)
    assert ones.dropout(0.3) is ones
    with Tensor.train():
        values = ones.dropout(0.25).numpy()
        assert ones.dropout(1).numpy().sum() == 0
    assert set(np.unique(values)) == {np.float32(0), np.float32(1 / 0.75)}
    assert 0.2 < (values == 0).mean() < 0.3
    with pytest.raises(ArgumentError, match="probability"):
        ones.dropout(1.5)


@pytest.mark.parametrize("settings", [{}, {"is_causal": True}], ids=str)
def test_attention(settings: dict[str, Any]) -> None:
    query, key, value = (random(2, 3, 4, 8, seed=i) for i in range(3))
    wanted = F.scaled_dot_product_attention(wide(query), wide(key), wide(value), **settings)
    found = Tensor(query).scaled_dot_product_attention(Tensor(key), Tensor(value), **settings)
    check(found, wanted.numpy())


def test_attention_with_masks_and_groups() -> None:
    query, key, value = random(2, 4, 5, 8), random(2, 2, 5, 8, seed=1), random(2, 2, 5, 8, seed=2)
    mask = np.tri(5, dtype=bool)
    wanted = F.scaled_dot_product_attention(
        wide(query), wide(key), wide(value), attn_mask=torch.tensor(mask), enable_gqa=True
    )
    found = Tensor(query).scaled_dot_product_attention(
        Tensor(key), Tensor(value), attn_mask=Tensor(mask), enable_gqa=True
    )
    check(found, wanted.numpy())


@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
def test_losses(reduction: str) -> None:
    logits, target = random(6, 5), np.array([0, 4, 2, 1, 1, 3])
    ours, theirs = Tensor(logits), wide(logits)
    numbers, places = Tensor(target.astype(np.int32)), torch.tensor(target)
    for smoothing in (0.0, 0.1):
        wanted = F.cross_entropy(theirs, places, reduction=reduction, label_smoothing=smoothing)
        check(ours.cross_entropy(numbers, reduction, smoothing), wanted.numpy())
        found = ours.sparse_categorical_crossentropy(
            numbers, label_smoothing=smoothing, reduction=reduction
        )
        check(found, wanted.numpy())
    logs = F.log_softmax(theirs, -1)
    wanted = F.nll_loss(logs, places, reduction=reduction, ignore_index=4)
    check(ours.log_softmax().nll_loss(numbers, ignore_index=4, reduction=reduction), wanted.numpy())
    yes = random(6, 5, low=0, high=1, seed=3)
    wanted = F.binary_cross_entropy_with_logits(theirs, wide(yes), reduction=reduction)
    check(ours.binary_crossentropy_logits(Tensor(yes), reduction), wanted.numpy())
    wanted = F.binary_cross_entropy(torch.sigmoid(theirs), wide(yes), reduction=reduction)
    check(ours.sigmoid().binary_crossentropy(Tensor(yes), reduction), wanted.numpy())


def test_ignored_targets() -> None:
    logits = random(3, 4)
    target = np.array([1, -1, 2], dtype=np.int32)
    wanted = F.cross_entropy(wide(logits), torch.tensor(target).long(), ignore_index=-1)
    check(Tensor(logits).sparse_categorical_crossentropy(Tensor(target)), wanted.numpy())


def test_wrong_losses() -> None:
    with pytest.raises(ArgumentError, match='"mean", "sum" or "none"'):
        Tensor([[1.0]]).cross_entropy(Tensor([0]), reduction="max")
    with pytest.raises(DTypeError, match="numbers of classes as ints"):
        Tensor([[1.0]]).cross_entropy(Tensor([0.0]))
    with pytest.raises(ShapeError, match="targets for logits"):
        Tensor([[1.0]]).sparse_categorical_crossentropy(Tensor([0, 1]))


def test_sequential() -> None:
    assert Tensor([-1.0, 2.0]).sequential([Tensor.relu, lambda x: x + 1]).tolist() == [1.0, 3.0]
