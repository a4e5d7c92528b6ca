"""Arguments: what of a call is structure, and what is a number, a tensor or a window."""

from __future__ import annotations

import numpy as np
import pytest

from weft import Tensor, Variable
from weft.engine.jit.arguments import Arguments, Signature


def vector(*values: float) -> Tensor:
    return Tensor(list(values)).realize()


def test_numbers_and_memory_are_not_part_of_the_structure() -> None:
    first = Arguments((vector(1, 2), 3, {"k": 0.5}), True)
    second = Arguments((vector(5, 6), 4, {"k": 2.5}), True)
    assert first.structure == second.structure
    assert first.raw == [3, 0.5] and second.raw == [4, 2.5]
    assert first.numbers != second.numbers


def test_shapes_types_and_sharing_are() -> None:
    x, y = vector(1, 2), vector(3, 4)
    structures = [
        Arguments(values, True).structure
        for values in ((x, y), (x, x), (x, vector(1, 2, 3)), (x, [y]), (x, y.reshape(2, 1)), (x, 1))
    ]
    assert len(set(structures)) == len(structures)


def test_a_part_of_a_storage_is_a_window_wherever_it_starts() -> None:
    x = vector(*range(8))
    first, second = Arguments((x[0:2],), True), Arguments((x[4:6],), True)
    assert first.structure == second.structure
    assert [first.windows[0].start, second.windows[0].start] == [0, 4]
    assert Arguments((x[0:2],), False).windows == {}


def test_variables_are_known_by_their_names() -> None:
    n = Variable("n", 1, 8)
    first, second = Arguments((n.bind(3),), True), Arguments((n.bind(5),), True)
    assert first.structure == second.structure and first.variables == {"n": 3}


def test_arrays_are_known_by_their_contents() -> None:
    array = np.arange(4)
    before = Arguments((array,), True).structure
    assert Arguments((array.copy(),), True).structure == before
    array[2] = 7
    assert Arguments((array,), True).structure != before


def test_a_signature_puts_names_in_order() -> None:
    def function(a: int, b: int = 2, *, c: int = 3) -> None: ...

    signature = Signature(function)
    assert signature.order((1,), {}) == (1,)
    assert signature.order((), {"c": 5, "a": 1}) == (1, 2, 5)
    with pytest.raises(TypeError):
        signature.order((), {"b": 1})
    with pytest.raises(TypeError):
        signature.order((1, 2, 3), {})
