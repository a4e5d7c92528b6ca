"""The minute's check: if these pass, the spine holds."""

from __future__ import annotations

import pickle

import numpy as np

from weft import GlobalCounters, Tensor, dtypes


def test_add() -> None:
    assert (Tensor([1, 2, 3]) + Tensor([4, 5, 6])).tolist() == [5, 7, 9]


def test_constants_fold() -> None:
    GlobalCounters.reset()
    assert (Tensor(2.0) * 3).item() == 6.0
    assert Tensor.ones(2, 2).tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert GlobalCounters.kernel_count == 0


def test_fused() -> None:
    x = Tensor(np.linspace(-1, 1, 20, dtype=np.float32)).realize()
    GlobalCounters.reset()
    result = ((x * 2 + 1).relu().exp() / 3).sum().item()
    assert GlobalCounters.kernel_count == 1
    wanted = (np.exp(np.maximum(np.linspace(-1, 1, 20) * 2 + 1, 0)) / 3).sum()
    np.testing.assert_allclose(result, wanted, rtol=1e-6)


def test_matmul() -> None:
    a = np.random.default_rng(0).standard_normal((13, 17)).astype(np.float32)
    np.testing.assert_allclose((Tensor(a) @ Tensor(a.T)).numpy(), a @ a.T, rtol=1e-5, atol=1e-5)


def test_softmax_of_rows() -> None:
    a = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
    power = np.exp(a - a.max(-1, keepdims=True))
    wanted = power / power.sum(-1, keepdims=True)
    np.testing.assert_allclose(Tensor(a).softmax().numpy(), wanted, rtol=1e-5)


def test_conv() -> None:
    image, kernel = Tensor.ones(1, 2, 5, 5), Tensor.ones(3, 2, 3, 3)
    assert image.conv2d(kernel, padding=1)[0, 0].tolist()[2] == [12.0, 18.0, 18.0, 18.0, 12.0]


def test_views_and_writes() -> None:
    tensor = Tensor.zeros(3, 3)
    tensor[1, ::2] = 4
    tensor += 1
    assert tensor.tolist() == [[1.0, 1.0, 1.0], [5.0, 1.0, 5.0], [1.0, 1.0, 1.0]]


def test_random() -> None:
    Tensor.manual_seed(0)
    assert Tensor.rand(1).item() == 0.671845555305481


def test_half() -> None:
    assert (Tensor([1.5, 2.5], dtype=dtypes.float16) * 2).tolist() == [3.0, 5.0]


def test_pickle() -> None:
    assert pickle.loads(pickle.dumps(Tensor([1, 2]) * 2)).tolist() == [2, 4]


def test_other_devices_agree() -> None:
    data = np.random.default_rng(0).standard_normal((3, 4)).astype(np.float32)
    results = [
        (Tensor(data, device=device).exp().sum(0) * 2).numpy() for device in ("CPU", "PYTHON")
    ]
    np.testing.assert_allclose(results[0], results[1], rtol=1e-6)
