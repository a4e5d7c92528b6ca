"""Libraries that speak the array API or NumPy's protocols, on weft's arrays and tensors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import weft.array_api as xp
from test.children import Child
from test.optional import need, optional
from weft import Tensor, TinyJit

pandas = optional("pandas")
ROOT = Path(__file__).resolve().parents[2]


def _said(program: str) -> str:
    """What a program prints; SciPy asks the environment when it is imported."""
    environment = {**os.environ, "SCIPY_ARRAY_API": "1", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "ignore", "-c", program]
    with Child(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        said, complaint = child.communicate()
    assert child.returncode == 0, complaint
    return said


def test_scipy_computes_on_arrays() -> None:
    need("scipy")
    said = _said(
        """
import numpy as np, scipy.special, scipy.stats, scipy.fft, weft.array_api as xp
values = np.random.default_rng(0).standard_normal((6, 4))
x = xp.asarray(values)
for function in (
    lambda a: scipy.special.logsumexp(a, axis=1),
    lambda a: scipy.stats.zscore(a),
    lambda a: scipy.stats.skew(a),
    lambda a: scipy.fft.rfft(a),
):
    found = function(x)
    assert isinstance(found, xp.Array), type(found)
    np.testing.assert_allclose(np.asarray(found), function(values), rtol=1e-10, atol=1e-12)
print("fine")
"""
    )
    assert said.strip() == "fine"


def test_estimators_of_scikit_learn_fit_arrays() -> None:
    need("sklearn")
    said = _said(
        """
import numpy as np, sklearn, weft.array_api as xp
from sklearn.decomposition import PCA
from sklearn.linear_model import Ridge
from sklearn.metrics import r2_score
from sklearn.preprocessing import StandardScaler
values = np.random.default_rng(0).standard_normal((40, 5)).astype(np.float32)
targets = (values @ np.arange(5)).astype(np.float32)
wanted = Ridge(solver="svd").fit(values, targets).predict(values)
reduced = PCA(2, svd_solver="full").fit(values).transform(values)
scaled = StandardScaler().fit(values).transform(values)
x, y = xp.asarray(values), xp.asarray(targets)
with sklearn.config_context(array_api_dispatch=True):
    found = Ridge(solver="svd").fit(x, y).predict(x)
    assert isinstance(found, xp.Array), type(found)
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=1e-4, atol=1e-4)
    assert r2_score(y, found) > 0.99
    mine = PCA(2, svd_solver="full").fit(x).transform(x)
    np.testing.assert_allclose(np.asarray(mine), reduced, rtol=1e-4, atol=1e-4)
    mine = StandardScaler().fit(x).transform(x)
    np.testing.assert_allclose(np.asarray(mine), scaled, rtol=1e-4, atol=1e-5)
print("fine")
"""
    )
    assert said.strip() == "fine"


def test_array_api_compat_knows_the_namespace() -> None:
    compat = need("array_api_compat")
    x = xp.ones((2, 3))
    assert compat.is_array_api_obj(x) and compat.array_namespace(x) is xp
    assert compat.size(x) == 6 and compat.to_device(x, compat.device(x)).shape == (2, 3)


def test_strategies_of_hypothesis_make_arrays() -> None:
    hypothesis = need("hypothesis")
    strategies = need("hypothesis.extra.array_api").make_strategies_namespace(xp)

    @hypothesis.settings(max_examples=12, deadline=None, derandomize=True, database=None)
    @hypothesis.given(strategies.arrays(strategies.real_dtypes(), strategies.array_shapes()))
    def run(x: xp.Array) -> None:
        values = np.asarray(x)
        assert values.shape == x.shape
        assert (np.asarray(xp.flip(x)) == np.flip(values)).all() or np.isnan(values).any()

    run()


# ------------------------------------------------------------ NumPy's protocols
def test_asarray_shares_the_memory_of_a_tensor() -> None:
    t = Tensor([[1.0, 2.0], [3.0, 4.0]], device="CPU").realize()
    array = np.asarray(t)
    assert np.shares_memory(array, np.asarray(t))
    array[0, 0] = 9.0
    assert t.tolist() == [[9.0, 2.0], [3.0, 4.0]]
    assert not np.shares_memory(array, np.array(t)) and not np.shares_memory(array, t.numpy())


def test_shared_memory_outlives_the_tensor() -> None:
    arrays = [np.asarray(Tensor([float(i)] * 8, device="CPU") * 2) for i in range(20)]
    assert [array[0] for array in arrays] == [2.0 * i for i in range(20)]


def test_shared_results_of_a_jitted_function_are_not_overwritten() -> None:
    @TinyJit
    def doubled(x: Tensor) -> Tensor:
        return (x * 2).realize()

    arrays = [np.asarray(doubled(Tensor([float(i)] * 4, device="CPU").realize())) for i in range(5)]
    assert [array[0] for array in arrays] == [0.0, 2.0, 4.0, 6.0, 8.0]


def test_a_copy_that_is_refused() -> None:
    t = Tensor([1.0, 2.0], device="CPU")
    with pytest.raises(ValueError, match="copy=False"):
        t.__array__(np.dtype("float64"), copy=False)
    with pytest.raises(ValueError, match="copy=False"):
        t.bfloat16().__array__(copy=False)
    assert t.__array__(copy=False).tolist() == [1.0, 2.0]


def test_what_numpy_makes_of_tensors() -> None:
    t = Tensor([1.0, 2.0])
    assert isinstance(np.ones(2) + t, Tensor) and isinstance(np.float32(2) * t, Tensor)
    assert isinstance(np.exp(t), np.ndarray) and isinstance(np.concatenate([t, t]), np.ndarray)
    assert np.array([t[0], t[1]]).tolist() == [1.0, 2.0]
    assert float(t[1]) == 2.0 and int(t[1]) == 2 and complex(t[1]) == 2 + 0j


def test_pandas_takes_tensors() -> None:
    frame = pandas.DataFrame({"a": Tensor([1, 2]), "b": Tensor([0.5, 1.5])})
    assert frame["b"].sum() == 2.0
    assert pandas.Series(Tensor([1.0, 2.0])).mean() == 1.5
    assert pandas.DataFrame(Tensor([[1.0, 2.0]])).shape == (1, 2)


def test_matplotlib_draws_tensors() -> None:
    need("matplotlib").use("Agg")
    plot = need("matplotlib.pyplot")
    figure, axes = plot.subplots()
    (line,) = axes.plot(Tensor([1.0, 2.0, 3.0]), Tensor([4.0, 5.0, 6.0]))
    assert line.get_ydata().tolist() == [4.0, 5.0, 6.0]
    axes.bar(Tensor([1, 2]), Tensor([3.0, 4.0]))
    axes.imshow(Tensor([[0.0, 1.0]]))
    axes.plot(xp.asarray([1.0, 2.0]))
    plot.close(figure)


@pytest.mark.device("CPU")
def test_pillow_takes_tensors() -> None:
    image = need("PIL.Image")
    pixels = np.arange(60, dtype=np.uint8).reshape(4, 5, 3)
    assert (np.asarray(image.fromarray(Tensor(pixels))) == pixels).all()
    turned = Tensor(pixels).permute(1, 0, 2)
    assert (np.asarray(image.fromarray(turned)) == pixels.transpose(1, 0, 2)).all()
    gray = Tensor([[0, 128], [255, 1]], dtype="uint8")
    assert image.fromarray(gray).getpixel((1, 0)) == 128


def test_arrays_and_tensors_share_storage() -> None:
    t = Tensor([1.0, 2.0]).realize()
    x = xp.asarray(t)
    x[0] = 5.0
    assert t.tolist() == [5.0, 2.0] and x.tensor is t
    with pytest.raises(TypeError, match="do not mix"):
        x + xp.asarray([1, 2])
    with pytest.raises(TypeError):
        np.ones(2) + x
