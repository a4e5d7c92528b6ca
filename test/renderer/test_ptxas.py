"""Kernels for NVIDIA GPUs through NVIDIA's assembler: it takes all of them, and they stay small."""

from __future__ import annotations

import pytest

from test.renderer.corpus import PROGRAMS
from test.renderer.large_kernels import LARGE
from test.renderer.ptxas import assemble, budget_of, budgets, specs_of
from weft.machine import Target
from weft.renderer.cuda import SM_90, cuda_target
from weft.runtime.nvptx import emit_ptx

CHIPS = (
    cuda_target(7, 5, cores=40, l2=4 << 20),
    cuda_target(8, 0, cores=108, l2=40 << 20),
    cuda_target(8, 9, cores=128, l2=72 << 20),
    cuda_target(10, 0, cores=148, l2=126 << 20),
)
# what chips differ in: conversions, and the greater of two
DIFFERENT = [name for name in PROGRAMS if "cast_" in name or name in ("max_rows", "softmax")]


@pytest.mark.parametrize("name", LARGE)
def test_kernels_stay_inside_their_budgets(name: str) -> None:
    kept = budgets()
    for kernel, spec in specs_of(name):
        found = budget_of(assemble(emit_ptx(spec.src, SM_90.name), SM_90.name))
        assert kernel in kept, f"{kernel} is new: python -m test.renderer.ptxas"
        inside = [used <= most for used, most in zip(found, kept[kernel], strict=True)]
        assert all(inside), f"{kernel} takes {found}, its budget is {kept[kernel]}"


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kernel_of_the_corpus_assembles_without_spills(name: str) -> None:
    for kernel, spec in specs_of(name):
        assert assemble(emit_ptx(spec.src, SM_90.name), SM_90.name)["spills"] == 0, kernel


@pytest.mark.parametrize("chip", CHIPS, ids=lambda chip: chip.name)
@pytest.mark.parametrize("name", [*LARGE, *DIFFERENT])
def test_kernels_assemble_for_other_chips(name: str, chip: Target) -> None:
    for _, spec in specs_of(name, chip):
        assemble(emit_ptx(spec.src, chip.name), chip.name)
