"""Products of matrices as fragments: right in the interpreter of the GPU, or refused by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from test.fuzz import products
from weft import Tensor
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.fragments import Tiling
from weft.codegen.opt.gpu_tiles import plan_fragments
from weft.codegen.opt.opt import Opt, OptError, OptOps
from weft.codegen.pipeline import KERNEL_PASSES, lower
from weft.dtype import DType, dtypes
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.cuda import SM_90
from weft.renderer.python import PythonRenderer
from weft.uop.args import KernelInfo
from weft.uop.node import UOp
from weft.uop.opset import Ops

DEVICE = "PYTHON:sm_90"
HALF, BRAIN = dtypes.float16, dtypes.bfloat16
random = np.random.default_rng(9)


def whole(*shape: int) -> np.ndarray:
    """Numbers whose products and sums all types hold."""
    return random.integers(-3, 4, shape).astype(np.float32)


def given(array: np.ndarray, dtype: DType) -> Tensor:
    return Tensor(array, device=DEVICE).cast(dtype).realize()


def kernels(value: Tensor) -> list[UOp]:
    asts = [step.ast for step in value.schedule()]
    return [ast for ast in asts if ast.op is Ops.SINK and isinstance(ast.arg, KernelInfo)]


def check(
    compute: Callable[..., Any],
    *arrays: np.ndarray,
    dtype: DType = HALF,
    spec: int = 1,
    reference: Callable[..., Any] | None = None,
) -> None:
    """The value on the interpreter of the GPU is NumPy's, and a kernel of it has fragments."""
    with Context(SPEC=spec):
        inputs = [given(array, dtype) for array in arrays]
        programs = [lower(ast, PythonRenderer(SM_90)) for ast in kernels(compute(*inputs))]
        assert any([u.op is Ops.WMMA for program in programs for u in program.uops])
        got = compute(*inputs).cast(dtypes.float32).numpy()
    if reference is None:
        with Context(ALLOW_TF32=0):
            wanted = compute(*[Tensor(array, device="CPU") for array in arrays]).numpy()
    else:
        wanted = reference(*arrays)
    np.testing.assert_array_equal(got, wanted)


# ------------------------------------------------------------ right
@pytest.mark.parametrize("dtype", [HALF, BRAIN, dtypes.fp8e4m3], ids=str)
@pytest.mark.parametrize("turned", ["", "a", "b", "ab"])
def test_products_of_either_layout(dtype: DType, turned: str) -> None:
    a = whole(32, 24) if "a" in turned else whole(24, 32)
    b = whole(20, 32) if "b" in turned else whole(32, 20)

    def compute(x: Tensor, y: Tensor) -> Tensor:
        x, y = x.T if "a" in turned else x, y.T if "b" in turned else y
        return x.cast(dtypes.float32) @ y.cast(dtypes.float32)

    check(compute, a, b, dtype=dtype)


@pytest.mark.parametrize("shape", [(16, 16, 16), (33, 17, 70)])
def test_sizes_that_do_not_divide_are_proven_and_right(shape: tuple[int, int, int]) -> None:
    rows, columns, terms = shape
    check(lambda x, y: x @ y, whole(rows, terms), whole(terms, columns), spec=2)


def test_integers_are_summed_in_32_bits() -> None:
    a, b = [random.integers(-128, 128, shape) for shape in ((20, 70), (70, 18))]
    x, y = [Tensor(v.astype(np.int8), device=DEVICE).realize().cast(dtypes.int32) for v in (a, b)]
    (ast,) = kernels(x @ y)
    assert lower(ast, PythonRenderer(SM_90)).applied[0].op is OptOps.TC  # type: ignore[attr-defined]
    np.testing.assert_array_equal((x @ y).numpy(), a @ b)


def test_float32_needs_permission() -> None:
    a, b = whole(20, 40), whole(40, 24)
    (ast,) = kernels(given(a, dtypes.float32) @ given(b, dtypes.float32))
    assert plan_fragments(list(ast.src), SM_90) is None
    with Context(ALLOW_TF32=1):
        check(lambda x, y: x @ y, a, b, dtype=dtypes.float32)
        # without: rounded to 10 bits
        fine = np.full((16, 16), 1 + 2.0**-12, np.float32)
        got = (given(fine, dtypes.float32) @ given(fine, dtypes.float32)).numpy()
    assert (got == 16).all()


PROLOGUES: dict[str, Callable[..., Tensor]] = {
    "relu": lambda x, w: x.relu() @ w,
    "negated": lambda x, w: (-x) @ w,
    "rounded": lambda x, w: (x * 2 + 1) @ w,
}
EPILOGUES: dict[str, Callable[..., Tensor]] = {
    "bias": lambda x, w, b: (x @ w + b[0]).relu(),
    "residual": lambda x, w, b: x @ w + b,
    "turned": lambda x, w, b: (x @ w + b).T.contiguous(),
    "heads": lambda x, w, b: (x @ w).reshape(2, 9, 2, 11).permute(0, 2, 1, 3).contiguous(),
}


@pytest.mark.parametrize("name", PROLOGUES)
def test_what_is_done_to_operands(name: str) -> None:
    check(PROLOGUES[name], whole(18, 40), whole(40, 22))


@pytest.mark.parametrize("name", EPILOGUES)
def test_what_is_done_to_outputs(name: str) -> None:
    check(EPILOGUES[name], whole(18, 40), whole(40, 22), whole(18, 22))


def test_batches_and_broadcasts() -> None:
    check(lambda x, y: x @ y, whole(2, 3, 17, 32), whole(3, 32, 18))


CONVOLUTIONS: dict[str, tuple[Callable[..., Tensor], tuple[int, ...], tuple[int, ...]]] = {
    "3x3": (lambda x, w: x.conv2d(w, padding=1), (2, 4, 6, 6), (16, 4, 3, 3)),
    "strided": (lambda x, w: x.conv2d(w, padding=1, stride=2), (2, 8, 7, 7), (16, 8, 3, 3)),
    "1x1": (lambda x, w: x.conv2d(w), (2, 20, 5, 5), (18, 20, 1, 1)),
    "grouped": (lambda x, w: x.conv2d(w, groups=2), (1, 4, 8, 8), (32, 2, 3, 3)),
}


@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions_are_products_over_batch_and_image(name: str) -> None:
    compute, image, weights = CONVOLUTIONS[name]
    check(compute, whole(*image), whole(*weights))


@pytest.mark.parametrize("seed", range(4))
def test_random_products(seed: int) -> None:
    """A share of `python -m test.fuzz.products`."""
    assert products.check(seed) is None


# ------------------------------------------------------------ the plan of a tile
def product_kernel(rows: int = 64, columns: int = 64, terms: int = 128) -> UOp:
    a, b = [Tensor.empty(*shape, dtype=BRAIN) for shape in ((rows, terms), (terms, columns))]
    (ast,) = kernels(a @ b)
    return lower_inputs(ast)


def lower_inputs(ast: UOp) -> UOp:
    """The kernel as the optimiser gets it."""
    for step in KERNEL_PASSES:
        if step.name in ("simplify", "widen"):
            ast = step(ast, PythonRenderer(SM_90))
    return ast


def tiling(**changes: Any) -> Tiling:
    sizes = dict(row_warps=1, column_warps=1, row_fragments=1, column_fragments=1)
    sizes |= dict(term_fragments=2, depth=2) | changes
    names = {"rows": ((0,),), "columns": ((1,),), "fragment": 1}
    return Tiling(**{**names, **sizes})  # type: ignore[arg-type]


def test_no_fragments_where_they_are_switched_off() -> None:
    with Context(USE_TC=0):
        assert plan_fragments(list(product_kernel().src), SM_90) is None
    assert plan_fragments(list(product_kernel().src), SM_90) is not None


def test_a_tiling_is_an_action_and_back() -> None:
    wanted = tiling(rows=((0,), (1,)), columns=((3, 1),), depth=5)
    assert Tiling.from_opt(wanted.opt((2,))) == wanted


REFUSED: list[tuple[Opt, str]] = [
    (Opt(OptOps.TC, (2,), (1, 2)), "needs a tiling"),
    (tiling(depth=0).opt((2,)), "positive numbers"),
    (Opt(OptOps.TC, (2,), (1, 1, 1, 1, 1, 1, 1, 2, (0,), (1,))), "axes of rows and of columns"),
    (tiling(fragment=99).opt((2,)), "found number 99"),
    (tiling(fragment=0).opt((2,)), "no sum of products"),
    (tiling().opt((1,)), "reduced 0 times"),
    (tiling(columns=((0,),)).opt((2,)), "and once"),
    (tiling(depth=64, row_fragments=4, row_warps=4).opt((2,)), "bytes"),
    (tiling(row_warps=8, column_warps=8).opt((2,)), "threads"),
]


@pytest.mark.parametrize(("opt", "reason"), REFUSED, ids=lambda x: x if isinstance(x, str) else "")
def test_what_is_refused(opt: Opt, reason: str) -> None:
    with pytest.raises(OptError, match=reason):
        apply_opt(product_kernel(64, 64, 4096), opt, SM_90)


def test_targets_without_fragments_refuse() -> None:
    with pytest.raises(OptError, match="no tensor-core fragments"):
        apply_opt(product_kernel(), tiling().opt((2,)), Target(has_local=True))
    assert plan_fragments(list(product_kernel().src), Target(has_local=True)) is None


TILINGS = [
    tiling(row_warps=2, column_warps=2),
    tiling(row_fragments=2, column_fragments=2, depth=3),
    tiling(term_fragments=4, depth=4, column_warps=2),
    tiling(term_fragments=1, depth=1),
    tiling(term_fragments=2, depth=8),
]


@pytest.mark.parametrize("number", range(len(TILINGS)))
def test_every_tiling_computes_the_same(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    opt = TILINGS[number].opt((2,))
    monkeypatch.setattr("weft.codegen.opt.gpu.plan_fragments", lambda stores, target: opt)
    a, b = given(whole(40, 72), BRAIN), given(whole(72, 20), BRAIN)
    with Context(SPEC=1 + (number == 2), CCACHE=0, PYTHON_SEED=number):
        steps = (a @ b).cast(dtypes.float32)
        np.testing.assert_array_equal(steps.numpy(), a.float().numpy() @ b.float().numpy())


def test_the_plan_fits_the_machine() -> None:
    for shape in ((4096, 4096, 4096), (8192, 64, 512), (100, 100, 5000)):
        ast = product_kernel(*shape)
        opt = plan_fragments(list(ast.src), SM_90)
        assert opt is not None
        program = lower(ast, PythonRenderer(SM_90))
        assert program.applied == (opt,)
        threads = program.local_size[0] * program.local_size[1] * program.local_size[2]
        assert threads <= SM_90.group_threads
    small = product_kernel(8, 8, 8)
    assert plan_fragments(list(small.src), SM_90) is None
