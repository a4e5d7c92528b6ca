"""Accesses to memory by the names of their instructions.

In: a mnemonic. Out: an `Access`: which memory, how many bytes, what becomes of them in registers.
Between the decoder and the helpers of memory.
Invariant: names of all generations that mean the same give the same access.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

_NAME = re.compile(r"(global|flat|scratch|ds|s|buffer)_(load|store|read|write)(2?(?:st64)?)_(.+)\Z")
_WORDS = {
    "dword": "b32", "dwordx2": "b64", "dwordx3": "b96", "dwordx4": "b128", "dwordx8": "b256",
    "dwordx16": "b512", "ubyte": "u8", "sbyte": "i8", "ushort": "u16", "sshort": "i16",
    "short": "b16", "byte": "b8", "ubyte_d16": "d16_u8", "ubyte_d16_hi": "d16_hi_u8",
    "sbyte_d16": "d16_i8", "sbyte_d16_hi": "d16_hi_i8", "short_d16": "d16_b16",
    "short_d16_hi": "d16_hi_b16", "byte_d16_hi": "d16_hi_b8", "u8_d16": "d16_u8",
    "u8_d16_hi": "d16_hi_u8", "i8_d16": "d16_i8", "i8_d16_hi": "d16_hi_i8",
    "u16_d16": "d16_b16", "u16_d16_hi": "d16_hi_b16", "b8_d16_hi": "d16_hi_b8",
    "b16_d16_hi": "d16_hi_b16",
}  # fmt: skip


@dataclass(frozen=True)
class Access:
    """One access of a lane, or of a wave."""

    memory: str  # global, flat, scratch, ds, s
    is_load: bool
    bits: int  # of each part
    is_signed: bool = False
    half: int | None = None  # of 16-bit registers: the half that is read or written
    parts: int = 1  # two addresses: 2
    stride: int = 0  # of the offsets of two parts, in bytes

    @property
    def words(self) -> int:
        """Registers of each part."""
        return max(1, self.bits // 32)


@functools.cache
def access_of(mnemonic: str) -> Access | None:
    """The access of a load or store; None for others."""
    match = _NAME.match(mnemonic)
    if match is None:
        return None
    memory, verb, pair, rest = match.groups()
    is_load = verb in ("load", "read")
    parts, stride = 1, 0
    if rest.startswith("2addr_"):
        pair, rest = "2", rest[6:]
        if rest.startswith("stride64_"):
            pair, rest = "2st64", rest[9:]
    rest = _WORDS.get(rest, rest)
    half: int | None = None
    found = re.fullmatch(r"(d16_hi_|d16_)?([bui])(\d+)", rest)
    if found is None:
        return None
    packed, letter, bits = found.groups()
    if packed:
        half = 1 if "hi" in packed else 0
    if pair:
        parts = 2
        stride = int(bits) // 8 * (64 if "st64" in pair else 1)
    return Access(memory, is_load, int(bits), letter == "i", half, parts, stride)


_ATOMIC = re.compile(r"(global|flat|ds|scratch)_(?:atomic_)?(.+?)(_rtn)?(_[ubif]\d+|_x2)?\Z")
_ATOMIC_OPS = {
    "add": "add", "sub": "sub", "smin": "min", "min": "min", "smax": "max", "max": "max",
    "umin": "umin", "umax": "umax", "and": "and", "or": "or", "xor": "xor", "swap": "xchg",
    "cmpswap": "cmpswap", "wrxchg": "xchg", "storexchg": "xchg", "cmpst": "cmpswap",
    "cmpstore": "cmpswap", "cmpst_rtn": "cmpswap", "add_rtn": "add", "min_num": "fmin",
    "max_num": "fmax", "inc": "inc", "dec": "dec",
}  # fmt: skip


@dataclass(frozen=True)
class Atomic:
    """A read, a computation and a write that nothing comes between."""

    memory: str
    operation: str
    bits: int
    is_float: bool = False


@functools.cache
def atomic_of(mnemonic: str) -> Atomic | None:
    """The atomic of a mnemonic; None for others."""
    match = re.fullmatch(
        r"(global|flat|ds)_(?:atomic_)?(add|sub|smin|smax|umin|umax|min|max|min_num|max_num|and|or|"
        r"xor|swap|cmpswap|wrxchg|storexchg|cmpst|cmpstore)(_rtn)?_?(f|u|i|b)?(32|64|x2)?",
        mnemonic,
    )
    if match is None:
        return None
    memory, operation, _, letter, size = match.groups()
    if memory != "ds" and "_atomic_" not in mnemonic:
        return None
    bits = 64 if size in ("64", "x2") else 32
    kind = _ATOMIC_OPS[operation]
    if letter == "u" and kind in ("min", "max"):
        kind = "u" + kind
    is_float = letter == "f"
    if is_float and kind in ("add", "min", "max"):
        kind = "f" + kind
    return Atomic(memory, kind, bits, is_float)
