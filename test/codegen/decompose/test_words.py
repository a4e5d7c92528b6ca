"""Words: where values are placed, and what constants fold to. `test_longs` runs whole programs."""

from __future__ import annotations

from weft.codegen.decompose.words import WORD, Words, constant_of
from weft.dtype import dtypes
from weft.uop.node import UOp
from weft.uop.opset import Ops
from weft.uop.spec import program_spec, type_verify


def variable(name: str) -> UOp:
    return UOp.variable(name, 0, 0xFFFFFFFF, WORD)


def test_values_stand_outside_of_loops_they_do_not_need() -> None:
    words = Words([])
    x = words.write(variable("x"))
    loop = words.loop(8)
    outside = words.add(words.multiply(x, 3), 1)
    inside = words.add(words.unsigned(loop), outside)
    words.close(loop)
    again = words.add(words.multiply(x, 3), 1)
    program = words.program()
    assert again is outside and program.count(outside) == 1
    places = {u: place for place, u in enumerate(program)}
    assert places[outside] < places[loop] < places[inside]
    type_verify(program, program_spec, "words")


def test_registers_and_loops_have_numbers_of_their_own() -> None:
    taken = UOp(Ops.ACC, WORD, (UOp.const(WORD, 0),), 4)
    words = Words([taken])
    register = words.register(UOp.const(WORD, 1))
    loop = words.loop(3)
    words.set(register, words.add(words.read(register, loop), 1))
    end = words.close(loop)
    words.read(register, end)
    assert register.arg == 5
    type_verify(words.program(), program_spec, "words")


def test_constants_fold() -> None:
    words = Words([])
    x = words.write(variable("x"))
    assert words.add(x, 0) is x and words.multiply(x, 1) is x and words.bits_and(x, 0xFFFFFFFF) is x
    assert (
        constant_of(words.multiply(x, 0)) == 0 and constant_of(words.left(words.like(0, x), 3)) == 0
    )
    big = words.constant(0xFFFFFFFF)
    assert constant_of(words.add(big, 2)) == 1
    assert constant_of(words.less(words.constant(1), big)) is True
    assert constant_of(words.sign_of(big)) == 0xFFFFFFFF
    assert words.where(words.constant(True, dtypes.bool), x, big) is x
    assert words.unsigned(words.signed(x)) is x


def test_lanes_come_apart_and_together() -> None:
    words = Words([])
    lanes = [words.write(variable(name)) for name in "xy"]
    vector = words.vector(lanes)
    assert words.lanes(vector) == lanes and vector.dtype is WORD.vec(2)
    total = words.add(vector, vector)
    assert [lane.op for lane in words.lanes(total)] == [Ops.GEP, Ops.GEP]
