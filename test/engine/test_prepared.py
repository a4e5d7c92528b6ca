"""Prepared schedules hold no value: equal graphs have equal steps."""

from __future__ import annotations

from weft import Tensor, Variable
from weft.engine.schedule import prepare_schedule
from weft.uop.node import UOp


def prepared(tensor: Tensor) -> tuple[object, object]:
    found, request, _ = prepare_schedule(UOp.sink(tensor.uop), "CPU")
    return found, request


def test_another_graph_of_the_same_structure_has_the_same_steps() -> None:
    x, y = (Tensor([1.0, 2.0]).to("CPU").realize() for _ in range(2))
    first, asked = prepared(x * 2)
    second, again = prepared(y * 2)
    assert first is second and asked.key == again.key and asked.inputs != again.inputs
    assert prepared(x * 3)[0] is not first


def test_memory_is_numbered_inputs_first() -> None:
    x = Tensor.ones(64, 64).to("CPU").contiguous().realize()
    found, request = prepared((x @ x).contiguous() @ x)
    assert found.inputs == len(request.inputs) == 1
    numbers = {number for step in found.steps for number, _, _ in step.arguments}
    assert numbers == set(range(found.inputs + len(found.made)))
    assert found.results == [found.inputs + len(found.made) - 1] or found.results[0] in numbers


def test_values_of_variables_are_asked_for_by_name() -> None:
    x = Tensor.ones(8).to("CPU").contiguous().realize()
    n = Variable("n", 1, 8).bind(5)
    _, request = prepared(x.shrink(((0, n),)).sum())
    assert list(request.values.values()) == [5] and list(request.names.values()) == ["n"]
