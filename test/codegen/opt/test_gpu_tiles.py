"""GPU tiles: products become fragments where the machine has them."""

from __future__ import annotations

import random

from test.codegen.opt.kernels import matmul
from weft.codegen.opt.gpu_tiles import plan_fragments
from weft.machine import Target


def test_a_machine_without_fragments_gets_none() -> None:
    ast, _ = matmul(random.Random(2), 64)
    assert plan_fragments(list(ast.src), Target(has_local=True)) is None
