"""What an instruction takes: its operands in order, its modifiers by name, words it must have.

In: a row. Out: its `Shape`, read off the assembly template. Between the table and the encoder.
Invariant: printer and encoder agree about what is positional, because both follow the template.
"""

from __future__ import annotations

import functools
import re
from dataclasses import dataclass

from weft.amd.table import Row, Slot
from weft.amd.text import pieces, suffix

_LANES = (
    *("quad_perm", "row_shl", "row_shr", "row_ror", "wave_shl", "wave_rol", "wave_shr"),
    *("wave_ror", "row_mirror", "row_half_mirror", "row_bcast", "row_share", "row_newbcast"),
    "row_xmask",
)
_POLICIES = ("glc", "slc", "dlc", "scc", "sc0", "sc1", "nt", "th", "scope", "nv", "scale_offset")
# by which names the modifiers of a print method go
_NAMES = {
    "printCPol": _POLICIES,
    "printOModSI": ("mul", "div"),
    "printOpSel": ("op_sel",),
    "printOpSelHi": ("op_sel_hi",),
    "printNegLo": ("neg_lo",),
    "printNegHi": ("neg_hi",),
    "printDPPCtrl": _LANES,
    "printDPP8": ("dpp8",),
    "printDppFI": ("fi",),
    "printDppBoundCtrl": ("bound_ctrl",),
    "printOffset": ("offset",),
    "printFlatOffset": ("offset",),
    "printSwizzle": ("offset",),
    "printFORMAT": ("format",),
    "printDim": ("dim",),
    "printR128A16": ("r128", "a16"),
    "printSDWADstSel": ("dst_sel",),
    "printSDWASrc0Sel": ("src0_sel",),
    "printSDWASrc1Sel": ("src1_sel",),
    "printSDWADstUnused": ("dst_unused",),
    "printBLGP": ("blgp", "neg"),
    "printBitOp3": ("bitop3",),
    "printIndexKey16bit": ("index_key",),
}
WHOLE = {"printSWaitCnt", "printSDelayALU", "printDepCtr"}


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """How a row is written.

    `positional` names slots; "=word" is a word that stands there itself, "vaddr*" the list of an
    image's addresses. `optional` has the slots of modifiers by name, `words` those that a row
    must have, `names` the mnemonics by which it goes, `accepts` the names of its modifiers.
    """

    row: Row
    names: tuple[str, ...]
    positional: tuple[str, ...]
    optional: dict[str, Slot]
    words: frozenset[str]
    slots: dict[str, Slot]
    accepts: frozenset[str]

    @property
    def takes_whole(self) -> bool:
        """Whether all that follows the mnemonic is one operand."""
        slots = [self.slots[name] for name in self.positional if name in self.slots]
        return len(slots) == 1 and slots[0].type.printer in WHOLE


def modifier_names(slot: Slot) -> tuple[str, ...]:
    """The names by which a modifier's slot goes; none for an operand's."""
    method, _, arguments = slot.type.printer.partition(":")
    if method in ("printNamedBit", "printNamedInt"):
        return (arguments.partition(":")[0],)
    return _NAMES.get(method, ())


@functools.cache
def shape(row: Row, wave: int) -> Shape:
    """The shape of a row in waves of `wave` lanes."""
    slots = {slot.name: slot for slot in row.slots}
    mask = "=vcc" if wave == 64 else "=vcc_lo"
    positional: list[str] = []
    optional: dict[str, Slot] = {}
    words: set[str] = set()
    is_short = row.trait.encoding in ("vop2", "vopc") and "vcc" not in row.template
    if row.trait.encoding == "vopc" and is_short and "sdst" not in slots and "VCC" in row.defs:
        positional.append(mask)
    for name, text in pieces(row.template):
        if not name:
            _read_words(text, positional, words)
        elif modifier_names(slots[name]):
            optional[name] = slots[name]
        elif slots[name].type.printer == "printInterpAttrChan":
            continue
        elif re.fullmatch(r"vaddr\d", name) and "[" in row.template:
            if "vaddr*" not in positional:
                positional.append("vaddr*")
        else:
            positional.append(name.removesuffix("_modifiers"))
            if is_short and row.trait.encoding == "vop2":
                if name == "vdst" and "VCC" in row.defs:
                    positional.append(mask)
                if name.startswith("src1") and "VCC" in row.uses:
                    positional.append(mask)
    base = row.mnemonic.removesuffix("_e32")
    marked = re.match(r"\{(\w+)\}", row.template)
    ending = marked[1] if marked else suffix(row)
    if row.trait.encoding == "vopc" and not marked:
        ending = _comparison_suffix(row)
    names = (base, base + ending) if ending else (base,)
    accepts = words | {name for slot in optional.values() for name in modifier_names(slot)}
    parts = (tuple(positional), optional, frozenset(words), slots, frozenset(accepts))
    return Shape(row, names, *parts)


def _comparison_suffix(row: Row) -> str:
    if "sdwa" in row.flags:
        return "_sdwa"
    return "_dpp" if "dpp" in row.flags else "_e32"


def _read_words(text: str, positional: list[str], words: set[str]) -> None:
    """Words of a template between its slots."""
    text = re.sub(r"^_(e32|e64_dpp|e64|dpp|sdwa)\b", "", text)
    second = re.search(r":: (\w+)", text)
    if second:
        positional.append(f"=::{second[1]}")
        return
    for part in re.split(r"(,)", text.replace("[", " ").replace("]", " ")):
        for word in part.split():
            if word == ",":
                continue
            if word in ("off", "vcc", "vcc_lo", "null", "exec"):
                positional.append(f"={word}")
            else:
                words.add(word)
