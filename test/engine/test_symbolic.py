"""Symbolic sizes from Variable to result: one compiled kernel serves all values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft import GlobalCounters, Tensor, Variable
from weft.engine.programs import _runners

BASE = np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((8, 5)).astype(np.float32)


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def attention(rows: Tensor) -> Tensor:
    n = rows.shape[0]
    keys = rows.reshape(n, 2, 4).permute(1, 0, 2)
    query = Tensor(BASE[:1].reshape(1, 2, 4)).permute(1, 0, 2)
    return (query @ keys.transpose(1, 2)).softmax(-1) @ keys


def attention_reference(rows: np.ndarray) -> np.ndarray:
    keys = rows.reshape(-1, 2, 4).transpose(1, 0, 2)
    query = BASE[:1].reshape(1, 2, 4).transpose(1, 0, 2)
    return softmax(query @ keys.transpose(0, 2, 1)) @ keys


CASES: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[np.ndarray], np.ndarray]]] = {
    "sum": (lambda t: t.sum(), lambda n: n.sum()),
    "sum of columns": (lambda t: t.sum(0), lambda n: n.sum(0)),
    "mean": (lambda t: t.mean(0), lambda n: n.mean(0)),
    "max": (lambda t: t.max(), lambda n: n.max()),
    "elementwise": (lambda t: (t + 1) * 2, lambda n: (n + 1) * 2),
    "matmul": (lambda t: t @ Tensor(WEIGHT), lambda n: n @ WEIGHT),
    "flip and pad": (lambda t: t.flip(1).pad(((0, 0), (1, 1))).sum(0), lambda n: _padded(n)),
    "attention": (attention, attention_reference),
}


def _padded(n: np.ndarray) -> np.ndarray:
    return np.pad(n[:, ::-1], ((0, 0), (1, 1))).sum(0)


@pytest.mark.parametrize("name", CASES)
def test_sizes_known_at_run_time(name: str) -> None:
    ours, reference = CASES[name]
    size = Variable("size", 1, 16)
    data = Tensor(BASE).realize()
    programs = 0
    for i, n in enumerate((3, 7, 16, 1)):
        found = ours(data[: size.bind(n)]).numpy()
        np.testing.assert_allclose(found, reference(BASE[:n]), rtol=1e-4, atol=1e-5)
        if i == 0:
            programs = len(_runners)
    assert len(_runners) == programs, "another value compiled another program"


def test_assign_at_a_position_known_at_run_time() -> None:
    position = Variable("position", 0, 15)
    cache = Tensor.zeros(16, 8).contiguous().realize()
    expected = np.zeros((16, 8), dtype=np.float32)
    GlobalCounters.reset()
    for n in (2, 9, 15):
        at = position.bind(n)
        cache[at : at + 1].assign(Tensor(BASE[n : n + 1])).realize()
        expected[n] = BASE[n]
    np.testing.assert_array_equal(cache.numpy(), expected)


def test_one_variable_with_two_values_is_refused() -> None:
    size = Variable("size", 1, 16)
    data = Tensor(BASE).realize()
    with pytest.raises(ValueError, match="size is bound to"):
        (data[: size.bind(3)].sum() + data[: size.bind(4)].sum()).realize()
