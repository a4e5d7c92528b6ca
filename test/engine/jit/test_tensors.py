"""Tensors for the JIT: structure without memory, windows, stand-ins."""

from __future__ import annotations

import pytest

from weft import Tensor, Variable
from weft.engine.jit.tensors import Kind, StandIn, bind_again, describe, free_of, window_of


def vector(size: int) -> Tensor:
    return Tensor.arange(size).float().contiguous().realize()


def test_a_structure_holds_no_memory() -> None:
    first, second = describe(vector(4)), describe(vector(4))
    assert first.structure == second.structure and first.storage is not second.storage
    others = (vector(5), vector(4).reshape(2, 2), vector(4).flip(0), Tensor(3.0))
    structures = {describe(tensor).structure for tensor in (vector(4), *others)}
    assert len(structures) == 5


def test_variables_are_freed_and_bound_again() -> None:
    n = Variable("n", 1, 8)
    free, values = free_of((n.bind(3) + 1, 5))
    assert values == {"n": 3} and free == (n + 1, 5)
    assert bind_again(free, {"n": 4})[0].unbind_all()[1] == {n: 4}
    with pytest.raises(KeyError):
        free_of((n.bind(3), n.bind(4)))


def test_windows_are_runs_of_elements() -> None:
    x = vector(12)
    window = window_of(x[3:7])
    assert window is not None and (window.start, window.size, window.rest) == (3, 4, ())
    rows = window_of(x.reshape(3, 4)[1:3].permute(1, 0))
    assert rows is not None and (rows.start, rows.size) == (4, 8) and len(rows.rest) == 1
    for view in (x, x.reshape(12), x.reshape(3, 4)[:, 1:3], x[0:12]):
        assert window_of(view) is None


def test_stand_ins_share_memory_under_a_node_of_their_own() -> None:
    x = vector(6)
    whole = StandIn(x._cell, None)
    assert whole.node is not whole.storage and whole.original_of(whole.cell.value) is x.uop
    part = StandIn(x._cell, window_of(x[2:5]))
    assert part.node.arg.size == 3
    assert Tensor._view_of(part.cell, ()).tolist() == [2.0, 3.0, 4.0]


def test_kinds_say_what_python_can_ask() -> None:
    assert Kind.of(vector(3)) == Kind.of(vector(3)) != Kind.of(vector(3).half().realize())
