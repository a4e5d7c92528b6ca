"""Choices: short axes that choose between computed values are written out."""

from __future__ import annotations

from test.codegen.kernel_builder import Axes, kernel, load
from weft import dtypes
from weft.codegen.opt.choices import choice_opts
from weft.codegen.opt.opt import Opt, OptOps
from weft.uop.node import UOp


def chooses(size: int, is_padding: bool = False) -> list[Opt]:
    a = Axes()
    r, t = a.loop(size), a.loop(16)
    out, x = UOp.param(0, dtypes.float32, size * 16), UOp.param(1, dtypes.float32, 16)
    value = load(x, t)
    other = value.const_like(0.0) if is_padding else value - 1.0
    chosen = (r < 1).where(value + 1.0, other)
    return choice_opts(kernel(out.index(r * 16 + t).store(chosen, r, t)).toposort())


def test_a_short_axis_is_written_out() -> None:
    assert chooses(2) == [Opt(OptOps.UPCAST, (0,), 0)]


def test_long_axes_and_padding_stay_loops() -> None:
    assert chooses(1000) == [] and chooses(2, is_padding=True) == []
