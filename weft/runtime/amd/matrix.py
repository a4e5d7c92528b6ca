"""Helpers of products of matrices: WMMA and MFMA.

In: a `Form` whose extra is (rows, columns, terms, how A, B and C lie in lanes). Out: the text of
its helper. On top of `text.py`.
Invariant: a sum begins with C and takes its terms in order, each product fused with the sum before.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from weft.errors import CompileError
from weft.runtime.amd.forms import Form
from weft.runtime.amd.text import HelperText

_NAME = re.compile(r"v_(wmma|mfma)_(f32|i32|f16|bf16)_(\d+)x(\d+)x(\d+)_?(\w+?)(?:_1k)?\Z")


@dataclass(frozen=True)
class Product:
    """A product of matrices and where its elements are."""

    kind: str  # wmma11, wmma12, mfma
    result: str  # f32 or i32
    terms: int
    a: str  # element types: f16, bf16, u8, i8, fp8, bf8
    b: str


def product_of(mnemonic: str, family: str) -> Product | None:
    """What an instruction multiplies; None for those that are not known."""
    match = _NAME.match(mnemonic)
    if match is None:
        return None
    kind, result, rows, columns, terms, element = match.groups()
    if (rows, columns) != ("16", "16") or result not in ("f32", "i32"):
        return None
    if kind == "wmma":
        kind = "wmma11" if family == "rdna3" else "wmma12"
    names = element.split("_")
    if any([name not in ("f16", "bf16", "iu8", "i8", "fp8", "bf8") for name in names]):
        return None
    return Product(kind, result, int(terms), names[0], names[-1])


def element_of(product: Product, operand: str, register: int, lane: int) -> tuple[int, int]:
    """(row, column) of an element that a lane holds in a register; one register per element."""
    place, group = lane % 16, lane // 16
    if operand == "c":
        if product.kind == "wmma11":
            return 2 * register + group, place
        if product.kind == "wmma12":
            return register + 8 * group, place
        return 4 * group + register, place
    if product.kind == "wmma11":
        term = register
    elif product.kind == "wmma12":
        term = 8 * group + register
    else:
        term = product.terms // 4 * group + register
    return (place, term) if operand == "a" else (term, place)


class _Text(HelperText):
    def float_vector(self, words: str, kind: str, part: int, signed: bool) -> str:
        """One of the elements in each lane's word, as the type of the sums."""
        vector, lanes = self.vector_type, self.lane_count
        result = f"<{lanes} x float>"
        if kind in ("f16", "bf16"):
            half = self.emit(f"lshr {vector} {words}, splat (i32 {16 * part})") if part else words
            if kind == "bf16":
                bits = (
                    self.emit(f"and {vector} {words}, splat (i32 -65536)")
                    if part
                    else self.emit(f"shl {vector} {words}, splat (i32 16)")
                )
                return self.emit(f"bitcast {vector} {bits} to {result}")
            narrow = self.emit(f"trunc {vector} {half} to <{lanes} x i16>")
            value = self.emit(f"bitcast <{lanes} x i16> {narrow} to <{lanes} x half>")
            return self.emit(f"fpext <{lanes} x half> {value} to {result}")
        if kind in ("iu8", "i8"):
            moved = self.emit(f"shl {vector} {words}, splat (i32 {24 - 8 * part})")
            name = "ashr" if signed else "lshr"
            return self.emit(f"{name} {vector} {moved}, splat (i32 24)")
        raise CompileError(f"the emulator multiplies no matrices of {kind} yet")


def write_product(form: Form) -> str:
    """Words: A, B, C (where it is no constant), result."""
    product, a_signed, b_signed, has_c = form.extra
    assert isinstance(product, Product)
    text = _Text(form.lanes)
    lanes = form.lanes
    is_float = product.result == "f32"
    kind = "float" if is_float else "i32"
    each = 2 if product.a in ("f16", "bf16") else 4
    count = 8 if product.kind != "mfma" else 4
    held = {"wmma11": 16, "wmma12": product.terms // 2, "mfma": product.terms // 4}[product.kind]
    rooms = []
    for number, (name, element, signed) in enumerate(
        (("a", product.a, a_signed), ("b", product.b, b_signed))
    ):
        # A by rows for each term, B by columns: both 16 elements wide
        room = text.emit(f"alloca [{product.terms * 16} x {kind}], align 64")
        register = text.register(number)
        for word in range(held // each):
            words = text.read_at(text.place(4 * lanes * word, register), 32)
            for part in range(each):
                value = text.float_vector(words, element, part, bool(signed))
                _spread(text, product, name, word * each + part, value, room, kind)
        rooms.append(room)
    c_register = text.register(2) if has_c else ""
    out = text.register(3)
    _sums(text, product, rooms, c_register, out, kind, count)
    return text.finish("helper")


def _spread(
    text: _Text, product: Product, name: str, register: int, value: str, room: str, kind: str
) -> None:
    """Stores sixteen lanes at a time: they are the elements of one term."""
    lanes = text.lane_count
    vector = f"<{lanes} x {kind}>"
    for group in range(lanes // 16):
        if product.kind == "wmma11" and group:
            continue  # the same elements again
        row, column = element_of(product, name, register, 16 * group)
        term = column if name == "a" else row
        mask = ", ".join([f"i32 {16 * group + i}" for i in range(16)])
        part = text.emit(f"shufflevector {vector} {value}, {vector} poison, <16 x i32> <{mask}>")
        at = text.emit(f"getelementptr {kind}, ptr {room}, i64 {16 * term}")
        text.lines.append(f"  store <16 x {kind}> {part}, ptr {at}, align 4")


def _sums(
    text: _Text, product: Product, rooms: list[str], c: str, out: str, kind: str, count: int
) -> None:
    """For each register and each sixteen lanes: a row of sums, in vectors of sixteen columns."""
    lanes = text.lane_count
    wide = f"<16 x {kind}>"
    fma = "@llvm.fma.v16f32"
    results: dict[tuple[int, int], str] = {}
    for register in range(count):
        for group in range(lanes // 16):
            row, _ = element_of(product, "c", register, 16 * group)
            total = "zeroinitializer"
            if c:
                at = text.place(4 * lanes * register + 64 * group, c)
                total = text.emit(f"load {wide}, ptr {at}, align 64")
            for term in range(product.terms):
                place = text.emit(f"getelementptr {kind}, ptr {rooms[0]}, i64 {16 * term + row}")
                left = text.emit(f"load {kind}, ptr {place}, align 4")
                one = text.emit(f"insertelement {wide} poison, {kind} {left}, i64 0")
                every = text.emit(
                    f"shufflevector {wide} {one}, {wide} poison, <16 x i32> zeroinitializer"
                )
                at = text.emit(f"getelementptr {kind}, ptr {rooms[1]}, i64 {16 * term}")
                right = text.emit(f"load {wide}, ptr {at}, align 4")
                if kind == "float":
                    text.declare(f"{wide} {fma}({wide}, {wide}, {wide})")
                    given = f"{wide} {every}, {wide} {right}, {wide} {total}"
                    total = text.emit(f"call {wide} {fma}({given})")
                else:
                    part = text.emit(f"mul {wide} {every}, {right}")
                    total = text.emit(f"add {wide} {total}, {part}")
            results[register, group] = total
    # all lanes take part, whatever the mask says
    for (register, group), total in results.items():
        at = text.place(4 * lanes * register + 64 * group, out)
        text.lines.append(f"  store {wide} {total}, ptr {at}, align 64")
