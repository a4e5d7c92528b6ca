"""Updates of reductions in ops that the renderer has."""

from __future__ import annotations

import numpy as np

from test.codegen.kernel_builder import Axes, interpret, kernel, linear_program, load, params
from weft.codegen.decompose_updates import decompose_updates
from weft.renderer.c import CRenderer
from weft.renderer.python import PythonRenderer
from weft.uop.opset import Ops


def program() -> tuple[list[np.ndarray], list[object]]:
    arrays = [np.zeros(1, np.float32), np.array([3.0, -1.0, np.nan, 7.0], np.float32)[:2].copy()]
    out, x = params(*arrays)
    a = Axes()
    r = a.reduce(2)
    sink = kernel(out.index(r.const_like(0)).store(load(x, r).reduce(Ops.MAX, r)))
    return arrays, list(linear_program(sink))


def test_what_the_renderer_has_is_left_alone() -> None:
    _, uops = program()
    renderer = PythonRenderer()
    assert renderer.is_native(Ops.MAX) and decompose_updates(uops, renderer) == uops


def test_a_maximum_becomes_comparisons_where_it_stood() -> None:
    arrays, uops = program()
    renderer = CRenderer()
    assert not renderer.is_native(Ops.MAX)
    changed = decompose_updates(uops, renderer)
    assert not any(u.op is Ops.MAX for u in changed)
    placed = {u: number for number, u in enumerate(changed)}
    assert all(placed[s] < placed[u] for u in changed for s in u.src if s in placed)
    interpret(changed, arrays)
    assert arrays[0][0] == 3.0
