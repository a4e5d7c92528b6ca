"""How chains of products are cut: inside of what the target describes, for every width of heads."""

from __future__ import annotations

import pytest

from weft import Tensor, dtypes
from weft.codegen.opt.actions import apply_opt
from weft.codegen.opt.gpu_chains import plan_chain
from weft.codegen.opt.opt import OptOps
from weft.codegen.pipeline import KERNEL_PASSES
from weft.knobs import Context
from weft.renderer.cuda import SM_90
from weft.renderer.python import PythonRenderer
from weft.uop.node import UOp


def kernel_of(width: int, length: int = 4096) -> UOp:
    """Attention as the optimiser gets it."""
    q, k, v = [
        Tensor.empty(1, 2, length, width, dtype=dtypes.bfloat16, device="PYTHON:sm_90")
        for _ in range(3)
    ]
    kernel: UOp = q.scaled_dot_product_attention(k, v, is_causal=True).schedule()[-1].kernel
    for step in KERNEL_PASSES:
        if step.name == "optimise":
            break
        kernel = step(kernel, PythonRenderer(SM_90))
    return kernel


@pytest.mark.parametrize("width", [16, 40, 64, 96, 128, 192, 256])
def test_heads_of_any_width_are_cut_so_that_they_fit(width: int) -> None:
    kernel = kernel_of(width)
    opt = plan_chain(list(kernel.src), SM_90)
    assert opt is not None and opt.op is OptOps.CHAIN
    apply_opt(kernel, opt, SM_90)


def test_other_kernels_and_other_wishes_have_no_plan() -> None:
    kernel = kernel_of(64)
    with Context(USE_TC=0):
        assert plan_chain(list(kernel.src), SM_90) is None
    x = Tensor.empty(64, 64, dtype=dtypes.bfloat16, device="PYTHON:sm_90")
    assert plan_chain(list((x @ x).schedule()[-1].kernel.src), SM_90) is None
