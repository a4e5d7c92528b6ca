"""Ops of tinygrad's that are no ops here: other expressions, or nothing.

What comes in: nothing. What goes out: their names. Where it sits: under `opset`, whose `Ops` has
them as attributes beside its members; `UPat` and `UOp.alu` know what they mean.
The one invariant: no node of weft's has one of them as its op.
"""

from __future__ import annotations


class Spelling:
    """An op of tinygrad's that is another expression here."""

    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        self.name = name

    def __repr__(self) -> str:
        return f"Ops.{self.name}"


# 1/x is FDIV, x-y is ADD of a NEG; the others divide towards zero
SPELLED = ("RECIPROCAL", "SUB", "CDIV", "CMOD")
# what only tinygrad's compiler has: a pattern of it matches nothing
ABSENT = (
    *("BINARY", "CALL", "CUSTOM", "CUSTOMI", "CUSTOM_FUNCTION", "GETADDR", "GETTUPLE", "INS"),
    *("LINEAR", "MSELECT", "MSTACK", "PROGRAM", "PYLITERAL", "REWRITE_ERROR", "SOURCE", "TUPLE"),
    "UNSHARD",
)
