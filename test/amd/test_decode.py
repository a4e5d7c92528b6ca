"""LLVM's vectors decode to the right mnemonic, and operands say what they are."""

from __future__ import annotations

import random
import re

import pytest

from test.amd.corpus import vectors
from weft.amd.decode import decode, decode_all, decoder
from weft.amd.targets import TARGETS
from weft.errors import DataError, WeftError

SUFFIX = re.compile(r"_(e32|e64|dpp|sdwa|e64_dpp)$")


def base(mnemonic: str) -> str:
    return SUFFIX.sub("", mnemonic)


def test_vectors_decode_to_the_right_mnemonic_and_size() -> None:
    for vector in vectors(every=20):
        instruction = decode(vector.data, vector.target)
        assert base(instruction.row.mnemonic) == base(vector.text.split()[0]), vector
        assert instruction.size == len(vector.data), vector


def test_what_follows_does_not_change_an_instruction() -> None:
    random_bytes = random.Random(1)
    for vector in vectors(every=60, first=7):
        if vector.target in ("gfx942", "gfx950") or vector.text == "v_illegal":
            continue
        rest = random_bytes.randbytes(16)
        instruction = decode(vector.data + rest, vector.target)
        assert instruction.size == len(vector.data), vector


def test_a_program_decodes_one_after_the_other() -> None:
    code = bytes.fromhex("03000606ff0006108000803f000080bf0000b0bf")
    found = decode_all(code, "gfx1100")
    assert [each.offset for each in found] == [0, 4, 12, 16]
    assert [each.mnemonic for each in found][-1] == "s_endpgm"


def test_operands_of_a_vector_instruction() -> None:
    # v_fma_f32 v5, -v1, |s2|, 0.5
    instruction = decode(bytes.fromhex("050213d60105c023"), "gfx1100")
    assert instruction.mnemonic == "v_fma_f32"
    assert instruction.encoding == "vop3"
    vdst, src0, src1, src2 = (instruction.operands[n] for n in ("vdst", "src0", "src1", "src2"))
    assert (vdst.kind, vdst.index, vdst.is_result) == ("v", 5, True)
    assert (src0.kind, src0.index, src0.neg, src0.abs) == ("v", 1, True, False)
    assert (src1.kind, src1.index, src1.abs, src1.register) == ("s", 2, True, "s2")
    assert (src2.kind, src2.value, src2.type) == ("constant", 0x3F000000, "f32")


def test_constants_are_the_bits_that_the_operand_reads() -> None:
    # v_add_f64 v[5:6], 1.0, 0x40000000 (the literal is the high half)
    instruction = decode(bytes.fromhex("050027d7f2fe010000000040"), "gfx1100")
    assert instruction.operands["src0"].value == 0x3FF0000000000000
    assert instruction.operands["src1"].value == 0x4000000000000000
    assert instruction.operands["vdst"].count == 2


def test_halves_of_true16_registers() -> None:
    # v_add_f16 v5.h, v1.l, v2.h
    instruction = decode(bytes.fromhex("01050b65"), "gfx1100")
    assert instruction.operands["vdst"].register == "v5.h"
    assert instruction.operands["src0"].half == 0
    assert instruction.operands["src1"].register == "v2.h"


def test_dual_issue_has_two_names() -> None:
    instruction = decode(bytes.fromhex("f00624c9f00406ff"), "gfx1100")
    assert instruction.mnemonics == ("v_dual_add_f32", "v_dual_and_b32")
    assert instruction.operands["vdstX"].index == 255
    assert instruction.operands["vdstY"].index == 6


def test_branches_say_where_they_go() -> None:
    instruction = decode(bytes(4) + bytes.fromhex("feffa0bf"), "gfx1100", offset=4)
    assert instruction.mnemonic == "s_branch"
    assert instruction.branch_target == 0


def test_accumulation_registers() -> None:
    # ds_read_u16 a5, v1 offset:4
    instruction = decode(bytes.fromhex("040078da01000005"), "gfx950")
    assert instruction.operands["vdst"].register == "a5"
    assert instruction.operands["offset"].value == 4


@pytest.mark.parametrize("data", [b"", b"\x00", bytes.fromhex("ffffffff")])
def test_what_is_no_instruction_is_an_error(data: bytes) -> None:
    with pytest.raises(DataError):
        decode(data, "gfx1100")


def test_random_bytes_decode_or_are_an_error() -> None:
    source = random.Random(2)
    for name in TARGETS:
        reader = decoder(name)
        for _ in range(1500):
            try:
                instruction = reader.decode(source.randbytes(source.choice((4, 8, 12, 16, 20))))
            except WeftError:
                continue
            assert instruction.size in (4, 8, 12, 16)
