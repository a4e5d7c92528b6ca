"""Every program runs on weft with its import changed, and agrees with tinygrad on the same weights.

Where tinygrad is installed it runs beside; everywhere else weft is compared with what tinygrad gave
when the programs were recorded (`python -m test.programs.runner --record`).
"""

from __future__ import annotations

import functools
import importlib.util
import shutil
from typing import Any

import numpy as np
import pytest

from test.programs import runner
from weft import Tensor

PROGRAMS = runner.names()

# Of the greatest number of a result. Float32 sums of some hundred terms differ in their order, and
# a few steps of training carry that on.
TOLERANCE = 5e-5
# float16 has 11 bits: one rounding that falls the other way is this much, and it is carried on
HALF = 4e-3
# each step of sampling divides by the root of a number near 0
SAMPLED = 5e-4
TOLERANCES = {
    ("diffusion_unet", "sample"): SAMPLED,
    ("diffusion_unet", "picture"): SAMPLED,
    ("half_training", "losses"): HALF,
    ("half_training", "weight"): HALF,
    ("half_training", "logits"): HALF,
    ("half_training", "sums"): HALF,
    ("half_training", "product"): HALF,
    ("half_training", "softmax"): HALF,
}


@functools.cache
def ours(name: str) -> dict[str, runner.Array]:
    """Both tests of a program look at one run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(runner.FOLDER)
        return runner.execute(name, "weft")


def check(name: str, key: str, found: runner.Array, wanted: runner.Array) -> None:
    """Equal, floats within the tolerance of their result."""
    where = f"{name}: {key}"
    assert found.shape == wanted.shape, where
    assert found.dtype == wanted.dtype, where
    if wanted.dtype.kind != "f":
        np.testing.assert_array_equal(found, wanted, err_msg=where)
        return
    tolerance = TOLERANCES.get((name, key), TOLERANCE)
    finite = np.isfinite(wanted)
    largest = float(np.abs(wanted[finite]).max()) if finite.any() else 0.0
    np.testing.assert_allclose(found, wanted, rtol=0, atol=tolerance * largest, err_msg=where)


@pytest.mark.parametrize("name", PROGRAMS)
def test_program_gives_what_tinygrad_gave(name: str) -> None:
    wanted = runner.recorded(name)
    found = ours(name)
    assert list(found) == list(wanted)
    for key, values in found.items():
        row = runner.summary(values)
        assert (row["dtype"], row["shape"]) == (wanted[key]["dtype"], wanted[key]["shape"]), key
        dtype = np.dtype(row["dtype"])
        kept = [np.array(each["values"], dtype) for each in (row, wanted[key])]
        check(name, key, *kept)


def _why_not_beside() -> str:
    try:
        spec = importlib.util.find_spec(runner.PEER)
    except ModuleNotFoundError:
        # it may be blocked, as by test.bare
        spec = None
    if spec is None:
        return "tinygrad is not installed: pip install tinygrad==0.14.0"
    if shutil.which("clang") is None:
        return "tinygrad's CPU device compiles with clang: apt-get install clang"
    return ""


@pytest.mark.skipif(bool(_why_not_beside()), reason=_why_not_beside())
@pytest.mark.parametrize("name", PROGRAMS)
def test_program_agrees_with_tinygrad(name: str) -> None:
    wanted = runner.execute_peer(name)
    found = ours(name)
    assert list(found) == list(wanted)
    for key, values in wanted.items():
        check(name, key, found[key], values)


def test_only_import_statements_are_changed() -> None:
    source = (
        "import tinygrad\n"
        "from tinygrad.nn import (\n"
        "    Linear,\n"
        ")\n"
        'name = "tinygrad"  # from tinygrad import nothing\n'
    )
    changed = runner.with_import_of(source, "weft")
    assert changed == source.replace("import tinygrad\nfrom tinygrad", "import weft\nfrom weft")


def test_there_are_programs_of_every_kind() -> None:
    assert len(PROGRAMS) >= 20
    recorded = {path.stem for path in runner.EXPECTED.glob("*.json")}
    assert recorded == set(PROGRAMS)


def test_weights_are_the_same_for_every_order_of_names() -> None:
    from test.programs.weights import fill

    def state() -> dict[str, Any]:
        return {"b": Tensor.zeros(3), "a.weight": Tensor.zeros(2, 2), "count": Tensor([1])}

    first, second = state(), dict(reversed(state().items()))
    fill(first)
    fill(second)
    for name, values in first.items():
        np.testing.assert_array_equal(values.numpy(), second[name].numpy())
    assert first["count"].tolist() == [1]
