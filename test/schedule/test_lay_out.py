"""Operands that could only be gathered are stored in another order of their axes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from weft import Tensor
from weft.codegen.pipeline import lower
from weft.dtype import DType, dtypes
from weft.knobs import Context
from weft.machine import generic
from weft.renderer.cuda import SM_90
from weft.renderer.python import PythonRenderer
from weft.schedule import lay_out as module
from weft.schedule.lay_out import lay_out
from weft.uop.node import UOp
from weft.uop.opset import Ops

DEVICE = "PYTHON:sm_90"
HALF = dtypes.float16
random = np.random.default_rng(7)
GPU: Callable[[object], object] = lambda device: SM_90  # noqa: E731


@pytest.fixture
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LEAST_PRODUCTS", 1)
    monkeypatch.setattr(module, "_LEAST_REUSE", 1)


def empty(*shape: int, dtype: DType = HALF) -> Tensor:
    return Tensor.empty(*shape, dtype=dtype, device=DEVICE)


def stored(value: Tensor, machines: object = GPU) -> list[tuple[int, ...]]:
    """The shapes that are stored in an order of their own."""
    sink = lay_out(UOp.sink(value.uop), machines)  # type: ignore[arg-type]
    return [node.shape for node in sink.toposort() if node.op is Ops.CONTIGUOUS]


def test_images_and_weights_of_a_convolution(of_any_size: None) -> None:
    value = empty(4, 16, 14, 14).conv2d(empty(32, 16, 3, 3), padding=1)
    assert stored(value) == [(4, 14, 14, 16), (32, 3, 3, 16)]


def test_what_is_copied_already_stays(of_any_size: None) -> None:
    assert stored(empty(32, 64) @ empty(64, 32)) == []
    # neighbours along the image are columns; weights of one place are terms
    assert stored(empty(4, 16, 8, 8).conv2d(empty(32, 16, 1, 1))) == []
    assert stored(empty(4, 16, 7, 7).conv2d(empty(32, 16, 1, 1))) == [(4, 7, 7, 16)]


def test_what_cannot_be_copied_in_any_order_stays(of_any_size: None) -> None:
    assert stored(empty(4, 3, 14, 14).conv2d(empty(32, 3, 3, 3))) == []
    assert stored(empty(33, 65) @ empty(65, 31)) == []


def test_numbers_of_eight_bits_have_no_turned_operands(of_any_size: None) -> None:
    x, y = [empty(64, 64, dtype=dtypes.int8).cast(dtypes.int32) for _ in range(2)]
    assert stored(x @ y) == [(64, 64)]
    assert stored(x @ y.T) == []


def test_only_machines_with_tensor_cores_and_products_that_pay() -> None:
    value = empty(4, 16, 14, 14).conv2d(empty(32, 16, 3, 3), padding=1)
    assert stored(value) == []
    large = empty(64, 64, 56, 56).conv2d(empty(64, 64, 3, 3), padding=1)
    assert stored(large) == [(64, 56, 56, 64), (64, 3, 3, 64)]
    assert stored(large, generic) == []
    wide = empty(64, 64, 56, 56, dtype=dtypes.float32).conv2d(empty(64, 64, 3, 3, dtype=HALF))
    assert stored(wide) == []


def test_both_operands_have_the_same_terms_last(of_any_size: None) -> None:
    """The gradient of weights sums over batch and image: windows are whole along the batch only."""
    images, weights = empty(16, 8, 8, 8), empty(8, 8, 3, 3).requires_grad_()
    (gradient,) = images.conv2d(weights, padding=1).float().sum().gradient(weights)
    assert {shape[-1] for shape in stored(gradient)} <= {16, 8}


CONVOLUTIONS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "3x3": (lambda x, w: x.conv2d(w, padding=1), (2, 8, 6, 6), (16, 8, 3, 3)),
    "strided": (lambda x, w: x.conv2d(w, padding=1, stride=2), (2, 8, 7, 7), (16, 8, 3, 3)),
    "twice": (
        lambda x, w: x.conv2d(w, padding=1).relu().conv2d(w, padding=1),
        (1, 16, 6, 6),
        (16, 16, 3, 3),
    ),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_copies_of_whole_pieces(name: str, of_any_size: None) -> None:
    compute, image, weights = CONVOLUTIONS[name]
    arrays = [random.integers(-1, 2, shape).astype(np.float32) for shape in (image, weights)]
    with Context(SPEC=1):
        inputs = [Tensor(a, device=DEVICE).cast(HALF).realize() for a in arrays]
        asts = [step.ast for step in compute(*inputs).schedule()]
        programs = [lower(ast, PythonRenderer(SM_90)) for ast in asts if ast is not None]
        products = [p.uops for p in programs if any(u.op is Ops.WMMA for u in p.uops)]
        assert products
        for uops in products:
            assert {u.arg for u in uops if u.op is Ops.FETCH} == {8}
        got = compute(*inputs).cast(dtypes.float32).numpy()
    wanted = compute(*[Tensor(a, device="CPU") for a in arrays]).numpy()
    np.testing.assert_array_equal(got, wanted)
