"""Calls: keys with and without numbers, and the knobs that a call depends on."""

from __future__ import annotations

from weft import Context, Tensor
from weft.engine.jit.arguments import Arguments
from weft.engine.jit.calls import JitCall, knobs_now, numbers_replaced
from weft.engine.jit.guards import Guards
from weft.engine.jit.parameters import Number, NumberBook
from weft.engine.jit.scope import Scope, root_codes

SCALE = {"by": 2.0}


def scaled(x: Tensor, times: int) -> Tensor:
    return x * times * SCALE["by"]


def call_of(times: int) -> JitCall:
    arguments = Arguments((Tensor([1.0]).realize(), times), True)
    guards = Guards(scaled, Scope(root_codes(scaled)))
    return JitCall(arguments, guards, ("shape",))


def test_numbers_are_part_of_the_key_unless_kernels_take_them() -> None:
    first, second = call_of(3), call_of(4)
    for call in (first, second):
        call.make_key(None)
    assert first.key != second.key
    position = first.raw.index(3)
    for call in (first, second):
        call.make_key(frozenset((position,)))
    assert first.key == second.key and first.given == {position: 3}


def test_numbers_outside_of_the_arguments_have_an_owner() -> None:
    call = call_of(3)
    assert call.raw == [3, 2.0]
    owner = call.owner(1)
    assert call.owner(0) is None and owner is not None and owner.value() == 2.0


def test_numbers_are_replaced_and_put_back() -> None:
    call = call_of(3)
    call.make_key(frozenset((0, 1)))
    with numbers_replaced(call, NumberBook()) as values:
        assert isinstance(values[1], Number) and isinstance(SCALE["by"], Number)
    assert SCALE["by"] == 2.0


def test_knobs_are_asked_again_when_one_is_turned() -> None:
    before = knobs_now()
    assert knobs_now() is before
    with Context(TRAINING=1):
        inside = knobs_now()
        assert inside.key != before.key
    with Context(JIT=0):
        assert knobs_now().is_off
    assert knobs_now().key == before.key and not before.is_off
