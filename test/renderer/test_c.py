"""C: every kernel of the corpus, compiled with the system's compiler, computes the same."""

from __future__ import annotations

import numpy as np
import pytest

from test.renderer.corpus import PROGRAMS, cases_of, check_contents
from test.renderer.programs import run_c
from weft.codegen.pipeline import lower
from weft.knobs import Context
from weft.machine import Target
from weft.renderer.c import CRenderer

PLAIN = Target(name="c", vector_bytes=0)
LANES = Target(name="c with vectors", vector_bytes=32, vector_registers=16, has_fma=True)


@pytest.mark.parametrize("target", [PLAIN, LANES], ids=lambda target: str(target.name))
@pytest.mark.parametrize("name", PROGRAMS)
def test_every_kernel_computes_the_same(name: str, target: Target) -> None:
    renderer = CRenderer(target)
    for case in cases_of(name):
        with Context(SPEC=1):
            spec = lower(case.kernel, renderer)
        buffers = [np.frombuffer(contents, np.uint8).copy() for contents in case.before]
        values = [case.values[variable.arg.name] for variable in spec.variables]
        run_c(list(spec.uops), buffers, values, spec.threads_n, renderer)
        check_contents(case, spec, [buffer.tobytes() for buffer in buffers])
