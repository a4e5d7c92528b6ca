"""Templates: a filled one is the graph that building again would give."""

from __future__ import annotations

import pytest

from weft.dtype import dtypes
from weft.errors import ArgumentError
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.scatter import new_state
from weft.uop.template import Template, is_copyable, stand_in

SHAPE = (2, 3)


def built(x: UOp, y: UOp) -> tuple[UOp, UOp]:
    """A graph with constants, movement, a reduction, and a result that is an input."""
    total = (x * 2.0 + y).sum(1, keepdim=True)
    return (total.expand(SHAPE) * x).permute((1, 0)), y


def inputs() -> list[UOp]:
    return [UOp.new_buffer("CPU", 6, dtypes.float32)._mop(Ops.RESHAPE, SHAPE) for _ in range(2)]


def test_a_filled_template_is_the_graph_itself() -> None:
    holes = [stand_in("CPU", SHAPE, dtypes.float32) for _ in range(2)]
    template = Template(holes, built(*holes))
    for _ in range(2):
        given = inputs()
        wanted = built(*given)
        found = template.fill(given)
        assert found[0] is wanted[0] and found[1] is wanted[1]
        assert found[0].shape == (3, 2) and found[0].device == "CPU"


def test_every_copy_has_storage_of_its_own() -> None:
    hole = stand_in("CPU", SHAPE, dtypes.float32)
    template = Template([hole], [new_state(hole, "CPU", SHAPE)])
    given = inputs()[0]
    first, second = (template.fill([given])[0] for _ in range(2))
    assert first is not second
    assert first.base.src[0].base is not second.base.src[0].base
    assert first.src[1].src[1] is given


def test_the_line_of_the_user_is_that_of_the_call() -> None:
    hole = stand_in("CPU", SHAPE, dtypes.float32)
    template = Template([hole], [hole * 3.0])
    assert template.fill([inputs()[0]], ("a.py", 7))[0].origin == ("a.py", 7)


def test_what_has_an_identity_has_no_copies() -> None:
    hole = stand_in("CPU", SHAPE, dtypes.float32)
    assert is_copyable([hole * 3.0])
    assert not is_copyable([(hole * 3.0).rtag("mine") + 1.0])


def test_a_template_takes_as_many_inputs_as_it_has() -> None:
    hole = stand_in("CPU", SHAPE, dtypes.float32)
    with pytest.raises(ArgumentError, match="1 inputs got 2"):
        Template([hole], [hole]).fill(inputs())
